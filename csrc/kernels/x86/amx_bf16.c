/* amx_bf16.c - GEMM of --arithmetic fast, AMX-BF16 (Intel since Sapphire Rapids, 2023).
 * Y[token][row] = sum_k X[token][k] * W[row][k]; W and X as terms of bf16, Y f32.
 * Micro-kernel: MR = 32 rows, NR = 2 x 16 tokens, KC = 256; MC = 1,024 rows, NC = 256 tokens.
 * Registers: 4 tiles of sums, 2 of tokens, 2 of weights.
 * Packing: X split and turned into pairs [16][token][2] once for all products that read them, so
 *   that a KC block of NC tokens is neighbouring memory and stays in the second-level cache while
 *   MC rows go by. W: a panel, a KC block of 32 rows, is copied (BF16) or split beside the products
 *   of the panel before it: rows of the file are some KB apart, and their lines fall into the same
 *   few sets of a cache.
 * Result: bit-identical to reference_fast.c.
 *
 * TDPBF16PS multiplies 16 rows of weights, 32 elements each, by the same elements of 16 tokens, and
 * adds to 16 x 16 sums in f32. Its 16 cycles are the limit, so everything else happens beside it. A
 * store of a tile waits for its sum, so sums stay in tiles for a KC block. They are added up as
 * they come, [row][token], in the thread's own workspace, beside the products of the next pair of
 * micropanels, and transposed into y at the end.
 *
 * Fewer than 16 tokens are tiles of as many columns; the instruction is as slow. */
#ifdef __AVX512VNNI__
#include "kernels/fast.h"
#include "kernels/x86/amx_tile.h"
#include "kernels/x86/avx512_unpack.h"

enum {
    STEP = FAST_STEP,
    STEPS = FAST_KC / STEP,
    NR = 16,
    TERMS = 3,
    TOKEN_BLOCK = FAST_TOKENS,
    LINE = 64
};
enum { TILE_BYTES = 1024, PAIR_BYTES = 2 * TILE_BYTES, CACHED = 1 << 20 };

/* ---- tiles: 0 to 3 sums, 4 and 5 tokens, 6 and 7 weights
 * --------------------------------------------- */

/* For `width` tokens. */
static void begin_tiles(int width)
{
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < N_TILE; i++) {
        shapes.row_bytes[i] = (uint16_t)(i < 6 ? 4 * width : TILE_ROW_BYTES);
        shapes.n_row[i] = TILE_ROWS;
    }
    TILE_CONFIG(&shapes);
}

/* ---- terms
 * ------------------------------------------------------------------------------------------- */

INLINE __m512 widened(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The n terms of 32 elements; the instruction is nearest_bf16 of reference_fast.c. */
INLINE void split_32(__m512i term[], int n, __m512 a, __m512 b)
{
    for (int i = 0; i < n; i++) {
        NEAREST_BF16(term[i], a, b);
        a = _mm512_sub_ps(a, widened(_mm512_castsi512_si256(term[i])));
        b = _mm512_sub_ps(b, widened(_mm512_extracti64x4_epi64(term[i], 1)));
    }
}

/* Where the terms of a product's tokens are: [KC block][set][step of the block][term], each a tile
 * [16 pairs][width][2]. */
typedef struct {
    const uint8_t *p;
    int64_t n_set, n_step;
    int width;
} tokens;

static tokens tokens_of(const uint16_t *terms, int32_t n_tok, int32_t n)
{
    const uintptr_t at = ((uintptr_t)terms + LINE - 1) / LINE * LINE;
    return (tokens){(const uint8_t *)at, (n_tok + NR - 1) / NR, (n + STEP - 1) / STEP,
                    n_tok < NR ? n_tok : NR};
}

INLINE int steps_of(const tokens *x, int64_t kc_block)
{
    return (int)(x->n_step - kc_block * STEPS < STEPS ? x->n_step - kc_block * STEPS : STEPS);
}
INLINE int64_t set_bytes(const tokens *x, int64_t kc_block)
{
    return (int64_t)steps_of(x, kc_block) * TERMS * LINE * x->width;
}

INLINE const uint8_t *tiles_of(const tokens *x, int64_t kc_block, int64_t set)
{
    return x->p + kc_block * STEPS * x->n_set * TERMS * LINE * x->width
        + set * set_bytes(x, kc_block);
}

/* Step k of n_tok tokens at x, from each up to `left` elements. */
INLINE void split_step(uint8_t *to, const float *x, int n_tok, int64_t n, int64_t left, int width)
{
    __m512i v[TERMS][NR];
    for (int t = 0; t < NR; t++) {
        __m512i term[TERMS];
        const float *from = x + (t < n_tok ? t : 0) * n;
        split_32(term, TERMS, _mm512_maskz_loadu_ps(t < n_tok ? first_lanes(left) : 0, from),
                 _mm512_maskz_loadu_ps(t < n_tok ? first_lanes(left - 16) : 0, from + 16));
        for (int i = 0; i < TERMS; i++)
            v[i][t] = term[i];
    }
    for (int i = 0; i < TERMS; i++) {
        transpose_words(v[i]);
        for (int pair = 0; pair < 16; pair++)
            _mm512_mask_storeu_epi32(to + (i * 16 + pair) * 4 * width, first_lanes(width),
                                     v[i][pair]);
    }
}

void split_amx(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const split_args *a = arg;
    const tokens x = tokens_of(a->terms, a->n_tok, a->n);
    (void)thread;
    for (int64_t set = begin; set < end; set++)
        for (int64_t k = 0; k < x.n_step; k++)
            split_step((uint8_t *)tiles_of(&x, k / STEPS, set) + k % STEPS * TERMS * LINE * x.width,
                       a->x + set * NR * a->n + k * STEP,
                       (int)(a->n_tok - set * NR < NR ? a->n_tok - set * NR : NR), a->n,
                       a->n - k * STEP, x.width);
}

/* ---- rows of weights
 * --------------------------------------------------------------------------------- */

INLINE int terms_of(int32_t type) { return type == T_F32 ? 3 : type == T_F16 ? 2 : 1; }
INLINE int bytes_of(int32_t type) { return type == T_F32 ? 4 : 2; }

/* [step][term of the type][half][row][32] */
typedef struct { _Alignas(64) uint8_t w[STEPS * TERMS * PAIR_BYTES]; } panel;

/* A panel being made, row by row: a KC block of each from byte `at` on, where n elements are left.
 * later: what comes after it, which is prefetched.  any: the bits of each term but the first.
 * each: how many rows go with a pair of sets. */
typedef struct {
    __m512i any[TERMS];
    panel *to;
    const uint8_t *row[ROWS], *later[ROWS];
    int64_t at, later_at, n;
    int r, each;
} unpacking;

/* A step of a row: elements that are in low and high. */
INLINE void unpack_step(uint8_t *to, __m512i any[TERMS], int32_t type, const uint8_t *from,
                        const uint8_t *later, __mmask16 low, __mmask16 high)
{
    __m512i term[TERMS];
    _mm_prefetch((const char *)later, _MM_HINT_T1);
    if (type == T_F32)
        _mm_prefetch((const char *)later + LINE, _MM_HINT_T1);
    if (type == T_BF16)
        term[0] = _mm512_maskz_loadu_epi16((__mmask32)high << 16 | low, from);
    else
        split_32(term, terms_of(type), load_lanes(type, from, low),
                 load_lanes(type, from + 16 * bytes_of(type), high));
    for (int i = 0; i < terms_of(type); i++) {
        _mm512_store_si512(to + i * PAIR_BYTES, term[i]);
        if (i)
            any[i] = _mm512_or_si512(any[i], term[i]);
    }
}

/* Stores wait for the products before them; some 100 may wait: what is counted along
 * the way stays in registers for a row. */
INLINE void unpack_row(unpacking *t, int32_t type)
{
    const int64_t bytes = STEP * bytes_of(type), panel_bytes = terms_of(type) * PAIR_BYTES;
    const uint8_t *from = t->row[t->r] + t->at, *later = t->later[t->r] + t->later_at;
    uint8_t *to = t->to->w + t->r * 64;
    __m512i any[TERMS] = {t->any[0], t->any[1], t->any[2]};
    if (t->n >= FAST_KC)
        for (int k = 0; k < STEPS; k++)
            unpack_step(to + k * panel_bytes, any, type, from + k * bytes, later + k * bytes,
                        0xffff, 0xffff);
    else
        for (int64_t k = 0, left = t->n; left > 0; k++, left -= STEP)
            unpack_step(to + k * panel_bytes, any, type, from + k * bytes, later + k * bytes,
                        first_lanes(left), first_lanes(left - 16));
    for (int i = 1; i < terms_of(type); i++)
        t->any[i] = any[i];
    t->r++;
}

INLINE void unpack_rows(unpacking *t, int32_t type, int end)
{
    while (t->r < end)
        unpack_row(t, type);
}

/* How many terms there are up to the last that is not zero everywhere: a product with zeros would
 * change nothing. */
INLINE int terms_in(const unpacking *t, int32_t type)
{
    int used = terms_of(type);
    while (used > 1 && !_mm512_test_epi32_mask(t->any[used - 1], t->any[used - 1]))
        used--;
    return used;
}

/* ---- sums
 * -------------------------------------------------------------------------------------------- */

typedef struct { _Alignas(64) float of[4][16][16]; } sums; /* [tile][row][token] */

/* The sums of a KC block and where they are added: n_part quarters of tiles, of which `part` are
 * done. */
typedef struct {
    const sums *from;
    sums *to;
    int part, n_part, is_first;
} adding;

INLINE void add_part(adding *s)
{
    const int tile = s->part / 4, first = s->part % 4 * 4;
    s->part++;
    for (int row = first; row < first + 4; row++) {
        float *to = s->to->of[tile][row];
        const __m512 before = s->is_first ? _mm512_setzero_ps() : _mm512_load_ps(to);
        _mm512_store_ps(to, _mm512_add_ps(before, _mm512_load_ps(s->from->of[tile][row])));
    }
}

INLINE void add_rest(adding *s)
{
    while (s->part < s->n_part)
        add_part(s);
}

/* y [4][n_row], its first n rows = tokens t ... t + 3 of a tile. */
INLINE void to_y(float *y, int64_t n_row, int64_t n, __mmask16 valid, const float tile[16][16],
                 int t)
{
    __m512i v[4], token[4];
    for (int i = 0; i < 4; i++) { /* in quarter q: row 4 q + i */
        v[i] = _mm512_castsi128_si512(_mm_load_si128((const __m128i *)&tile[i][t]));
        for (int q = 1; q < 4; q++)
            v[i] =
                _mm512_mask_broadcast_i32x4(v[i], (__mmask16)(15 << 4 * q),
                                            _mm_load_si128((const __m128i *)&tile[4 * q + i][t]));
    }
    transpose_4(token, v);
    for (int i = 0; i < 4 && i < n; i++)
        _mm512_mask_storeu_ps(y + i * n_row, valid, _mm512_castsi512_ps(token[i]));
}

/* Rows row ... end - 1 of sets set0 ... set1 - 1; 4 tokens at a time, so that y is written in few
 * places, on and on. */
INLINE void all_to_y(const matmul_args *a, const sums *from, int64_t row, int64_t end, int64_t set0,
                     int64_t set1)
{
    const int64_t n_pair = (set1 - set0 + 1) / 2,
                  last = set1 * NR < a->n_tok ? set1 * NR : a->n_tok;
    for (int64_t t = set0 * NR; t < last; t += 4)
        for (int64_t r = row; r < end; r += HALF) {
            const int64_t p = (r - row) / ROWS, i = t - set0 * NR;
            to_y(a->y + t * a->n_row + r, a->n_row, last - t, first_lanes(end - r),
                 from[p * n_pair + i / (2 * NR)].of[i / NR % 2 * 2 + (r - row) / HALF % 2],
                 (int)(i % NR));
        }
}

/* ---- products
 * ---------------------------------------------------------------------------------------- */

/* A tile of 2 x 2, or of 2 x 1 where two is 0; what is not new is in its tiles. */
INLINE void multiply(const uint8_t *w, int new_w, const uint8_t *x, int new_x, int64_t next_set,
                     int stride, int two)
{
    if (new_x)
        TILE_LOAD(4, x, stride);
    if (new_w)
        TILE_LOAD(6, w, 64);
    TILE_DOT_BF16(0, 6, 4);
    if (new_w)
        TILE_LOAD(7, w + TILE_BYTES, 64);
    TILE_DOT_BF16(1, 7, 4);
    if (!two)
        return;
    if (new_x)
        TILE_LOAD(5, x + next_set, stride);
    TILE_DOT_BF16(2, 6, 5);
    TILE_DOT_BF16(3, 7, 5);
}

/* A step of `used` terms of weights: the products in the order of reference_fast.c, in which one
 * factor stays. */
INLINE void step(const uint8_t *w, const uint8_t *x, int64_t next_set, int width, int used, int two)
{
    const int64_t term = LINE * width;
    const int stride = 4 * width;
    multiply(w, 1, x + 2 * term, 1, next_set, stride, two);
    multiply(w, 0, x + term, 1, next_set, stride, two);
    if (used > 1) {
        multiply(w + PAIR_BYTES, 1, x + term, 0, next_set, stride, two);
        multiply(w + PAIR_BYTES, 0, x, 1, next_set, stride, two);
    }
    if (used > 2)
        multiply(w + 2 * PAIR_BYTES, 1, x, 0, next_set, stride, two);
    multiply(w, used > 1, x, used == 1, next_set, stride, two);
}

/* Two of each, so that one is made while the other is read.  so_far: [panel of the block][pair], in
 * the workspace behind the terms. */
typedef struct {
    panel p[2];
    sums s[2];
    int parity;
    unpacking next;
    adding before;
    sums *so_far;
} workspace;

/* A KC block of a pair of sets, or of the last one; beside it the sums before are added and the
 * next panel is made. */
INLINE void multiply_kc_block(workspace *at, const uint8_t *w, const uint8_t *x, int64_t next_set,
                              int width, int n_step, int32_t type, int used, int two)
{
    sums *out = &at->s[at->parity];
    const int first = at->next.r,
              each = first + at->next.each < ROWS ? at->next.each : ROWS - first;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int k = 0; k < n_step; k++) {
        step(w + k * terms_of(type) * PAIR_BYTES, x + k * TERMS * LINE * width, next_set, width,
             used, two);
        if (used > 1 && k == STEPS / 2 - 1)
            /* of no use, but with more than about 100 products between two stores the last takes
             * 250 ns */
            TILE_STORE(0, out->of[0], 64);
        for (int i = 0; i < 16 / STEPS && at->before.part < at->before.n_part; i++)
            add_part(&at->before);
        unpack_rows(&at->next, type, first + each * (k + 1) / STEPS);
    }
    TILE_STORE(0, out->of[0], 64);
    TILE_STORE(1, out->of[1], 64);
    if (two) {
        TILE_STORE(2, out->of[2], 64);
        TILE_STORE(3, out->of[3], 64);
    }
}

/* 32 rows and sets set0 ... set1 - 1, KC block s. */
INLINE void panel_tokens(workspace *at, const tokens *x, const uint8_t *w, sums *so_far, int64_t s,
                         int64_t set0, int64_t set1, int32_t type, int used)
{
    const int n_step = steps_of(x, s);
    const int64_t next_set = set_bytes(x, s);
    for (int64_t set = set0; set < set1; set += 2, so_far++) {
        const int two = set + 1 < set1;
        if (two)
            multiply_kc_block(at, w, tiles_of(x, s, set), next_set, NR, n_step, type, used, 1);
        else
            multiply_kc_block(at, w, tiles_of(x, s, set), next_set, x->width, n_step, type, used,
                              0);
        add_rest(&at->before);
        at->before = (adding){&at->s[at->parity], so_far, 0, two ? 16 : 8, !s};
        at->parity ^= 1;
    }
}

/* Rows begin ... end - 1, sets set0 ... set1 - 1.  Item i is a panel p and a KC block s: all panels
 * of a KC block before the next one, or, where the tokens fit a cache, all KC blocks of a panel, as
 * they lie in the file. */
typedef struct {
    int64_t begin, end, set0, set1, n_panel, n_kc_block;
    int rows_first;
} block;

INLINE int64_t panel_of(const block *b, int64_t i)
{
    return b->rows_first ? i / b->n_kc_block : i % b->n_panel;
}
INLINE int64_t kc_block_of(const block *b, int64_t i)
{
    return b->rows_first ? i % b->n_kc_block : i / b->n_panel;
}

/* Begin to unpack item i, and to prefetch the one after it. */
INLINE void begin_unpacking(unpacking *t, panel *to, const matmul_args *a, const block *b,
                            int64_t i, int32_t type)
{
    const int64_t s = kc_block_of(b, i), j = i + 1 < b->n_panel * b->n_kc_block ? i + 1 : i,
                  n_pair = (b->set1 - b->set0 + 1) / 2;
    for (int term = 0; term < TERMS; term++)
        t->any[term] = _mm512_setzero_si512();
    rows_from(t->row, ROWS, a, b->begin + panel_of(b, i) * ROWS, b->end, a->n * bytes_of(type));
    rows_from(t->later, ROWS, a, b->begin + panel_of(b, j) * ROWS, b->end, a->n * bytes_of(type));
    t->to = to, t->r = 0, t->n = a->n - s * FAST_KC;
    t->at = s * FAST_KC * bytes_of(type),
    t->later_at = kc_block_of(b, j) * FAST_KC * bytes_of(type);
    t->each = (int)((ROWS + n_pair - 1) / n_pair);
}

INLINE void multiply_block(const matmul_args *a, const tokens *x, workspace *at, const block *b,
                           int32_t type)
{
    const int64_t n_item = b->n_panel * b->n_kc_block, n_pair = (b->set1 - b->set0 + 1) / 2;
    begin_unpacking(&at->next, &at->p[0], a, b, 0, type);
    for (int64_t i = 0; i < n_item; i++) {
        const int64_t p = panel_of(b, i), s = kc_block_of(b, i), row = b->begin + p * ROWS;
        const uint8_t *w = at->p[i % 2].w;
        sums *so_far = at->so_far + (b->rows_first ? 0 : p * n_pair);
        unpack_rows(&at->next, type, ROWS);
        const int used = terms_in(&at->next, type);
        if (i + 1 < n_item)
            begin_unpacking(&at->next, &at->p[(i + 1) % 2], a, b, i + 1, type);
        if (used == 1)
            panel_tokens(at, x, w, so_far, s, b->set0, b->set1, type, 1);
        else if (used == 2)
            panel_tokens(at, x, w, so_far, s, b->set0, b->set1, type, 2);
        else
            panel_tokens(at, x, w, so_far, s, b->set0, b->set1, type, 3);
        if (b->rows_first && s + 1 == b->n_kc_block) {
            add_rest(&at->before);
            all_to_y(a, so_far, row, row + ROWS < b->end ? row + ROWS : b->end, b->set0, b->set1);
        }
    }
    add_rest(&at->before);
    if (!b->rows_first)
        all_to_y(a, at->so_far, b->begin, b->end, b->set0, b->set1);
}

void matmul_fast_amx(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    const tokens x = tokens_of(a->terms, a->n_tok, a->n);
    const int64_t n_set = TOKEN_BLOCK / NR, n_pair = (x.n_set < n_set ? x.n_set + 1 : n_set) / 2;
    workspace at;
    at.parity = at.before.part = at.before.n_part = 0;
    at.so_far = (sums *)(x.p + x.n_step * x.n_set * TERMS * LINE * x.width)
        + thread * (FAST_ROWS / ROWS) * n_pair;
    begin_tiles(x.width);
    for (int64_t row = begin; row < end; row += FAST_ROWS)
        for (int64_t set = 0; set < x.n_set; set += n_set) {
            block b = {row, row + FAST_ROWS < end ? row + FAST_ROWS : end,
                       set, set + n_set < x.n_set ? set + n_set : x.n_set,
                       0,   0,
                       0};
            b.n_panel = (b.end - b.begin + ROWS - 1) / ROWS,
            b.n_kc_block = (x.n_step + STEPS - 1) / STEPS;
            b.rows_first = (b.set1 - b.set0) * x.n_step * TERMS * LINE * x.width <= CACHED;
            switch (a->type) {
            case T_F32: multiply_block(a, &x, &at, &b, T_F32); break;
            case T_F16: multiply_block(a, &x, &at, &b, T_F16); break;
            default: multiply_block(a, &x, &at, &b, T_BF16);
            }
        }
    TILE_RELEASE();
}
#endif
