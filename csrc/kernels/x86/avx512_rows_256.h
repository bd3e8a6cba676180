/* avx512_rows_256.h - rows in blocks of 256 times one token: for avx512_matvec.c. */
#ifndef SLUICE_AVX512_ROWS_256_H
#define SLUICE_AVX512_ROWS_256_H
#include "kernels/x86/avx512_one_token.h"

/* A block of the token in the order of packed_64. */
INLINE void load_packed(__m512i x[4], const int8_t *q, int32_t type)
{
    __m512i in[4];
    for (int k = 0; k < 4; k++)
        in[k] = _mm512_loadu_si512(q + k * ELEMENTS);
    for (int k = 0; k < 4; k++)
        if (type == T_IQ4_XS)
            x[k] = k % 2 ? _mm512_shuffle_i32x4(in[k - 1], in[k], 0xdd)
                         : _mm512_shuffle_i32x4(in[k], in[k + 1], 0x88);
        else
            x[k] = k % 2 ? _mm512_shuffle_i32x4(in[k / 2], in[k / 2 + 2], 0xee)
                         : _mm512_shuffle_i32x4(in[k / 2], in[k / 2 + 2], 0x44);
}

/* Vector k of a block's weights, with offsets.  IQ4_XS: quarters are groups, k % 2 halves of them.
 * Q2_K, Q3_K: elements 32 k ... 32 k + 31 and 128 more; where k is odd, four times. */
INLINE __m512i packed_64(int32_t type, const uint8_t *block, int k)
{
    if (type == T_IQ4_XS) {
        const __m512i q = _mm512_loadu_si512(block + offsetof(block_iq4_xs, q) + k / 2 * 64);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_unsigned()),
                                   low_bits(k % 2 ? _mm512_srli_epi16(q, 4) : q, 15));
    }
    const __m512i q = _mm512_loadu_si512(
        block + (type == T_Q2_K ? offsetof(block_q2_k, q) : offsetof(block_q3_k, q)));
    const __m512i n = low_bits(k / 2 ? _mm512_srli_epi16(q, 4) : q, k % 2 ? 12 : 3);
    if (type == T_Q2_K)
        return n;
    /* bit 2 + k is vector k's */
    const __m512i h = _mm512_rorv_epi64(twice(block + offsetof(block_q3_k, h)), counts(62, 2));
    switch (k) {
    case 0: return or_masked(n, h, 4);
    case 1: return or_masked(n, _mm512_slli_epi16(h, 1), 16);
    case 2: return or_masked(n, _mm512_srli_epi16(h, 2), 4);
    default: return or_masked(n, _mm512_srli_epi16(h, 1), 16);
    }
}

/* Shuffles the scales of groups to words of 16 bits, as their upper byte (`high`) or lower: in
 * quarter i four times that of group a, four times b, for i = 0; of 1, 8 and 9 more for the others.
 */
INLINE __m512i pick(int a, int b, int high)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)(i % 2 == high ? (i % 16 < 8 ? a : b) + i / 32 * 8 + i / 16 % 2 : 0x80);
    return _mm512_loadu_si512(at);
}

/* The exact sum of a block in 16 lanes, of a type of packed_64 (is_small: four times it); *msum:
 * that of the minima in 8. */
INLINE __m512i packed_block(__m256i *msum, int32_t type, const uint8_t *block, const __m512i x[4],
                            __m256i sums)
{
    const __m512i zero = _mm512_setzero_si512();
    __m128i min;
    const __m512i scale = _mm512_broadcast_i32x4(group_scales(&min, type, block));
    *msum = _mm256_madd_epi16(_mm256_cvtepi8_epi16(min), sums);
    __m512i v[4], total = zero;
    if (offset_of(type))
        total = _mm512_zextsi256_si512(_mm256_mullo_epi32(
            *msum, _mm256_set1_epi32(-offset_of(type) * (is_small(type) ? 4 : 1))));
    for (int k = 0; k < 4; k++)
        v[k] = _mm512_dpbusd_epi32(type == T_IQ4_XS && k % 2 ? v[k - 1] : zero,
                                   packed_64(type, block, k), x[k]);
    if (type == T_IQ4_XS) { /* words: two of a group, two of the fourth after it */
        uint8_t at[64];
        for (int i = 0; i < 64; i++)
            at[i] = (uint8_t)(i % 4 < 3 ? 0x80 : 2 * (i / 16 + i % 16 / 8 * 4));
        const __m512i both =
            plus(_mm512_unpacklo_epi64(v[1], v[3]), _mm512_unpackhi_epi64(v[1], v[3]));
        return plus(
            total,
            _mm512_mullo_epi32(
                both, _mm512_srai_epi32(_mm512_shuffle_epi8(scale, _mm512_loadu_si512(at)), 24)));
    }
    /* all sums fit 16 bits, 4 * 28 * 127 at most; scales of vectors 0 and 2 four times too */
    const int high = type == T_Q3_K;
    const __m512i s02 = _mm512_shuffle_epi8(scale, pick(0, 4, high)),
                  s13 = _mm512_shuffle_epi8(scale, pick(2, 6, high));
    total = _mm512_dpwssd_epi32(total, _mm512_packs_epi32(v[0], v[2]),
                                high ? _mm512_srai_epi16(s02, 6) : _mm512_slli_epi16(s02, 2));
    return _mm512_dpwssd_epi32(total, _mm512_packs_epi32(v[1], v[3]),
                               high ? _mm512_srai_epi16(s13, 8) : s13);
}

/* Activations of Q4_K and Q5_K: in[2 i], in[2 i + 1] are groups 4 i ... 4 i + 3; x[2 i] has the
 * first and the third of them. */
INLINE void load_k(workspace *r, const matmul_args *a, int64_t u0, int64_t n)
{
    for (int64_t u = 0; u < n; u++)
        for (int k = 0; k < 4; k += 2) {
            const int8_t *q = a->q + (u0 + u) * UNIT + k * ELEMENTS;
            const __m512i x = _mm512_loadu_si512(q), y = _mm512_loadu_si512(q + ELEMENTS);
            r->x[u][k] = _mm512_shuffle_i32x4(x, y, 0x44);
            r->x[u][k + 1] = _mm512_shuffle_i32x4(x, y, 0xee);
        }
    for (int64_t u = 0; u < n; u += 4) {
        int16_t pair[4 * N_GROUP / 2] = {0};
        for (int64_t i = 0; i < (n - u < 4 ? n - u : 4) * N_GROUP / 2; i++)
            pair[i] = (int16_t)(a->sums[(u0 + u) * N_GROUP + 2 * i]
                                + a->sums[(u0 + u) * N_GROUP + 2 * i + 1]);
        r->of_k.sums[u / 4] = _mm512_loadu_si512(pair);
    }
}

/* Scales of the 8 groups, then their minima, of each of 4 blocks in its quarter: group_scales of
 * blocks.h, for four. */
INLINE __m512i four_scales(const uint8_t *const block[4])
{
    const int64_t at = offsetof(block_q4_k, sc);
    __m512i sc = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(block[0] + at)));
    sc = _mm512_mask_broadcast_i32x4(sc, 0x00f0, _mm_loadu_si128((const __m128i *)(block[1] + at)));
    sc = _mm512_mask_broadcast_i32x4(sc, 0x0f00, _mm_loadu_si128((const __m128i *)(block[2] + at)));
    sc = _mm512_mask_broadcast_i32x4(sc, 0xf000, _mm_loadu_si128((const __m128i *)(block[3] + at)));
    const __m512i last = _mm512_srlv_epi32(_mm512_shuffle_epi32(sc, 0xaa),
                                           _mm512_broadcast_i32x4(_mm_set_epi32(0, 0, 4, 0)));
    return _mm512_unpacklo_epi32(low_bits(sc, 63),
                                 or_masked(low_bits(last, 15), _mm512_srli_epi16(sc, 2), 48));
}

/* Words: the scales of groups g, g + 1 in the first half, four times each in a quarter; of the next
 * two in the other. */
INLINE __m512i words_of(__m512i scales, int g)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)(i % 2 ? 0x80 : g + i / 32 * 2 + i % 16 / 8);
    return _mm512_shuffle_epi8(scales, _mm512_loadu_si512(at));
}

/* The exact sum of a block of Q4_K or Q5_K in 16 lanes.  The sums of 4 products, at most 4 * 31 *
 * 127, fit 16 bits. */
INLINE __m512i block_k(int32_t type, const uint8_t *block, const __m512i x[4], __m512i scales)
{
    const __m512i zero = _mm512_setzero_si512(),
                  h = type == T_Q5_K ? twice(block + offsetof(block_q5_k, h)) : zero;
    __m512i total = zero;
    for (int i = 0; i < 2; i++) {
        const __m512i q = _mm512_loadu_si512(
            block + (type == T_Q5_K ? offsetof(block_q5_k, q) : offsetof(block_q4_k, q)) + i * 64);
        __m512i n[2] = {low_bits(q, 15), low_bits(_mm512_srli_epi16(q, 4), 15)}, v[2];
        for (int k = 0; k < 2; k++) {
            const int g = 4 * i + k; /* the other half is group g + 2 */
            if (type == T_Q5_K)
                n[k] =
                    or_masked(n[k], _mm512_rorv_epi64(h, counts((60 + g) % 64, (62 + g) % 64)), 16);
            v[k] = _mm512_dpbusd_epi32(zero, n[k], x[2 * i + k]);
        }
        total = _mm512_dpwssd_epi32(total, _mm512_packs_epi32(v[0], v[1]), words_of(scales, 4 * i));
    }
    return total;
}

/* n (1 to 4) blocks of row i from unit u on, the first at w. */
INLINE void four_of_k(workspace *r, int i, const uint8_t *w, int64_t u, int64_t n, int32_t type)
{
    const int64_t bytes = bytes_of_block(type);
    const uint8_t *block[4];
    for (int j = 0; j < 4; j++)
        block[j] = w + (j < n ? j : n - 1) * bytes;
    const __m512i scales = four_scales(block);
    r->of_k.msum[u / 4][i] = _mm512_madd_epi16(_mm512_unpackhi_epi8(scales, _mm512_setzero_si512()),
                                               r->of_k.sums[u / 4]);
#define OF(j) \
    if (j < n) { \
        r->of_k.unit[u + j].isum[i] = \
            block_k(type, block[j], r->x[u + j], _mm512_shuffle_i32x4(scales, scales, j * 0x55)); \
        r->of_k.unit[u + j].dm[i] = word(block[j]); \
    }
    OF(0) OF(1) OF(2) OF(3)
#undef OF
}

/* The sums of the minima of 4 units of 16 rows -> out[unit], lane = row. */
INLINE void fold_minima(__m512i out[4], const __m512i msum[HALF])
{
    __m512i four[4]; /* rows 4 i ... 4 i + 3, a quarter a unit */
    for (int i = 0; i < 4; i++) {
        const __m512i *x = msum + 4 * i;
        const __m512 a = _mm512_castsi512_ps(
            plus(_mm512_unpacklo_epi64(x[0], x[1]), _mm512_unpackhi_epi64(x[0], x[1])));
        const __m512 b = _mm512_castsi512_ps(
            plus(_mm512_unpacklo_epi64(x[2], x[3]), _mm512_unpackhi_epi64(x[2], x[3])));
        four[i] = plus(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                       _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
    }
    transpose_quarters(out, four);
}

INLINE __m512 add_k(__m512 sum, const workspace *r, const matmul_args *a, int64_t at, int64_t n)
{
    for (int64_t u = 0; u < n; u += 4) {
        __m512i msum[4];
        fold_minima(msum, r->of_k.msum[u / 4]);
        for (int64_t j = 0; j < (n - u < 4 ? n - u : 4); j++) {
            const __m512 x = _mm512_set1_ps(a->d[at + u + j]);
            const __m512i dm = _mm512_loadu_si512(r->of_k.unit[u + j].dm);
            const __m512 d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dm));
            const __m512 m = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dm, 16)));
            sum = _mm512_fmadd_ps(_mm512_mul_ps(d, x),
                                  _mm512_cvtepi32_ps(fold_16(r->of_k.unit[u + j].isum, plus)), sum);
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(m, x), _mm512_cvtepi32_ps(msum[j]), sum);
        }
    }
    return sum;
}

/* The exact sum of a block in 16 lanes; *msum: that of the minima in 8.  sums: those of the
 * activations' groups. */
INLINE __m512i block_256(__m256i *msum, int32_t type, const uint8_t *block, const __m512i x[4],
                         __m256i sums)
{
    __m128i min;
    const __m512i scale = _mm512_cvtepi8_epi32(group_scales(&min, type, block)); /* [group of 16] */
    /* the sum of 4 products is at most 4 * 63 * 127 < 2^15: as lower half of a lane it can meet the
     * scale's */
    const __m512i low = _mm512_and_si512(scale, _mm512_set1_epi32(0xffff));
    *msum = _mm256_madd_epi16(_mm256_cvtepi8_epi16(min), sums);
    __m512i total = _mm512_setzero_si512();
    if (offset_of(type))
        total =
            _mm512_zextsi256_si512(_mm256_mullo_epi32(*msum, _mm256_set1_epi32(-offset_of(type))));
    for (int k = 0; k < 4; k++) {
        const __m512i isum =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), natural_64(type, block, k), x[k]);
        const __m512i group =
            _mm512_add_epi32(_mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                             _mm512_set1_epi32(4 * k));
        if (type == T_BYTES_K) /* up to 4 * 126 * 127 */
            total = plus(total, _mm512_mullo_epi32(isum, _mm512_permutexvar_epi32(group, scale)));
        else
            total = _mm512_dpwssd_epi32(total, isum, _mm512_permutexvar_epi32(group, low));
    }
    return total;
}

/* Block u of row i, which is at w and has number `at`. */
INLINE void unit_of_256(workspace *r, int i, const matmul_args *a, const uint8_t *w, int64_t at,
                        int64_t u, int32_t type)
{
    __m256i msum;
    const __m256i sums = _mm256_loadu_si256((const __m256i *)(a->sums + at * N_GROUP));
    r->of_256[u].isum[i] = is_packed(type) ? packed_block(&msum, type, w, r->x[u], sums)
                                           : block_256(&msum, type, w, r->x[u], sums);
    if (type == T_BYTES_K)
        memcpy(&r->of_256[u].f[i], w + at_d(type), 4);
    else
        memcpy(&r->of_256[u].d[i], w + at_d(type), 2);
    if (has_min(type)) {
        _mm256_store_si256((__m256i *)&r->of_256[u].msum[i / 2] + i % 2, msum);
        memcpy(&r->of_256[u].m[i], w + at_d(type) + 2, 2);
    }
}

INLINE __m512 add_256(__m512 sum, const workspace *r, const matmul_args *a, int64_t at, int64_t n,
                      int32_t type)
{
    for (int64_t u = 0; u < n; u++) {
        const __m512 x = _mm512_set1_ps(a->d[at + u]),
                     d = type == T_BYTES_K
            ? _mm512_loadu_ps(r->of_256[u].f)
            : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)r->of_256[u].d));
        const __m512i isum = fold_16(r->of_256[u].isum, plus),
                      exact = is_small(type) ? _mm512_srai_epi32(isum, 2) : isum;
        sum = _mm512_fmadd_ps(_mm512_mul_ps(d, x), _mm512_cvtepi32_ps(exact), sum);
        if (has_min(type)) {
            const __m512 m = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)r->of_256[u].m));
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(m, x),
                                   _mm512_cvtepi32_ps(fold_halves(r->of_256[u].msum, plus)), sum);
        }
    }
    return sum;
}
#endif
