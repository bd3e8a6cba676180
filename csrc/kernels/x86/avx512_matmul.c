/* avx512_matmul.c - GEMM of blocks of 32, AVX-512 VNNI; floats of one token, or of too few for a
 * panel.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 32, Y f32.
 * Micro-kernel: MR = 32 rows, NR = 6 tokens, KC <= 768 (PANEL blocks), so that panel and tokens
 *   stay in the first-level cache.
 * Registers: 24 of 32 zmm (12 sums in int32, 12 in f32); lane = row.
 * Packing: W to i8 panels [block][k/4][row][4]; X to micropanels of NR tokens, avx512_pack.h.
 * Overflow: none; 32 * 255 * 128 < 2^21.
 * Result: bit-identical to reference.c.
 *
 * Limit: a block of 16 rows and a token is 8 VPDPBUSD, and for its scale a multiply and an fma, two
 * with a minimum. All of these share two units, so the bound is 8 of 10 of VPDPBUSD's own speed, or
 * of 11. Conversions have units of their own on Zen 5; where two units do everything, the bounds
 * are 8 of 11 and of 12. The micro-kernel alone comes to within 1 % of that on Zen 5 if the scale
 * step of a token follows its last products, and to 7 % if it follows those of all 6.
 *
 * Floats: tiles of 4 x 4 or 4 x 1 rows x tokens, avx512.h; more tokens: avx512_float.c. */
#ifdef __AVX512VNNI__
#include "kernels/x86/avx512_pack.h"
#include "runtime/isa.h"

enum { PANEL = 24, PANEL_BLOCK = BLOCK, TOKEN_BLOCK = 128 };

/* ---- quantised weights ------------------------------------------------------------------ */

typedef struct {
    __m512i w[PANEL][BLOCK / 4][2]; /* i8 [block][group of 4][row][4] */
    /* i32 [block][row]: -128 times the sum of the block's weights */
    __m512i begin[PANEL][2];
    __m512 d[PANEL][2], m[PANEL][2]; /* f32 [block][row] */
} panel;
typedef set_32 packed_set;

/* Blocks b0 ... b0 + n_block - 1 of 32 rows. */
INLINE void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS], int32_t b0,
                   int32_t n_block)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK);
    /* all of them first: a load of 16 that follows their stores at once would wait */
    uint16_t d[PANEL][ROWS], m[PANEL][ROWS];
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = (b0 + b) * block_bytes;
        unpack_block(p->w[b], 0, type, row, at);
        unpack_block(p->w[b], 1, type, row + HALF, at);
        for (int h = 0; h < 2; h++) {
            p->begin[b][h] = _mm512_setzero_si512();
            for (int g = 0; g < BLOCK / 4; g++)
                p->begin[b][h] = less_128(p->begin[b][h], p->w[b][g][h]);
        }
        for (int r = 0; r < ROWS; r++) {
            memcpy(&d[b][r], row[r] + at, 2); /* all blocks begin with d, then m */
            if (has_min(type))
                memcpy(&m[b][r], row[r] + at + offsetof(block_q4_1, m), 2);
        }
    }
    for (int32_t b = 0; b < n_block; b++)
        for (int h = 0; h < 2; h++) {
            p->d[b][h] = scales_of_32(type, _mm256_loadu_si256((const __m256i *)&d[b][h * HALF]));
            if (has_min(type))
                p->m[b][h] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)&m[b][h * HALF]));
        }
}

/* A set of T tokens: from, to [token][row]: what earlier panels of these rows added, and where the
 * sums go.  The next set, n_all blocks on, is prefetched. */
INLINE void panel_set(const panel *p, const set_32 *x, int64_t n_all, const float (*from)[ROWS],
                      float (*to)[ROWS], int32_t n_block, int32_t type, int T)
{
    __m512 sum[NR][2];
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            sum[i][h] = _mm512_loadu_ps(from[i] + h * HALF);
    for (int32_t b = 0; b < n_block; b++) {
        __m512i isum[NR][2];
        for (int i = 0; i < (int)sizeof *x; i += 64)
            _mm_prefetch((const char *)(x + n_all + b) + i, _MM_HINT_T0);
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++)
                isum[i][h] = p->begin[b][h];
        const __m512 d[2] = {p->d[b][0], p->d[b][1]};
#pragma GCC unroll 8
        for (int g = 0; g < BLOCK / 4; g++) {
            const __m512i w[2] = {p->w[b][g][0], p->w[b][g][1]};
#pragma GCC unroll 6
            for (int i = 0; i < T; i++) {
                const __m512i four = _mm512_set1_epi32(x[b].q[g][i]);
                DOT(isum[i][0], four, w[0]);
                DOT(isum[i][1], four, w[1]);
                for (int h = 0; h < 2 && g == BLOCK / 4 - 1; h++) {
                    const __m512 scale = _mm512_mul_ps(d[h], _mm512_set1_ps(x[b].d[i]));
                    sum[i][h] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(isum[i][h]), sum[i][h]);
                    if (has_min(type))
                        sum[i][h] =
                            _mm512_fmadd_ps(p->m[b][h], _mm512_set1_ps(x[b].s[i]), sum[i][h]);
                }
            }
        }
    }
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            _mm512_storeu_ps(to[i] + h * HALF, sum[i][h]);
}

INLINE void add_set(const panel *p, const packed_set *x, int64_t n_all, const float (*from)[ROWS],
                    float (*to)[ROWS], int32_t n_block, int32_t type, int n_tok)
{
    if (n_tok > NR / 2)
        panel_set(p, x, n_all, from, to, n_block, type, NR);
    else
        panel_set(p, x, n_all, from, to, n_block, type, NR / 2);
}

#include "kernels/x86/avx512_panels.h"

static void matmul_32(const matmul_args *a, int64_t begin, int64_t end)
{
    /* 72 KB, once and not for each type: a caller may have 256 KB of stack */
    _Alignas(64) kept_sums kept;
#define CALL(type) matmul_panels(kept, a, begin, end, type)
    switch (a->type) {
        TYPES_32(CASE_OF_TYPE)
    }
#undef CALL
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

/* Rows begin ... end - 1, tokens t0 ... t1 - 1, in tiles; every tile is the same arithmetic. */
INLINE void tiles(const matmul_args *a, int64_t begin, int64_t end, int64_t t0, int64_t t1,
                  int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin; row < end; row += TILE) {
        const uint8_t *w[TILE];
        const __mmask16 valid = first_lanes(end - row < TILE ? end - row : TILE);
        rows_from(w, TILE, a, row, end, row_bytes);
        int64_t t = t0;
        for (; t + TILE <= t1; t += TILE) {
            const float *const x[TILE] = {a->x + t * a->n, a->x + (t + 1) * a->n,
                                          a->x + (t + 2) * a->n, a->x + (t + 3) * a->n};
            float sum[TILE * TILE];
            _mm512_storeu_ps(sum, tile(type, w, x, a->n, TILE));
            for (int i = 0; i < TILE; i++)
                _mm_mask_storeu_ps(a->y + (t + i) * a->n_row + row, (__mmask8)valid,
                                   _mm_loadu_ps(sum + i * TILE));
        }
        for (; t < t1; t++) {
            const float *const x[1] = {a->x + t * a->n};
            _mm512_mask_storeu_ps(a->y + t * a->n_row + row, valid, tile(type, w, x, a->n, 1));
        }
    }
}

/* One token: a row of each of 4 streams at a time; one alone stands still wherever
 * a page ends, as the processor does not look beyond it. */
INLINE void streams(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    const int64_t n_own = (end - begin + TILE - 1) / TILE, row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin; row < begin + n_own; row++) {
        const uint8_t *w[TILE];
        float sum[HALF];
        for (int r = 0; r < TILE; r++)
            rows_from(w + r, 1, a, row + r * n_own, end, row_bytes);
        _mm512_storeu_ps(sum, tile(type, w, &a->x, a->n, 1));
        for (int r = 0; r < TILE && row + r * n_own < end; r++)
            a->y[row + r * n_own] = sum[r];
    }
}

INLINE void matmul_float(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    if (a->n_tok == 1) {
        streams(a, begin, end, type);
        return;
    }
    for (int64_t t = 0; t < a->n_tok;
         t += TOKEN_BLOCK) /* a block of activations and these rows stay in cache */
        tiles(a, begin, end, t, t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, type);
}

void matmul_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    if (a->n_tok == 1 && type_block(a->type) != 1) {
        matvec_avx512(a, begin, end);
        return;
    }
    /* one token, too few for a panel, or no memory to pack them */
    if (type_block(a->type) != 1 && !a->packed) {
        (has_avx_vnni() ? matmul_avx_vnni : matmul_avx2)(arg, begin, end, thread);
        return;
    }
    if (type_block(a->type) == 1 && a->packed) {
        matmul_floats_avx512(a, begin, end, thread);
        return;
    }
    switch (a->type) {
    case T_F32: matmul_float(a, begin, end, T_F32); break;
    case T_F16: matmul_float(a, begin, end, T_F16); break;
    case T_BF16: matmul_float(a, begin, end, T_BF16); break;
    default:
        if (type_block(a->type) == BLOCK)
            matmul_32(a, begin, end);
        else
            matmul_kquant_avx512(a, begin, end);
    }
}
#endif
