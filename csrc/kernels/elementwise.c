/* elementwise.c - what goes row by row or element by element: by the chosen instruction set where
 * it has vectors of its own for it, over the threads. */
#include "api/formats.h"
#include "kernels/arguments.h"
#include "kernels/grain.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

/* Operations that need no vectors of their own: arguments, and a range of items. */
typedef struct {
    float *y;
    const void *w;
    const int32_t *tokens;
    int32_t type, n;
    float scale;
} embed_args;

static void embed_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const embed_args *a = arg;
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *y = a->y + t * a->n;
        dequantize_row(y, a->type, (const uint8_t *)a->w + a->tokens[t] * row_bytes, a->n);
        if (a->scale != 1.0f)
            for (int64_t i = 0; i < a->n; i++)
                y[i] *= a->scale;
    }
}

void embed(float *y, int32_t type, const void *w, const int32_t *tokens, int32_t n_tok, int32_t n,
           float scale)
{
    const embed_args a = {y, w, tokens, type, n, scale};
    parallel(embed_rows, &a, n_tok, grain_of(n, SMALL_WORK / 8, 1));
}

void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps)
{
    const rmsnorm_args a = {y, x, w, n, eps};
    parallel(best_isa()->rmsnorm, &a, n_row, grain_of(n, SMALL_WORK / 2, 1));
}

void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim,
          int32_t n_pair, int32_t half)
{
    const rope_args a = {x, cs, n_head, head_dim, n_pair, half};
    parallel(best_isa()->rope, &a, n_tok, grain_of((int64_t)n_head * head_dim, SMALL_WORK / 2, 1));
}

typedef struct {
    uint8_t *y;
    const float *x;
    int32_t type;
} store_args;

static void store_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const store_args *a = arg;
    (void)thread;
    best_isa()->cache_store(a->y + type_row_bytes(a->type, begin), a->type, a->x + begin,
                            end - begin);
}

void cache_store(void *y, int32_t type, const float *x, int64_t n)
{
    const store_args a = {y, x, type};
    parallel(store_range, &a, n, SMALL_WORK / 4);
}

void silu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best_isa()->silu_mul, &a, n, SMALL_WORK / 8);
}

void gelu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best_isa()->gelu_mul, &a, n, SMALL_WORK / 8);
}

void sigmoid_mul(float *x, const float *gate, int64_t n)
{
    const pair_args a = {x, gate};
    parallel(best_isa()->sigmoid_mul, &a, n, SMALL_WORK / 8);
}

void soft_cap(float *x, int64_t n, float cap)
{
    const cap_args a = {x, cap};
    parallel(best_isa()->soft_cap, &a, n, SMALL_WORK / 8);
}

static void add_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->y[i] += a->x[i];
}

void add(float *x, const float *y, int64_t n)
{
    const pair_args a = {x, y};
    parallel(add_range, &a, n, SMALL_WORK / 2);
}

static void mul_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->y[i] *= a->x[i];
}

void mul(float *x, const float *y, int64_t n)
{
    const pair_args a = {x, y};
    parallel(mul_range, &a, n, SMALL_WORK / 2);
}

typedef struct { float *x, factor; } scale_args;

static void scale_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const scale_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->x[i] *= a->factor;
}

void scale(float *x, int64_t n, float factor)
{
    const scale_args a = {x, factor};
    parallel(scale_range, &a, n, SMALL_WORK / 2);
}

typedef struct {
    float *x;
    const float *b;
    int32_t n;
} bias_args;

static void scale_some_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const bias_args *a = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n; i++)
            a->x[t * a->n + i] *= a->b[t];
}

void scale_each(float *x, const float *factor, int32_t n_tok, int32_t n)
{
    const bias_args a = {x, factor, n};
    parallel(scale_some_rows, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

static void bias_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const bias_args *a = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n; i++)
            a->x[t * a->n + i] += a->b[i];
}

void add_bias(float *x, const float *b, int32_t n_tok, int32_t n)
{
    const bias_args a = {x, b, n};
    parallel(bias_rows, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

typedef struct {
    float *y;
    const float *x;
    int32_t n, n_x;
} columns_args;

static void columns_of_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const columns_args *a = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n; i++)
            a->y[t * a->n + i] = a->x[t * a->n_x + i];
}

void take_columns(float *y, const float *x, int32_t n_tok, int32_t n, int32_t n_x)
{
    const columns_args a = {y, x, n, n_x};
    parallel(columns_of_rows, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}
