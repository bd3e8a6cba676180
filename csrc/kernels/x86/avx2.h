/* avx2.h - what products and attention share, and of products alone: dots of f32 in the 16 lanes of
 * reference.c, two registers, and blocks of quantised rows.
 *
 * The quantised products are compiled twice.  Where the processor has AVX-VNNI, which avx-vnni_*.c
 * say by WITH_VNNI, products of bytes go to 32 bits at once, four of them added to a sum in one
 * instruction: what depends on that is here, under "products of bytes". */
#ifndef SLUICE_AVX2_H
#define SLUICE_AVX2_H
#include <immintrin.h>
#include <string.h>
#include "formats/quant.h"
#include "kernels/rows.h"
#include "kernels/set.h"
#include "kernels/x86/blocks.h"

#ifndef SET
#define SET avx2
#endif

/* elements that a step of tile takes; rows of a panel, tokens at a time */
enum { STEP = 16, ROWS = 8, MAX_TOKENS = 6 };
/* float_panel.h: a KC block of a set has 12 KB, of 4 rows 8; first-level caches may have 32 */
enum { AVX2_KC = 32, AVX2_MIN_TOKENS = 8 };

void matmul_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread); /* avx2_matmul.c */
void matmul_avx_vnni(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* avx2_float.c: packed */
void matmul_floats_avx2(const matmul_args *a, int64_t begin, int64_t end, int32_t thread);
/* avx2_matvec.c: blocks of 32, one token */
void NAME(matvec)(const matmul_args *a, int64_t begin, int64_t end);
/* avx2_kquant.c: blocks of 256 */
void NAME(matmul_kquant)(const matmul_args *a, int64_t begin, int64_t end);

/* ---- f32 ------------------------------------------------------------------------------------ */

typedef struct { __m256 lo, hi; } lanes; /* lanes 0 to 7, 8 to 15 */

INLINE lanes load_lanes(int32_t type, const uint8_t *x)
{
    if (type == T_F16)
        return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)),
                       _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 16)))};
    if (type == T_BF16)
        return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(
                           _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16)),
                       _mm256_castsi256_ps(_mm256_slli_epi32(
                           _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x + 16))), 16))};
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
INLINE void tile(float *y, int64_t stride, const uint8_t *const w[], const float *const x[],
                 int32_t n, int32_t type, int R, int T)
{
    lanes sum[4][4];
    const int width = type == T_F32 ? 4 : 2;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t k = 0; k < n; k += STEP) {
        lanes a[4], b[4];
        if (k + STEP <= n) {
            for (int r = 0; r < R && R == 4 && T == 1;
                 r++) /* rows far from each other: one token */
                _mm_prefetch((const char *)w[r] + (int64_t)k * width + 2048, _MM_HINT_T0);
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

/* 8 rows that are multiplied by one token together, neighbours of each of n_stream streams (1 or 4:
 * avx512_matvec.c); row: their numbers, or -1: none, in place of which another one is read. */
typedef struct {
    const uint8_t *w[ROWS];
    int64_t row[ROWS];
} rows_8;

/* Rows of a stream, if begin ... end - 1 are shared out. */
INLINE int64_t rows_of_stream(int64_t begin, int64_t end, int n_stream)
{
    return (end - begin + n_stream - 1) / n_stream;
}

/* From row `at` of each stream on. */
INLINE void rows_of_streams(rows_8 *g, const matmul_args *a, int64_t begin, int64_t end, int64_t at,
                            int n_stream)
{
    const int64_t row_bytes = type_row_bytes(a->type, a->n),
                  own = rows_of_stream(begin, end, n_stream);
    for (int r = 0; r < ROWS; r++) {
        const int64_t in_stream = at + r % (ROWS / n_stream),
                      row = begin + r / (ROWS / n_stream) * own + in_stream;
        const int is_there = in_stream < own && row < end;
        rows_from(&g->w[r], 1, a, is_there ? row : end - 1, end, row_bytes);
        g->row[r] = is_there ? row : -1;
    }
}

/* y of 8 rows, 0 of none; and back. */
INLINE __m256 results_of(const rows_8 *g, const float *y)
{
    float out[ROWS];
    for (int r = 0; r < ROWS; r++)
        out[r] = g->row[r] < 0 ? 0 : y[g->row[r]];
    return _mm256_loadu_ps(out);
}

INLINE void results_to(float *y, const rows_8 *g, __m256 sum)
{
    float in[ROWS];
    _mm256_storeu_ps(in, sum);
    for (int r = 0; r < ROWS; r++)
        if (g->row[r] >= 0)
            y[g->row[r]] = in[r];
}

/* Prefetches so many bytes of a stream, some way ahead of w. */
INLINE void prefetch_ahead(const uint8_t *w, int64_t bytes, int n_stream)
{
    for (int64_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)w + (n_stream == 1 ? 8192 : 2048) + line, _MM_HINT_T0);
}

/* The first n of 8 lanes, as a mask for loads and stores. */
INLINE __m256i first_lanes(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < ROWS ? (int32_t)n : ROWS),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* 16 bits of 8 rows; at: their byte in each of them. */
INLINE __m128i words_at(const uint8_t *const row[ROWS], int64_t at)
{
    uint16_t d[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&d[r], row[r] + at, 2);
    return _mm_loadu_si128((const __m128i *)d);
}

/* Those that are halves. */
INLINE __m256 halves_of(const uint8_t *const row[ROWS], int64_t at)
{
    return _mm256_cvtph_ps(words_at(row, at));
}

/* d of blocks of 256 of 8 rows; at: the byte of the blocks. */
INLINE __m256 scales_of_256(int32_t type, const uint8_t *const row[ROWS], int64_t at)
{
    float d[ROWS];
    if (type != T_BYTES_K)
        return halves_of(row, at + at_d(type));
    for (int r = 0; r < ROWS; r++)
        memcpy(&d[r], row[r] + at + at_d(type), 4);
    return _mm256_loadu_ps(d);
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

/* What the nibbles of IQ4_NL, IQ4_XS and MXFP4 stand for. */
INLINE __m256i values_of(int32_t type, __m256i index)
{
    const int8_t *const values = type == T_MXFP4 ? fp4_value : iq4_value;
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)values)), index);
}

/* d of 8 blocks of 32 that begin with these halves; MXFP4: scale_of_e8m0 of their first bytes. */
INLINE __m256 scales_of_32(int32_t type, __m128i halves)
{
    if (type != T_MXFP4)
        return _mm256_cvtph_ps(halves);
    const __m256i e = _mm256_and_si256(_mm256_cvtepu16_epi32(halves), _mm256_set1_epi32(255)),
                  normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23),
                  tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(tiny, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

/* ---- products of bytes ---------------------------------------------------------------------- */

/* What a type's weights have added here, so that they need no sign: one factor of both instructions
 * has none. */
INLINE int offset_of(int32_t type)
{
#ifdef WITH_VNNI /* any byte will do; maddubs wants small ones */
    return type == T_IQ4_XS ? 0 : zero_of(type);
#else
    return bits_of(type) == 8 ? 0 : zero_of(type);
#endif
}

/* Whether a type's weights are bytes with a sign here. */
INLINE int is_signed(int32_t type) { return !has_min(type) && !offset_of(type); }

/* 32 weights times 32 activations, added in pairs to 16 bits.  maddubs wants one factor unsigned: a
 * sign moves over. */
INLINE __m256i times(int32_t type, __m256i w, __m256i x)
{
    return is_signed(type) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                           : _mm256_maddubs_epi16(w, x);
}

/* sum + products of 16 bits, added in pairs. */
INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
#ifdef WITH_VNNI
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

/* sum + 32 weights times 32 activations, added in fours. */
INLINE __m256i add_fours(__m256i sum, int32_t type, __m256i w, __m256i x)
{
#ifdef WITH_VNNI
    (void)type;
    return _mm256_dpbusd_avx_epi32(sum, w, x);
#else
    return add_pairs(sum, times(type, w, x), _mm256_set1_epi16(1));
#endif
}

#ifdef WITH_VNNI
/* Panels of 8 rows at a time, and tokens: two sums of each stay in registers. Loads
 * would be the limit otherwise: 6 tokens and 8 rows need 7 for 6 of VPDPBUSD, 3 and 16 only 5. */
enum { OCTETS = 2 };
INLINE int tokens_of(int32_t type) { return (void)type, MAX_TOKENS / OCTETS; }

/* Scales (i16) of two neighbouring groups in a word each of 8 rows -> that of group g as a sum
 * wants it: i32, or for small sums i16 and 0. */
INLINE __m256i scale_of_rows(int32_t type, __m256i two, int g)
{
    const __m256i scale = _mm256_srai_epi32(g % 2 ? two : _mm256_slli_epi32(two, 16), 16);
    return is_small(type) ? _mm256_and_si256(scale, _mm256_set1_epi32(0xffff)) : scale;
}

#else
/* How many sums of two products stay in 16 bits together: 2 * |w| * 127 each, |w| at most 128
 * (Q8_0), 127 (IQ4), 126 (BYTES_K), 63 (Q6_K), 31 (Q5_0, Q5_1, Q5_K), 15 (Q4_0, Q4_1, Q4_K) or
 * less. */
INLINE int pairs_in_16(int32_t type)
{
    switch (bits_of(type)) {
    case 8:
    case 7: return 1;
    case 6: return 2;
    case 5: return 4;
    default: return 8;
    }
}

/* Panels at a time, and tokens: their sums, and for small weights those in 16 bits,
 * stay in registers. */
enum { OCTETS = 1 };
INLINE int tokens_of(int32_t type) { return pairs_in_16(type) == 1 ? MAX_TOKENS : 4; }

/* Scales (i16) of two neighbouring groups in a word each of 8 rows -> that of group g as add_group
 * wants it: twice. */
INLINE __m256i scale_of_rows(int32_t type, __m256i two, int g)
{
    (void)type;
    const __m128i twice = _mm_add_epi8(_mm_set_epi64x(0x0d0c0d0c09080908, 0x0504050401000100),
                                       _mm_set1_epi8((char)(g % 2 * 2)));
    return _mm256_shuffle_epi8(two, _mm256_broadcastsi128_si256(twice));
}

/* Sums of products of 4 elements of each of 8 rows, w, with those at x, two each. */
INLINE __m256i pairs_of(int32_t type, __m256i w, const int8_t *x)
{
    return times(type, w, _mm256_set1_epi32((int32_t)word(x)));
}

/* total[i] += scale * sum(w x) of 4 n elements of each of 8 rows and of token i of T, whose own are
 * at x + i * stride. scale: i16, each row's twice. */
INLINE void add_group(__m256i total[], const __m256i *w, const int8_t *x, int64_t stride,
                      __m256i scale, int32_t type, int n, int T)
{
    const int step = pairs_in_16(type) < n ? pairs_in_16(type) : n;
    for (int k = 0; k < n; k += step) {
        __m256i sum[MAX_TOKENS];
        for (int i = 0; i < T; i++)
            sum[i] = pairs_of(type, w[k], x + i * stride + k * 4);
        for (int j = k + 1; j < k + step; j++)
            for (int i = 0; i < T; i++) {
                sum[i] = _mm256_add_epi16(sum[i], pairs_of(type, w[j], x + i * stride + j * 4));
                __asm__(""
                        : "+x"(sum[i])); /* one by one: a tree of sums, which gcc would make, needs
                                            more registers than there are */
            }
        for (int i = 0; i < T; i++)
            total[i] = add_pairs(total[i], sum[i], scale);
    }
}

/* The same, every scale 1. */
INLINE void add_block(__m256i sum[], const __m256i *w, const int8_t *x, int64_t stride,
                      int32_t type, int n, int T)
{
    add_group(sum, w, x, stride, _mm256_set1_epi16(1), type, n, T);
}
#endif

/* The sum of the 8 words of x[r] in word r. */
INLINE __m256i fold(const __m256i x[ROWS])
{
    const __m256i a =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
    const __m256i b =
        _mm256_hadd_epi32(_mm256_hadd_epi32(x[4], x[5]), _mm256_hadd_epi32(x[6], x[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}
#endif
