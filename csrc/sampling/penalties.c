/* penalties.c - steps that change logits: biases, penalties on recent tokens, DRY.
 *
 * DRY ("don't repeat yourself", p-e-w 2024, oobabooga/text-generation-webui pull request 5677): a
 * token that would continue a repetition of `length` tokens gets multiplier base^(length - allowed)
 * subtracted, if length >= allowed. Length: how many of the last tokens stand in front of an
 * earlier occurrence of the token, too; the longest of all occurrences counts. No repetition goes
 * back beyond the last sequence breaker. */
#include "api/runtime.h"
#include "sampling/candidates.h"

static void add_bias(candidates *c, int32_t id, double bias)
{
    const int64_t at = find_token(c->key, c->n, id);
    if (at >= 0)
        c->key[at] = with_logit(c->key[at], key_logit(c->key[at]) + bias);
}

void add_biases(candidates *c, const sample_options *o)
{
    int64_t n = 0;
    for (int64_t i = 0, b = 0; i < c->n; i++) {
        while (b < o->n_bias && o->bias_id[b] < key_id(c->key[i]))
            b++;
        c->key[n] = c->key[i];
        const int here = b < o->n_bias && o->bias_id[b] == key_id(c->key[i]);
        n += !(here && o->bias[b] < -0x1.fffffffffffffp1023); /* -infinity removes the token */
    }
    c->n = n;
    for (int32_t i = 0; i < o->n_bias; i++)
        add_bias(c, o->bias_id[i], o->bias[i]);
}

void penalize(candidates *c, const sample_options *o, const sample_memory *memory)
{
    for (int32_t i = 0; i < memory->n_seen; i++) {
        const int64_t at = find_token(c->key, c->n, memory->seen[2 * i]);
        if (at < 0)
            continue;
        double l = key_logit(c->key[at]) * c->heat;
        l = l > 0 ? l / o->repeat : l * o->repeat;
        l -= o->presence + memory->seen[2 * i + 1] * o->frequency;
        c->key[at] = with_logit(c->key[at], l / c->heat);
    }
}

/* length[k], 0 < k < n: how many of the last tokens also stand before the k last ones. The Z
 * algorithm (Gusfield 1997, "Algorithms on Strings, Trees, and Sequences", section 1.4) on the
 * reversed text: linear, since each equal pair of tokens moves `end`. */
static void find_repeats(int32_t *length, const int32_t *text, int64_t n)
{
    int64_t begin = 0, end = 0; /* of the known repetition that goes back furthest */
    for (int64_t k = 1; k < n; k++) {
        int64_t l = 0;
        if (k < end) {
            l = length[k - begin];
            l = l < end - k ? l : end - k;
        }
        if (k + l >= end) {
            while (k + l < n && text[n - 1 - l] == text[n - 1 - k - l])
                l++;
            begin = k;
            end = k + l;
        }
        length[k] = (int32_t)l;
    }
}

void penalize_repeats(candidates *c, const sample_options *o, const sample_memory *memory)
{
    const int64_t n = memory->n_history;
    int32_t *length = memory->length, *longest = memory->longest;
    if (n <= o->dry_allowed_length || memory->n_unbroken < o->dry_allowed_length)
        return;
    find_repeats(length, memory->history, n);
    int32_t *found = length; /* distinct tokens, over lengths that were read */
    int64_t n_found = 0;
    for (int64_t k = 1; k < n; k++) {
        const int32_t id = memory->history[n - k];
        const int64_t l = length[k] < memory->n_unbroken ? length[k] : memory->n_unbroken;
        if (l < o->dry_allowed_length || id < 0 || id >= o->n_vocab || o->dry_breaker[id])
            continue;
        if (!longest[id])
            found[n_found++] = id;
        longest[id] = l > longest[id] ? (int32_t)l : longest[id];
    }
    const double log_base = sluice_log(o->dry_base);
    for (int64_t i = 0; i < n_found; i++) {
        const int32_t id = found[i];
        const int64_t at = find_token(c->key, c->n, id);
        if (at >= 0) {
            const double excess = longest[id] - o->dry_allowed_length;
            const double l =
                key_logit(c->key[at]) * c->heat - o->dry_multiplier * sluice_exp(excess * log_base);
            c->key[at] = with_logit(c->key[at], l / c->heat);
        }
        longest[id] = 0;
    }
}
