/* nonfinite.c - infinities and NaNs among f32. */
#include <math.h>
#include "api/runtime.h"
#include "runtime/float_bits.h"

/* Without an end in the middle, so that it becomes vectors: 262,144 logits are looked at for every
 * token. */
static int has_nonfinite(const float *x, int64_t n)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++)
        any |= (f32_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return any != 0;
}

int64_t first_nonfinite(const float *x, int64_t n)
{
    enum { STEP = 256 };
    int64_t i = 0;
    while (i + STEP <= n && !has_nonfinite(x + i, STEP))
        i += STEP;
    for (; i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return -1;
}
