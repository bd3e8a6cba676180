/* float_panel.h - GEMM of F32, F16 and BF16, for avx512_float.c and avx2_float.c, which define
 * VECTOR before they include it (set.h).
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X and Y f32.
 * Micro-kernel: MR = 4 rows, NR = 6 tokens (AVX2: 3, and half of the lanes at a time), KC steps of
 *   16 elements.
 * Registers: 24 sums; 10 loads serve 24 fma. AVX2: 12 sums, 7 loads for 12. With both factors from
 *   memory two fma units would need four loads a cycle; there are two.
 * Packing: W to f32 panels of 32 rows; X to micropanels of 6 tokens, float_pack.h.
 * Result: bit-identical to reference.c: each sum is the 16 lanes of its dot, elements ascending.
 *
 * The loops, from the inside:
 *
 * - A tile goes through a KC block. Its sums then wait in memory for the next block, all lanes of
 *   them: 24 stores and loads for 24 KC fma.
 * - A set of 6 tokens, whose KC block stays in the first-level cache, is multiplied by the 8 tiles
 *   of a panel.
 * - A panel is a KC block of 32 rows of weights, converted to f32 once and laid out as tiles read
 *   it. It stays in the second-level cache for 43 sets, which come from the third, 1 byte for 8
 *   products. Meanwhile the next panel's weights are prefetched: 32 short streams that the
 *   processor would not follow.
 * - The next KC block follows; after the last one the lanes of 43 sets are added, in the tree of
 *   reference.c.
 *
 * The sums that wait, 528 KB, are read seldom and may be in the third-level cache.  The
 * scheme is that of Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication",
 * doi:10.1145/1356052.1356053, but that lanes are elements: theirs are rows. */
#ifndef SLUICE_FLOAT_PANEL_H
#define SLUICE_FLOAT_PANEL_H
#include "kernels/float_pack.h"

/* The including file defines VECTOR and its operations (set.h), and
 *
 *     enum { VECTOR_LANES, NR, KC }: lanes of a register, tokens of a tile (6 or 3), steps
 *     of a KC block
 *     void load_16(float *to, type, const uint8_t *from, left): 16 weights in f32, zeros from the
 *     left'th on
 *     void fold_rows(float *y, float_sums sums, token, n): add_lanes of a token's sums with rows
 *     0 ... n - 1 */
enum { TILES = FLOAT_ROWS / FLOAT_TILE, TILE_STEP = FLOAT_TILE * FLOAT_LANES, LINE = 64 };

typedef struct { _Alignas(64) float w[TILES][KC][FLOAT_TILE][FLOAT_LANES]; } float_panel;

/* 4 rows and T tokens (6 or 3), VECTOR_LANES lanes, n_step steps.  The operand with fewer registers
 * is kept, the other one passes.  ahead: lines to prefetch meanwhile, one a step, or NULL. */
INLINE void multiply_tile(float *sums, const float *w, const float *x, int64_t n_step,
                          const float *ahead, int is_first, int T)
{
    VECTOR sum[FLOAT_TOKENS][FLOAT_TILE];
    for (int t = 0; t < T; t++)
        for (int r = 0; r < FLOAT_TILE; r++)
            sum[t][r] =
                is_first ? VECTOR_ZERO() : VECTOR_LOAD(sums + t * TILE_STEP + r * FLOAT_LANES);
    for (int64_t s = 0; s < n_step; s++, w += TILE_STEP, x += FLOAT_SET_STEP) {
        VECTOR kept[FLOAT_TILE];
        const int n_row = FLOAT_TILE, rows_kept = T >= n_row;
        if (ahead)
            __builtin_prefetch(ahead + s * FLOAT_LANES, 0, 2);
        for (int i = 0; i < (rows_kept ? n_row : T); i++)
            kept[i] = VECTOR_LOAD((rows_kept ? w : x) + i * FLOAT_LANES);
        for (int i = 0; i < (rows_kept ? T : n_row); i++) {
            VECTOR passing = VECTOR_LOAD((rows_kept ? x : w) + i * FLOAT_LANES);
            VECTOR_KEEP(passing);
            for (int j = 0; j < (rows_kept ? n_row : T); j++) {
                VECTOR *const to = rows_kept ? &sum[i][j] : &sum[j][i];
                *to = VECTOR_FMA(passing, kept[j], *to);
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int r = 0; r < FLOAT_TILE; r++)
            VECTOR_STORE(sums + t * TILE_STEP + r * FLOAT_LANES, sum[t][r]);
}

/* n_tile tiles of a panel and a set, or the first 3 tokens of it; the first of them prefetch the
 * next set. */
INLINE void multiply_set(float_sums sums, const float_panel *p, const float *x, int n_tile,
                         int64_t n_step, int is_first, int n_tok)
{
    const int T = n_tok < NR ? n_tok : NR;
    const float *const next = x + n_step * FLOAT_SET_STEP;
    int64_t n_prefetched = 0;
    for (int i = 0; i < n_tile; i++)
        for (int t = 0; t < n_tok; t += T)
            for (int l = 0; l < FLOAT_LANES; l += VECTOR_LANES, n_prefetched++)
                multiply_tile(
                    &sums[i][t][0][l], &p->w[i][0][0][l], x + t * FLOAT_LANES + l, n_step,
                    n_prefetched < FLOAT_TOKENS ? next + n_prefetched * n_step * FLOAT_LANES : NULL,
                    is_first, T);
}

/* Steps k ... k + n_step - 1 of n_tile tiles of rows that have n elements. */
INLINE void unpack_panel(float_panel *p, int32_t type, const uint8_t *const row[FLOAT_ROWS],
                         int n_tile, int64_t k, int64_t n_step, int64_t n)
{
    const int width = type == T_F32 ? 4 : 2;
    for (int r = 0; r < n_tile * FLOAT_TILE; r++)
        for (int64_t s = 0, e = k * FLOAT_LANES; s < n_step; s++, e += FLOAT_LANES)
            load_16(p->w[r / FLOAT_TILE][s][r % FLOAT_TILE], type, row[r] + e * width, n - e);
}

/* The rows from `row` on; past the end the last one again, whose results are not stored. As
 * rows_from of rows.h, through which the compiler arranges this loop in another way. */
INLINE void rows_of_panel(const uint8_t *w[FLOAT_ROWS], const matmul_args *a, int64_t row,
                          int64_t end)
{
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    for (int r = 0; r < FLOAT_ROWS; r++) {
        const int64_t i = row + r < end ? row + r : end - 1;
        w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[i] : i) * row_bytes;
    }
}

/* Prefetches part `part` of n_part of bytes begin ... end - 1 of the rows. */
INLINE void prefetch_bytes(const uint8_t *const row[FLOAT_ROWS], int64_t begin, int64_t end,
                           int64_t part, int64_t n_part)
{
    const int64_t n_line = (end - begin + LINE - 1) / LINE, all = n_line * FLOAT_ROWS;
    for (int64_t i = all * part / n_part; i < all * (part + 1) / n_part; i++)
        __builtin_prefetch(row[i / n_line] + begin + i % n_line * LINE, 0, 2);
}

/* All KC blocks of n_tile tiles of rows and of sets s0 ... s1 - 1.  next: the rows that follow. */
INLINE void multiply_rows(float_sums *sums, const matmul_args *a,
                          const uint8_t *const w[FLOAT_ROWS], const uint8_t *const next[FLOAT_ROWS],
                          int n_tile, int64_t s0, int64_t s1, int32_t type)
{
    const int64_t n_set = float_sets(a->n_tok), n_step = float_steps(a->n),
                  row_bytes = type_row_bytes(type, a->n);
    const int64_t step_bytes = FLOAT_LANES * (type == T_F32 ? 4 : 2);
    float_panel p;
    for (int64_t k = 0, end; k < n_step; k = end) {
        end = k + KC < n_step ? k + KC : n_step;
        const int64_t from = end < n_step ? end * step_bytes : 0, to = from + KC * step_bytes;
        unpack_panel(&p, type, w, n_tile, k, end - k, a->n);
        for (int64_t s = s0; s < s1; s++) {
            const float *x = (const float *)a->packed + float_at(n_set, s, k, end - k);
            const int is_short = a->n_tok - s * FLOAT_TOKENS <= FLOAT_TOKENS / 2;
            prefetch_bytes(from ? w : next, from, to < row_bytes ? to : row_bytes, s - s0, s1 - s0);
            if (is_short)
                multiply_set(sums[s - s0], &p, x, n_tile, end - k, k == 0, FLOAT_TOKENS / 2);
            else if (k == 0)
                multiply_set(sums[s - s0], &p, x, n_tile, end - k, 1, FLOAT_TOKENS);
            else
                multiply_set(sums[s - s0], &p, x, n_tile, end - k, 0, FLOAT_TOKENS);
        }
    }
}

INLINE void multiply_floats(const matmul_args *a, int64_t begin, int64_t end, int32_t thread,
                            int32_t type)
{
    const int64_t n_set = float_sets(a->n_tok);
    float_sums *sums =
        (float_sums *)((uint8_t *)a->packed + float_bytes(a->n_tok, a->n)) + thread * FLOAT_SETS;
    for (int64_t s0 = 0, s1; s0 < n_set; s0 = s1) {
        s1 = s0 + FLOAT_SETS < n_set ? s0 + FLOAT_SETS : n_set;
        for (int64_t row = begin; row < end; row += FLOAT_ROWS) {
            const int n_row = end - row < FLOAT_ROWS ? (int)(end - row) : FLOAT_ROWS;
            const uint8_t *w[FLOAT_ROWS], *next[FLOAT_ROWS];
            rows_of_panel(w, a, row, end);
            rows_of_panel(next, a, row + FLOAT_ROWS < end ? row + FLOAT_ROWS : begin, end);
            multiply_rows(sums, a, w, next, (n_row + FLOAT_TILE - 1) / FLOAT_TILE, s0, s1, type);
            for (int64_t t = s0 * FLOAT_TOKENS; t < s1 * FLOAT_TOKENS && t < a->n_tok; t++)
                fold_rows(a->y + t * a->n_row + row, sums[t / FLOAT_TOKENS - s0],
                          (int)(t % FLOAT_TOKENS), n_row);
        }
    }
}

/* Rows begin ... end - 1, tokens packed. */
INLINE void multiply_packed(const matmul_args *a, int64_t begin, int64_t end, int32_t thread)
{
    switch (a->type) {
    case T_F32: multiply_floats(a, begin, end, thread, T_F32); break;
    case T_F16: multiply_floats(a, begin, end, thread, T_F16); break;
    default: multiply_floats(a, begin, end, thread, T_BF16);
    }
}
#endif
