/* quant.c - the formats of weights: names, sizes, blocks as integers, and one row back to f32.
 *
 * GGUF stores a weight matrix row by row, each row as blocks; the block layouts
 * are in types.h.  dequantize_row gives exactly the f32 values that the gguf
 * package's `dequantize` gives: scale times integer in f32, the scale from half
 * precision, times its group's small integer first.  Any bit pattern is
 * memory-safe: what indexes a table is cut to the table's size. */
#include <string.h>
#include "formats/grid.h"
#include "formats/quant.h"
#include "runtime/float_bits.h"

/* What a file may hold, by type number; a number that is not in the table has a block of 0. */
// clang-format off
static const weight_type table[] = {
#define ROW(number, NAME, bytes) [number] = {#NAME, number, 1, bytes, 8 * bytes, 0, 0, 1, 1, 1},
    TYPES_FLOAT(ROW)
#undef ROW
/* a scale that is no half, but of 8 bits or in parts, does not count */
#define N_HALF(name, min) (sizeof(((block_##name *)0)->d) == 2 ? 1 + min : 0)
#define BLOCK(elements, number, NAME, name, bits, min, encoded) \
    [number] = {#NAME, number, elements, sizeof(block_##name), bits, \
                offsetof(block_##name, d), N_HALF(name, min), 1, encoded, elements},
#define ROW(number, NAME, name, bits, zero, group, min, encoded) \
    BLOCK(32, number, NAME, name, bits, min, encoded)
    TYPES_32(ROW)
#undef ROW
#define ROW(number, NAME, name, bits, zero, group, min, encoded) \
    BLOCK(BLOCK_K, number, NAME, name, bits, min, encoded)
    TYPES_K(ROW)
#undef ROW
#define ROW(number, NAME, name, bits) BLOCK(BLOCK_K, number, NAME, name, bits, 0, 0)
    TYPES_DECODED(ROW)
#undef ROW
#define ROW(number, NAME, name, bits) \
    [number] = {#NAME, number, 64, sizeof(block_##name), bits, offsetof(block_##name, d), 0, 1, 0, 1},
    TYPES_TO_BF16(ROW)
#undef ROW
#define ROW(number, NAME, elements, bytes) [number] = {#NAME, number, elements, bytes, .bits = 0},
    TYPES_UNREAD(ROW)
#undef ROW
};
// clang-format on
enum { N_NUMBERS = sizeof table / sizeof *table };

const weight_type *type_facts(int32_t type)
{
    return type >= 0 && type < N_NUMBERS && table[type].block ? &table[type] : NULL;
}

const char *type_name(int32_t type) { return type_facts(type) ? table[type].name : ""; }

int64_t type_block(int32_t type)
{
    if (type == T_BYTES_K)
        return BLOCK_K;
    return type >= 0 && type < N_NUMBERS ? table[type].block : 0;
}

int64_t type_row_bytes(int32_t type, int64_t n)
{
    const int64_t block = type_block(type);
    if (!block)
        return 0;
    return n % block ? -1 : n / block * (type < 0 ? bytes_of_block(type) : table[type].bytes);
}

int32_t type_supported(int32_t type) { return type_facts(type) && table[type].is_read; }

int32_t encodable(int32_t type) { return type_facts(type) && table[type].is_encoded; }

float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) /* infinity, NaN (made quiet, as the processor does) */
        return bits_f32(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 0x400000 : 0));
    if (rest >= 0x400) /* normal: the exponent moves from bias 15 to bias 127 */
        return bits_f32(sign | ((rest << 13) + ((127 - 15) << 23)));
    return bits_f32(sign | f32_bits((float)rest * 0x1p-24f)); /* subnormal: exact in f32 */
}

uint16_t f32_to_f16(float f)
{
    const uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* subnormal half: let the f32 adder round at bit 2^-24 */
        const float r = bits_f32(rest) + 0.5f;
        return (uint16_t)(sign | (f32_bits(r) - 0x3f000000));
    }
    const uint32_t odd = rest >> 13 & 1;
    return (uint16_t)(sign | (rest - (112u << 23) + 0xfff + odd) >> 13);
}

void convert_f32_f16(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f32_to_f16(x[i]);
}

/* ---- blocks as integers --------------------------------------------------------------------- */

/* What the 4 bits of IQ4_NL and IQ4_XS stand for: steps that widen away from zero. */
const int8_t iq4_value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

/* What the 4 bits of MXFP4 and NVFP4 stand for, doubled: a sign, 2 bits of exponent, 1 of fraction.
 */
const int8_t fp4_value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Element i of 32 in nibbles: the low halves are the first 16.  Bit i of h. */
static inline int nibble(const uint8_t q[16], int i) { return q[i % 16] >> i / 16 * 4 & 15; }
static inline int bit(const uint8_t h[4], int i) { return h[i / 8] >> i % 8 & 1; }

static void unpack_q8_0(unpacked_32 *u, const block_q8_0 *w)
{
    u->d = f16_to_f32(w->d);
    memcpy(u->q, w->q, sizeof u->q);
}

static void unpack_q4_0(unpacked_32 *u, const block_q4_0 *w)
{
    u->d = f16_to_f32(w->d);
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)(nibble(w->q, i) - 8);
}

static void unpack_q4_1(unpacked_32 *u, const block_q4_1 *w)
{
    u->d = f16_to_f32(w->d), u->m = f16_to_f32(w->m);
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)nibble(w->q, i);
}

static void unpack_q5_0(unpacked_32 *u, const block_q5_0 *w)
{
    u->d = f16_to_f32(w->d);
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)((nibble(w->q, i) | bit(w->h, i) << 4) - 16);
}

static void unpack_q5_1(unpacked_32 *u, const block_q5_1 *w)
{
    u->d = f16_to_f32(w->d), u->m = f16_to_f32(w->m);
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)(nibble(w->q, i) | bit(w->h, i) << 4);
}

static void unpack_iq4_nl(unpacked_32 *u, const block_iq4_nl *w)
{
    u->d = f16_to_f32(w->d);
    for (int i = 0; i < 32; i++)
        u->q[i] = iq4_value[nibble(w->q, i)];
}

static void unpack_mxfp4(unpacked_32 *u, const block_mxfp4 *w)
{
    u->d = scale_of_e8m0(w->d);
    for (int i = 0; i < 32; i++)
        u->q[i] = fp4_value[nibble(w->q, i)];
}

/* unpack_NAME(u, block) of the block's type. */
#define UNPACK(number, NAME, name, ...) \
    case number: unpack_##name(u, block); break;

void unpack_32(unpacked_32 *u, int32_t type, const void *block)
{
    u->m = 0.0f;
    switch (type) {
        TYPES_32(UNPACK)
    }
}

/* Element i of 256.  Bytes are shared by elements 32 apart: pairs of bits by the four of 128
 * elements, halves by the two of 64, single bits by all eight. */
static inline int two_bits(const uint8_t q[64], int i)
{
    return q[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
}
static inline int four_bits(const uint8_t q[128], int i)
{
    return q[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
}
static inline int one_bit(const uint8_t h[32], int i) { return h[i % 32] >> i / 32 & 1; }

/* Scale and minimum of group j of 8, 6 bits each, of Q4_K and Q5_K: the first four of both have
 * bytes of their own, whose two upper bits go to the last four; these have their lower bits in the
 * two halves of the last bytes. */
static inline int scale_of(const uint8_t sc[12], int j)
{
    return j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | sc[j - 4] >> 6 << 4;
}
static inline int min_of(const uint8_t sc[12], int j)
{
    return j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | sc[j] >> 6 << 4;
}

static void unpack_q2_k(unpacked_256 *u, const block_q2_k *w)
{
    u->d = f16_to_f32(w->d), u->m = f16_to_f32(w->dmin);
    for (int j = 0; j < 16; j++) {
        u->scale[j] = w->sc[j] & 15;
        u->min[j] = (int8_t)(w->sc[j] >> 4);
    }
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] = (int8_t)two_bits(w->q, i);
}

/* Of each scale 4 bits are in the halves of the first 8 bytes, 2 in the last 4. */
static void unpack_q3_k(unpacked_256 *u, const block_q3_k *w)
{
    u->d = f16_to_f32(w->d);
    for (int j = 0; j < 16; j++)
        u->scale[j] =
            (int8_t)(((w->sc[j % 8] >> j / 8 * 4 & 15) | (w->sc[8 + j % 4] >> j / 4 * 2 & 3) << 4)
                     - 32);
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] = (int8_t)((two_bits(w->q, i) | one_bit(w->h, i) << 2) - 4);
}

static void unpack_q4_k(unpacked_256 *u, const block_q4_k *w)
{
    u->d = f16_to_f32(w->d), u->m = f16_to_f32(w->dmin);
    for (int j = 0; j < 16; j++) {
        u->scale[j] = (int8_t)scale_of(w->sc, j / 2);
        u->min[j] = (int8_t)min_of(w->sc, j / 2);
    }
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] = (int8_t)four_bits(w->q, i);
}

static void unpack_q5_k(unpacked_256 *u, const block_q5_k *w)
{
    u->d = f16_to_f32(w->d), u->m = f16_to_f32(w->dmin);
    for (int j = 0; j < 16; j++) {
        u->scale[j] = (int8_t)scale_of(w->sc, j / 2);
        u->min[j] = (int8_t)min_of(w->sc, j / 2);
    }
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] = (int8_t)(four_bits(w->q, i) | one_bit(w->h, i) << 4);
}

/* Unlike the others its halves are shared by elements 64 apart. */
static void unpack_q6_k(unpacked_256 *u, const block_q6_k *w)
{
    u->d = f16_to_f32(w->d);
    memcpy(u->scale, w->sc, sizeof u->scale);
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] =
            (int8_t)(((w->q[i / 128 * 64 + i % 64] >> i / 64 % 2 * 4 & 15) | two_bits(w->h, i) << 4)
                     - 32);
}

/* Groups of 32 as the blocks of IQ4_NL; of each scale 4 bits in sc, 2 in sch. */
static void unpack_iq4_xs(unpacked_256 *u, const block_iq4_xs *w)
{
    u->d = f16_to_f32(w->d);
    for (int j = 0; j < 16; j++)
        u->scale[j] =
            (int8_t)(((w->sc[j / 4] >> j / 2 % 2 * 4 & 15) | (w->sch >> j / 2 * 2 & 3) << 4) - 32);
    for (int i = 0; i < BLOCK_K; i++)
        u->q[i] = iq4_value[nibble(w->q + i / 32 * 16, i % 32)];
}

static float f32_of_half(uint16_t h) { return f16_to_f32(h); }

static bytes_16 values_of_fp4(bytes_16 q)
{
    bytes_16 v;
    for (int i = 0; i < 16; i++)
        v[i] = (uint8_t)fp4_value[q[i]];
    return v;
}

static void scaled_to_bf16(uint16_t *y, float d, bytes_16 v)
{
    for (int i = 0; i < 16; i++)
        y[i] = (uint16_t)(f32_bits(d * (float)(int8_t)v[i]) >> 16);
}

/* Weight i of a block whose entries have `each` weights. */
static int of_grid(const void *grid, const grid_parts *p, int i, int each)
{
    return ((const int8_t *)grid)[p->index[i / each] * each + i % each];
}

static void grid_eights(int8_t *q, const uint64_t *grid, const grid_parts *p)
{
    for (int i = 0; i < BLOCK_K; i++)
        q[i] = (int8_t)(of_grid(grid, p, i, 8) * (p->sign[i / 8] >> i % 8 & 1 ? -1 : 1));
}

static void grid_deltas(int8_t *q, const uint64_t *grid, const grid_parts *p)
{
    for (int i = 0; i < BLOCK_K; i++)
        q[i] = (int8_t)(of_grid(grid, p, i, 8) + p->delta[i / 8]);
}

static void grid_fours(int8_t *q, const uint32_t *grid, const grid_parts *p)
{
    for (int i = 0; i < BLOCK_K; i++)
        q[i] = (int8_t)(of_grid(grid, p, i, 4) * (p->sign[i / 8] >> i % 8 & 1 ? -1 : 1));
}

#include "formats/parts.h"

static void unpack_bytes_k(unpacked_256 *u, const block_bytes_k *w)
{
    u->d = w->d;
    memcpy(u->scale, w->sc, sizeof u->scale);
    memcpy(u->q, w->q, sizeof u->q);
}

void unpack_256(unpacked_256 *u, int32_t type, const void *block)
{
    block_bytes_k b;
    u->m = 0.0f;
    memset(u->min, 0, sizeof u->min);
#define DECODE(number, NAME, name, ...) \
    case number: \
        decode_##name(&b, block); \
        unpack_bytes_k(u, &b); \
        break;
    switch (type) {
        TYPES_256(UNPACK)
        TYPES_DECODED(DECODE)
    }
#undef DECODE
}

/* ---- a row back to f32 ------------------------------------------------------------------------
 */

static void dequantize_32(float *y, int32_t type, const void *x)
{
    unpacked_32 u;
    unpack_32(&u, type, x);
    for (int i = 0; i < 32; i++)
        y[i] = has_min(type) ? u.d * (float)u.q[i] + u.m : u.d * (float)u.q[i];
}

static void dequantize_256(float *y, int32_t type, const void *x)
{
    unpacked_256 u;
    unpack_256(&u, type, x);
    for (int i = 0; i < BLOCK_K; i++) {
        const float w = u.d * (float)u.scale[i / GROUP_K] * (float)u.q[i];
        y[i] = has_min(type) ? w - u.m * (float)u.min[i / GROUP_K] : w;
    }
}

static void dequantize_64(float *y, int32_t type, const void *x)
{
    uint16_t w[64];
    (void)type;
    decode_nvfp4(w, x);
    for (int i = 0; i < 64; i++)
        y[i] = bits_f32((uint32_t)w[i] << 16);
}

void dequantize_row(float *y, int32_t type, const void *x, int64_t n)
{
    const int64_t block = type_block(type), bytes = type_row_bytes(type, block);
    switch (type) {
    case T_F32: memcpy(y, x, (size_t)n * 4); break;
    case T_F16:
        for (int64_t i = 0; i < n; i++)
            y[i] = f16_to_f32(((const uint16_t *)x)[i]);
        break;
    case T_BF16:
        for (int64_t i = 0; i < n; i++)
            y[i] = bits_f32((uint32_t)((const uint16_t *)x)[i] << 16);
        break;
    default:
        for (int64_t b = 0; b < n / block; b++)
            (block == 32 ? dequantize_32
                 : block == 64
                 ? dequantize_64
                 : dequantize_256)(y + b * block, type, (const uint8_t *)x + b * bytes);
    }
}

/* Whether block b has an infinite weight or a NaN, of a type whose scales are no halves. */
static int bad_weights(int32_t type, const void *x, int64_t b)
{
    float y[BLOCK_K];
    const int32_t n = table[type].block;
    int bad = 0;
    dequantize_row(y, type, (const uint8_t *)x + b * table[type].bytes, n);
    for (int32_t i = 0; i < n; i++)
        bad |= !finite_f32(f32_bits(y[i]));
    return bad;
}

/* The halves of block b. */
static int bad_halves(int32_t type, const void *x, int64_t b)
{
    uint16_t h[2] = {0};
    memcpy(h, (const uint8_t *)x + b * table[type].bytes + table[type].at_d,
           table[type].n_scale * sizeof *h);
    return !finite_f16(h[0]) + !finite_f16(h[1]);
}

int64_t count_nonfinite(int64_t *first, int32_t type, const void *x, int64_t n)
{
    int64_t count = 0;
    *first = -1;
    for (int64_t i = 0, block = type_block(type), b = 0; i < n; i += block, b++) {
        int bad;
        switch (type) {
        case T_F32: bad = !finite_f32(((const uint32_t *)x)[b]); break;
        case T_F16: bad = !finite_f16(((const uint16_t *)x)[b]); break;
        case T_BF16: bad = !finite_bf16(((const uint16_t *)x)[b]); break;
        default: bad = (table[type].n_scale ? bad_halves : bad_weights)(type, x, b);
        }
        if (bad && *first < 0)
            *first = i;
        count += bad;
    }
    return count;
}
