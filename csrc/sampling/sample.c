/* sample.c - sample one token from one record of logits.
 *
 * The steps in their default order; each works on the candidates that the one before left. Biases
 * are always first.
 *   bias         l + b for the given tokens, rounded to f32; b = -infinity removes the token
 *   penalties    Keskar et al. 2019, arXiv:1909.05858, section 4.1, and the
 *                customary refinement: l / r where l > 0, l r elsewhere; then
 *                l - presence - count frequency; rounded to f32
 *   dry          l - multiplier base^(length - allowed), rounded to f32: see penalties.c
 *   least        -l, if the least likely tokens are preferred
 *   top-n-sigma  tokens within n standard deviations of the best logit; Tang et al. 2024,
 *                arXiv:2411.07641
 *   top-k        the k best; Fan et al. 2018, arXiv:1805.04833, section 5.4
 *   typical      the smallest set with a mass of more than p, of the tokens whose -ln p is nearest
 *                to the entropy; Meister et al. 2022, arXiv:2202.00666
 *   top-p        the smallest set of best tokens with mass p or more; Holtzman et al. 2019,
 *                arXiv:1904.09751, section 3.1
 *   min-p        tokens with at least min_p times the probability of the best;
 *                Nguyen et al. 2024, arXiv:2407.01082
 *   xtc          with a probability, no tokens above a threshold but the least likely of these;
 *                p-e-w 2024, oobabooga/text-generation-webui pull request 6335
 *   temperature  one sample from e^(l / t); t = 0: the best (greedy). Dynamic: t lies in a range,
 *                by the entropy as a share of its maximum
 * Mirostat (mirostat.c) takes the place of all steps but biases and temperature.
 * A better token has a larger logit, or an equal one and a lower token ID. */
#include "api/runtime.h"
#include "sampling/candidates.h"

/* Number 0 of SplitMix64 started at `seed`: a second random number of a position. */
static uint64_t splitmix64(uint64_t seed)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double temperature_for(const candidates *c, const sample_options *o)
{
    if (!(o->dynatemp_range > 0))
        return o->temperature;
    const double low = o->temperature - o->dynatemp_range, min = low > 0 ? low : 0;
    const double max = o->temperature + o->dynatemp_range;
    const float best = key_logit(best_of(c->key, c->n));
    const uint64_t total = masses(c->rest, c->key, c->n, best, c->heat);
    const double entropy = log_sum(total) - mean_logit(c, c->rest, total, best);
    double share = entropy / sluice_log((double)c->n);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    const double power = sluice_exp(o->dynatemp_exponent * sluice_log(share));
    return min + (max - min) * (o->dynatemp_exponent > 0 ? power : 1);
}

static int is_greedy(double heat) { return !(heat <= 1e30); }

static void heat_up(candidates *c, const sample_options *o)
{
    if (c->n == 1)
        return;
    const double heat = c->heat * (1 / temperature_for(c, o));
    if (is_greedy(heat)) {
        c->key[0] = best_of(c->key, c->n);
        c->n = 1;
    } else
        c->heat = heat;
}

static void negate(candidates *c)
{
    for (int64_t i = 0; i < c->n; i++)
        c->key[i] = with_logit(c->key[i], -key_logit(c->key[i]));
}

static void run_step(candidates *c, int32_t step, const sample_options *o,
                     const sample_memory *memory, uint64_t random)
{
    switch (step) {
    case SAMPLE_PENALTIES: penalize(c, o, memory); break;
    case SAMPLE_DRY: penalize_repeats(c, o, memory); break;
    case SAMPLE_LEAST: negate(c); break;
    case SAMPLE_TOP_N_SIGMA: keep_near_best(c, o); break;
    case SAMPLE_TOP_K: keep_top_k(c, o); break;
    case SAMPLE_TYPICAL: keep_typical(c, o); break;
    case SAMPLE_TOP_P: keep_top_p(c, o); break;
    case SAMPLE_MIN_P: keep_min_p(c, o); break;
    case SAMPLE_XTC: exclude_top(c, o, splitmix64(random)); break;
    case SAMPLE_TEMPERATURE: heat_up(c, o); break;
    }
}

static int keeps_best(int32_t step)
{
    return step == SAMPLE_TOP_N_SIGMA || step == SAMPLE_TOP_K || step == SAMPLE_TOP_P
        || step == SAMPLE_MIN_P;
}

static void run_steps(candidates *c, const sample_options *o, const sample_memory *memory,
                      uint64_t random)
{
    int32_t greedy = 0, needless = 0; /* steps from needless to greedy would change nothing */
    while (greedy < o->n_step && o->step[greedy] != SAMPLE_TEMPERATURE)
        greedy++;
    const int is_fixed = !(o->dynatemp_range > 0) && is_greedy(1 / o->temperature);
    for (needless = greedy; needless > 0 && keeps_best(o->step[needless - 1]);)
        needless--;
    for (int32_t i = 0; i < o->n_step; i++)
        if (!(is_fixed && greedy < o->n_step && i >= needless && i < greedy))
            run_step(c, o->step[i], o, memory, random);
}

/* One of the candidates by their probabilities. surprise: -log2 of its probability. */
static int32_t choose(double *surprise, const candidates *c, uint64_t random)
{
    const uint64_t *m = c->rest;
    const float best = key_logit(best_of(c->key, c->n));
    const uint64_t total = masses(c->rest, c->key, c->n, best, c->heat);
    /* One of `total` units, uniform to within 2^-64 (Lemire 2019, arXiv:1805.10941, without
     * rejection). */
    uint64_t unit = (uint64_t)((unsigned __int128)random * total >> 64);
    int64_t i = 0;
    while (unit >= m[i])
        unit -= m[i++];
    const double logit = ((double)key_logit(c->key[i]) - best) * c->heat;
    *surprise = (log_sum(total) - logit) / LN2;
    return key_id(c->key[i]);
}

int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload, int64_t n,
                    int32_t dense, sample_memory *memory, const sample_options *options,
                    uint64_t random)
{
    candidates c = {.key = work, .rest = work + n, .n = n, .heat = 1};
    const float *logit = payload;
    const int32_t *pair = payload;
    uint32_t not_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const float l = dense ? logit[i] : logit[2 * i + 1];
        c.key[i] = key_of(l, dense ? (uint32_t)i : (uint32_t)pair[2 * i]);
        not_finite |= (f32_bits(l) & 0x7f800000) == 0x7f800000;
    }
    for (int64_t i = 0; not_finite && i < n; i++)
        if ((f32_bits(dense ? logit[i] : logit[2 * i + 1]) & 0x7f800000) == 0x7f800000) {
            *id = dense ? (int32_t)i : pair[2 * i];
            return -1;
        }

    double log_total = 0; /* ln sum e^l of the unchanged logits */
    if (log_p) {
        const float raw_best = key_logit(best_of(c.key, n));
        log_total = raw_best + log_sum(masses(c.rest, c.key, n, raw_best, 1));
    }
    add_biases(&c, options);
    if (c.n == 0)
        return -2;
    run_steps(&c, options, memory, random);
    /* without a choice, the surprise says nothing about the text */
    const int steers = options->mirostat && c.n > 1;
    if (steers)
        keep_by_surprise(&c, options, memory->mu);
    double surprise;
    const int32_t chosen = choose(&surprise, &c, random);
    if (steers)
        memory->mu -= options->mirostat_lr * (surprise - options->mirostat_ent);
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
