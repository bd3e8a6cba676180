/* quant.h - a block of weights as integers, and half precision. */
#ifndef SLUICE_FORMATS_QUANT_H
#define SLUICE_FORMATS_QUANT_H
#include "api/formats.h"
#include "formats/types.h"
#include "runtime/float_bits.h"

/* quant.c: a block of any such type as integers.  w = d q + m, and w = d scale q - m min with scale
 * and min of the element's group of 16 (a group of 32 is two); m is 0 for types that have none. */
// clang-format off
typedef struct { float d, m; int8_t q[32]; } unpacked_32;
typedef struct {
    float d, m;
    int8_t scale[BLOCK_K / GROUP_K], min[BLOCK_K / GROUP_K], q[BLOCK_K];
} unpacked_256;
// clang-format on
void unpack_32(unpacked_32 *u, int32_t type, const void *block);
void unpack_256(unpacked_256 *u, int32_t type, const void *block);
extern const int8_t iq4_value[16], fp4_value[16];

/* A half is finite if its exponent is not all ones; bf16 and f32 likewise. */
static inline int finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }
static inline int finite_bf16(uint16_t h) { return (h & 0x7f80) != 0x7f80; }
static inline int finite_f32(uint32_t u) { return (u & 0x7f800000) != 0x7f800000; }

/* What MXFP4 scales with: 2^(e - 128), the lowest two subnormal. */
static inline float scale_of_e8m0(uint8_t e)
{
    return bits_f32(e < 2 ? 0x200000u << e : (e - 1u) << 23);
}

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* to nearest, ties to even */
#endif
