/* avx2.c - x86-64 with AVX2, FMA and F16C; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set: the compiler
 * may vectorise it as it likes, since no order of rounding is left open there. By
 * hand here: matrix products and attention.
 *
 * Quantised products.  A panel of 8 rows of weights, at most 1,024 elements long, is unpacked
 * once to int8 (any 32-block type gives the same panel) so that lane = row: one 32-byte
 * vector holds 4 neighbouring elements of each of the 8 rows.  An activation's 4 elements are
 * broadcast against it; maddubs wants an unsigned factor, so the sign moves from the weight to
 * the activation: |w| <= 128, |x| <= 127, two products at most 32,512: it cannot saturate.
 * The sums of a block come out as 8 lanes, ready for one convert, one multiply and one fma.
 * One panel serves all tokens of the call, a decode's single one too: unpacking is cheaper
 * than reading the weights from memory.
 *
 * F32, F16, BF16 products.  2 x 2 or 4 x 1 tiles of rows x tokens, each output in its
 * 16 lanes (two registers), as reference.c's dot. */
#ifdef __AVX2__
#include <immintrin.h>
#define NAME(f) f##_avx2
#include "reference.c"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 8, PANEL = 32, TOKENS = 4, TOKEN_BLOCK = 64, POSITIONS = 16, MAX_HEAD_DIM = 1024 };

/* ---- quantised weights ------------------------------------------------------------------ */

typedef struct {
    __m256i w[PANEL][BLOCK / 4]; /* i8 [block][group of 4][row][4] */
    __m256 d[PANEL], m[PANEL];   /* f32 [block][row] */
} panel;

/* 8 x 8 words of 32 bits: row r word g -> row g word r. */
INLINE void transpose(__m256i out[8], const __m256i in[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(in[2 * i], in[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = _mm256_unpacklo_epi64(a[4 * i + j], a[4 * i + 2 + j]);
            b[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(a[4 * i + j], a[4 * i + 2 + j]);
        }
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x20);
        out[4 + i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x31);
    }
}

/* 16 bytes of nibbles: elements 0 to 15 are the low halves, 16 to 31 the high ones. */
INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* Blocks b0 ... b0 + n_block - 1 of 8 rows.  next: where the panel after this one begins in each of its rows; eight
 * short streams are more than the processor's own prefetcher follows. */
static void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS], const uint8_t *const next[ROWS], int32_t b0,
                   int32_t n_block)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK);
    for (int32_t b = 0; b < n_block; b++) {
        __m256i w[ROWS];
        uint16_t d[ROWS], m[ROWS] = {0};
        for (int r = 0; r < ROWS; r++) {
            _mm_prefetch((const char *)(next[r] + b * block_bytes), _MM_HINT_T0);
            const uint8_t *x = row[r] + (b0 + b) * block_bytes;
            memcpy(&d[r], x, 2); /* all three blocks begin with d */
            if (type == T_Q8_0) {
                w[r] = _mm256_loadu_si256((const __m256i *)(x + offsetof(block_q8_0, q)));
            } else if (type == T_Q4_0) {
                w[r] = _mm256_sub_epi8(nibbles(x + offsetof(block_q4_0, q)), _mm256_set1_epi8(8));
            } else {
                w[r] = nibbles(x + offsetof(block_q4_1, q));
                memcpy(&m[r], x + offsetof(block_q4_1, m), 2);
            }
        }
        transpose(p->w[b], w);
        p->d[b] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)d));
        p->m[b] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)m));
    }
}

/* T tokens from token t on; y has what earlier panels of these rows added, unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, int64_t row, __m256i valid, int64_t t, int32_t b0,
                         int32_t n_block, int T, int with_min)
{
    const int32_t per_token = a->n / BLOCK;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[TOKENS];
    for (int i = 0; i < T; i++)
        sum[i] = b0 ? _mm256_maskload_ps(a->y + (t + i) * a->n_row + row, valid) : _mm256_setzero_ps();
    for (int32_t b = 0; b < n_block; b++) {
        __m256i isum[TOKENS];
        for (int i = 0; i < T; i++)
            isum[i] = _mm256_setzero_si256();
        for (int g = 0; g < BLOCK / 4; g++) {
            const __m256i w = p->w[b][g], size = _mm256_abs_epi8(w);
            for (int i = 0; i < T; i++) {
                int32_t four;
                memcpy(&four, a->q + (t + i) * a->n + (int64_t)(b0 + b) * BLOCK + g * 4, 4);
                const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(four), w);
                isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
            }
        }
        for (int i = 0; i < T; i++) {
            const int64_t at = (t + i) * per_token + b0 + b;
            const __m256 scale = _mm256_mul_ps(p->d[b], _mm256_set1_ps(a->d[at]));
            sum[i] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(isum[i]), sum[i]);
            if (with_min)
                sum[i] = _mm256_fmadd_ps(p->m[b], _mm256_set1_ps(a->s[at]), sum[i]);
        }
    }
    for (int i = 0; i < T; i++)
        _mm256_maskstore_ps(a->y + (t + i) * a->n_row + row, valid, sum[i]);
}

/* The 8 rows from `row` on; past the end the last row again, whose results are not stored. */
INLINE void rows_from(const uint8_t *w[ROWS], const matmul_args *a, int64_t row, int64_t end, int64_t row_bytes)
{
    for (int r = 0; r < ROWS; r++) {
        const int64_t i = row + r < end ? row + r : end - 1;
        w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[i] : i) * row_bytes;
    }
}

static void matmul_quantised(const matmul_args *a, int64_t begin, int64_t end)
{
    const int64_t row_bytes = type_row_bytes(a->type, a->n), block_bytes = type_row_bytes(a->type, BLOCK);
    const int32_t n_block = a->n / BLOCK;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    panel p;
    for (int64_t row = begin; row < end; row += ROWS) {
        const uint8_t *w[ROWS], *next[ROWS];
        const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(end - row < ROWS ? (int32_t)(end - row) : ROWS), lane);
        rows_from(w, a, row, end, row_bytes);
        for (int32_t b0 = 0; b0 < n_block; b0 += PANEL) {
            const int32_t n = n_block - b0 < PANEL ? n_block - b0 : PANEL;
            int64_t t = 0;
            if (b0 + PANEL < n_block)
                for (int r = 0; r < ROWS; r++)
                    next[r] = w[r] + (b0 + PANEL) * block_bytes;
            else
                rows_from(next, a, row + ROWS, end, row_bytes);
            unpack(&p, a->type, w, next, b0, n);
            for (int64_t T; t < a->n_tok; t += T) {
                T = a->n_tok - t >= TOKENS ? TOKENS : 1;
                if (T == TOKENS && a->type == T_Q4_1)
                    panel_tokens(a, &p, row, valid, t, b0, n, TOKENS, 1);
                else if (T == TOKENS)
                    panel_tokens(a, &p, row, valid, t, b0, n, TOKENS, 0);
                else
                    panel_tokens(a, &p, row, valid, t, b0, n, 1, a->type == T_Q4_1);
            }
        }
    }
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

typedef struct { __m256 lo, hi; } lanes; /* lanes 0 to 7, 8 to 15 */

INLINE lanes load_lanes(int32_t type, const uint8_t *x)
{
    if (type == T_F16)
        return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x)),
                       _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 16)))};
    if (type == T_BF16)
        return (lanes){
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x + 16))), 16))};
    return (lanes){_mm256_loadu_ps((const float *)x), _mm256_loadu_ps((const float *)x + 8)};
}

/* add_lanes of reference.c: halves on halves. */
INLINE float sum_lanes(lanes v)
{
    const __m256 eight = _mm256_add_ps(v.lo, v.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* y[r][t] (at y[t * stride + r]) = dots of R rows and T tokens. */
INLINE void tile(float *y, int64_t stride, const uint8_t *const w[], const float *const x[], int32_t n, int32_t type, int R, int T)
{
    lanes sum[4][4];
    const int width = type == T_F32 ? 4 : 2;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t k = 0; k < n; k += LANES) {
        lanes a[4], b[4];
        if (k + LANES <= n) {
            for (int r = 0; r < R; r++)
                a[r] = load_lanes(type, w[r] + (int64_t)k * width);
            for (int t = 0; t < T; t++)
                b[t] = load_lanes(T_F32, (const uint8_t *)(x[t] + k));
        } else {
            float zero[LANES];
            for (int r = 0; r < R; r++) {
                memset(zero, 0, sizeof zero);
                memcpy(zero, w[r] + (int64_t)k * width, (size_t)(n - k) * width);
                a[r] = load_lanes(type, (const uint8_t *)zero);
            }
            for (int t = 0; t < T; t++) {
                memset(zero, 0, sizeof zero);
                memcpy(zero, x[t] + k, (size_t)(n - k) * 4);
                b[t] = load_lanes(T_F32, (const uint8_t *)zero);
            }
        }
        for (int r = 0; r < R; r++)
            for (int t = 0; t < T; t++) {
                sum[r][t].lo = _mm256_fmadd_ps(a[r].lo, b[t].lo, sum[r][t].lo);
                sum[r][t].hi = _mm256_fmadd_ps(a[r].hi, b[t].hi, sum[r][t].hi);
            }
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            y[t * stride + r] = sum_lanes(sum[r][t]);
}

/* Rows begin ... end - 1, tokens t0 ... t1 - 1, in tiles; every tile is the same arithmetic. */
INLINE void tiles(const matmul_args *a, int64_t begin, int64_t end, int64_t t0, int64_t t1, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin, R; row < end; row += R) {
        const uint8_t *w[4];
        R = end - row >= 4 && t1 - t0 == 1 ? 4 : end - row >= 2 ? 2 : 1;
        for (int r = 0; r < R; r++)
            w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[row + r] : row + r) * row_bytes;
        for (int64_t t = t0, T; t < t1; t += T) {
            T = t1 - t >= 2 ? 2 : 1;
            const float *const x[2] = {a->x + t * a->n, a->x + (t + T - 1) * a->n};
            float *y = a->y + t * a->n_row + row;
            if (R == 2 && T == 2)
                tile(y, a->n_row, w, x, a->n, type, 2, 2);
            else if (R == 4)
                tile(y, a->n_row, w, x, a->n, type, 4, 1);
            else
                for (int r = 0; r < R; r++)
                    for (int i = 0; i < T; i++)
                        tile(y + i * a->n_row + r, a->n_row, w + r, x + i, a->n, type, 1, 1);
        }
    }
}

static void matmul_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    switch (a->type) {
    case T_F32: case T_F16: case T_BF16: break;
    case T_Q8_0: case T_Q4_0: case T_Q4_1: matmul_quantised(a, begin, end); return;
    default: matmul_reference(arg, begin, end, thread); return;
    }
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK) { /* a block of activations and these rows stay in cache */
        const int64_t t1 = t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok;
        if (a->type == T_F32)
            tiles(a, begin, end, t, t1, T_F32);
        else if (a->type == T_F16)
            tiles(a, begin, end, t, t1, T_F16);
        else
            tiles(a, begin, end, t, t1, T_BF16);
    }
}

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
    "avx2", matmul_avx2, quantize_avx2, quantize_k_avx2, rmsnorm_avx2, rope_avx2, attention_avx2, silu_mul_avx2, gelu_mul_avx2,
    cache_store_avx2,
};
#endif
