/* blocks.h - blocks of weights for AVX2 and what is above it: their bytes, nibbles, and the scales
 * of those of 256. */
#ifndef SLUICE_BLOCKS_H
#define SLUICE_BLOCKS_H
#include <immintrin.h>
#include <string.h>
#include "formats/types.h"
#include "kernels/inline.h"

enum { N_GROUP = BLOCK_K / GROUP_K };

/* Whether weights have 2 or 3 bits: a sum over a group of 16 fits in 16 bits (16 * 7 * 127), and so
 * do four times such weights. */
INLINE int is_small(int32_t type)
{
#define ROW(number, NAME, name, bits, ...) || (bits <= 3 && type == T_##NAME)
    return 0 TYPES_BLOCK(ROW);
#undef ROW
}

/* 16 bytes of nibbles: elements 0 to 15 are the low halves, 16 to 31 the high ones. */
INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* Scales of the 16 groups, as bytes; *min: their minima, or the scales again where there are none.
 */
INLINE __m128i group_scales(__m128i *min, int32_t type, const uint8_t *block)
{
    if (type == T_Q4_K || type == T_Q5_K) { /* both begin alike; scale_of and min_of of quant.c */
        const __m128i sc = _mm_loadu_si128((const __m128i *)(block + offsetof(block_q4_k, sc)));
        /* words: the first four scales, the first four minima */
        const __m128i first = _mm_and_si128(sc, _mm_set1_epi8(63));
        const __m128i low =
            _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(sc, 0xaa), _mm_set_epi32(0, 0, 4, 0)),
                          _mm_set1_epi8(15));
        const __m128i last =
            _mm_or_si128(low, _mm_and_si128(_mm_srli_epi16(sc, 2), _mm_set1_epi8(48)));
        const __m128i both = _mm_unpacklo_epi32(first, last);
        *min = _mm_unpackhi_epi8(both, both);
        return _mm_unpacklo_epi8(both, both);
    }
    if (type == T_BYTES_K)
        return *min = _mm_loadu_si128((const __m128i *)(block + offsetof(block_bytes_k, sc)));
    if (type == T_Q6_K)
        return *min = _mm_loadu_si128((const __m128i *)(block + offsetof(block_q6_k, sc)));
    if (type == T_Q2_K) {
        const __m128i sc = _mm_loadu_si128((const __m128i *)(block + offsetof(block_q2_k, sc)));
        *min = _mm_and_si128(_mm_srli_epi16(sc, 4), _mm_set1_epi8(15));
        return _mm_and_si128(sc, _mm_set1_epi8(15));
    }
    __m128i low, high;
    if (type == T_Q3_K) {
        const uint8_t *sc = block + offsetof(block_q3_k, sc);
        const __m128i x = _mm_loadl_epi64((const __m128i *)sc);
        low = _mm_unpacklo_epi64(x, _mm_srli_epi16(x, 4));
        high = _mm_srlv_epi32(_mm_set1_epi32((int32_t)word(sc + 8)), _mm_set_epi32(6, 4, 2, 0));
    } else {
        const uint32_t sc = word(block + offsetof(block_iq4_xs, sc));
        uint16_t bits;
        memcpy(&bits, block + offsetof(block_iq4_xs, sch), 2);
        const __m128i x = _mm_unpacklo_epi8(_mm_cvtsi32_si128((int32_t)sc),
                                            _mm_cvtsi32_si128((int32_t)(sc >> 4)));
        low = _mm_unpacklo_epi8(x, x);
        /* byte 4 i + j: groups of 32 i + 4 j */
        high = _mm_shuffle_epi8(_mm_srlv_epi32(_mm_set1_epi32(bits), _mm_set_epi32(6, 4, 2, 0)),
                                _mm_set_epi8(13, 13, 9, 9, 5, 5, 1, 1, 12, 12, 8, 8, 4, 4, 0, 0));
    }
    low = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
                       _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));
    return *min = _mm_sub_epi8(low, _mm_set1_epi8(32));
}
#endif
