/* decode.h - rows of TYPES_DECODED as blocks of BYTES_K, and of TYPES_TO_BF16 as BF16, for an
 * instruction set. The bits are those of quant.c; decoded.c calls it. x86/avx2_decode.c,
 * x86/avx512_decode.c and arm/neon_decode.c include it behind
 *
 *     WEIGHTS                     weights of a register, and its type `weights`
 *     entries_of_8(grid, index)   so many of the entries with these indices, 8 or 4 weights each
 *     entries_of_4(grid, index)
 *     with_signs(w, sign)         -w where the weight's bit of sign is set; w > 0
 *     with_deltas(w, delta)       w plus a byte of delta for each 8
 *     store_weights(q, w)
 *     f32_of_half(h)
 *     values_of_fp4(q)            fp4_value of 16 bytes below 16
 *     scaled_to_bf16(y, d, v)     d times 16 bytes */
#ifndef SLUICE_KERNELS_DECODE_H
#define SLUICE_KERNELS_DECODE_H
#include "formats/grid.h"
#include "formats/quant.h"
#include "kernels/inline.h"
#include "kernels/set.h"

INLINE void grid_eights(int8_t *q, const uint64_t *grid, const grid_parts *p)
{
    for (int k = 0; k < BLOCK_K; k += WEIGHTS)
        store_weights(q + k, with_signs(entries_of_8(grid, p->index + k / 8), p->sign + k / 8));
}

INLINE void grid_deltas(int8_t *q, const uint64_t *grid, const grid_parts *p)
{
    for (int k = 0; k < BLOCK_K; k += WEIGHTS)
        store_weights(q + k, with_deltas(entries_of_8(grid, p->index + k / 8), p->delta + k / 8));
}

INLINE void grid_fours(int8_t *q, const uint32_t *grid, const grid_parts *p)
{
    for (int k = 0; k < BLOCK_K; k += WEIGHTS)
        store_weights(q + k, with_signs(entries_of_4(grid, p->index + k / 4), p->sign + k / 8));
}

#include "formats/parts.h"

void NAME(decode)(void *y, int32_t type, const uint8_t *x, int64_t n_block)
{
#define DECODE(number, NAME, name, ...) \
    case number: \
        for (int64_t b = 0; b < n_block; b++) \
            decode_##name((block_bytes_k *)y + b, (const block_##name *)x + b); \
        break;
#define TO_BF16(number, NAME, name, ...) \
    case number: \
        for (int64_t b = 0; b < n_block; b++) \
            decode_##name((uint16_t *)y + 64 * b, (const block_##name *)x + b); \
        break;
    switch (type) {
        TYPES_DECODED(DECODE)
        TYPES_TO_BF16(TO_BF16)
    }
#undef TO_BF16
#undef DECODE
}
#endif
