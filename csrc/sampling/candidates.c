/* candidates.c - masses, thresholds and sums over candidates. A dense record of 262,144 takes about
 * 0.5 ms with a threshold of numbers, 1 ms with one of masses. */
#include "sampling/candidates.h"
#include <string.h>
#include "api/runtime.h"

#define DIGIT_BITS 11
#define MASS_BITS 42

/* 2^42 e^x for -30 <= x <= 0, rounded; 0 at -30. Taylor polynomial to r^11 (see math64.c), without
 * a branch or a call, so compilers vectorize it. */
static inline uint64_t mass(double x)
{
    const double rounder = 0x1.8p52;
    const double shifted = x * 0x1.71547652b82fep0 + rounder, k = shifted - rounder;
    const double r = (x - k * 0x1.62e42fefa38p-1) - k * 0x1.ef35793c7673p-45;
    double q = 1.0 / 39916800;
    q = q * r + 1.0 / 3628800;
    q = q * r + 1.0 / 362880;
    q = q * r + 1.0 / 40320;
    q = q * r + 1.0 / 5040;
    q = q * r + 1.0 / 720;
    q = q * r + 1.0 / 120;
    q = q * r + 1.0 / 24;
    q = q * r + 1.0 / 6;
    q = q * r + 0.5;
    q = q * r + 1;
    q = q * r + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, 8); /* its low bits are k */
    bits = (bits + 1023 + MASS_BITS) << 52;
    double scale, sum;
    memcpy(&scale, &bits, 8);
    sum = q * scale + 0x1p52; /* rounds to an integer, which then lies in the low bits */
    memcpy(&bits, &sum, 8);
    return bits & 0xfffffffffffff;
}

uint64_t masses(uint64_t *restrict m, const uint64_t *restrict key, int64_t n, float best,
                double heat)
{
    enum { CHUNK = 512 };
    double x[CHUNK]; /* in chunks: compilers vectorize the two loops, not one loop of both */
    uint64_t total = 0;
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t n_chunk = n - first < CHUNK ? n - first : CHUNK;
        for (int64_t i = 0; i < n_chunk; i++) {
            const double d = ((double)key_logit(key[first + i]) - best) * heat;
            x[i] = d > -30 ? d : -30;
        }
        for (int64_t i = 0; i < n_chunk; i++) {
            m[first + i] = mass(x[i]);
            total += m[first + i];
        }
    }
    return total;
}

uint64_t threshold(uint64_t *work, const uint64_t *key, const uint64_t *m, int64_t n,
                   uint64_t target)
{
    for (int shift = 64 - DIGIT_BITS;; shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0) {
        uint64_t sum[1 << DIGIT_BITS] = {0};
        const uint64_t mask = (1 << DIGIT_BITS) - 1;
        if (m)
            for (int64_t i = 0; i < n; i++)
                sum[key[i] >> shift & mask] += m[i];
        else
            for (int64_t i = 0; i < n; i++)
                sum[key[i] >> shift & mask]++;
        uint64_t digit = mask;
        while (sum[digit] < target)
            target -= sum[digit--];
        int64_t n_kept = 0; /* keys with this digit; the first round does not change key */
        for (int64_t i = 0; i < n; i++)
            if ((key[i] >> shift & mask) == digit) {
                if (m)
                    work[n + n_kept] = m[i];
                work[n_kept++] = key[i];
            }
        if (n_kept == 1)
            return work[0];
        if (m)
            memmove(work + n_kept, work + n, (size_t)n_kept * 8);
        key = work;
        m = m ? work + n_kept : m;
        n = n_kept;
    }
}

int64_t keep(uint64_t *key, int64_t n, uint64_t min)
{
    int64_t n_kept = 0;
    for (int64_t i = 0; i < n; i++) {
        key[n_kept] = key[i];
        n_kept += key[i] >= min;
    }
    return n_kept;
}

uint64_t best_of(const uint64_t *key, int64_t n)
{
    uint64_t best = 0;
    for (int64_t i = 0; i < n; i++)
        best = key[i] > best ? key[i] : best;
    return best;
}

int64_t find_token(const uint64_t *key, int64_t n, int32_t id)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (key_id(key[middle]) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && key_id(key[low]) == id ? low : -1;
}

double log_sum(uint64_t total) { return sluice_log((double)total * 0x1p-42); }

double mean_logit(const candidates *c, const uint64_t *m, uint64_t total, float best)
{
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++)
        sum += (double)m[i] * (((double)key_logit(c->key[i]) - best) * c->heat);
    return sum / (double)total;
}
