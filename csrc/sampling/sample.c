/* sample.c - sample one token from one record of logits: top-k, top-p (nucleus), min-p,
 * temperature.
 *
 * The steps, in this order; each works on the candidates that the one before left:
 *   bias         l + b for the given tokens, rounded to f32; b = -infinity removes the token
 *   penalties    Keskar et al. 2019, arXiv:1909.05858, section 4.1, and the
 *                customary refinement: l / r where l > 0, l r elsewhere; then
 *                l - presence - count frequency; rounded to f32
 *   least        -l, if the least likely tokens are preferred
 *   top-k        the k best; Fan et al. 2018, arXiv:1805.04833, section 5.4
 *   top-p        the smallest set of best tokens with mass p or more; Holtzman et al. 2019,
 *                arXiv:1904.09751, section 3.1
 *   min-p        tokens with at least min_p times the probability of the best;
 *                Nguyen et al. 2024, arXiv:2407.01082
 *   temperature  one sample from e^(l / t); t = 0: the best (greedy)
 * A better token has a larger logit, or an equal one and a lower token ID.
 *
 * A candidate is a u64 key: the bits of the logit, mapped to order like an integer, above the
 * inverted token ID. So one comparison tells the better token, there are no ties, and each step is
 * a threshold. The mass of a candidate is an integer, too: 2^42 e^(l - best), rounded. Integer sums
 * are exact in any order, so the result depends on the logits alone; sums of 2^21 masses fit 63
 * bits. Mass below 2^-43 of the best token's is lost.
 *
 * Nothing is sorted: a radix selection finds the threshold digit by digit. A dense record of
 * 262,144 takes about 0.5 ms with top-k, 1 ms with the mass of all. */
#include <string.h>
#include "api/runtime.h"
#include "api/sampling.h"
#include "runtime/float_bits.h"

#define DIGIT_BITS 11
#define MASS_BITS 42

static inline uint32_t ordered(float l)
{
    const uint32_t u = f32_bits(l + 0.0f);
    return u ^ ((uint32_t)-(int32_t)(u >> 31) | 0x80000000u);
}
static inline float unordered(uint32_t u)
{
    return bits_f32(u ^ ((uint32_t)-(int32_t)(~u >> 31) | 0x80000000u));
}
static inline uint64_t key_of(float l, uint32_t id)
{
    return (uint64_t)ordered(l) << 32 | (uint32_t)~id;
}
static inline float key_logit(uint64_t key) { return unordered((uint32_t)(key >> 32)); }
static inline int32_t key_id(uint64_t key) { return (int32_t)~(uint32_t)key; }

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

/* m[i] = mass of key[i] at inverse temperature `heat`. Returns the sum. */
static uint64_t masses(uint64_t *restrict m, const uint64_t *restrict key, int64_t n, float best,
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

/* The largest threshold such that the keys from it up have mass `target` or more; m NULL: mass 1
 * each. work: u64 [2n]. */
static uint64_t threshold(uint64_t *work, const uint64_t *key, const uint64_t *m, int64_t n,
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

/* Keeps the keys from `min` up, in order. Returns their number. */
static int64_t keep(uint64_t *key, int64_t n, uint64_t min)
{
    int64_t n_kept = 0;
    for (int64_t i = 0; i < n; i++) {
        key[n_kept] = key[i];
        n_kept += key[i] >= min;
    }
    return n_kept;
}

static uint64_t best_of(const uint64_t *key, int64_t n)
{
    uint64_t best = 0;
    for (int64_t i = 0; i < n; i++)
        best = key[i] > best ? key[i] : best;
    return best;
}

/* The index of token `id` among keys of ascending tokens, or -1. */
static int64_t find(const uint64_t *key, int64_t n, int32_t id)
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

/* `key` with logit l, limited to finite f32. */
static inline uint64_t with_logit(uint64_t key, double l)
{
    const double limit = 0x1.fffffep127; /* the largest f32 */
    return key_of((float)(l > limit ? limit : l < -limit ? -limit : l), (uint32_t)key_id(key));
}

static void add_biases(uint64_t *key, int64_t n, const sample_options *o)
{
    for (int32_t i = 0; i < o->n_bias; i++) {
        const int64_t at = find(key, n, o->bias_id[i]);
        if (at >= 0)
            key[at] = with_logit(key[at], key_logit(key[at]) + o->bias[i]);
    }
}

/* Removes the tokens with a bias of -infinity, in order. Returns the number of the others. */
static int64_t remove_banned(uint64_t *key, int64_t n, const sample_options *o)
{
    int64_t n_kept = 0;
    for (int64_t i = 0, b = 0; i < n; i++) {
        while (b < o->n_bias && o->bias_id[b] < key_id(key[i]))
            b++;
        key[n_kept] = key[i];
        const int here = b < o->n_bias && o->bias_id[b] == key_id(key[i]);
        n_kept += !(here && o->bias[b] < -0x1.fffffffffffffp1023);
    }
    return n_kept;
}

static void penalize(uint64_t *key, int64_t n, const int32_t *seen, int32_t n_seen,
                     const sample_options *o)
{
    for (int32_t i = 0; i < n_seen; i++) {
        const int64_t at = find(key, n, seen[2 * i]);
        if (at < 0)
            continue;
        double l = key_logit(key[at]);
        l = l > 0 ? l / o->repeat : l * o->repeat;
        l -= o->presence + seen[2 * i + 1] * o->frequency;
        key[at] = with_logit(key[at], l);
    }
}

static int64_t truncate(uint64_t *key, uint64_t *work, int64_t n, float best,
                        const sample_options *o)
{
    if (o->top_k > 0 && o->top_k < n)
        n = keep(key, n, threshold(work, key, NULL, n, (uint64_t)o->top_k));
    if (o->top_p < 1) {
        uint64_t *m = work + 2 * n;
        const uint64_t total = masses(m, key, n, best, 1);
        const double wanted = o->top_p * (double)total;
        uint64_t target = (uint64_t)wanted;
        target += (double)target < wanted || target == 0;
        n = keep(key, n, threshold(work, key, m, n, target < total ? target : total));
    }
    if (o->min_p > 0) {
        const double min = best + sluice_log(o->min_p);
        if (min > -0x1.fffffep127) {
            float l = (float)min; /* the first f32 from `min` up */
            if (l < min)
                l = unordered(ordered(l) + 1);
            n = keep(key, n, (uint64_t)ordered(l) << 32);
        }
    }
    return n;
}

int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload,
                    const int32_t *seen, int64_t n, int32_t dense, int32_t n_seen,
                    const sample_options *options, uint64_t random)
{
    uint64_t *key = work, *rest = work + n;
    const float *logit = payload;
    const int32_t *pair = payload;
    uint32_t not_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const float l = dense ? logit[i] : logit[2 * i + 1];
        key[i] = key_of(l, dense ? (uint32_t)i : (uint32_t)pair[2 * i]);
        not_finite |= (f32_bits(l) & 0x7f800000) == 0x7f800000;
    }
    for (int64_t i = 0; not_finite && i < n; i++)
        if ((f32_bits(dense ? logit[i] : logit[2 * i + 1]) & 0x7f800000) == 0x7f800000) {
            *id = dense ? (int32_t)i : pair[2 * i];
            return -1;
        }

    double log_total = 0; /* ln sum e^l of the unchanged logits */
    if (log_p) {
        const float raw_best = key_logit(best_of(key, n));
        log_total = raw_best + sluice_log((double)masses(rest, key, n, raw_best, 1) * 0x1p-42);
    }
    n = remove_banned(key, n, options);
    if (n == 0)
        return -2;
    add_biases(key, n, options);
    penalize(key, n, seen, n_seen, options);
    if (options->least)
        for (int64_t i = 0; i < n; i++)
            key[i] = with_logit(key[i], -key_logit(key[i]));
    const uint64_t best = best_of(key, n);
    const double heat = 1 / options->temperature;
    int32_t chosen = key_id(best);
    if (heat <= 1e30) {
        const int64_t n_kept = truncate(key, rest, n, key_logit(best), options);
        const uint64_t total = masses(rest, key, n_kept, key_logit(best), heat);
        /* One of `total` units, uniform to within 2^-64 (Lemire 2019, arXiv:1805.10941, without
         * rejection). */
        uint64_t unit = (uint64_t)((unsigned __int128)random * total >> 64);
        int64_t i = 0;
        while (unit >= rest[i])
            unit -= rest[i++];
        chosen = key_id(key[i]);
    }
    *id = chosen;
    if (log_p) {
        int64_t low = chosen;
        if (!dense) /* tokens ascend */
            for (low = 0; pair[2 * low] != chosen;)
                low++;
        *log_p = (double)(dense ? logit[low] : logit[2 * low + 1]) - log_total;
    }
    return 0;
}
