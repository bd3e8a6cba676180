/* rope_freq.c - frequencies of RoPE, their scaling to longer contexts, and the angles.
 *
 *   plain     freq[i] = base^(-i / n_pair): Su et al. 2021, arXiv:2104.09864, section 3.2.2
 *   linear    divided by one number: Chen et al. 2023, arXiv:2306.15595
 *   llama3,   divided by a number for each pair that the model file lists: Llama 3,
 *   longrope  arXiv:2407.21783, and LongRoPE, Ding et al. 2024, arXiv:2402.13753
 *   yarn      divided where the pair turns seldom, not where it turns often: Peng et al. 2023,
 *             arXiv:2309.00071, section 3.2
 *
 * f64 throughout, by the functions of math64.c: the same bits on every machine.  n_pair numbers a
 * model, then n_pair sines and cosines a token, rounded to f32 once. */
#include "api/kernels.h"
#include "api/runtime.h"
#include "runtime/float_bits.h"
#include "runtime/threads.h"

static double plain(int32_t i, int32_t n_pair, double log_base)
{
    return sluice_exp(-((double)i / n_pair) * log_base);
}

void rope_freq(double *freq, const float *factor, int32_t n_pair, double base, double linear)
{
    const double log_base = sluice_log(base);
    for (int32_t i = 0; i < n_pair; i++)
        freq[i] = plain(i, n_pair, log_base) / (factor ? linear * (double)factor[i] : linear);
}

/* The pair, not an integer, that turns `turns` times within n_ctx positions, between 0 and 2 n_pair
 * - 1. */
static double pair_of(double turns, int32_t n_pair, double log_base, double n_ctx)
{
    const double tau = 0x1.921fb54442d18p2,
                 i = n_pair * sluice_log(n_ctx / (turns * tau)) / log_base, last = 2.0 * n_pair - 1;
    return i > 0 ? i < last ? i : last : 0;
}

/* The borders are whole pairs, rounded outwards, as in the code that the paper was published with.
 */
void rope_freq_yarn(double *freq, int32_t n_pair, double base, double factor, double n_ctx,
                    double fast, double slow)
{
    const double log_base = sluice_log(base), end = pair_of(slow, n_pair, log_base, n_ctx);
    const double low = (int32_t)pair_of(fast, n_pair, log_base, n_ctx), whole = (int32_t)end,
                 high = whole < end ? whole + 1 : whole;
    const double width = high > low ? high - low : 0.001;
    for (int32_t i = 0; i < n_pair; i++) {
        /* of the stretched one */
        const double at = (i - low) / width, share = at > 0 ? at < 1 ? at : 1 : 0;
        freq[i] = plain(i, n_pair, log_base) * (1 - share + share / factor);
    }
}

typedef struct {
    float *cs;
    const double *freq;
    int32_t pos, n_pair;
    double scale;
} angles_args;

static void angles_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const angles_args *a = arg;
    float *cs = a->cs + begin * a->n_pair * 2;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n_pair; i++, cs += 2) {
            double sine, cosine;
            sluice_sincos(&sine, &cosine, (double)(a->pos + t) * a->freq[i]);
            cs[0] = (float)(cosine * a->scale);
            cs[1] = (float)(sine * a->scale);
        }
}

void rope_angles(float *cs, const double *freq, int32_t pos, int32_t n_tok, int32_t n_pair,
                 double scale)
{
    enum { OPERATIONS = 64 /* of a pair */, WORTH = 1 << 16 };
    const angles_args a = {cs, freq, pos, n_pair, scale};
    parallel(angles_rows, &a, n_tok, 1 + WORTH / OPERATIONS / (n_pair > 0 ? n_pair : 1));
}
