/* sampling.h - logits to a token, and logits against a text. */
#ifndef SLUICE_API_SAMPLING_H
#define SLUICE_API_SAMPLING_H
#include <stdint.h>

/* ---- sample.c: logits to an id ----------------------------------------------- */

typedef struct {
    double temperature; /* 0: the best id */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    double repeat;      /* > 0; 1: off */
    double presence, frequency;
    int32_t top_k; /* 0: off */
    /* 1: all logits change their sign, after bias and penalties, so that the worst are the best; 0:
     * off */
    int32_t least;
    int32_t n_bias;
    const int32_t *bias_id; /* [n_bias], ascending, each once */
    const double *bias;     /* [n_bias], added to their logits; -infinity: never chosen */
} sample_options;

/* Choose *id of the n candidates of a record: dense, payload is f32 [n], else {i32 id, f32 logit}
 * [n] by ascending id. log_p (may be null): ln of its probability in the softmax of the payload as
 * it is. seen i32 [2 n_seen]: ids of the recent past, each once, with their counts. random: 64 even
 * bits, used where temperature > 0. work: u64 [4 n]. n is 1 to MAX_VOCAB. Returns 0; -1 where *id
 * is the first with a logit that is not finite; -2 where every candidate has a bias of -infinity.
 */
int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload,
                    const int32_t *seen, int64_t n, int32_t dense, int32_t n_seen,
                    const sample_options *options, uint64_t random);

/* ---- score.c: rows of logits against a text and against another model's ----------- */

typedef struct {
    double log_p;      /* ln of the id's probability */
    double base_log_p; /* the same in the kept row; 0 without one */
    /* divergence of these logits from the kept row, KL(kept || these), in nats; 0 without one */
    double kl;
    int32_t top;      /* the id with the greatest logit, the first of equals */
    int32_t base_top; /* of the kept row; -1 without one */
} logit_score;

/* out [n_row] = of logits f32 [n_row, n], all finite, and ids [n_row] below n. kept: rows of
 * keep_logits, or NULL; any bits do. */
void score_logits(logit_score *out, const float *logits, const int32_t *ids, const uint8_t *kept,
                  int32_t n_row, int32_t n);
/* kept u8 [n_row, kept_row_bytes(n)] = logits f32 [n_row, n], all finite, in 16 bits each. */
void keep_logits(uint8_t *kept, const float *logits, int32_t n_row, int32_t n);
int64_t kept_row_bytes(int32_t n);
/* The first of n_row rows of n that keep_logits cannot have written: its checksum, greatest id or
 * step; or -1. */
int32_t first_bad_kept(const uint8_t *kept, int32_t n_row, int32_t n);
#endif
