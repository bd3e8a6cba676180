/* types.h - the table of weight types, and blocks as GGUF stores them.
 *
 * A type is one row here. Its GGML number, name, sizes and layout, and the switches that lead to
 * its functions, are expansions of these lists; Python reads them through api/formats.h. A row of
 * a block type also needs, under its lower-case name, a struct block_NAME (below), a function
 * unpack_NAME (quant.c) and a case wherever a kernel turns such a block into bytes: csrc/README.md
 * lists the places. */
#ifndef SLUICE_FORMATS_TYPES_H
#define SLUICE_FORMATS_TYPES_H
#include <stddef.h>
#include <stdint.h>

// clang-format off
/* ROW(number, NAME, bytes of an element): encode.c makes all of them. */
#define TYPES_FLOAT(ROW) \
    ROW( 0, F32,  4) \
    ROW( 1, F16,  2) \
    ROW(30, BF16, 2)

/* ROW(number, NAME, name, bits, zero, group, has_min, is_encoded), of blocks of 32, which store bytes,
 * or integers of 4 or 5 bits, or indices of a table of values; then of blocks of 256.
 *
 * bits, zero   q + zero is an unsigned integer of so many bits. The formats with fewer than 8
 *              store that integer; zero is 0 where a minimum takes its place. Indices: q is of
 *              iq4_value or fp4_value
 * group        elements that share a scale
 * has_min      a block has a minimum, m or dmin, behind its scale d
 * is_encoded   encode.c makes it */
#define TYPES_32_BYTES(ROW) \
    /*                      bits zero group min encoded */ \
    ROW( 8, Q8_0,   q8_0,    8,  128,  32,  0,  1)
#define TYPES_32_BITS(ROW) \
    ROW( 2, Q4_0,   q4_0,    4,    8,  32,  0,  1) \
    ROW( 3, Q4_1,   q4_1,    4,    0,  32,  1,  1) \
    ROW( 6, Q5_0,   q5_0,    5,   16,  32,  0,  1) \
    ROW( 7, Q5_1,   q5_1,    5,    0,  32,  1,  1)
#define TYPES_32_INDICES(ROW) \
    ROW(20, IQ4_NL, iq4_nl,  8,  128,  32,  0,  0) \
    ROW(39, MXFP4,  mxfp4,   5,   12,  32,  0,  0)
#define TYPES_32(ROW) TYPES_32_BYTES(ROW) TYPES_32_BITS(ROW) TYPES_32_INDICES(ROW)
#define TYPES_K(ROW) \
    ROW(10, Q2_K,   q2_k,    2,    0,  16,  1,  0) \
    ROW(11, Q3_K,   q3_k,    3,    4,  16,  0,  0) \
    ROW(12, Q4_K,   q4_k,    4,    0,  32,  1,  1) \
    ROW(13, Q5_K,   q5_k,    5,    0,  32,  1,  1) \
    ROW(14, Q6_K,   q6_k,    6,   32,  16,  0,  1) \
    ROW(23, IQ4_XS, iq4_xs,  8,  128,  32,  0,  0)
/* No file has it: what blocks of TYPES_DECODED become before they are multiplied. */
#define TYPES_INNER(ROW) \
    ROW(-256, BYTES_K, bytes_k, 7,  64,  16,  0,  0)
#define TYPES_256(ROW) TYPES_K(ROW) TYPES_INNER(ROW)
#define TYPES_BLOCK(ROW) TYPES_32(ROW) TYPES_256(ROW)

/* ROW(number, NAME, name, bits), of blocks of 256 whose weights are costly to find: kernels/decode.h
 * makes BYTES_K of some rows at a time, for each product. */
#define TYPES_DECODED(ROW) \
    ROW(16, IQ2_XXS, iq2_xxs, 2) \
    ROW(17, IQ2_XS,  iq2_xs,  2) \
    ROW(18, IQ3_XXS, iq3_xxs, 3) \
    ROW(19, IQ1_S,   iq1_s,   1) \
    ROW(21, IQ3_S,   iq3_s,   3) \
    ROW(22, IQ2_S,   iq2_s,   2) \
    ROW(29, IQ1_M,   iq1_m,   1) \
    ROW(34, TQ1_0,   tq1_0,   2) \
    ROW(35, TQ2_0,   tq2_0,   2)
/* The same of blocks of 64, of which BF16 is made. */
#define TYPES_TO_BF16(ROW) \
    ROW(40, NVFP4,   nvfp4,   4)

/* ROW(number, NAME, elements of a block, bytes of it): files may hold them, no kernel reads them.
 * The numbers left out were withdrawn, or are formats of activations. */
#define TYPES_UNREAD(ROW) \
    ROW(24, I8, 1, 1) ROW(25, I16, 1, 2) ROW(26, I32, 1, 4) ROW(27, I64, 1, 8) \
    ROW(28, F64, 1, 8) ROW(41, Q1_0, 128, 18) ROW(42, Q2_0, 64, 18)
// clang-format on

/* T_F32 ...: the GGML numbers. */
#define NUMBER(number, NAME, ...) T_##NAME = number,
enum { TYPES_FLOAT(NUMBER) TYPES_BLOCK(NUMBER) TYPES_DECODED(NUMBER) TYPES_TO_BF16(NUMBER) };
#undef NUMBER

/* Dispatch to a function that is compiled for each type of a list:
 *
 *     #define CALL(type) multiply(a, begin, end, type)
 *         switch (a->type) {
 *             TYPES_32(CASE_OF_TYPE)
 *         }
 *     #undef CALL */
#define CASE_OF_TYPE(number, NAME, ...) \
    case T_##NAME: CALL(T_##NAME); break;

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
/* w = 2^(d - 128) fp4_value[q]; as q4_0 */
typedef struct { uint8_t d, q[16]; } block_mxfp4;
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
/* w = d sc q, |q| <= 62, 0 <= sc <= 31; 16; as long as cache lines are */
typedef struct { int8_t q[BLOCK_K], sc[BLOCK_K / GROUP_K]; float d; uint8_t none[44]; } block_bytes_k;
// clang-format on

/* Blocks of 256 that become BYTES_K: parts.h says where their bits are. */
// clang-format off
/* w = d / 8 (2 sc + 1) q, q of a grid or -q */
typedef struct { uint16_t d; uint8_t q[64]; } block_iq2_xxs;
typedef struct { uint16_t d, q[32]; uint8_t sc[8]; } block_iq2_xs;
typedef struct { uint16_t d; uint8_t q[32], sign[32], h[8], sc[8]; } block_iq2_s;
/* w = d / 4 (2 sc + 1) q; as above */
typedef struct { uint16_t d; uint8_t q[64], s[32]; } block_iq3_xxs;
/* w = d (2 sc + 1) q; as above */
typedef struct { uint16_t d; uint8_t q[64], h[8], sign[32], sc[4]; } block_iq3_s;
/* w = d / 8 (2 sc + 1) (8 q + 1) or (8 q - 1), q of a grid */
typedef struct { uint16_t d; uint8_t q[32]; uint16_t h[8]; } block_iq1_s;
typedef struct { uint8_t q[32], h[16]; uint16_t d[4]; } block_iq1_m;
/* w = d (q - 1), 2 bits */
typedef struct { uint8_t q[64]; uint16_t d; } block_tq2_0;
/* w = d (q - 1), 5 digits of base 3 in a byte of q, 4 in one of h */
typedef struct { uint8_t q[48], h[4]; uint16_t d; } block_tq1_0;
/* 64: w = d fp4_value[q], d of each 16 */
typedef struct { uint8_t d[4], q[32]; } block_nvfp4;
// clang-format on

_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22
                   && sizeof(block_q5_1) == 24 && sizeof(block_q8_0) == 34
                   && sizeof(block_iq4_nl) == 18 && sizeof(block_mxfp4) == 17,
               "GGUF block sizes");
_Static_assert(sizeof(block_q2_k) == 84 && sizeof(block_q3_k) == 110 && sizeof(block_q4_k) == 144
                   && sizeof(block_q5_k) == 176 && sizeof(block_q6_k) == 210
                   && sizeof(block_iq4_xs) == 136 && sizeof(block_bytes_k) == 320,
               "GGUF block sizes");
_Static_assert(sizeof(block_iq2_xxs) == 66 && sizeof(block_iq2_xs) == 74
                   && sizeof(block_iq2_s) == 82 && sizeof(block_iq3_xxs) == 98
                   && sizeof(block_iq3_s) == 110 && sizeof(block_iq1_s) == 50
                   && sizeof(block_iq1_m) == 56 && sizeof(block_tq2_0) == 66
                   && sizeof(block_tq1_0) == 54 && sizeof(block_nvfp4) == 36,
               "GGUF block sizes");

/* Facts of a block type: constants where the type is one. Their form (an expression or a switch,
 * FACT or plain inline) decides the order in which the compiler inlines them, and so which
 * registers a kernel gets; tests/helpers/object_code.py shows whether a change moves any. */
#define FACT static inline __attribute__((always_inline))

static inline int has_min(int32_t type)
{
#define ROW(number, NAME, name, bits, zero, group, min, encoded) || (min && type == T_##NAME)
    return 0 TYPES_BLOCK(ROW);
#undef ROW
}

/* Whether weights of 32 are indices of a table of values. */
static inline int is_indices(int32_t type)
{
#define ROW(number, NAME, ...) || type == T_##NAME
    return 0 TYPES_32_INDICES(ROW);
#undef ROW
}

/* Elements of a block of 256 that share a scale. */
static inline int32_t group_of(int32_t type)
{
#define ROW(number, NAME, name, bits, zero, group, ...) || (group == 32 && type == T_##NAME)
    return 0 TYPES_256(ROW) ? 32 : 16;
#undef ROW
}

/* Byte of a block where d is; m or dmin, if there is one, comes after it. */
static inline int64_t at_d(int32_t type)
{
#define ROW(number, NAME, name, ...) \
    case T_##NAME: return offsetof(block_##name, d);
    switch (type) {
        TYPES_BLOCK(ROW)
    }
    return 0;
#undef ROW
}

FACT int32_t bytes_of_block(int32_t type)
{
#define ROW(number, NAME, name, ...) \
    case T_##NAME: return sizeof(block_##name);
    switch (type) {
        TYPES_BLOCK(ROW)
    }
    return 0;
#undef ROW
}

FACT int32_t bits_of(int32_t type)
{
#define ROW(number, NAME, name, bits, ...) \
    case T_##NAME: return bits;
    switch (type) {
        TYPES_BLOCK(ROW)
    }
    return 0;
#undef ROW
}

FACT int32_t zero_of(int32_t type)
{
#define ROW(number, NAME, name, bits, zero, ...) \
    case T_##NAME: return zero;
    switch (type) {
        TYPES_BLOCK(ROW)
    }
    return 0;
#undef ROW
}

/* Blocks of 256 have more bytes than any of 32. */
FACT int is_of_32(int32_t type) { return bytes_of_block(type) <= (int32_t)sizeof(block_q8_0); }

#undef FACT
#endif
