/* avx2.c - x86-64 with AVX2, FMA and F16C; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set: the compiler
 * may vectorise it as it likes, since no order of rounding is left open there. By
 * hand: attention here, matrix products in avx2_matmul.c and avx2_kquant.c. */
#ifdef __AVX2__
#include "api/limits.h"
#include "kernels/attention.h"
#include "kernels/x86/avx2.h"
#include "runtime/isa.h"
#define VECTOR __m256
#define VECTOR_ZERO _mm256_setzero_ps
#define VECTOR_LOAD(p) _mm256_loadu_ps(p)
#define VECTOR_STORE(p, v) _mm256_storeu_ps(p, v)
#define VECTOR_SET _mm256_set1_ps
#define VECTOR_FMA _mm256_fmadd_ps
enum { VECTOR_LANES = 8, DELTA_VECTORS = 1 };
#include "kernels/reference.c"

/* ---- attention ----------------------------------------------------------------------------------
 */

/* A few tokens and one head of keys and values at a time, K and V converted to f32 block by block
 * for all queries of these tokens, and K transposed: a lane is a position while scores are made, an
 * element while values are added.  6 queries x 16 positions or elements are 12 sums in registers:
 * with 8, each fma waits for the one before. */
enum { COLUMNS = 32, QUERIES = 6, FEW = 4 };
enum { BLOCK_FLOATS = COLUMNS * MAX_HEAD_DIM };

/* Queries of the next tile, of so many that are left: not 6 where 4 and 4 leave fewer alone. */
INLINE int32_t tile_of(int32_t left)
{
    return left >= QUERIES && left != 8 && left != 9 ? QUERIES : left >= FEW ? FEW : 1;
}

/* Positions of a block: 16 KB in f32 where that is COLUMNS or more. */
INLINE int32_t positions_of(int32_t dim) { return dim <= 64 ? 64 : COLUMNS; }

/* exp_f32 of 8 lanes, none of them above 0; a NaN stays one.  The result of lanes below `lowest` is
 * thrown away. */
INLINE __m256 exp_8(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.0f), shift = _mm256_set1_ps(0x1.8p23f);
    const __m256 t = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(exp_log2e)), shift),
                 n = _mm256_sub_ps(t, shift);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(exp_ln2[1]),
                                     _mm256_fmadd_ps(n, _mm256_set1_ps(exp_ln2[0]), x));
    __m256 p = _mm256_set1_ps(exp_term[0]);
    for (int i = 1; i < 5; i++)
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(exp_term[i]));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    const __m256i y =
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    const __m256 rest = _mm256_max_ps(_mm256_setzero_ps(), x); /* 0, or NaN */
    return _mm256_blendv_ps(rest, _mm256_castsi256_ps(y), _mm256_cmp_ps(x, lowest, _CMP_GE_OQ));
}

/* Lanes, positions j ... j + 7, that query x sees. */
INLINE __m256i lanes_seen(const query *x, int32_t j)
{
    const __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32(j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_and_si256(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(x->first - 1)),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(x->p + 1), at));
}

/* 16 positions from j on, of which x does not see all: the greatest, by lane; and exp, with the
 * sums. */
INLINE void max_edge(__m256 max[2], const query *x, int32_t j)
{
    for (int h = 0; h < 2; h++) {
        const __m256i seen = lanes_seen(x, j + 8 * h);
        const __m256 s = _mm256_maskload_ps(x->score + j + 8 * h, seen);
        max[h] =
            _mm256_max_ps(_mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, _mm256_castsi256_ps(seen)),
                          max[h]); /* a NaN is passed over */
    }
}

INLINE void exp_edge(__m256 lane[2], const query *x, int32_t j, __m256 max)
{
    for (int h = 0; h < 2; h++) {
        const __m256i seen = lanes_seen(x, j + 8 * h);
        const __m256 e = exp_8(_mm256_sub_ps(_mm256_maskload_ps(x->score + j + 8 * h, seen), max));
        _mm256_maskstore_ps(x->score + j + 8 * h, seen, e);
        lane[h] = _mm256_add_ps(lane[h], _mm256_and_ps(e, _mm256_castsi256_ps(seen)));
    }
}

static void softmax(const query *x)
{
    /* only these two groups may have lanes that are not seen */
    const int32_t begin = x->first / LANES * LANES, last = x->p / LANES * LANES;
    __m256 max[2] = {_mm256_set1_ps(-INFINITY), _mm256_set1_ps(-INFINITY)},
           lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    float found = -INFINITY, of[LANES];
    max_edge(max, x, begin);
    max_edge(max, x, last);
    for (int32_t j = begin + LANES; j < last; j += LANES)
        for (int h = 0; h < 2; h++)
            max[h] = _mm256_max_ps(_mm256_loadu_ps(x->score + j + 8 * h), max[h]);
    _mm256_storeu_ps(of, _mm256_max_ps(max[0], max[1]));
    for (int l = 0; l < 8; l++)
        found = of[l] > found ? of[l] : found;
    const __m256 top = _mm256_set1_ps(found);
    exp_edge(lane, x, begin, top);
    for (int32_t j = begin + LANES; j < last; j += LANES)
        for (int h = 0; h < 2; h++) {
            const __m256 e = exp_8(_mm256_sub_ps(_mm256_loadu_ps(x->score + j + 8 * h), top));
            _mm256_storeu_ps(x->score + j + 8 * h, e);
            lane[h] = _mm256_add_ps(lane[h], e);
        }
    if (last > begin)
        exp_edge(lane, x, last, top);
    _mm256_storeu_ps(of, lane[0]);
    _mm256_storeu_ps(of + 8, lane[1]);
    x->score[x->p + 1] = 1.0f / add_lanes(of);
}

/* Positions j0 ... j0 + n - 1 that query x sees, as a range within these n. */
INLINE span seen_by(const query *x, int32_t j0, int32_t n)
{
    /* a window may hide them all */
    const int32_t hidden = x->first > j0 ? x->first - j0 : 0, begin = hidden < n ? hidden : n;
    const int32_t end = x->p + 1 < j0 + n ? x->p + 1 - j0 : n;
    return (span){begin, end > begin ? end : begin};
}

/* Scores of T queries for the first 8 N of n positions from j on, key f32 [dim, COLUMNS]: ascending
 * elements, one fma each. */
INLINE void score_tile(const query *x, const float *key, int32_t j, int32_t n, int32_t dim,
                       float scale, int T, int N)
{
    const float *q[QUERIES];
    __m256 sum[QUERIES][4];
    for (int t = 0; t < T; t++) {
        q[t] = x[t].q;
        for (int i = 0; i < N; i++)
            sum[t][i] = _mm256_setzero_ps();
    }
    for (int32_t e = 0; e < dim; e++) {
        __m256 v[4];
        for (int i = 0; i < N; i++) {
            v[i] = _mm256_loadu_ps(key + (int64_t)e * COLUMNS + 8 * i);
            __asm__(""
                    : "+x"(v[i])); /* loaded once: as operands in memory they would keep the load
                                      ports busy */
        }
        for (int t = 0; t < T; t++) {
            const __m256 element = _mm256_broadcast_ss(q[t] + e);
            for (int i = 0; i < N; i++)
                sum[t][i] = _mm256_fmadd_ps(v[i], element, sum[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            _mm256_maskstore_ps(x[t].score + j + 8 * i, first_lanes(n - 8 * i),
                                _mm256_mul_ps(sum[t][i], _mm256_set1_ps(scale)));
}

/* Scores of T queries for n columns of keys, 8 N at a time: key f32 [.., dim, COLUMNS], positions
 * j0 and on. */
INLINE void score_columns(const query *x, const float *key, int32_t j0, int32_t n, int32_t dim,
                          float scale, int T, int N)
{
    const int32_t end = seen_by(x + T - 1, j0, n).end;
    for (int32_t j = seen_by(x, j0, n).begin / COLUMNS * COLUMNS; j < end; j += 8 * N)
        score_tile(x, key + (int64_t)(j / COLUMNS) * dim * COLUMNS + j % COLUMNS, j0 + j, n - j,
                   dim, scale, T, N);
}

/* Adds rows r of value (f32 [n, dim], positions j0 and on), weighted, to elements e ... e + 8 N - 1
 * of the outputs of T queries, or to those of the first 8 that are in `lanes`: ascending positions,
 * one fma each. */
INLINE void add_rows(const query *x, const float *value, int32_t j0, span r, int32_t dim, int32_t e,
                     __m256i lanes, int T, int N)
{
    __m256 o[QUERIES][2];
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            o[t][i] = N == 1 ? _mm256_maskload_ps(x[t].o + e, lanes)
                             : _mm256_loadu_ps(x[t].o + e + 8 * i);
    for (int32_t j = r.begin; j < r.end; j++) {
        const float *row = value + (int64_t)j * dim + e;
        __m256 v[2];
        for (int i = 0; i < N; i++) {
            v[i] = N == 1 ? _mm256_maskload_ps(row, lanes) : _mm256_loadu_ps(row + 8 * i);
            __asm__("" : "+x"(v[i]));
        }
        for (int t = 0; t < T; t++) {
            const __m256 weight = _mm256_set1_ps(x[t].score[j0 + j]);
            for (int i = 0; i < N; i++)
                o[t][i] = _mm256_fmadd_ps(weight, v[i], o[t][i]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++)
            if (N == 1)
                _mm256_maskstore_ps(x[t].o + e, lanes, o[t][i]);
            else
                _mm256_storeu_ps(x[t].o + e + 8 * i, o[t][i]);
}

/* All elements of these rows. */
INLINE void add_elements(const query *x, const float *value, int32_t j0, span r, int32_t dim, int T)
{
    int32_t e = 0;
    if (r.begin >= r.end)
        return;
    for (; e + 16 <= dim; e += 16)
        add_rows(x, value, j0, r, dim, e, _mm256_setzero_si256(), T, 2);
    for (; e < dim; e += 8)
        add_rows(x, value, j0, r, dim, e, first_lanes(dim - e), T, 1);
}

/* Adds n rows of values to the outputs of T queries: rows that only some see, that all see, that
 * some see. */
INLINE void add_values(const query *x, const float *value, int32_t j0, int32_t n, int32_t dim,
                       int T)
{
    span seen[QUERIES], all = {0, n};
    for (int t = 0; t < T; t++) {
        seen[t] = seen_by(x + t, j0, n);
        all.begin = seen[t].begin > all.begin ? seen[t].begin : all.begin;
        all.end = seen[t].end < all.end ? seen[t].end : all.end;
    }
    all.end = all.end > all.begin ? all.end : all.begin;
    for (int t = 0; t < T; t++)
        add_elements(x + t, value, j0,
                     (span){seen[t].begin, seen[t].end < all.begin ? seen[t].end : all.begin}, dim,
                     1);
    add_elements(x, value, j0, all, dim, T);
    for (int t = 0; t < T; t++)
        add_elements(x + t, value, j0,
                     (span){seen[t].begin > all.end ? seen[t].begin : all.end, seen[t].end}, dim,
                     1);
}

static const uint8_t *row_of(const plane *x, int64_t j)
{
    return x->p + (j - x->first) * x->row_bytes;
}

static void load_values(float *to, const plane *v, int32_t j, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        float_row(to + (int64_t)i * v->dim, v->type, row_of(v, j + i), v->dim);
}

/* What is beyond the rows is zero.  PIECE elements of 8 rows at a time: a thread's stack is small,
 * and a block uses nearly all of what there is. */
static void load_keys(float *block, const plane *x, int32_t j, int32_t n)
{
    enum { PIECE = 128 /* whole blocks of Q8_0 */ };
    float rows[8][PIECE];
    for (int32_t i = 0; i < (n + COLUMNS - 1) / COLUMNS * COLUMNS; i += 8)
        for (int32_t e0 = 0; e0 < x->dim; e0 += PIECE) {
            const int32_t width = x->dim - e0 < PIECE ? x->dim - e0 : PIECE;
            const int64_t at = type_row_bytes(x->type, e0);
            float *to = block + ((int64_t)(i / COLUMNS) * x->dim + e0) * COLUMNS + i % COLUMNS;
            for (int32_t r = 0; r < 8; r++)
                if (i + r < n)
                    float_row(rows[r], x->type, row_of(x, j + i + r) + at, width);
                else
                    memset(rows[r], 0, (size_t)width * 4);
            for (int32_t e = 0; e < width; e += 8) {
                __m256i v[8], w[8];
                for (int r = 0; r < 8; r++)
                    v[r] = _mm256_loadu_si256((const __m256i *)(rows[r] + e));
                transpose(w, v);
                for (int k = 0; k < 8 && e + k < width; k++)
                    _mm256_storeu_si256((__m256i *)(to + (int64_t)(e + k) * COLUMNS), w[k]);
            }
        }
}

static void score_part(const query *x, int32_t n_query, const plane *k, float scale, int32_t begin,
                       int32_t end)
{
    _Alignas(32) float block[BLOCK_FLOATS];
    if (k->type == AS_COLUMNS)
        begin -= (begin - k->first) % COLUMNS;
    for (int32_t j = begin, n; j < end; j += n) {
        const float *key =
            k->type == AS_COLUMNS ? (const float *)k->p + (int64_t)(j - k->first) * k->dim : block;
        n = end - j < positions_of(k->dim) ? end - j : positions_of(k->dim);
        if (k->type != AS_COLUMNS)
            load_keys(block, k, j, n);
        for (int32_t i = 0, tile; i < n_query; i += tile) {
            tile = tile_of(n_query - i);
            if (tile == QUERIES)
                score_columns(x + i, key, j, n, k->dim, scale, QUERIES, 2);
            else if (tile == FEW)
                score_columns(x + i, key, j, n, k->dim, scale, FEW, 2);
            else
                score_columns(x + i, key, j, n, k->dim, scale, 1, 4);
        }
    }
}

static void score_heads(const query *x, int32_t n_query, const plane *k, int32_t n_head,
                        float scale, int32_t begin, int32_t end)
{
    score_stripes(x, n_query, k, n_head, scale, begin, end);
}

static void value_part(const query *x, int32_t n_query, const plane *v, int32_t begin, int32_t end)
{
    _Alignas(32) float block[BLOCK_FLOATS];
    for (int32_t j = begin, n; j < end; j += n) {
        n = end - j < positions_of(v->dim) ? end - j : positions_of(v->dim);
        const float *value = v->type == T_F32 && v->row_bytes == (int64_t)v->dim * 4
            ? (const float *)row_of(v, j)
            : block;
        if (value == block)
            load_values(block, v, j, n);
        for (int32_t i = 0, tile; i < n_query; i += tile) {
            tile = tile_of(n_query - i);
            if (tile == QUERIES)
                add_values(x + i, value, j, n, v->dim, QUERIES);
            else if (tile == FEW)
                add_values(x + i, value, j, n, v->dim, FEW);
            else
                add_values(x + i, value, j, n, v->dim, 1);
        }
    }
}

static void attention_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    attend_items(arg, begin, end, thread);
}

/* avx2_decode.c */
void decode_avx2(void *y, int32_t type, const uint8_t *x, int64_t n_block);

const isa isa_avx2 = {
    "avx2",
    128,
    matmul_avx2,
    quantize_avx2,
    quantize_k_avx2,
    rmsnorm_avx2,
    rope_avx2,
    attention_avx2,
    silu_mul_avx2,
    gelu_mul_avx2,
    sigmoid_mul_avx2,
    soft_cap_avx2,
    causal_conv_avx2,
    delta_net_avx2,
    cache_store_avx2,
    NULL,
    NULL,
    0,
    AVX2_KC,
    AVX2_MIN_TOKENS,
    1,
    decode_avx2,
};
const isa isa_avx_vnni = {
    /* quantised products are its own */
    "avx-vnni",
    128,
    matmul_avx_vnni,
    quantize_avx2,
    quantize_k_avx2,
    rmsnorm_avx2,
    rope_avx2,
    attention_avx2,
    silu_mul_avx2,
    gelu_mul_avx2,
    sigmoid_mul_avx2,
    soft_cap_avx2,
    causal_conv_avx2,
    delta_net_avx2,
    cache_store_avx2,
    NULL,
    NULL,
    0,
    AVX2_KC,
    AVX2_MIN_TOKENS,
    1,
    decode_avx2,
};
#endif
