/* products.c - products of weights and activations: packed, shared out, and run by the chosen
 * instruction set. */
#include <stddef.h>
#include "kernels/decoded.h"
#include "kernels/fast.h"
#include "kernels/pack.h"
#include "kernels/shares.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

/* Products side by side, in units of rows; decoded: what each thread has for rows that it decodes,
 * so many bytes, or NULL. */
typedef struct {
    const matmul_args *p;
    int32_t n;
    uint8_t *decoded;
    int64_t decoded_bytes;
} group_args;

static void matmul_rows(const group_args *g, const matmul_args *p, int64_t begin, int64_t end,
                        int32_t thread)
{
    if (decoded_bytes(p))
        matmul_decoded(p, begin, end, thread,
                       g->decoded ? g->decoded + thread * g->decoded_bytes : NULL);
    else
        (p->terms ? best_fast()->matmul : best_isa()->matmul)(p, begin, end, thread);
}

static void matmul_units(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const group_args *g = arg;
    int64_t first = 0; /* unit of the group with which product i begins */
    for (int32_t i = 0; i < g->n; first += units_of(g->p + i++)) {
        const int64_t from = begin > first ? (begin - first) * UNIT : 0, to = (end - first) * UNIT;
        const int64_t last = to < g->p[i].n_row ? to : g->p[i].n_row;
        if (from < last)
            matmul_rows(g, g->p + i, from, last, thread);
    }
}

void matmuls(product *p, int32_t n_product)
{
    group_args g = {p, n_product, NULL, 0};
    const int64_t n_unit = units_of_group(p, n_product);
    for (int32_t i = 0; i < n_product; i++)
        if (g.decoded_bytes < decoded_bytes(p + i))
            g.decoded_bytes = decoded_bytes(p + i);
    g.decoded = pack_products(p, n_product, g.decoded_bytes * threads_count());
    if (threads_count() > 1)
        name_shares(p->then, p->then ? p->n_then : 0);
    parallel(matmul_units, &g, n_unit, share_of(p, n_unit));
}

void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x,
            const int8_t *q, const float *d, const float *s, const int16_t *sums, int32_t n_tok,
            int32_t n_row, int32_t n)
{
    product p = {y, w, rows, x, q, d, s, sums, type, n_tok, n_row, n, NULL, NULL, NULL, 0};
    matmuls(&p, 1);
}
