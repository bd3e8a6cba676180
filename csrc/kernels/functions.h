/* functions.h - exp, tanh, SiLU and GELU of one f32: part of the definition in reference.c, in
 * vectors where the compiler makes them. */
#ifndef SLUICE_FUNCTIONS_H
#define SLUICE_FUNCTIONS_H
#include <math.h>
#include "runtime/float_bits.h"

/* Of exp_f32: log2 e, - ln 2 in two parts, and the polynomial from its highest term on. */
#define exp_log2e 0x1.715476p0f
static const float exp_ln2[2] = {-0x1.62e4p-1f, -0x1.7f7d1cp-20f};
static const float exp_term[5] = {0x1.6a23d0p-10f, 0x1.123a20p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                  0x1.fffffcp-2f};

/* The nearest integer, ties to even, for |x| < 2^22: the f32 adder rounds at bit 1. */
static inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* exp: x = n ln 2 + r, |r| <= ln 2 / 2;  e^r = 1 + r + r^2 P(r), P of degree 4 fitted for
 * the smallest relative error (3e-9, below the rounding of f32).  ln 2 is subtracted in two parts.
 * 0 below -87, infinity above 88.72; within them the result is normal. */
static inline float exp_less_1(float r) /* r + r^2 P(r) */
{
    float p = exp_term[0];
    p = fmaf(p, r, exp_term[1]); /* no loop: the compiler would not make vectors of the caller's */
    p = fmaf(p, r, exp_term[2]);
    p = fmaf(p, r, exp_term[3]);
    p = fmaf(p, r, exp_term[4]);
    return fmaf(p, r * r, r);
}

static inline float exp_f32(float x)
{
    const float c = x < -87.0f ? -87.0f : x > 88.72f ? 88.72f : x; /* NaN passes */
    const float n = nearest(c * exp_log2e);
    const float r = fmaf(n, exp_ln2[1], fmaf(n, exp_ln2[0], c));
    const float p = exp_less_1(r) + 1.0f;
    /* n as an integer is in the low bits of n + 1.5 * 2^23; moved into the exponent it multiplies
     * by 2^n */
    const float y = bits_f32(f32_bits(p) + (f32_bits(n + 0x1.8p23f) << 23));
    const float z = x < -87.0f ? 0.0f : y, e = x > 88.72f ? INFINITY : z;
    return x == x ? e : x;
}

/* x / (1 + exp(-z)): the sigmoid gate of SiLU (Shazeer 2020, arXiv:2002.05202) with z = x, and of
 * the tanh form of GELU (Hendrycks & Gimpel 2016, arXiv:1606.08415), as (1 + tanh(z/2)) / 2 = 1 /
 * (1 + exp(-z)). */
static inline float gate_f32(float x, float z) { return x / (1.0f + exp_f32(-z)); }

/* tanh |x| = e / (e + 2), e = exp(2 |x|) - 1 = 2^n (e^r - 1) + (2^n - 1), so that nothing is lost
 * where x is small; 1 in f32 from |x| = 9.02 on.  Error below 3 ulp.  NaN of what is not finite:
 * damage must not be squashed into an answer. */
static inline float tanh_f32(float x)
{
    const float size = bits_f32(f32_bits(x) & 0x7fffffff), c = size > 20.0f ? 40.0f : size + size;
    const float n = nearest(c * exp_log2e);
    const float r = fmaf(n, exp_ln2[1], fmaf(n, exp_ln2[0], c));
    const float two_n = bits_f32((f32_bits(n + 0x1.8p23f) << 23) + 0x3f800000);
    const float e = fmaf(two_n, exp_less_1(r), two_n - 1.0f);
    const float y = bits_f32(f32_bits(e / (e + 2.0f)) | (f32_bits(x) & 0x80000000));
    return x - x == 0.0f ? y : NAN;
}

/* x [n] = cap tanh(x / cap): Bello et al. 2016, arXiv:1611.09940, appendix A.1 (logits); Gemma 2,
 * arXiv:2408.00118, section 2. */
static inline void cap_all(float *x, int64_t n, float cap)
{
    const float inverse = 1.0f / cap;
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * tanh_f32(x[i] * inverse);
}
#endif
