/* amx_kquant.c - GEMM of blocks of 256, AMX-INT8.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 256, Y f32.
 * Micro-kernel: MR = 16 rows x 2 digits, NR = 2 x 16 tokens; a panel is one block of 32 rows.
 * Registers: 4 tiles of sums, 2 of weights, 2 of tokens: one load for each product.
 * Packing: W times its groups' scales as two digits of 8 bits; X to micropanels of 16 tokens.
 * Overflow: none; the step in f32 sees 128 sum(high x) + sum(low x) < 2^27.
 * Result: bit-identical to reference.c.
 *
 * The digits:
 *
 *     w = scale (u - offset) = 128 high + low,   -64 <= low < 64,   |high| <= 64
 *
 * (|w| <= 128 * 32, of Q6_K, or 32 * 128, of IQ4_XS), so a block is two chains of four full tiles.
 * 2 bits with scales of 4 fit one digit. So do 3 bits with scales of 6, which are -124 to 128, if
 * their sign is turned.
 *
 * Two micropanels share each tile of weights, both digits each tile of tokens. While the unit is
 * busy with that, the sums of the tiles before are scaled: rows of scaling stand between the
 * products. A tile of sums is stored just before it begins anew: stores and first products by turns
 * cost a tenth less than four stores at once. */
#ifdef __AVX512VNNI__
#include "kernels/x86/amx_operands.h"

typedef struct {
    uint8_t digit[4][2][HALF][ELEMENTS]; /* i8 [64 elements][low, high][row][element] */
    /* i16 [row][group]; of groups of 32 the first four words hold all */
    int32_t min[HALF][N_GROUP / 2];
    float d[HALF], m[HALF];
} half_panel __attribute__((aligned(64)));

INLINE int n_digit(int32_t type) { return is_small(type) ? 1 : 2; }
INLINE int is_turned(int32_t type) { return type == T_Q3_K; }

/* Row r of a half: the block at x. */
INLINE void unpack_row(half_panel *p, int r, int32_t type, const uint8_t *x)
{
    __m128i min;
    const __m256i of_group = _mm256_cvtepi8_epi16(group_scales(&min, type, x));
    const __m256i small =
        is_turned(type) ? _mm256_sub_epi16(_mm256_setzero_si256(), of_group) : of_group;
    const __m512i scale = _mm512_castsi256_si512(small);
    /* 64, which makes the low digit one without sign, less what the offset subtracts */
    const __m512i rest = _mm512_castsi256_si512(
        _mm256_sub_epi16(_mm256_set1_epi16(n_digit(type) == 2 ? 64 : 0),
                         _mm256_mullo_epi16(small, _mm256_set1_epi16((int16_t)offset_of(type)))));
    const __m512i group = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003,
                                           0x0002000200020002, 0x0002000200020002,
                                           /* of elements 2 i and 2 i + 1 */
                                           0x0001000100010001, 0x0001000100010001, 0, 0);
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaa;
    for (int k = 0; k < 4; k++) {
        const __m512i u = natural_64(type, x, k),
                      of = _mm512_add_epi16(group, _mm512_set1_epi16((int16_t)(4 * k)));
        const __m512i sc = _mm512_permutexvar_epi16(of, scale),
                      add = _mm512_permutexvar_epi16(of, rest);
        const __m512i a = _mm512_add_epi16(
            _mm512_mullo_epi16(_mm512_and_si512(u, _mm512_set1_epi16(255)), sc), add);
        const __m512i b = _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(u, 8), sc), add);
        const __m512i low = _mm512_mask_blend_epi8(odd, a, _mm512_slli_epi16(b, 8));
        if (n_digit(type) == 1) {
            _mm512_store_si512(p->digit[k][0][r], low);
            continue;
        }
        _mm512_store_si512(p->digit[k][0][r],
                           _mm512_sub_epi8(low_bits(low, 127), _mm512_set1_epi8(64)));
        _mm512_store_si512(
            p->digit[k][1][r],
            _mm512_mask_blend_epi8(odd, _mm512_srli_epi16(a, 7), _mm512_slli_epi16(b, 1)));
    }
    if (has_min(type) && group_of(type) == 32) /* every other one is the same again */
        _mm_storeu_si128((__m128i *)p->min[r], _mm_and_si128(min, _mm_set1_epi16(255)));
    else if (has_min(type))
        _mm256_storeu_si256((__m256i *)p->min[r], _mm256_cvtepi8_epi16(min));
}

/* The block at byte `at` of 16 rows, and the one at `next` prefetched. */
INLINE void unpack_half(half_panel *p, int32_t type, const uint8_t *const row[HALF], int64_t at,
                        int64_t next)
{
    for (int r = 0; r < HALF; r++) {
        for (int i = 0; i < 4; i++)
            _mm_prefetch((const char *)row[r] + next + 64 * i, _MM_HINT_T1);
        unpack_row(p, r, type, row[r] + at);
    }
    _mm512_storeu_ps(p->d, scales_of_256(type, row, at));
    if (has_min(type))
        _mm512_storeu_ps(p->m, halves_of(row, at + at_d(type) + 2));
}

/* What is to be scaled: the sums of one or two sets, low and high digits of each, with half h of
 * the panel at `row`; the results come from `from` and go to `y`. */
typedef struct {
    const sums *isum;
    const half_panel *p;
    const tokens_256 *x[2];
    const results *from;
    results *y;
    int set;
    int64_t row;
} step;

/* Rows begin ... end - 1 of it. */
INLINE void scale_rows(const step *s, int begin, int end, int32_t type, int n_set)
{
    for (int i = 0; i < n_set; i++) {
        const __m512 d = s->x[i]->d;
        for (int r = begin; r < end; r++) {
            __m512i total = _mm512_load_si512(s->isum[2 * i].of[r]);
            if (n_digit(type) == 2)
                total = _mm512_add_epi32(
                    total, _mm512_slli_epi32(_mm512_load_si512(s->isum[2 * i + 1].of[r]), 7));
            if (is_turned(type))
                total = _mm512_sub_epi32(_mm512_setzero_si512(), total);
            __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(s->p->d[r]), d),
                                         _mm512_cvtepi32_ps(total), s->from[i].of[r]);
            if (has_min(type)) {
                const int n = group_of(type) == 32 ? N_GROUP / 4 : N_GROUP / 2;
                __m512i of_min = _mm512_setzero_si512();
                for (int g = 0; g < n; g++)
                    of_min = _mm512_dpwssd_epi32(
                        of_min, n == N_GROUP / 4 ? s->x[i]->sums_32[g] : s->x[i]->sums[g],
                        _mm512_set1_epi32(s->p->min[r][g]));
                sum = _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_set1_ps(s->p->m[r]), d),
                                       _mm512_cvtepi32_ps(of_min), sum);
            }
            s->y[i].of[r] = sum;
        }
    }
}

/* Stores the sums of a set: tiles 0 and 1, or 2 and 3. */
#define STORE_SUMS(low, high, isum, type) \
    do { \
        TILE_STORE(low, &(isum)[low], 64); \
        if (n_digit(type) == 2) \
            TILE_STORE(high, &(isum)[high], 64); \
    } while (0)

/* Sum `tile` begins anew; those of `before`, if there are, go to isum. */
#define BEGIN_SUM(tile) \
    do { \
        if (before) \
            TILE_STORE(tile, &isum[tile], 64); \
        TILE_ZERO(tile); \
    } while (0)

/* The sums of a half of the panel with n_set (1 or 2) sets, in the tiles until the next call, or
 * STORE_SUMS.  `before`: those two sets whose sums are in the tiles, which are stored and scaled
 * between the products. */
INLINE void block_sums(sums isum[4], const half_panel *p, const tokens_256 *const x[2],
                       int32_t type, int n_set, const step *before)
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        TILE_LOAD(6, x[0]->q + 16 * k, 64);
        TILE_LOAD(4, p->digit[k][0], 64);
        if (k == 0)
            BEGIN_SUM(0);
        TILE_DOT_INT8(0, 4, 6);
        if (n_set == 2) {
            TILE_LOAD(7, x[1]->q + 16 * k, 64);
            if (k == 0)
                BEGIN_SUM(2);
            TILE_DOT_INT8(2, 4, 7);
        }
        if (n_digit(type) == 2) {
            TILE_LOAD(5, p->digit[k][1], 64);
            if (k == 0)
                BEGIN_SUM(1);
            TILE_DOT_INT8(1, 5, 6);
            if (n_set == 2) {
                if (k == 0)
                    BEGIN_SUM(3);
                TILE_DOT_INT8(3, 5, 7);
            }
        }
        if (before
            && n_digit(type)
                == 2) /* 2 rows, then 5, 5 and 4: their sums have only just been stored */
            scale_rows(before, k ? 5 * k - 3 : 0, k < 3 ? 5 * k + 2 : HALF, type, 2);
        else if (before)
            scale_rows(before, 4 * k, 4 * k + 4, type, 2);
    }
}

/* Results of n_set sets to a->y. */
INLINE void step_out(const step *s, int n_set, const matmul_args *a, int64_t end,
                     const kc_block *of)
{
    for (int i = 0; i < n_set; i++) {
        const place to = place_of(a, of, s->set + i, s->row, end);
        results_to(to.y, to.n_row, to.valid, to.n_tok, s->y + i);
    }
}

/* Of a call; y: [pair of sets][half][set of the pair]. */
typedef struct {
    half_panel p[2];
    sums isum[4];
    results y[TOKEN_BLOCK / TOKENS / 2][2][2];
} workspace;

static const results zero[2];

/* Block b of the panel at `row`, half h, with `set` and the next. */
INLINE step step_of(workspace *at, const matmul_args *a, int64_t row, const kc_block *s, int32_t b,
                    int set, int h)
{
    const tokens_256 *x =
        (const tokens_256 *)a->packed + b * sets_of(a->n_tok) + s->t / TOKENS + set;
    results *y = at->y[set / 2][h];
    return (step){at->isum, &at->p[h], {x, x + 1}, b ? y : zero, y, set, row + h * HALF};
}

/* Block b of rows `row` ... end - 1, at most 32, with all sets; after the last block of the KC
 * block the results go out. */
INLINE void panel_sets(workspace *at, const matmul_args *a, int64_t row, int64_t end,
                       const kc_block *s, int32_t b, int32_t type)
{
    const int last = b == s->b0 + s->n_block - 1, n_pair = s->n_set / 2;
    step before = {0};
    /* pairs of sets, both halves with one pair after the other */
    for (int i = 0; i < 2 * n_pair; i++) {
        const step now = step_of(at, a, row, s, b, i / 2 * 2, i % 2);
        if (i == 0)
            block_sums(at->isum, now.p, now.x, type, 2, NULL);
        else {
            block_sums(at->isum, now.p, now.x, type, 2, &before);
            if (last)
                step_out(&before, 2, a, end, s);
        }
        before = now;
    }
    if (n_pair) {
        STORE_SUMS(0, 1, at->isum, type);
        STORE_SUMS(2, 3, at->isum, type);
        scale_rows(&before, 0, HALF, type, 2);
        if (last)
            step_out(&before, 2, a, end, s);
    }
    for (int h = 0; h < 2 * (s->n_set % 2); h++) {
        const step alone = step_of(at, a, row, s, b, s->n_set - 1, h);
        block_sums(at->isum, alone.p, alone.x, type, 1, NULL);
        STORE_SUMS(0, 1, at->isum, type);
        scale_rows(&alone, 0, HALF, type, 1);
        if (last)
            step_out(&alone, 1, a, end, s);
    }
}

/* Rows `row` ... end - 1, at most 32. */
INLINE void rows_of(const matmul_args *a, workspace *at, int64_t row, int64_t end,
                    const kc_block *s, int32_t type)
{
    const int64_t bytes = type_row_bytes(type, BLOCK_K), last = s->b0 + s->n_block - 1;
    const uint8_t *w[ROWS];
    rows_from(w, ROWS, a, row, end, type_row_bytes(type, a->n));
    for (int i = 0; s->b0 && i < 2 * s->n_set; i++) { /* what the KC blocks before left */
        const place from = place_of(a, s, i / 2, row + i % 2 * HALF, end);
        results_from(&at->y[i / 4][i % 2][i / 2 % 2], from.y, from.n_row, from.valid, from.n_tok);
    }
    for (int32_t b = s->b0; b <= last; b++) {
        /* of the next rows */
        const int64_t next =
            b < last ? (b + 1) * bytes : ROWS * (a->n / BLOCK_K) * bytes + s->b0 * bytes;
        for (int h = 0; h < 2; h++)
            unpack_half(&at->p[h], type, w + h * HALF, b * bytes, next);
        panel_sets(at, a, row, end, s, b, type);
    }
}

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, workspace *at, int32_t type)
{
    begin_tiles(ELEMENTS);
    for (kc_block s = {0}; next_kc_block(&s, a, BLOCK_K);)
        for (int64_t row = begin; row < end; row += ROWS)
            rows_of(a, at, row, end, &s, type);
    TILE_RELEASE();
}

void matmul_kquant_amx(const matmul_args *a, int64_t begin, int64_t end)
{
    workspace at;
#define CALL(type) matmul_of(a, begin, end, &at, type)
    switch (a->type) {
        TYPES_256(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
