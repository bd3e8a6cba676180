/* parts.h - blocks of TYPES_DECODED as blocks of BYTES_K: where their bits are, and what they mean.
 *
 * One text for quant.c, whose rows must be those of the gguf package, and for kernels/decode.h,
 * which is compiled for each instruction set: loops over neighbouring bytes, which the compiler
 * makes vectors of. The last step of a block with a grid is each set's own: who includes this file
 * has defined before
 *
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
INLINE void decode_tq2_0(block_bytes_k *y, const block_tq2_0 *w)
{
    y->d = f16_to_f32(w->d);
    memset(y->sc, 1, sizeof y->sc);
    for (int i = 0; i < BLOCK_K; i += 128)
        for (int two = 0; two < 4; two++)
            for (int k = 0; k < 32; k++)
                y->q[i + 32 * two + k] = (int8_t)((w->q[i / 4 + k] >> 2 * two & 3) - 1);
}

/* Digit `at` of n bytes, each 256 / 243 times a number of five digits of base 3, rounded up: times
 * 3^at its first digits leave the byte; the next one is then its upper bits, times 3. */
INLINE void ternary_digits(int8_t *y, const uint8_t *x, int n, int at)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int k = 0; k < n; k++)
        y[k] = (int8_t)(((uint8_t)(x[k] * power[at]) * 3 >> 8) - 1);
}

/* Elements 32 apart share the first 32 bytes, 16 apart the next 16, 4 apart h. */
INLINE void decode_tq1_0(block_bytes_k *y, const block_tq1_0 *w)
{
    y->d = f16_to_f32(w->d);
    memset(y->sc, 1, sizeof y->sc);
    for (int at = 0; at < 5; at++) {
        ternary_digits(y->q + 32 * at, w->q, 32, at);
        ternary_digits(y->q + 160 + 16 * at, w->q + 32, 16, at);
    }
    for (int at = 0; at < 4; at++)
        ternary_digits(y->q + 240 + 4 * at, w->h, 4, at);
}

/* ---- weights of a grid ----------------------------------------------------------------------- */

/* Seven signs; the eighth makes the number of negative ones even. */
INLINE uint8_t eight_signs(uint32_t seven)
{
    const uint32_t fours = seven ^ seven >> 4, twos = fours ^ fours >> 2;
    return (uint8_t)(seven | ((twos ^ twos >> 1) & 1) << 7);
}

/* Four times 7 signs of 32 weights, and above them the scale: 2 sc + 1 of both groups. */
INLINE void signs_and_scale(uint8_t sign[4], int8_t sc[2], uint32_t word)
{
    for (int i = 0; i < 4; i++)
        sign[i] = eight_signs(word >> 7 * i & 127);
    sc[0] = sc[1] = (int8_t)(2 * (word >> 28) + 1);
}

/* 2 sc + 1 of 16 groups, from halves of bytes. */
INLINE void scales_of_nibbles(int8_t sc[BLOCK_K / GROUP_K], const uint8_t x[8])
{
    for (int i = 0; i < 8; i++) {
        sc[2 * i] = (int8_t)(2 * (x[i] & 15) + 1);
        sc[2 * i + 1] = (int8_t)(2 * (x[i] >> 4) + 1);
    }
}

/* Of 32 weights 4 indices, and a word of signs and scale. */
INLINE void decode_iq2_xxs(block_bytes_k *y, const block_iq2_xxs *w)
{
    grid_parts p;
    y->d = 0.125f * f16_to_f32(w->d);
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 4; i++)
            p.index[4 * j + i] = w->q[8 * j + i];
        signs_and_scale(p.sign + 4 * j, y->sc + 2 * j, word(w->q + 8 * j + 4));
    }
    grid_eights(y->q, grid_iq2_xxs, &p);
}

/* Of 8 weights an index of 9 bits and 7 signs. */
INLINE void decode_iq2_xs(block_bytes_k *y, const block_iq2_xs *w)
{
    grid_parts p;
    y->d = 0.125f * f16_to_f32(w->d);
    scales_of_nibbles(y->sc, w->sc);
    for (int i = 0; i < EIGHTS; i++) {
        p.index[i] = w->q[i] & 511;
        p.sign[i] = eight_signs(w->q[i] >> 9);
    }
    grid_eights(y->q, grid_iq2_xs, &p);
}

/* Of 8 weights an index, 8 bits in q and 2 in h, and 8 signs. */
INLINE void decode_iq2_s(block_bytes_k *y, const block_iq2_s *w)
{
    grid_parts p;
    y->d = 0.125f * f16_to_f32(w->d);
    scales_of_nibbles(y->sc, w->sc);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 4; i++)
            p.index[4 * j + i] = (uint16_t)(w->q[4 * j + i] | (w->h[j] >> 2 * i & 3) << 8);
    memcpy(p.sign, w->sign, sizeof p.sign);
    grid_eights(y->q, grid_iq2_s, &p);
}

/* Of 4 weights an index; of 32 a word of signs and scale. */
INLINE void decode_iq3_xxs(block_bytes_k *y, const block_iq3_xxs *w)
{
    grid_parts p;
    y->d = 0.25f * f16_to_f32(w->d);
    for (int i = 0; i < FOURS; i++)
        p.index[i] = w->q[i];
    for (int j = 0; j < 8; j++)
        signs_and_scale(p.sign + 4 * j, y->sc + 2 * j, word(w->s + 4 * j));
    grid_fours(y->q, grid_iq3_xxs, &p);
}

/* Of 4 weights an index, 8 bits in q and one in h; of 32 a scale. */
INLINE void decode_iq3_s(block_bytes_k *y, const block_iq3_s *w)
{
    grid_parts p;
    y->d = f16_to_f32(w->d);
    for (int j = 0; j < 8; j++) {
        y->sc[2 * j] = y->sc[2 * j + 1] = (int8_t)(2 * (w->sc[j / 2] >> j % 2 * 4 & 15) + 1);
        for (int i = 0; i < 8; i++)
            p.index[8 * j + i] = (uint16_t)(w->q[8 * j + i] | (w->h[j] >> i & 1) << 8);
    }
    memcpy(p.sign, w->sign, sizeof p.sign);
    grid_fours(y->q, grid_iq3_s, &p);
}

/* Of 8 weights an index, 8 bits in q and 3 in h; of 32 a scale of 3 bits and the sign of delta. */
INLINE void decode_iq1_s(block_bytes_k *y, const block_iq1_s *w)
{
    grid_parts p;
    y->d = 0.125f * f16_to_f32(w->d);
    for (int j = 0; j < 8; j++) {
        y->sc[2 * j] = y->sc[2 * j + 1] = (int8_t)(2 * (w->h[j] >> 12 & 7) + 1);
        for (int i = 0; i < 4; i++) {
            p.index[4 * j + i] = (uint16_t)(w->q[4 * j + i] | (w->h[j] >> 3 * i & 7) << 8);
            p.delta[4 * j + i] = w->h[j] >> 15 ? -1 : 1;
        }
    }
    grid_deltas(y->q, grid_iq1, &p);
}

/* Of 8 weights an index, 8 bits in q and 3 in half a byte of h, whose fourth is the sign of delta;
 * of 16 a scale of 3 bits, four of them in a word of d; above them a quarter of d's bits. */
INLINE void decode_iq1_m(block_bytes_k *y, const block_iq1_m *w)
{
    grid_parts p;
    uint16_t d = 0;
    for (int j = 0; j < 4; j++) {
        d |= (uint16_t)(w->d[j] >> 12 << 4 * j);
        for (int i = 0; i < 4; i++)
            y->sc[4 * j + i] = (int8_t)(2 * (w->d[j] >> 3 * i & 7) + 1);
    }
    y->d = 0.125f * f16_to_f32(d);
    for (int i = 0; i < EIGHTS; i++) {
        const int h = w->h[i / 2] >> i % 2 * 4;
        p.index[i] = (uint16_t)(w->q[i] | (h & 7) << 8);
        p.delta[i] = h & 8 ? -1 : 1;
    }
    grid_deltas(y->q, grid_iq1, &p);
}

/* ---- FP4 with a scale of 8 bits for each 16 -------------------------------------------------- */

/* A scale in E4M3 without sign, halved as fp4_value is doubled; 0x7f is none. */
INLINE float scale_of_e4m3(uint8_t x)
{
    const uint32_t exponent = x >> 3 & 15, fraction = x & 7;
    if (x == 0x7f)
        return 0;
    return exponent ? bits_f32((exponent + 127 - 7 - 1) << 23 | fraction << 20)
                    : (float)fraction * 0x1p-10f;
}

/* Weights of NVFP4 as bf16, which has room for every product of 2 and 4 bits.  The first 8 of 16
 * are the low halves. */
INLINE void decode_nvfp4(uint16_t *y, const block_nvfp4 *w)
{
    for (int j = 0; j < 4; j++) {
        const float d = scale_of_e4m3(w->d[j]);
        for (int i = 0; i < 16; i++) {
            const int q = w->q[8 * j + i % 8] >> i / 8 * 4 & 15;
            y[16 * j + i] = (uint16_t)(f32_bits(d * (float)fp4_value[q]) >> 16);
        }
    }
}
#endif
