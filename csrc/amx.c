/* amx.c - products of many tokens on AMX-INT8 (Intel since Sapphire Rapids, 2023); the bits of reference.c.
 *
 * TDPBSSD multiplies a tile of 16 tokens, up to 64 elements of each, with a tile of 16 rows of weights into 16 x 16 exact
 * sums.  The weights come from a panel in which lane = row, with
 * sign.  What costs is not that instruction (16 cycles) but the step in f32 that follows a block, for each of the
 * 256 sums: load, convert, product of scales, fma.  So the next block's tile is on its way while this one's sums are
 * scaled, and blocks of 256 have that step once:
 *
 *     w = scale (u - offset) = 128 high + low,   -64 <= low < 64,   |high| <= 33
 *
 * (|w| is at most 128 * 32, of Q6_K), so that their 256 elements are two chains of four full tiles, and the step sees
 * 128 sum(high x) + sum(low x).  2 bits with scales of 4 fit one digit.
 *
 * Up to 256 tokens share a panel: unpacking is the other cost.  Fewer than 8 tokens are left to AVX-512. */
#ifdef __AVX512VNNI__
#include "avx512_unpack.h"

enum { TOKENS = 16, TOKEN_BLOCK = 256, SETS = TOKEN_BLOCK / TOKENS, FEWEST = 8, PANEL = 24, PANEL_K = 2, AHEAD = 4, RING = 8 };

/* ---- tiles: 0 and 1 sums, 2 tokens, 3 and 4 weights -------------------------------------------- */

typedef struct { uint8_t palette, start_row, zero[14]; uint16_t row_bytes[16]; uint8_t n_row[16]; } tile_shapes;

/* As assembly: gcc 12's intrinsics do not say that they read and write memory. */
#define TILE_LOAD(tile, p, stride) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, p) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(p), "r"((int64_t)64) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")
#define TILE_DOT(sum, tokens, weights) \
    __asm__ volatile("tdpbssd %%tmm" #weights ", %%tmm" #tokens ", %%tmm" #sum : : : "memory")

/* Tiles for steps of `bytes` elements. */
static void begin_tiles(int bytes)
{
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 5; i++) {
        shapes.row_bytes[i] = (uint16_t)(i == 2 ? bytes : 64);
        shapes.n_row[i] = (uint8_t)(i > 2 ? bytes / 4 : TOKENS);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}

static void end_tiles(void) { __asm__ volatile("tilerelease" : : : "memory"); }

typedef struct { int32_t of[TOKENS][HALF]; } sums __attribute__((aligned(64)));

/* Up to 256 tokens in sets of 16, zeros behind, so that a tile is neighbouring memory: tokens as they were quantised are rows of
 * many KB, whose lines fall into the same few sets of a cache. */
typedef struct {
    int8_t q[SETS][PANEL * BLOCK * TOKENS];                  /* [step][token][elements of a step] */
    float d[SETS][PANEL][TOKENS], s[SETS][PANEL][TOKENS];    /* [block][token] */
} packed;

/* Tokens t0 ... t1 - 1, blocks b0 ... b0 + n_block - 1. */
INLINE void pack(packed *out, const matmul_args *a, int64_t t0, int64_t t1, int32_t b0, int32_t n_block, int is_32)
{
    const int64_t block = is_32 ? BLOCK : BLOCK_K, step = is_32 ? BLOCK : ELEMENTS, per_token = a->n / block;
    for (int64_t t = t0; t < (t1 + TOKENS - 1) / TOKENS * TOKENS; t++) {
        const int64_t set = (t - t0) / TOKENS, i = (t - t0) % TOKENS, at = t * per_token + b0;
        int8_t *to = out->q[set] + i * step;
        for (int64_t k = 0; k < n_block * block / step; k++)
            if (t < t1)
                memcpy(to + k * TOKENS * step, a->q + at * block + k * step, (size_t)step);
            else
                memset(to + k * TOKENS * step, 0, (size_t)step);
        for (int32_t b = 0; b < n_block; b++) {
            out->d[set][b][i] = t < t1 ? a->d[at + b] : 0.0f;
            if (is_32)
                out->s[set][b][i] = t < t1 ? a->s[at + b] : 0.0f;
        }
    }
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

typedef struct {
    __m512i w[PANEL][2][BLOCK / 4];  /* i8 [block][half][group of 4][row][4] */
    __m512 d[PANEL][2], m[PANEL][2]; /* f32 [block][row] */
} panel_32;

INLINE void unpack_32_rows(panel_32 *p, int32_t type, const uint8_t *const row[ROWS], int32_t b0, int32_t n_block)
{
    const int64_t bytes = type_row_bytes(type, BLOCK);
    const __m512i offset = _mm512_set1_epi8((char)offset_of(type));
    for (int32_t b = 0; b < n_block; b++)
        for (int h = 0; h < 2; h++) {
            const uint8_t *const *of = row + h * HALF;
            const int64_t at = (b0 + b) * bytes;
            __m512i w[BLOCK / 4][2];
            unpack_block(w, 0, type, of, at);
            for (int g = 0; g < BLOCK / 4; g++)
                p->w[b][h][g] = _mm512_sub_epi8(w[g][0], offset);
            p->d[b][h] = halves_of(of, at);
            p->m[b][h] = has_min(type) ? halves_of(of, at + 2) : _mm512_setzero_ps();
        }
}

/* The sums of a block. */
INLINE void block_32(sums *out, const packed *x, int set, const panel_32 *p, int32_t b, int h)
{
    TILE_ZERO(0);
    TILE_LOAD(2, x->q[set] + b * TOKENS * BLOCK, BLOCK);
    TILE_LOAD(3, p->w[b][h], 64);
    TILE_DOT(0, 2, 3);
    TILE_STORE(0, out);
}

/* A set of tokens and the rows of half h: the valid rows of n tokens go to y [n][n_row]. */
INLINE void set_32(float *y, int64_t n_row, int n, __mmask16 valid, const packed *x, int set, const panel_32 *p, int h, int32_t n_block,
                   int first, int32_t type)
{
    sums isum[RING];
    __m512 sum[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        sum[i] = first || i >= n ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(valid, y + i * n_row);
    for (int32_t b = 0; b < AHEAD && b < n_block; b++)
        block_32(&isum[b], x, set, p, b, h);
    for (int32_t b = 0; b < n_block; b++) {
        if (b + AHEAD < n_block)
            block_32(&isum[(b + AHEAD) % RING], x, set, p, b + AHEAD, h);
        const __m512 d = p->d[b][h], m = p->m[b][h];
        for (int i = 0; i < TOKENS; i++) {
            const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x->d[set][b][i]));
            sum[i] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(_mm512_load_si512(isum[b % RING].of[i])), sum[i]);
            if (has_min(type))
                sum[i] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->s[set][b][i]), sum[i]);
        }
    }
    for (int i = 0; i < TOKENS; i++)
        if (i < n)
            _mm512_mask_storeu_ps(y + i * n_row, valid, sum[i]);
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

typedef struct {
    __m512i w[PANEL_K][2][4][2][ELEMENTS / 4]; /* i8 [block][half][64 elements][digit: low, high][group of 4][row][4] */
    __m512i min[PANEL_K][2][N_GROUP / 2];      /* i16 [block][half][two groups][row][2] */
    __m512 d[PANEL_K][2], m[PANEL_K][2];       /* f32 [block][row] */
} panel_256;

INLINE int digits_of(int32_t type) { return type == T_Q2_K ? 1 : 2; }

/* The digits of a block of one row. */
INLINE void digits(int8_t low[BLOCK_K], int8_t high[BLOCK_K], __m128i *min, int32_t type, const uint8_t *block)
{
    const __m512i scale = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(group_scales(min, type, block)));
    const __m512i offset = _mm512_set1_epi16((int16_t)offset_of(type));
    for (int k = 0; k < 4; k++) {
        const __m512i u = natural_64(type, block, k);
        for (int i = 0; i < 2; i++) { /* 32 elements, two groups */
            const __m512i group = _mm512_add_epi16(_mm512_maskz_set1_epi16(0xffff0000, 1), _mm512_set1_epi16((int16_t)(4 * k + 2 * i)));
            const __m512i q = _mm512_sub_epi16(_mm512_cvtepu8_epi16(i ? _mm512_extracti64x4_epi64(u, 1) : _mm512_castsi512_si256(u)), offset);
            const __m512i w = _mm512_mullo_epi16(q, _mm512_permutexvar_epi16(group, scale));
            const __m512i upper = digits_of(type) == 2 ? _mm512_srai_epi16(_mm512_add_epi16(w, _mm512_set1_epi16(64)), 7) : _mm512_setzero_si512();
            _mm256_storeu_si256((__m256i *)(low + ELEMENTS * k + 32 * i), _mm512_cvtepi16_epi8(_mm512_sub_epi16(w, _mm512_slli_epi16(upper, 7))));
            if (digits_of(type) == 2)
                _mm256_storeu_si256((__m256i *)(high + ELEMENTS * k + 32 * i), _mm512_cvtepi16_epi8(upper));
        }
    }
}

INLINE void unpack_256_half(panel_256 *p, int32_t b, int h, int32_t type, const uint8_t *const row[HALF], int64_t at)
{
    int8_t digit[2][HALF][BLOCK_K];
    uint8_t mins[HALF][N_GROUP];
    __m512i c[4];
    for (int r = 0; r < HALF; r++) {
        __m128i min;
        digits(digit[0][r], digit[1][r], &min, type, row[r] + at);
        _mm_storeu_si128((__m128i *)mins[r], min);
    }
    for (int i = 0; i < digits_of(type); i++)
        for (int k = 0; k < BLOCK_K; k += 16)
            transpose_16(&p->w[b][h][k / ELEMENTS][i][k % ELEMENTS / 4], (const uint8_t *)digit[i][0] + k, BLOCK_K);
    transpose_16(c, mins[0], N_GROUP);
    if (has_min(type))
        for (int g = 0; g < N_GROUP / 2; g++)
            p->min[b][h][g] = two_groups(c, g);
    p->d[b][h] = halves_of(row, at + at_d(type));
    p->m[b][h] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm512_setzero_ps();
}

INLINE void block_256(sums out[2], const packed *x, int set, const panel_256 *p, int32_t b, int h, int32_t type)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (int k = 0; k < 4; k++) {
        TILE_LOAD(2, x->q[set] + (4 * b + k) * TOKENS * ELEMENTS, ELEMENTS);
        TILE_LOAD(3, p->w[b][h][k][0], 64);
        TILE_DOT(0, 2, 3);
        if (digits_of(type) == 2) {
            TILE_LOAD(4, p->w[b][h][k][1], 64);
            TILE_DOT(1, 2, 4);
        }
    }
    TILE_STORE(0, &out[0]);
    if (digits_of(type) == 2)
        TILE_STORE(1, &out[1]);
}

/* Block b of n tokens of a set and the rows of half h; group: the sums of groups of the first token, `groups` apart. */
INLINE void add_256(float *y, int64_t n_row, int n, __mmask16 valid, const sums isum[2], const float d[TOKENS], const int16_t *group,
                    int64_t groups, const panel_256 *p, int32_t b, int h, int first, int32_t type)
{
    for (int i = 0; i < n; i++, y += n_row, group += groups) {
        const __m512 scale = _mm512_set1_ps(d[i]);
        __m512i total = _mm512_load_si512(isum[0].of[i]);
        if (digits_of(type) == 2)
            total = _mm512_add_epi32(total, _mm512_slli_epi32(_mm512_load_si512(isum[1].of[i]), 7));
        __m512 sum = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(valid, y);
        sum = _mm512_fmadd_ps(_mm512_mul_ps(p->d[b][h], scale), _mm512_cvtepi32_ps(total), sum);
        if (has_min(type))
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(p->m[b][h], scale), _mm512_cvtepi32_ps(with_sums(p->min[b][h], 1, group)), sum);
        _mm512_mask_storeu_ps(y, valid, sum);
    }
}

/* ---- both -------------------------------------------------------------------------------------- */

/* What a panel is multiplied with: tokens t0 ... t1 - 1, blocks b0 ... b0 + n_block - 1. */
typedef struct { const packed *x; int64_t t0, t1; int32_t b0, n_block; } stretch;

INLINE int tokens_in(const stretch *s, int64_t t) { return s->t1 - t < TOKENS ? (int)(s->t1 - t) : TOKENS; }

INLINE void panel_32_tokens(const matmul_args *a, const stretch *s, const panel_32 *p, int64_t row, int64_t end, int32_t type)
{
    for (int64_t t = s->t0; t < s->t1; t += TOKENS)
        for (int h = 0; h < 2; h++)
            set_32(a->y + t * a->n_row + row + h * HALF, a->n_row, tokens_in(s, t), first_lanes(end - row - h * HALF), s->x,
                   (int)((t - s->t0) / TOKENS), p, h, s->n_block, !s->b0, type);
}

/* Item i is a set, a half and a block, blocks first. */
INLINE void panel_256_tokens(const matmul_args *a, const stretch *s, const panel_256 *p, int64_t row, int64_t end, int32_t type)
{
    const int n_set = (int)((s->t1 - s->t0 + TOKENS - 1) / TOKENS), n_item = n_set * 2 * s->n_block;
    const int64_t groups = a->n / GROUP_K;
    sums isum[2][2];
    block_256(isum[0], s->x, 0, p, 0, 0, type);
    for (int i = 0; i < n_item; i++) {
        const int32_t b = i % s->n_block, h = i / s->n_block % 2, set = i / s->n_block / 2;
        const int64_t t = s->t0 + set * TOKENS;
        if (i + 1 < n_item)
            block_256(isum[(i + 1) % 2], s->x, (i + 1) / s->n_block / 2, p, (i + 1) % s->n_block, (i + 1) / s->n_block % 2, type);
        add_256(a->y + t * a->n_row + row + h * HALF, a->n_row, tokens_in(s, t), first_lanes(end - row - h * HALF), isum[i % 2], s->x->d[set][b],
                a->sums + t * groups + (s->b0 + b) * N_GROUP, groups, p, b, h, !(s->b0 + b), type);
    }
}

/* Of a call, whatever the type: 12 of them, one for each copy of the functions below, would not fit the stack of a thread. */
typedef struct { packed x; union { panel_32 of_32; panel_256 of_256; } p; } room;

/* All rows. */
INLINE void panels(const matmul_args *a, int64_t begin, int64_t end, const stretch *s, room *at, int32_t type, int is_32)
{
    const int64_t bytes = type_row_bytes(type, is_32 ? BLOCK : BLOCK_K);
    for (int64_t row = begin; row < end; row += ROWS) {
        const uint8_t *w[ROWS];
        rows_from(w, ROWS, a, row, end);
        if (is_32) {
            unpack_32_rows(&at->p.of_32, type, w, s->b0, s->n_block);
            panel_32_tokens(a, s, &at->p.of_32, row, end, type);
            continue;
        }
        for (int32_t b = 0; b < s->n_block; b++)
            for (int h = 0; h < 2; h++)
                unpack_256_half(&at->p.of_256, b, h, type, w + h * HALF, (s->b0 + b) * bytes);
        panel_256_tokens(a, s, &at->p.of_256, row, end, type);
    }
}

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, room *at, int32_t type, int is_32)
{
    const int32_t all = a->n / (is_32 ? BLOCK : BLOCK_K), most = is_32 ? PANEL : PANEL_K;
    begin_tiles(is_32 ? BLOCK : ELEMENTS);
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK)
        for (int32_t b0 = 0; b0 < all; b0 += most) {
            const stretch s = {&at->x, t, t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, b0, all - b0 < most ? all - b0 : most};
            pack(&at->x, a, s.t0, s.t1, b0, s.n_block, is_32);
            panels(a, begin, end, &s, at, type, is_32);
        }
    end_tiles();
}

/* Apart, so that its room is not on the stack when the product is left to another set. */
static __attribute__((noinline)) void matmul_tiles(const matmul_args *a, int64_t begin, int64_t end)
{
    room at;
    switch (a->type) {
    case T_Q8_0: matmul_of(a, begin, end, &at, T_Q8_0, 1); break;
    case T_Q4_0: matmul_of(a, begin, end, &at, T_Q4_0, 1); break;
    case T_Q4_1: matmul_of(a, begin, end, &at, T_Q4_1, 1); break;
    case T_Q5_0: matmul_of(a, begin, end, &at, T_Q5_0, 1); break;
    case T_Q5_1: matmul_of(a, begin, end, &at, T_Q5_1, 1); break;
    case T_IQ4_NL: matmul_of(a, begin, end, &at, T_IQ4_NL, 1); break;
    case T_Q2_K: matmul_of(a, begin, end, &at, T_Q2_K, 0); break;
    case T_Q3_K: matmul_of(a, begin, end, &at, T_Q3_K, 0); break;
    case T_Q4_K: matmul_of(a, begin, end, &at, T_Q4_K, 0); break;
    case T_Q5_K: matmul_of(a, begin, end, &at, T_Q5_K, 0); break;
    case T_Q6_K: matmul_of(a, begin, end, &at, T_Q6_K, 0); break;
    case T_IQ4_XS: matmul_of(a, begin, end, &at, T_IQ4_XS, 0); break;
    }
}

void matmul_amx(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    if (a->n_tok < FEWEST || type_block(a->type) == 1)
        matmul_avx512(arg, begin, end, thread);
    else
        matmul_tiles(a, begin, end);
}
#endif
