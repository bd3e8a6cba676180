/* avx512_unpack.h - blocks of weights to bytes, and those of 16 rows to vectors whose lanes are
 * rows: for avx512_matmul.c, avx512_kquant.c, avx512_matvec.c and, by way of amx_operands.h, those
 * of AMX. */
#ifndef SLUICE_AVX512_UNPACK_H
#define SLUICE_AVX512_UNPACK_H
#include "kernels/x86/avx512.h"
#include "kernels/x86/blocks.h"

enum { BLOCK = 32, HALF = 16, ROWS = 2 * HALF, ELEMENTS = 64 };

/* What is added to weights so that they have no sign. */
INLINE int32_t offset_of(int32_t type) { return zero_of(type); }

/* ---- blocks of 32 -------------------------------------------------------------------------- */

/* n with bit 4 from h, a bit an element. */
INLINE __m256i fifth_bits(__m256i n, const uint8_t *h)
{
    uint32_t bits;
    memcpy(&bits, h, 4);
    return _mm256_mask_add_epi8(n, bits, n, _mm256_set1_epi8(16));
}

/* The 32 weights of a block, plus offset_of(type); of Q8_0 without it. */
INLINE __m256i block_bytes_of(int32_t type, const uint8_t *x)
{
    switch (type) {
    case T_Q4_0: return nibbles(x + offsetof(block_q4_0, q));
    case T_Q4_1: return nibbles(x + offsetof(block_q4_1, q));
    case T_Q5_0:
        return fifth_bits(nibbles(x + offsetof(block_q5_0, q)), x + offsetof(block_q5_0, h));
    case T_Q5_1:
        return fifth_bits(nibbles(x + offsetof(block_q5_1, q)), x + offsetof(block_q5_1, h));
    case T_IQ4_NL:
    case T_MXFP4:
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values_of(type)),
                                   nibbles(x + bytes_of_block(type) - HALF));
    default: return _mm256_loadu_si256((const __m256i *)(x + offsetof(block_q8_0, q)));
    }
}

/* One block, at byte `at` of 16 rows: out[g][h] = elements 4 g ... 4 g + 3 of each row, with their
 * sign. */
INLINE void unpack_block(__m512i out[BLOCK / 4][2], int h, int32_t type,
                         const uint8_t *const row[HALF], int64_t at)
{
    __m512i a[4], b[4], s[4], t[4];
    for (int i = 0; i < 4; i++) { /* rows i and i + 4, i + 8 and i + 12 */
        a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(block_bytes_of(type, row[i] + at)),
                                  block_bytes_of(type, row[i + 4] + at), 1);
        b[i] = _mm512_inserti64x4(_mm512_castsi256_si512(block_bytes_of(type, row[i + 8] + at)),
                                  block_bytes_of(type, row[i + 12] + at), 1);
    }
    transpose_4(s, a);
    transpose_4(t, b);
    const __m512i offset = _mm512_set1_epi8((char)(type == T_Q8_0 ? 0 : offset_of(type)));
    for (int i = 0; i < 4; i++) {
        out[i][h] = _mm512_sub_epi8(_mm512_shuffle_i32x4(s[i], t[i], 0x88), offset);
        out[i + 4][h] = _mm512_sub_epi8(_mm512_shuffle_i32x4(s[i], t[i], 0xdd), offset);
    }
}

/* ---- blocks of 256 ------------------------------------------------------------------------- */

INLINE __m512i twice(const uint8_t *x)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)x));
}

/* Counts for shifts or rotations of words of 64 bits: a for the first 32 bytes, b for the others.
 */
INLINE __m512i counts(int64_t a, int64_t b) { return _mm512_set_epi64(b, b, b, b, a, a, a, a); }

/* x | (y & mask). */
INLINE __m512i or_masked(__m512i x, __m512i y, int mask)
{
    return _mm512_ternarylogic_epi64(x, y, _mm512_set1_epi8((char)mask), 0xf8);
}

INLINE __m512i low_bits(__m512i x, int mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi8((char)mask));
}

/* Weights 64 k ... 64 k + 63, plus offset_of(type).  A bit of h moves to its place by a rotation of
 * 64 bits; those that cross into other bytes are masked away. */
INLINE __m512i natural_64(int32_t type, const uint8_t *block, int k)
{
    if (type == T_Q4_K)
        return low_bits(
            _mm512_srlv_epi64(twice(block + offsetof(block_q4_k, q) + 32 * k), counts(0, 4)), 15);
    if (type == T_Q5_K) {
        const __m512i q = low_bits(
            _mm512_srlv_epi64(twice(block + offsetof(block_q5_k, q) + 32 * k), counts(0, 4)), 15);
        return or_masked(q,
                         _mm512_rorv_epi64(twice(block + offsetof(block_q5_k, h)),
                                           counts((2 * k + 60) % 64, (2 * k + 61) % 64)),
                         16);
    }
    if (type == T_Q6_K) {
        const __m512i pair = _mm512_loadu_si512(block + offsetof(block_q6_k, q) + k / 2 * 64);
        const __m512i h = twice(block + offsetof(block_q6_k, h) + k / 2 * 32),
                      q = k % 2 ? _mm512_srli_epi64(pair, 4) : pair;
        return or_masked(low_bits(q, 15),
                         _mm512_rorv_epi64(h, k % 2 ? counts(0, 2) : counts(60, 62)), 48);
    }
    if (type == T_Q3_K) {
        const __m512i q = _mm512_srlv_epi64(twice(block + offsetof(block_q3_k, q) + k / 2 * 32),
                                            counts(k % 2 * 4, k % 2 * 4 + 2));
        return or_masked(low_bits(q, 3),
                         _mm512_rorv_epi64(twice(block + offsetof(block_q3_k, h)),
                                           counts((2 * k + 62) % 64, (2 * k + 63) % 64)),
                         4);
    }
    if (type == T_Q2_K)
        return low_bits(_mm512_srlv_epi64(twice(block + offsetof(block_q2_k, q) + k / 2 * 32),
                                          counts(k % 2 * 4, k % 2 * 4 + 2)),
                        3);
    if (type == T_BYTES_K)
        return _mm512_add_epi8(_mm512_loadu_si512(block + ELEMENTS * k),
                               _mm512_set1_epi8((char)offset_of(type)));
    /* IQ4_XS: two blocks of 16 bytes, the low halves of each first */
    const __m512i pair =
        _mm512_permutexvar_epi64(_mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0),
                                 twice(block + offsetof(block_iq4_xs, q) + 32 * k));
    const __m512i index =
        low_bits(_mm512_srlv_epi64(pair, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0)), 15);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_unsigned()), index);
}

/* Halves of 16 rows; at: their byte. */
INLINE __m512 halves_of(const uint8_t *const row[HALF], int64_t at)
{
    uint16_t d[HALF];
    for (int r = 0; r < HALF; r++)
        memcpy(&d[r], row[r] + at, 2);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)d));
}

/* d of blocks of 256 of 16 rows; at: the byte of the blocks. */
INLINE __m512 scales_of_256(int32_t type, const uint8_t *const row[HALF], int64_t at)
{
    float d[HALF];
    if (type != T_BYTES_K)
        return halves_of(row, at + at_d(type));
    for (int r = 0; r < HALF; r++)
        memcpy(&d[r], row[r] + at + at_d(type), 4);
    return _mm512_loadu_ps(d);
}

/* out[k] = bytes 4 k ... 4 k + 3 of each of 16 rows of 16 bytes. */
INLINE void transpose_16(__m512i out[4], const uint8_t *x, int64_t row_bytes)
{
    __m512i in[4];
    for (int i = 0; i < 4; i++) {
        in[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(x + i * row_bytes)));
        in[i] = _mm512_inserti32x4(in[i],
                                   _mm_loadu_si128((const __m128i *)(x + (i + 4) * row_bytes)), 1);
        in[i] = _mm512_inserti32x4(in[i],
                                   _mm_loadu_si128((const __m128i *)(x + (i + 8) * row_bytes)), 2);
        in[i] = _mm512_inserti32x4(in[i],
                                   _mm_loadu_si128((const __m128i *)(x + (i + 12) * row_bytes)), 3);
    }
    transpose_4(out, in);
}
#endif
