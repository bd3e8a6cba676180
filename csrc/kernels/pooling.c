/* pooling.c - from the hidden states of a text to its vector, and the cosine of two.
 *
 * Sums are in f64, term by term in ascending order, so no bit depends on how a text was cut into
 * pieces, and no instruction set has a form of its own: this file is the definition. A product of
 * two f32 is exact in f64. */
#include <math.h>
#include "api/kernels.h"

void pool_add(double *sum, const float *x, int32_t n_row, int32_t n)
{
    for (int64_t t = 0; t < n_row; t++)
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)x[t * n + i];
}

void pool_mean(float *y, const double *sum, int64_t n_row, int32_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(sum[i] / (double)n_row);
}

double dot_f64(const float *a, const float *b, int32_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

double to_unit_length(float *x, int32_t n)
{
    const double length = sqrt(dot_f64(x, x, n));
    if (length > 0)
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)((double)x[i] / length);
    return length;
}
