/* sampling.h - choose a token from logits; score a text by logits. */
#ifndef SLUICE_API_SAMPLING_H
#define SLUICE_API_SAMPLING_H
#include <stdint.h>

/* ---- sample.c: the steps from logits to a token ------------------------------ */

/* Steps, in their default order. */
enum {
    SAMPLE_PENALTIES,
    SAMPLE_DRY,
    SAMPLE_LEAST, /* logits are negated: the least likely tokens are preferred */
    SAMPLE_TOP_N_SIGMA,
    SAMPLE_TOP_K,
    SAMPLE_TYPICAL,
    SAMPLE_TOP_P,
    SAMPLE_MIN_P,
    SAMPLE_XTC,
    SAMPLE_TEMPERATURE,
    SAMPLE_N_STEP
};

typedef struct {
    double temperature;                       /* 0: the best token (greedy) */
    double dynatemp_range, dynatemp_exponent; /* range 0: off; exponent >= 0 */
    double typical, top_p, min_p;             /* 0 to 1 */
    double top_nsigma;                        /* > 0 */
    double xtc_probability, xtc_threshold;    /* 0 to 1 */
    double repeat;                            /* > 0 */
    double presence, frequency;
    double dry_multiplier, dry_base;     /* > 0; >= 1 */
    double mirostat_ent, mirostat_lr;    /* target, bits; learning rate */
    int32_t top_k, dry_allowed_length;   /* > 0 */
    int32_t mirostat;                    /* 0: off; 1 or 2: after the steps */
    int32_t n_vocab;                     /* tokens in the vocabulary */
    int32_t n_step, step[SAMPLE_N_STEP]; /* those to be run, each at most once */
    int32_t n_bias;
    const int32_t *bias_id;     /* [n_bias], ascending, each once */
    const double *bias;         /* [n_bias], added to their logits; -infinity: never chosen */
    const uint8_t *dry_breaker; /* [n_vocab], 1: DRY never penalises the token */
} sample_options;

/* What steps know of the text so far. */
typedef struct {
    const int32_t *seen;    /* [2 n_seen]: recent tokens, each once, with their counts */
    const int32_t *history; /* [n_history]: the last tokens, for DRY; -1: a border of texts */
    int32_t *length;        /* [n_history], workspace */
    int32_t *longest;       /* [n_vocab], workspace, all 0 before and after */
    int64_t n_history;
    int64_t n_unbroken; /* tokens after the last sequence breaker */
    double mu;          /* of mirostat, bits; updated */
    int32_t n_seen;
} sample_memory;

/* Chooses token *id from the n candidates of a record. payload: f32 [n] if dense, else {i32 token,
 * f32 logit} [n] by ascending token. log_p, unless NULL: ln of the token's probability in the
 * softmax of the unchanged payload. random: 64 uniform bits. work: u64 [5 n]. n: 1 to MAX_VOCAB.
 * Returns 0; -1: the logit of *id is the first that is not finite; -2: every candidate has a bias
 * of -infinity. */
int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload, int64_t n,
                    int32_t dense, sample_memory *memory, const sample_options *options,
                    uint64_t random);

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
