/* avx512_kquant.c - products with weights in blocks of 256, with AVX-512 and VNNI; the bits of reference.c.
 *
 * Within a block everything is exact, so that sums may run in any order.  A panel of 32 rows, at most 2 blocks long, is unpacked so that
 * lane = row, as in avx512_matmul.c.  How the scales of the groups come in depends on what the type's integers leave room for; the units for
 * arithmetic do per 32 elements, 16 rows and token
 *
 *   Q2_K, Q3_K        8 instructions: scale times weight fits the signed byte that VPDPBUSD wants (of Q3_K its negative, -128 ... 124)
 *   Q4_K, Q5_K        9: where the sum of a group fits 16 bits, VPDPWSSD multiplies it by its scale and adds it up
 *   Q6_K             10: the same; its groups have 16 elements
 *   IQ4_XS           11: VPMULLD, which is two, and an addition; so do the others where such a sum might not fit
 *
 * Whether it fits is said by the activations: weights are at most 15, 31 or 32, so their sums are bounded by those of |x| in a group, and pack_avx512
 * notes the greatest of a set.  127 is only the largest of 256 activations; the others would have to be half as large on average.
 *
 * Bounds, of int32: 255 * 127 * 32 * 256 < 2^28.  One token alone: avx512_matvec.c. */
#ifdef __AVX512VNNI__
#include "avx512_pack.h"

enum { PANEL = 2, SETS = 48, KEPT_ROWS = 64 };

typedef struct {
    __m512i w[PANEL][BLOCK_K / 4][2];         /* i8 [block][4 elements][row][4] */
    __m512i begin[PANEL][N_GROUP][2];         /* i32 [block][step][row]: -128 times the sum of its weights */
    __m512i scale[PANEL][N_GROUP][2];         /* i32 [block][group][row]; where is_word i16, then 0 */
    __m512i other[PANEL][N_GROUP / 2][2];     /* i16 [block][two groups][row][2]: minima */
    __m512 d[PANEL][2], m[PANEL][2];          /* f32 [block][row] */
} panel;

/* Elements that are added up before a scale multiplies them. */
INLINE int step_of(int32_t type) { return type == T_Q2_K || type == T_Q3_K ? BLOCK_K : group_of(type); }

/* Whether sums of a step may fit 16 bits. */
INLINE int is_word(int32_t type) { return type == T_Q4_K || type == T_Q5_K || type == T_Q6_K; }

/* Whether they do for these tokens. */
INLINE int fits_word(int32_t type, const set_256 *x)
{
    switch (type) {
    case T_Q4_K: return x->most_32 * 15 <= INT16_MAX;
    case T_Q5_K: return x->most_32 * 31 <= INT16_MAX;
    case T_Q6_K: return x->most_16 * 32 <= INT16_MAX;
    default: return 0;
    }
}

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

/* 64 weights of Q2_K with their scales, or of Q3_K with the negatives of them: scale [16] i16. */
INLINE __m512i scaled_64(int32_t type, const uint8_t *block, int k, __m512i scale)
{
    const __m512i pair = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002, 0x0002000200020002, 0x0001000100010001,
                                          0x0001000100010001, 0, 0); /* the group of elements 2 i and 2 i + 1 */
    const __m512i u = natural_64(type, block, k), sc = _mm512_permutexvar_epi16(_mm512_add_epi16(pair, _mm512_set1_epi16((int16_t)(4 * k))), scale);
    const __m512i offset = _mm512_set1_epi16((int16_t)offset_of(type));
    const __m512i a = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(u, _mm512_set1_epi16(255)), offset), sc);
    const __m512i b = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(u, 8), offset), sc);
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, a, _mm512_slli_epi16(b, 8));
}

/* Scales of half h, transposed, to where the steps and the sums of x want them. */
INLINE void unpack_scales(panel *p, int32_t b, int h, int32_t type, const uint8_t *scale, const uint8_t *other)
{
    __m512i sc[4], c[4];
    transpose_16(sc, scale, N_GROUP);
    transpose_16(c, other, N_GROUP);
    for (int g = 0; g < BLOCK_K / group_of(type) && step_of(type) < BLOCK_K; g++) {
        const int at = g * group_of(type) / GROUP_K;
        const __m512i all = _mm512_srai_epi32(_mm512_sllv_epi32(sc[at / 4], _mm512_set1_epi32(24 - at % 4 * 8)), 24);
        p->scale[b][g][h] = is_word(type) ? _mm512_and_si512(all, _mm512_set1_epi32(0xffff)) : all;
    }
    for (int g = 0; g < pairs_of(type) && has_min(type); g++)
        p->other[b][g][h] = two_groups(c, g, type);
}

/* -128 times the sums of the weights. */
INLINE void unpack_begin(panel *p, int32_t b, int h, int32_t type)
{
    const int fours = step_of(type) / 4;
    for (int s = 0; s < BLOCK_K / step_of(type); s++) {
        p->begin[b][s][h] = _mm512_setzero_si512();
        for (int k = 0; k < fours; k++)
            p->begin[b][s][h] = less_128(p->begin[b][s][h], p->w[b][s * fours + k][h]);
    }
}

/* Block b of 16 rows: half h of the panel. */
INLINE void unpack_half(panel *p, int32_t b, int h, int32_t type, const uint8_t *const row[HALF], int64_t at)
{
    uint8_t q[HALF][BLOCK_K], scale[HALF][N_GROUP], other[HALF][N_GROUP];
    const __m512i centre = _mm512_set1_epi8((char)(step_of(type) == BLOCK_K ? 0 : offset_of(type)));
    for (int r = 0; r < HALF; r++) {
        __m128i min;
        const __m128i sc = group_scales(&min, type, row[r] + at);
        const __m256i wide = _mm256_cvtepi8_epi16(sc);
        const __m512i factor = _mm512_castsi256_si512(type == T_Q3_K ? _mm256_sub_epi16(_mm256_setzero_si256(), wide) : wide);
        for (int k = 0; k < 4; k++)
            _mm512_storeu_si512(q[r] + ELEMENTS * k, step_of(type) == BLOCK_K ? scaled_64(type, row[r] + at, k, factor)
                                                                              : natural_64(type, row[r] + at, k));
        _mm_storeu_si128((__m128i *)scale[r], sc);
        _mm_storeu_si128((__m128i *)other[r], min);
    }
    for (int k = 0; k < BLOCK_K; k += 16) {
        __m512i out[4];
        transpose_16(out, q[0] + k, BLOCK_K);
        for (int i = 0; i < 4; i++)
            p->w[b][k / 4 + i][h] = _mm512_sub_epi8(out[i], centre);
    }
    unpack_scales(p, b, h, type, scale[0], other[0]);
    unpack_begin(p, b, h, type);
    p->d[b][h] = halves_of(row, at + at_d(type));
    p->m[b][h] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm512_setzero_ps();
}

/* total += the sum over n pairs of groups of `of` times sums of x. */
INLINE void add_pairs(__m512i total[SET][2], const __m512i (*of)[2], const int32_t (*sums)[SET], int n, int T)
{
#pragma GCC unroll 8
    for (int g = 0; g < n; g++) {
        const __m512i a = of[g][0], b = of[g][1];
#pragma GCC unroll 6
        for (int i = 0; i < T; i++) {
            const __m512i two = all_lanes(&sums[g][i]);
            DOT_WORDS(total[i][0], a, two);
            DOT_WORDS(total[i][1], b, two);
        }
    }
    __asm__ volatile("" : : : "memory"); /* nothing of this is worth a register until the next time */
}

/* total[i] += scale * isum[i] of half h, whether these fit 16 bits or not. */
INLINE void add_scaled(__m512i total[SET][2], const __m512i isum[SET][2], int h, __m512i scale, int32_t type, int narrow, int T)
{
    const __m512i wide = is_word(type) && !narrow ? _mm512_srai_epi32(_mm512_slli_epi32(scale, 16), 16) : scale;
#pragma GCC unroll 6
    for (int i = 0; i < T; i++)
        if (narrow)
            DOT_WORDS(total[i][h], isum[i][h], scale); /* the upper half of the sum is its sign, and meets 0 */
        else
            total[i][h] = _mm512_add_epi32(total[i][h], _mm512_mullo_epi32(isum[i][h], wide));
}

/* The exact sums of block b for T tokens: of Q3_K their negatives.  next: the same block of the next set, asked for. */
INLINE void block_sums(__m512i total[SET][2], const panel *p, int32_t b, const set_256 *x, const set_256 *next, int32_t type, int narrow, int T)
{
    const int whole = step_of(type) == BLOCK_K, fours = step_of(type) / 4;
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            total[i][h] = whole ? p->begin[b][0][h] : _mm512_setzero_si512();
    for (int s = 0; s < BLOCK_K / 4; s += fours < 8 ? fours : 8) {
        __m512i isum[SET][2];
        const int n = fours < 8 ? fours : 8;
        for (int k = 0; k < n; k += 4) /* 256 elements of 6 tokens and what belongs to them: 16 times two lines */
            for (int line = 0; line < 2; line++)
                _mm_prefetch((const char *)next + (s + k) * 32 + line * 64, _MM_HINT_T0);
        for (int i = 0; i < T; i++)
            for (int h = 0; h < 2; h++)
                isum[i][h] = whole ? total[i][h] : p->begin[b][s / fours][h];
        const __m512i (*w)[2] = p->w[b] + s;
        const int32_t (*q)[SET] = x->q + s;
#pragma GCC unroll 8
        for (int k = 0; k < n; k++) {
            const __m512i w0 = w[k][0], w1 = w[k][1];
#pragma GCC unroll 6
            for (int i = 0; i < T; i++) {
                const __m512i four = _mm512_set1_epi32(q[k][i]);
                DOT(isum[i][0], four, w0);
                DOT(isum[i][1], four, w1);
            }
        }
        for (int h = 0; h < 2; h++)
            if (whole)
                for (int i = 0; i < T; i++)
                    total[i][h] = isum[i][h];
            else
                add_scaled(total, isum, h, p->scale[b][s / fours][h], type, narrow, T);
    }
}

/* Takes away d m times the sum of minima times sums of x. */
INLINE void less_minima(__m512 sum[SET][2], const panel *p, int32_t b, const set_256 *x, int32_t type, int T)
{
    __m512i total[SET][2];
    for (int i = 0; i < T; i++)
        total[i][0] = total[i][1] = _mm512_setzero_si512();
    add_pairs(total, p->other[b], group_of(type) == 32 ? x->sums_32 : x->sums, pairs_of(type), T);
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            sum[i][h] = _mm512_fnmadd_ps(_mm512_mul_ps(p->m[b][h], _mm512_set1_ps(x->d[i])), _mm512_cvtepi32_ps(total[i][h]), sum[i][h]);
}

/* Sums of 32 rows between one block of them and the next, [set][token][row]; why not in y: avx512_matmul.c. */
typedef float kept_sums[SETS][SET][ROWS];

/* A set of n_tok tokens, at most T of them.  from [token][row]: what earlier blocks of these rows added, or NULL; to: where the sums go, those
 * of a token `stride` from the one before. */
INLINE void block_set(const panel *p, int32_t b, const set_256 *x, const set_256 *next, const float (*from)[ROWS], float *to, int64_t stride,
                      const __mmask16 valid[2], int n_tok, int32_t type, int narrow, int T)
{
    __m512i total[SET][2];
    __m512 sum[SET][2];
    block_sums(total, p, b, x, next, type, narrow, T);
#pragma GCC unroll 6
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++) {
            const __m512 scale = _mm512_mul_ps(p->d[b][h], _mm512_set1_ps(x->d[i])), isum = _mm512_cvtepi32_ps(total[i][h]);
            const __m512 before = from ? _mm512_loadu_ps(from[i < n_tok ? i : 0] + h * HALF) : _mm512_setzero_ps();
            sum[i][h] = type == T_Q3_K ? _mm512_fnmadd_ps(scale, isum, before) : _mm512_fmadd_ps(scale, isum, before);
        }
    if (has_min(type))
        less_minima(sum, p, b, x, type, T);
#pragma GCC unroll 6
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2 && i < n_tok; h++)
            _mm512_mask_storeu_ps(to + i * stride + h * HALF, valid[h], sum[i][h]);
}

/* A set and block: the last block's sums go to y. */
INLINE void block_of(kept_sums *kept, int64_t set, const panel *p, int32_t b, int32_t b0, int32_t n_block, const set_256 *x, float *y, int64_t n_row,
                     const __mmask16 valid[2], int n_tok, int32_t type, int narrow, int T)
{
    static const __mmask16 all[2] = {0xffff, 0xffff};
    float (*const own)[ROWS] = (*kept)[set];
    const float (*from)[ROWS] = b0 + b ? (const float (*)[ROWS])own : NULL;
    if (b0 + b + 1 == n_block)
        block_set(p, b, x + b, x + n_block + b, from, y, n_row, valid, n_tok, type, narrow, T);
    else
        block_set(p, b, x + b, x + n_block + b, from, own[0], ROWS, all, n_tok, type, narrow, T);
}

/* All rows, at most KEPT_ROWS, blocks b0 and on up to a panel of them, sets s0 ... s1 - 1. */
INLINE void panels(kept_sums *kept, const matmul_args *a, int64_t begin, int64_t end, int32_t b0, int64_t s0, int64_t s1, int32_t type)
{
    const int64_t bytes = type_row_bytes(type, BLOCK_K), n_block = a->n / BLOCK_K;
    const int32_t n = n_block - b0 < PANEL ? (int32_t)(n_block - b0) : PANEL;
    panel p;
    for (int64_t row = begin; row < end; row += ROWS, kept++) {
        const uint8_t *w[ROWS], *next[ROWS];
        const __mmask16 valid[2] = {first_lanes(end - row), first_lanes(end - row - HALF)};
        rows_from(w, ROWS, a, row, end);
        rows_from(next, ROWS, a, row + ROWS, end);
        for (int32_t b = 0; b < n; b++) {
            unpack_half(&p, b, 0, type, w, (b0 + b) * bytes);
            unpack_half(&p, b, 1, type, w + HALF, (b0 + b) * bytes);
        }
        for (int64_t s = s0; s < s1; s++) {
            const set_256 *x = (const set_256 *)a->packed + s * n_block + b0;
            float *y = a->y + s * SET * a->n_row + row;
            const int n_tok = a->n_tok - s * SET < SET ? (int)(a->n_tok - s * SET) : SET;
            if (b0 + n == n_block)
                prefetch_results(y + SET * a->n_row, a->n_row);
            for (int64_t r = (s - s0) * ROWS / (s1 - s0); r < (s - s0 + 1) * ROWS / (s1 - s0); r++) /* the panel after this one */
                for (int64_t line = 0; line < n * bytes; line += 64)
                    _mm_prefetch((const char *)next[r] + b0 * bytes + line, _MM_HINT_T1);
            for (int32_t b = 0; b < n; b++)
                if (is_word(type) && !fits_word(type, x + b))
                    block_of(kept, s - s0, &p, b, b0, (int32_t)n_block, x, y, a->n_row, valid, n_tok, type, 0, SET);
                else if (n_tok > SET / 2)
                    block_of(kept, s - s0, &p, b, b0, (int32_t)n_block, x, y, a->n_row, valid, n_tok, type, is_word(type), SET);
                else
                    block_of(kept, s - s0, &p, b, b0, (int32_t)n_block, x, y, a->n_row, valid, n_tok, type, is_word(type), SET / 2);
        }
    }
}

INLINE void matmul_of(kept_sums *kept, const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    const int64_t n_set = sets_of_6(a->n_tok);
    for (int64_t row = begin; row < end; row += KEPT_ROWS)
        for (int64_t s = 0; s < n_set; s += SETS)
            for (int32_t b0 = 0; b0 < a->n / BLOCK_K; b0 += PANEL)
                panels(kept, a, row, row + KEPT_ROWS < end ? row + KEPT_ROWS : end, b0, s, s + SETS < n_set ? s + SETS : n_set, type);
}

void matmul_kquant_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    _Alignas(64) kept_sums kept[KEPT_ROWS / ROWS]; /* 72 KB: a caller may have 256 KB of stack */
    switch (a->type) {
    case T_Q2_K: matmul_of(kept, a, begin, end, T_Q2_K); break;
    case T_Q3_K: matmul_of(kept, a, begin, end, T_Q3_K); break;
    case T_Q4_K: matmul_of(kept, a, begin, end, T_Q4_K); break;
    case T_Q5_K: matmul_of(kept, a, begin, end, T_Q5_K); break;
    case T_Q6_K: matmul_of(kept, a, begin, end, T_Q6_K); break;
    case T_IQ4_XS: matmul_of(kept, a, begin, end, T_IQ4_XS); break;
    }
}
#endif
