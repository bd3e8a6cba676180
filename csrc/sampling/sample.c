/* sample.c - one record of logits to one id.
 *
 * The chain, in this order; each step works on what the one before left:
 *   bias         l + b for ids that are named; rounded to f32; without those of b = -infinity
 *   penalties    Keskar et al. 2019, arXiv:1909.05858, section 4.1, and the
 *                customary refinement: l / r where l > 0, l r elsewhere; then
 *                l - presence - count frequency; rounded to f32
 *   least        -l, where the least likely are asked for
 *   top-k        the k best; Fan et al. 2018, arXiv:1805.04833, section 5.4
 *   top-p        the fewest best that hold p of the mass; Holtzman et al. 2019,
 *                arXiv:1904.09751, section 3.1
 *   min-p        those with at least min_p times the probability of the best;
 *                Nguyen et al. 2024, arXiv:2407.01082
 *   temperature  e^(l / t), then one draw; t = 0: the best
 * Better is a larger logit, then a lower id.
 *
 * A candidate is one u64, its key: the logit's bits, made to order like an
 * integer, above the inverted id.  So "better" is one comparison, there are no
 * ties, and every step is a threshold.  A candidate's mass is an integer too:
 * 2^42 e^(l - best), rounded.  Integer sums are exact in any order, hence the
 * result depends on nothing but the numbers; 2^21 of them fit 63 bits.  What is
 * lost is mass below 2^-43 of the best's.
 *
 * Nothing is sorted: the threshold is found digit by digit.  Dense records of
 * 262,144 cost about 0.5 ms with top-k, 1 ms with the mass of all. */
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

/* 2^42 e^x, -30 <= x <= 0, rounded; 0 at -30.  Taylor's polynomial to r^11 (see
 * math64.c), without a branch or a call, so that compilers do several at once. */
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

/* m[i] = mass of key[i] at 1/t = heat; their sum. */
static uint64_t masses(uint64_t *restrict m, const uint64_t *restrict key, int64_t n, float best,
                       double heat)
{
    enum { PIECE = 512 };
    double x[PIECE]; /* in pieces, because compilers vectorise the two loops and not their union */
    uint64_t total = 0;
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t n_piece = n - first < PIECE ? n - first : PIECE;
        for (int64_t i = 0; i < n_piece; i++) {
            const double d = ((double)key_logit(key[first + i]) - best) * heat;
            x[i] = d > -30 ? d : -30;
        }
        for (int64_t i = 0; i < n_piece; i++) {
            m[first + i] = mass(x[i]);
            total += m[first + i];
        }
    }
    return total;
}

/* The largest threshold such that the keys from it up have `target` mass, 1 each where m is null.
 * work: u64 [2n]. */
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
        int64_t n_kept = 0; /* of this digit; the first round leaves key as it is */
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

/* Keep the keys from `least` up, in their order; how many. */
static int64_t keep(uint64_t *key, int64_t n, uint64_t least)
{
    int64_t n_kept = 0;
    for (int64_t i = 0; i < n; i++) {
        key[n_kept] = key[i];
        n_kept += key[i] >= least;
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

/* The place of `id` among keys of ascending ids, or -1. */
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

/* `l` as a key of the id of `key`, within what f32 holds. */
static inline uint64_t with_logit(uint64_t key, double l)
{
    const double limit = 0x1.fffffep127; /* the largest f32 */
    return key_of((float)(l > limit ? limit : l < -limit ? -limit : l), (uint32_t)key_id(key));
}

static void favour(uint64_t *key, int64_t n, const sample_options *o)
{
    for (int32_t i = 0; i < o->n_bias; i++) {
        const int64_t at = find(key, n, o->bias_id[i]);
        if (at >= 0)
            key[at] = with_logit(key[at], key_logit(key[at]) + o->bias[i]);
    }
}

/* Without those whose bias is -infinity, in their order; how many. */
static int64_t ban(uint64_t *key, int64_t n, const sample_options *o)
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

static void penalise(uint64_t *key, int64_t n, const int32_t *seen, int32_t n_seen,
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
        const double least = best + sluice_log(o->min_p);
        if (least > -0x1.fffffep127) {
            float l = (float)least; /* the first f32 from `least` up */
            if (l < least)
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

    double log_total = 0; /* of the raw logits: ln sum e^l */
    if (log_p) {
        const float raw_best = key_logit(best_of(key, n));
        log_total = raw_best + sluice_log((double)masses(rest, key, n, raw_best, 1) * 0x1p-42);
    }
    n = ban(key, n, options);
    if (n == 0)
        return -2;
    favour(key, n, options);
    penalise(key, n, seen, n_seen, options);
    if (options->least)
        for (int64_t i = 0; i < n; i++)
            key[i] = with_logit(key[i], -key_logit(key[i]));
    const uint64_t best = best_of(key, n);
    const double heat = 1 / options->temperature;
    int32_t chosen = key_id(best);
    if (heat <= 1e30) {
        const int64_t n_kept = truncate(key, rest, n, key_logit(best), options);
        const uint64_t total = masses(rest, key, n_kept, key_logit(best), heat);
        /* One of `total` units, each within 2^-64 of equally likely (Lemire 2019, arXiv:1805.10941,
         * without rejection). */
        uint64_t unit = (uint64_t)((unsigned __int128)random * total >> 64);
        int64_t i = 0;
        while (unit >= rest[i])
            unit -= rest[i++];
        chosen = key_id(key[i]);
    }
    *id = chosen;
    if (log_p) {
        int64_t low = chosen;
        if (!dense) /* the ids ascend */
            for (low = 0; pair[2 * low] != chosen;)
                low++;
        *log_p = (double)(dense ? logit[low] : logit[2 * low + 1]) - log_total;
    }
    return 0;
}
