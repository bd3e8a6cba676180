/* neon_panel.c - GEMM of quantized weights, NEON with SDOT. i8mm.c compiles it again with SMMLA.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8, Y f32.
 * Micro-kernel: MR = 8 rows, NR = 4 tokens, KC <= 1,024 (PANEL or PANEL_K blocks).
 * Registers: 8 exact sums, lane = row. SDOT multiplies 4 elements of 4 rows by, per lane, 4 of a
 *   token. SMMLA multiplies 8 elements of 2 rows by those of 2 tokens: half the instructions, for
 *   one more shuffle of the tokens (8 elements of two side by side) and of the sums (rows and
 *   tokens alternate). A token without a partner is its own.
 * Packing: W to i8 panels [block][16 elements][lay_out]; X as it lies.
 * Overflow: none. Blocks of 256: group sums times the group's scale stay exact in int32, as do
 *   minima times the sums of the activations.
 * Result: bit-identical to reference.c. After a block one convert, one multiplication and one fma
 *   make the step in f32 for 4 outputs. */
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/arm/neon_unpack.h"
#include "kernels/set.h"
#ifndef SET
#define SET neon
#endif

enum { TOKENS = 4, TOKEN_BLOCK = 64, PANEL = 32, PANEL_K = 4 };

/* ---- exact sums of 8 rows and T tokens, in 2 T registers
 * ------------------------------------------ */

#ifdef WITH_SMMLA
/* tokens that can be multiplied at a time; registers of a scale of 8 rows */
enum { MIN_TOKENS = 2, N_SCALE = ROWS / 2 };

/* Elements 8 i ... 8 i + 7 of rows 2 p and 2 p + 1 in w[2 p + i]. */
INLINE void lay_out(int8x16_t w[ROWS], const int8x16_t row[ROWS])
{
    for (int p = 0; p < ROWS; p += 2) {
        w[p] = vreinterpretq_s8_s64(
            vtrn1q_s64(vreinterpretq_s64_s8(row[p]), vreinterpretq_s64_s8(row[p + 1])));
        w[p + 1] = vreinterpretq_s8_s64(
            vtrn2q_s64(vreinterpretq_s64_s8(row[p]), vreinterpretq_s64_s8(row[p + 1])));
    }
}

/* sum[4 u + p] += 16 elements of rows 2 p, 2 p + 1 times tokens 2 u, 2 u + 1: in this order {row,
 * row, next row, next row}. */
INLINE void add_16(int32x4_t sum[], const int8x16_t w[ROWS], const int8_t *x, int64_t stride, int T)
{
    int8x16_t first[TOKENS / 2], last[TOKENS / 2];
    for (int u = 0; u < T / 2; u++, x += 2 * stride) {
        const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(x)),
                        b = vreinterpretq_s64_s8(vld1q_s8(x + stride));
        first[u] = vreinterpretq_s8_s64(vtrn1q_s64(a, b)),
        last[u] = vreinterpretq_s8_s64(vtrn2q_s64(a, b));
    }
    for (int p = 0; p < ROWS / 2; p++) { /* all tokens stay in registers */
        for (int u = 0; u < T / 2; u++)
            sum[4 * u + p] = vmmlaq_s32(sum[4 * u + p], w[2 * p], first[u]);
        for (int u = 0; u < T / 2; u++)
            sum[4 * u + p] = vmmlaq_s32(sum[4 * u + p], w[2 * p + 1], last[u]);
    }
}

/* sum[2 t + h]: rows 4 h ... 4 h + 3 of token t. */
INLINE void lanes_are_rows(int32x4_t sum[], int T)
{
    for (int u = 0; u < T / 2; u++, sum += 4) {
        const int32x4_t s[4] = {sum[0], sum[1], sum[2], sum[3]};
        for (int h = 0; h < HALVES; h++) {
            sum[h] = vuzp1q_s32(s[2 * h], s[2 * h + 1]);
            sum[2 + h] = vuzp2q_s32(s[2 * h], s[2 * h + 1]);
        }
    }
}

/* Scales of 8 rows as sum[i] wants them: scale[i % N_SCALE]. */
INLINE void lay_out_scale(int32x4_t scale[N_SCALE], int16x8_t rows)
{
    const int32x4_t low = vmovl_s16(vget_low_s16(rows)), high = vmovl_high_s16(rows);
    scale[0] = vzip1q_s32(low, low), scale[1] = vzip2q_s32(low, low);
    scale[2] = vzip1q_s32(high, high), scale[3] = vzip2q_s32(high, high);
}
#else
enum { MIN_TOKENS = 1, N_SCALE = HALVES };

/* Elements 4 g ... 4 g + 3 of rows 4 h ... 4 h + 3 in w[4 h + g]: 4 x 4 words transposed. */
INLINE void lay_out(int8x16_t w[ROWS], const int8x16_t row[ROWS])
{
    for (int h = 0; h < ROWS; h += 4)
        for (int i = 0; i < 2; i++) {
            const int32x4_t a = vreinterpretq_s32_s8(row[h]), b = vreinterpretq_s32_s8(row[h + 1]);
            const int32x4_t c = vreinterpretq_s32_s8(row[h + 2]),
                            d = vreinterpretq_s32_s8(row[h + 3]);
            const int64x2_t ab = vreinterpretq_s64_s32(i ? vtrn2q_s32(a, b) : vtrn1q_s32(a, b));
            const int64x2_t cd = vreinterpretq_s64_s32(i ? vtrn2q_s32(c, d) : vtrn1q_s32(c, d));
            w[h + i] = vreinterpretq_s8_s64(vtrn1q_s64(ab, cd));
            w[h + 2 + i] = vreinterpretq_s8_s64(vtrn2q_s64(ab, cd));
        }
}

/* sum[2 t + h] += 16 elements of rows 4 h ... 4 h + 3 times token t. */
INLINE void add_16(int32x4_t sum[], const int8x16_t w[ROWS], const int8_t *x, int64_t stride, int T)
{
    int8x16_t token[TOKENS];
    for (int t = 0; t < T; t++)
        token[t] = vld1q_s8(x + t * stride);
#define DOT(g) \
    for (int t = 0; t < T; t++) /* all tokens stay in registers */ \
        sum[2 * t + h] = vdotq_laneq_s32(sum[2 * t + h], w[4 * h + g], token[t], g);
    for (int h = 0; h < HALVES; h++) {
        DOT(0) DOT(1) DOT(2) DOT(3)
    }
#undef DOT
}

INLINE void lanes_are_rows(int32x4_t sum[], int T) { (void)sum, (void)T; }

INLINE void lay_out_scale(int32x4_t scale[N_SCALE], int16x8_t rows)
{
    scale[0] = vmovl_s16(vget_low_s16(rows)), scale[1] = vmovl_high_s16(rows);
}
#endif

/* Tokens t, t + stride ... of a product with rows from `row` on: T of them, or the same one T times
 * where stride is 0. */
typedef struct {
    const matmul_args *a;
    int64_t row, end, t, stride;
} place;

INLINE void load_sums(float32x4_t sum[], const place *o, int32_t b0, int T)
{
    for (int i = 0; i < T; i++)
        if (b0) /* what earlier panels of these rows added */
            load_rows(sum + 2 * i, o->a->y + (o->t + i * o->stride) * o->a->n_row + o->row,
                      o->end - o->row);
        else
            sum[2 * i] = sum[2 * i + 1] = vdupq_n_f32(0);
}

INLINE void store_sums(const place *o, const float32x4_t sum[], int T)
{
    for (int i = 0; i < T; i++)
        store_rows(o->a->y + (o->t + i * o->stride) * o->a->n_row + o->row, sum + 2 * i,
                   o->end - o->row);
}

INLINE void set_zero(int32x4_t sum[], int T)
{
    for (int i = 0; i < 2 * T; i++)
        sum[i] = vdupq_n_s32(0);
}

/* ---- blocks of 32
 * ----------------------------------------------------------------------------------- */

typedef struct {
    int8x16_t w[PANEL][BLOCK / 16][ROWS];           /* [block][16 elements][lay_out] */
    float32x4_t d[PANEL][HALVES], m[PANEL][HALVES]; /* [block][row] */
} panel_32;

/* Block b of the panel, at byte `at` of 8 rows. */
INLINE void unpack_block_32(panel_32 *p, int32_t b, int32_t type, const uint8_t *const row[ROWS],
                            int64_t at)
{
    for (int k = 0; k < BLOCK / 16; k++) {
        int8x16_t w[ROWS];
        for (int r = 0; r < ROWS; r++)
            w[r] = weights_32(type, row[r] + at, k);
        lay_out(p->w[b][k], w);
    }
    scales_of_32(p->d[b], type, row, at); /* all blocks begin with d, then m */
    if (has_min(type))
        halves_of(p->m[b], row, at + offsetof(block_q4_1, m));
}

INLINE void panel_tokens_32(const place *o, const panel_32 *p, int32_t b0, int32_t n_block,
                            int32_t type, int T)
{
    const matmul_args *a = o->a;
    const int64_t per_token = a->n / BLOCK;
    float32x4_t sum[2 * TOKENS];
    load_sums(sum, o, b0, T);
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = o->t * per_token + b0 + b;
        int32x4_t isum[2 * TOKENS];
        set_zero(isum, T);
        for (int k = 0; k < BLOCK / 16; k++)
            add_16(isum, p->w[b][k], a->q + at * BLOCK + k * 16, o->stride * a->n, T);
        lanes_are_rows(isum, T);
        for (int i = 0; i < T; i++)
            for (int h = 0; h < HALVES; h++) {
                const int64_t token = at + i * o->stride * per_token;
                float32x4_t *s = &sum[2 * i + h];
                *s = vfmaq_f32(*s, vmulq_n_f32(p->d[b][h], a->d[token]),
                               vcvtq_f32_s32(isum[2 * i + h]));
                if (has_min(type))
                    *s = vfmaq_n_f32(*s, p->m[b][h], a->s[token]);
            }
    }
    store_sums(o, sum, T);
}

/* ---- blocks of 256
 * ------------------------------------------------------------------------------------ */

typedef struct {
    int8x16_t w[PANEL_K][N_GROUP][ROWS];                /* [block][16 elements][lay_out] */
    int32x4_t scale[PANEL_K][N_GROUP][N_SCALE];         /* [block][group][lay_out_scale] */
    int16x8_t min[PANEL_K][N_GROUP];                    /* [block][group][row] */
    float32x4_t d[PANEL_K][HALVES], m[PANEL_K][HALVES]; /* [block][row] */
} panel_256;

/* 8 rows of 16 bytes -> v[g / 2] has byte g of the 8 rows, g even in its lower half: three perfect
 * shuffles. */
INLINE void transpose_bytes(int8x16_t v[ROWS])
{
    for (int round = 0; round < 3; round++) {
        int8x16_t to[ROWS];
        for (int i = 0; i < ROWS / 2; i++) {
            to[2 * i] = vzip1q_s8(v[i], v[i + ROWS / 2]);
            to[2 * i + 1] = vzip2q_s8(v[i], v[i + ROWS / 2]);
        }
        memcpy(v, to, sizeof to);
    }
}

INLINE void unpack_block_256(panel_256 *p, int32_t b, int32_t type, const uint8_t *const row[ROWS],
                             int64_t at)
{
    int8x16_t w[ROWS], scale[ROWS], min[ROWS];
    for (int g = 0; g < N_GROUP; g++) {
        for (int r = 0; r < ROWS; r++)
            w[r] = weights_256(type, row[r] + at, g);
        lay_out(p->w[b][g], w);
    }
    for (int r = 0; r < ROWS; r++)
        scale[r] = group_scales(&min[r], type, row[r] + at);
    transpose_bytes(scale);
    for (int g = 0; g < N_GROUP; g++)
        lay_out_scale(p->scale[b][g],
                      g % 2 ? vmovl_high_s8(scale[g / 2]) : vmovl_s8(vget_low_s8(scale[g / 2])));
    scales_of_256(p->d[b], type, row, at);
    if (!has_min(type))
        return;
    transpose_bytes(min);
    for (int g = 0; g < N_GROUP; g++)
        p->min[b][g] = g % 2 ? vmovl_high_s8(min[g / 2]) : vmovl_s8(vget_low_s8(min[g / 2]));
    halves_of(p->m[b], row, at + at_d(type) + 2);
}

/* msum += the minima of 8 groups, `by` apart, times the sums of one token's groups. */
INLINE void add_minima(int32x4_t msum[HALVES], const int16x8_t *min, int by, int16x8_t sums)
{
#define ADD(g) \
    msum[0] = vmlal_laneq_s16(msum[0], vget_low_s16(min[g * by]), sums, g); \
    msum[1] = vmlal_high_laneq_s16(msum[1], min[g * by], sums, g);
    ADD(0) ADD(1) ADD(2) ADD(3) ADD(4) ADD(5) ADD(6) ADD(7)
#undef ADD
}

/* Minima times sums of a block and a token, whose sums are there; groups of 32 are two of 16: |sum|
 * <= 32 * 127. */
INLINE void minima_of(int32x4_t msum[HALVES], const int16x8_t min[N_GROUP], const int16_t *sums,
                      int32_t type)
{
    const int16x8_t low = vld1q_s16(sums), high = vld1q_s16(sums + 8);
    msum[0] = msum[1] = vdupq_n_s32(0);
    if (group_of(type) == 32) {
        add_minima(msum, min, 2, vpaddq_s16(low, high));
    } else {
        add_minima(msum, min, 1, low);
        add_minima(msum, min + 8, 1, high);
    }
}

/* The exact sums of a block and T tokens. */
INLINE void block_256(int32x4_t total[], const panel_256 *p, int32_t b, const int8_t *x,
                      int64_t stride, int32_t type, int T)
{
    set_zero(total, T);
    for (int g = 0; g < N_GROUP; g += group_of(type) / GROUP_K) {
        int32x4_t isum[2 * TOKENS];
        set_zero(isum, T);
        for (int k = g; k < g + group_of(type) / GROUP_K; k++)
            add_16(isum, p->w[b][k], x + k * GROUP_K, stride, T);
        for (int i = 0; i < 2 * T; i++)
            total[i] = vmlaq_s32(total[i], isum[i], p->scale[b][g][i % N_SCALE]);
    }
    lanes_are_rows(total, T);
}

INLINE void panel_tokens_256(const place *o, const panel_256 *p, int32_t b0, int32_t n_block,
                             int32_t type, int T)
{
    const matmul_args *a = o->a;
    const int64_t per_token = a->n / BLOCK_K;
    float32x4_t sum[2 * TOKENS];
    load_sums(sum, o, b0, T);
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = o->t * per_token + b0 + b;
        int32x4_t total[2 * TOKENS], msum[HALVES];
        block_256(total, p, b, a->q + at * BLOCK_K, o->stride * a->n, type, T);
        for (int i = 0; i < T; i++) {
            const int64_t token = at + i * o->stride * per_token;
            if (has_min(type))
                minima_of(msum, p->min[b], a->sums + token * N_GROUP, type);
            for (int h = 0; h < HALVES; h++) {
                float32x4_t *s = &sum[2 * i + h];
                *s = vfmaq_f32(*s, vmulq_n_f32(p->d[b][h], a->d[token]),
                               vcvtq_f32_s32(total[2 * i + h]));
                if (has_min(type))
                    *s =
                        vfmsq_f32(*s, vmulq_n_f32(p->m[b][h], a->d[token]), vcvtq_f32_s32(msum[h]));
            }
        }
    }
    store_sums(o, sum, T);
}

/* ---- both
 * ---------------------------------------------------------------------------------------------- */

/* one for the call: a copy for each type would be much of a thread's stack */
typedef union {
    panel_32 of_32;
    panel_256 of_256;
} panel;

INLINE void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS],
                   const uint8_t *const next[ROWS], int32_t b0, int32_t n_block)
{
    const int is_32 = is_of_32(type);
    const int64_t bytes = type_row_bytes(type, is_32 ? BLOCK : BLOCK_K);
    for (int32_t b = 0; b < n_block; b++) {
        for (int r = 0; r < ROWS; r++)
            prefetch(next[r] + (b0 + b) * bytes, bytes);
        if (is_32)
            unpack_block_32(&p->of_32, b, type, row, (b0 + b) * bytes);
        else
            unpack_block_256(&p->of_256, b, type, row, (b0 + b) * bytes);
    }
}

INLINE void panel_tokens(const place *o, const panel *p, int32_t b0, int32_t n_block, int32_t type,
                         int T)
{
    if (is_of_32(type))
        panel_tokens_32(o, &p->of_32, b0, n_block, type, T);
    else
        panel_tokens_256(o, &p->of_256, b0, n_block, type, T);
}

/* All rows, blocks b0 ... b0 + n_block - 1, tokens t0 ... t1 - 1. */
INLINE void panels(const matmul_args *a, panel *p, int64_t begin, int64_t end, int32_t b0,
                   int32_t n_block, int64_t t0, int64_t t1, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin; row < end; row += ROWS) {
        const uint8_t *w[ROWS], *next[ROWS];
        place o = {a, row, end, t0, 1};
        rows_from(w, ROWS, a, row, end, row_bytes);
        rows_from(next, ROWS, a, row + ROWS, end, row_bytes);
        unpack(p, type, w, next, b0, n_block);
        for (; o.t + TOKENS <= t1; o.t += TOKENS)
            panel_tokens(&o, p, b0, n_block, type, TOKENS);
        for (; o.t + 2 <= t1; o.t += 2)
            panel_tokens(&o, p, b0, n_block, type, 2);
        o.stride = 0;
        if (o.t < t1)
            panel_tokens(&o, p, b0, n_block, type, MIN_TOKENS);
    }
}

INLINE void matmul_of(const matmul_args *a, panel *p, int64_t begin, int64_t end, int32_t type)
{
    const int32_t n_block = a->n / (is_of_32(type) ? BLOCK : BLOCK_K),
                  max = is_of_32(type) ? PANEL : PANEL_K;
    for (int64_t t = 0; t < a->n_tok;
         t += TOKEN_BLOCK) /* a block of activations stays in cache for these rows */
        for (int32_t b0 = 0; b0 < n_block; b0 += max)
            panels(a, p, begin, end, b0, n_block - b0 < max ? n_block - b0 : max, t,
                   t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, type);
}

void NAME(matmul_panels)(const matmul_args *a, int64_t begin, int64_t end)
{
    panel p;
#define CALL(type) matmul_of(a, &p, begin, end, type)
    switch (a->type) {
        TYPES_32(CASE_OF_TYPE)
        TYPES_256(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
