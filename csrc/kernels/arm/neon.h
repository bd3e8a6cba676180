/* neon.h - what products and attention share, and of products alone: dots of f32 in the 16 lanes of
 * reference.c, four registers, and 8 rows of blocks. */
#ifndef SLUICE_NEON_H
#define SLUICE_NEON_H
#include <arm_neon.h>
#include <string.h>
#include "formats/quant.h"
#include "kernels/rows.h"

/* elements that a step of tile takes; rows of a panel */
enum { STEP = 16, QUADS = STEP / 4, ROWS = 8, HALVES = ROWS / 4 };

/* neon_matmul.c */
void matmul_neon(const void *arg, int64_t begin, int64_t end, int32_t thread);
void matmul_i8mm(const void *arg, int64_t begin, int64_t end, int32_t thread); /* i8mm.c */
/* neon_panel.c: blocks, two tokens or more */
void matmul_panels_neon(const matmul_args *a, int64_t begin, int64_t end);

/* ---- f32 ------------------------------------------------------------------------------------ */

/* Elements 4 q ... 4 q + 3 of a step; FCVTL is exact. */
INLINE float32x4_t load_quad(int32_t type, const uint8_t *x, int q)
{
    if (type == T_F32)
        return vreinterpretq_f32_u8(vld1q_u8(x + 16 * q));
    const uint8x8_t half = vld1_u8(x + 8 * q);
    return type == T_F16 ? vcvt_f32_f16(vreinterpret_f16_u8(half))
                         : vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(half), 16));
}

/* add_lanes of reference.c: halves on halves. */
INLINE float sum_lanes(const float32x4_t v[QUADS])
{
    const float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* One step: R rows of w from byte k * width on, T tokens from element k on. */
INLINE void tile_step(float32x4_t sum[4][4][QUADS], const uint8_t *const w[],
                      const uint8_t *const x[], int32_t type, int R, int T)
{
    for (int q = 0; q < QUADS; q++) {
        float32x4_t b[4];
        for (int t = 0; t < T; t++)
            b[t] = load_quad(T_F32, x[t], q);
        for (int r = 0; r < R; r++) {
            const float32x4_t a = load_quad(type, w[r], q);
            for (int t = 0; t < T; t++)
                sum[r][t][q] = vfmaq_f32(sum[r][t][q], a, b[t]);
        }
    }
}

/* y[r][t] (at y[t * stride + r]) = dots of R rows and T tokens; a shorter last step is filled up
 * with zeros. */
INLINE void tile(float *y, int64_t stride, const uint8_t *const w[], const float *const x[],
                 int32_t n, int32_t type, int R, int T)
{
    const int width = type == T_F32 ? 4 : 2;
    const uint8_t *a[4], *b[4];
    float32x4_t sum[4][4][QUADS];
    int32_t k = 0;
    for (int r = 0; r < R; r++)
        for (int i = 0; i < T * QUADS; i++)
            sum[r][i / QUADS][i % QUADS] = vdupq_n_f32(0);
    for (; k + STEP <= n; k += STEP) {
        for (int r = 0; r < R; r++)
            a[r] = w[r] + (int64_t)k * width;
        for (int t = 0; t < T; t++)
            b[t] = (const uint8_t *)(x[t] + k);
        tile_step(sum, a, b, type, R, T);
    }
    if (k < n) {
        uint8_t rest[8][STEP * 4] = {{0}};
        for (int r = 0; r < R; r++)
            a[r] = memcpy(rest[r], w[r] + (int64_t)k * width, (size_t)(n - k) * width);
        for (int t = 0; t < T; t++)
            b[t] = memcpy(rest[4 + t], x[t] + k, (size_t)(n - k) * 4);
        tile_step(sum, a, b, type, R, T);
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            y[t * stride + r] = sum_lanes(sum[r][t]);
}

/* ---- 8 rows of blocks ------------------------------------------------------------------------ */

/* Halves of 8 rows; at: their byte in each of them. */
INLINE void halves_of(float32x4_t d[HALVES], const uint8_t *const row[ROWS], int64_t at)
{
    uint16_t bits[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&bits[r], row[r] + at, 2);
    for (int h = 0; h < HALVES; h++)
        d[h] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits + 4 * h)));
}

/* d of blocks of 32 of 8 rows; at: the byte of the blocks. */
INLINE void scales_of_32(float32x4_t d[HALVES], int32_t type, const uint8_t *const row[ROWS],
                         int64_t at)
{
    float of[ROWS];
    if (type != T_MXFP4) {
        halves_of(d, row, at);
        return;
    }
    for (int r = 0; r < ROWS; r++)
        of[r] = scale_of_e8m0(row[r][at]);
    for (int h = 0; h < HALVES; h++)
        d[h] = vld1q_f32(of + 4 * h);
}

/* d of blocks of 256 of 8 rows; at: the byte of the blocks. */
INLINE void scales_of_256(float32x4_t d[HALVES], int32_t type, const uint8_t *const row[ROWS],
                          int64_t at)
{
    float of[ROWS];
    if (type != T_BYTES_K) {
        halves_of(d, row, at + at_d(type));
        return;
    }
    for (int r = 0; r < ROWS; r++)
        memcpy(&of[r], row[r] + at + at_d(type), 4);
    for (int h = 0; h < HALVES; h++)
        d[h] = vld1q_f32(of + 4 * h);
}

/* The first n of 8 floats at y. */
INLINE void load_rows(float32x4_t v[HALVES], const float *y, int64_t n)
{
    float some[ROWS] = {0};
    if (n < ROWS)
        y = memcpy(some, y, (size_t)n * 4);
    for (int h = 0; h < HALVES; h++)
        v[h] = vld1q_f32(y + 4 * h);
}

INLINE void store_rows(float *y, const float32x4_t v[HALVES], int64_t n)
{
    float all[ROWS], *to = n < ROWS ? all : y;
    for (int h = 0; h < HALVES; h++)
        vst1q_f32(to + 4 * h, v[h]);
    if (n < ROWS)
        memcpy(y, all, (size_t)n * 4);
}

/* A block to come; 8 rows are more streams than a processor's own prefetcher follows. */
INLINE void prefetch(const uint8_t *block, int64_t bytes)
{
    for (int64_t line = 0; line < bytes; line += 64)
        __builtin_prefetch(block + line);
}
#endif
