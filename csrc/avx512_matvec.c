/* avx512_matvec.c - products of weights in small integers with one token, AVX-512 VNNI; the bits of reference.c.
 *
 * What counts here is memory: every weight is met once.  A thread reads its rows in the order of the file and asks for what comes 8 KB
 * later, which is two pages: the processor's own prefetcher begins anew in each, and what it then leaves undone is known by that time.  (On
 * Zen 5, one thread, against 4 streams a quarter of the rows apart that ask for 2 KB ahead: Q4_K 1.15 times, Q6_K 1.25 times as fast.)
 *
 * Weights stay as they lie, lanes are elements, in units of 256 of them.  Each row's exact sums are put aside: two lanes for each of 8
 * blocks of 32, or the lanes of the sum of a K-quant's block; and its scales, as halves.  Then the units of 16 rows are folded so that lane
 * = row, and the steps in f32 follow in the order of the reference. */
#ifdef __AVX512VNNI__
#include "avx512_rows_32.h"
#include "avx512_rows_256.h"

/* Rows begin ... end - 1, units u0 ... u0 + n - 1; y has what earlier units added. */
INLINE void stretch(room *r, const matmul_args *a, int64_t begin, int64_t end, int64_t u0, int64_t n, int32_t type)
{
    const int64_t at = u0 * (is_of_32(type) ? BLOCKS : 1), first = at * bytes_of_type(type); /* block, byte */
    if (is_of_32(type))
        take_32(r, a, u0, n, type);
    else if (is_of_k(type))
        take_k(r, a, u0, n);
    else if (!is_packed(type))
        memcpy(r->x, a->q + u0 * UNIT, n * UNIT);
    else
        for (int64_t u = 0; u < n; u++)
            take_packed(r->x[u], a->q + (u0 + u) * UNIT, type);
    for (int64_t row = begin; row < end; row += HALF) {
        const uint8_t *w[HALF];
        const __mmask16 valid = first_lanes(end - row);
        rows_from(w, HALF, a, row, end);
        for (int i = 0; i < HALF; i++)
            if (is_of_32(type))
                row_of_32(r, i, w[i] + first, n, type);
            else if (is_of_k(type))
                row_of_k(r, i, w[i] + first, n, type);
            else
                row_of_256(r, i, a, w[i] + first, at, n, type);
        const __m512 sum = u0 ? _mm512_maskz_loadu_ps(valid, a->y + row) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(a->y + row, valid, is_of_32(type) ? add_32(sum, r, a, at, n, type) : is_of_k(type) ? add_k(sum, r, a, at, n)
                                                                                                 : add_256(sum, r, a, at, n, type));
    }
}

void matvec_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    const int64_t units = a->n / UNIT;
    room r;
    for (int64_t u0 = 0; u0 < units; u0 += MOST) {
        const int64_t n = units - u0 < MOST ? units - u0 : MOST;
        switch (a->type) {
#define OF(type) case type: stretch(&r, a, begin, end, u0, n, type); break;
        OF(T_Q4_0) OF(T_Q4_1) OF(T_Q5_0) OF(T_Q5_1) OF(T_Q8_0) OF(T_IQ4_NL)
        OF(T_Q2_K) OF(T_Q3_K) OF(T_Q4_K) OF(T_Q5_K) OF(T_Q6_K) OF(T_IQ4_XS)
#undef OF
        }
    }
}
#endif
