/* avx2.c - x86-64 with AVX2, FMA and F16C; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set: the compiler
 * may vectorise it as it likes, since no order of rounding is left open there. By
 * hand: attention here, matrix products in avx2_matmul.c. */
#ifdef __AVX2__
#include "avx2.h"
#define NAME(f) f##_avx2
#include "reference.c"

enum { POSITIONS = 16, MAX_HEAD_DIM = 1024 };

/* ---- attention ---------------------------------------------------------------------------------- */

/* Query i of an item: head i % group of token i / group. */
typedef struct { const float *q; float *o, *score; int32_t first, p; } query;

INLINE query query_of(const attention_args *a, float *scores, int32_t t0, int32_t head_kv, int32_t i)
{
    const int32_t group = a->n_head / a->n_head_kv, t = t0 + i / group, p = a->pos + t;
    const int64_t at = ((int64_t)t * a->n_head + (int64_t)head_kv * group + i % group) * a->head_dim;
    return (query){a->q + at, a->o + at, scores + (int64_t)i * (a->pos + a->n_tok + 1),
                   a->window && p >= a->window ? p - a->window + 1 : 0, p};
}

/* score[j] -> exp(score[j] - max); score[p + 1] = 1 / their sum. */
static void softmax(const query *x)
{
    float most = -INFINITY, lane[LANES] = {0};
    for (int32_t j = x->first; j <= x->p; j++)
        most = x->score[j] > most ? x->score[j] : most;
    for (int32_t j = x->first; j <= x->p; j++)
        x->score[j] = exp_f32(x->score[j] - most);
    for (int32_t j = x->first; j <= x->p; j++)
        lane[j % LANES] += x->score[j];
    x->score[x->p + 1] = 1.0f / add_lanes(lane);
}

/* Positions j0 ... j0 + n - 1 that query x sees, as a range within these n. */
typedef struct { int32_t begin, end; } range;

INLINE range seen_by(const query *x, int32_t j0, int32_t n)
{
    const int32_t begin = x->first > j0 ? x->first - j0 : 0, end = x->p + 1 < j0 + n ? x->p + 1 - j0 : n;
    return (range){begin, end > begin ? end : begin};
}

/* Scores of query x for n rows of keys: key f32 [n, dim], positions j0 and on. */
static void score_rows(const query *x, const float *key, int32_t j0, int32_t n, int32_t dim, float scale)
{
    const range r = seen_by(x, j0, n);
    for (int32_t j = r.begin, step; j < r.end; j += step) {
        const uint8_t *w[4];
        float s[4];
        step = r.end - j >= 4 ? 4 : 1;
        for (int32_t i = 0; i < step; i++)
            w[i] = (const uint8_t *)(key + (int64_t)(j + i) * dim);
        if (step == 4)
            tile(s, 4, w, &x->q, dim, T_F32, 4, 1);
        else
            tile(s, 1, w, &x->q, dim, T_F32, 1, 1);
        for (int32_t i = 0; i < step; i++)
            x->score[j0 + j + i] = s[i] * scale;
    }
}

/* Adds n rows of values (f32 [n, dim], positions j0 and on), weighted, to the output of query x: ascending
 * positions, one fma each; 32 elements of the output stay in registers meanwhile. */
static void add_values(const query *x, const float *value, int32_t j0, int32_t n, int32_t dim)
{
    const range r = seen_by(x, j0, n);
    int32_t e = 0;
    for (; e + 32 <= dim; e += 32) {
        __m256 o[4];
        for (int i = 0; i < 4; i++)
            o[i] = _mm256_loadu_ps(x->o + e + 8 * i);
        for (int32_t j = r.begin; j < r.end; j++) {
            const __m256 weight = _mm256_set1_ps(x->score[j0 + j]);
            for (int i = 0; i < 4; i++)
                o[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(value + (int64_t)j * dim + e + 8 * i), o[i]);
        }
        for (int i = 0; i < 4; i++)
            _mm256_storeu_ps(x->o + e + 8 * i, o[i]);
    }
    for (int32_t j = r.begin; j < r.end; j++)
        for (int32_t i = e; i < dim; i++)
            x->o[i] = fmaf(x->score[j0 + j], value[(int64_t)j * dim + i], x->o[i]);
}

/* block f32 [n, dim] = rows j ... of one head of K or V, up to `last` and at most POSITIONS of them: n. */
static int32_t load_rows(float *block, const attention_args *a, const uint8_t *x, int32_t j, int32_t last)
{
    const int64_t row = (int64_t)a->n_head_kv * a->head_dim * (a->type == T_F32 ? 4 : 2);
    const int32_t n = last + 1 - j < POSITIONS ? last + 1 - j : POSITIONS;
    for (int32_t i = 0; i < n; i++)
        float_row(block + (int64_t)i * a->head_dim, a->type, x + (j + i) * row, a->head_dim);
    return n;
}

/* One head of keys and values, a few tokens: each block of K and V is converted once for all their queries. */
static void attend_block(const attention_args *a, float *scores, int32_t t0, int32_t n_tok, int32_t head_kv)
{
    const int32_t dim = a->head_dim, n_query = n_tok * (a->n_head / a->n_head_kv), last = a->pos + t0 + n_tok - 1;
    const int64_t head = (int64_t)head_kv * dim * (a->type == T_F32 ? 4 : 2);
    const uint8_t *k = (const uint8_t *)a->k + head, *v = (const uint8_t *)a->v + head;
    const int32_t first = query_of(a, scores, t0, head_kv, 0).first;
    float block[POSITIONS * MAX_HEAD_DIM];
    for (int32_t j = first; j <= last; j += POSITIONS) {
        const int32_t n = load_rows(block, a, k, j, last);
        for (int32_t i = 0; i < n_query; i++) {
            const query x = query_of(a, scores, t0, head_kv, i);
            score_rows(&x, block, j, n, dim, a->scale);
        }
    }
    for (int32_t i = 0; i < n_query; i++) {
        const query x = query_of(a, scores, t0, head_kv, i);
        softmax(&x);
        memset(x.o, 0, (size_t)dim * 4);
    }
    for (int32_t j = first; j <= last; j += POSITIONS) {
        const int32_t n = load_rows(block, a, v, j, last);
        for (int32_t i = 0; i < n_query; i++) {
            const query x = query_of(a, scores, t0, head_kv, i);
            add_values(&x, block, j, n, dim);
        }
    }
    for (int32_t i = 0; i < n_query; i++) {
        const query x = query_of(a, scores, t0, head_kv, i);
        for (int32_t e = 0; e < dim; e++)
            x.o[e] = x.o[e] * x.score[x.p + 1];
    }
}

static void attention_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const attention_args *a = arg;
    for (int64_t item = begin; item < end; item++) {
        const int32_t t0 = (int32_t)(item / a->n_head_kv) * a->item_tok;
        const int32_t n_tok = a->n_tok - t0 < a->item_tok ? a->n_tok - t0 : a->item_tok;
        attend_block(a, a->scores + thread * a->n_scores, t0, n_tok, (int32_t)(item % a->n_head_kv));
    }
}

const isa isa_avx2 = {
    "avx2", 128, matmul_avx2, quantize_avx2, quantize_k_avx2, rmsnorm_avx2, rope_avx2, attention_avx2, silu_mul_avx2, gelu_mul_avx2,
    cache_store_avx2,
};
const isa isa_avx_vnni = { /* quantised products are its own */
    "avx-vnni", 128, matmul_avx_vnni, quantize_avx2, quantize_k_avx2, rmsnorm_avx2, rope_avx2, attention_avx2, silu_mul_avx2, gelu_mul_avx2,
    cache_store_avx2,
};
#endif
