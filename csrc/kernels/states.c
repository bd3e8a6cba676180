/* states.c - layers with a state, over the threads: columns of a state do not depend on each other,
 * tokens do. */
#include "api/runtime.h"
#include "kernels/arguments.h"
#include "kernels/grain.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

void causal_conv(float *y, const float *x, const float *w, float *state, int32_t n_tok, int32_t n,
                 int32_t n_x, int32_t n_tap, int32_t silu)
{
    const conv_args a = {y, x, w, state, n_tok, n, n_x, n_tap, silu};
    parallel(best_isa()->causal_conv, &a, (n + CONV_CHANNELS - 1) / CONV_CHANNELS,
             grain_of((int64_t)n_tok * n_tap * CONV_CHANNELS, SMALL_WORK / 4, 1));
}

typedef struct {
    float *decay, *beta;
    const float *x, *a, *dt;
    int32_t n_head;
} gates_args;

/* In f64, rounded once: these are few, and a decay is applied to a state over and over. */
static void gates_of_tokens(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const gates_args *a = arg;
    (void)thread;
    for (int64_t i = begin * a->n_head; i < end * a->n_head; i++) {
        const int64_t h = i % a->n_head;
        const double x = (double)a->x[i] + (double)a->dt[h];
        const double rate = x > 40.0 ? x : sluice_log(1.0 + sluice_exp(x));
        a->decay[i] = (float)sluice_exp((double)a->a[h] * rate);
        a->beta[i] = (float)(1.0 / (1.0 + sluice_exp(-(double)a->beta[i])));
    }
}

void delta_gates(float *decay, float *beta, const float *x, const float *a, const float *dt,
                 int32_t n_tok, int32_t n_head)
{
    const gates_args g = {decay, beta, x, a, dt, n_head};
    parallel(gates_of_tokens, &g, n_tok, grain_of((int64_t)n_head * 100, SMALL_WORK / 4, 1));
}

void delta_net(float *o, const float *q, const float *k, const float *v, const float *decay,
               const float *beta, float *state, int32_t n_tok, int32_t n_head_k, int32_t n_head,
               int32_t dim)
{
    const delta_args a = {o, q, k, v, decay, beta, state, n_tok, n_head_k, n_head, dim};
    const int32_t n_block = (dim + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    parallel(best_isa()->delta_net, &a, (int64_t)n_head * n_block,
             grain_of((int64_t)n_tok * dim * DELTA_COLUMNS * 4, SMALL_WORK / 2, 1));
}
