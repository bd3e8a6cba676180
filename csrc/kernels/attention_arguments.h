/* attention_arguments.h - the arguments of attention, and how a call of it is cut: into items, or
 * into parts. */
#ifndef SLUICE_KERNELS_ATTENTION_ARGUMENTS_H
#define SLUICE_KERNELS_ATTENTION_ARGUMENTS_H
#include <stdint.h>

typedef struct {
    float *o;
    const float *q;
    const void *k, *v;
    float *scores;
    int64_t n_scores;
    /* cap 0: none */
    int32_t type, n_tok, pos, n_head, n_head_kv, head_dim, window;
    float scale, cap;
    int32_t item_tok; /* tokens an item covers */
    /* NULL, or n_cached bytes a thread where keys and values of this many positions stay */
    uint8_t *cached;
    int64_t n_cached;
    int32_t cached_rows;
    /* 0: items as they are; else parts of ATTEND_ALL, cut by heads, or of a step, cut by positions,
     * queries, elements */
    int32_t steps, n_part;
} attention_args;
enum {
    ATTEND_SCORES = 1,
    ATTEND_SOFTMAX = 2,
    ATTEND_VALUES = 4,
    ATTEND_ALL = 7,
    ATTEND_QUERIES = 512 /* at once */
};

/* Floats from the scores of one query to those of the next, for n positions and the inverse of
 * their sum: lines of the cache, and an odd number of them, 9 more than a multiple of 16, so that
 * scores of several queries for the same positions are not in the same sets. */
static inline int64_t score_stride(int64_t n) { return ((n + 1 + 15) / 16 + 6) / 16 * 256 + 144; }

/* Of attention_args.cached: bytes before the floats of a thread's share, and floats of n keys
 * as columns. */
enum { CACHED_HEADER = 64 };
static inline int64_t cached_keys(int64_t n, int64_t dim) { return ((n + 31) / 32 * dim + 8) * 32; }

/* Item i of n_item: head by head, so that those of one head find its keys and values in the
 * second-level cache. */
typedef struct { int32_t t0, n_tok, head_kv; } attention_item;
static inline attention_item item_of(const attention_args *a, int64_t i)
{
    const int32_t n_block = (a->n_tok + a->item_tok - 1) / a->item_tok,
                  t0 = (int32_t)(i % n_block) * a->item_tok;
    return (attention_item){t0, a->n_tok - t0 < a->item_tok ? a->n_tok - t0 : a->item_tok,
                            (int32_t)(i / n_block)};
}

/* Part `part` of n things cut in n_part parts, all but the last a multiple of `unit`. */
typedef struct { int32_t begin, end; } span;
static inline span span_of(int32_t n, int32_t unit, int32_t n_part, int32_t part)
{
    const int64_t n_unit = (n + unit - 1) / unit, begin = n_unit * part / n_part * unit,
                  end = n_unit * (part + 1) / n_part * unit;
    return (span){(int32_t)(begin < n ? begin : n), (int32_t)(end < n ? end : n)};
}
#endif
