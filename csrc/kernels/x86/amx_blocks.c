/* amx_blocks.c - GEMM of blocks of 32, AMX-INT8.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 32, Y f32.
 * Micro-kernel: MR = 16 rows (half a panel), NR = 16 tokens, KC <= 2,048 (next_kc_block).
 * Registers: a tile of weights, one of tokens and a ring of tiles of sums; 16 zmm of results.
 * Packing: W to i8 rows of a panel; X to micropanels of 16 tokens, amx.c.
 * Overflow: none; 32 * 128 * 127 < 2^19.
 * Result: bit-identical to reference.c.
 *
 * Each block needs tiles of its own, half full, and its own step in f32. That step is the larger
 * part of the work, all the more as a tile instruction halves, for a while, the speed of 512-bit
 * multiplications, fma, conversions and integer products. Additions keep theirs, so two additions
 * make a sum f32. The results of 16 rows and 16 tokens stay in registers over the blocks of a
 * panel, and the tiles run ahead: while block b is scaled, the sums of b + 1 are stored and those
 * of b + 3 begin in the same tile. Tile instructions stand between rows of scaling, and go on from
 * a pair of rows and tokens to the next.
 *
 * Tiles of bf16 would give the same sums, exact and converted: 36 cycles a block where all lies in
 * the first-level cache, for 47 here. But twice the bytes come from the second, which costs more
 * than it saves. */
#ifdef __AVX512VNNI__
#include <string.h>
#include "kernels/x86/amx_operands.h"

enum { PANEL = 32, RING = 2 };

typedef struct {
    int8_t w[PANEL][HALF][BLOCK];         /* [block][row][element] */
    float d[PANEL][HALF], m[PANEL][HALF]; /* [block][row] */
} half_panel __attribute__((aligned(64)));

INLINE void unpack_half(half_panel *p, int32_t type, const uint8_t *const row[HALF], int32_t b0,
                        int32_t n_block)
{
    const int64_t bytes = type_row_bytes(type, BLOCK);
    const __m256i offset = _mm256_set1_epi8((char)(type == T_Q8_0 ? 0 : offset_of(type)));
    /* all of them first: a load of 16 that follows their stores at once would wait */
    uint16_t d[PANEL][HALF], m[PANEL][HALF];
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = (b0 + b) * bytes;
        for (int r = 0; r < HALF; r++) {
            _mm256_store_si256((__m256i *)p->w[b][r],
                               _mm256_sub_epi8(block_bytes_of(type, row[r] + at), offset));
            memcpy(&d[b][r], row[r] + at, 2); /* all blocks begin with d, then m */
            if (has_min(type))
                memcpy(&m[b][r], row[r] + at + 2, 2);
        }
    }
    for (int32_t b = 0; b < n_block; b++) {
        _mm512_storeu_ps(p->d[b], scales_of_32(type, _mm256_loadu_si256((const __m256i *)d[b])));
        if (has_min(type))
            _mm512_storeu_ps(p->m[b], _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)m[b])));
    }
}

/* The sums of a block with a set of tokens, x, into tile `sum`, by way of tiles w and q. */
#define BLOCK_SUMS(sum, w_tile, q_tile, p, b, x) \
    do { \
        TILE_ZERO(sum); \
        TILE_LOAD(w_tile, (p)->w[b], BLOCK); \
        TILE_LOAD(q_tile, (x)->q, 64); \
        TILE_DOT_INT8(sum, w_tile, q_tile); \
    } while (0)

/* Sums of a block, below 2^20, as f32: the bits of a float from 2^23 to 2^24 count its integer, so
 * those of 3 * 2^22 plus v are those of 3 * 2^22 and v. */
INLINE __m512 as_floats(__m512i v)
{
    return _mm512_sub_ps(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_set1_epi32(0x4b400000), v)),
                         _mm512_set1_ps(0x1.8p23f));
}

/* Block b of a panel with a set: the step in f32 of rows begin ... end - 1. */
INLINE void scale_rows(__m512 sum[HALF], const sums *isum, const half_panel *p, int32_t b,
                       const tokens_32 *x, int begin, int end, int32_t type)
{
#pragma GCC unroll 16
    for (int r = begin; r < end; r++) {
        const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(p->d[b][r]), x->d);
        sum[r] = _mm512_fmadd_ps(scale, as_floats(_mm512_load_si512(isum->of[r])), sum[r]);
        if (has_min(type))
            sum[r] = _mm512_fmadd_ps(_mm512_set1_ps(p->m[b][r]), x->s, sum[r]);
    }
}

/* A half of a panel, and a set of tokens from the same block on. */
typedef struct {
    const half_panel *p;
    const tokens_32 *x;
} pair;

/* A pair, n_block blocks: results come from `from` and go to `y`.  `begun`: the pair before has
 * started this one's first three blocks, as this one does for `next`, if there is one. */
INLINE void pair_sums(results *y, const results *from, sums isum[RING], const pair *now,
                      const pair *next, int begun, int32_t n_block, int32_t type)
{
    const half_panel *const p = now->p;
    const tokens_32 *const x = now->x;
    __m512 sum[HALF];
    for (int r = 0; r < HALF; r++)
        sum[r] = from->of[r];
    if (!begun) {
        BLOCK_SUMS(0, 4, 6, p, 0, x);
        if (n_block > 1)
            BLOCK_SUMS(1, 5, 7, p, 1, x + 1);
        TILE_STORE(0, &isum[0], 64);
        if (n_block > 2)
            BLOCK_SUMS(0, 4, 6, p, 2, x + 2);
    }
/* Block b, b % RING being i and `other` the other; tiles are numbers as written. */
#define STEP(b, i, other, w_tile, q_tile) \
    if ((b) < n_block) { \
        const int32_t ahead = (b) + 3 < n_block ? (b) + 3 : (b) + 3 - n_block; \
        const pair *const of = (b) + 3 < n_block ? now : next; \
        if (of) \
            TILE_LOAD(w_tile, of->p->w[ahead], BLOCK); \
        scale_rows(sum, &isum[i], p, b, x + (b), 0, 4, type); \
        if (of) \
            TILE_LOAD(q_tile, of->x[ahead].q, 64); \
        scale_rows(sum, &isum[i], p, b, x + (b), 4, 8, type); \
        if ((b) + 1 < n_block || next) \
            TILE_STORE(other, &isum[other], 64); \
        if (of) \
            TILE_ZERO(other); \
        scale_rows(sum, &isum[i], p, b, x + (b), 8, 12, type); \
        if (of) \
            TILE_DOT_INT8(other, w_tile, q_tile); \
        scale_rows(sum, &isum[i], p, b, x + (b), 12, HALF, type); \
    }
    for (int32_t b = 0; b < n_block; b += RING) {
        STEP(b, 0, 1, 5, 7)
        STEP(b + 1, 1, 0, 4, 6)
    }
#undef STEP
    for (int r = 0; r < HALF; r++)
        y->of[r] = sum[r];
}

/* Of a call. */
typedef struct {
    half_panel p[2];
    sums isum[RING];
    results y[2][TOKEN_BLOCK / TOKENS];
} workspace;

static const results zero;

/* Rows `row` ... end - 1, at most 32. */
INLINE void rows_of(const matmul_args *a, workspace *at, int64_t row, int64_t end,
                    const kc_block *s, int32_t type)
{
    const int64_t n_block = a->n / BLOCK;
    const tokens_32 *x = (const tokens_32 *)a->packed + s->t / TOKENS * n_block;
    const uint8_t *w[ROWS];
    rows_from(w, ROWS, a, row, end, type_row_bytes(type, a->n));
    for (int32_t b = s->b0, last = s->b0 + s->n_block; b < last; b += PANEL) {
        const int32_t n = last - b < PANEL ? last - b : PANEL;
        for (int h = 0; h < 2; h++)
            unpack_half(&at->p[h], type, w + h * HALF, b, n);
        /* so that a pair begins the next one's first three */
        const int goes_on = n % RING == 0 && n > 3;
        for (int i = 0; i < 2 * s->n_set; i++) { /* both halves with a set, then with the next */
            const int set = i / 2, h = i % 2;
            const int ahead = goes_on && i + 1 < 2 * s->n_set;
            const pair now = {&at->p[h], x + set * n_block + b},
                       next = {&at->p[1 - h], ahead ? x + (set + h) * n_block + b : now.x};
            const place y = place_of(a, s, set, row + h * HALF, end);
            if (b && b == s->b0)
                results_from(&at->y[h][set], y.y, y.n_row, y.valid, y.n_tok);
            pair_sums(&at->y[h][set], b ? &at->y[h][set] : &zero, at->isum, &now,
                      ahead ? &next : NULL, goes_on && i, n, type);
            if (b + n == last)
                results_to(y.y, y.n_row, y.valid, y.n_tok, &at->y[h][set]);
        }
    }
}

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, workspace *at, int32_t type)
{
    begin_tiles(BLOCK);
    for (kc_block s = {0}; next_kc_block(&s, a, BLOCK);)
        for (int64_t row = begin; row < end; row += ROWS)
            rows_of(a, at, row, end, &s, type);
    TILE_RELEASE();
}

void matmul_blocks_amx(const matmul_args *a, int64_t begin, int64_t end)
{
    workspace at;
#define CALL(type) matmul_of(a, begin, end, &at, type)
    switch (a->type) {
        TYPES_32(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
