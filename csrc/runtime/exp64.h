/* exp64.h - the core of exp in f64, shared by math64.c and score.c: exp_of_rest returns 2^-k e^x,
 * with k in the low bits of *shifted. The algorithm is described in math64.c. */
#ifndef SLUICE_EXP64_H
#define SLUICE_EXP64_H
#include <stdint.h>
#include <string.h>

static inline uint64_t f64_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}
static inline double bits_f64(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* x + ROUNDER rounds |x| < 2^51 to an integer, in the low bits of the sum. */
#define ROUNDER 0x1.8p52

static const double LN2_HIGH = 0x1.62e42fefa38p-1, LN2_LOW = 0x1.ef35793c7673p-45;

static inline double exp_of_rest(double x, double *shifted)
{
    *shifted = x * 0x1.71547652b82fep0 + ROUNDER;
    const double k = *shifted - ROUNDER, high = x - k * LN2_HIGH, low = k * LN2_LOW;
    const double r = high - low, rest = (high - r) - low;
    double q = 1.0 / 6227020800;
    q = q * r + 1.0 / 479001600;
    q = q * r + 1.0 / 39916800;
    q = q * r + 1.0 / 3628800;
    q = q * r + 1.0 / 362880;
    q = q * r + 1.0 / 40320;
    q = q * r + 1.0 / 5040;
    q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120;
    q = q * r + 1.0 / 24;
    q = q * r + 1.0 / 6;
    q = q * r + 0.5;
    return 1 + (r + (r * r * q + rest));
}
#endif
