/* nonfinite.c - find infinities and NaNs in an f32 array. */
#include <math.h>
#include "api/runtime.h"
#include "runtime/float_bits.h"

/* Without an early exit, so the compiler vectorizes it: each token checks up to 262,144 logits. */
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
