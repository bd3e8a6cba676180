/* types.h - the types of weights: their GGML numbers, and blocks as GGUF stores them. */
#ifndef SLUICE_FORMATS_TYPES_H
#define SLUICE_FORMATS_TYPES_H
#include <stddef.h>
#include <stdint.h>

/* GGML type numbers. */
enum {
    T_F32 = 0,
    T_F16 = 1,
    T_Q4_0 = 2,
    T_Q4_1 = 3,
    T_Q5_0 = 6,
    T_Q5_1 = 7,
    T_Q8_0 = 8,
    T_Q2_K = 10,
    T_Q3_K = 11,
    T_Q4_K = 12,
    T_Q5_K = 13,
    T_Q6_K = 14,
    T_IQ4_NL = 20,
    T_IQ4_XS = 23,
    T_BF16 = 30
};
static inline int has_min(int32_t type)
{
    return type == T_Q4_1 || type == T_Q5_1 || type == T_Q2_K || type == T_Q4_K || type == T_Q5_K;
}

/* Blocks of 32 weights as GGUF stores them.  d, m: IEEE half, the bits. */
// clang-format off
/* w = d (q - 8); element i: the low half of q[i], i + 16: the high */
typedef struct { uint16_t d; uint8_t q[16]; } block_q4_0;
/* w = d q + m; as above */
typedef struct { uint16_t d, m; uint8_t q[16]; } block_q4_1;
/* w = d (q - 16); as above, bit 4 of element i is bit i of h */
typedef struct { uint16_t d; uint8_t h[4], q[16]; } block_q5_0;
/* w = d q + m; as above */
typedef struct { uint16_t d, m; uint8_t h[4], q[16]; } block_q5_1;
/* w = d q */
typedef struct { uint16_t d; int8_t q[32]; } block_q8_0;
/* w = d iq4_value[q]; as q4_0 */
typedef struct { uint16_t d; uint8_t q[16]; } block_iq4_nl;
// clang-format on

/* Blocks of 256, in groups of 16 or 32 with a small integer as scale of each, sc, and minimum, m.
 * Where the bits of element i and of the scales are: unpack_256 in quant.c. */
enum { BLOCK_K = 256, GROUP_K = 16 };
// clang-format off
/* w = d sc q - dmin m, 2 bits; groups of 16 */
typedef struct { uint8_t sc[16], q[64]; uint16_t d, dmin; } block_q2_k;
/* w = d (sc - 32) (q - 4), 2 bits in q, 1 in h; 16 */
typedef struct { uint8_t h[32], q[64], sc[12]; uint16_t d; } block_q3_k;
/* w = d sc q - dmin m, 4 bits; 32 */
typedef struct { uint16_t d, dmin; uint8_t sc[12], q[128]; } block_q4_k;
/* w = d sc q - dmin m, 4 bits in q, 1 in h; 32 */
typedef struct { uint16_t d, dmin; uint8_t sc[12], h[32], q[128]; } block_q5_k;
/* w = d sc (q - 32), 4 bits in q, 2 in h; 16 */
typedef struct { uint8_t q[128], h[64]; int8_t sc[16]; uint16_t d; } block_q6_k;
/* w = d (sc - 32) iq4_value[q], 4 bits; 32 */
typedef struct { uint16_t d, sch; uint8_t sc[4], q[128]; } block_iq4_xs;
// clang-format on

_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22
                   && sizeof(block_q5_1) == 24 && sizeof(block_q8_0) == 34
                   && sizeof(block_iq4_nl) == 18,
               "GGUF block sizes");
_Static_assert(sizeof(block_q2_k) == 84 && sizeof(block_q3_k) == 110 && sizeof(block_q4_k) == 144
                   && sizeof(block_q5_k) == 176 && sizeof(block_q6_k) == 210
                   && sizeof(block_iq4_xs) == 136,
               "GGUF block sizes");

/* Elements that share a scale. */
static inline int32_t group_of(int32_t type)
{
    return type == T_Q4_K || type == T_Q5_K || type == T_IQ4_XS ? 32 : 16;
}

/* Byte of a block where d is; dmin, where there is one, comes after it. */
static inline int64_t at_d(int32_t type)
{
    switch (type) {
    case T_Q2_K: return offsetof(block_q2_k, d);
    case T_Q3_K: return offsetof(block_q3_k, d);
    case T_Q6_K: return offsetof(block_q6_k, d);
    default: return 0;
    }
}
#endif
