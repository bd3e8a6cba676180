/* avx512.c - x86-64 with AVX-512 (F, BW, DQ, VL) and VNNI; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set.  By hand:
 * attention and the activations in int8 here, matrix products in avx512_matmul.c.
 *
 * Attention, a few tokens and one head of keys and values at a time: rows of K and V are converted to f32 block by
 * block (16,384 floats at most, so that they and the scores stay in cache) for all queries of these tokens.  Scores are
 * 4 x 4 tiles of positions x queries, values 4 queries x 64 elements in registers.  At the edge of what is seen
 * a tile may compute a score that no query wants; softmax and the values take only the wanted ones. */
#ifdef __AVX512VNNI__
#define NAME(f) f##_avx512
#define OWN_QUANTIZE
#include "reference.c"
#include "avx512.h"

enum { BLOCK_FLOATS = 16384, MAX_POSITIONS = 64, VALUES = 4, MAX_QUERIES = 512 /* of an item: dispatch.c */ };

/* ---- activations in int8 ------------------------------------------------------------------- */

INLINE __m512i greater(__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }

/* A block in int8; the sums of 8 of its elements in 4 words.  zero: all are. */
INLINE __m128i quantize_block(int8_t *q, const float *x, __m512 inverse, int zero)
{
    const __m512 round = _mm512_set1_ps(0x1.8p23f); /* reference.c's nearest: the integer is in the low bits of the sum */
    const __mmask16 lanes = zero ? 0 : 0xffff;
    const __m128i ones = _mm_set1_epi8(1);
    __m128i isum = _mm_setzero_si128();
    for (int i = 0; i < BLOCK; i += 16) {
        const __m512 v = _mm512_add_ps(_mm512_maskz_mul_ps(lanes, _mm512_loadu_ps(x + i), inverse), round);
        const __m128i part = _mm512_cvtepi32_epi8(_mm512_castps_si512(v));
        _mm_storeu_si128((__m128i *)(q + i), part);
        isum = _mm_dpbusd_epi32(isum, ones, part);
    }
    return isum;
}

/* 16 blocks at a time; past the end the last one again, whose scales are not stored. */
static void quantize_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const quantize_args *a = arg;
    const int64_t first = begin * (a->n / BLOCK), last = end * (a->n / BLOCK) - 1;
    const __m512i size = _mm512_set1_epi32(0x7fffffff), infinite = _mm512_set1_epi32(0x7f800000);
    const __m512 top = _mm512_set1_ps(127.0f);
    (void)thread;
    for (int64_t b = first; b <= last; b += 16) {
        const __mmask16 valid = first_lanes(last + 1 - b);
        __m512i v[16], x[4];
        float inverse[16];
        for (int i = 0; i < 16; i++) {
            const float *from = a->x + (b + i < last ? b + i : last) * BLOCK;
            v[i] = greater(_mm512_and_si512(_mm512_loadu_si512(from), size), _mm512_and_si512(_mm512_loadu_si512(from + 16), size));
        }
        const __m512i most = fold_16(v, greater);
        const __mmask16 finite = _mm512_cmplt_epu32_mask(most, infinite);
        const __mmask16 usable = finite & _mm512_cmpge_epu32_mask(most, _mm512_set1_epi32((int32_t)f32_bits(0x1p-100f)));
        _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(usable, top, _mm512_castsi512_ps(most)));
        for (int i = 0; i < 4; i++) {
            x[i] = _mm512_setzero_si512();
            for (int k = 0; k < 4; k++) {
                const int at = 4 * i + k;
                const int64_t to = b + at < last ? b + at : last;
                const __m128i part = quantize_block(a->q + to * BLOCK, a->x + to * BLOCK, _mm512_set1_ps(inverse[at]),
                                                    !(usable >> at & 1));
                x[i] = _mm512_mask_broadcast_i32x4(x[i], (__mmask16)(15 << 4 * k), part);
            }
        }
        const __m512 d = _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN), _mm512_maskz_div_ps(usable, _mm512_castsi512_ps(most), top));
        _mm512_mask_storeu_ps(a->d + b, valid, d);
        _mm512_mask_storeu_ps(a->s + b, valid, _mm512_mul_ps(d, _mm512_cvtepi32_ps(fold_quarters(x, plus))));
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

/* One head of one token: score[j] is that of position j, first to p. */
typedef struct { const float *q; float *o, *score; int32_t first, p; } query;

/* x [n_tok * n_head] = the queries of tokens t0 ..., heads h0 ..., by token.  Returns the first position that any sees. */
static int32_t set_queries(query *x, const attention_args *a, float *scores, int32_t t0, int32_t n_tok, int32_t h0, int32_t n_head)
{
    for (int32_t t = t0; t < t0 + n_tok; t++) {
        const int32_t p = a->pos + t, first = a->window && p >= a->window ? p - a->window + 1 : 0;
        for (int32_t h = h0; h < h0 + n_head; h++, scores += a->pos + a->n_tok + 1) {
            const int64_t at = ((int64_t)t * a->n_head + h) * a->head_dim;
            *x++ = (query){a->q + at, a->o + at, scores, first, p};
        }
    }
    return a->window && a->pos + t0 >= a->window ? a->pos + t0 - a->window + 1 : 0;
}

/* exp_f32 of 16 lanes: the compiler makes one vector of the loop. */
INLINE __m512 exp_16(__m512 x)
{
    float v[16];
    _mm512_storeu_ps(v, x);
    for (int l = 0; l < 16; l++)
        v[l] = exp_f32(v[l]);
    return _mm512_loadu_ps(v);
}

/* Lanes, positions j ... j + 15, that query x sees. */
INLINE __mmask16 seen_by(const query *x, int32_t j)
{
    return first_lanes(x->p + 1 - j) & (__mmask16)~first_lanes(x->first - j);
}

/* score[j] -> exp(score[j] - max); score[p + 1] = 1 / their sum. */
static void softmax(const query *x)
{
    const int32_t begin = x->first / 16 * 16;
    __m512 most = _mm512_set1_ps(-INFINITY), lane = _mm512_setzero_ps();
    for (int32_t j = begin; j <= x->p; j += 16) {
        const __mmask16 seen = seen_by(x, j);
        most = _mm512_mask_max_ps(most, seen, _mm512_maskz_loadu_ps(seen, x->score + j), most); /* a NaN is passed over */
    }
    most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int32_t j = begin; j <= x->p; j += 16) {
        const __mmask16 seen = seen_by(x, j);
        const __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(seen, x->score + j), most));
        _mm512_mask_storeu_ps(x->score + j, seen, e);
        lane = _mm512_mask_add_ps(lane, seen, lane, e);
    }
    lane = fold_4(fold_8(lane, lane), lane);
    lane = fold_2(lane, lane);
    x->score[x->p + 1] = 1.0f / _mm512_cvtss_f32(fold_1(lane, lane));
}

/* Scores of T (1 or 4) queries for n rows of keys: key f32 [n, dim], positions j0 and on. */
INLINE void score_rows(const query *x, const float *key, int32_t j0, int32_t n, int32_t dim, float scale, int T)
{
    const float *q[TILE];
    const int32_t begin = x[0].first > j0 ? (x[0].first - j0) / TILE * TILE : 0;
    const int32_t end = x[T - 1].p + 1 - j0 < n ? x[T - 1].p + 1 - j0 : n;
    for (int t = 0; t < T; t++)
        q[t] = x[t].q;
    for (int32_t j = begin; j < end; j += TILE) {
        const __mmask8 valid = (__mmask8)first_lanes(n - j < TILE ? n - j : TILE);
        const uint8_t *w[TILE];
        float s[TILE * TILE];
        for (int32_t i = 0; i < TILE; i++)
            w[i] = (const uint8_t *)(key + (int64_t)(j + i < n ? j + i : n - 1) * dim);
        _mm512_storeu_ps(s, _mm512_mul_ps(tile(T_F32, w, q, dim, T), _mm512_set1_ps(scale)));
        for (int t = 0; t < T; t++)
            _mm_mask_storeu_ps(x[t].score + j0 + j, valid, _mm_loadu_ps(s + t * TILE));
    }
}

/* Adds rows begin ... end - 1 of value (f32 [n, dim], positions j0 and on), weighted, to elements e ... e + 16 N - 1 of the
 * outputs of T queries, or to those elements in `lanes`: ascending positions, one fma each. */
INLINE void add_rows(const query *x, const float *value, int32_t j0, int32_t begin, int32_t end, int32_t dim, int32_t e,
                     __mmask16 lanes, int T, int N)
{
    __m512 o[TILE][VALUES];
    if (begin >= end)
        return;
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            o[t][i] = _mm512_maskz_loadu_ps(lanes, x[t].o + e + 16 * i);
    for (int32_t j = begin; j < end; j++) {
        __m512 v[VALUES];
        for (int i = 0; i < N; i++)
            v[i] = _mm512_maskz_loadu_ps(lanes, value + (int64_t)j * dim + e + 16 * i);
        for (int t = 0; t < T; t++) {
            const __m512 weight = _mm512_set1_ps(x[t].score[j0 + j]);
            for (int i = 0; i < N; i++)
                o[t][i] = _mm512_fmadd_ps(weight, v[i], o[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            _mm512_mask_storeu_ps(x[t].o + e + 16 * i, lanes, o[t][i]);
}

/* The same for elements e ... e + step - 1, 64 or else 16 or what is left of them. */
INLINE void add_part(const query *x, const float *value, int32_t j0, int32_t begin, int32_t end, int32_t dim, int32_t e,
                     int32_t step, int T)
{
    if (step == 16 * VALUES)
        add_rows(x, value, j0, begin, end, dim, e, 0xffff, T, VALUES);
    else
        add_rows(x, value, j0, begin, end, dim, e, first_lanes(dim - e), T, 1);
}

/* Adds n rows of values to the outputs of T (1 or 4) queries: rows that only some see, that all see, that some see. */
INLINE void add_values(const query *x, const float *value, int32_t j0, int32_t n, int32_t dim, int T)
{
    int32_t begin[TILE], end[TILE], first = 0, last = n;
    for (int t = 0; t < T; t++) {
        begin[t] = x[t].first > j0 ? x[t].first - j0 : 0;
        end[t] = x[t].p + 1 - j0 < n ? x[t].p + 1 - j0 : n;
        first = begin[t] > first ? begin[t] : first;
        last = end[t] < last ? end[t] : last;
    }
    last = last > first ? last : first;
    for (int32_t e = 0, step; e < dim; e += step) {
        step = e + 16 * VALUES <= dim ? 16 * VALUES : 16;
        for (int t = 0; t < T; t++)
            add_part(x + t, value, j0, begin[t], end[t] < first ? end[t] : first, dim, e, step, 1);
        add_part(x, value, j0, first, last, dim, e, step, T);
        for (int t = 0; t < T; t++)
            add_part(x + t, value, j0, begin[t] > last ? begin[t] : last, end[t], dim, e, step, 1);
    }
}

INLINE __m512 load_either(int32_t type, const uint8_t *x, int32_t e, __mmask16 lanes)
{
    return type == T_F16 ? load_lanes(T_F16, x + e * 2, lanes) : load_lanes(T_F32, x + e * 4, lanes);
}

/* block f32 [n, dim] = rows j ... of one head of K or V, up to `last` and at most `most` of them: n. */
static int32_t load_rows(float *block, const attention_args *a, const uint8_t *x, int32_t j, int32_t last, int32_t most)
{
    const int64_t row = (int64_t)a->n_head_kv * a->head_dim * (a->type == T_F32 ? 4 : 2);
    const int32_t n = last + 1 - j < most ? last + 1 - j : most, dim = a->head_dim;
    for (int32_t i = 0; i < n; i++, block += dim) {
        const uint8_t *from = x + (j + i) * row;
        int32_t e = 0;
        for (; e + 16 <= dim; e += 16)
            _mm512_storeu_ps(block + e, load_either(a->type, from, e, 0xffff));
        if (e < dim)
            _mm512_mask_storeu_ps(block + e, first_lanes(dim - e), load_either(a->type, from, e, first_lanes(dim - e)));
    }
    return n;
}

/* One head of keys and values, a few tokens: each block of K and V is converted once for all their queries. */
static void attend_block(const attention_args *a, float *scores, int32_t t0, int32_t n_tok, int32_t h0, int32_t n_head)
{
    const int32_t dim = a->head_dim, n_query = n_tok * n_head, last = a->pos + t0 + n_tok - 1;
    const int32_t most = BLOCK_FLOATS / dim < MAX_POSITIONS ? BLOCK_FLOATS / dim : MAX_POSITIONS;
    const int64_t head = (int64_t)(h0 / (a->n_head / a->n_head_kv)) * dim * (a->type == T_F32 ? 4 : 2);
    query x[MAX_QUERIES];
    float block[BLOCK_FLOATS];
    const int32_t first = set_queries(x, a, scores, t0, n_tok, h0, n_head);
    for (int32_t j = first; j <= last; j += most) {
        const int32_t n = load_rows(block, a, (const uint8_t *)a->k + head, j, last, most);
        int32_t i = 0;
        for (; i + TILE <= n_query; i += TILE)
            score_rows(x + i, block, j, n, dim, a->scale, TILE);
        for (; i < n_query; i++)
            score_rows(x + i, block, j, n, dim, a->scale, 1);
    }
    for (int32_t i = 0; i < n_query; i++) {
        softmax(x + i);
        memset(x[i].o, 0, (size_t)dim * 4);
    }
    for (int32_t j = first; j <= last; j += most) {
        const int32_t n = load_rows(block, a, (const uint8_t *)a->v + head, j, last, most);
        int32_t i = 0;
        for (; i + TILE <= n_query; i += TILE)
            add_values(x + i, block, j, n, dim, TILE);
        for (; i < n_query; i++)
            add_values(x + i, block, j, n, dim, 1);
    }
    for (int32_t i = 0; i < n_query; i++)
        for (int32_t e = 0; e < dim; e++)
            x[i].o[e] = x[i].o[e] * x[i].score[x[i].p + 1];
}

static void attention_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const attention_args *a = arg;
    const int32_t group = a->n_head / a->n_head_kv;
    for (int64_t item = begin; item < end; item++) {
        const int32_t t0 = (int32_t)(item / a->n_head_kv) * a->item_tok, h = (int32_t)(item % a->n_head_kv) * group;
        const int32_t n_tok = a->n_tok - t0 < a->item_tok ? a->n_tok - t0 : a->item_tok;
        for (int32_t i = 0; i < group; i += MAX_QUERIES) /* more than one round only where an item is one token */
            attend_block(a, a->scores + thread * a->n_scores, t0, n_tok, h + i, group - i < MAX_QUERIES ? group - i : MAX_QUERIES);
    }
}

const isa isa_avx512 = {
    "avx512", 128, matmul_avx512, quantize_avx512, quantize_k_avx512, rmsnorm_avx512, rope_avx512, attention_avx512, silu_mul_avx512,
    gelu_mul_avx512, cache_store_avx512,
};
const isa isa_amx = { /* products of many tokens are its own */
    "amx", 1024, matmul_amx, quantize_avx512, quantize_k_avx512, rmsnorm_avx512, rope_avx512, attention_avx512, silu_mul_avx512, gelu_mul_avx512,
    cache_store_avx512,
};
#endif
