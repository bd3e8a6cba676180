/* avx512_attention.c - attention for avx512.c; the bits of reference.c.
 *
 * A few tokens and one head of keys and values at a time, K and V block by block for all queries of
 * these tokens.  A lane is a position while scores are made (avx512_scores.h): K is transposed, 32
 * positions at a time, and each element of a query is multiplied by them all. Values, whose lanes
 * are elements, are read as they lie in the cache where queries are few, and converted once where
 * they are many.  8 queries x 32 positions or elements are 16 sums in registers, as many as both
 * units of fma want. At the edge of what is seen a tile may compute a score that no query wants;
 * softmax and the values read only the wanted ones. */
#ifdef __AVX512VNNI__
#include <math.h>
#include "kernels/attention.h"
#include "kernels/x86/avx512_scores.h"

enum {
    VALUES = 4,
    AHEAD = 32 /* rows of values: the processor does not prefetch them itself, head by head */
};

static void score_heads(const query *x, int32_t n_query, const plane *k, int32_t n_head,
                        float scale, int32_t begin, int32_t end)
{
    if (k->type != T_F16 || n_query > QUERIES)
        score_stripes(x, n_query, k, n_head, scale, begin, end);
    else if (n_query == 8)
        score_few(x, n_query, k, n_head, scale, begin, end, 8);
    else if (n_query >= 4)
        score_few(x, n_query, k, n_head, scale, begin, end, 4);
    else
        score_few(x, n_query, k, n_head, scale, begin, end, 1);
}

/* ---- queries and their softmax
 * ------------------------------------------------------------------- */

/* Lanes, positions j ... j + 15, that query x sees. */
INLINE __mmask16 seen_by(const query *x, int32_t j)
{
    return first_lanes(x->p + 1 - j) & (__mmask16)~first_lanes(x->first - j);
}

/* One step of the two passes of softmax: 16 positions from j on, of which `seen` are wanted. */
INLINE __m512 max_step(__m512 max, const float *score, __mmask16 seen)
{
    /* a NaN is passed over */
    return _mm512_mask_max_ps(max, seen, _mm512_maskz_loadu_ps(seen, score), max);
}

INLINE __m512 exp_step(__m512 lane, float *score, __m512 max, __mmask16 seen)
{
    const __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(seen, score), max));
    _mm512_mask_storeu_ps(score, seen, e);
    return _mm512_mask_add_ps(lane, seen, lane, e);
}

static void softmax(const query *x)
{
    /* only these two groups may have lanes that are not seen */
    const int32_t begin = x->first / 16 * 16, last = x->p / 16 * 16;
    const __mmask16 seen = seen_by(x, begin), seen_last = seen_by(x, last);
    __m512 max = max_step(_mm512_set1_ps(-INFINITY), x->score + begin, seen), other = max,
           lane = _mm512_setzero_ps();
    int32_t i = begin + 16;
    for (; i + 16 < last; i += 32) { /* two, for one would wait for itself */
        max = max_step(max, x->score + i, 0xffff);
        other = max_step(other, x->score + i + 16, 0xffff);
    }
    if (i < last)
        max = max_step(max, x->score + i, 0xffff);
    max = _mm512_set1_ps(
        _mm512_reduce_max_ps(max_step(_mm512_max_ps(other, max), x->score + last, seen_last)));
    lane = exp_step(lane, x->score + begin, max, seen);
    for (int32_t j = begin + 16; j < last; j += 16)
        lane = exp_step(lane, x->score + j, max, 0xffff);
    if (last > begin)
        lane = exp_step(lane, x->score + last, max, seen_last);
    lane = fold_4(fold_8(lane, lane), lane);
    lane = fold_2(lane, lane);
    x->score[x->p + 1] = 1.0f / _mm512_cvtss_f32(fold_1(lane, lane));
}

/* ---- values
 * -------------------------------------------------------------------------------------- */

/* Adds rows begin ... end - 1 of values, F32 or F16, the first row at position j0, weighted, to
 * elements e ... e + 16 N - 1 of the outputs of T queries, or to those of them in `lanes`:
 * ascending positions, one fma each. */
INLINE void add_rows(const query *x, const plane *v, int32_t j0, int32_t begin, int32_t end,
                     int32_t e, __mmask16 lanes, int32_t type, int T, int N)
{
    const int width = type == T_F32 ? 4 : 2;
    const uint8_t *from = row_of(v, begin) + e * width;
    __m512 o[QUERIES][VALUES];
    if (begin >= end)
        return;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            o[t][i] = _mm512_maskz_loadu_ps(lanes, x[t].o + e + 16 * i);
    for (int32_t j = begin; j < end; j++, from += v->row_bytes) {
        __m512 value[VALUES];
        for (int i = 0; i < N; i++)
            value[i] = load_lanes(type, from + 16 * width * i, lanes);
        if (type != T_F32)
            _mm_prefetch((const char *)from + AHEAD * v->row_bytes, _MM_HINT_T1);
        for (int t = 0; t < T; t++) {
            const __m512 weight = _mm512_set1_ps(x[t].score[j0 + j]);
            for (int i = 0; i < N; i++)
                o[t][i] = _mm512_fmadd_ps(weight, value[i], o[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            _mm512_mask_storeu_ps(x[t].o + e + 16 * i, lanes, o[t][i]);
}

/* The same for `step` elements from e on: 16 N, or else 16 or what is left. */
INLINE void add_part(const query *x, const plane *v, int32_t j0, int32_t begin, int32_t end,
                     int32_t e, int32_t step, int32_t type, int T, int N)
{
    if (step == 16 * N)
        add_rows(x, v, j0, begin, end, e, 0xffff, type, T, N);
    else
        add_rows(x, v, j0, begin, end, e, first_lanes(v->dim - e), type, T, 1);
}

/* Adds n rows of values to the outputs of T queries, 16 N elements at a time: rows that only some
 * see, that all see, that some see. */
INLINE void add_values(const query *x, const plane *v, int32_t j0, int32_t n, int32_t type, int T,
                       int N)
{
    int32_t begin[QUERIES], end[QUERIES], first = 0, last = n;
    for (int t = 0; t < T; t++) {
        begin[t] = x[t].first > j0 ? x[t].first - j0 : 0;
        end[t] = x[t].p + 1 - j0 < n ? x[t].p + 1 - j0 : n;
        first = begin[t] > first ? begin[t] : first;
        last = end[t] < last ? end[t] : last;
    }
    const int n_edge = first == 0 && last == n ? 0 : T;
    last = last > first ? last : first;
    for (int32_t e = 0, step; e < v->dim; e += step) {
        step = e + 16 * N <= v->dim ? 16 * N : 16;
        for (int t = 0; t < n_edge; t++)
            add_part(x + t, v, j0, begin[t], end[t] < first ? end[t] : first, e, step, type, 1, N);
        add_part(x, v, j0, first, last, e, step, type, T, N);
        for (int t = 0; t < n_edge; t++)
            add_part(x + t, v, j0, begin[t] > last ? begin[t] : last, end[t], e, step, type, 1, N);
    }
}

static void load_values(float *to, const plane *v, int32_t j, int32_t n)
{
    for (const int32_t end = j + n; j < end; j++, to += v->dim)
        for (int32_t e = 0; e < v->dim; e += 16)
            _mm512_mask_storeu_ps(to + e, first_lanes(v->dim - e),
                                  load_part(v->type, row_of(v, j), e, first_lanes(v->dim - e)));
}

/* Adds n rows of values from position j on. */
INLINE void value_rows(const query *x, int32_t n_query, const plane *v, int32_t j, int32_t n,
                       int32_t type)
{
    int32_t i = 0;
    for (; type != T_F32 && i + QUERIES <= n_query; i += QUERIES) /* these share each conversion */
        add_values(x + i, v, j, n, type, QUERIES, VALUES / 2);
    for (; i + TILE <= n_query; i += TILE)
        add_values(x + i, v, j, n, type, TILE, VALUES);
    for (; i < n_query; i++)
        add_values(x + i, v, j, n, type, 1, VALUES);
}

static void value_part(const query *x, int32_t n_query, const plane *v, int32_t begin, int32_t end)
{
    _Alignas(64) float block[BLOCK_FLOATS];
    for (int32_t j = begin, n; j < end; j += n) {
        plane at = {row_of(v, j), v->row_bytes, v->type, v->dim, 0};
        n = end - j < positions_of(v->dim) ? end - j : positions_of(v->dim);
        if (n_query <= QUERIES && v->type == T_F16)
            value_rows(x, n_query, &at, j, n, T_F16);
        else {
            if (v->type != T_F32) {
                load_values(block, v, j, n);
                at = (plane){(const uint8_t *)block, (int64_t)v->dim * 4, T_F32, v->dim, 0};
            }
            value_rows(x, n_query, &at, j, n, T_F32);
        }
    }
}

void attention_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    attend_items(arg, begin, end, thread);
}
#endif
