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
 * A panel of 32 rows, at most 3 blocks long, is unpacked so that lane = row, as in avx512_matmul.c; per group one VPMULLD
 * brings in its scale.  One token alone: avx512_matvec.c. */
#ifdef __AVX512VNNI__
#include "avx512_unpack.h"

enum { PANEL = 3, TOKENS = 6, TOKEN_BLOCK = 128 };

typedef struct {
    __m512i w[PANEL][BLOCK_K / 4][2];    /* u8 [block][4 elements][row][4] */
    __m512i scale[PANEL][N_GROUP][2];    /* i32 [block][group][row] */
    __m512i other[PANEL][N_GROUP / 2][2]; /* i16 [block][two groups][row][2]: what meets the sums of x: minima, or scales; groups of group_of(type) */
    __m512 d[PANEL][2], m[PANEL][2];     /* f32 [block][row] */
} panel;

/* Two groups meet the sums of x at a time. */
INLINE int pairs_of(int32_t type) { return BLOCK_K / 2 / group_of(type); }

/* i16 [row][2]: groups 2 g and 2 g + 1 of what transpose_16 made of bytes [row][group of 16]: two bytes of a lane to the
 * upper halves of two words, and down with their sign.  Of groups of 32 every other byte is the same again. */
INLINE __m512i two_groups(const __m512i of[4], int g, int32_t type)
{
    const int is_32 = group_of(type) == 32;
    const __m512i spread = _mm512_set1_epi32(is_32 ? 0x02000000 : g % 2 ? 0x03000200 : 0x01000000);
    const __m512i lane = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(of[is_32 ? g : g / 2], _mm512_add_epi8(lane, spread)), 8);
}

/* Sums of x over groups of group_of(type), of those over groups of 16: |sum| of 32 is at most 32 * 127. */
INLINE void sums_of(int32_t two[N_GROUP / 2], const int16_t *sums, int32_t type)
{
    const __m256i of_16 = _mm256_loadu_si256((const __m256i *)sums);
    if (group_of(type) == 32)
        _mm_storeu_si128((__m128i *)two, _mm256_cvtepi32_epi16(_mm256_madd_epi16(of_16, _mm256_set1_epi16(1))));
    else
        _mm256_storeu_si256((__m256i *)two, of_16);
}

/* i32 [row]: sum_g of_g sums_g of half h. */
INLINE __m512i with_sums(const panel *p, int32_t b, int h, const int32_t two[N_GROUP / 2], int32_t type)
{
    __m512i total = _mm512_setzero_si512();
    for (int g = 0; g < pairs_of(type); g++)
        total = _mm512_dpwssd_epi32(total, p->other[b][g][h], _mm512_set1_epi32(two[g]));
    return total;
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
    for (int g = 0; g < pairs_of(type); g++)
        p->other[b][g][h] = two_groups(c, g, type);
    p->d[b][h] = halves_of(row, at + at_d(type));
    p->m[b][h] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm512_setzero_ps();
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
        int32_t sums[TOKENS][N_GROUP / 2];
        for (int i = 0; i < T; i++) {
            sums_of(sums[i], a->sums + (at + i * per_token) * N_GROUP, type);
            for (int h = 0; h < 2; h++)
                total[i][h] = offset_of(type) ? _mm512_mullo_epi32(with_sums(p, b, h, sums[i], type), _mm512_set1_epi32(-offset_of(type)))
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
                    sum = _mm512_fnmadd_ps(_mm512_mul_ps(p->m[b][h], d), _mm512_cvtepi32_ps(with_sums(p, b, h, sums[i], type)), sum);
                _mm512_mask_storeu_ps(to, valid[h], sum);
            }
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

INLINE void matmul_of(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
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
