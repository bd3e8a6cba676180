/* neon.c - AArch64 with SDOT (FEAT_DotProd), and the table of the set that has SMMLA beside it; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set: the compiler
 * may vectorise it as it likes, since no order of rounding is left open there. By
 * hand: attention here, matrix products in neon_matmul.c, neon_panel.c and i8mm.c. */
#ifdef __ARM_FEATURE_DOTPROD
#include "neon.h"
#define NAME(f) f##_neon
#include "reference.c"

static void attention_neon(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    isa_reference.attention(arg, begin, end, thread);
}

const isa isa_neon = {
    "neon", 128, matmul_neon, quantize_neon, quantize_k_neon, rmsnorm_neon, rope_neon, attention_neon, silu_mul_neon, gelu_mul_neon,
    cache_store_neon,
};
const isa isa_i8mm = { /* products of several tokens are its own */
    "i8mm", 128, matmul_i8mm, quantize_neon, quantize_k_neon, rmsnorm_neon, rope_neon, attention_neon, silu_mul_neon, gelu_mul_neon,
    cache_store_neon,
};
#endif
