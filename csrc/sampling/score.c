/* score.c - score rows of logits: log-softmax of a token, KL divergence from another model, and
 * kept logits, the 16-bit form in which that model's logits are stored.
 *
 *   log p(t)   = x[t] - max x - ln Z,            Z = sum exp(x[i] - max x)
 *   KL(P || Q) = sum p[i] (ln p[i] - ln q[i])    (Kullback & Leibler 1951),
 *
 * with P the kept row and Q the logits.
 *
 * A kept row is i32 top, f32 step, u16 u[n], two bytes of padding if n is odd, and u32 CRC-32C of
 * all before. The logit of token i is step u[i] below that of `top`, the greatest. The greatest
 * itself is not stored: softmax does not depend on it. step = range / 65535, so a row with a range
 * of 30 is accurate to 0.00023; u is rounded to nearest.
 *
 * Computed in f64. exp is that of math64.c without its special cases: values more than 700 below
 * the greatest count as e^-700, about 1e-304. Sums have 8 lanes, i mod 8, which are added as a
 * tree.  With b[i] = - step u[i] and B = sum exp(b[i]), KL is (sum exp(b[i]) (b[i] - (x[i] -
 * max x))) / B - ln B + ln Z; a result below 0, possible only by rounding, becomes 0. */
#include <string.h>
#include "api/runtime.h"
#include "api/sampling.h"
#include "runtime/exp64.h"
#include "runtime/float_bits.h"
#include "runtime/threads.h"

enum { LANES = 8, HEAD_BYTES = 8, CRC_BYTES = 4 };
typedef struct {
    logit_score *out;
    const float *logits;
    const int32_t *tokens;
    const uint8_t *kept;
    int64_t kept_bytes;
    int32_t n;
} score_args;
typedef struct {
    uint8_t *kept;
    const float *logits;
    int64_t kept_bytes;
    int32_t n;
} keep_args;

/* e^x for -700 <= x <= 0, with the bits of sluice_exp; the result is a normal number. */
static inline double exp_below_0(double x)
{
    double shifted;
    const double y = exp_of_rest(x, &shifted);
    return bits_f64(f64_bits(y) + (f64_bits(shifted) << 52));
}

static inline double tree(const double s[LANES])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Sums by lane: of e^(x - max), and with a kept row of e^b and e^b (b - (x - max)). */
typedef struct { double z[LANES], b[LANES], d[LANES]; } sums;

static inline void add_lanes(sums *s, const float *x, float max, int n)
{
    for (int l = 0; l < n; l++) {
        const double v = (double)x[l] - (double)max;
        s->z[l] += exp_below_0(v > -700 ? v : -700);
    }
}

static inline void add_lanes_kept(sums *s, const float *x, float max, const uint16_t *u,
                                  double step, int n)
{
    for (int l = 0; l < n; l++) {
        const double v = (double)x[l] - (double)max, q = v > -700 ? v : -700;
        const double w = -step * (double)u[l], p = w > -700 ? w : -700, e = exp_below_0(p);
        s->z[l] += exp_below_0(q);
        s->b[l] += e;
        s->d[l] += e * (w - v);
    }
}

static float find_max(int32_t *at, const float *x, int32_t n)
{
    float max = x[0];
    *at = 0;
    for (int32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    while (x[*at] != max)
        ++*at;
    return max;
}

static void score_row(logit_score *out, const float *x, int32_t token, const uint8_t *kept,
                      int32_t n)
{
    sums s = {0};
    uint16_t u[LANES];
    float step = 0;
    const float max = find_max(&out->top, x, n);
    out->base_log_p = out->kl = 0, out->base_top = -1;
    if (kept)
        memcpy(&out->base_top, kept, 4), memcpy(&step, kept + 4, 4);
    for (int32_t i = 0; i < n; i += LANES) {
        const int part = n - i < LANES ? n - i : LANES;
        if (!kept) {
            part == LANES ? add_lanes(&s, x + i, max, LANES) : add_lanes(&s, x + i, max, part);
            continue;
        }
        memcpy(u, kept + HEAD_BYTES + 2 * (int64_t)i, 2 * (size_t)part);
        part == LANES ? add_lanes_kept(&s, x + i, max, u, (double)step, LANES)
                      : add_lanes_kept(&s, x + i, max, u, (double)step, part);
    }
    const double log_z = sluice_log(tree(s.z));
    out->log_p = ((double)x[token] - (double)max) - log_z;
    if (kept) {
        const double b = tree(s.b), log_b = sluice_log(b), kl = tree(s.d) / b - log_b + log_z;
        memcpy(u, kept + HEAD_BYTES + 2 * (int64_t)token, 2);
        out->base_log_p = -(double)step * (double)u[0] - log_b;
        out->kl = kl > 0 ? kl : 0;
    }
}

static void score_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const score_args *a = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        score_row(a->out + r, a->logits + r * a->n, a->tokens[r],
                  a->kept ? a->kept + r * a->kept_bytes : NULL, a->n);
}

int64_t kept_row_bytes(int32_t n) { return HEAD_BYTES + 2 * ((int64_t)n + n % 2) + CRC_BYTES; }

void score_logits(logit_score *out, const float *logits, const int32_t *tokens, const uint8_t *kept,
                  int32_t n_row, int32_t n)
{
    const score_args a = {out, logits, tokens, kept, kept_row_bytes(n), n};
    parallel(score_rows, &a, n_row, 1 + 4096 / n);
}

static void keep_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const keep_args *a = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = a->logits + r * a->n;
        uint8_t *to = a->kept + r * a->kept_bytes;
        int32_t top;
        float min = x[0];
        const float max = find_max(&top, x, a->n);
        for (int32_t i = 1; i < a->n; i++)
            min = x[i] < min ? x[i] : min;
        const float step = (float)(((double)max - (double)min) / 65535);
        const double inverse = step > 0 ? 1 / (double)step : 0;
        memset(to + a->kept_bytes - CRC_BYTES - 2, 0, 2);
        memcpy(to, &top, 4), memcpy(to + 4, &step, 4);
        for (int32_t i = 0; i < a->n; i++) {
            const double v = ((double)max - (double)x[i]) * inverse + 0.5;
            const uint16_t u = (uint16_t)(v < 65535 ? v : 65535);
            memcpy(to + HEAD_BYTES + 2 * (int64_t)i, &u, 2);
        }
        const uint32_t crc = crc32c(0, to, (uint64_t)(a->kept_bytes - CRC_BYTES));
        memcpy(to + a->kept_bytes - CRC_BYTES, &crc, CRC_BYTES);
    }
}

void keep_logits(uint8_t *kept, const float *logits, int32_t n_row, int32_t n)
{
    const keep_args a = {kept, logits, kept_row_bytes(n), n};
    parallel(keep_rows, &a, n_row, 1 + 4096 / n);
}

int32_t first_bad_kept(const uint8_t *kept, int32_t n_row, int32_t n)
{
    const int64_t bytes = kept_row_bytes(n);
    for (int32_t r = 0; r < n_row; r++, kept += bytes) {
        uint32_t crc;
        int32_t top;
        float step;
        memcpy(&top, kept, 4), memcpy(&step, kept + 4, 4),
            memcpy(&crc, kept + bytes - CRC_BYTES, CRC_BYTES);
        if (crc != crc32c(0, kept, (uint64_t)(bytes - CRC_BYTES)) || top < 0 || top >= n
            || !(step >= 0 && step <= 0x1p113f))
            return r;
    }
    return -1;
}
