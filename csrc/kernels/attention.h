/* attention.h - which queries read which rows of keys and values, and in what order; for avx2.c and
 * avx512_attention.c, which say how.
 *
 * A prompt's items are a few tokens and one head of keys and values each.  Of a long prompt, each
 * thread converts a head's keys and values once and caches them for the items that follow; else
 * every item converts what it reads, block by block.  A few tokens, as in decoding, read rows in
 * the order of memory instead, block by block of positions and in each block head by head, so that
 * the processor fetches them ahead: threads have whole heads if the KV heads divide evenly; else
 * scores are divided by position, then values by element. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H
#include <string.h>
#include "formats/types.h"
#include "kernels/attention_rows.h"
#include "kernels/functions.h"

/* x [n_tok * n_head] = the queries of tokens t0 ..., heads h0 ..., by token.  Returns the first
 * position that any sees. */
static int32_t set_queries(query *x, const attention_args *a, float *scores, int32_t t0,
                           int32_t n_tok, int32_t h0, int32_t n_head)
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

static void score_stripes(const query *x, int32_t n_query, const plane *k, int32_t n_head,
                          float scale, int32_t begin, int32_t end)
{
    plane of_head = *k;
    if (n_head == 1)
        score_part(x, n_query, k, scale, begin, end);
    for (int32_t j = begin; n_head > 1 && j < end; j += STRIPE)
        for (int32_t h = 0; h < n_head; h++) {
            of_head.p = k->p + h * type_row_bytes(k->type, k->dim);
            score_part(x + h * n_query, n_query, &of_head, scale, j,
                       j + STRIPE < end ? j + STRIPE : end);
        }
}

static void clear_outputs(const query *x, int32_t n_query, int32_t n)
{
    for (int32_t i = 0; i < n_query; i++)
        memset(x[i].o, 0, (size_t)n * 4);
}

static void divide_outputs(const query *x, int32_t n_query, int32_t n)
{
    for (int32_t i = 0; i < n_query; i++)
        for (int32_t e = 0; e < n; e++)
            x[i].o[e] = x[i].o[e] * x[i].score[x[i].p + 1];
}

/* From scores to weights: only those of positions that are seen. */
static void weigh(const query *x, const attention_args *a)
{
    if (a->cap != 0.0f)
        cap_all(x->score + x->first, x->p + 1 - x->first, a->cap);
    softmax(x);
}

/* Converted keys and values of a head, from the thread's part of a->cached, whose header has the
 * head's number; another head is converted first. */
static void fetch_cached(plane *k, plane *v, const attention_args *a, int32_t head, int32_t thread)
{
    uint8_t *const cached = a->cached + thread * a->n_cached;
    const int32_t dim = a->head_dim, n = a->cached_rows, first = a->pos + a->n_tok - n;
    float *const keys = (float *)(cached + CACHED_HEADER),
                 *const values = keys + cached_keys(n, dim);
    int32_t now;
    memcpy(&now, cached, sizeof now);
    if (now != head) {
        load_keys(keys, k, first, n);
        load_values(values, v, first, n);
        memcpy(cached, &head, sizeof head);
    }
    *k = (plane){(const uint8_t *)keys, 0, AS_COLUMNS, dim, first};
    *v = (plane){(const uint8_t *)values, (int64_t)dim * 4, T_F32, dim, first};
}

/* All of an item, or those of a group too large for one. */
static void attend(const attention_args *a, float *scores, int32_t t0, int32_t n_tok, int32_t h0,
                   int32_t n_head, int32_t thread)
{
    query x[ATTEND_QUERIES];
    const int32_t head = h0 / (a->n_head / a->n_head_kv), n_query = n_tok * n_head,
                  end = a->pos + t0 + n_tok;
    const int32_t first = set_queries(x, a, scores, t0, n_tok, h0, n_head);
    plane k = plane_of(a, a->k, head, (span){0, a->head_dim}),
          v = plane_of(a, a->v, head, (span){0, a->head_dim});
    if (a->cached)
        fetch_cached(&k, &v, a, head, thread);
    score_heads(x, n_query, &k, 1, a->scale, first, end);
    for (int32_t i = 0; i < n_query; i++)
        weigh(x + i, a);
    clear_outputs(x, n_query, v.dim);
    value_part(x, n_query, &v, first, end);
    divide_outputs(x, n_query, v.dim);
}

/* Elements s of all heads in a row, n_query queries for each head. */
static void add_stripes(query *x, int32_t n_query, const attention_args *a, span s, int32_t first,
                        int32_t end)
{
    const int32_t dim = a->head_dim, h0 = s.begin / dim, h1 = (s.end + dim - 1) / dim;
    for (int32_t j = first; j < end; j += STRIPE)
        for (int32_t h = h0; h < h1; h++) {
            const span e = {s.begin > h * dim ? s.begin - h * dim : 0,
                            s.end < (h + 1) * dim ? s.end - h * dim : dim};
            const plane v = plane_of(a, a->v, h, e);
            query *of_head = x + h * n_query;
            for (int32_t i = 0; j == first && i < n_query; i++)
                of_head[i].o += e.begin;
            if (j == first)
                clear_outputs(of_head, n_query, v.dim);
            value_part(of_head, n_query, &v, j, j + STRIPE < end ? j + STRIPE : end);
            if (j + STRIPE >= end)
                divide_outputs(of_head, n_query, v.dim);
        }
}

/* Part `part` of all tokens and heads: all of its heads, or one step, of its positions, queries or
 * elements. */
static void attend_stripes(const attention_args *a, int32_t part)
{
    query x[ATTEND_QUERIES];
    const int32_t group = a->n_head / a->n_head_kv, n_query = a->n_tok * group,
                  end = a->pos + a->n_tok, dim = a->head_dim;
    const int whole = a->steps == ATTEND_ALL;
    int32_t first = 0;
    for (int32_t h = 0; h < a->n_head_kv; h++)
        first = set_queries(x + h * n_query, a, a->scores + h * a->n_scores, 0, a->n_tok, h * group,
                            group);
    const span all_heads = {0, a->n_head_kv}, all = {0, end - first},
               heads = whole ? span_of(a->n_head_kv, 1, a->n_part, part) : all_heads;
    if (a->steps & ATTEND_SCORES) {
        const span s = whole ? all : span_of(end - first, STRIPE, a->n_part, part);
        const plane k = plane_of(a, a->k, heads.begin, (span){0, dim});
        score_heads(x + heads.begin * n_query, n_query, &k, heads.end - heads.begin, a->scale,
                    first + s.begin, first + s.end);
    }
    if (a->steps & ATTEND_SOFTMAX) {
        const span s = span_of(a->n_head_kv * n_query, whole ? n_query : 1, a->n_part, part);
        for (int32_t i = s.begin; i < s.end; i++)
            weigh(x + i, a);
    }
    if (a->steps & ATTEND_VALUES)
        add_stripes(x, n_query, a,
                    span_of(a->n_head_kv * dim, whole || dim % 32 ? dim : 32, a->n_part, part),
                    first, end);
}

static void attend_items(const attention_args *a, int64_t begin, int64_t end, int32_t thread)
{
    const int32_t group = a->n_head / a->n_head_kv;
    for (int64_t i = begin; i < end; i++) {
        const attention_item item = item_of(a, i);
        for (int32_t g = 0; g < group && !a->n_part;
             g += ATTEND_QUERIES) /* more than one round only where an item is one token */
            attend(a, a->scores + thread * a->n_scores, item.t0, item.n_tok,
                   item.head_kv * group + g,
                   group - g < ATTEND_QUERIES ? group - g : ATTEND_QUERIES, thread);
        if (a->n_part)
            attend_stripes(a, (int32_t)i);
    }
}
#endif
