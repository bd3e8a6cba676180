/* avx512_panels.h - the walk of avx512_matmul.c and avx512_kquant.c over rows, sets of tokens and
 * panels: a panel is unpacked once and multiplied by up to 96 sets, whose sums are kept here
 * between it and the next panel of the same rows.  Meanwhile the next panel's weights, 32 short
 * streams that the processor would not follow, are prefetched. */
#ifndef SLUICE_AVX512_PANELS_H
#define SLUICE_AVX512_PANELS_H
#include "kernels/x86/avx512_pack.h"

/* The file's own: enum { PANEL, PANEL_BLOCK }: blocks of a panel, elements of a block; panel;
 * packed_set: a block of a set; and void unpack(panel *p, int32_t type, const uint8_t *const
 * row[ROWS], int32_t b0, int32_t n): blocks b0 ... b0 + n - 1 of 32 rows; void add_set(const panel
 * *p, const packed_set *x, int64_t n_all, const float (*from)[ROWS], float (*to)[ROWS], int32_t n,
 * type, n_tok): to = from + n blocks of a set, [token][row]; the next set, n_all blocks on, is
 * prefetched. */
enum { SETS = 96 };

/* [set][token][row].  Not in y, whose rows lie a power of two apart as often as not: then some
 * hundred tokens share a few sets of the caches, and evict each other. */
typedef float kept_sums[SETS][NR][ROWS];
static const float zero[NR][ROWS];

/* 32 rows from `row` on, blocks b0 and on up to a panel of them, sets s0 ... s1 - 1.  The panel
 * after this one begins at row `after`, block b_after. */
INLINE void panel_of(kept_sums kept, const matmul_args *a, int64_t row, int64_t end, int32_t b0,
                     int64_t s0, int64_t s1, int64_t after, int32_t b_after, int32_t type)
{
    const int64_t block_bytes = type_row_bytes(type, PANEL_BLOCK), n_block = a->n / PANEL_BLOCK,
                  row_bytes = n_block * block_bytes;
    const int32_t n = n_block - b0 < PANEL ? (int32_t)(n_block - b0) : PANEL;
    const int64_t after_bytes =
        (n_block - b_after < PANEL ? n_block - b_after : PANEL) * block_bytes;
    const __mmask16 valid[2] = {first_lanes(end - row), first_lanes(end - row - HALF)};
    const int is_last = b0 + n == n_block;
    const uint8_t *w[ROWS], *next[ROWS];
    panel p;
    rows_from(w, ROWS, a, row, end, row_bytes);
    rows_from(next, ROWS, a, after, end, row_bytes);
    unpack(&p, type, w, b0, n);
    __asm__ volatile("" : : : "memory"); /* nothing of it is worth a register */
    for (int64_t s = s0; s < s1; s++) {
        const packed_set *x = (const packed_set *)a->packed + s * n_block + b0;
        float (*const sums)[ROWS] = kept[s - s0], *y = a->y + s * NR * a->n_row + row;
        const int n_tok = a->n_tok - s * NR < NR ? (int)(a->n_tok - s * NR) : NR;
        for (int64_t r = (s - s0) * ROWS / (s1 - s0); r < (s - s0 + 1) * ROWS / (s1 - s0); r++)
            for (int64_t line = 0; line < after_bytes; line += 64)
                _mm_prefetch((const char *)next[r] + b_after * block_bytes + line, _MM_HINT_T1);
        if (is_last)
            prefetch_results(y, a->n_row);
        add_set(&p, x, n_block, b0 ? (const float (*)[ROWS])sums : zero, sums, n, type, n_tok);
        if (is_last)
            store_results(y, a->n_row, (const float (*)[ROWS])sums, n_tok, valid);
    }
}

/* Rows begin ... end - 1, all tokens. */
INLINE void matmul_panels(kept_sums kept, const matmul_args *a, int64_t begin, int64_t end,
                          int32_t type)
{
    const int64_t n_set = sets_of_6(a->n_tok);
    const int32_t n_block = a->n / PANEL_BLOCK;
    for (int64_t row = begin; row < end; row += ROWS)
        for (int64_t s0 = 0, s1; s0 < n_set; s0 = s1) {
            s1 = s0 + SETS < n_set ? s0 + SETS : n_set;
            for (int32_t b0 = 0; b0 < n_block; b0 += PANEL) {
                const int is_last = b0 + PANEL >= n_block;
                panel_of(kept, a, row, end, b0, s0, s1, is_last && s1 == n_set ? row + ROWS : row,
                         is_last ? 0 : b0 + PANEL, type);
            }
        }
}
#endif
