/* neon.c - AArch64 with SDOT (FEAT_DotProd), and the table of the set that has SMMLA beside it; the
 * bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set: the compiler
 * may vectorise it as it likes, since no order of rounding is left open there. By
 * hand: attention here, matrix products in neon_matmul.c, neon_panel.c and i8mm.c. */
#ifdef __ARM_FEATURE_DOTPROD
#include "api/limits.h"
#include "kernels/arm/neon.h"
#include "runtime/isa.h"
#define SET neon
#define VECTOR float32x4_t
#define VECTOR_ZERO() vdupq_n_f32(0)
#define VECTOR_LOAD(p) vld1q_f32(p)
#define VECTOR_STORE(p, v) vst1q_f32(p, v)
#define VECTOR_SET vdupq_n_f32
#define VECTOR_FMA(a, b, sum) vfmaq_f32(sum, a, b)
enum { VECTOR_LANES = 4, DELTA_VECTORS = 2 };
#include "kernels/reference.c"

enum { POSITIONS = 16, QUERIES = 4, VALUES = 8 /* registers of an output */ };

/* ---- attention ----------------------------------------------------------------------------------
 */

/* Query i of an item: head i % group of token i / group. */
typedef struct {
    const float *q;
    float *o, *score;
    int32_t first, p;
} query;

INLINE query query_of(const attention_args *a, float *scores, int32_t t0, int32_t head_kv,
                      int32_t i)
{
    const int32_t group = a->n_head / a->n_head_kv, t = t0 + i / group, p = a->pos + t;
    const int64_t at =
        ((int64_t)t * a->n_head + (int64_t)head_kv * group + i % group) * a->head_dim;
    return (query){a->q + at, a->o + at, scores + (int64_t)i * score_stride(a->pos + a->n_tok),
                   a->window && p >= a->window ? p - a->window + 1 : 0, p};
}

/* Rows j0 ... j0 + n - 1 of one head of K or V as f32 [n, dim]. */
typedef struct {
    float x[POSITIONS * MAX_HEAD_DIM];
    int32_t j0, n, dim;
} rows;

/* Up to row `last`, and at most POSITIONS. */
static void load_block(rows *b, const attention_args *a, const void *x, int32_t head_kv, int32_t j0,
                       int32_t last)
{
    const int64_t head = type_row_bytes(a->type, a->head_dim), row = a->n_head_kv * head;
    const uint8_t *from = (const uint8_t *)x + j0 * row + head_kv * head;
    b->j0 = j0, b->n = last + 1 - j0 < POSITIONS ? last + 1 - j0 : POSITIONS, b->dim = a->head_dim;
    for (int32_t i = 0; i < b->n; i++)
        float_row(b->x + (int64_t)i * b->dim, a->type, from + i * row, b->dim);
}

/* Of these, the rows that query x sees. */
typedef struct { int32_t begin, end; } range;

INLINE range seen_by(const query *x, const rows *b)
{
    const int32_t begin = x->first > b->j0 ? x->first - b->j0 : 0,
                  end = x->p + 1 < b->j0 + b->n ? x->p + 1 - b->j0 : b->n;
    return (range){begin, end > begin ? end : begin};
}

/* columns f32 [dim rounded up to 4, POSITIONS] = the rows, transposed; what is beyond them is never
 * used. */
static void transpose_rows(float *columns, const rows *b)
{
    for (int32_t i = 0; i < POSITIONS; i += 4)
        for (int32_t e = 0; e < b->dim; e += 4) {
            float32x4_t v[4], w[4];
            for (int r = 0; r < 4; r++) {
                float some[4] = {0};
                const float *from = b->x + (int64_t)(i + r < b->n ? i + r : b->n - 1) * b->dim + e;
                v[r] = vld1q_f32(b->dim - e >= 4 ? from
                                                 : memcpy(some, from, (size_t)(b->dim - e) * 4));
            }
            for (int r = 0; r < 2; r++) {
                w[2 * r] = vtrn1q_f32(v[2 * r], v[2 * r + 1]);
                w[2 * r + 1] = vtrn2q_f32(v[2 * r], v[2 * r + 1]);
            }
            for (int k = 0; k < 2; k++) {
                const float64x2_t a = vreinterpretq_f64_f32(w[k]),
                                  c = vreinterpretq_f64_f32(w[2 + k]);
                vst1q_f32(columns + (int64_t)(e + k) * POSITIONS + i,
                          vreinterpretq_f32_f64(vtrn1q_f64(a, c)));
                vst1q_f32(columns + (int64_t)(e + 2 + k) * POSITIONS + i,
                          vreinterpretq_f32_f64(vtrn2q_f64(a, c)));
            }
        }
}

/* Scores of T queries for these keys: ascending elements, one fma each; a lane is a position. */
INLINE void score_tile(const query *x, const float *columns, const rows *key, float scale, int T)
{
    float32x4_t sum[QUERIES][POSITIONS / 4];
    float s[POSITIONS];
    for (int t = 0; t < T; t++)
        for (int i = 0; i < POSITIONS / 4; i++)
            sum[t][i] = vdupq_n_f32(0);
    for (int32_t e = 0; e < key->dim; e++)
        for (int i = 0; i < POSITIONS / 4; i++) {
            const float32x4_t v = vld1q_f32(columns + (int64_t)e * POSITIONS + 4 * i);
            for (int t = 0; t < T; t++)
                sum[t][i] = vfmaq_n_f32(sum[t][i], v, x[t].q[e]);
        }
    for (int t = 0; t < T; t++) {
        const range r = seen_by(x + t, key);
        for (int i = 0; i < POSITIONS / 4; i++)
            vst1q_f32(s + 4 * i, vmulq_n_f32(sum[t][i], scale));
        if (r.end > r.begin)
            memcpy(x[t].score + key->j0 + r.begin, s + r.begin, (size_t)(r.end - r.begin) * 4);
    }
}

static void score_block(const attention_args *a, float *scores, int32_t t0, int32_t head_kv,
                        int32_t n_query, const rows *key)
{
    float columns[POSITIONS * MAX_HEAD_DIM];
    transpose_rows(columns, key);
    for (int32_t i = 0, step; i < n_query; i += step) {
        query x[QUERIES];
        step = n_query - i >= QUERIES ? QUERIES : 1;
        for (int32_t t = 0; t < step; t++)
            x[t] = query_of(a, scores, t0, head_kv, i + t);
        if (step == QUERIES)
            score_tile(x, columns, key, a->scale, QUERIES);
        else
            score_tile(x, columns, key, a->scale, 1);
    }
}

/* score[j] -> exp(score[j] - max); score[p + 1] = 1 / their sum. */
static void softmax(const query *x)
{
    float max = -INFINITY, lane[LANES] = {0};
    for (int32_t j = x->first; j <= x->p; j++)
        max = x->score[j] > max ? x->score[j] : max;
    for (int32_t j = x->first; j <= x->p; j++)
        x->score[j] = exp_f32(x->score[j] - max);
    for (int32_t j = x->first; j <= x->p; j++)
        lane[j % LANES] += x->score[j];
    x->score[x->p + 1] = 1.0f / add_lanes(lane);
}

/* Adds these rows of values, weighted, to the output of query x: ascending positions, one fma each;
 * 32 elements of the output stay in registers meanwhile. */
static void add_values(const query *x, const rows *value)
{
    const range r = seen_by(x, value);
    int32_t e = 0;
    for (; e + 4 * VALUES <= value->dim; e += 4 * VALUES) {
        float32x4_t o[VALUES];
        for (int i = 0; i < VALUES; i++)
            o[i] = vld1q_f32(x->o + e + 4 * i);
        for (int32_t j = r.begin; j < r.end; j++)
            for (int i = 0; i < VALUES; i++)
                o[i] = vfmaq_n_f32(o[i], vld1q_f32(value->x + (int64_t)j * value->dim + e + 4 * i),
                                   x->score[value->j0 + j]);
        for (int i = 0; i < VALUES; i++)
            vst1q_f32(x->o + e + 4 * i, o[i]);
    }
    for (int32_t j = r.begin; j < r.end; j++)
        for (int32_t i = e; i < value->dim; i++)
            x->o[i] = fmaf(x->score[value->j0 + j], value->x[(int64_t)j * value->dim + i], x->o[i]);
}

/* One head of keys and values, a few tokens: each block of K and V is converted once for all their
 * queries. */
static void attend_block(const attention_args *a, float *scores, int32_t t0, int32_t n_tok,
                         int32_t head_kv)
{
    const int32_t n_query = n_tok * (a->n_head / a->n_head_kv), last = a->pos + t0 + n_tok - 1;
    const int32_t first = query_of(a, scores, t0, head_kv, 0).first;
    rows block;
    for (int32_t j = first; j <= last; j += POSITIONS) {
        load_block(&block, a, a->k, head_kv, j, last);
        score_block(a, scores, t0, head_kv, n_query, &block);
    }
    for (int32_t i = 0; i < n_query; i++) {
        const query x = query_of(a, scores, t0, head_kv, i);
        if (a->cap != 0.0f)
            cap_all(x.score + x.first, x.p + 1 - x.first, a->cap);
        softmax(&x);
        memset(x.o, 0, (size_t)a->head_dim * 4);
    }
    for (int32_t j = first; j <= last; j += POSITIONS) {
        load_block(&block, a, a->v, head_kv, j, last);
        for (int32_t i = 0; i < n_query; i++) {
            const query x = query_of(a, scores, t0, head_kv, i);
            add_values(&x, &block);
        }
    }
    for (int32_t i = 0; i < n_query; i++) {
        const query x = query_of(a, scores, t0, head_kv, i);
        for (int32_t e = 0; e < a->head_dim; e++)
            x.o[e] = x.o[e] * x.score[x.p + 1];
    }
}

static void attention_neon(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const attention_args *a = arg;
    for (int64_t i = begin; i < end; i++) {
        const attention_item item = item_of(a, i);
        attend_block(a, a->scores + thread * a->n_scores, item.t0, item.n_tok, item.head_kv);
    }
}

/* neon_decode.c */
void decode_neon(void *y, int32_t type, const uint8_t *x, int64_t n_block);

const isa isa_neon = {
    "neon",
    128,
    matmul_neon,
    quantize_neon,
    quantize_k_neon,
    rmsnorm_neon,
    rope_neon,
    attention_neon,
    silu_mul_neon,
    gelu_mul_neon,
    sigmoid_mul_neon,
    soft_cap_neon,
    causal_conv_neon,
    delta_net_neon,
    cache_store_neon,
    NULL,
    NULL,
    0,
    0,
    0,
    0,
    decode_neon,
};
const isa isa_i8mm = {
    /* products of several tokens are its own */
    "i8mm",
    128,
    matmul_i8mm,
    quantize_neon,
    quantize_k_neon,
    rmsnorm_neon,
    rope_neon,
    attention_neon,
    silu_mul_neon,
    gelu_mul_neon,
    sigmoid_mul_neon,
    soft_cap_neon,
    causal_conv_neon,
    delta_net_neon,
    cache_store_neon,
    NULL,
    NULL,
    0,
    0,
    0,
    0,
    decode_neon,
};
#endif
