/* reference.c - the arithmetic, defined.
 *
 * Every result of the engine is fixed here to the last bit: which operations are
 * rounded, and in which order.  All other kernels (avx2.c ...) give these bits and
 * are tested against this file with memcmp.  Only +, -, *, /, sqrt and fma of
 * IEEE 754 are used, each rounded to nearest even, so every processor agrees; an
 * fma is where fmaf is written and nowhere else (-ffp-contract=off).  Which NaN a NaN is, its sign
 * and payload, they leave open, and so does this file.  exp, tanh, SiLU and GELU
 * are in functions.h, the frequencies of RoPE, in f64, in rope_freq.c.
 *
 * The order of sums, and why:
 *
 * - Sums over f32 (dot) run in 16 lanes, element k in lane k mod 16, each lane by fma
 *   in ascending k, the lanes then added in halves: l + (l + 8), + 4, + 2, + 1.  16 is one
 *   register of AVX-512, two of AVX2, four of NEON; a shorter last group counts as
 *   filled up with zeros, which is what masked loads give.
 * - Products with weights in blocks, of activations in int8, are integers within a block and
 *   one f32 sum over blocks: reference_blocks.c.
 * - A score of attention is one sum, by fma in ascending elements: there are many positions, and a
 *   lane is one of them.  Attention finds the maximum of all scores first (exact in any order),
 *   then the exponentials, their sum in 16 lanes by position mod 16, and the values in ascending
 *   position, one fma each: scores may be split over threads by position, values by element, and no
 *   bit depends on the split.
 * - Layers with a state go through the tokens one after the other, whatever the length of a prompt:
 *   forms that take many at once round otherwise.  Columns of a state do not depend on each other.
 *
 * avx2.c, avx512.c and neon.c compile this file again (set.h) and replace what is faster by hand.
 */
#include <math.h>
#include <string.h>
#include "api/limits.h"
#include "formats/quant.h"
#include "kernels/attention_arguments.h"
#include "kernels/functions.h"
#include "kernels/reference.h"
#include "kernels/set.h"
#include "runtime/isa.h"

#ifndef SET
#define SET reference
#define IS_REFERENCE
#endif
#ifdef __F16C__
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

enum { LANES = 16, BLOCK = 32 };

/* ---- conversions: exact, so any instruction will do ----------------------------- */

static inline void f16_row(float *y, const uint16_t *x, int32_t n)
{
    int32_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#elif defined(__ARM_FEATURE_DOTPROD)
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#endif
    for (; i < n; i++)
        y[i] = f16_to_f32(x[i]);
}

static inline void bf16_row(float *y, const uint16_t *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = bits_f32((uint32_t)x[i] << 16);
}

/* w = d q of Q8_0, which is exact. */
static inline void q8_row(float *y, const block_q8_0 *x, int32_t n)
{
    for (int32_t b = 0; b < n / BLOCK; b++) {
        const float d = f16_to_f32(x[b].d);
        for (int i = 0; i < BLOCK; i++)
            y[b * BLOCK + i] = d * (float)x[b].q[i];
    }
}

/* y f32 [n] = x, F32, F16, BF16 or, in whole blocks, Q8_0 [n]. */
static inline void float_row(float *y, int32_t type, const void *x, int32_t n)
{
    if (type == T_Q8_0) {
        q8_row(y, x, n);
        return;
    }
    if (type == T_F16)
        f16_row(y, x, n);
    else if (type == T_BF16)
        bf16_row(y, x, n);
    else
        memcpy(y, x, (size_t)n * 4);
}

/* ---- sums ------------------------------------------------------------------------ */

static inline float add_lanes(float lane[LANES])
{
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

/* lane [16] += x y, 16 elements; then the same for a last group of n < 16. */
static inline void fma_lanes(float lane[LANES], const float *x, const float *y)
{
    for (int l = 0; l < LANES; l++)
        lane[l] = fmaf(x[l], y[l], lane[l]);
}

static inline void fma_tail(float lane[LANES], const float *x, const float *y, int32_t n)
{
    float a[LANES] = {0}, b[LANES] = {0};
    memcpy(a, x, (size_t)n * 4);
    memcpy(b, y, (size_t)n * 4);
    fma_lanes(lane, a, b);
}

static inline float dot(const float *x, const float *y, int32_t n)
{
    float lane[LANES] = {0};
    int32_t k = 0;
    for (; k + LANES <= n; k += LANES)
        fma_lanes(lane, x + k, y + k);
    if (k < n)
        fma_tail(lane, x + k, y + k, n - k);
    return add_lanes(lane);
}

/* ---- functions of functions.h ------------------------------------------------------- */

static void NAME(silu_mul)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->y[i] = gate_f32(a->y[i], a->y[i]) * a->x[i];
}

static void NAME(gelu_mul)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float x = a->y[i];
        /* 2 sqrt(2/pi), 0.044715 */
        const float z = (0x1.988454p0f * x) * fmaf(0x1.6e4e26p-5f * x, x, 1.0f);
        a->y[i] = gate_f32(x, z) * a->x[i];
    }
}

static void NAME(sigmoid_mul)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->y[i] = gate_f32(a->y[i], a->x[i]);
}

static void NAME(soft_cap)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const cap_args *a = arg;
    (void)thread;
    cap_all(a->x + begin, end - begin, a->cap);
}

/* ---- RMS norm: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 ---------------------- */

static void NAME(rmsnorm)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const rmsnorm_args *a = arg;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const float *x = a->x + row * a->n;
        float *y = a->y + row * a->n;
        const float r = 1.0f / sqrtf(dot(x, x, a->n) / (float)a->n + a->eps);
        for (int32_t i = 0; i < a->n; i++)
            y[i] = (x[i] * r) * a->w[i];
    }
}

/* ---- RoPE: Su et al. 2021, arXiv:2104.09864, eq. 34 --------------------------------- */

static void NAME(rope)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const rope_args *a = arg;
    (void)thread;
    const int32_t step = a->half ? 1 : 2, apart = a->half ? a->n_pair : 1;
    for (int64_t row = begin * a->n_head; row < end * a->n_head; row++) {
        float *x = a->x + row * a->head_dim;
        const float *cs = a->cs + row / a->n_head * a->n_pair * 2;
        for (int32_t i = 0; i < a->n_pair; i++) {
            const float c = cs[2 * i], s = cs[2 * i + 1], u = x[i * step], v = x[i * step + apart];
            x[i * step] = fmaf(u, c, -(v * s));
            x[i * step + apart] = fmaf(u, s, v * c);
        }
    }
}

/* ---- layers with a state ------------------------------------------------------------- */

/* A column is one sum, by fma from the oldest row on; the last rows become the state. */
static void NAME(causal_conv)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const conv_args *a = arg;
    const int32_t n_old = a->n_tap - 1;
    const int64_t n_x = a->n_x;
    (void)thread;
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * CONV_CHANNELS;
        const int32_t n = (int32_t)(a->n - first < CONV_CHANNELS ? a->n - first : CONV_CHANNELS);
        float w[MAX_CONV][CONV_CHANNELS] = {{0}}; /* transposed: a lane is a column */
        float *state = a->state + first;
        const float *x = a->x + first;
        for (int32_t i = 0; i < n; i++)
            for (int32_t j = 0; j < a->n_tap; j++)
                w[j][i] = a->w[(first + i) * a->n_tap + j];
        for (int64_t t = 0; t < a->n_tok; t++) {
            float sum[CONV_CHANNELS] = {0}, *y = a->y + t * a->n + first;
            for (int32_t j = 0; j < a->n_tap; j++) {
                const int64_t at = t - n_old + j;
                const float *row = at < 0 ? state + (at + n_old) * a->n : x + at * n_x;
                for (int32_t i = 0; i < n; i++)
                    sum[i] = fmaf(w[j][i], row[i], sum[i]);
            }
            if (a->silu)
                for (int32_t i = 0; i < n; i++)
                    y[i] = gate_f32(sum[i], sum[i]);
            else
                for (int32_t i = 0; i < n; i++)
                    y[i] = sum[i];
        }
        for (int64_t i = 0; i < n_old; i++) {
            const int64_t at = a->n_tok - n_old + i;
            memcpy(state + i * a->n, at < 0 ? state + (at + n_old) * a->n : x + at * n_x,
                   (size_t)n * 4);
        }
    }
}

/* The gated delta rule: Yang et al. 2024, arXiv:2412.06464, eq. 10; S here is theirs transposed.
 * A sum over the elements i of a key is four, by fma in ascending i, element i in sum i mod 4,
 * added as (0 + 2) + (1 + 3).  The decay is applied to S^T k, not to S before it. */
#ifdef IS_REFERENCE
static void delta_sums(float *y, float sum[DELTA_CHAINS][DELTA_COLUMNS])
{
    for (int j = 0; j < DELTA_COLUMNS; j++)
        y[j] = (sum[0][j] + sum[2][j]) + (sum[1][j] + sum[3][j]);
}

/* s f32 [dim, DELTA_COLUMNS]: S, columns of one head. */
static void delta_token(float *o, float *s, const float *q, const float *k, const float *v,
                        float decay, float beta, int32_t dim)
{
    float read[DELTA_CHAINS][DELTA_COLUMNS] = {{0}}, out[DELTA_CHAINS][DELTA_COLUMNS] = {{0}};
    float delta[DELTA_COLUMNS];
    for (int32_t i = 0; i < dim; i++)
        for (int j = 0; j < DELTA_COLUMNS; j++)
            read[i % DELTA_CHAINS][j] =
                fmaf(s[i * DELTA_COLUMNS + j], k[i], read[i % DELTA_CHAINS][j]);
    delta_sums(delta, read);
    for (int j = 0; j < DELTA_COLUMNS; j++)
        delta[j] = beta * fmaf(-decay, delta[j], v[j]);
    for (int32_t i = 0; i < dim; i++)
        for (int j = 0; j < DELTA_COLUMNS; j++) {
            const float x = fmaf(k[i], delta[j], decay * s[i * DELTA_COLUMNS + j]);
            s[i * DELTA_COLUMNS + j] = x;
            out[i % DELTA_CHAINS][j] = fmaf(x, q[i], out[i % DELTA_CHAINS][j]);
        }
    delta_sums(o, out);
}

/* For columns first ... first + n - 1 of a head, s as above. */
static void delta_block(const delta_args *a, float *s, int64_t head, int64_t first, int32_t n)
{
    float v[DELTA_COLUMNS] = {0}, o[DELTA_COLUMNS];
    for (int64_t t = 0; t < a->n_tok; t++) {
        const int64_t at = t * a->n_head + head, dim = a->dim;
        const int64_t key = (t * a->n_head_k + head % a->n_head_k) * dim;
        memcpy(v, a->v + at * dim + first, (size_t)n * 4);
        delta_token(o, s, a->q + key, a->k + key, v, a->decay[at], a->beta[at], a->dim);
        memcpy(a->o + at * dim + first, o, (size_t)n * 4);
    }
}
#else
#include "kernels/delta.h"
#endif

/* An item is DELTA_COLUMNS columns of a head's S, which stay in the processor's cache. */
static void NAME(delta_net)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const delta_args *a = arg;
    const int32_t dim = a->dim, n_block = (dim + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    _Alignas(64) float s[MAX_HEAD_DIM * DELTA_COLUMNS];
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        const int64_t head = item / n_block, first = item % n_block * DELTA_COLUMNS;
        const int32_t n = dim - first < DELTA_COLUMNS ? (int32_t)(dim - first) : DELTA_COLUMNS;
        float *state = a->state + head * dim * dim + first;
        if (n < DELTA_COLUMNS)
            memset(s, 0, (size_t)dim * DELTA_COLUMNS * 4);
        for (int64_t i = 0; i < dim; i++)
            memcpy(s + i * DELTA_COLUMNS, state + i * dim, (size_t)n * 4);
        delta_block(a, s, head, first, n);
        for (int64_t i = 0; i < dim; i++)
            memcpy(state + i * dim, s + i * DELTA_COLUMNS, (size_t)n * 4);
    }
}

/* ---- blocks in int8 --------------------------------------------------------------------- */

/* A block of n: q = the nearest integer to x (127 / max|x|); returns d = max|x| / 127.
 * A block without a value of 2^-100 or more is zero (127 / max|x| must be finite); one with an
 * infinity or NaN has d = NaN and zeros for q, so that the logits show it. */
static inline float quantize_q8_block(int8_t *q, const float *x, int n)
{
    /* of the bits without sign: exact, and NaN is above infinity is above the rest */
    uint32_t max = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t u = f32_bits(x[i]) & 0x7fffffff;
        max = u > max ? u : max;
    }
    const int usable = max < 0x7f800000 && max >= f32_bits(0x1p-100f);
    const float inverse = usable ? 127.0f / bits_f32(max) : 0.0f;
    for (int i = 0; i < n; i++)
        q[i] = (int8_t)(usable ? nearest(x[i] * inverse) : 0.0f);
    return usable ? bits_f32(max) / 127.0f : max < 0x7f800000 ? 0.0f : NAN;
}

/* ---- the cache ---------------------------------------------------------------------- */

/* F16: to nearest, ties to even; Q8_0: q and d of above, d then in F16.  What is beyond 65,504
 * becomes NaN rather than infinity, so that the logits show it: an infinite score would silently
 * weigh 0. */
static inline uint16_t cached_f16(float x)
{
    const uint16_t h = f32_to_f16(x);
    return (h & 0x7fff) == 0x7c00 ? h | 0x200 : h;
}

static void NAME(cache_store)(void *y, int32_t type, const float *x, int64_t n)
{
    if (type == T_F32) {
        memcpy(y, x, (size_t)n * 4);
        return;
    }
    int64_t i = 0;
    if (type == T_Q8_0) {
        for (block_q8_0 *b = y; i < n; i += BLOCK, b++)
            b->d = cached_f16(quantize_q8_block(b->q, x + i, BLOCK));
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        const __m128i h =
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m128i infinite =
            _mm_cmpeq_epi16(_mm_and_si128(h, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x7c00));
        _mm_storeu_si128((__m128i *)((uint16_t *)y + i),
                         _mm_or_si128(h, _mm_and_si128(infinite, _mm_set1_epi16(0x200))));
    }
#elif defined(__ARM_FEATURE_DOTPROD)
    for (; i + 4 <= n; i += 4) {
        const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i)));
        const uint16x4_t infinite = vceq_u16(vand_u16(h, vdup_n_u16(0x7fff)), vdup_n_u16(0x7c00));
        vst1_u16((uint16_t *)y + i, vorr_u16(h, vand_u16(infinite, vdup_n_u16(0x200))));
    }
#endif
    for (; i < n; i++)
        ((uint16_t *)y)[i] = cached_f16(x[i]);
}

/* ---- activations in int8: a row at a time ---------------------------------------------- */

static inline int32_t sum_q8(const int8_t *q, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

#ifndef WITHOUT_QUANTIZE
static void NAME(quantize)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const quantize_args *a = arg;
    (void)thread;
    for (int64_t n_block = a->n / BLOCK, b = begin * n_block; b < end * n_block; b++) {
        a->d[b] = quantize_q8_block(a->q + b * BLOCK, a->x + b * BLOCK, BLOCK);
        a->s[b] = a->d[b] * (float)sum_q8(a->q + b * BLOCK, BLOCK);
    }
}

static void NAME(quantize_k)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const quantize_args *a = arg;
    (void)thread;
    for (int64_t n_block = a->n / BLOCK_K, b = begin * n_block; b < end * n_block; b++)
        a->d[b] = quantize_q8_block(a->q + b * BLOCK_K, a->x + b * BLOCK_K, BLOCK_K);
    for (int64_t n_group = a->n / GROUP_K, g = begin * n_group; g < end * n_group; g++)
        a->sums[g] = (int16_t)sum_q8(a->q + g * GROUP_K, GROUP_K);
}
#endif

#ifdef IS_REFERENCE /* matrix products and attention: other sets write these by hand */

/* ---- matrix product --------------------------------------------------------------------- */

/* Weights of 16 or 32 bits, converted 16 at a time: the dot of above. */
static inline float dot_float(int32_t type, const uint8_t *w, const float *x, int32_t n)
{
    float lane[LANES] = {0}, part[LANES];
    const int width = type == T_F32 ? 4 : 2;
    int32_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        float_row(part, type, w + (int64_t)k * width, LANES);
        fma_lanes(lane, part, x + k);
    }
    if (k < n) {
        float_row(part, type, w + (int64_t)k * width, n - k);
        fma_tail(lane, part, x + k, n - k);
    }
    return add_lanes(lane);
}

/* The same of a block type that is multiplied by f32. */
static inline float dot_dequantized(int32_t type, const uint8_t *w, const float *x, int32_t n)
{
    enum { MAX_BLOCK = 64 };
    float lane[LANES] = {0}, part[MAX_BLOCK];
    const int32_t block = (int32_t)type_block(type);
    for (int32_t k = 0; k < n; k += block, w += type_row_bytes(type, block)) {
        dequantize_row(part, type, w, block);
        for (int32_t i = 0; i < block; i += LANES)
            fma_lanes(lane, part + i, x + k + i);
    }
    return add_lanes(lane);
}

void matmul_reference(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    (void)thread;
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    for (int64_t row = begin; row < end; row++) {
        const uint8_t *w = (const uint8_t *)a->w + (a->rows ? a->rows[row] : row) * row_bytes;
        if (type_facts(a->type)->activations > 1) {
            row_of_blocks(a->y + row, a, w);
            continue;
        }
        for (int64_t t = 0; t < a->n_tok; t++)
            a->y[t * a->n_row + row] = (type_block(a->type) > 1 ? dot_dequantized : dot_float)(
                a->type, w, a->x + t * a->n, a->n);
    }
}

/* ---- attention: Vaswani et al. 2017, arXiv:1706.03762, eq. 1; grouped queries: arXiv:2305.13245
 * ---- */

/* One head of one token.  score: f32 [p - first + 1] scratch, indexed from position first. */
static void attend_reference(const attention_args *a, float *score, int32_t t, int32_t head)
{
    const int32_t dim = a->head_dim, p = a->pos + t, head_kv = head / (a->n_head / a->n_head_kv);
    const int32_t first = a->window && p >= a->window ? p - a->window + 1 : 0;
    const int64_t head_bytes = type_row_bytes(a->type, dim), row = a->n_head_kv * head_bytes;
    const uint8_t *k = (const uint8_t *)a->k + head_kv * head_bytes,
                  *v = (const uint8_t *)a->v + head_kv * head_bytes;
    const float *q = a->q + ((int64_t)t * a->n_head + head) * dim;
    float *o = a->o + ((int64_t)t * a->n_head + head) * dim;
    float max = -INFINITY, lane[LANES] = {0}, value[MAX_HEAD_DIM];
    for (int32_t j = first; j <= p; j++) {
        float_row(value, a->type, k + j * row, dim);
        float sum = 0;
        for (int32_t i = 0; i < dim; i++)
            sum = fmaf(value[i], q[i], sum);
        score[j - first] = sum * a->scale;
    }
    if (a->cap != 0.0f)
        cap_all(score, p + 1 - first, a->cap);
    for (int32_t j = first; j <= p; j++)
        max = score[j - first] > max ? score[j - first] : max;
    for (int32_t j = first; j <= p; j++) {
        const float e = exp_f32(score[j - first] - max);
        score[j - first] = e;
        lane[j % LANES] += e;
    }
    memset(o, 0, (size_t)dim * 4);
    for (int32_t j = first; j <= p; j++) {
        float_row(value, a->type, v + j * row, dim);
        for (int32_t i = 0; i < dim; i++)
            o[i] = fmaf(score[j - first], value[i], o[i]);
    }
    const float inverse = 1.0f / add_lanes(lane);
    for (int32_t i = 0; i < dim; i++)
        o[i] = o[i] * inverse;
}

static void attention_reference(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const attention_args *a = arg;
    const int32_t group = a->n_head / a->n_head_kv;
    for (int64_t i = begin; i < end; i++) {
        const attention_item item = item_of(a, i);
        for (int32_t t = item.t0; t < item.t0 + item.n_tok; t++)
            for (int32_t h = item.head_kv * group; h < (item.head_kv + 1) * group; h++)
                attend_reference(a, a->scores + thread * a->n_scores, t, h);
    }
}

const isa isa_reference = {
    "reference",
    128,
    matmul_reference,
    quantize_reference,
    quantize_k_reference,
    rmsnorm_reference,
    rope_reference,
    attention_reference,
    silu_mul_reference,
    gelu_mul_reference,
    sigmoid_mul_reference,
    soft_cap_reference,
    causal_conv_reference,
    delta_net_reference,
    cache_store_reference,
    NULL,
    NULL,
    0,
    0,
    0,
    0,
    NULL,
};
#endif
