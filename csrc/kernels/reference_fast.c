/* reference_fast.c - products of --arithmetic fast with F32, F16 and BF16 weights: the arithmetic,
 * defined.
 *
 * Every number is a sum of three of bf16, v = v1 + v2 + v3, each the nearest to what the ones
 * before it leave: 24 bits, so nothing is lost, but below 2^-126.  Of the products of terms wi xj
 * those with i + j <= 4 are made, six for F32 weights, five for F16, which are two terms, and three
 * for BF16, which are one.  What is left out, w2 x3 + w3 x2 + w3 x3, is less than 2^-24 |w x|.  A
 * product with terms that are zero changes no bit, so it may be left out, too, and the same weights
 * give the same bits in every type that holds them.
 *
 * The order is that of TDPBF16PS (Intel SDM 2, under that name), which has no other: 32 elements
 * are a step; in it the even elements are a chain of 16 fma from 0 and the odd ones another; their
 * sum is added to the sum so far.  All of these round to nearest even, and what is below 2^-126
 * counts as 0, before and after.  Steps ascend, within one the products go by the list below; after
 * each KC block of 256 elements the sum is added to y, in f32 as everywhere, and begins anew at 0.
 *
 * The error: with u = 2^-24 and S = sum |w x|, the six products of a KC block are 16 + 1 + 48
 * roundings of partial sums, the KC blocks one each, and what was left out one more:
 *
 *     |y - exact| <= 1.02 u (66 + n / 256) S + 2^-126 (7 n + 3 sum |w| + 3 sum |x|)
 *
 * (three products: 42 + n / 256), where the sum in 16 lanes of reference.c has u (n / 16 + 4) S; as
 * errors are random, both stay far below; measured, this one is 1.0 to 1.4 times that one at n =
 * 256, 0.5 to 0.65 at n = 2,048.  tests/kernels/test_fast.py has both. An activation that is
 * infinite, NaN or beyond what bf16 holds (3.39e38) makes every output of its token NaN; such a
 * weight makes the outputs of its row NaN, or infinite. */
#include <math.h>
#include "api/runtime.h"
#include "formats/quant.h"
#include "kernels/fast.h"
#include "runtime/float_bits.h"

enum { TERMS = 3, N_PRODUCT = 6 };
static const struct {
    int w, x;
} order[N_PRODUCT] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};

/* The nearest bf16, ties to even; 0 for what is below the smallest normal number. */
static float nearest_bf16(float v)
{
    const uint32_t u = f32_bits(v), size = u & 0x7fffffff;
    if (size < 0x00800000)
        return bits_f32(u & 0x80000000);
    if (size > 0x7f800000)
        return NAN;
    return bits_f32((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000);
}

/* a b + c, 0 where that is below 2^-126 after rounding to 24 bits: where it may be, with factors
 * and sum so much larger that it is normal. */
static float fma_or_zero(float a, float b, float c)
{
    const float r = fmaf(a, b, c);
    if (!(fabsf(r) <= 0x1p-125f) || fabsf(c) > 0x1p-60f || a == 0 || b == 0)
        return r;
    const float s = fmaf(a * 0x1p32f, b * 0x1p32f, c * 0x1p64f);
    return fabsf(s) < 0x1p-62f ? copysignf(0.0f, s) : s * 0x1p-64f;
}

static float add_or_zero(float a, float b) /* exact below 2^-126 */
{
    const float r = a + b;
    return fabsf(r) < 0x1p-126f ? copysignf(0.0f, r) : r;
}

/* What TDPBF16PS does to one sum. */
static float add_step(float sum, const float w[FAST_STEP], const float x[FAST_STEP])
{
    float even = 0, odd = 0;
    for (int k = 0; k < FAST_STEP; k += 2) {
        even = fma_or_zero(w[k], x[k], even);
        odd = fma_or_zero(w[k + 1], x[k + 1], odd);
    }
    return add_or_zero(sum, add_or_zero(even, odd));
}

/* Elements k ... of v, at most 32, then zeros, as terms; n_term: those that the type has. */
static void split(float term[TERMS][FAST_STEP], int32_t type, const void *v, int64_t k, int64_t n)
{
    const int n_term = type == T_F32 ? 3 : type == T_F16 ? 2 : 1;
    for (int i = 0; i < FAST_STEP; i++) {
        float left = 0;
        if (k + i < n)
            dequantize_row(&left, type, (const uint8_t *)v + (k + i) * (type == T_F32 ? 4 : 2), 1);
        for (int j = 0; j < TERMS; j++) {
            term[j][i] = j < n_term ? nearest_bf16(left) : 0;
            left -= term[j][i];
        }
    }
}

static float dot_fast(int32_t type, const void *w, const float *x, int64_t n)
{
    const int n_term = type == T_F32 ? 3 : type == T_F16 ? 2 : 1;
    float y = 0;
    for (int64_t first = 0; first < n; first += FAST_KC) {
        float sum = 0, of_w[TERMS][FAST_STEP], of_x[TERMS][FAST_STEP];
        for (int64_t k = first; k < n && k < first + FAST_KC; k += FAST_STEP) {
            split(of_w, type, w, k, n);
            split(of_x, T_F32, x, k, n);
            for (int i = 0; i < N_PRODUCT; i++)
                if (order[i].w < n_term)
                    sum = add_step(sum, of_w[order[i].w], of_x[order[i].x]);
        }
        y = y + sum;
    }
    return y;
}

void split_reference(const void *arg, int64_t begin, int64_t end,
                     int32_t thread) /* the product splits x itself */
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

void matmul_fast_reference(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        for (int64_t t = 0; t < a->n_tok; t++)
            a->y[t * a->n_row + row] = dot_fast(
                a->type, (const uint8_t *)a->w + (a->rows ? a->rows[row] : row) * row_bytes,
                a->x + t * a->n, a->n);
}
