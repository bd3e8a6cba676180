/* math64.c - exp, log, sin and cos in f64 with the same bits on every machine.
 *
 *   exp   x = k ln 2 + r, |r| <= ln 2 / 2; Taylor polynomial of e^r to r^13
 *   log   x = 2^k m, sqrt(1/2) <= m < sqrt(2); with f = m - 1, s = f / (2 + f):
 *         log m = 2 atanh s = f - (f^2/2 - s (f^2/2 + R)), R = 2 s^2/3 + ... + 2 s^20/21
 *   sin,  x = k pi/2 + r, |r| <= pi/4, r as a sum of two doubles; Taylor
 *   cos   polynomials to r^17 and r^16
 *
 * Argument reduction: Cody & Waite 1980, "Software Manual for the Elementary Functions". The
 * constants have so few bits that k times each of them is exact.
 *
 * Only + - * / of IEEE doubles and bit operations, in the order written, because the functions of
 * libm differ between C libraries and versions. The coefficients are those of Taylor, not a minimax
 * fit, so they can be verified by hand; the omitted terms are below 2^-57 of the result.
 *
 * Error, measured against 200 bits in tests/kernels/test_math64.py: below 1 ulp
 * (sin and cos: for |x| <= 2^23 = 8,388,608; beyond, both are NaN). */
#include "api/runtime.h"
#include "runtime/exp64.h"
#include "runtime/float_bits.h"

double sluice_exp(double x)
{
    if (x != x)
        return x;
    if (x > 709.79)
        return bits_f64(0x7ff0000000000000);
    if (x < -745.14)
        return 0;
    double shifted;
    const double y = exp_of_rest(x, &shifted), k = shifted - ROUNDER;
    /* Two steps of 2^(k/2), so that neither factor is out of range. */
    const int64_t n = (int64_t)k, half = n / 2;
    return y * bits_f64((uint64_t)(1023 + half) << 52)
        * bits_f64((uint64_t)(1023 + n - half) << 52);
}

double sluice_log(double x)
{
    const double infinity = bits_f64(0x7ff0000000000000);
    if (x != x || x == infinity)
        return x;
    if (x <= 0)
        return x == 0 ? -infinity : bits_f64(0x7ff8000000000000);
    int64_t k = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        k = -54;
    }
    /* The bits of sqrt(1/2) are the border between one k and the next. */
    const uint64_t border = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000;
    const uint64_t u = f64_bits(x) + (one - border);
    k += (int64_t)(u >> 52) - 1023;
    const double f = bits_f64((u & 0xfffffffffffff) + border) - 1;
    const double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double p = 2.0 / 21;
    p = p * z + 2.0 / 19;
    p = p * z + 2.0 / 17;
    p = p * z + 2.0 / 15;
    p = p * z + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    const double rest = s * (half + p * z) + (double)k * LN2_LOW;
    return (double)k * LN2_HIGH - ((half - rest) - f);
}

/* pi/2 in parts of 30, 30, 30 and 53 bits: k below 2^23 times one of the first three is exact. */
static const double HALF_PI[4] = {0x1.921fb54p0, 0x1.10b46118p-30, 0x1.313198ap-61,
                                  0x1.701b839a25205p-92};

/* a - b as high + low, exactly (Knuth 1969, The Art of Computer Programming 2, theorem 4.2.2C). */
static inline double subtract(double *low, double a, double b)
{
    const double high = a - b, part = a - high;
    *low = (a - (high + part)) + (part - b);
    return high;
}

void sluice_sincos(double *s, double *c, double x)
{
    if (!(x >= -0x1p23 && x <= 0x1p23)) {
        *s = *c = bits_f64(0x7ff8000000000000);
        return;
    }
    const double shifted = x * 0x1.45f306dc9c883p-1 + ROUNDER, k = shifted - ROUNDER;
    double low1, low2, low;
    double r = x - k * HALF_PI[0]; /* exact: both are near, or k is 0 */
    r = subtract(&low1, r, k * HALF_PI[1]);
    r = subtract(&low2, r, k * HALF_PI[2]);
    low = (low1 + low2) - k * HALF_PI[3];
    const double high = r + low;
    low = (r - high) + low;
    r = high;

    const double z = r * r;
    double p = 1.0 / 355687428096000;
    p = p * z - 1.0 / 1307674368000;
    p = p * z + 1.0 / 6227020800;
    p = p * z - 1.0 / 39916800;
    p = p * z + 1.0 / 362880;
    p = p * z - 1.0 / 5040;
    p = p * z + 1.0 / 120;
    p = p * z - 1.0 / 6;
    const double sine = r + (r * z * p + low * (1 - 0.5 * z));
    double q = 1.0 / 20922789888000;
    q = q * z - 1.0 / 87178291200;
    q = q * z + 1.0 / 479001600;
    q = q * z - 1.0 / 3628800;
    q = q * z + 1.0 / 40320;
    q = q * z - 1.0 / 720;
    q = q * z + 1.0 / 24;
    const double half = 0.5 * z, w = 1 - half;
    const double cosine = w + (((1 - w) - half) + (z * z * q - r * low));

    switch ((int)((int64_t)k & 3)) {
    case 0:
        *s = sine;
        *c = cosine;
        break;
    case 1:
        *s = cosine;
        *c = -sine;
        break;
    case 2:
        *s = -sine;
        *c = -cosine;
        break;
    default:
        *s = -cosine;
        *c = sine;
        break;
    }
}
