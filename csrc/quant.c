/* quant.c - the formats of weights: names, sizes, and one row back to f32.
 *
 * GGUF stores a weight matrix row by row, each row as blocks; the block layouts
 * are in internal.h.  dequantize_row gives exactly the f32 values that the gguf
 * package's `dequantize` gives: d * q in f32, d from half precision.  Any bit
 * pattern is memory-safe: no stored value is used as an index. */
#include <string.h>
#include "internal.h"

/* What a file may hold, by type number: block in elements, and its bytes.  The
 * numbers left out were withdrawn, or are formats of activations. */
static const struct { const char *name; uint16_t block, bytes; } format[] = {
    [T_F32] = { "F32", 1, 4 },     [T_F16] = { "F16", 1, 2 },
    [T_Q4_0] = { "Q4_0", 32, 18 }, [T_Q4_1] = { "Q4_1", 32, 20 },
    [6] = { "Q5_0", 32, 22 },      [7] = { "Q5_1", 32, 24 },
    [T_Q8_0] = { "Q8_0", 32, 34 }, [10] = { "Q2_K", 256, 84 },
    [11] = { "Q3_K", 256, 110 },   [12] = { "Q4_K", 256, 144 },
    [13] = { "Q5_K", 256, 176 },   [14] = { "Q6_K", 256, 210 },
    [16] = { "IQ2_XXS", 256, 66 }, [17] = { "IQ2_XS", 256, 74 },
    [18] = { "IQ3_XXS", 256, 98 }, [19] = { "IQ1_S", 256, 50 },
    [20] = { "IQ4_NL", 32, 18 },   [21] = { "IQ3_S", 256, 110 },
    [22] = { "IQ2_S", 256, 82 },   [23] = { "IQ4_XS", 256, 136 },
    [24] = { "I8", 1, 1 },         [25] = { "I16", 1, 2 },
    [26] = { "I32", 1, 4 },        [27] = { "I64", 1, 8 },
    [28] = { "F64", 1, 8 },        [29] = { "IQ1_M", 256, 56 },
    [T_BF16] = { "BF16", 1, 2 },   [34] = { "TQ1_0", 256, 54 },
    [35] = { "TQ2_0", 256, 66 },   [39] = { "MXFP4", 32, 17 },
    [40] = { "NVFP4", 64, 36 },    [41] = { "Q1_0", 128, 18 },
};
enum { N_FORMATS = sizeof format / sizeof *format };

const char *type_name(int32_t type)
{
    return type_block(type) ? format[type].name : "";
}

int64_t type_block(int32_t type)
{
    return type >= 0 && type < N_FORMATS ? format[type].block : 0;
}

int64_t type_row_bytes(int32_t type, int64_t n)
{
    const int64_t block = type_block(type);
    if (!block)
        return 0;
    return n % block ? -1 : n / block * format[type].bytes;
}

int32_t type_supported(int32_t type)
{
    return type == T_F32 || type == T_F16 || type == T_BF16 || type == T_Q8_0 || type == T_Q4_0 || type == T_Q4_1;
}

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

void dequantize_row(float *y, int32_t type, const void *x, int64_t n)
{
    switch (type) {
    case T_F32:
        memcpy(y, x, (size_t)n * 4);
        break;
    case T_F16:
        for (int64_t i = 0; i < n; i++)
            y[i] = f16_to_f32(((const uint16_t *)x)[i]);
        break;
    case T_BF16:
        for (int64_t i = 0; i < n; i++)
            y[i] = bits_f32((uint32_t)((const uint16_t *)x)[i] << 16);
        break;
    case T_Q8_0:
        for (int64_t b = 0; b < n / 32; b++) {
            const block_q8_0 *w = (const block_q8_0 *)x + b;
            for (int i = 0; i < 32; i++)
                y[b * 32 + i] = f16_to_f32(w->d) * w->q[i];
        }
        break;
    case T_Q4_0:
        for (int64_t b = 0; b < n / 32; b++) {
            const block_q4_0 *w = (const block_q4_0 *)x + b;
            for (int i = 0; i < 32; i++)
                y[b * 32 + i] = f16_to_f32(w->d) * (float)((w->q[i % 16] >> (i < 16 ? 0 : 4) & 15) - 8);
        }
        break;
    case T_Q4_1:
        for (int64_t b = 0; b < n / 32; b++) {
            const block_q4_1 *w = (const block_q4_1 *)x + b;
            for (int i = 0; i < 32; i++)
                y[b * 32 + i] = f16_to_f32(w->d) * (float)(w->q[i % 16] >> (i < 16 ? 0 : 4) & 15) + f16_to_f32(w->m);
        }
        break;
    }
}

void convert_f32_f16(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f32_to_f16(x[i]);
}

/* A half is finite if its exponent is not all ones; bf16 and f32 likewise. */
static inline int finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }
static inline int finite_bf16(uint16_t h) { return (h & 0x7f80) != 0x7f80; }
static inline int finite_f32(uint32_t u) { return (u & 0x7f800000) != 0x7f800000; }

int64_t count_nonfinite(int64_t *first, int32_t type, const void *x, int64_t n)
{
    int64_t count = 0;
    *first = -1;
    for (int64_t i = 0, block = type_block(type), b = 0; i < n; i += block, b++) {
        int bad = 0;
        switch (type) {
        case T_F32: bad = !finite_f32(((const uint32_t *)x)[b]); break;
        case T_F16: bad = !finite_f16(((const uint16_t *)x)[b]); break;
        case T_BF16: bad = !finite_bf16(((const uint16_t *)x)[b]); break;
        case T_Q8_0: bad = !finite_f16(((const block_q8_0 *)x)[b].d); break;
        case T_Q4_0: bad = !finite_f16(((const block_q4_0 *)x)[b].d); break;
        case T_Q4_1: bad = !finite_f16(((const block_q4_1 *)x)[b].d) + !finite_f16(((const block_q4_1 *)x)[b].m); break;
        }
        if (bad && *first < 0)
            *first = i;
        count += bad;
    }
    return count;
}
