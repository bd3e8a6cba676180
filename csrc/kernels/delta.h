/* delta.h - the gated delta rule of reference.c for a block of columns, in vectors.
 *
 * A lane is a column of S. DELTA_VECTORS vectors of a row are taken at a time, through all tokens:
 * their 2 x DELTA_CHAINS sums stay in registers, and dim rows of them in the first cache. One pass
 * over the rows ends a token and begins the next: it changes S, adds S^T q, and the next S^T k.
 *
 * The set defines VECTOR, VECTOR_LANES, VECTOR_ZERO(), VECTOR_LOAD(p), VECTOR_STORE(p, v),
 * VECTOR_SET(x), VECTOR_FMA(a, b, sum) and DELTA_VECTORS. */
#include "kernels/arguments.h"
#include "kernels/inline.h"

typedef struct { VECTOR sum[DELTA_CHAINS][DELTA_VECTORS]; } delta_sums_of;

INLINE VECTOR delta_sum(const delta_sums_of *x, int j)
{
    return (x->sum[0][j] + x->sum[2][j]) + (x->sum[1][j] + x->sum[3][j]);
}

INLINE void delta_clear(delta_sums_of *x)
{
    for (int c = 0; c < DELTA_CHAINS; c++)
        for (int j = 0; j < DELTA_VECTORS; j++)
            x->sum[c][j] = VECTOR_ZERO();
}

/* Row i of S, in sum c of each: of S^T k for the first token. */
INLINE void delta_read(delta_sums_of *read, const float *row, float k, int c)
{
    for (int j = 0; j < DELTA_VECTORS; j++)
        read->sum[c][j] =
            VECTOR_FMA(VECTOR_LOAD(row + j * VECTOR_LANES), VECTOR_SET(k), read->sum[c][j]);
}

/* The same for a token with its decay and delta, and the key of the next. */
INLINE void delta_row(delta_sums_of *out, delta_sums_of *read, float *row, const VECTOR *delta,
                      VECTOR decay, float q, float k, float next, int c)
{
    for (int j = 0; j < DELTA_VECTORS; j++) {
        float *p = row + j * VECTOR_LANES;
        const VECTOR x = VECTOR_FMA(VECTOR_SET(k), delta[j], decay * VECTOR_LOAD(p));
        VECTOR_STORE(p, x);
        out->sum[c][j] = VECTOR_FMA(x, VECTOR_SET(q), out->sum[c][j]);
        read->sum[c][j] = VECTOR_FMA(x, VECTOR_SET(next), read->sum[c][j]);
    }
}

/* s: DELTA_VECTORS vectors of each of dim rows of DELTA_COLUMNS; v and o: the same columns. */
static void delta_group(const delta_args *a, float *s, const float *v, float *o, int64_t v_step,
                        int64_t head)
{
    const int32_t dim = a->dim, whole = dim / DELTA_CHAINS * DELTA_CHAINS;
    const int64_t k_step = (int64_t)a->n_head_k * dim, key = head % a->n_head_k * dim;
    const float *q = a->q + key, *k = a->k + key;
    delta_sums_of read, out;
    delta_clear(&read);
    for (int32_t i = 0; i < whole; i += DELTA_CHAINS)
        for (int c = 0; c < DELTA_CHAINS; c++)
            delta_read(&read, s + (i + c) * DELTA_COLUMNS, k[i + c], c);
    for (int c = 0; c < DELTA_CHAINS - 1; c++)
        if (whole + c < dim)
            delta_read(&read, s + (whole + c) * DELTA_COLUMNS, k[whole + c], c);
    for (int64_t t = 0; t < a->n_tok; t++) {
        const int64_t at = t * a->n_head + head;
        const float *next = t + 1 < a->n_tok ? k + k_step : k;
        const VECTOR decay = VECTOR_SET(a->decay[at]);
        VECTOR delta[DELTA_VECTORS];
        for (int j = 0; j < DELTA_VECTORS; j++)
            delta[j] = VECTOR_SET(a->beta[at])
                * VECTOR_FMA(VECTOR_SET(-a->decay[at]), delta_sum(&read, j),
                             VECTOR_LOAD(v + t * v_step + j * VECTOR_LANES));
        delta_clear(&out), delta_clear(&read);
        for (int32_t i = 0; i < whole; i += DELTA_CHAINS)
            for (int c = 0; c < DELTA_CHAINS; c++)
                delta_row(&out, &read, s + (i + c) * DELTA_COLUMNS, delta, decay, q[i + c],
                          k[i + c], next[i + c], c);
        for (int c = 0; c < DELTA_CHAINS - 1; c++)
            if (whole + c < dim)
                delta_row(&out, &read, s + (whole + c) * DELTA_COLUMNS, delta, decay, q[whole + c],
                          k[whole + c], next[whole + c], c);
        for (int j = 0; j < DELTA_VECTORS; j++)
            VECTOR_STORE(o + t * v_step + j * VECTOR_LANES, delta_sum(&out, j));
        q += k_step;
        k += k_step;
    }
}

enum {
    DELTA_FEW = 16
}; /* tokens whose columns are copied where a head has no whole block of them */

/* s f32 [dim, DELTA_COLUMNS]: columns first ... of a head's S, of which n are in v and o. */
static void delta_block(const delta_args *a, float *s, int64_t head, int64_t first, int32_t n)
{
    const int64_t step = (int64_t)a->n_head * a->dim, at = head * a->dim + first;
    enum { WIDTH = DELTA_VECTORS * VECTOR_LANES };
    if (n == DELTA_COLUMNS) {
        for (int j = 0; j < DELTA_COLUMNS; j += WIDTH)
            delta_group(a, s + j, a->v + at + j, a->o + at + j, step, head);
        return;
    }
    float v[DELTA_FEW * DELTA_COLUMNS] = {0}, o[DELTA_FEW * DELTA_COLUMNS];
    for (int64_t t = 0; t < a->n_tok; t += DELTA_FEW) {
        delta_args part = *a;
        const int64_t n_key = t * a->n_head_k * a->dim, n_gate = t * a->n_head;
        part.n_tok = (int32_t)(a->n_tok - t < DELTA_FEW ? a->n_tok - t : DELTA_FEW);
        part.q += n_key, part.k += n_key, part.decay += n_gate, part.beta += n_gate;
        for (int64_t i = 0; i < part.n_tok; i++)
            memcpy(v + i * DELTA_COLUMNS, a->v + (t + i) * step + at, (size_t)n * 4);
        for (int j = 0; j < DELTA_COLUMNS; j += WIDTH)
            delta_group(&part, s + j, v + j, o + j, DELTA_COLUMNS, head);
        for (int64_t i = 0; i < part.n_tok; i++)
            memcpy(a->o + (t + i) * step + at, o + i * DELTA_COLUMNS, (size_t)n * 4);
    }
}
