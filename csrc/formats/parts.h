/* parts.h - blocks of TYPES_DECODED as blocks of BYTES_K: where their bits are, and what they mean.
 *
 * One text for quant.c, whose rows must be those of the gguf package, and for kernels/decode.h,
 * which is compiled for each instruction set: loops over neighbouring bytes, which the compiler
 * makes vectors of. */
#ifndef SLUICE_FORMATS_PARTS_H
#define SLUICE_FORMATS_PARTS_H
#include <string.h>
#include "formats/quant.h"
#include "formats/types.h"
#include "kernels/inline.h"

enum { N_SCALE_K = BLOCK_K / GROUP_K };

/* ---- ternary weights ------------------------------------------------------------------------- */

/* Pairs of bits, shared by elements 32 apart. */
INLINE void decode_tq2_0(block_bytes_k *y, const block_tq2_0 *w)
{
    y->d = f16_to_f32(w->d);
    memset(y->sc, 1, sizeof y->sc);
    for (int i = 0; i < BLOCK_K; i += 128)
        for (int two = 0; two < 4; two++)
            for (int k = 0; k < 32; k++)
                y->q[i + 32 * two + k] = (int8_t)((w->q[i / 4 + k] >> 2 * two & 3) - 1);
}

/* Digit `at` of n bytes, each 256 / 243 times a number of five digits of base 3, rounded up: times
 * 3^at its first digits leave the byte; the next one is then its upper bits, times 3. */
INLINE void ternary_digits(int8_t *y, const uint8_t *x, int n, int at)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int k = 0; k < n; k++)
        y[k] = (int8_t)(((uint8_t)(x[k] * power[at]) * 3 >> 8) - 1);
}

/* Elements 32 apart share the first 32 bytes, 16 apart the next 16, 4 apart h. */
INLINE void decode_tq1_0(block_bytes_k *y, const block_tq1_0 *w)
{
    y->d = f16_to_f32(w->d);
    memset(y->sc, 1, sizeof y->sc);
    for (int at = 0; at < 5; at++) {
        ternary_digits(y->q + 32 * at, w->q, 32, at);
        ternary_digits(y->q + 160 + 16 * at, w->q + 32, 16, at);
    }
    for (int at = 0; at < 4; at++)
        ternary_digits(y->q + 240 + 4 * at, w->h, 4, at);
}
#endif
