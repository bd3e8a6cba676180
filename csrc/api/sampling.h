/* sampling.h - choose a token from logits; score a text by logits. */
#ifndef SLUICE_API_SAMPLING_H
#define SLUICE_API_SAMPLING_H
#include <stdint.h>

/* ---- sample.c: temperature, top-k, top-p, min-p, penalties
 * ----------------------------------------------- */

typedef struct {
    double temperature; /* 0: the best token (greedy) */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    double repeat;      /* > 0; 1: off */
    double presence, frequency;
    int32_t top_k; /* 0: off */
    /* 1: prefer the least likely tokens: logits are negated after bias and penalties; 0: off */
    int32_t least;
    int32_t n_bias;
    const int32_t *bias_id; /* [n_bias], ascending, each once */
    const double *bias;     /* [n_bias], added to their logits; -infinity: never chosen */
} sample_options;

/* Chooses token *id from the n candidates of a record. payload: f32 [n] if dense, else {i32 token,
 * f32 logit} [n] by ascending token. log_p, unless NULL: ln of the token's probability in the
 * softmax of the unchanged payload. seen i32 [2 n_seen]: recent tokens, each once, with their
 * counts. random: 64 uniform bits, used if temperature > 0. work: u64 [4 n]. n: 1 to MAX_VOCAB.
 * Returns 0; -1: the logit of *id is the first that is not finite; -2: every candidate has a bias
 * of -infinity. */
int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload,
                    const int32_t *seen, int64_t n, int32_t dense, int32_t n_seen,
                    const sample_options *options, uint64_t random);

/* ---- score.c: log probabilities, KL divergence, kept logits ----------- */

typedef struct {
    double log_p;      /* ln of the token's probability */
    double base_log_p; /* the same in the kept row; 0 without one */
    /* KL(kept || these) in nats; 0 without a kept row */
    double kl;
    int32_t top;      /* token with the greatest logit, the first of equals */
    int32_t base_top; /* the same in the kept row; -1 without one */
} logit_score;

/* out [n_row] = scores of tokens [n_row], all below n, by logits f32 [n_row, n], all finite. kept:
 * rows of keep_logits, or NULL; arbitrary bits are safe. */
void score_logits(logit_score *out, const float *logits, const int32_t *tokens, const uint8_t *kept,
                  int32_t n_row, int32_t n);
/* kept u8 [n_row, kept_row_bytes(n)] = logits f32 [n_row, n], all finite, quantized to 16 bits. */
void keep_logits(uint8_t *kept, const float *logits, int32_t n_row, int32_t n);
int64_t kept_row_bytes(int32_t n);
/* The first of n_row rows with a wrong checksum, top or step, which keep_logits cannot have
 * written; -1: none. */
int32_t first_bad_kept(const uint8_t *kept, int32_t n_row, int32_t n);
#endif
