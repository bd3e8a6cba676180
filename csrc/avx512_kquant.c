/* avx512_kquant.c - products with weights in blocks of 256, with AVX-512 and VNNI; the bits of reference.c.
 *
 * All types come through two functions: natural_64 gives 64 neighbouring weights of a block as bytes without sign (with an
 * offset where the type has negative ones), group_scales the small integers of its 16 groups.  Within a block everything is
 * exact, so that sums may run in any order:
 *
 *     sum_g sc_g sum_i (u_i - offset) x_i  =  sum_g sc_g sum_i u_i x_i  -  offset sum_g sc_g (sum of group g of x)
 *
 * and the last factor comes with the activations.  Bounds, of int32: 128 * 241 * 127 * 256 < 2^30 for the first, for any
 * bits; 128 * 128 * 127 * 256 < 2^29.1 for the second.
 *
 * Many tokens: a panel of 32 rows, at most 3 blocks long, is unpacked so that lane = row, as in avx512_matmul.c; per group
 * one VPMULLD brings in its scale.  One token: 16 rows at a time, lane = element; the scales meet the sums of 4 elements,
 * and the 16 lanes of each row are added up at the end of a block. */
#ifdef __AVX512VNNI__
#include "avx512.h"
#include "kquant.h"

enum { HALF = 16, ROWS = 2 * HALF, PANEL = 3, TOKENS = 6, TOKEN_BLOCK = 128, ELEMENTS = 64 };

/* ---- a block of a row ---------------------------------------------------------------------- */

INLINE int32_t offset_of(int32_t type)
{
    return type == T_Q6_K ? 32 : type == T_Q3_K ? 4 : type == T_IQ4_XS ? 128 : 0;
}

INLINE __m512i twice(const uint8_t *x) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)x)); }

/* Counts for shifts or rotations of words of 64 bits: a for the first 32 bytes, b for the others. */
INLINE __m512i counts(int64_t a, int64_t b) { return _mm512_set_epi64(b, b, b, b, a, a, a, a); }

/* x | (y & mask). */
INLINE __m512i or_masked(__m512i x, __m512i y, int mask)
{
    return _mm512_ternarylogic_epi64(x, y, _mm512_set1_epi8((char)mask), 0xf8);
}

INLINE __m512i low_bits(__m512i x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi8((char)mask)); }

/* Weights 64 k ... 64 k + 63, plus offset_of(type).  A bit of h moves to its place by a rotation of 64 bits; those that cross
 * into other bytes are masked away. */
INLINE __m512i natural_64(int32_t type, const uint8_t *block, int k)
{
    if (type == T_Q4_K)
        return low_bits(_mm512_srlv_epi64(twice(block + offsetof(block_q4_k, q) + 32 * k), counts(0, 4)), 15);
    if (type == T_Q5_K) {
        const __m512i q = low_bits(_mm512_srlv_epi64(twice(block + offsetof(block_q5_k, q) + 32 * k), counts(0, 4)), 15);
        return or_masked(q, _mm512_rorv_epi64(twice(block + offsetof(block_q5_k, h)), counts((2 * k + 60) % 64, (2 * k + 61) % 64)), 16);
    }
    if (type == T_Q6_K) {
        const __m512i pair = _mm512_loadu_si512(block + offsetof(block_q6_k, q) + k / 2 * 64);
        const __m512i h = twice(block + offsetof(block_q6_k, h) + k / 2 * 32), q = k % 2 ? _mm512_srli_epi64(pair, 4) : pair;
        return or_masked(low_bits(q, 15), _mm512_rorv_epi64(h, k % 2 ? counts(0, 2) : counts(60, 62)), 48);
    }
    if (type == T_Q3_K) {
        const __m512i q = _mm512_srlv_epi64(twice(block + offsetof(block_q3_k, q) + k / 2 * 32), counts(k % 2 * 4, k % 2 * 4 + 2));
        return or_masked(low_bits(q, 3), _mm512_rorv_epi64(twice(block + offsetof(block_q3_k, h)), counts((2 * k + 62) % 64, (2 * k + 63) % 64)), 4);
    }
    if (type == T_Q2_K)
        return low_bits(_mm512_srlv_epi64(twice(block + offsetof(block_q2_k, q) + k / 2 * 32), counts(k % 2 * 4, k % 2 * 4 + 2)), 3);
    /* IQ4_XS: two blocks of 16 bytes, the low halves of each first */
    const __m512i pair = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0), twice(block + offsetof(block_iq4_xs, q) + 32 * k));
    const __m512i index = low_bits(_mm512_srlv_epi64(pair, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0)), 15);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_unsigned()), index);
}

/* d of 16 rows; at: byte of the block. */
INLINE __m512 halves_of(const uint8_t *const row[HALF], int64_t at)
{
    uint16_t d[HALF];
    for (int r = 0; r < HALF; r++)
        memcpy(&d[r], row[r] + at, 2);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)d));
}

/* ---- many tokens ----------------------------------------------------------------------------- */

typedef struct {
    __m512i w[PANEL][BLOCK_K / 4][2];    /* u8 [block][4 elements][row][4] */
    __m512i scale[PANEL][N_GROUP][2];    /* i32 [block][group][row] */
    __m512i other[PANEL][N_GROUP / 2][2]; /* i16 [block][two groups][row][2]: what meets the sums of x: minima, or scales */
    __m512 d[PANEL][2], m[PANEL][2];     /* f32 [block][row] */
} panel;

/* out[k] = bytes 4 k ... 4 k + 3 of each of 16 rows of 16 bytes. */
INLINE void transpose_16(__m512i out[4], const uint8_t *x, int64_t row_bytes)
{
    __m512i in[4];
    for (int i = 0; i < 4; i++) {
        in[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(x + i * row_bytes)));
        in[i] = _mm512_inserti32x4(in[i], _mm_loadu_si128((const __m128i *)(x + (i + 4) * row_bytes)), 1);
        in[i] = _mm512_inserti32x4(in[i], _mm_loadu_si128((const __m128i *)(x + (i + 8) * row_bytes)), 2);
        in[i] = _mm512_inserti32x4(in[i], _mm_loadu_si128((const __m128i *)(x + (i + 12) * row_bytes)), 3);
    }
    transpose_4(out, in);
}

/* Block b of 16 rows: half h of the panel. */
INLINE void unpack_half(panel *p, int32_t b, int h, int32_t type, const uint8_t *const row[HALF], int64_t at)
{
    uint8_t q[HALF][BLOCK_K], scale[HALF][N_GROUP], other[HALF][N_GROUP];
    for (int r = 0; r < HALF; r++) {
        __m128i min;
        for (int k = 0; k < 4; k++)
            _mm512_storeu_si512(q[r] + ELEMENTS * k, natural_64(type, row[r] + at, k));
        _mm_storeu_si128((__m128i *)scale[r], group_scales(&min, type, row[r] + at));
        _mm_storeu_si128((__m128i *)other[r], min);
    }
    for (int k = 0; k < BLOCK_K; k += 16) {
        __m512i out[4];
        transpose_16(out, q[0] + k, BLOCK_K);
        for (int i = 0; i < 4; i++)
            p->w[b][k / 4 + i][h] = out[i];
    }
    __m512i sc[4], c[4];
    transpose_16(sc, scale[0], N_GROUP);
    transpose_16(c, other[0], N_GROUP);
    for (int g = 0; g < N_GROUP; g++)
        p->scale[b][g][h] = _mm512_srai_epi32(_mm512_sllv_epi32(sc[g / 4], _mm512_set1_epi32(24 - g % 4 * 8)), 24);
    for (int g = 0; g < N_GROUP / 2; g++) { /* bytes 0 and 1, or 2 and 3, to the upper bytes of two words of 16 bits, and down */
        const __m512i spread = _mm512_set1_epi32(g % 2 ? (int)0x03000200 : 0x01000000);
        const __m512i in_lane = _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)), spread);
        p->other[b][g][h] = _mm512_srai_epi16(_mm512_shuffle_epi8(c[g / 2], in_lane), 8);
    }
    p->d[b][h] = halves_of(row, at + at_d(type));
    p->m[b][h] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm512_setzero_ps();
}

/* sum_g other_g sums_g of the rows of half h. */
INLINE __m512i with_sums(const panel *p, int32_t b, int h, const int16_t *sums)
{
    __m512i total = _mm512_setzero_si512();
    for (int g = 0; g < N_GROUP / 2; g++) {
        int32_t two;
        memcpy(&two, sums + 2 * g, 4);
        total = _mm512_dpwssd_epi32(total, p->other[b][g][h], _mm512_set1_epi32(two));
    }
    return total;
}

/* The exact sums of block b for T tokens. */
INLINE void block_sums(__m512i total[TOKENS][2], const panel *p, int32_t b, const int8_t *q, int64_t n, int32_t type, int T)
{
    const int32_t fours = group_of(type) / 4;
    for (int32_t g = 0; g < BLOCK_K / 4; g += fours) {
        __m512i isum[TOKENS][2];
        for (int i = 0; i < T; i++)
            isum[i][0] = isum[i][1] = _mm512_setzero_si512();
        for (int32_t k = g; k < g + fours; k++)
            for (int i = 0; i < T; i++) {
                int32_t four;
                memcpy(&four, q + i * n + k * 4, 4);
                const __m512i x = _mm512_set1_epi32(four);
                isum[i][0] = _mm512_dpbusd_epi32(isum[i][0], p->w[b][k][0], x);
                isum[i][1] = _mm512_dpbusd_epi32(isum[i][1], p->w[b][k][1], x);
            }
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++)
                total[i][h] = _mm512_add_epi32(total[i][h], _mm512_mullo_epi32(isum[i][h], p->scale[b][g * 4 / GROUP_K][h]));
    }
}

/* T tokens from token t on; y has what earlier panels of these rows added, unless this is the first. */
INLINE void panel_tokens(const matmul_args *a, const panel *p, int64_t row, const __mmask16 valid[2], int64_t t, int32_t b0,
                         int32_t n_block, int32_t type, int T)
{
    const int64_t per_token = a->n / BLOCK_K;
    float *y = a->y + t * a->n_row + row;
    for (int32_t b = 0; b < n_block; b++) {
        const int64_t at = t * per_token + b0 + b;
        __m512i total[TOKENS][2];
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++) {
                const int16_t *sums = a->sums + (at + i * per_token) * N_GROUP;
                total[i][h] = offset_of(type) ? _mm512_mullo_epi32(with_sums(p, b, h, sums), _mm512_set1_epi32(-offset_of(type)))
                                              : _mm512_setzero_si512();
            }
        block_sums(total, p, b, a->q + at * BLOCK_K, a->n, type, T);
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++) {
                const __m512 d = _mm512_set1_ps(a->d[at + i * per_token]);
                float *to = y + (int64_t)i * a->n_row + h * HALF;
                __m512 sum = b0 + b ? _mm512_maskz_loadu_ps(valid[h], to) : _mm512_setzero_ps();
                sum = _mm512_fmadd_ps(_mm512_mul_ps(p->d[b][h], d), _mm512_cvtepi32_ps(total[i][h]), sum);
                if (has_min(type))
                    sum = _mm512_fnmadd_ps(_mm512_mul_ps(p->m[b][h], d),
                                           _mm512_cvtepi32_ps(with_sums(p, b, h, a->sums + (at + i * per_token) * N_GROUP)), sum);
                _mm512_mask_storeu_ps(to, valid[h], sum);
            }
    }
}

/* The n rows from `row` on; past the end the last row again, whose results are not stored. */
INLINE void rows_from(const uint8_t *w[], int n, const matmul_args *a, int64_t row, int64_t end)
{
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    for (int r = 0; r < n; r++) {
        const int64_t i = row + r < end ? row + r : end - 1;
        w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[i] : i) * row_bytes;
    }
}

/* All rows, blocks b0 and on up to a panel of them, tokens t0 ... t1 - 1. */
INLINE void panels(const matmul_args *a, int64_t begin, int64_t end, int32_t b0, int64_t t0, int64_t t1, int32_t type)
{
    const int64_t bytes = type_row_bytes(type, BLOCK_K);
    const int32_t n = a->n / BLOCK_K - b0 < PANEL ? a->n / BLOCK_K - b0 : PANEL;
    panel p;
    for (int64_t row = begin; row < end; row += ROWS) {
        const uint8_t *w[ROWS];
        const __mmask16 valid[2] = {first_lanes(end - row), first_lanes(end - row - HALF)};
        int64_t t = t0;
        rows_from(w, ROWS, a, row, end);
        for (int32_t b = 0; b < n; b++) {
            unpack_half(&p, b, 0, type, w, (b0 + b) * bytes);
            unpack_half(&p, b, 1, type, w + HALF, (b0 + b) * bytes);
        }
        for (; t + TOKENS <= t1; t += TOKENS)
            panel_tokens(a, &p, row, valid, t, b0, n, type, TOKENS);
        for (; t + 2 <= t1; t += 2)
            panel_tokens(a, &p, row, valid, t, b0, n, type, 2);
        for (; t < t1; t++)
            panel_tokens(a, &p, row, valid, t, b0, n, type, 1);
    }
}

/* ---- one token --------------------------------------------------------------------------------- */

/* The exact sum of a block of one row in 16 lanes; *msum: that of the minima in 8. */
INLINE __m512i row_block(__m256i *msum, int32_t type, const uint8_t *block, const __m512i x[4], __m256i sums)
{
    __m128i min;
    const __m128i scale = group_scales(&min, type, block);
    const __m256i other = _mm256_madd_epi16(_mm256_cvtepi8_epi16(min), sums);
    __m512i total = offset_of(type) ? _mm512_zextsi256_si512(_mm256_mullo_epi32(other, _mm256_set1_epi32(-offset_of(type)))) : _mm512_setzero_si512();
    for (int k = 0; k < 4; k++) {
        const __m512i isum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), natural_64(type, block, k), x[k]);
        const __m128i lane = _mm_add_epi8(_mm_set_epi32(0x03030303, 0x02020202, 0x01010101, 0), _mm_set1_epi8((char)(4 * k)));
        total = _mm512_add_epi32(total, _mm512_mullo_epi32(isum, _mm512_cvtepi8_epi32(_mm_shuffle_epi8(scale, lane))));
    }
    *msum = other;
    return total;
}

/* 16 rows from `row` on, token t.  next: rows to come, fetched ahead: more streams than the processor's own prefetcher follows. */
INLINE void rows_token(const matmul_args *a, int64_t row, int64_t end, int64_t t, int32_t type)
{
    const int64_t bytes = type_row_bytes(type, BLOCK_K), n_block = a->n / BLOCK_K;
    const uint8_t *w[HALF], *next[HALF];
    __m512 sum = _mm512_setzero_ps();
    rows_from(w, HALF, a, row, end);
    rows_from(next, HALF, a, row + HALF < end ? row + HALF : row, end);
    for (int64_t b = 0; b < n_block; b++) {
        const int64_t at = t * n_block + b;
        const __m256i sums = _mm256_loadu_si256((const __m256i *)(a->sums + at * N_GROUP));
        __m512i x[4], total[HALF], mins[HALF / 2];
        for (int k = 0; k < 4; k++)
            x[k] = _mm512_loadu_si512(a->q + at * BLOCK_K + ELEMENTS * k);
        for (int r = 0; r < HALF; r++) {
            __m256i msum;
            for (int64_t line = 0; line < bytes; line += 64)
                _mm_prefetch((const char *)(next[r] + b * bytes + line), _MM_HINT_T0);
            total[r] = row_block(&msum, type, w[r] + b * bytes, x, sums);
            mins[r / 2] = r % 2 ? _mm512_inserti64x4(mins[r / 2], msum, 1) : _mm512_castsi256_si512(msum);
        }
        const __m512 d = _mm512_set1_ps(a->d[at]);
        sum = _mm512_fmadd_ps(_mm512_mul_ps(halves_of(w, b * bytes + at_d(type)), d), _mm512_cvtepi32_ps(fold_16(total, plus)), sum);
        if (has_min(type)) {
            for (int r = 0; r < HALF; r++) /* 8 lanes of two rows to 16 of each, half of them zeros */
                total[r] = r % 2 ? _mm512_maskz_mov_epi32(0xff00, mins[r / 2]) : _mm512_maskz_mov_epi32(0x00ff, mins[r / 2]);
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(halves_of(w, b * bytes + at_d(type) + 2), d), _mm512_cvtepi32_ps(fold_16(total, plus)), sum);
        }
    }
    _mm512_mask_storeu_ps(a->y + t * a->n_row + row, first_lanes(end - row), sum);
}

/* ---- both ------------------------------------------------------------------------------------------ */

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    if (a->n_tok < 3) {
        for (int64_t row = begin; row < end; row += HALF)
            for (int64_t t = 0; t < a->n_tok; t++)
                rows_token(a, row, end, t, type);
        return;
    }
    for (int64_t t = 0; t < a->n_tok; t += TOKEN_BLOCK)
        for (int32_t b0 = 0; b0 < a->n / BLOCK_K; b0 += PANEL)
            panels(a, begin, end, b0, t, t + TOKEN_BLOCK < a->n_tok ? t + TOKEN_BLOCK : a->n_tok, type);
}

void matmul_kquant_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    switch (a->type) {
    case T_Q2_K: matmul_of(a, begin, end, T_Q2_K); break;
    case T_Q3_K: matmul_of(a, begin, end, T_Q3_K); break;
    case T_Q4_K: matmul_of(a, begin, end, T_Q4_K); break;
    case T_Q5_K: matmul_of(a, begin, end, T_Q5_K); break;
    case T_Q6_K: matmul_of(a, begin, end, T_Q6_K); break;
    case T_IQ4_XS: matmul_of(a, begin, end, T_IQ4_XS); break;
    }
}
#endif
