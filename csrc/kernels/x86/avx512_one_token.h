/* avx512_one_token.h - what products with one token share, whatever the size of blocks:
 * avx512_matvec.c, which says how they go. */
#ifndef SLUICE_AVX512_ONE_TOKEN_H
#define SLUICE_AVX512_ONE_TOKEN_H
#include "kernels/x86/avx512_unpack.h"

enum { UNIT = 256, KC_UNITS = 32, BLOCKS = UNIT / BLOCK }; /* KC_UNITS: units of a KC block */

/* bytes from what is read to what is prefetched: avx512_matvec.c */
enum { FAR = 16384, NEAR = 2048 };

/* A KC block of the token, and the sums and scales of 16 rows.  One for all types: a thread's
 * stack is small. */
typedef struct {
    /* i8, as weights_64, bytes_64, natural_64 or packed_64 has the weights */
    __m512i x[KC_UNITS][4];
    __m512i begin[KC_UNITS][2]; /* i32, lanes of 4 blocks each: -offset times the sum of x */
    union {
        struct {
            __m512i isum[HALF];           /* lanes of a row each, of all blocks */
            uint16_t d[HALF][2 * BLOCKS]; /* [slot_of][block] d, or d and m */
        } of_32[KC_UNITS];
        struct {
            __m512i isum[HALF], msum[HALF / 2]; /* lanes of a row each; of rows 2 i, 2 i + 1 */
            union {
                struct { uint16_t d[HALF], m[HALF]; };
                float f[HALF]; /* d of BYTES_K */
            };
        } of_256[KC_UNITS];
        struct { /* Q4_K, Q5_K */
            struct {
                __m512i isum[HALF];
                uint32_t dm[HALF];
            } unit[KC_UNITS];
            __m512i msum[KC_UNITS / 4][HALF], sums[KC_UNITS / 4];
        } of_k;
    };
} workspace;

/* Whether packed_block unpacks them: what has the most instructions for its bytes. */
INLINE int is_packed(int32_t type) { return is_small(type) || type == T_IQ4_XS; }

INLINE int has_fifths(int32_t type)
{
#define ROW(number, NAME, name, bits, ...) || (bits == 5 && type == T_##NAME)
    return 0 TYPES_32_BITS(ROW);
#undef ROW
}

/* Whether four_of_k unpacks them: scales of 6 bits. */
INLINE int is_of_k(int32_t type) { return type == T_Q4_K || type == T_Q5_K; }

/* 16 bytes of each of 4 neighbouring blocks.  A masked broadcast is a load and a blend, which has
 * more ports than a shuffle. */
INLINE __m512i four_blocks(const uint8_t *x, int64_t bytes)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)x));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const __m128i *)(x + bytes)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const __m128i *)(x + 2 * bytes)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(x + 3 * bytes)));
}

/* Quarter k of in[i] -> quarter i of out[k]. */
INLINE void transpose_quarters(__m512i out[4], const __m512i in[4])
{
    const __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44),
                  b = _mm512_shuffle_i32x4(in[0], in[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(in[2], in[3], 0x44),
                  d = _mm512_shuffle_i32x4(in[2], in[3], 0xee);
    out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}
#endif
