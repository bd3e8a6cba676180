/* avx2_kquant.c - GEMM and GEMV of blocks of 256, AVX2. avx-vnni_kquant.c compiles it again.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 256, Y f32.
 * Micro-kernel: MR = 8 rows (16 with VPDPBUSD), NR <= 6 tokens, KC <= 1,024 (PANEL blocks). One
 *   token: 8 rows, lane = element; the lanes are added when all 8 have been read.
 * Registers: 12 of 16 ymm (6 sums of a group, 6 of a block); lane = row.
 * Packing: W to panels [block][k/4][row][4]; one token: none.
 * Overflow: none. maddubs leaves sums of two products in 16 bits, at most 2 * 63 * 127 (Q6_K; 2 *
 *   127 * 127 for IQ4_XS), in which several can be added.
 * Result: bit-identical to reference.c: within a block all is exact, in any order.
 *
 * Two functions unpack every type: natural_32 gives 32 neighbouring weights of a block as bytes,
 * with an offset where that makes them small numbers without sign (IQ4_XS, whose weights are large,
 * keeps the sign), group_scales the small integers of its 16 groups.
 *
 *     sum_g sc_g sum_i (u_i - offset) x_i
 *         =  sum_g sc_g sum_i u_i x_i  -  offset sum_g sc_g (sum of group g of x)
 *
 * and the last factor comes with the activations. pmaddwd brings in the group's scale and goes to
 * 32 bits: two multiplications for 4 elements of 8 rows become little more than one, and scales
 * cost nothing. VPDPBUSD goes to 32 bits for as much, without the additions; the scale comes in
 * once a group. */
#ifdef __AVX2__
#include "api/runtime.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/blocks.h"

/* KC_BLOCKS: blocks of a row that one token is multiplied by before the next row */
enum { PANEL = 4, TOKEN_BLOCK = 128, ELEMENTS = 32, KC_BLOCKS = 32 };

/* ---- a block of a row ---------------------------------------------------------------------- */

/* 32 bytes at x, of each the bits of mask after a shift of `left` (to the right if negative); what
 * crosses into other bytes is masked away. */
INLINE __m256i bits_at(const uint8_t *x, int left, int mask)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)x);
    return _mm256_and_si256(left < 0 ? _mm256_srli_epi16(v, -left) : _mm256_slli_epi16(v, left),
                            _mm256_set1_epi8((char)mask));
}

/* Weights 32 k ... 32 k + 31, plus offset_of(type). */
INLINE __m256i natural_32(int32_t type, const uint8_t *block, int k)
{
    switch (type) {
    case T_Q2_K: return bits_at(block + offsetof(block_q2_k, q) + k / 4 * 32, -(k % 4 * 2), 3);
    case T_Q3_K:
        return _mm256_or_si256(
            bits_at(block + offsetof(block_q3_k, q) + k / 4 * 32, -(k % 4 * 2), 3),
            bits_at(block + offsetof(block_q3_k, h), 2 - k, 4));
    case T_Q4_K: return bits_at(block + offsetof(block_q4_k, q) + k / 2 * 32, -(k % 2 * 4), 15);
    case T_Q5_K:
        return _mm256_or_si256(
            bits_at(block + offsetof(block_q5_k, q) + k / 2 * 32, -(k % 2 * 4), 15),
            bits_at(block + offsetof(block_q5_k, h), 4 - k, 16));
    case T_Q6_K:
        return _mm256_or_si256(
            bits_at(block + offsetof(block_q6_k, q) + k / 4 * 64 + k % 2 * 32, -(k % 4 / 2 * 4),
                    15),
            bits_at(block + offsetof(block_q6_k, h) + k / 4 * 32, 4 - k % 4 * 2, 48));
    case T_BYTES_K:
        return _mm256_add_epi8(_mm256_loadu_si256((const __m256i *)(block + ELEMENTS * k)),
                               _mm256_set1_epi8((char)offset_of(type)));
    default: return values_of(type, nibbles(block + offsetof(block_iq4_xs, q) + k * 16));
    }
}

/* Factors of the sums of the activations' groups, i16: minima, or scales times -offset. */
INLINE __m256i with_sums_of(int32_t type, __m128i min, int offset)
{
    const __m256i m = _mm256_cvtepi8_epi16(min);
    return has_min(type) ? m : _mm256_mullo_epi16(m, _mm256_set1_epi16((int16_t)-offset));
}

/* ---- many tokens ----------------------------------------------------------------------------- */

typedef struct {
    __m256i w[PANEL][BLOCK_K / 4];     /* u8 or i8 [block][4 elements][row][4] */
    __m256i scale[PANEL][N_GROUP];     /* [block][group][row]: scale_of_rows */
    __m256i other[PANEL][N_GROUP / 2]; /* i16 [block][two groups][row][2]: with_sums_of */
    __m256 d[PANEL], m[PANEL];         /* f32 [block][row] */
} panel;

/* What weights of a panel have added: VPDPBUSD multiplies IQ4_XS so.  (One token alone does not pay
 * for it.) */
INLINE int panel_offset(int32_t type)
{
#ifdef WITH_VNNI
    if (type == T_IQ4_XS)
        return 128;
#endif
    return offset_of(type);
}

/* A block to come; 8 rows are more streams than the processor's own prefetcher follows. */
INLINE void prefetch(const uint8_t *block, int64_t bytes)
{
    for (int64_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)(block + line), _MM_HINT_T0);
}

/* Block b of the panel, at byte `at` of 8 rows; next: the rows of the panel after this one. */
INLINE void unpack_block(panel *p, int32_t b, int32_t type, const uint8_t *const row[ROWS],
                         const uint8_t *const next[ROWS], int64_t at)
{
    const int64_t bytes = bytes_of_block(type);
    __m256i w[ROWS], scale[ROWS], other[ROWS], two[N_GROUP / 2];
    for (int k = 0; k < BLOCK_K / ELEMENTS; k++) {
        for (int r = 0; r < ROWS; r++)
            w[r] = _mm256_add_epi8(natural_32(type, row[r] + at, k),
                                   _mm256_set1_epi8((char)(panel_offset(type) - offset_of(type))));
        transpose(p->w[b] + k * (ELEMENTS / 4), w);
    }
    for (int r = 0; r < ROWS; r++) {
        __m128i min;
        prefetch(next[r] + at, bytes);
        scale[r] = _mm256_cvtepi8_epi16(group_scales(&min, type, row[r] + at));
        other[r] = with_sums_of(type, min, panel_offset(type));
    }
    transpose(p->other[b], other);
    transpose(two, scale);
    for (int g = 0; g < N_GROUP; g++)
        p->scale[b][g] = scale_of_rows(type, two[g / 2], g);
    p->d[b] = scales_of_256(type, row, at);
    p->m[b] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm256_setzero_ps();
}

/* sum_g other_g sums_g of 8 rows. */
INLINE __m256i with_sums(const panel *p, int32_t b, const int16_t *sums)
{
    __m256i total = _mm256_setzero_si256();
    for (int g = 0; g < N_GROUP / 2; g++) {
        int32_t two;
        memcpy(&two, sums + 2 * g, 4);
        total = add_pairs(total, p->other[b][g], _mm256_set1_epi32(two));
    }
    return total;
}

/* total += scale * the sum of products of the group of block b that begins at element g, for OCTETS
 * panels and T tokens; x: the block of the first of these. */
INLINE void add_groups(__m256i total[OCTETS][MAX_TOKENS], const panel *p, int32_t b, int32_t g,
                       const int8_t *x, int64_t stride, int32_t type, int T)
{
#ifdef WITH_VNNI
    __m256i sum[OCTETS][MAX_TOKENS];
    for (int o = 0; o < OCTETS; o++)
        for (int i = 0; i < T; i++)
            sum[o][i] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int k = 0; k < group_of(type) / 4; k++)
#pragma GCC unroll 3
        for (int i = 0; i < T; i++) {
            int32_t four;
            memcpy(&four, x + i * stride + g + k * 4, 4);
            for (int o = 0; o < OCTETS; o++)
                sum[o][i] =
                    add_fours(sum[o][i], type, p[o].w[b][g / 4 + k], _mm256_set1_epi32(four));
            /* at once: avx512_matmul.c */
            for (int o = 0; o < OCTETS && k == group_of(type) / 4 - 1; o++) {
                const __m256i scale = p[o].scale[b][g / GROUP_K];
                total[o][i] = is_small(type)
                    ? add_pairs(total[o][i], sum[o][i], scale)
                    : _mm256_add_epi32(total[o][i], _mm256_mullo_epi32(sum[o][i], scale));
            }
        }
#else
    add_group(total[0], &p->w[b][g / 4], x + g, stride, p->scale[b][g / GROUP_K], type,
              group_of(type) / 4, T);
#endif
}

/* T tokens from token t on times OCTETS panels; y has the sums of earlier panels of these rows,
 * unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, int64_t row,
                         const __m256i valid[OCTETS], int64_t t, int32_t b0, int32_t n_block,
                         int32_t type, int T)
{
    const int64_t per_token = a->n / BLOCK_K;
    float *y = a->y + t * a->n_row + row;
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
        __m256i total[OCTETS][MAX_TOKENS];
        for (int o = 0; o < OCTETS; o++)
            for (int i = 0; i < T; i++)
                total[o][i] = panel_offset(type)
                    ? with_sums(p + o, b, a->sums + (at + i * per_token) * N_GROUP)
                    : _mm256_setzero_si256();
        for (int32_t g = 0; g < BLOCK_K; g += group_of(type))
            add_groups(total, p, b, g, a->q + at * BLOCK_K, a->n, type, T);
        for (int i = 0; i < T; i++)
            for (int o = 0; o < OCTETS; o++) {
                const __m256 d = _mm256_set1_ps(a->d[at + i * per_token]);
                sum[o][i] = _mm256_fmadd_ps(_mm256_mul_ps(p[o].d[b], d),
                                            _mm256_cvtepi32_ps(total[o][i]), sum[o][i]);
                if (has_min(type)) {
                    const __m256i msum =
                        with_sums(p + o, b, a->sums + (at + i * per_token) * N_GROUP);
                    sum[o][i] = _mm256_fnmadd_ps(_mm256_mul_ps(p[o].m[b], d),
                                                 _mm256_cvtepi32_ps(msum), sum[o][i]);
                }
            }
    }
    for (int i = 0; i < T; i++)
        for (int o = 0; o < OCTETS; o++)
            _mm256_maskstore_ps(y + i * (int64_t)a->n_row + o * ROWS, valid[o], sum[o][i]);
}

/* All rows, blocks b0 and on up to a panel of them, tokens t0 ... t1 - 1. */
INLINE void panels(const matmul_args *a, int64_t begin, int64_t end, int32_t b0, int64_t t0,
                   int64_t t1, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n), bytes = bytes_of_block(type);
    const int32_t n = a->n / BLOCK_K - b0 < PANEL ? a->n / BLOCK_K - b0 : PANEL;
    panel p[OCTETS];
    for (int64_t row = begin; row < end; row += OCTETS * ROWS) {
        const uint8_t *w[OCTETS * ROWS], *next[OCTETS * ROWS];
        __m256i valid[OCTETS];
        int64_t t = t0;
        rows_from(w, OCTETS * ROWS, a, row, end, row_bytes);
        rows_from(next, OCTETS * ROWS, a, row + OCTETS * ROWS, end, row_bytes);
        for (int o = 0; o < OCTETS; o++) {
            valid[o] = first_lanes(end - row - o * ROWS);
            for (int32_t b = 0; b < n; b++)
                unpack_block(p + o, b, type, w + o * ROWS, next + o * ROWS, (b0 + b) * bytes);
        }
        for (; t + tokens_of(type) <= t1; t += tokens_of(type))
            panel_tokens(a, p, row, valid, t, b0, n, type, tokens_of(type));
        for (; t + 2 <= t1; t += 2)
            panel_tokens(a, p, row, valid, t, b0, n, type, 2);
        for (; t < t1; t++)
            panel_tokens(a, p, row, valid, t, b0, n, type, 1);
    }
}

/* ---- one token ---------------------------------------------------------------------------------
 */

/* The exact sum of a block of one row in 8 lanes; *msum: that of the minima. */
INLINE __m256i row_block(__m256i *msum, int32_t type, const uint8_t *block, const int8_t *x,
                         __m256i sums)
{
    __m128i min;
    /* the scales of even groups in the lower half, of odd ones in the upper: word k of both is for
     * the two groups of 32 elements */
    const __m128i even_odd = _mm_shuffle_epi8(
        group_scales(&min, type, block), _mm_set_epi64x(0x0f0d0b0907050301, 0x0e0c0a0806040200));
    const __m256i scale = _mm256_cvtepi8_epi16(even_odd),
                  other = _mm256_madd_epi16(with_sums_of(type, min, offset_of(type)), sums);
    /* two sums: VPDPWSSD comes out five cycles after its sum went in */
    __m256i total[2] = {offset_of(type) ? other : _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int k = 0; k < BLOCK_K / ELEMENTS; k++) {
        const __m256i w = natural_32(type, block, k),
                      xs = _mm256_loadu_si256((const __m256i *)(x + k * ELEMENTS));
#ifdef WITH_VNNI
        /* a sum of 4 products, 4 * 63 * 127 at most, fits in 16 bits: the word's other half is
         * multiplied by 0; not of BYTES_K, 4 * 126 * 127
         * */
        if (!is_signed(type) && type != T_BYTES_K) {
            const __m256i sc =
                _mm256_shuffle_epi8(scale, _mm256_set1_epi32((int32_t)0x80800100u + 0x0202 * k));
            total[k % 2] =
                add_pairs(total[k % 2], add_fours(_mm256_setzero_si256(), type, w, xs), sc);
            continue;
        }
#endif
        const __m256i sc =
            _mm256_shuffle_epi8(scale, _mm256_set1_epi16((int16_t)(0x0100 + 0x0202 * k)));
        total[k % 2] = add_pairs(total[k % 2], times(type, w, xs), sc);
    }
    *msum = other;
    return _mm256_add_epi32(total[0], total[1]);
}

/* Whether unpacking a row is slower than reading it: then more than one stream gains
 * nothing, and costs registers. */
INLINE int is_slow(int32_t type) { return is_small(type) || type == T_IQ4_XS; }

/* Rows begin ... end - 1 times the only token, 8 before the steps in f32. */
INLINE void rows_token(const matmul_args *a, int64_t begin, int64_t end, int n_stream, int32_t type)
{
    const int64_t bytes = bytes_of_block(type), n_block = a->n / BLOCK_K;
    for (int64_t b0 = 0; b0 < n_block; b0 += KC_BLOCKS) {
        const int64_t n = n_block - b0 < KC_BLOCKS ? n_block - b0 : KC_BLOCKS;
        for (int64_t from = 0; from < rows_of_stream(begin, end, n_stream);
             from += ROWS / n_stream) {
            rows_8 g;
            rows_of_streams(&g, a, begin, end, from, n_stream);
            __m256 sum = b0 ? results_of(&g, a->y) : _mm256_setzero_ps();
            __m256i total[KC_BLOCKS][ROWS], msum[KC_BLOCKS][ROWS];
            for (int i = 0; i < ROWS / n_stream; i++)
                for (int64_t b = 0; b < n; b++)
                    for (int r = i; r < ROWS; r += ROWS / n_stream) {
                        const __m256i sums =
                            _mm256_loadu_si256((const __m256i *)(a->sums + (b0 + b) * N_GROUP));
                        const uint8_t *w = g.w[r] + (b0 + b) * bytes;
                        prefetch_ahead(w, bytes, n_stream);
                        total[b][r] =
                            row_block(&msum[b][r], type, w, a->q + (b0 + b) * BLOCK_K, sums);
                    }
            for (int64_t b = 0; b < n; b++) {
                const __m256 d = _mm256_set1_ps(a->d[b0 + b]);
                const int64_t block = (b0 + b) * bytes, at = block + at_d(type);
                sum = _mm256_fmadd_ps(_mm256_mul_ps(scales_of_256(type, g.w, block), d),
                                      _mm256_cvtepi32_ps(fold(total[b])), sum);
                if (has_min(type))
                    sum = _mm256_fnmadd_ps(_mm256_mul_ps(halves_of(g.w, at + 2), d),
                                           _mm256_cvtepi32_ps(fold(msum[b])), sum);
            }
            results_to(a->y, &g, sum);
        }
    }
}

/* ---- both
 * ------------------------------------------------------------------------------------------ */

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    if (a->n_tok == 1) {
        if (matvec_streams() == 1 || is_slow(type))
            rows_token(a, begin, end, 1, type);
        else
            rows_token(a, begin, end, 4, type);
        return;
    }
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK)
        for (int32_t b0 = 0; b0 < a->n / BLOCK_K; b0 += PANEL)
            panels(a, begin, end, b0, t, t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok,
                   type);
}

void NAME(matmul_kquant)(const matmul_args *a, int64_t begin, int64_t end)
{
#define CALL(type) matmul_of(a, begin, end, type)
    switch (a->type) {
        TYPES_256(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
