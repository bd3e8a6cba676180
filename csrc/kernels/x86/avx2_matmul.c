/* avx2_matmul.c - GEMM of blocks of 32, AVX2 with FMA and F16C; floats of one token, or of too few
 * for a panel. avx-vnni_matmul.c compiles the quantized part again.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 32, Y f32.
 * Micro-kernel: MR = 8 rows (16 with VPDPBUSD), NR <= 6 tokens, KC <= 1,024 (PANEL blocks);
 *   TOKEN_BLOCK tokens share a panel.
 * Registers: 12 of 16 ymm (6 sums in f32, 6 in int32); lane = row.
 * Packing: W to i8 panels [block][k/4][row][4]; 4 elements of X are broadcast.
 * Overflow: none. maddubs wants an unsigned factor: small weights have an offset added, and a
 *   block's sum begins at -offset sum(x); of large ones the sign moves to x, |w| <= 128, |x| <=
 * 127, two products <= 32,512. Sums of more products of small weights stay in 16 bits before they
 * go to 32. VPDPBUSD adds four products to 32 bits at once; there all types have an offset. Result:
 * bit-identical to reference.c.
 *
 * Floats: tiles of 2 x 2 or 4 x 1 rows x tokens, avx2.h; more tokens: avx2_float.c. One token and
 * blocks: avx2_matvec.c. */
#ifdef __AVX2__
#include "kernels/x86/avx2.h"

enum { BLOCK = 32, PANEL = 32, TOKEN_BLOCK = 256 };

/* ---- quantised weights ------------------------------------------------------------------ */

typedef struct {
    __m256i w[PANEL][BLOCK / 4]; /* i8 [block][group of 4][row][4] */
    __m256 d[PANEL], m[PANEL];   /* f32 [block][row] */
} panel;
typedef struct { int32_t of[TOKEN_BLOCK][PANEL]; } begin_sums; /* [token][block]: -offset sum(x) */

/* 16 in each of 32 bytes whose bit of h is set. */
INLINE __m256i fifth_bits(const uint8_t *h)
{
    int32_t bits;
    memcpy(&bits, h, 4);
    /* byte i of the four to the 8 bytes of its elements, there one bit of it each */
    const __m256i which =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), which);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit),
                            _mm256_set1_epi8(16));
}

/* The 32 weights of a block, plus offset_of(type). */
INLINE __m256i weights_of(int32_t type, const uint8_t *x)
{
    const int offset = offset_of(type);
    switch (type) {
    case T_Q4_0: return nibbles(x + offsetof(block_q4_0, q));
    case T_Q4_1: return nibbles(x + offsetof(block_q4_1, q));
    case T_Q5_0:
        return _mm256_or_si256(nibbles(x + offsetof(block_q5_0, q)),
                               fifth_bits(x + offsetof(block_q5_0, h)));
    case T_Q5_1:
        return _mm256_or_si256(nibbles(x + offsetof(block_q5_1, q)),
                               fifth_bits(x + offsetof(block_q5_1, h)));
    case T_IQ4_NL:
    case T_MXFP4:
        return _mm256_add_epi8(values_of(type, nibbles(x + bytes_of_block(type) - BLOCK / 2)),
                               _mm256_set1_epi8((char)offset));
    default:
        return _mm256_add_epi8(_mm256_loadu_si256((const __m256i *)(x + offsetof(block_q8_0, q))),
                               _mm256_set1_epi8((char)offset));
    }
}

/* 8 lanes whose sum is -offset sum(x) of a block. */
INLINE __m256i begin_lanes(int32_t type, __m256i x)
{
    const __m256i zero = _mm256_setzero_si256(), offset = _mm256_set1_epi8((char)offset_of(type));
    return offset_of(type) ? _mm256_sub_epi32(zero, add_fours(zero, type, offset, x)) : zero;
}

/* Blocks b0 ... b0 + n - 1 of tokens t0 ... t1 - 1. */
INLINE void begin(begin_sums *out, const matmul_args *a, int64_t t0, int64_t t1, int32_t b0,
                  int32_t n, int32_t type)
{
    for (int64_t t = t0; t < t1; t++)
        for (int32_t b = 0; b < n; b += ROWS) {
            const int8_t *q = a->q + t * a->n + (int64_t)(b0 + b) * BLOCK;
            __m256i lanes[ROWS];
            for (int i = 0; i < ROWS; i++)
                lanes[i] =
                    begin_lanes(type,
                                b + i < n ? _mm256_loadu_si256((const __m256i *)(q + i * BLOCK))
                                          : _mm256_setzero_si256());
            _mm256_storeu_si256((__m256i *)(out->of[t - t0] + b), fold(lanes));
        }
}

/* Blocks b0 ... b0 + n_block - 1 of 8 rows.  next: the rows of the panel after this one; eight
 * short streams are more than the processor's own prefetcher follows. */
INLINE void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS],
                   const uint8_t *const next[ROWS], int32_t b0, int32_t n_block)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK);
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = (b0 + b) * block_bytes;
        __m256i w[ROWS];
        for (int r = 0; r < ROWS; r++) {
            _mm_prefetch((const char *)(next[r] + at), _MM_HINT_T0);
            w[r] = weights_of(type, row[r] + at);
        }
        transpose(p->w[b], w);
        /* all blocks begin with d, then m */
        p->d[b] = scales_of_32(type, words_at(row, at));
        p->m[b] =
            has_min(type) ? halves_of(row, at + offsetof(block_q4_1, m)) : _mm256_setzero_ps();
    }
}

/* What a block adds to the sum of 8 rows and the token whose block is number `at`. */
INLINE __m256 add_scaled(__m256 sum, const matmul_args *a, const panel *p, int32_t b, int64_t at,
                         __m256i isum, int32_t type)
{
    sum = _mm256_fmadd_ps(_mm256_mul_ps(p->d[b], _mm256_set1_ps(a->d[at])),
                          _mm256_cvtepi32_ps(isum), sum);
    return has_min(type) ? _mm256_fmadd_ps(p->m[b], _mm256_set1_ps(a->s[at]), sum) : sum;
}

/* T tokens from token t on times OCTETS panels; y has the sums of earlier panels of these rows,
 * unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, const begin_sums *first, int64_t row,
                         const __m256i valid[OCTETS], int64_t t, int32_t b0, int32_t n_block,
                         int32_t type, int T)
{
    const int64_t per_token = a->n / BLOCK;
    float *const y = a->y + t * a->n_row + row;
    __m256 sum[OCTETS][MAX_TOKENS];
    for (int i = 0; i < T; i++) {
        /* of the tokens after these */
        _mm_prefetch((const char *)(y + (T + i) * (int64_t)a->n_row), _MM_HINT_T0);
        for (int o = 0; o < OCTETS; o++)
            sum[o][i] = b0 ? _mm256_maskload_ps(y + i * (int64_t)a->n_row + o * ROWS, valid[o])
                           : _mm256_setzero_ps();
    }
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = t * per_token + b0 + b;
        __m256i isum[OCTETS][MAX_TOKENS];
        for (int i = 0; i < T; i++)
            for (int o = 0; o < OCTETS; o++)
                isum[o][i] = offset_of(type) ? _mm256_set1_epi32(first->of[t % TOKEN_BLOCK + i][b])
                                             : _mm256_setzero_si256();
#ifdef WITH_VNNI
#pragma GCC unroll 8
        for (int k = 0; k < BLOCK / 4; k++)
#pragma GCC unroll 3
            for (int i = 0; i < T; i++) {
                const __m256i x =
                    _mm256_set1_epi32((int32_t)word(a->q + at * BLOCK + i * (int64_t)a->n + k * 4));
                for (int o = 0; o < OCTETS; o++)
                    isum[o][i] = add_fours(isum[o][i], type, p[o].w[b][k], x);
                for (int o = 0; o < OCTETS && k == BLOCK / 4 - 1;
                     o++) /* at once: avx512_matmul.c */
                    sum[o][i] =
                        add_scaled(sum[o][i], a, p + o, b, at + i * per_token, isum[o][i], type);
            }
#else
        add_block(isum[0], p->w[b], a->q + at * BLOCK, a->n, type, BLOCK / 4, T);
        for (int i = 0; i < T; i++)
            sum[0][i] = add_scaled(sum[0][i], a, p, b, at + i * per_token, isum[0][i], type);
#endif
    }
    for (int i = 0; i < T; i++)
        for (int o = 0; o < OCTETS; o++)
            _mm256_maskstore_ps(y + i * (int64_t)a->n_row + o * ROWS, valid[o], sum[o][i]);
}

/* All rows, blocks b0 and on up to a panel of them, tokens t0 ... t1 - 1. */
INLINE void panels(const matmul_args *a, int64_t begin_row, int64_t end, int32_t b0, int64_t t0,
                   int64_t t1, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    const int32_t n = a->n / BLOCK - b0 < PANEL ? a->n / BLOCK - b0 : PANEL;
    begin_sums first;
    panel p[OCTETS];
    if (offset_of(type))
        begin(&first, a, t0, t1, b0, n, type);
    for (int64_t row = begin_row; row < end; row += OCTETS * ROWS) {
        const uint8_t *w[OCTETS * ROWS], *next[OCTETS * ROWS];
        __m256i valid[OCTETS];
        int64_t t = t0;
        rows_from(w, OCTETS * ROWS, a, row, end, row_bytes);
        rows_from(next, OCTETS * ROWS, a, row + OCTETS * ROWS, end, row_bytes);
        for (int o = 0; o < OCTETS; o++) {
            valid[o] = first_lanes(end - row - o * ROWS);
            unpack(p + o, type, w + o * ROWS, next + o * ROWS, b0, n);
        }
        for (; t + tokens_of(type) <= t1; t += tokens_of(type))
            panel_tokens(a, p, &first, row, valid, t, b0, n, type, tokens_of(type));
        for (; t + 2 <= t1; t += 2)
            panel_tokens(a, p, &first, row, valid, t, b0, n, type, 2);
        for (; t < t1; t++)
            panel_tokens(a, p, &first, row, valid, t, b0, n, type, 1);
    }
}

INLINE void matmul_quantised(const matmul_args *a, int64_t begin_row, int64_t end, int32_t type)
{
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK)
        for (int32_t b0 = 0; b0 < a->n / BLOCK; b0 += PANEL)
            panels(a, begin_row, end, b0, t,
                   t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, type);
}

/* ---- F32, F16, BF16 weights ---------------------------------------------------------------- */

#ifndef WITH_VNNI
#include "kernels/tiles.h"

/* One token: a row of each of 4 streams side by side; the last row again where one has ended. */
INLINE void streams(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    const int64_t own = rows_of_stream(begin, end, 4), row_bytes = type_row_bytes(type, a->n);
    for (int64_t at = 0; at < own; at++) {
        const uint8_t *w[4];
        float y[4];
        for (int s = 0; s < 4; s++)
            rows_from(w + s, 1, a, begin + s * own + at, end, row_bytes);
        tile(y, 4, w, &a->x, a->n, type, 4, 1);
        for (int s = 0; s < 4 && begin + s * own + at < end; s++)
            a->y[begin + s * own + at] = y[s];
    }
}

INLINE void matmul_of_floats(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    if (a->n_tok == 1)
        streams(a, begin, end, type);
    else
        matmul_float(a, begin, end, type);
}
#endif

void NAME(matmul)(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    if (type_block(a->type) == 1 && a->packed) {
        matmul_floats_avx2(a, begin, end, thread);
        return;
    }
    if (a->n_tok == 1 && type_block(a->type) == BLOCK) {
        NAME(matvec)(a, begin, end);
        return;
    }
#define CALL(type) matmul_quantised(a, begin, end, type)
    switch (a->type) {
#ifdef WITH_VNNI
    case T_F32:
    case T_F16:
    case T_BF16: matmul_avx2(arg, begin, end, thread); break;
#else
    case T_F32: matmul_of_floats(a, begin, end, T_F32); break;
    case T_F16: matmul_of_floats(a, begin, end, T_F16); break;
    case T_BF16: matmul_of_floats(a, begin, end, T_BF16); break;
#endif
        TYPES_32(CASE_OF_TYPE)
    default: NAME(matmul_kquant)(a, begin, end);
    }
#undef CALL
}
#endif
