/* avx512_matmul.c - matrix products with AVX-512 and VNNI; the bits of reference.c.
 *
 * Quantised products.  A panel of 32 rows of weights, at most 768 elements long, is unpacked once so that
 * lane = row: one 64-byte vector holds 4 neighbouring elements of each of 16 rows.  VPDPBUSD wants its first factor
 * unsigned: the weight, with `offset` added (Q8_0 and IQ4_NL 128, Q5_0 16, Q4_0 8, those with a minimum none), so that
 * sum(w x) = sum((w + offset) x) - offset sum(x): the block's sum begins at that last term.  Nothing can
 * overflow (32 * 255 * 127 < 2^20).  An activation's 4 elements are broadcast; 2 x 6 tiles, 32 rows by 6 tokens, use
 * 24 registers for sums, and what the units for arithmetic do per block, 32 rows and token is 16 VPDPBUSD, 2 converts,
 * 2 multiplies and 2 fma.  768 elements: panel and tokens stay in the first-level cache.
 *
 * F32, F16, BF16 products.  4 x 4 or 4 x 1 tiles of rows x tokens: avx512.h. */
#ifdef __AVX512VNNI__
#include "avx512_unpack.h"

enum { PANEL = 24, TOKENS = 6, TOKEN_BLOCK = 128, LONG_ROW = 4096 };

/* ---- quantised weights ------------------------------------------------------------------ */

typedef struct {
    __m512i w[PANEL][BLOCK / 4][2];  /* u8 [block][group of 4][row][4] */
    __m512 d[PANEL][2], m[PANEL][2]; /* f32 [block][row] */
} panel;
typedef struct { int32_t of[TOKEN_BLOCK][(PANEL + 15) / 16 * 16]; } begin_sums; /* [token][block]: -offset sum(x) */

/* Blocks b0 ... b0 + n_block - 1 of 32 rows.  next: the rows of the panel after this one; so many short streams are more
 * than the processor's own prefetcher follows. */
INLINE void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS], const uint8_t *const next[ROWS], int32_t b0,
                   int32_t n_block, int64_t block_bytes)
{
    uint16_t d[PANEL][ROWS], m[PANEL][ROWS]; /* all of them first: a load of 16 that follows their stores at once would wait */
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = (b0 + b) * block_bytes;
        unpack_block(p->w[b], 0, type, row, at);
        unpack_block(p->w[b], 1, type, row + HALF, at);
        for (int r = 0; r < ROWS; r++) {
            _mm_prefetch((const char *)(next[r] + at), _MM_HINT_T0);
            memcpy(&d[b][r], row[r] + at, 2); /* all blocks begin with d, then m */
            if (has_min(type))
                memcpy(&m[b][r], row[r] + at + offsetof(block_q4_1, m), 2);
        }
    }
    for (int32_t b = 0; b < n_block; b++)
        for (int h = 0; h < 2; h++) {
            p->d[b][h] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)&d[b][h * HALF]));
            if (has_min(type))
                p->m[b][h] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)&m[b][h * HALF]));
        }
}

/* Blocks b0 ... b0 + n - 1 of tokens t0 ... t1 - 1.  s / d is the sum of the block's q but for two roundings, so off by less
 * than 4064 / 2^23, and the estimate of 1 / d by 4064 / 2^14 = 0.25: the nearest integer is exact.  Where d is so large that
 * s may have overflowed the q are added.  Zero blocks (d = 0) would give NaN: 0. */
static void begin(begin_sums *out, const matmul_args *a, int64_t t0, int64_t t1, int32_t b0, int32_t n, int32_t offset)
{
    for (int64_t t = t0; t < t1; t++)
        for (int32_t b = 0; b < n; b += 16) {
            const __mmask16 valid = first_lanes(n - b);
            const int64_t at = t * (a->n / BLOCK) + b0 + b;
            const __m512 d = _mm512_maskz_loadu_ps(valid, a->d + at), s = _mm512_maskz_loadu_ps(valid, a->s + at);
            const __mmask16 some = _mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_GT_OQ);
            const __m512i sum = _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(s, _mm512_rcp14_ps(d)));
            _mm512_storeu_si512(&out->of[t - t0][b], _mm512_mullo_epi32(sum, _mm512_set1_epi32(-offset)));
            for (uint32_t left = _mm512_cmp_ps_mask(d, _mm512_set1_ps(0x1p110f), _CMP_GE_OQ); left; left &= left - 1) {
                const int i = __builtin_ctz(left);
                int32_t exact = 0;
                for (int k = 0; k < BLOCK; k++)
                    exact += a->q[(at + i) * BLOCK + k];
                out->of[t - t0][b + i] = -offset * exact;
            }
        }
}

/* T tokens from token t on; y has what earlier panels of these rows added, unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, const begin_sums *first, int64_t row, const __mmask16 valid[2],
                         int64_t t, int32_t b0, int32_t n_block, int32_t type, int T)
{
    const int64_t per_token = a->n / BLOCK;
    const int8_t *q = a->q + t * a->n + (int64_t)b0 * BLOCK;
    const float *d = a->d + t * per_token + b0, *s = a->s + t * per_token + b0;
    float *y = a->y + t * a->n_row + row;
    __m512 sum[TOKENS][2];
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            sum[i][h] = b0 ? _mm512_maskz_loadu_ps(valid[h], y + (int64_t)i * a->n_row + h * HALF) : _mm512_setzero_ps();
    for (int32_t b = 0; b < n_block; b++) {
        __m512i isum[TOKENS][2];
        for (int i = 0; i < T; i++)
            isum[i][0] = isum[i][1] = has_min(type) ? _mm512_setzero_si512() : _mm512_set1_epi32(first->of[t % TOKEN_BLOCK + i][b]);
        for (int g = 0; g < BLOCK / 4; g++)
            for (int i = 0; i < T; i++) {
                int32_t four;
                memcpy(&four, q + i * a->n + b * BLOCK + g * 4, 4);
                const __m512i x = _mm512_set1_epi32(four);
                isum[i][0] = _mm512_dpbusd_epi32(isum[i][0], p->w[b][g][0], x);
                isum[i][1] = _mm512_dpbusd_epi32(isum[i][1], p->w[b][g][1], x);
            }
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++) {
                const __m512 scale = _mm512_mul_ps(p->d[b][h], _mm512_set1_ps(d[i * per_token + b]));
                sum[i][h] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(isum[i][h]), sum[i][h]);
                if (has_min(type))
                    sum[i][h] = _mm512_fmadd_ps(p->m[b][h], _mm512_set1_ps(s[i * per_token + b]), sum[i][h]);
            }
    }
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(y + (int64_t)i * a->n_row + h * HALF, valid[h], sum[i][h]);
}

/* All rows, blocks b0 and on up to a panel of them, tokens t0 ... t1 - 1. */
INLINE void panels(const matmul_args *a, int64_t begin_row, int64_t end, int32_t b0, int64_t t0, int64_t t1, const begin_sums *first,
                   int32_t type)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK);
    const int32_t n = a->n / BLOCK - b0 < PANEL ? a->n / BLOCK - b0 : PANEL;
    panel p;
    for (int64_t row = begin_row; row < end; row += ROWS) {
        const uint8_t *w[ROWS], *next[ROWS];
        const __mmask16 valid[2] = {first_lanes(end - row), first_lanes(end - row - HALF)};
        int64_t t = t0;
        rows_from(w, ROWS, a, row, end);
        rows_from(next, ROWS, a, row + ROWS, end);
        unpack(&p, type, w, next, b0, n, block_bytes);
        for (; t + TOKENS <= t1; t += TOKENS)
            panel_tokens(a, &p, first, row, valid, t, b0, n, type, TOKENS);
        for (; t + TOKENS / 2 <= t1; t += TOKENS / 2)
            panel_tokens(a, &p, first, row, valid, t, b0, n, type, TOKENS / 2);
        for (; t < t1; t++)
            panel_tokens(a, &p, first, row, valid, t, b0, n, type, 1);
    }
}

INLINE void matmul_quantised(const matmul_args *a, int64_t begin_row, int64_t end, int32_t type)
{
    begin_sums first;
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK)
        for (int32_t b0 = 0; b0 < a->n / BLOCK; b0 += PANEL) {
            const int64_t t1 = t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok;
            const int32_t n = a->n / BLOCK - b0 < PANEL ? a->n / BLOCK - b0 : PANEL;
            if (!has_min(type))
                begin(&first, a, t, t1, b0, n, offset_of(type));
            panels(a, begin_row, end, b0, t, t1, &first, type);
        }
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

/* Rows begin ... end - 1, tokens t0 ... t1 - 1, in tiles; every tile is the same arithmetic. */
INLINE void tiles(const matmul_args *a, int64_t begin, int64_t end, int64_t t0, int64_t t1, int32_t type)
{
    for (int64_t row = begin; row < end; row += TILE) {
        const uint8_t *w[TILE];
        const __mmask16 valid = first_lanes(end - row < TILE ? end - row : TILE);
        rows_from(w, TILE, a, row, end);
        int64_t t = t0;
        for (; t + TILE <= t1; t += TILE) {
            const float *const x[TILE] = {a->x + t * a->n, a->x + (t + 1) * a->n, a->x + (t + 2) * a->n, a->x + (t + 3) * a->n};
            float sum[TILE * TILE];
            _mm512_storeu_ps(sum, tile(type, w, x, a->n, TILE));
            for (int i = 0; i < TILE; i++)
                _mm_mask_storeu_ps(a->y + (t + i) * a->n_row + row, (__mmask8)valid, _mm_loadu_ps(sum + i * TILE));
        }
        for (; t < t1; t++) {
            const float *const x[1] = {a->x + t * a->n};
            _mm512_mask_storeu_ps(a->y + t * a->n_row + row, valid, tile(type, w, x, a->n, 1));
        }
    }
}

/* One token: a row of each of 4 streams at a time; why: avx512_matvec.c. */
INLINE void streams(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    const int64_t n_own = (end - begin + TILE - 1) / TILE;
    for (int64_t row = begin; row < begin + n_own; row++) {
        const uint8_t *w[TILE];
        float sum[HALF];
        for (int r = 0; r < TILE; r++)
            rows_from(w + r, 1, a, row + r * n_own, end);
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
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK) /* a block of activations and these rows stay in cache */
        tiles(a, begin, end, t, t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, type);
}

void matmul_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    const int is_matvec = a->n_tok == 1 && type_block(a->type) != 1;
    if (is_matvec && (type_block(a->type) == BLOCK || a->n > LONG_ROW) && has_avx_vnni()) { /* its eight streams read faster */
        matmul_avx_vnni(arg, begin, end, thread);
        return;
    }
    if (is_matvec && a->type != T_Q8_0 && a->n % 256 == 0) {
        matvec_avx512(a, begin, end);
        return;
    }
    if (a->n_tok < 3 && type_block(a->type) == BLOCK) { /* a panel does not pay */
        matmul_avx2(arg, begin, end, thread);
        return;
    }
    switch (a->type) {
    case T_F32: matmul_float(a, begin, end, T_F32); break;
    case T_F16: matmul_float(a, begin, end, T_F16); break;
    case T_BF16: matmul_float(a, begin, end, T_BF16); break;
    case T_Q8_0: matmul_quantised(a, begin, end, T_Q8_0); break;
    case T_Q4_0: matmul_quantised(a, begin, end, T_Q4_0); break;
    case T_Q4_1: matmul_quantised(a, begin, end, T_Q4_1); break;
    case T_Q5_0: matmul_quantised(a, begin, end, T_Q5_0); break;
    case T_Q5_1: matmul_quantised(a, begin, end, T_Q5_1); break;
    case T_IQ4_NL: matmul_quantised(a, begin, end, T_IQ4_NL); break;
    default: matmul_kquant_avx512(a, begin, end);
    }
}
#endif
