/* quant.c - the formats of weights: names, sizes, and one row back to f32.
 *
 * GGUF stores a weight matrix row by row, each row as blocks; the block layouts
 * are in internal.h.  dequantize_row gives exactly the f32 values that the gguf
 * package's `dequantize` gives: d * q in f32, d from half precision.  Any bit
 * pattern is memory-safe: no stored value is used as an index. */
#include <string.h>
#include "internal.h"

const char *type_name(int32_t type)
{
    static const char *const name[] = {
        "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
        "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32",
        "I64", "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "", "", "", "MXFP4",
    };
    return type >= 0 && type < (int32_t)(sizeof name / sizeof *name) ? name[type] : "";
}

int64_t type_row_bytes(int32_t type, int64_t n)
{
    int64_t block = 1, bytes = 0;
    switch (type) {
    case T_F32: bytes = 4; break;
    case T_F16: case T_BF16: bytes = 2; break;
    case T_Q4_0: block = 32; bytes = sizeof(block_q4_0); break;
    case T_Q4_1: block = 32; bytes = sizeof(block_q4_1); break;
    case T_Q8_0: block = 32; bytes = sizeof(block_q8_0); break;
    default: return 0;
    }
    return n % block ? -1 : n / block * bytes;
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
