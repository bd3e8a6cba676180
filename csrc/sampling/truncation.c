/* truncation.c - steps that remove candidates. Probabilities are those of the softmax over the
 * candidates that the step before left, at the temperature so far. */
#include <stddef.h>
#include "api/runtime.h"
#include "sampling/candidates.h"

void keep_top_k(candidates *c, const sample_options *o)
{
    if (o->top_k < c->n)
        c->n = keep(c->key, c->n, threshold(c->rest, c->key, NULL, c->n, (uint64_t)o->top_k));
}

void keep_top_p(candidates *c, const sample_options *o)
{
    uint64_t *m = c->rest;
    const uint64_t total = masses(m, c->key, c->n, key_logit(best_of(c->key, c->n)), c->heat);
    const double wanted = o->top_p * (double)total;
    uint64_t target = (uint64_t)wanted;
    target += (double)target < wanted || target == 0;
    target = target < total ? target : total;
    c->n = keep(c->key, c->n, threshold(m + c->n, c->key, m, c->n, target));
}

void keep_min_p(candidates *c, const sample_options *o)
{
    const double min = key_logit(best_of(c->key, c->n)) + sluice_log(o->min_p) / c->heat;
    if (min > -0x1.fffffep127) {
        float l = (float)min; /* the first f32 from `min` up */
        if (l < min)
            l = unordered(ordered(l) + 1);
        c->n = keep(c->key, c->n, (uint64_t)ordered(l) << 32);
    }
}

/* |-ln p - H| is the distance of a logit from the mean logit. Distances are rounded to f32; of
 * equal ones the lower token comes first. */
void keep_typical(candidates *c, const sample_options *o)
{
    uint64_t *m = c->rest, *near = m + c->n;
    const float best = key_logit(best_of(c->key, c->n));
    const uint64_t total = masses(m, c->key, c->n, best, c->heat);
    const double mean = mean_logit(c, m, total, best);
    for (int64_t i = 0; i < c->n; i++) {
        const double d = ((double)key_logit(c->key[i]) - best) * c->heat - mean;
        near[i] = key_of(-finite_f32(d < 0 ? -d : d), (uint32_t)key_id(c->key[i]));
    }
    const uint64_t target = (uint64_t)(o->typical * (double)total) + 1; /* more than p */
    const uint64_t min = threshold(near + c->n, near, m, c->n, target < total ? target : total);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->key[n] = c->key[i];
        n += near[i] >= min;
    }
    c->n = n;
}

/* Squares are compared, which needs no root. */
void keep_near_best(candidates *c, const sample_options *o)
{
    const float best = key_logit(best_of(c->key, c->n));
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c->n; i++)
        sum += (double)key_logit(c->key[i]) - best;
    const double mean = sum / (double)c->n;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = (double)key_logit(c->key[i]) - best - mean;
        squares += d * d;
    }
    const double limit = o->top_nsigma * o->top_nsigma * (squares / (double)c->n);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = (double)key_logit(c->key[i]) - best;
        c->key[n] = c->key[i];
        n += d * d <= limit;
    }
    c->n = n;
}

void exclude_top(candidates *c, const sample_options *o, uint64_t random)
{
    if ((double)(random >> 11) * 0x1p-53 >= o->xtc_probability)
        return;
    uint64_t *m = c->rest, last = UINT64_MAX;
    const uint64_t total = masses(m, c->key, c->n, key_logit(best_of(c->key, c->n)), c->heat);
    const double wanted = o->xtc_threshold * (double)total;
    for (int64_t i = 0; i < c->n; i++)
        if ((double)m[i] >= wanted && c->key[i] < last)
            last = c->key[i];
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->key[n] = c->key[i];
        n += c->key[i] <= last;
    }
    c->n = n;
}
