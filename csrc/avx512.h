/* avx512.h - dots of f32 in the 16 lanes of reference.c, a lane a float of one register: products and attention. */
#ifndef SLUICE_AVX512_H
#define SLUICE_AVX512_H
#include <immintrin.h>
#include <string.h>
#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 4 }; /* rows and tokens of a tile: 16 sums in registers */

void matmul_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread); /* avx512_matmul.c */

/* The first n (0 ... 16) of 16 lanes. */
INLINE __mmask16 first_lanes(int64_t n) { return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0); }

/* f32 of up to 16 elements F32, F16 or BF16; zeros in the lanes that are not in `lanes`, whose memory is not read. */
INLINE __m512 load_lanes(int32_t type, const void *x, __mmask16 lanes)
{
    if (type == T_F32)
        return _mm512_maskz_loadu_ps(lanes, x);
    const __m256i h = _mm256_maskz_loadu_epi16(lanes, x);
    return type == T_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* One step of add_lanes for two sums at once: halves on halves.  A blend has more ports than a shuffle. */
INLINE __m512 fold_8(__m512 a, __m512 b) /* lanes 0-7 of the result belong to a, 8-15 to b */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}

INLINE __m512 fold_4(__m512 a, __m512 b) /* quarters: a's two, b's two */
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

INLINE __m512 fold_2(__m512 a, __m512 b) /* in each quarter: a's pair, b's pair */
{
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
}

INLINE __m512 fold_1(__m512 a, __m512 b) /* in each quarter: a's two, b's two */
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* add_lanes of the 4 sums of each of n (1 or 4) tokens; token t row r in lane 4 t + r. */
INLINE __m512 fold_tile(__m512 sum[TILE][TILE], int n)
{
    __m512 token[TILE];
    for (int t = 0; t < n; t += 1) /* its quarters: rows 0, 1, 2, 3, each 4 lanes wide */
        token[t] = fold_4(fold_8(sum[0][t], sum[1][t]), fold_8(sum[2][t], sum[3][t]));
    if (n == 1) {
        const __m512 two = fold_2(token[0], token[0]), one = fold_1(two, two);
        return _mm512_permutexvar_ps(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), one);
    }
    /* in quarter r: tokens 0 to 3 */
    const __m512 one = fold_1(fold_2(token[0], token[1]), fold_2(token[2], token[3]));
    return _mm512_permutexvar_ps(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), one);
}

/* Elements k ... k + 15 of tile. */
INLINE void tile_step(__m512 sum[TILE][TILE], int32_t type, const uint8_t *const w[TILE], const float *const x[], int32_t k,
                      __mmask16 lanes, int T)
{
    __m512 row[TILE];
    for (int r = 0; r < TILE; r++)
        row[r] = load_lanes(type, w[r] + (int64_t)k * (type == T_F32 ? 4 : 2), lanes);
    for (int t = 0; t < T; t++) {
        const __m512 token = _mm512_maskz_loadu_ps(lanes, x[t] + k);
        for (int r = 0; r < TILE; r++)
            sum[r][t] = _mm512_fmadd_ps(row[r], token, sum[r][t]);
    }
}

/* Dots of 4 rows and T (1 or 4) tokens, n elements: token t row r in lane 4 t + r. */
INLINE __m512 tile(int32_t type, const uint8_t *const w[TILE], const float *const x[], int32_t n, int T)
{
    __m512 sum[TILE][TILE];
    int32_t k = 0;
    for (int r = 0; r < TILE; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = _mm512_setzero_ps();
    for (; k + 16 <= n; k += 16)
        tile_step(sum, type, w, x, k, 0xffff, T);
    if (k < n)
        tile_step(sum, type, w, x, k, first_lanes(n - k), T);
    return fold_tile(sum, T);
}
#endif
