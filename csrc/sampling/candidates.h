/* candidates.h - the tokens among which one is chosen, as integers that sort like their logits.
 *
 * A candidate is a u64 key: the bits of the logit, mapped to order like an integer, above the
 * inverted token ID. So one comparison tells the better token, there are no ties, and each step is
 * a threshold. The mass of a candidate is an integer, too: 2^42 e^(l - best), rounded. Integer sums
 * are exact in any order, so the result depends on the logits alone; sums of 2^21 masses fit 63
 * bits. Mass below 2^-43 of the best token's is lost.
 *
 * Nothing is sorted: a radix selection finds the threshold digit by digit. */
#ifndef SLUICE_SAMPLING_CANDIDATES_H
#define SLUICE_SAMPLING_CANDIDATES_H
#include <stdint.h>
#include "api/sampling.h"
#include "runtime/float_bits.h"

#define LN2 0x1.62e42fefa39efp-1

/* The logit of a candidate is key_logit(key) * heat: temperature does not round logits. */
typedef struct {
    uint64_t *key;  /* [n], ascending tokens */
    uint64_t *rest; /* [4n], workspace: masses [n], then [3n] */
    int64_t n;      /* 1 or more */
    double heat;    /* product of the inverse temperatures so far */
} candidates;

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

/* l as an f32, limited to the finite ones. */
static inline float finite_f32(double l)
{
    const double limit = 0x1.fffffep127;
    return (float)(l > limit ? limit : l < -limit ? -limit : l);
}
/* `key` with logit l, limited to finite f32. */
static inline uint64_t with_logit(uint64_t key, double l)
{
    return key_of(finite_f32(l), (uint32_t)key_id(key));
}

/* m[i] = mass of key[i] at inverse temperature `heat`. Returns the sum. */
uint64_t masses(uint64_t *restrict m, const uint64_t *restrict key, int64_t n, float best,
                double heat);
/* The largest threshold such that the keys from it up have mass `target` or more; m NULL: mass 1
 * each. work: u64 [2n]. */
uint64_t threshold(uint64_t *work, const uint64_t *key, const uint64_t *m, int64_t n,
                   uint64_t target);
/* Keeps the keys from `min` up, in order. Returns their number. */
int64_t keep(uint64_t *key, int64_t n, uint64_t min);
uint64_t best_of(const uint64_t *key, int64_t n);
/* The index of token `id` among keys of ascending tokens, or -1. */
int64_t find_token(const uint64_t *key, int64_t n, int32_t id);
/* ln sum e^(logit - best's) of masses that sum to `total`. */
double log_sum(uint64_t total);
/* The mean of (logit - best's) by the probabilities m[i] / total, summed in the order of tokens:
 * entropy is log_sum(total) minus it. */
double mean_logit(const candidates *c, const uint64_t *m, uint64_t total, float best);

/* penalties.c */
void add_biases(candidates *c, const sample_options *o);
void penalize(candidates *c, const sample_options *o, const sample_memory *memory);
void penalize_repeats(candidates *c, const sample_options *o, const sample_memory *memory);
/* truncation.c: each keeps one candidate or more */
void keep_top_k(candidates *c, const sample_options *o);
void keep_top_p(candidates *c, const sample_options *o);
void keep_min_p(candidates *c, const sample_options *o);
void keep_typical(candidates *c, const sample_options *o);
void keep_near_best(candidates *c, const sample_options *o);
void exclude_top(candidates *c, const sample_options *o, uint64_t random);
/* mirostat.c */
void keep_by_surprise(candidates *c, const sample_options *o, double mu);
#endif
