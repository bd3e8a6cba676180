/* avx2.h - what products and attention share: dots of f32 in the 16 lanes of reference.c, two registers, and blocks of
 * quantised rows. */
#ifndef SLUICE_AVX2_H
#define SLUICE_AVX2_H
#include <immintrin.h>
#include <string.h>
#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 8, STEP = 16 }; /* rows of a panel, lane = row; elements that a step of tile takes */

void matmul_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread); /* avx2_matmul.c */

/* ---- f32 ------------------------------------------------------------------------------------ */

typedef struct { __m256 lo, hi; } lanes; /* lanes 0 to 7, 8 to 15 */

INLINE lanes load_lanes(int32_t type, const uint8_t *x)
{
    if (type == T_F16)
        return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)),
                       _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 16)))};
    if (type == T_BF16)
        return (lanes){
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x + 16))), 16))};
    return (lanes){_mm256_loadu_ps((const float *)x), _mm256_loadu_ps((const float *)x + 8)};
}

/* add_lanes of reference.c: halves on halves. */
INLINE float sum_lanes(lanes v)
{
    const __m256 eight = _mm256_add_ps(v.lo, v.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* y[r][t] (at y[t * stride + r]) = dots of R rows and T tokens. */
INLINE void tile(float *y, int64_t stride, const uint8_t *const w[], const float *const x[], int32_t n, int32_t type, int R, int T)
{
    lanes sum[4][4];
    const int width = type == T_F32 ? 4 : 2;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t k = 0; k < n; k += STEP) {
        lanes a[4], b[4];
        if (k + STEP <= n) {
            for (int r = 0; r < R; r++)
                a[r] = load_lanes(type, w[r] + (int64_t)k * width);
            for (int t = 0; t < T; t++)
                b[t] = load_lanes(T_F32, (const uint8_t *)(x[t] + k));
        } else {
            float zero[STEP];
            for (int r = 0; r < R; r++) {
                memset(zero, 0, sizeof zero);
                memcpy(zero, w[r] + (int64_t)k * width, (size_t)(n - k) * width);
                a[r] = load_lanes(type, (const uint8_t *)zero);
            }
            for (int t = 0; t < T; t++) {
                memset(zero, 0, sizeof zero);
                memcpy(zero, x[t] + k, (size_t)(n - k) * 4);
                b[t] = load_lanes(T_F32, (const uint8_t *)zero);
            }
        }
        for (int r = 0; r < R; r++)
            for (int t = 0; t < T; t++) {
                sum[r][t].lo = _mm256_fmadd_ps(a[r].lo, b[t].lo, sum[r][t].lo);
                sum[r][t].hi = _mm256_fmadd_ps(a[r].hi, b[t].hi, sum[r][t].hi);
            }
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            y[t * stride + r] = sum_lanes(sum[r][t]);
}

/* ---- quantised rows ------------------------------------------------------------------------ */

/* The 8 rows from `row` on; past the end the last row again, whose results are not stored. */
INLINE void rows_from(const uint8_t *w[ROWS], const matmul_args *a, int64_t row, int64_t end, int64_t row_bytes)
{
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = row + r < end ? row + r : end - 1;
        w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[i] : i) * row_bytes;
    }
}

/* 8 x 8 words of 32 bits: row r word g -> row g word r. */
INLINE void transpose(__m256i out[8], const __m256i in[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(in[2 * i], in[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = _mm256_unpacklo_epi64(a[4 * i + j], a[4 * i + 2 + j]);
            b[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(a[4 * i + j], a[4 * i + 2 + j]);
        }
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x20);
        out[4 + i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x31);
    }
}

/* 16 bytes of nibbles: elements 0 to 15 are the low halves, 16 to 31 the high ones. */
INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}
#endif
