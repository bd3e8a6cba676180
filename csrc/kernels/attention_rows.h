/* attention_rows.h - what the steps of attention work on, queries and rows of keys and values, and
 * the steps that a set of instructions has of its own: attention.h calls them, the file that
 * includes it defines them. */
#ifndef SLUICE_KERNELS_ATTENTION_ROWS_H
#define SLUICE_KERNELS_ATTENTION_ROWS_H
#include <stdint.h>
#include "api/formats.h"
#include "kernels/attention_arguments.h"

enum { STRIPE = 32 /* positions */ };

/* One head of one token.  score[j] is that of position j, first to p. */
// clang-format off
typedef struct { const float *q; float *o, *score; int32_t first, p; } query;

/* Rows of one head of K or V, or of a part of its elements: that of position j at
 * p + (j - first) * row_bytes; or the columns that load_keys made, and then row_bytes is 0. */
typedef struct { const uint8_t *p; int64_t row_bytes; int32_t type, dim, first; } plane;
// clang-format on
enum { AS_COLUMNS = -1 /* the type of that: f32 [.., dim, 32 positions] */ };

/* to f32 [(n + 31)/32, dim, 32] = rows j ... j + n - 1 as columns; up to 8 times 32 floats behind
 * them are written, too. */
static void load_keys(float *to, const plane *k, int32_t j, int32_t n);
/* to f32 [n, dim] = these rows. */
static void load_values(float *to, const plane *v, int32_t j, int32_t n);

/* Scores of the queries for positions begin ... end - 1, of those that some query sees. */
static void score_part(const query *x, int32_t n_query, const plane *k, float scale, int32_t begin,
                       int32_t end);
/* The same for n_query queries of each of n_head heads, of which k is the first, in the order of
 * memory, as score_stripes has it. */
static void score_heads(const query *x, int32_t n_query, const plane *k, int32_t n_head,
                        float scale, int32_t begin, int32_t end);
/* score[j] -> exp(score[j] - max); score[p + 1] = 1 / their sum. */
static void softmax(const query *x);
/* Adds the values of these positions, weighted, to v->dim elements of each output. */
static void value_part(const query *x, int32_t n_query, const plane *v, int32_t begin, int32_t end);

static plane plane_of(const attention_args *a, const void *p, int32_t head, span elements)
{
    const int64_t bytes = type_row_bytes(a->type, a->head_dim);
    return (plane){(const uint8_t *)p + head * bytes + type_row_bytes(a->type, elements.begin),
                   a->n_head_kv * bytes, a->type, elements.end - elements.begin, 0};
}
#endif
