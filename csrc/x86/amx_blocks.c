/* amx_blocks.c - products with weights in blocks of 32 on AMX-INT8; the bits of reference.c.
 *
 * Each block needs tiles of its own, half full, and its own step in f32: that step is most of the work.  So the results of 16 rows and 16
 * tokens stay in registers over the blocks of a panel, and the tiles run ahead: while block b is scaled, the sums of b + 2 are stored and
 * those of b + 3 begin, each in a tile of its own, so that none waits until another has been stored. */
#ifdef __AVX512VNNI__
#include "amx.h"

enum { PANEL = 32, RING = 4 };

typedef struct {
    int8_t w[PANEL][HALF][BLOCK];        /* [block][row][element] */
    float d[PANEL][HALF], m[PANEL][HALF]; /* [block][row] */
} half_panel __attribute__((aligned(64)));

INLINE void unpack_half(half_panel *p, int32_t type, const uint8_t *const row[HALF], int32_t b0, int32_t n_block)
{
    const int64_t bytes = type_row_bytes(type, BLOCK);
    const __m256i offset = _mm256_set1_epi8((char)(type == T_Q8_0 ? 0 : offset_of(type)));
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = (b0 + b) * bytes;
        for (int r = 0; r < HALF; r++)
            _mm256_store_si256((__m256i *)p->w[b][r], _mm256_sub_epi8(block_bytes_of(type, row[r] + at), offset));
        _mm512_storeu_ps(p->d[b], halves_of(row, at));
        if (has_min(type))
            _mm512_storeu_ps(p->m[b], halves_of(row, at + 2));
    }
}

/* The sums of a block with a set of tokens, x, into tile `sum`, by way of tiles w and q. */
#define BLOCK_SUMS(sum, w_tile, q_tile, p, b, x)       \
    do {                                               \
        TILE_ZERO(sum);                                \
        TILE_LOAD(w_tile, (p)->w[b], BLOCK);           \
        TILE_LOAD(q_tile, (x)->q, 64);                 \
        TILE_DOT_INT8(sum, w_tile, q_tile);            \
    } while (0)

/* Block b of a panel with a set: its step in f32. */
INLINE void scale_block(__m512 sum[HALF], const sums *isum, const half_panel *p, int32_t b, const tokens_32 *x, int32_t type)
{
    for (int r = 0; r < HALF; r++) {
        const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(p->d[b][r]), x->d);
        sum[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(_mm512_load_si512(isum->of[r])), sum[r]);
        if (has_min(type))
            sum[r] = _mm512_fmadd_ps(_mm512_set1_ps(p->m[b][r]), x->s, sum[r]);
    }
}

/* A half of the panel with a set: x is its first block; results come from `from` and go to `y`. */
INLINE void half_set(results *y, const results *from, sums isum[RING], const half_panel *p, const tokens_32 *x, int32_t n_block,
                     int32_t type)
{
    __m512 sum[HALF];
    for (int r = 0; r < HALF; r++)
        sum[r] = from->of[r];
    BLOCK_SUMS(0, 4, 6, p, 0, x);
    if (n_block > 1)
        BLOCK_SUMS(1, 5, 7, p, 1, x + 1);
    TILE_STORE(0, &isum[0], 64);
    if (n_block > 2)
        BLOCK_SUMS(2, 4, 6, p, 2, x + 2);
    if (n_block > 1)
        TILE_STORE(1, &isum[1], 64);
/* Block b, b % RING being i; tiles are numbers as written: stored = (i + 2) % RING, begun = (i + 3) % RING. */
#define STEP(b, i, stored, begun, w_tile, q_tile)                                       \
    if ((b) < n_block) {                                                                \
        if ((b) + 3 < n_block)                                                          \
            BLOCK_SUMS(begun, w_tile, q_tile, p, (b) + 3, x + (b) + 3);                 \
        if ((b) + 2 < n_block)                                                          \
            TILE_STORE(stored, &isum[stored], 64);                                      \
        scale_block(sum, &isum[i], p, b, x + (b), type);                                \
    }
    for (int32_t b = 0; b < n_block; b += RING) {
        STEP(b, 0, 2, 3, 5, 7)
        STEP(b + 1, 1, 3, 0, 4, 6)
        STEP(b + 2, 2, 0, 1, 5, 7)
        STEP(b + 3, 3, 1, 2, 4, 6)
    }
#undef STEP
    for (int r = 0; r < HALF; r++)
        y->of[r] = sum[r];
}

/* Of a call. */
typedef struct { half_panel p[2]; sums isum[RING]; results y[2][TOKEN_BLOCK / TOKENS]; } room;

static const results zero;

/* Rows `row` ... end - 1, at most 32. */
INLINE void rows_of(const matmul_args *a, room *at, int64_t row, int64_t end, const stretch *s, int32_t type)
{
    const int64_t n_block = a->n / BLOCK;
    const tokens_32 *x = (const tokens_32 *)a->packed + s->t / TOKENS * n_block;
    const uint8_t *w[ROWS];
    rows_from(w, ROWS, a, row, end);
    for (int32_t b = s->b0, last = s->b0 + s->n_block; b < last; b += PANEL) {
        const int32_t n = last - b < PANEL ? last - b : PANEL;
        for (int h = 0; h < 2; h++)
            unpack_half(&at->p[h], type, w + h * HALF, b, n);
        for (int h = 0; h < 2; h++)
            for (int set = 0; set < s->n_set; set++) {
                const place y = place_of(a, s, set, row + h * HALF, end);
                if (b && b == s->b0)
                    results_from(&at->y[h][set], y.y, y.n_row, y.valid, y.n_tok);
                half_set(&at->y[h][set], b ? &at->y[h][set] : &zero, at->isum, &at->p[h], x + set * n_block + b, n, type);
                if (b + n == last)
                    results_to(y.y, y.n_row, y.valid, y.n_tok, &at->y[h][set]);
            }
    }
}

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, room *at, int32_t type)
{
    begin_tiles(BLOCK);
    for (stretch s = {0}; stretch_next(&s, a, BLOCK);)
        for (int64_t row = begin; row < end; row += ROWS)
            rows_of(a, at, row, end, &s, type);
    TILE_RELEASE();
}

void matmul_blocks_amx(const matmul_args *a, int64_t begin, int64_t end)
{
    room at;
    switch (a->type) {
    case T_Q8_0: matmul_of(a, begin, end, &at, T_Q8_0); break;
    case T_Q4_0: matmul_of(a, begin, end, &at, T_Q4_0); break;
    case T_Q4_1: matmul_of(a, begin, end, &at, T_Q4_1); break;
    case T_Q5_0: matmul_of(a, begin, end, &at, T_Q5_0); break;
    case T_Q5_1: matmul_of(a, begin, end, &at, T_Q5_1); break;
    case T_IQ4_NL: matmul_of(a, begin, end, &at, T_IQ4_NL); break;
    }
}
#endif
