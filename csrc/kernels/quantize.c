/* quantize.c - activations in int8, for weights in blocks: by the chosen instruction set, over the
 * threads. */
#include <stddef.h>
#include "kernels/arguments.h"
#include "kernels/grain.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

void quantize_q8(int8_t *q, float *d, float *s, const float *x, int32_t n_tok, int32_t n)
{
    const quantize_args a = {q, d, s, NULL, x, n};
    parallel(best_isa()->quantize, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

void quantize_q8_k(int8_t *q, float *d, int16_t *sums, const float *x, int32_t n_tok, int32_t n)
{
    const quantize_args a = {q, d, NULL, sums, x, n};
    parallel(best_isa()->quantize_k, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}
