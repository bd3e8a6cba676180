/* internal.h - what C files say to each other and Python does not see. */
#ifndef SLUICE_INTERNAL_H
#define SLUICE_INTERNAL_H
#include <stddef.h>
#include <stdint.h>
#include "kernels.h"

/* GGML type numbers. */
enum { T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q4_1 = 3, T_Q8_0 = 8, T_BF16 = 30 };

/* Blocks of 32 weights as GGUF stores them.  d, m: IEEE half, the bits. */
typedef struct { uint16_t d; uint8_t q[16]; } block_q4_0;             /* w = d (q - 8); element i in the low half of q[i], i + 16 in the high */
typedef struct { uint16_t d, m; uint8_t q[16]; } block_q4_1;          /* w = d q + m; as above */
typedef struct { uint16_t d; int8_t q[32]; } block_q8_0;              /* w = d q */
_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q8_0) == 34, "GGUF block sizes");

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* to nearest, ties to even */

static inline float bits_f32(uint32_t u) { union { uint32_t u; float f; } v = { .u = u }; return v.f; }
static inline uint32_t f32_bits(float f) { union { float f; uint32_t u; } v = { .f = f }; return v.u; }
#endif
