/* amx_operands.h - tiles, and the activations as tiles want them: for amx.c, amx_blocks.c and
 * amx_kquant.c. */
#ifndef SLUICE_AMX_OPERANDS_H
#define SLUICE_AMX_OPERANDS_H
#include "kernels/x86/amx_tile.h"
#include "kernels/x86/avx512_unpack.h"

enum { TOKENS = 16 }; /* of a set: the columns of a tile of sums */
/* elements and tokens that stay in the second-level cache for all rows */
enum { KC = 2048, TOKEN_BLOCK = 512 };
/* elements: a KC block is of a multiple of so many, but for the last: whole panels of amx_blocks.c
 * */
enum { WHOLE = 1024 };

/* Tiles 0 to 3: sums, 4 and 5: 16 rows of weights, `bytes` elements each, 6 and 7: as many elements
 * of 16 tokens, in fours. */
static inline void begin_tiles(int bytes)
{
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < N_TILE; i++) {
        shapes.row_bytes[i] = (uint16_t)(i / 2 == 2 ? bytes : TILE_ROW_BYTES);
        shapes.n_row[i] = (uint8_t)(i / 2 == 3 ? bytes / 4 : HALF);
    }
    TILE_CONFIG(&shapes);
}

typedef struct { int32_t of[HALF][TOKENS]; } sums __attribute__((aligned(64)));

/* ---- activations in sets of 16 tokens, zeros where there is no token
 * ----------------------------- */

INLINE int64_t sets_of(int64_t n_tok) { return (n_tok + TOKENS - 1) / TOKENS; }

typedef struct {
    __m512i q[BLOCK / 4]; /* i8 [group of 4][token][4] */
    __m512 d, s;          /* f32 [token] */
} tokens_32;              /* [set][block] */
typedef struct {
    __m512i q[BLOCK_K / 4];
    __m512i sums[N_GROUP / 2];    /* i16 [two groups][token][2]; groups of 16 */
    __m512i sums_32[N_GROUP / 4]; /* the same of groups of 32 */
    __m512 d;
} tokens_256; /* [block][set] */

/* ---- results -----------------------------------------------------------------------------------
 */

typedef struct { __m512 of[HALF]; } results; /* f32 [row][token] of a set and 16 rows */

/* A KC block of some tokens: n_set sets of tokens, the first of them token t; blocks b0 ... b0 +
 * n_block - 1. */
typedef struct {
    int64_t t;
    int32_t n_set, b0, n_block;
} kc_block;

/* The next one, or 0; begins with all zeros.  All blocks of some tokens, then those of the next. */
INLINE int next_kc_block(kc_block *s, const matmul_args *a, int32_t block)
{
    const int32_t n = (a->n + KC - 1) / KC, each = (a->n + n - 1) / n;
    const int32_t all = a->n / block, max = (each + WHOLE - 1) / WHOLE * (WHOLE / block);
    s->b0 += s->n_block;
    if (s->b0 >= all)
        *s = (kc_block){s->t + TOKEN_BLOCK, 0, 0, 0};
    const int64_t left = a->n_tok - s->t, n_tok = left < TOKEN_BLOCK ? left : TOKEN_BLOCK;
    s->n_set = (int32_t)sets_of(n_tok);
    s->n_block = all - s->b0 < max ? all - s->b0 : max;
    return left > 0;
}

/* Of n_tok tokens and 16 rows: to y f32 [token][n_row], only `valid` rows; and back. */
INLINE void results_to(float *y, int64_t n_row, __mmask16 valid, int n_tok, const results *sum)
{
    __m512i v[TOKENS];
    memcpy(v, sum, sizeof v);
    transpose_words(v);
    for (int i = 0; i < TOKENS; i++)
        if (i < n_tok)
            _mm512_mask_storeu_epi32(y + i * n_row, valid, v[i]);
}

INLINE void results_from(results *sum, const float *y, int64_t n_row, __mmask16 valid, int n_tok)
{
    __m512i v[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        v[i] = i < n_tok ? _mm512_maskz_loadu_epi32(valid, y + i * n_row) : _mm512_setzero_si512();
    transpose_words(v);
    memcpy(sum, v, sizeof v);
}

/* Where the results of a set and 16 rows are. */
typedef struct {
    float *y;
    int64_t n_row;
    int n_tok;
    __mmask16 valid;
} place;

INLINE place place_of(const matmul_args *a, const kc_block *s, int set, int64_t row, int64_t end)
{
    const int64_t t = s->t + set * TOKENS;
    return (place){a->y + t * a->n_row + row, a->n_row,
                   a->n_tok - t < TOKENS ? (int)(a->n_tok - t) : TOKENS, first_lanes(end - row)};
}

void matmul_blocks_amx(const matmul_args *a, int64_t begin, int64_t end); /* amx_blocks.c */
void matmul_kquant_amx(const matmul_args *a, int64_t begin, int64_t end); /* amx_kquant.c */
#endif
