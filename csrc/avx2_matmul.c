/* avx2_matmul.c - matrix products with AVX2, FMA and F16C; the bits of reference.c.
 *
 * Quantised products.  A panel of 8 rows of weights, at most 1,024 elements long, is unpacked
 * once to int8 (any 32-block type gives the same panel) so that lane = row: one 32-byte
 * vector holds 4 neighbouring elements of each of the 8 rows.  An activation's 4 elements are
 * broadcast against it; maddubs wants an unsigned factor, so the sign moves from the weight to
 * the activation: |w| <= 128, |x| <= 127, two products at most 32,512: it cannot saturate.
 * The sums of a block come out as 8 lanes, ready for one convert, one multiply and one fma.
 * One panel serves all tokens of the call, a decode's single one too: unpacking is cheaper
 * than reading the weights from memory.
 *
 * F32, F16, BF16 products.  2 x 2 or 4 x 1 tiles of rows x tokens: avx2.h. */
#ifdef __AVX2__
#include "avx2.h"

enum { BLOCK = 32, PANEL = 32, TOKENS = 4, TOKEN_BLOCK = 64 };

/* ---- quantised weights ------------------------------------------------------------------ */

typedef struct {
    __m256i w[PANEL][BLOCK / 4]; /* i8 [block][group of 4][row][4] */
    __m256 d[PANEL], m[PANEL];   /* f32 [block][row] */
} panel;

/* Blocks b0 ... b0 + n_block - 1 of 8 rows.  next: where the panel after this one begins in each of its rows; eight
 * short streams are more than the processor's own prefetcher follows. */
static void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS], const uint8_t *const next[ROWS], int32_t b0,
                   int32_t n_block)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK);
    for (int32_t b = 0; b < n_block; b++) {
        __m256i w[ROWS];
        uint16_t d[ROWS], m[ROWS] = {0};
        for (int r = 0; r < ROWS; r++) {
            _mm_prefetch((const char *)(next[r] + b * block_bytes), _MM_HINT_T0);
            const uint8_t *x = row[r] + (b0 + b) * block_bytes;
            memcpy(&d[r], x, 2); /* all three blocks begin with d */
            if (type == T_Q8_0) {
                w[r] = _mm256_loadu_si256((const __m256i *)(x + offsetof(block_q8_0, q)));
            } else if (type == T_Q4_0) {
                w[r] = _mm256_sub_epi8(nibbles(x + offsetof(block_q4_0, q)), _mm256_set1_epi8(8));
            } else {
                w[r] = nibbles(x + offsetof(block_q4_1, q));
                memcpy(&m[r], x + offsetof(block_q4_1, m), 2);
            }
        }
        transpose(p->w[b], w);
        p->d[b] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)d));
        p->m[b] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)m));
    }
}

/* T tokens from token t on; y has what earlier panels of these rows added, unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, int64_t row, __m256i valid, int64_t t, int32_t b0,
                         int32_t n_block, int T, int with_min)
{
    const int32_t per_token = a->n / BLOCK;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[TOKENS];
    for (int i = 0; i < T; i++)
        sum[i] = b0 ? _mm256_maskload_ps(a->y + (t + i) * a->n_row + row, valid) : _mm256_setzero_ps();
    for (int32_t b = 0; b < n_block; b++) {
        __m256i isum[TOKENS];
        for (int i = 0; i < T; i++)
            isum[i] = _mm256_setzero_si256();
        for (int g = 0; g < BLOCK / 4; g++) {
            const __m256i w = p->w[b][g], size = _mm256_abs_epi8(w);
            for (int i = 0; i < T; i++) {
                int32_t four;
                memcpy(&four, a->q + (t + i) * a->n + (int64_t)(b0 + b) * BLOCK + g * 4, 4);
                const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(four), w);
                isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
            }
        }
        for (int i = 0; i < T; i++) {
            const int64_t at = (t + i) * per_token + b0 + b;
            const __m256 scale = _mm256_mul_ps(p->d[b], _mm256_set1_ps(a->d[at]));
            sum[i] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(isum[i]), sum[i]);
            if (with_min)
                sum[i] = _mm256_fmadd_ps(p->m[b], _mm256_set1_ps(a->s[at]), sum[i]);
        }
    }
    for (int i = 0; i < T; i++)
        _mm256_maskstore_ps(a->y + (t + i) * a->n_row + row, valid, sum[i]);
}

static void matmul_quantised(const matmul_args *a, int64_t begin, int64_t end)
{
    const int64_t row_bytes = type_row_bytes(a->type, a->n), block_bytes = type_row_bytes(a->type, BLOCK);
    const int32_t n_block = a->n / BLOCK;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    panel p;
    for (int64_t row = begin; row < end; row += ROWS) {
        const uint8_t *w[ROWS], *next[ROWS];
        const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(end - row < ROWS ? (int32_t)(end - row) : ROWS), lane);
        rows_from(w, a, row, end, row_bytes);
        for (int32_t b0 = 0; b0 < n_block; b0 += PANEL) {
            const int32_t n = n_block - b0 < PANEL ? n_block - b0 : PANEL;
            int64_t t = 0;
            if (b0 + PANEL < n_block)
                for (int r = 0; r < ROWS; r++)
                    next[r] = w[r] + (b0 + PANEL) * block_bytes;
            else
                rows_from(next, a, row + ROWS, end, row_bytes);
            unpack(&p, a->type, w, next, b0, n);
            for (int64_t T; t < a->n_tok; t += T) {
                T = a->n_tok - t >= TOKENS ? TOKENS : 1;
                if (T == TOKENS && a->type == T_Q4_1)
                    panel_tokens(a, &p, row, valid, t, b0, n, TOKENS, 1);
                else if (T == TOKENS)
                    panel_tokens(a, &p, row, valid, t, b0, n, TOKENS, 0);
                else
                    panel_tokens(a, &p, row, valid, t, b0, n, 1, a->type == T_Q4_1);
            }
        }
    }
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

/* Rows begin ... end - 1, tokens t0 ... t1 - 1, in tiles; every tile is the same arithmetic. */
INLINE void tiles(const matmul_args *a, int64_t begin, int64_t end, int64_t t0, int64_t t1, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin, R; row < end; row += R) {
        const uint8_t *w[4];
        R = end - row >= 4 && t1 - t0 == 1 ? 4 : end - row >= 2 ? 2 : 1;
        for (int r = 0; r < R; r++)
            w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[row + r] : row + r) * row_bytes;
        for (int64_t t = t0, T; t < t1; t += T) {
            T = t1 - t >= 2 ? 2 : 1;
            const float *const x[2] = {a->x + t * a->n, a->x + (t + T - 1) * a->n};
            float *y = a->y + t * a->n_row + row;
            if (R == 2 && T == 2)
                tile(y, a->n_row, w, x, a->n, type, 2, 2);
            else if (R == 4)
                tile(y, a->n_row, w, x, a->n, type, 4, 1);
            else
                for (int r = 0; r < R; r++)
                    for (int i = 0; i < T; i++)
                        tile(y + i * a->n_row + r, a->n_row, w + r, x + i, a->n, type, 1, 1);
        }
    }
}

void matmul_avx2(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    switch (a->type) {
    case T_F32: case T_F16: case T_BF16: break;
    case T_Q8_0: case T_Q4_0: case T_Q4_1: matmul_quantised(a, begin, end); return;
    default: matmul_reference(arg, begin, end, thread); return;
    }
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK) { /* a block of activations and these rows stay in cache */
        const int64_t t1 = t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok;
        if (a->type == T_F32)
            tiles(a, begin, end, t, t1, T_F32);
        else if (a->type == T_F16)
            tiles(a, begin, end, t, t1, T_F16);
        else
            tiles(a, begin, end, t, t1, T_BF16);
    }
}
#endif
