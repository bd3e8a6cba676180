/* avx512_attention.c - attention for avx512.c; the bits of reference.c.
 *
 * A few tokens and one head of keys and values at a time, K and V block by block for all queries of these tokens.  A lane is a
 * position while scores are made: K is converted to f32 and transposed, 32 positions at a time, and each element of a
 * query meets them all.  Values, whose lanes are elements, are read as they lie in the cache where queries are few, and converted once
 * where they are many.  8 queries x 32 positions or elements are 16 sums in registers, as many as both units of fma want.
 * At the edge of what is seen a tile may compute a score that no query wants; softmax and the values take only the wanted ones. */
#ifdef __AVX512VNNI__
#include <math.h>
#include "avx512.h"
#include "attention.h"

enum { MAX_HEAD_DIM = 1024, QUERIES = 8, VALUES = 4, COLUMNS = 32 };
enum { BLOCK_FLOATS = COLUMNS * MAX_HEAD_DIM, AHEAD = 32 /* rows: met head by head they are not fetched by the processor itself */ };

/* Positions of a block: 32 KB in f32 where that is COLUMNS or more. */
INLINE int32_t positions_of(int32_t dim) { return dim <= 64 ? 128 : dim <= 128 ? 64 : COLUMNS; }

INLINE const uint8_t *row_of(const plane *x, int64_t j) { return x->p + (j - x->first) * x->row_bytes; }

/* ---- queries and their softmax ------------------------------------------------------------------- */

/* Lanes, positions j ... j + 15, that query x sees. */
INLINE __mmask16 seen_by(const query *x, int32_t j)
{
    return first_lanes(x->p + 1 - j) & (__mmask16)~first_lanes(x->first - j);
}

/* One step of the two passes of softmax: 16 positions from j on, of which `seen` are wanted. */
INLINE __m512 max_step(__m512 most, const float *score, __mmask16 seen)
{
    return _mm512_mask_max_ps(most, seen, _mm512_maskz_loadu_ps(seen, score), most); /* a NaN is passed over */
}

INLINE __m512 exp_step(__m512 lane, float *score, __m512 most, __mmask16 seen)
{
    const __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(seen, score), most));
    _mm512_mask_storeu_ps(score, seen, e);
    return _mm512_mask_add_ps(lane, seen, lane, e);
}

static void softmax(const query *x)
{
    const int32_t begin = x->first / 16 * 16, last = x->p / 16 * 16; /* only these two groups may have lanes that are not seen */
    const __mmask16 seen = seen_by(x, begin), seen_last = seen_by(x, last);
    __m512 most = max_step(_mm512_set1_ps(-INFINITY), x->score + begin, seen), other = most, lane = _mm512_setzero_ps();
    int32_t i = begin + 16;
    for (; i + 16 < last; i += 32) { /* two, for one would wait for itself */
        most = max_step(most, x->score + i, 0xffff);
        other = max_step(other, x->score + i + 16, 0xffff);
    }
    if (i < last)
        most = max_step(most, x->score + i, 0xffff);
    most = _mm512_set1_ps(_mm512_reduce_max_ps(max_step(_mm512_max_ps(other, most), x->score + last, seen_last)));
    lane = exp_step(lane, x->score + begin, most, seen);
    for (int32_t j = begin + 16; j < last; j += 16)
        lane = exp_step(lane, x->score + j, most, 0xffff);
    if (last > begin)
        lane = exp_step(lane, x->score + last, most, seen_last);
    lane = fold_4(fold_8(lane, lane), lane);
    lane = fold_2(lane, lane);
    x->score[x->p + 1] = 1.0f / _mm512_cvtss_f32(fold_1(lane, lane));
}

/* ---- scores -------------------------------------------------------------------------------------- */

/* Scores of T (8, 4 or 1) queries for the first 16 N (N 1 or 2) of n positions from j on, key f32 [dim, COLUMNS]: ascending
 * elements, one fma each.  ahead: rows of F16 to ask for meanwhile, a line with each element, or NULL. */
INLINE void score_tile(const query *x, const float *key, int32_t j, int32_t n, int32_t dim, float scale, const plane *ahead,
                       int T, int N)
{
    const float *q[QUERIES];
    __m512 sum[QUERIES][2];
    for (int t = 0; t < T; t++)
        q[t] = x[t].q;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            sum[t][i] = _mm512_setzero_ps();
    for (int32_t k = 0; k < dim; k++) {
        __m512 v[2];
        if (ahead) /* COLUMNS rows of dim elements of 2 bytes are dim lines */
            _mm_prefetch((const char *)row_of(ahead, k % COLUMNS) + k / COLUMNS * 64, _MM_HINT_T1);
        for (int i = 0; i < N; i++) {
            v[i] = _mm512_loadu_ps(key + (int64_t)k * COLUMNS + 16 * i);
            __asm__("" : "+v"(v[i])); /* loaded once: as an operand in memory of each fma it would keep the load ports busy */
        }
        for (int t = 0; t < T; t++) {
            const __m512 e = _mm512_set1_ps(q[t][k]);
            for (int i = 0; i < N; i++)
                sum[t][i] = _mm512_fmadd_ps(v[i], e, sum[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            _mm512_mask_storeu_ps(x[t].score + j + 16 * i, first_lanes(n - 16 * i), _mm512_mul_ps(sum[t][i], _mm512_set1_ps(scale)));
}

/* Scores of T queries for n columns of keys: key f32 [.., dim, COLUMNS], positions j0 and on. */
INLINE void score_columns(const query *x, const float *key, int32_t j0, int32_t n, int32_t dim, float scale, const plane *ahead,
                          int T)
{
    const int32_t end = x[T - 1].p + 1 - j0 < n ? x[T - 1].p + 1 - j0 : n;
    for (int32_t j = x[0].first > j0 ? (x[0].first - j0) / COLUMNS * COLUMNS : 0; j < end; j += COLUMNS)
        if (j + 16 < end)
            score_tile(x, key + (int64_t)j * dim, j0 + j, n - j, dim, scale, ahead, T, 2);
        else
            score_tile(x, key + (int64_t)j * dim, j0 + j, n - j, dim, scale, ahead, T, 1);
}

/* ---- values -------------------------------------------------------------------------------------- */

/* Adds rows begin ... end - 1 of values, F32 or F16, the first row at position j0, weighted, to elements e ... e + 16 N - 1 of the
 * outputs of T queries, or to those of them in `lanes`: ascending positions, one fma each. */
INLINE void add_rows(const query *x, const plane *v, int32_t j0, int32_t begin, int32_t end, int32_t e, __mmask16 lanes, int32_t type,
                     int T, int N)
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
INLINE void add_part(const query *x, const plane *v, int32_t j0, int32_t begin, int32_t end, int32_t e, int32_t step, int32_t type,
                     int T, int N)
{
    if (step == 16 * N)
        add_rows(x, v, j0, begin, end, e, 0xffff, type, T, N);
    else
        add_rows(x, v, j0, begin, end, e, first_lanes(v->dim - e), type, T, 1);
}

/* Adds n rows of values to the outputs of T queries, 16 N elements at a time: rows that only some see, that all see, that some see. */
INLINE void add_values(const query *x, const plane *v, int32_t j0, int32_t n, int32_t type, int T, int N)
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

/* ---- blocks -------------------------------------------------------------------------------------- */

/* Elements e ... e + 15 of row x in `lanes`; e is a multiple of 16. */
INLINE __m512 load_part(int32_t type, const uint8_t *x, int32_t e, __mmask16 lanes)
{
    if (type == T_Q8_0) {
        const block_q8_0 *b = (const block_q8_0 *)x + e / 32;
        const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(b->q + e % 32)));
        return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(b->d)), _mm512_cvtepi32_ps(q));
    }
    return type == T_F16 ? load_lanes(T_F16, x + e * 2, lanes) : load_lanes(T_F32, x + e * 4, lanes);
}

static void load_values(float *to, const plane *v, int32_t j, int32_t n)
{
    for (const int32_t end = j + n; j < end; j++, to += v->dim)
        for (int32_t e = 0; e < v->dim; e += 16)
            _mm512_mask_storeu_ps(to + e, first_lanes(v->dim - e), load_part(v->type, row_of(v, j), e, first_lanes(v->dim - e)));
}

/* 8 elements from e on of every other one of 32 rows: words of 32 bits, pairs of elements, transposed. */
INLINE void load_pairs(__m512i word[4], uint16_t row[][COLUMNS], int32_t e)
{
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_castsi128_si512(_mm_load_si128((const __m128i *)(row[2 * i] + e)));
        v[i] = _mm512_inserti32x4(v[i], _mm_load_si128((const __m128i *)(row[8 + 2 * i] + e)), 1);
        v[i] = _mm512_inserti32x4(v[i], _mm_load_si128((const __m128i *)(row[16 + 2 * i] + e)), 2);
        v[i] = _mm512_inserti32x4(v[i], _mm_load_si128((const __m128i *)(row[24 + 2 * i] + e)), 3);
    }
    transpose_4(word, v);
}

INLINE void store_halves(float *to, __m512i half)
{
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm512_castsi512_si256(half)));
    _mm512_storeu_ps(to + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)));
}

/* block f32 [dim rounded up to 8, COLUMNS] = n (1 ... 32) rows of F16 as columns, the last row again up to 32.  A line of each row is
 * copied first: rows may lie so far apart that the first-level cache has no room for all at once.  A blend of even positions' pairs
 * of elements and odd positions' has one element of 32 positions. */
static void load_half_columns(float *block, const plane *x, int32_t n)
{
    _Alignas(64) uint16_t line[COLUMNS][32];
    for (int32_t e0 = 0; e0 < x->dim; e0 += 32) {
        const int32_t width = x->dim - e0 < 32 ? x->dim - e0 : 32;
        const __mmask32 lanes = width == 32 ? 0xffffffff : (1u << width) - 1;
        for (int32_t k = 0; k < COLUMNS; k++)
            _mm512_store_si512(line[k], _mm512_maskz_loadu_epi16(lanes, row_of(x, k < n ? k : n - 1) + 2 * e0));
        for (int32_t e = 0; e < width; e += 8, block += 8 * COLUMNS) {
            __m512i a[4], b[4];
            load_pairs(a, line, e);
            load_pairs(b, line + 1, e);
            for (int k = 0; k < 4; k++) {
                store_halves(block + 2 * k * COLUMNS, _mm512_mask_blend_epi16(0xaaaaaaaa, a[k], _mm512_slli_epi32(b[k], 16)));
                store_halves(block + (2 * k + 1) * COLUMNS, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a[k], 16), b[k]));
            }
        }
    }
}

/* block f32 [(n + 31)/32, dim, COLUMNS] = n rows as columns, the last one again up to a multiple of 16. */
static void load_columns(float *block, const plane *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16)
        for (int32_t e = 0; e < x->dim; e += 16) {
            float *to = block + (int64_t)(i / COLUMNS * x->dim + e) * COLUMNS + i % COLUMNS;
            __m512i v[16];
            for (int32_t k = 0; k < 16; k++)
                v[k] = _mm512_castps_si512(load_part(x->type, row_of(x, i + k < n ? i + k : n - 1), e, first_lanes(x->dim - e)));
            transpose_words(v);
            for (int32_t k = 0; k < 16 && e + k < x->dim; k++)
                _mm512_storeu_si512(to + k * COLUMNS, v[k]);
        }
}

static void load_keys(float *to, const plane *k, int32_t j, int32_t n)
{
    const plane at = {row_of(k, j), k->row_bytes, k->type, k->dim, 0};
    if (k->type != T_F16)
        load_columns(to, &at, n);
    for (int32_t c = 0; k->type == T_F16 && c < n; c += COLUMNS) {
        const plane part = {row_of(&at, c), k->row_bytes, T_F16, k->dim, 0};
        load_half_columns(to + (int64_t)c * k->dim, &part, n - c < COLUMNS ? n - c : COLUMNS);
    }
}

/* Scores of any number of queries; only the first ones ask for the rows ahead. */
static void score_queries(const query *x, int32_t n_query, const float *key, int32_t j0, int32_t n, int32_t dim, float scale,
                          const plane *ahead)
{
    int32_t i = 0;
    if (ahead && n_query == 8)
        score_columns(x, key, j0, n, dim, scale, ahead, 8), i = 8;
    else if (ahead && n_query >= 4)
        score_columns(x, key, j0, n, dim, scale, ahead, 4), i = 4;
    else if (ahead)
        score_columns(x, key, j0, n, dim, scale, ahead, 1), i = 1;
    for (; i + 8 <= n_query; i += 8)
        score_columns(x + i, key, j0, n, dim, scale, NULL, 8);
    for (; i + 4 <= n_query; i += 4)
        score_columns(x + i, key, j0, n, dim, scale, NULL, 4);
    for (; i < n_query; i++)
        score_columns(x + i, key, j0, n, dim, scale, NULL, 1);
}

static void score_part(const query *x, int32_t n_query, const plane *k, float scale, int32_t begin, int32_t end)
{
    _Alignas(64) float block[BLOCK_FLOATS];
    const int32_t most = n_query <= QUERIES ? COLUMNS : positions_of(k->dim);
    if (k->type == AS_COLUMNS)
        begin -= (begin - k->first) % COLUMNS;
    for (int32_t j = begin, n; j < end; j += n) {
        const plane next = {row_of(k, j + AHEAD), k->row_bytes, k->type, k->dim, 0};
        const float *key = k->type == AS_COLUMNS ? (const float *)k->p + (int64_t)(j - k->first) * k->dim : block;
        n = end - j < most ? end - j : most;
        if (k->type != AS_COLUMNS)
            load_keys(block, k, j, n);
        score_queries(x, n_query, key, j, n, k->dim, scale, n_query <= QUERIES && k->type == T_F16 ? &next : NULL);
    }
}

/* Adds n rows of values from position j on. */
INLINE void value_rows(const query *x, int32_t n_query, const plane *v, int32_t j, int32_t n, int32_t type)
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

void attention_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread) { attend_items(arg, begin, end, thread); }
#endif
