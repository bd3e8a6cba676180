/* neon_unpack.h - blocks of weights as bytes with a sign, 16 at a time, and the scales of blocks of
 * 256.
 *
 * Where the bits are: quant.c. */
#ifndef SLUICE_NEON_UNPACK_H
#define SLUICE_NEON_UNPACK_H
#include "kernels/arm/neon.h"

enum { BLOCK = 32, N_GROUP = BLOCK_K / GROUP_K };

/* 16 bytes at x, of each `mask` after a shift to the right. */
INLINE uint8x16_t bits_at(const uint8_t *x, int right, int mask)
{
    return vandq_u8(vshlq_u8(vld1q_u8(x), vdupq_n_s8((int8_t)-right)), vdupq_n_u8((uint8_t)mask));
}

/* v, whose bits are below 2^n or so, less `offset`. */
INLINE int8x16_t less(uint8x16_t v, int offset)
{
    return vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8((int8_t)offset));
}

/* What the nibbles of IQ4_NL, IQ4_XS and MXFP4 stand for. */
INLINE int8x16_t values_of(int32_t type, uint8x16_t index)
{
    return vqtbl1q_s8(vld1q_s8(type == T_MXFP4 ? fp4_value : iq4_value), index);
}

/* ---- blocks of 32 -----------------------------------------------------------------------------
 */

/* 0xff in each of 16 bytes whose bit of h (two bytes, the element's own bit i) is set. */
INLINE uint8x16_t spread(const uint8_t *h)
{
    const uint8x8_t bit = vcreate_u8(0x8040201008040201);
    return vtstq_u8(vcombine_u8(vdup_n_u8(h[0]), vdup_n_u8(h[1])), vcombine_u8(bit, bit));
}

/* Weights 16 k ... 16 k + 15 of a block: the low nibbles or the high ones. */
INLINE int8x16_t weights_32(int32_t type, const uint8_t *block, int k)
{
    switch (type) {
    case T_Q4_0: return less(bits_at(block + offsetof(block_q4_0, q), 4 * k, 15), 8);
    case T_Q4_1: return less(bits_at(block + offsetof(block_q4_1, q), 4 * k, 15), 0);
    case T_Q5_0: { /* less 16 where bit 4 is not set: the four upper bits */
        const uint8x16_t set = spread(block + offsetof(block_q5_0, h) + 2 * k);
        return less(vorrq_u8(bits_at(block + offsetof(block_q5_0, q), 4 * k, 15),
                             vbicq_u8(vdupq_n_u8(0xf0), set)),
                    0);
    }
    case T_Q5_1: {
        const uint8x16_t set = spread(block + offsetof(block_q5_1, h) + 2 * k);
        return less(vorrq_u8(bits_at(block + offsetof(block_q5_1, q), 4 * k, 15),
                             vandq_u8(vdupq_n_u8(16), set)),
                    0);
    }
    case T_IQ4_NL:
    case T_MXFP4: return values_of(type, bits_at(block + bytes_of_block(type) - 16, 4 * k, 15));
    default: return vld1q_s8((const int8_t *)block + offsetof(block_q8_0, q) + 16 * k);
    }
}

/* ---- blocks of 256 ----------------------------------------------------------------------------
 */

/* Weights of group g: 16 g ... 16 g + 15. */
INLINE int8x16_t weights_256(int32_t type, const uint8_t *block, int g)
{
    /* elements 32 apart share bytes */
    const int quarter = g / 2, two = 2 * (quarter % 4), four = 4 * (quarter % 2), half = g % 2 * 16;
    switch (type) {
    case T_Q2_K:
        return less(bits_at(block + offsetof(block_q2_k, q) + g / 8 * 32 + half, two, 3), 0);
    case T_Q3_K:
        return less(
            vorrq_u8(bits_at(block + offsetof(block_q3_k, q) + g / 8 * 32 + half, two, 3),
                     vshlq_n_u8(bits_at(block + offsetof(block_q3_k, h) + half, quarter, 1), 2)),
            4);
    case T_Q4_K:
        return less(bits_at(block + offsetof(block_q4_k, q) + g / 4 * 32 + half, four, 15), 0);
    case T_Q5_K:
        return less(
            vorrq_u8(bits_at(block + offsetof(block_q5_k, q) + g / 4 * 32 + half, four, 15),
                     vshlq_n_u8(bits_at(block + offsetof(block_q5_k, h) + half, quarter, 1), 4)),
            0);
    case T_Q6_K:
        return less(
            vorrq_u8(bits_at(block + offsetof(block_q6_k, q) + g / 8 * 64 + g % 4 * 16,
                             g / 4 % 2 * 4, 15),
                     vshlq_n_u8(
                         bits_at(block + offsetof(block_q6_k, h) + g / 8 * 32 + half, two, 3), 4)),
            32);
    case T_BYTES_K: return vld1q_s8((const int8_t *)block + GROUP_K * g);
    default:
        return values_of(type,
                         bits_at(block + offsetof(block_iq4_xs, q) + g / 2 * 16, g % 2 * 4, 15));
    }
}

/* 8 bytes, each twice. */
INLINE int8x16_t twice(uint32_t low, uint32_t high)
{
    const int8x8_t v = vcreate_s8(low | (uint64_t)high << 32);
    return vcombine_s8(vzip1_s8(v, v), vzip2_s8(v, v));
}

/* What Q3_K and IQ4_XS have: 6 bits, 4 in low and 2 in high, less 32. */
INLINE int8x16_t six_bits(uint8x16_t low, uint8x16_t high)
{
    return less(
        vorrq_u8(vandq_u8(low, vdupq_n_u8(15)), vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4)), 32);
}

INLINE uint8x16_t table(uint64_t low, uint64_t high)
{
    return vcombine_u8(vcreate_u8(low), vcreate_u8(high));
}

/* Bytes of w picked by `index`, each shifted to the right by its `shift` (as negative numbers). */
INLINE uint8x16_t pick(uint32_t w, uint8x16_t index, uint8x16_t shift)
{
    return vshlq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(w)), index),
                    vreinterpretq_s8_u8(shift));
}

/* Scales of the 16 groups; *min: their minima, where the type has them. */
INLINE int8x16_t group_scales(int8x16_t *min, int32_t type, const uint8_t *block)
{
    *min = vdupq_n_s8(0);
    switch (type) {
    case T_Q2_K:
        *min = less(bits_at(block + offsetof(block_q2_k, sc), 4, 15), 0);
        return less(bits_at(block + offsetof(block_q2_k, sc), 0, 15), 0);
    case T_Q3_K: {
        const uint8x8_t x = vld1_u8(block + offsetof(block_q3_k, sc));
        return six_bits(vcombine_u8(x, vshr_n_u8(x, 4)),
                        pick(word(block + offsetof(block_q3_k, sc) + 8),
                             table(0x0302010003020100, 0x0302010003020100),
                             table(0xfefefefe00000000, 0xfafafafafcfcfcfc)));
    }
    /* both begin alike: the first four scales, the first four minima, the lower bits of the last
     * four */
    case T_Q4_K:
    case T_Q5_K: {
        const uint8_t *sc = block + offsetof(block_q4_k, sc);
        const uint32_t a = word(sc), b = word(sc + 4), c = word(sc + 8);
        *min = twice(b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030));
        return twice(a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030));
    }
    case T_Q6_K: return vld1q_s8((const int8_t *)block + offsetof(block_q6_k, sc));
    case T_BYTES_K: return vld1q_s8((const int8_t *)block + offsetof(block_bytes_k, sc));
    default: {
        uint16_t high;
        memcpy(&high, block + offsetof(block_iq4_xs, sch), 2);
        return six_bits(pick(word(block + offsetof(block_iq4_xs, sc)),
                             table(0x0101010100000000, 0x0303030302020202),
                             table(0xfcfc0000fcfc0000, 0xfcfc0000fcfc0000)),
                        pick(high, table(0, 0x0101010101010101),
                             table(0xfafafcfcfefe0000, 0xfafafcfcfefe0000)));
    }
    }
}
#endif
