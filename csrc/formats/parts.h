/* parts.h - blocks of TYPES_DECODED as blocks of BYTES_K: where their bits are, and what they mean.
 *
 * One text for quant.c, whose rows must be those of the gguf package, and for kernels/decode.h,
 * which is compiled for each instruction set: loops over bytes or over words of several fields,
 * which the compiler makes vectors of. The last step of a block with a grid is each set's own: who
 * includes this file has defined before
 *
 *     f32_of_half(h)                f16_to_f32
 *     values_of_fp4(q)              fp4_value of 16 bytes below 16
 *     scaled_to_bf16(y, d, v)       d times 16 bytes, which bf16 has room for
 *     grid_eights(q, grid, parts)   256 weights of entries of 8, with their signs
 *     grid_deltas(q, grid, parts)   the same with deltas
 *     grid_fours(q, grid, parts)    of entries of 4, with signs */
#ifndef SLUICE_FORMATS_PARTS_H
#define SLUICE_FORMATS_PARTS_H
#include <string.h>
#include "formats/grid.h"
#include "formats/quant.h"
#include "formats/types.h"
#include "kernels/inline.h"

/* ---- ternary weights ------------------------------------------------------------------------- */

/* Pairs of bits, shared by elements 32 apart. */
INLINE void decode_tq2_0(block_bytes_k *restrict y, const block_tq2_0 *restrict w)
{
    y->d = f32_of_half(w->d);
    memset(y->sc, 1, sizeof y->sc);
    for (int i = 0; i < BLOCK_K; i += 128)
        for (int two = 0; two < 4; two++)
            for (int k = 0; k < 32; k++)
                y->q[i + 32 * two + k] = (int8_t)((w->q[i / 4 + k] >> 2 * two & 3) - 1);
}

/* The first digits, less 1, of x to y.  A byte is 256 / 243 times a number of five digits of base
 * 3, rounded up: a digit is what leaves the byte when it is tripled, 1 from 86 on and 2 from 171.
 * (A comparison that holds is -1.) */
INLINE void ternary_32(int8_t *y, const bytes_32 *x)
{
    const bytes_32 digit = -(bytes_32)(*x > 85) - (bytes_32)(*x > 170) - 1;
    memcpy(y, &digit, sizeof digit);
}

INLINE void ternary_16(int8_t *y, bytes_16 x)
{
    const bytes_16 digit = -(bytes_16)(x > 85) - (bytes_16)(x > 170) - 1;
    memcpy(y, &digit, sizeof digit);
}

/* Elements 32 apart share the first 32 bytes, 16 apart the next 16, 4 apart h. */
INLINE void decode_tq1_0(block_bytes_k *restrict y, const block_tq1_0 *restrict w)
{
    const uint32_t h = word(w->h);
    const words_4 all = {h, h, h, h};
    bytes_32 first;
    bytes_16 next, power = (bytes_16)all, last = power;
    y->d = f32_of_half(w->d);
    memset(y->sc, 1, sizeof y->sc);
    memcpy(&first, w->q, sizeof first);
    memcpy(&next, w->q + sizeof first, sizeof next);
    for (int at = 0; at < 5; at++) { /* three times a byte has the next digit first */
        ternary_32(y->q + 32 * at, &first);
        ternary_16(y->q + 160 + 16 * at, next);
        first = first + first + first, next = next + next + next;
    }
    for (int at = 1; at < 4; at++) { /* h times 1, 3, 9 and 27 */
        const words_4 from = {0, at < 2 ? ~0u : 0, at < 3 ? ~0u : 0, ~0u};
        power = power + power + power;
        last = (last & ~(bytes_16)from) | (power & (bytes_16)from);
    }
    ternary_16(y->q + 240, last);
}

/* ---- weights of a grid ----------------------------------------------------------------------- */

/* Indices of entries: their lower 8 bits, and what is above. */
INLINE void join_index(uint16_t *restrict index, const uint8_t *restrict low,
                       const uint8_t *restrict high, int n)
{
    for (int i = 0; i < n; i++)
        index[i] = (uint16_t)(low[i] | high[i] << 8);
}

/* Four times 7 signs -> 4 bytes of 8; the eighth makes the number of negative ones even. */
INLINE uint32_t with_eighth_signs(uint32_t word)
{
    const uint32_t seven =
        (word & 0x7f) | (word & 0x3f80) << 1 | (word & 0x1fc000) << 2 | (word & 0xfe00000) << 3;
    const uint32_t fours = seven ^ seven >> 4, twos = fours ^ fours >> 2, odd = twos ^ twos >> 1;
    return seven | (odd & 0x01010101) << 7;
}

/* Of 32 weights each, 8 words: four times 7 signs, and above them a scale: 2 sc + 1 of both groups.
 */
INLINE void signs_and_scales(uint8_t *restrict sign, int8_t *restrict sc, const uint32_t word[8])
{
    uint32_t signs[8];
    uint16_t scales[8];
    for (int j = 0; j < 8; j++) {
        signs[j] = with_eighth_signs(word[j]);
        scales[j] = (uint16_t)((2 * (word[j] >> 28) + 1) * 0x0101);
    }
    memcpy(sign, signs, sizeof signs);
    memcpy(sc, scales, sizeof scales);
}

/* 2 sc + 1 of 16 groups, from halves of bytes. */
INLINE void scales_of_nibbles(int8_t *restrict sc, const uint8_t *restrict x)
{
    uint16_t scales[8];
    for (int i = 0; i < 8; i++)
        scales[i] = (uint16_t)(((x[i] & 15) | (x[i] & 0xf0) << 4) * 2 + 0x0101);
    memcpy(sc, scales, sizeof scales);
}

/* Of 32 weights 4 indices, and a word of signs and scale. */
INLINE void decode_iq2_xxs(block_bytes_k *restrict y, const block_iq2_xxs *restrict w)
{
    grid_parts p;
    uint8_t index[EIGHTS];
    uint32_t words[8];
    y->d = 0.125f * f32_of_half(w->d);
    for (int j = 0; j < 8; j++) {
        memcpy(index + 4 * j, w->q + 8 * j, 4);
        words[j] = word(w->q + 8 * j + 4);
    }
    for (int i = 0; i < EIGHTS; i++)
        p.index[i] = index[i];
    signs_and_scales(p.sign, y->sc, words);
    grid_eights(y->q, grid_iq2_xxs, &p);
}

/* Of 8 weights an index of 9 bits and 7 signs. */
INLINE void decode_iq2_xs(block_bytes_k *restrict y, const block_iq2_xs *restrict w)
{
    grid_parts p;
    y->d = 0.125f * f32_of_half(w->d);
    scales_of_nibbles(y->sc, w->sc);
    for (int i = 0; i < EIGHTS; i++)
        p.index[i] = w->q[i] & 511;
    for (int i = 0; i < EIGHTS; i++)
        p.sign[i] = (uint8_t)with_eighth_signs(w->q[i] >> 9);
    grid_eights(y->q, grid_iq2_xs, &p);
}

/* Of 8 weights an index, 8 bits in q and 2 in h, and 8 signs. */
INLINE void decode_iq2_s(block_bytes_k *restrict y, const block_iq2_s *restrict w)
{
    grid_parts p;
    uint32_t high[8]; /* a byte for each pair of bits */
    y->d = 0.125f * f32_of_half(w->d);
    scales_of_nibbles(y->sc, w->sc);
    for (int j = 0; j < 8; j++)
        high[j] = (w->h[j] | w->h[j] << 6 | w->h[j] << 12 | w->h[j] << 18) & 0x03030303;
    join_index(p.index, w->q, (const uint8_t *)high, EIGHTS);
    memcpy(p.sign, w->sign, sizeof p.sign);
    grid_eights(y->q, grid_iq2_s, &p);
}

/* Of 4 weights an index; of 32 a word of signs and scale. */
INLINE void decode_iq3_xxs(block_bytes_k *restrict y, const block_iq3_xxs *restrict w)
{
    grid_parts p;
    uint32_t words[8];
    y->d = 0.25f * f32_of_half(w->d);
    for (int i = 0; i < FOURS; i++)
        p.index[i] = w->q[i];
    memcpy(words, w->s, sizeof words);
    signs_and_scales(p.sign, y->sc, words);
    grid_fours(y->q, grid_iq3_xxs, &p);
}

/* Of 4 weights an index, 8 bits in q and one in h; of 32 a scale. */
INLINE void decode_iq3_s(block_bytes_k *restrict y, const block_iq3_s *restrict w)
{
    grid_parts p;
    uint64_t high[8]; /* a byte for each bit */
    uint16_t scales[8];
    y->d = f32_of_half(w->d);
    for (int j = 0; j < 8; j++) {
        const uint64_t bit = (uint64_t)w->h[j] * 0x0101010101010101 & 0x8040201008040201;
        high[j] = (bit + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101;
        scales[j] = (uint16_t)((2 * (w->sc[j / 2] >> j % 2 * 4 & 15) + 1) * 0x0101);
    }
    memcpy(y->sc, scales, sizeof scales);
    join_index(p.index, w->q, (const uint8_t *)high, FOURS);
    memcpy(p.sign, w->sign, sizeof p.sign);
    grid_fours(y->q, grid_iq3_s, &p);
}

/* Four times 3 bits, a byte each. */
INLINE uint32_t threes_of(uint32_t x)
{
    return (x & 7) | (x & 0x38) << 5 | (x & 0x1c0) << 10 | (x & 0xe00) << 15;
}

/* Of 8 weights an index, 8 bits in q and 3 in h; of 32 a scale of 3 bits and the sign of delta. */
INLINE void decode_iq1_s(block_bytes_k *restrict y, const block_iq1_s *restrict w)
{
    grid_parts p;
    uint32_t high[8], delta[8];
    uint16_t scales[8];
    y->d = 0.125f * f32_of_half(w->d);
    for (int j = 0; j < 8; j++) {
        high[j] = threes_of(w->h[j]);
        delta[j] = 0x01010101 + (w->h[j] >> 15) * 0xfefefefe; /* 1 or -1 */
        scales[j] = (uint16_t)((2 * (w->h[j] >> 12 & 7) + 1) * 0x0101);
    }
    memcpy(y->sc, scales, sizeof scales);
    memcpy(p.delta, delta, sizeof delta);
    join_index(p.index, w->q, (const uint8_t *)high, EIGHTS);
    grid_deltas(y->q, grid_iq1, &p);
}

/* Of 8 weights an index, 8 bits in q and 3 in half a byte of h, whose fourth is the sign of delta;
 * of 16 a scale of 3 bits, four of them in a word of d; above them a quarter of d's bits. */
INLINE void decode_iq1_m(block_bytes_k *restrict y, const block_iq1_m *restrict w)
{
    grid_parts p;
    uint16_t d = 0, high[16], delta[16];
    uint32_t scales[4];
    for (int j = 0; j < 4; j++) {
        d |= (uint16_t)(w->d[j] >> 12 << 4 * j);
        scales[j] = threes_of(w->d[j]) << 1 | 0x01010101;
    }
    y->d = 0.125f * f32_of_half(d);
    memcpy(y->sc, scales, sizeof scales);
    for (int j = 0; j < 16; j++) {
        const uint16_t two = (uint16_t)(w->h[j] | w->h[j] << 4);
        high[j] = two & 0x0707;
        delta[j] = (uint16_t)(0x0101 + (two >> 3 & 0x0101) * 0xfe);
    }
    memcpy(p.delta, delta, sizeof delta);
    join_index(p.index, w->q, (const uint8_t *)high, EIGHTS);
    grid_deltas(y->q, grid_iq1, &p);
}

/* ---- FP4 with a scale of 8 bits for each 16 -------------------------------------------------- */

/* A scale in E4M3 without sign, halved as fp4_value is doubled; 0x7f is none. */
INLINE float scale_of_e4m3(uint8_t x)
{
    /* as the bits of an f32: 2^120 too small, subnormal numbers too */
    return x == 0x7f ? 0 : bits_f32((x & 127u) << 20) * 0x1p119f;
}

/* Weights of NVFP4 as bf16, which has room for every product of 2 and 4 bits.  The first 8 of 16
 * are the low halves. */
INLINE void decode_nvfp4(uint16_t *restrict y, const block_nvfp4 *restrict w)
{
    for (int j = 0; j < 4; j += 2) {
        bytes_16 q;
        memcpy(&q, w->q + 8 * j, sizeof q);
        const halves_2 low = (halves_2)values_of_fp4(q & 15),
                       high = (halves_2)values_of_fp4(q >> 4);
        const halves_2 first = {low[0], high[0]}, next = {low[1], high[1]};
        scaled_to_bf16(y + 16 * j, scale_of_e4m3(w->d[j]), (bytes_16)first);
        scaled_to_bf16(y + 16 * j + 16, scale_of_e4m3(w->d[j + 1]), (bytes_16)next);
    }
}
#endif
