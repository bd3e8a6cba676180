/* i8mm.c - products of several tokens on AArch64 with I8MM (SMMLA), otherwise as neon.c; the bits
 * of reference.c.
 *
 * neon_panel.c, compiled again.  One token and weights in F32, F16 or BF16 gain nothing from SMMLA.
 */
#ifdef __ARM_FEATURE_MATMUL_INT8
#define SET i8mm
#define WITH_SMMLA
#include "kernels/arm/neon_panel.c"

void matmul_i8mm(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    if (a->n_tok == 1 || type_block(a->type) == 1)
        matmul_neon(arg, begin, end, thread);
    else
        matmul_panels_i8mm(a, begin, end);
}
#endif
