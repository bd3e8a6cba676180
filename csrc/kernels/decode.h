/* decode.h - rows of TYPES_DECODED as blocks of BYTES_K, for an instruction set. The bits are those
 * of quant.c; decoded.c calls it. x86/avx2_decode.c, x86/avx512_decode.c and arm/neon_decode.c
 * include it. */
#ifndef SLUICE_KERNELS_DECODE_H
#define SLUICE_KERNELS_DECODE_H
#include "formats/parts.h"
#include "kernels/set.h"

void NAME(decode)(block_bytes_k *y, int32_t type, const uint8_t *x, int64_t n_block)
{
#define DECODE(number, NAME, name, ...) \
    case number: \
        for (int64_t b = 0; b < n_block; b++) \
            decode_##name(y + b, (const block_##name *)x + b); \
        break;
    switch (type) {
        TYPES_DECODED(DECODE)
    }
#undef DECODE
}
#endif
