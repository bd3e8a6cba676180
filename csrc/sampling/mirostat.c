/* mirostat.c - truncation that holds the surprise of the chosen tokens near a target: Basu et al.
 * 2020, arXiv:2007.14966.
 *
 *   1   the best k tokens, where k comes from mu by Zipf's law: p(i) ~ i^-s, with s fitted to the
 *       100 best tokens, and k = (e 2^mu / (1 - N^-e))^(1/s), e = s - 1, N tokens in the vocabulary
 *   2   the tokens with a surprise of mu bits or less, and always the best one
 *
 * sample.c then chooses by the probabilities among these, and moves mu by the difference of the
 * chosen token's surprise from the target. */
#include <stddef.h>
#include "api/runtime.h"
#include "sampling/candidates.h"

enum { N_FITTED = 100 };

/* The logits of the best n_top candidates, descending. n_top: at most N_FITTED. */
static void best_logits(float *out, const candidates *c, int64_t n_top)
{
    const uint64_t min = threshold(c->rest, c->key, NULL, c->n, (uint64_t)n_top);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (c->key[i] < min)
            continue;
        const float l = key_logit(c->key[i]);
        int64_t at = n++;
        for (; at > 0 && out[at - 1] < l; at--)
            out[at] = out[at - 1];
        out[at] = l;
    }
}

/* The least-squares exponent s of Zipf's law; 0 if the best tokens are equally likely. */
static double zipf_exponent(const candidates *c)
{
    float l[N_FITTED];
    const int64_t n = c->n < N_FITTED ? c->n : N_FITTED;
    best_logits(l, c, n);
    double products = 0, squares = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        const double t = sluice_log((double)(i + 2) / (double)(i + 1));
        products += t * (((double)l[i] - l[i + 1]) * c->heat);
        squares += t * t;
    }
    return products / squares;
}

static int64_t tokens_for(const candidates *c, int32_t n_vocab, double mu)
{
    const double s = zipf_exponent(c), e = s - 1, log_n = sluice_log(n_vocab), u = e * log_n;
    /* e / (1 - N^-e), which is 1 / ln N at e = 0 */
    const double ratio =
        u > -1e-5 && u < 1e-5 ? 1 / (log_n * (1 - u / 2)) : e / (1 - sluice_exp(-u));
    const double log_k = sluice_log(ratio) + mu * LN2;
    if (log_k <= 0) /* also if s is 0, and 1 / s infinite */
        return 1;
    return log_k >= s * sluice_log((double)c->n) ? c->n : (int64_t)sluice_exp(log_k / s);
}

void keep_by_surprise(candidates *c, const sample_options *o, double mu)
{
    const uint64_t best = best_of(c->key, c->n);
    if (o->mirostat == 1) {
        const int64_t k = tokens_for(c, o->n_vocab, mu);
        if (k < c->n)
            c->n = keep(c->key, c->n, threshold(c->rest, c->key, NULL, c->n, (uint64_t)k));
        return;
    }
    const uint64_t total = masses(c->rest, c->key, c->n, key_logit(best), c->heat);
    const double min = log_sum(total) - mu * LN2; /* of logit - best's */
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const uint64_t key = c->key[i];
        c->key[n] = key;
        n += key == best || ((double)key_logit(key) - key_logit(best)) * c->heat >= min;
    }
    c->n = n;
}
