/* avx512_decode.c - decode.h for x86-64 with AVX-512: 64 weights at a time. Entries are loaded one
 * by one: VPGATHERDQ is slower on AMD, and no faster on Intel. */
#ifdef __AVX512VNNI__
#include <immintrin.h>
#include <string.h>
#include "formats/grid.h"
#include "formats/quant.h"
#include "kernels/inline.h"
#define SET avx512

enum { WEIGHTS = 64 };
typedef __m512i weights;

/* Index i of words of four: their loads are what there are fewest of. */
INLINE uint16_t index_of(const uint64_t *four, int i)
{
    return (uint16_t)(four[i / 4] >> i % 4 * 16);
}

/* A masked broadcast is a load and a blend, which has more ports than a shuffle. */
INLINE weights entries_of_8(const uint64_t *grid, const uint16_t *index)
{
    uint64_t four[2];
    memcpy(four, index, sizeof four);
    __m512i v =
        _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(grid + index_of(four, 0))));
#pragma GCC unroll 8
    for (int i = 1; i < 8; i++)
        v = _mm512_mask_broadcastq_epi64(
            v, (__mmask8)(1 << i), _mm_loadl_epi64((const __m128i *)(grid + index_of(four, i))));
    return v;
}

INLINE weights entries_of_4(const uint32_t *grid, const uint16_t *index)
{
    uint64_t four[4];
    __m128i v[4];
    memcpy(four, index, sizeof four);
    for (int i = 0; i < 4; i++)
        v[i] = _mm_set_epi32(
            (int32_t)grid[index_of(four, 4 * i + 3)], (int32_t)grid[index_of(four, 4 * i + 2)],
            (int32_t)grid[index_of(four, 4 * i + 1)], (int32_t)grid[index_of(four, 4 * i)]);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(v[1], v[0])),
                              _mm256_set_m128i(v[3], v[2]), 1);
}

INLINE weights with_signs(weights w, const uint8_t *sign)
{
    uint64_t bits;
    memcpy(&bits, sign, 8);
    return _mm512_mask_sub_epi8(w, bits, _mm512_setzero_si512(), w);
}

INLINE weights with_deltas(weights w, const int8_t *delta)
{
    int64_t eight;
    memcpy(&eight, delta, 8);
    const __m512i two = _mm512_set_epi64(0x0101010101010101, 0, 0x0101010101010101, 0,
                                         0x0101010101010101, 0, 0x0101010101010101, 0),
                  from = _mm512_set_epi64(0x0606060606060606, 0x0606060606060606,
                                          0x0404040404040404, 0x0404040404040404,
                                          0x0202020202020202, 0x0202020202020202, 0, 0);
    return _mm512_add_epi8(
        w, _mm512_shuffle_epi8(_mm512_set1_epi64(eight), _mm512_add_epi8(two, from)));
}

INLINE void store_weights(int8_t *q, weights w) { _mm512_storeu_si512(q, w); }

INLINE float f32_of_half(uint16_t h) { return _cvtsh_ss(h); }

/* 16 weights of NVFP4: what their halves of bytes stand for, then as bf16. */
INLINE bytes_16 values_of_fp4(bytes_16 q)
{
    return (bytes_16)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)fp4_value), (__m128i)q);
}

INLINE void scaled_to_bf16(uint16_t *y, float d, bytes_16 v)
{
    const __m512i q = _mm512_cvtepi8_epi32((__m128i)v),
                  w = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(q), _mm512_set1_ps(d)));
    _mm256_storeu_si256((__m256i *)y, _mm512_cvtepi32_epi16(_mm512_srli_epi32(w, 16)));
}

#include "kernels/decode.h"
#endif
