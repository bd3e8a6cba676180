/* reference_blocks.c - products with weights in blocks: the arithmetic, defined.
 *
 * The other half of reference.c: the bits of a product of a block type, which every fast
 * kernel must give.  The activations are int8 with one scale per 32 or 256 of them, as long
 * as the block of the weights; the rule by which they are rounded is quantize_q8_block in
 * reference.c.
 *
 * Blocks of 32: the sum of the products is exact, int8 times int8 in int32 cannot overflow
 * (32 * 128 * 127 < 2^19), so VPDPBUSD, TDPBSSD, SDOT or maddubs may add in any order.
 * Between blocks there is one f32 accumulator per output: blocks ascending, one product of the
 * two scales, one fma, and one more for the minimum of a type that has it.  A matrix-matrix
 * kernel whose lanes are outputs does that naturally, one multiply, convert and
 * fma per 16 outputs and block on AVX-512 or after a TDPBSSD of K = 32; a matrix-vector
 * kernel keeps the block sums of 16 rows and transposes.  More accumulators would
 * help neither, and a tree over blocks would cost the second kind a pass.
 *
 * Blocks of 256 (the K-quants, IQ4_XS): the activations have one scale per 256, so that the small
 * integer scales of the groups belong to the exact part: isum = sum(scale q x) and
 * msum = sum(min x) over the block, then as above one product of scales and one fma for isum, and
 * the same again for msum where the type has minima; that is an eighth of the steps in f32. Any
 * kernel's way to these integers is right: weights as stored, unsigned, with offset * sum(scale x)
 * subtracted afterwards, or with the offset subtracted at once; scale times q as one factor or two,
 * or as two digits.  No such sum, nor a part of it, leaves int32, whatever the bits: |scale q| is
 * at most 32 * 255 (IQ4_XS with 128 added), 128 * 63 (Q6_K, unsigned), 63 * 31 (Q5_K) or less, |x|
 * is 127, and 32 * 255 * 127 * 256 < 2^28.  msum: 63 * 127 * 256 < 2^21.  The sum of 16
 * activations: 16 * 127 < 2^15. */
#include <math.h>
#include "formats/quant.h"
#include "kernels/reference.h"

enum { BLOCK = 32 };

static inline int32_t dot_q8(const int8_t *x, const int8_t *y, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* y [token * n_row] += block b of a row of weights times that block of each token.  A minimum is
 * multiplied by the sum of the activations: s = d sum(q), made once per activation. */
static void add_block_32(float *y, const matmul_args *a, const unpacked_32 *w, int64_t b)
{
    for (int64_t t = 0; t < a->n_tok; t++, y += a->n_row) {
        const int64_t at = t * (a->n / BLOCK) + b;
        const int32_t isum = dot_q8(w->q, a->q + at * BLOCK, BLOCK);
        *y = fmaf(w->d * a->d[at], (float)isum, *y);
        if (has_min(a->type))
            *y = fmaf(w->m, a->s[at], *y);
    }
}

static void add_block_256(float *y, const matmul_args *a, const unpacked_256 *w, int64_t b)
{
    for (int64_t t = 0; t < a->n_tok; t++, y += a->n_row) {
        const int64_t at = t * (a->n / BLOCK_K) + b;
        const int8_t *q = a->q + at * BLOCK_K;
        const int16_t *sums = a->sums + at * (BLOCK_K / GROUP_K);
        int32_t isum = 0, msum = 0;
        for (int j = 0; j < BLOCK_K / GROUP_K; j++) {
            isum += w->scale[j] * dot_q8(w->q + j * GROUP_K, q + j * GROUP_K, GROUP_K);
            msum += w->min[j] * sums[j];
        }
        *y = fmaf(w->d * a->d[at], (float)isum, *y);
        if (has_min(a->type))
            *y = fmaf(-(w->m * a->d[at]), (float)msum, *y);
    }
}

void row_of_blocks(float *y, const matmul_args *a, const uint8_t *w)
{
    const int64_t block = type_block(a->type), bytes = type_row_bytes(a->type, block);
    for (int64_t t = 0; t < a->n_tok; t++)
        y[t * a->n_row] = 0;
    for (int64_t b = 0; b < a->n / block; b++, w += bytes)
        if (block == BLOCK) {
            unpacked_32 u;
            unpack_32(&u, a->type, w);
            add_block_32(y, a, &u, b);
        } else {
            unpacked_256 u;
            unpack_256(&u, a->type, w);
            add_block_256(y, a, &u, b);
        }
}
