/* attention.h - the queries of an item of attention, for avx2.c and avx512_attention.c. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H
#include "internal.h"

/* One head of one token: score[j] is that of position j, first to p. */
typedef struct { const float *q; float *o, *score; int32_t first, p; } query;

/* x [n_tok * n_head] = the queries of tokens t0 ..., heads h0 ..., by token.  Returns the first position that any sees. */
static int32_t set_queries(query *x, const attention_args *a, float *scores, int32_t t0, int32_t n_tok, int32_t h0, int32_t n_head)
{
    for (int32_t t = t0; t < t0 + n_tok; t++) {
        const int32_t p = a->pos + t, first = a->window && p >= a->window ? p - a->window + 1 : 0;
        for (int32_t h = h0; h < h0 + n_head; h++, scores += score_stride(a->pos + a->n_tok)) {
            const int64_t at = ((int64_t)t * a->n_head + h) * a->head_dim;
            *x++ = (query){a->q + at, a->o + at, scores, first, p};
        }
    }
    return a->window && a->pos + t0 >= a->window ? a->pos + t0 - a->window + 1 : 0;
}
#endif
