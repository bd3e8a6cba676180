/* avx512_scores.h - keys of attention and the scores that they make with queries, for
 * avx512_attention.c, which says how.
 *
 * Keys become columns, 32 positions at a time: an element of all of them in a row.  Where queries
 * are many these are f32, converted once. Where they are few, as in decoding, all the transposing
 * costs as much as the scores: columns stay halves, converted as they are read, and the next ones
 * are made between the elements of those that are being read. */
#ifndef SLUICE_AVX512_SCORES_H
#define SLUICE_AVX512_SCORES_H
#include "api/limits.h"
#include "kernels/attention_rows.h"
#include "kernels/x86/avx512.h"

enum { QUERIES = 8, COLUMNS = 32 };
enum { BLOCK_FLOATS = COLUMNS * MAX_HEAD_DIM };

/* Positions of a block: 32 KB in f32 where that is COLUMNS or more. */
INLINE int32_t positions_of(int32_t dim) { return dim <= 64 ? 128 : dim <= 128 ? 64 : COLUMNS; }

INLINE const uint8_t *row_of(const plane *x, int64_t j)
{
    return x->p + (j - x->first) * x->row_bytes;
}

/* ---- keys as columns
 * ----------------------------------------------------------------------------- */

/* Elements e ... e + 15 of row x in `lanes`; e is a multiple of 16. */
INLINE __m512 load_part(int32_t type, const uint8_t *x, int32_t e, __mmask16 lanes)
{
    if (type == T_Q8_0) {
        const block_q8_0 *b = (const block_q8_0 *)x + e / 32;
        const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(b->q + e % 32)));
        return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(b->d)), _mm512_cvtepi32_ps(q));
    }
    return type == T_F16 ? load_lanes(T_F16, x + e * 2, lanes)
                         : load_lanes(T_F32, x + e * 4, lanes);
}

/* 8 elements from e on of every other one of 32 rows: words of 32 bits, pairs of elements,
 * transposed. */
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

/* line [COLUMNS, 32] = 32 elements (fewer where the row ends) from e on of n (1 ... 32) rows of
 * F16, those of the last one again up to 32. Copied, for rows may lie so far apart that the
 * first-level cache is too small for all at once. */
INLINE void copy_lines(uint16_t line[][COLUMNS], const plane *x, int32_t n, int32_t e)
{
    const __mmask32 lanes = x->dim - e < 32 ? (1u << (x->dim - e)) - 1 : 0xffffffff;
    const uint8_t *row = row_of(x, 0) + 2 * e;
    for (int32_t k = 0; k < COLUMNS; k++, row += k < n ? x->row_bytes : 0)
        _mm512_store_si512(line[k], _mm512_maskz_loadu_epi16(lanes, row));
}

/* Asks for a line of 8 of the 32 rows behind these 32: for all of them when e has gone from 0 to
 * dim, if that is a multiple of 32. */
INLINE void prefetch_lines(const plane *x, int32_t e)
{
    const uint8_t *row = row_of(x, COLUMNS + e % 32) + e / 32 * 64;
    for (int k = 0; k < 8; k++, row += x->row_bytes)
        _mm_prefetch((const char *)row, _MM_HINT_T0);
}

/* column[i] = element e + i of these lines.  A blend of even positions' pairs of elements and odd
 * positions' has one element of 32 positions. */
INLINE void turn_lines(__m512i column[8], uint16_t line[][COLUMNS], int32_t e)
{
    __m512i a[4], b[4];
    load_pairs(a, line, e);
    load_pairs(b, line + 1, e);
    for (int k = 0; k < 4; k++) {
        column[2 * k] = _mm512_mask_blend_epi16(0xaaaaaaaa, a[k], _mm512_slli_epi32(b[k], 16));
        column[2 * k + 1] = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a[k], 16), b[k]);
    }
}

/* block f32 [dim rounded up to 8, COLUMNS] = n (1 ... 32) rows of F16 as columns, the last row
 * again up to 32. */
static void load_half_columns(float *block, const plane *x, int32_t n)
{
    _Alignas(64) uint16_t line[COLUMNS][COLUMNS];
    __m512i column[8];
    for (int32_t e = 0; e < x->dim; e += 8, block += 8 * COLUMNS) {
        if (e % 32 == 0)
            copy_lines(line, x, n, e);
        turn_lines(column, line, e % 32);
        for (int i = 0; i < 8; i++)
            store_halves(block + i * COLUMNS, column[i]);
    }
}

/* block f32 [(n + 31)/32, dim, COLUMNS] = n rows as columns, the last one again up to a multiple
 * of 16. */
static void load_columns(float *block, const plane *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16)
        for (int32_t e = 0; e < x->dim; e += 16) {
            float *to = block + (int64_t)(i / COLUMNS * x->dim + e) * COLUMNS + i % COLUMNS;
            __m512i v[16];
            for (int32_t k = 0; k < 16; k++)
                v[k] = _mm512_castps_si512(load_part(x->type, row_of(x, i + k < n ? i + k : n - 1),
                                                     e, first_lanes(x->dim - e)));
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

/* ---- scores
 * -------------------------------------------------------------------------------------- */

/* Scores of T (8, 4 or 1) queries for the first 16 N (N 1 or 2) of n positions from j on, key f32
 * [dim, COLUMNS]: ascending elements, one fma each. */
INLINE void score_tile(const query *x, const float *key, int32_t j, int32_t n, int32_t dim,
                       float scale, int T, int N)
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
        for (int i = 0; i < N; i++) {
            v[i] = _mm512_loadu_ps(key + (int64_t)k * COLUMNS + 16 * i);
            __asm__(""
                    : "+v"(v[i])); /* loaded once: as an operand in memory of each fma it would keep
                                      the load ports busy */
        }
        for (int t = 0; t < T; t++) {
            const __m512 e = _mm512_set1_ps(q[t][k]);
            for (int i = 0; i < N; i++)
                sum[t][i] = _mm512_fmadd_ps(v[i], e, sum[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            _mm512_mask_storeu_ps(x[t].score + j + 16 * i, first_lanes(n - 16 * i),
                                  _mm512_mul_ps(sum[t][i], _mm512_set1_ps(scale)));
}

/* Scores of T queries for n columns of keys: key f32 [.., dim, COLUMNS], positions j0 and on. */
INLINE void score_columns(const query *x, const float *key, int32_t j0, int32_t n, int32_t dim,
                          float scale, int T)
{
    const int32_t end = x[T - 1].p + 1 - j0 < n ? x[T - 1].p + 1 - j0 : n;
    for (int32_t j = x[0].first > j0 ? (x[0].first - j0) / COLUMNS * COLUMNS : 0; j < end;
         j += COLUMNS)
        if (j + 16 < end)
            score_tile(x, key + (int64_t)j * dim, j0 + j, n - j, dim, scale, T, 2);
        else
            score_tile(x, key + (int64_t)j * dim, j0 + j, n - j, dim, scale, T, 1);
}

static void score_queries(const query *x, int32_t n_query, const float *key, int32_t j0, int32_t n,
                          int32_t dim, float scale)
{
    int32_t i = 0;
    for (; i + 8 <= n_query; i += 8)
        score_columns(x + i, key, j0, n, dim, scale, 8);
    for (; i + 4 <= n_query; i += 4)
        score_columns(x + i, key, j0, n, dim, scale, 4);
    for (; i < n_query; i++)
        score_columns(x + i, key, j0, n, dim, scale, 1);
}

static void score_part(const query *x, int32_t n_query, const plane *k, float scale, int32_t begin,
                       int32_t end)
{
    _Alignas(64) float block[BLOCK_FLOATS];
    const int32_t max = n_query <= QUERIES ? COLUMNS : positions_of(k->dim);
    if (k->type == AS_COLUMNS)
        begin -= (begin - k->first) % COLUMNS;
    for (int32_t j = begin, n; j < end; j += n) {
        const float *key =
            k->type == AS_COLUMNS ? (const float *)k->p + (int64_t)(j - k->first) * k->dim : block;
        n = end - j < max ? end - j : max;
        if (k->type != AS_COLUMNS)
            load_keys(block, k, j, n);
        score_queries(x, n_query, key, j, n, k->dim, scale);
    }
}

/* ---- scores of few queries
 * ----------------------------------------------------------------------- */

/* next f16 [dim rounded up to 8, COLUMNS], elements e ... e + 7 = n rows of F16 as columns; the
 * rows behind them are prefetched. */
INLINE void load_next(uint16_t *next, uint16_t line[][COLUMNS], const plane *rows, int32_t n,
                      int32_t e)
{
    __m512i column[8];
    if (e % 32 == 0)
        copy_lines(line, rows, n, e);
    prefetch_lines(rows, e);
    turn_lines(column, line, e % 32);
    for (int i = 0; i < 8; i++)
        _mm512_store_si512(next + (e + i) * COLUMNS, column[i]);
}

/* Scores of T queries for n positions from j on, key f16 [rows->dim, COLUMNS]: ascending elements,
 * one fma each.  Meanwhile, where n_next is not 0, next is made of so many rows: that waits for
 * loads and shuffles, scores for the units of fma. */
INLINE void score_halves(const query *x, const uint16_t *key, int32_t j, int32_t n, float scale,
                         uint16_t *next, const plane *rows, int32_t n_next, int T)
{
    _Alignas(64) uint16_t line[COLUMNS][COLUMNS];
    const float *q[QUERIES];
    __m512 sum[QUERIES][2];
    for (int t = 0; t < T; t++) {
        q[t] = x[t].q;
        sum[t][0] = sum[t][1] = _mm512_setzero_ps();
    }
    for (int32_t e = 0; e < rows->dim; e += 8) {
        if (n_next)
            load_next(next, line, rows, n_next, e);
        for (int32_t k = e; k < e + 8 && k < rows->dim; k++) {
            const __m512 a = load_lanes(T_F16, (const uint8_t *)(key + k * COLUMNS), 0xffff);
            const __m512 b = load_lanes(T_F16, (const uint8_t *)(key + k * COLUMNS + 16), 0xffff);
            for (int t = 0; t < T; t++) {
                const __m512 w = _mm512_set1_ps(q[t][k]);
                sum[t][0] = _mm512_fmadd_ps(a, w, sum[t][0]);
                sum[t][1] = _mm512_fmadd_ps(b, w, sum[t][1]);
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < 2; i++)
            _mm512_mask_storeu_ps(x[t].score + j + 16 * i, first_lanes(n - 16 * i),
                                  _mm512_mul_ps(sum[t][i], _mm512_set1_ps(scale)));
}

/* Scores of n_query queries, T or more up to QUERIES, of each of n_head heads for rows of F16: one
 * block of COLUMNS positions of a head after the other, in the order of memory, and the next one
 * made ready with the scores of the first T. */
INLINE void score_few(const query *x, int32_t n_query, const plane *k, int32_t n_head, float scale,
                      int32_t begin, int32_t end, int T)
{
    _Alignas(64) uint16_t block[2 * BLOCK_FLOATS], line[COLUMNS][COLUMNS];
    uint16_t *key = block, *next = block + (k->dim + 7) / 8 * 8 * COLUMNS, *done;
    const int64_t n_block = (int64_t)(end - begin + COLUMNS - 1) / COLUMNS * n_head,
                  head_bytes = type_row_bytes(T_F16, k->dim);
    plane rows = {row_of(k, begin), k->row_bytes, T_F16, k->dim, 0};
    for (int32_t e = 0; begin < end && e < k->dim; e += 8)
        load_next(key, line, &rows, end - begin < COLUMNS ? end - begin : COLUMNS, e);
    for (int64_t i = 0; i < n_block; i++, done = key, key = next, next = done) {
        const int32_t j = begin + (int32_t)(i / n_head) * COLUMNS,
                      j_next = begin + (int32_t)((i + 1) / n_head) * COLUMNS;
        const query *of_head = x + i % n_head * n_query;
        rows.p = row_of(k, j_next) + (i + 1) % n_head * head_bytes;
        score_halves(of_head, key, j, end - j, scale, next, &rows,
                     i + 1 == n_block             ? 0
                         : end - j_next < COLUMNS ? end - j_next
                                                  : COLUMNS,
                     T);
        for (int t = T; t < n_query; t++)
            score_halves(of_head + t, key, j, end - j, scale, NULL, &rows, 0, 1);
    }
}
#endif
