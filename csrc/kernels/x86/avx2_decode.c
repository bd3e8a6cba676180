/* avx2_decode.c - decode.h for x86-64 with AVX2: 32 weights at a time. */
#ifdef __AVX2__
#include <immintrin.h>
#include <string.h>
#include "formats/grid.h"
#include "formats/quant.h"
#include "kernels/inline.h"
#define SET avx2

enum { WEIGHTS = 32 };
typedef __m256i weights;

INLINE weights entries_of_8(const uint64_t *grid, const uint16_t *index)
{
    return _mm256_set_epi64x((int64_t)grid[index[3]], (int64_t)grid[index[2]],
                             (int64_t)grid[index[1]], (int64_t)grid[index[0]]);
}

INLINE weights entries_of_4(const uint32_t *grid, const uint16_t *index)
{
    return _mm256_set_epi32((int32_t)grid[index[7]], (int32_t)grid[index[6]],
                            (int32_t)grid[index[5]], (int32_t)grid[index[4]],
                            (int32_t)grid[index[3]], (int32_t)grid[index[2]],
                            (int32_t)grid[index[1]], (int32_t)grid[index[0]]);
}

/* Byte i of four -> bytes 8 i ... 8 i + 7. */
INLINE __m256i each_eight_times(const void *four)
{
    return _mm256_shuffle_epi8(
        _mm256_set1_epi32((int32_t)word(four)),
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
}

INLINE weights with_signs(weights w, const uint8_t *sign)
{
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i negative = _mm256_cmpeq_epi8(_mm256_and_si256(each_eight_times(sign), bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(w, negative), negative);
}

INLINE weights with_deltas(weights w, const int8_t *delta)
{
    return _mm256_add_epi8(w, each_eight_times(delta));
}

INLINE void store_weights(int8_t *q, weights w) { _mm256_storeu_si256((__m256i *)q, w); }

INLINE float f32_of_half(uint16_t h) { return _cvtsh_ss(h); }

/* 16 weights of NVFP4: what their halves of bytes stand for, then as bf16. */
INLINE bytes_16 values_of_fp4(bytes_16 q)
{
    return (bytes_16)_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)fp4_value), (__m128i)q);
}

/* The upper halves of d times 8 bytes. */
INLINE __m256i upper_halves(float d, __m128i v)
{
    const __m256i q = _mm256_cvtepi8_epi32(v);
    return _mm256_srli_epi32(
        _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(d))), 16);
}

INLINE void scaled_to_bf16(uint16_t *y, float d, bytes_16 v)
{
    const __m256i both = _mm256_packus_epi32(upper_halves(d, (__m128i)v),
                                             upper_halves(d, _mm_srli_si128((__m128i)v, 8)));
    _mm256_storeu_si256((__m256i *)y, _mm256_permute4x64_epi64(both, 0xd8));
}

#include "kernels/decode.h"
#endif
