/* neon_matmul.c - GEMV (one token) of quantized weights, and products of floats, NEON with SDOT.
 * Y[row] = sum_k X[k] * W[row][k]; X int8, or f32 for floats; Y f32.
 * Micro-kernel: 8 rows as they are stored, lane = element. The 4 lanes of each row's exact sums are
 *   added at the end of a block, so that the step in f32 has lane = row.
 * Packing: none. Floats: 2 x 2 or 4 x 1 tiles of rows x tokens, neon.h.
 * Overflow: none; reference_blocks.c gives the bounds.
 * Result: bit-identical to reference.c. More tokens and blocks: neon_panel.c. */
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/arm/neon_unpack.h"

/* ---- one token ------------------------------------------------------------------------------ */

/* The sum of the 4 lanes of x[r] in lane r. */
INLINE int32x4_t fold(const int32x4_t x[4])
{
    return vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3]));
}

/* The exact sum of a block of 32 of one row in 4 lanes. */
INLINE int32x4_t row_block_32(int32_t type, const uint8_t *block, const int8_t *x)
{
    const int32x4_t low = vdotq_s32(vdupq_n_s32(0), weights_32(type, block, 0), vld1q_s8(x));
    return vdotq_s32(low, weights_32(type, block, 1), vld1q_s8(x + 16));
}

INLINE void rows_token_32(const matmul_args *a, int64_t row, int64_t end, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n), bytes = type_row_bytes(type, BLOCK),
                  n_block = a->n / BLOCK;
    const uint8_t *w[ROWS], *next[ROWS];
    float32x4_t sum[HALVES] = {vdupq_n_f32(0), vdupq_n_f32(0)}, d[HALVES], m[HALVES];
    rows_from(w, ROWS, a, row, end, row_bytes);
    rows_from(next, ROWS, a, row + ROWS < end ? row + ROWS : row, end, row_bytes);
    for (int64_t b = 0, at = 0; b < n_block; b++, at += bytes) {
        int32x4_t isum[ROWS];
        for (int r = 0; r < ROWS; r++) {
            prefetch(next[r] + at, bytes);
            isum[r] = row_block_32(type, w[r] + at, a->q + b * BLOCK);
        }
        scales_of_32(d, type, w, at);
        if (has_min(type))
            halves_of(m, w, at + offsetof(block_q4_1, m));
        for (int h = 0; h < HALVES; h++) {
            sum[h] =
                vfmaq_f32(sum[h], vmulq_n_f32(d[h], a->d[b]), vcvtq_f32_s32(fold(isum + 4 * h)));
            if (has_min(type))
                sum[h] = vfmaq_n_f32(sum[h], m[h], a->s[b]);
        }
    }
    store_rows(a->y + row, sum, end - row);
}

/* The exact sum of a block of 256 of one row in 4 lanes; *msum: that of the minima.  Lanes of four
 * groups are added first, so that one multiplication brings in four scales. */
INLINE int32x4_t row_block_256(int32x4_t *msum, int32_t type, const uint8_t *block, const int8_t *x,
                               const int16_t *sums)
{
    int8x16_t min;
    const int8x16_t scale = group_scales(&min, type, block);
    const int16x8_t low = vmovl_s8(vget_low_s8(scale)), high = vmovl_high_s8(scale);
    const int32x4_t scales[4] = {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                                 vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
    int32x4_t total = vdupq_n_s32(0);
    for (int j = 0; j < N_GROUP; j += 4) {
        int32x4_t group[4];
        for (int i = 0; i < 4; i++)
            group[i] = vdotq_s32(vdupq_n_s32(0), weights_256(type, block, j + i),
                                 vld1q_s8(x + (j + i) * GROUP_K));
        total = vmlaq_s32(total, fold(group), scales[j / 4]);
    }
    if (has_min(type)) {
        const int16x8_t first = vmovl_s8(vget_low_s8(min)), last = vmovl_high_s8(min),
                        s = vld1q_s16(sums), t = vld1q_s16(sums + 8);
        *msum = vmlal_high_s16(vmull_s16(vget_low_s16(first), vget_low_s16(s)), first, s);
        *msum = vmlal_high_s16(vmlal_s16(*msum, vget_low_s16(last), vget_low_s16(t)), last, t);
    }
    return total;
}

INLINE void rows_token_256(const matmul_args *a, int64_t row, int64_t end, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n), bytes = type_row_bytes(type, BLOCK_K),
                  n_block = a->n / BLOCK_K;
    const uint8_t *w[ROWS], *next[ROWS];
    float32x4_t sum[HALVES] = {vdupq_n_f32(0), vdupq_n_f32(0)}, d[HALVES], m[HALVES];
    rows_from(w, ROWS, a, row, end, row_bytes);
    rows_from(next, ROWS, a, row + ROWS < end ? row + ROWS : row, end, row_bytes);
    for (int64_t b = 0, at = 0; b < n_block; b++, at += bytes) {
        int32x4_t total[ROWS], msum[ROWS];
        for (int r = 0; r < ROWS; r++) {
            prefetch(next[r] + at, bytes);
            total[r] =
                row_block_256(&msum[r], type, w[r] + at, a->q + b * BLOCK_K, a->sums + b * N_GROUP);
        }
        scales_of_256(d, type, w, at);
        if (has_min(type))
            halves_of(m, w, at + at_d(type) + 2);
        for (int h = 0; h < HALVES; h++) {
            sum[h] =
                vfmaq_f32(sum[h], vmulq_n_f32(d[h], a->d[b]), vcvtq_f32_s32(fold(total + 4 * h)));
            if (has_min(type))
                sum[h] = vfmsq_f32(sum[h], vmulq_n_f32(m[h], a->d[b]),
                                   vcvtq_f32_s32(fold(msum + 4 * h)));
        }
    }
    store_rows(a->y + row, sum, end - row);
}

INLINE void rows_token(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    for (int64_t row = begin; row < end; row += ROWS)
        if (is_of_32(type))
            rows_token_32(a, row, end, type);
        else
            rows_token_256(a, row, end, type);
}

static void matmul_token(const matmul_args *a, int64_t begin, int64_t end)
{
#define CALL(type) rows_token(a, begin, end, type)
    switch (a->type) {
        TYPES_32(CASE_OF_TYPE)
        TYPES_256(CASE_OF_TYPE)
    }
#undef CALL
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

#include "kernels/tiles.h"

void matmul_neon(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    (void)thread;
    switch (a->type) {
    case T_F32: matmul_float(a, begin, end, T_F32); break;
    case T_F16: matmul_float(a, begin, end, T_F16); break;
    case T_BF16: matmul_float(a, begin, end, T_BF16); break;
    default: (a->n_tok == 1 ? matmul_token : matmul_panels_neon)(a, begin, end);
    }
}
#endif
