/* avx512.h - what products and attention share, and of products alone: dots of f32 in the 16 lanes
 * of reference.c, a lane a float of one register. */
#ifndef SLUICE_AVX512_H
#define SLUICE_AVX512_H
#include <immintrin.h>
#include <string.h>
#include "formats/quant.h"
#include "kernels/functions.h"
#include "kernels/rows.h"

/* float_panel.h: a panel has 128 KB, a KC block of a set 24 KB */
enum { AVX512_KC = 64, AVX512_MIN_TOKENS = 64 };
enum { TILE = 4 };           /* rows and tokens of a tile: 16 sums in registers */
enum { BYTES_AHEAD = 2048 }; /* bytes prefetched ahead of a row, with one token */

/* avx512_matmul.c */
void matmul_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* avx512_attention.c */
void attention_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread);

/* avx512_float.c: packed */
void matmul_floats_avx512(const matmul_args *a, int64_t begin, int64_t end, int32_t thread);
void matmul_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread); /* avx2_matmul.c */
/* the same with VNNI of 256 bits: has_avx_vnni() */
void matmul_avx_vnni(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* avx512_matvec.c: one token */
void matvec_avx512(const matmul_args *a, int64_t begin, int64_t end);
/* avx512_pack.c */
int64_t packed_bytes_avx512(int32_t block, int64_t n_tok, int64_t n);
void pack_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* amx.c */
int64_t packed_bytes_amx(int32_t block, int64_t n_tok, int64_t n);
void pack_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);
void matmul_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* avx512_kquant.c: blocks of 256 */
void matmul_kquant_avx512(const matmul_args *a, int64_t begin, int64_t end);

/* The first n (0 ... 16) of 16 lanes. */
INLINE __mmask16 first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0);
}

/* f32 of up to 16 elements F32, F16 or BF16; zeros in the lanes that are not in `lanes`, whose
 * memory is not read. */
INLINE __m512 load_lanes(int32_t type, const void *x, __mmask16 lanes)
{
    if (type == T_F32)
        return _mm512_maskz_loadu_ps(lanes, x);
    const __m256i h = _mm256_maskz_loadu_epi16(lanes, x);
    return type == T_F16 ? _mm512_cvtph_ps(h)
                         : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* One step of add_lanes for two sums at once: halves on halves.  A blend has more ports than a
 * shuffle. */
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
        return _mm512_permutexvar_ps(
            _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), one);
    }
    /* in quarter r: tokens 0 to 3 */
    const __m512 one = fold_1(fold_2(token[0], token[1]), fold_2(token[2], token[3]));
    return _mm512_permutexvar_ps(
        _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), one);
}

/* Elements k ... k + 15 of tile. */
INLINE void tile_step(__m512 sum[TILE][TILE], int32_t type, const uint8_t *const w[TILE],
                      const float *const x[], int32_t k, __mmask16 lanes, int T)
{
    __m512 row[TILE];
    for (int r = 0; r < TILE; r++) {
        const uint8_t *p = w[r] + (int64_t)k * (type == T_F32 ? 4 : 2);
        if (T == 1)
            _mm_prefetch((const char *)p + BYTES_AHEAD, _MM_HINT_T0);
        row[r] = load_lanes(type, p, lanes);
    }
    for (int t = 0; t < T; t++) {
        const __m512 token = _mm512_maskz_loadu_ps(lanes, x[t] + k);
        for (int r = 0; r < TILE; r++)
            sum[r][t] = _mm512_fmadd_ps(row[r], token, sum[r][t]);
    }
}

/* Dots of 4 rows and T (1 or 4) tokens, n elements: token t row r in lane 4 t + r. */
INLINE __m512 tile(int32_t type, const uint8_t *const w[TILE], const float *const x[], int32_t n,
                   int T)
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

/* exp_f32 of 16 lanes, none of them above 0; a NaN stays one.  The result of lanes below `lowest`
 * is thrown away. */
INLINE __m512 exp_16(__m512 x)
{
    const __m512 lowest = _mm512_set1_ps(-87.0f), shift = _mm512_set1_ps(0x1.8p23f);
    const __m512 n =
        _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(exp_log2e)), shift), shift);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(exp_ln2[1]),
                                     _mm512_fmadd_ps(n, _mm512_set1_ps(exp_ln2[0]), x));
    __m512 p = _mm512_set1_ps(exp_term[0]);
    for (int i = 1; i < 5; i++)
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(exp_term[i]));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ), p, n);
}

/* ---- integers ---------------------------------------------------------------------------- */

/* iq4_value with 128 added. */
INLINE __m128i iq4_unsigned(void)
{
    return _mm_xor_si128(_mm_loadu_si128((const __m128i *)iq4_value), _mm_set1_epi8(-128));
}

/* What the indices of a type of TYPES_32_INDICES stand for, plus zero_of(type). */
INLINE __m128i values_of(int32_t type)
{
    if (type == T_IQ4_NL)
        return iq4_unsigned();
    return _mm_add_epi8(_mm_loadu_si128((const __m128i *)fp4_value),
                        _mm_set1_epi8((char)zero_of(type)));
}

/* d of 16 blocks of 32 that begin with these halves; MXFP4: scale_of_e8m0 of their first bytes. */
INLINE __m512 scales_of_32(int32_t type, __m256i halves)
{
    if (type != T_MXFP4)
        return _mm512_cvtph_ps(halves);
    const __m512i one = _mm512_set1_epi32(1),
                  e = _mm512_and_si512(_mm512_cvtepu16_epi32(halves), _mm512_set1_epi32(255)),
                  normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, _mm512_cmple_epi32_mask(e, one),
                                                      _mm512_set1_epi32(0x200000), e));
}

/* 4 x 4 words of 32 bits within each 128 bits. */
INLINE void transpose_4(__m512i out[4], const __m512i in[4])
{
    const __m512i a = _mm512_unpacklo_epi32(in[0], in[1]), b = _mm512_unpackhi_epi32(in[0], in[1]);
    const __m512i c = _mm512_unpacklo_epi32(in[2], in[3]), d = _mm512_unpackhi_epi32(in[2], in[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/* 16 x 16 words: row i word k -> row k word i. */
INLINE void transpose_words(__m512i v[16])
{
    __m512i w[16];
    for (int i = 0; i < 16; i += 4)
        transpose_4(w + i, v + i);
    for (int k = 0; k < 4; k++) { /* quarter c of w[i + k]: word 4 c + k of rows i ... i + 3 */
        const __m512i a = _mm512_shuffle_i32x4(w[k], w[4 + k], 0x88),
                      b = _mm512_shuffle_i32x4(w[8 + k], w[12 + k], 0x88);
        const __m512i c = _mm512_shuffle_i32x4(w[k], w[4 + k], 0xdd),
                      d = _mm512_shuffle_i32x4(w[8 + k], w[12 + k], 0xdd);
        v[k] = _mm512_shuffle_i32x4(a, b, 0x88);
        v[4 + k] = _mm512_shuffle_i32x4(c, d, 0x88);
        v[8 + k] = _mm512_shuffle_i32x4(a, b, 0xdd);
        v[12 + k] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

/* The sum of (or the greatest of) the words of each quarter of 4 vectors: that of x[i]'s quarter k
 * in word 4 i + k. */
INLINE __m512i fold_quarters(const __m512i x[4], __m512i (*op)(__m512i, __m512i))
{
    __m512i y[2];
    for (int i = 0; i < 2; i++)
        y[i] = op(_mm512_unpacklo_epi64(x[2 * i], x[2 * i + 1]),
                  _mm512_unpackhi_epi64(x[2 * i], x[2 * i + 1]));
    const __m512 a = _mm512_castsi512_ps(y[0]), b = _mm512_castsi512_ps(y[1]);
    const __m512i z = op(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                         _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
    return _mm512_permutexvar_epi32(
        _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), z);
}

/* The same of halves: that of w[i]'s half h in word 2 i + h. */
INLINE __m512i fold_halves(const __m512i w[8], __m512i (*op)(__m512i, __m512i))
{
    __m512i x[4];
    for (int i = 0; i < 4; i++)
        x[i] = op(_mm512_shuffle_i32x4(w[2 * i], w[2 * i + 1], 0x88),
                  _mm512_shuffle_i32x4(w[2 * i], w[2 * i + 1], 0xdd));
    return fold_quarters(x, op);
}

/* The same of 16 whole vectors: that of v[i] in word i. */
INLINE __m512i fold_16(const __m512i v[16], __m512i (*op)(__m512i, __m512i))
{
    __m512i w[8];
    for (int i = 0; i < 8; i++)
        w[i] = op(_mm512_mask_blend_epi32(0xff00, v[2 * i], v[2 * i + 1]),
                  _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x4e));
    return fold_halves(w, op);
}

INLINE __m512i plus(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
#endif
