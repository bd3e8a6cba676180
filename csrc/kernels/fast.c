/* fast.c - the arithmetic of `--arithmetic fast`: on the set that has tiles of bf16, and by its
 * definition. */
#include <stddef.h>
#include "kernels/fast.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

const fast_products *best_fast(void)
{
    static const fast_products by_definition = {&isa_reference, split_reference,
                                                matmul_fast_reference};
#if defined(__x86_64__)
    static const fast_products on_tiles = {&isa_amx, split_amx, matmul_fast_amx};
    if (best_isa() == &isa_amx && has_amx_bf16())
        return &on_tiles;
#endif
    return best_isa() == &isa_reference ? &by_definition : NULL;
}

int32_t fast_supported(void) { return best_fast() != NULL; }

/* 3 terms, whole sets of 16 tokens (or fewer than one), whole steps; sums of each thread, pairs of
 * sets; the rest to begin at a line of the cache. */
int64_t terms_size(int32_t n_tok, int32_t n)
{
    const int64_t tokens = n_tok < 16 ? n_tok : ((int64_t)n_tok + 15) / 16 * 16,
                  n_step = ((int64_t)n + FAST_STEP - 1) / FAST_STEP;
    const int64_t together = n_tok < FAST_TOKENS ? ((int64_t)n_tok + 31) / 32 * 32 : FAST_TOKENS;
    return 3 * tokens * n_step * FAST_STEP + 2 * threads_count() * FAST_ROWS * together + 32;
}

void split_bf16(uint16_t *terms, const float *x, int32_t n_tok, int32_t n)
{
    const split_args a = {terms, x, n_tok, n};
    parallel(best_fast()->split, &a, ((int64_t)n_tok + 15) / 16, 1);
}
