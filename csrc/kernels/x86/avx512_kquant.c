/* avx512_kquant.c - GEMM of blocks of 256, AVX-512 VNNI.
 * Y[token][row] = sum_k X[token][k] * W[row][k]; X int8 with a scale for 256, Y f32.
 * Micro-kernel: MR = 32 rows, NR = 6 tokens, KC <= 512 (PANEL blocks).
 * Registers: 24 of 32 zmm (12 sums of a group, 12 of a block); lane = row.
 * Packing: W to i8 panels [block][k/4][row][4], X to micropanels of NR tokens, avx512_pack.h.
 * Overflow: none; 255 * 127 * 32 * 256 < 2^28.
 * Result: bit-identical to reference.c: within a block all is exact, in any order.
 *
 * How the scales of the groups come in depends on the range of the type's integers. Per block, 16
 * rows and token the multiplying units (avx512_matmul.c: they are the limit) do 64 VPDPBUSD, 2
 * multiplications in f32, 4 with minima, and
 *
 *   Q3_K             none: scale times weight fits the signed byte that VPDPBUSD wants (its
 *                    negative, -128 ... 124)
 *   Q2_K             8 VPDPWSSD for the minima of its 16 groups; scales as above
 *   Q4_K, Q5_K       4 for scales and 4 for minima: where the sums of two groups fit 16 bits each,
 *                    they stand in one word, and VPDPWSSD multiplies them by their scales and adds
 *                    them up
 *   Q6_K             8: the same; its groups have 16 elements
 *   IQ4_XS           8 VPMULLD (one unit's work on Zen 5, two elsewhere), and additions; so do the
 *                    others where such a sum might not fit
 *
 * The activations decide whether it fits: weights are at most 15, 31 or 32, so their sums are
 * bounded by the sums of |x| in a group, and pack_avx512 notes the largest of a micropanel. 127 is
 * only the largest of 256 activations; the others would have to be half as large on average. */
#ifdef __AVX512VNNI__
#include "kernels/x86/avx512_pack.h"

enum { PANEL = 2, PANEL_BLOCK = BLOCK_K };
enum { SMALL = 0x4000, LARGE = 0x8000 }; /* biases of sums of 16 bits: see bias_for */

typedef struct {
    __m512i w[PANEL][BLOCK_K / 4][2]; /* i8 [block][4 elements][row][4] */
    /* i32 [block][step][row]: -128 times its weights' sum */
    __m512i begin[PANEL][N_GROUP][2];
    /* where is_word i32 [block][is SMALL][two groups][row]: what add_two_groups begins with */
    __m512i pair[PANEL][2][N_GROUP / 2][2];
    /* i32 [block][row]: what SMALL biases add to a total, negative */
    __m512i less[PANEL][2];
    /* i32 [block][group][row]; where is_word i16 [block][two groups][row][2] */
    __m512i scale[PANEL][N_GROUP][2];
    __m512i other[PANEL][N_GROUP / 2][2]; /* i16 [block][two groups][row][2]: minima */
    __m512 d[PANEL][2], m[PANEL][2];      /* f32 [block][row] */
} panel;
typedef set_256 packed_set;

/* Elements that are added up before a scale multiplies them. */
INLINE int step_of(int32_t type) { return is_small(type) ? BLOCK_K : group_of(type); }

/* Whether sums of a step may fit 16 bits. */
INLINE int is_word(int32_t type) { return type == T_Q4_K || type == T_Q5_K || type == T_Q6_K; }

/* What is added to such sums of these tokens, so that they have no sign: they are at most 2 less,
 * so that one may be added or subtracted, too.  SMALL leaves a number that is positive with a sign
 * as well, and what it adds to the total is subtracted in advance; LARGE is subtracted from each
 * word.  0: they may not fit. */
INLINE int32_t bias_for(int32_t type, const set_256 *x)
{
    const int32_t max = type == T_Q6_K ? x->max_16 * 32 : x->max_32 * (type == T_Q4_K ? 15 : 31);
    if (type == T_Q4_K && max <= SMALL - 2)
        return SMALL; /* the others hardly ever */
    return is_word(type) && max <= LARGE - 2 ? LARGE : 0;
}

/* Two groups are multiplied by the sums of x at a time. */
INLINE int pairs_of(int32_t type) { return BLOCK_K / 2 / group_of(type); }

/* i16 [row][2]: groups 2 g and 2 g + 1 of what transpose_16 made of bytes [row][group of 16]: two
 * bytes of a lane to the upper halves of two words, and down with their sign.  Of groups of 32
 * every other byte is the same again. */
INLINE __m512i two_groups(const __m512i of[4], int g, int32_t type)
{
    const int is_32 = group_of(type) == 32;
    const __m512i spread = _mm512_set1_epi32(is_32 ? 0x02000000 : g % 2 ? 0x03000200 : 0x01000000);
    const __m512i lane =
        _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    return _mm512_srai_epi16(
        _mm512_shuffle_epi8(of[is_32 ? g : g / 2], _mm512_add_epi8(lane, spread)), 8);
}

/* 64 weights of Q2_K with their scales, or of Q3_K with the negatives of them: scale [16] i16. */
INLINE __m512i scaled_64(int32_t type, const uint8_t *block, int k, __m512i scale)
{
    const __m512i pair = _mm512_set_epi64(0x0003000300030003, 0x0003000300030003,
                                          0x0002000200020002, 0x0002000200020002,
                                          /* the group of elements 2 i and 2 i + 1 */
                                          0x0001000100010001, 0x0001000100010001, 0, 0);
    const __m512i u = natural_64(type, block, k);
    const __m512i sc = _mm512_permutexvar_epi16(
        _mm512_add_epi16(pair, _mm512_set1_epi16((int16_t)(4 * k))), scale);
    const __m512i offset = _mm512_set1_epi16((int16_t)offset_of(type));
    const __m512i a = _mm512_mullo_epi16(
        _mm512_sub_epi16(_mm512_and_si512(u, _mm512_set1_epi16(255)), offset), sc);
    const __m512i b = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(u, 8), offset), sc);
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, a, _mm512_slli_epi16(b, 8));
}

/* Scales of half h, transposed, to where the steps and the sums of x want them. */
INLINE void unpack_scales(panel *p, int32_t b, int h, int32_t type, const uint8_t *scale,
                          const uint8_t *other)
{
    __m512i sc[4], c[4];
    transpose_16(sc, scale, N_GROUP);
    transpose_16(c, other, N_GROUP);
    for (int g = 0; g < pairs_of(type) && is_word(type); g++)
        p->scale[b][g][h] = two_groups(sc, g, type);
    for (int g = 0; g < BLOCK_K / group_of(type) && step_of(type) < BLOCK_K && !is_word(type);
         g++) {
        const int at = g * group_of(type) / GROUP_K;
        p->scale[b][g][h] = _mm512_srai_epi32(
            _mm512_sllv_epi32(sc[at / 4], _mm512_set1_epi32(24 - at % 4 * 8)), 24);
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

/* What add_two_groups wants with biases. */
INLINE void unpack_pairs(panel *p, int32_t b, int h, int32_t type, int32_t bias)
{
    const __m512i all = _mm512_set1_epi32(bias);
    p->less[b][h] = _mm512_setzero_si512();
    for (int g = 0; g < pairs_of(type); g++) {
        const __m512i even = _mm512_add_epi32(p->begin[b][2 * g][h], all),
                      odd = _mm512_add_epi32(p->begin[b][2 * g + 1][h], all);
        p->pair[b][bias == SMALL][g][h] = _mm512_add_epi32(
            _mm512_add_epi32(_mm512_slli_epi32(even, 16), _mm512_srai_epi32(even, 16)), odd);
        DOT_WORDS(p->less[b][h], _mm512_set1_epi16(-SMALL), p->scale[b][g][h]);
    }
}

/* Block b of 16 rows: half h of the panel. */
INLINE void unpack_half(panel *p, int32_t b, int h, int32_t type, const uint8_t *const row[HALF],
                        int64_t at)
{
    uint8_t q[HALF][BLOCK_K], scale[HALF][N_GROUP], other[HALF][N_GROUP];
    const __m512i centre = _mm512_set1_epi8((char)(step_of(type) == BLOCK_K ? 0 : offset_of(type)));
    for (int r = 0; r < HALF; r++) {
        __m128i min;
        const __m128i sc = group_scales(&min, type, row[r] + at);
        const __m256i wide = _mm256_cvtepi8_epi16(sc);
        const __m512i factor = _mm512_castsi256_si512(
            type == T_Q3_K ? _mm256_sub_epi16(_mm256_setzero_si256(), wide) : wide);
        for (int k = 0; k < 4; k++)
            _mm512_storeu_si512(q[r] + ELEMENTS * k,
                                step_of(type) == BLOCK_K ? scaled_64(type, row[r] + at, k, factor)
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
    if (is_word(type))
        unpack_pairs(p, b, h, type, LARGE);
    if (type == T_Q4_K)
        unpack_pairs(p, b, h, type, SMALL);
    p->d[b][h] = scales_of_256(type, row, at);
    p->m[b][h] = has_min(type) ? halves_of(row, at + at_d(type) + 2) : _mm512_setzero_ps();
}

INLINE void unpack(panel *p, int32_t type, const uint8_t *const row[ROWS], int32_t b0,
                   int32_t n_block)
{
    const int64_t block_bytes = type_row_bytes(type, BLOCK_K);
    for (int32_t b = 0; b < n_block; b++) {
        unpack_half(p, b, 0, type, row, (b0 + b) * block_bytes);
        unpack_half(p, b, 1, type, row + HALF, (b0 + b) * block_bytes);
    }
}

/* isum[i] += the products of so many steps of 4 elements, for T tokens. */
INLINE void add_products(__m512i isum[NR][2], const __m512i (*w)[2], const int32_t (*q)[NR],
                         int steps, int T)
{
#pragma GCC unroll 8
    for (int k = 0; k < steps; k++) {
        const __m512i w0 = w[k][0], w1 = w[k][1];
#pragma GCC unroll 6
        for (int i = 0; i < T; i++) {
            const __m512i four = _mm512_set1_epi32(q[k][i]);
            DOT(isum[i][0], four, w0);
            DOT(isum[i][1], four, w1);
        }
    }
}

/* total += the sums of groups 2 g and 2 g + 1 times their scales, where such sums fit 16 bits. Both
 * come together in a word: the odd group's in its lower half, with what the even one's begins with
 * in the upper; they change places; the even one's is added below.  The bias of each keeps it from
 * borrowing of the other.  Where the even one begins below 0 or above 16 bits, its carry, which
 * will come, is in the odd one's begin. */
INLINE void add_two_groups(__m512i total[NR][2], const panel *p, int32_t b, int g, const set_256 *x,
                           int32_t type, int32_t bias, int T)
{
    const int steps = group_of(type) / 4, odd = (2 * g + 1) * steps, even = 2 * g * steps;
    const __m512i biases = _mm512_set1_epi16((int16_t)bias);
    __m512i isum[NR][2];
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            isum[i][h] = p->pair[b][bias == SMALL][g][h];
#pragma GCC unroll 16
    for (int k = 0; k < 2 * steps; k++) {
        const int at = k < steps ? odd + k : even + k - steps;
        const __m512i w[2] = {p->w[b][at][0], p->w[b][at][1]};
#pragma GCC unroll 6
        for (int i = 0; i < T; i++) {
            const __m512i four = all_lanes(&x->q[at][i]);
            for (int h = 0; h < 2; h++)
                DOT(isum[i][h], four, w[h]);
            for (int h = 0; h < 2 && k == steps - 1; h++)
                isum[i][h] = _mm512_rol_epi32(isum[i][h], 16);
            for (int h = 0; h < 2 && k == 2 * steps - 1; h++) {
                if (bias == LARGE)
                    isum[i][h] = _mm512_xor_si512(isum[i][h], biases);
                DOT_WORDS(total[i][h], isum[i][h], p->scale[b][g][h]);
            }
        }
    }
}

/* total += the sums of step s times its scale, whether they fit or not. */
INLINE void add_step(__m512i total[NR][2], const panel *p, int32_t b, int s, const set_256 *x,
                     int32_t type, int T)
{
    const int steps = group_of(type) / 4;
    __m512i isum[NR][2];
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            isum[i][h] = p->begin[b][s][h];
    add_products(isum, p->w[b] + s * steps, x->q + s * steps, steps, T);
    for (int h = 0; h < 2; h++) {
        const __m512i two = p->scale[b][s / 2][h];
        const __m512i scale = is_word(type)
            ? _mm512_srai_epi32(s % 2 ? two : _mm512_slli_epi32(two, 16), 16)
            : p->scale[b][s][h];
        for (int i = 0; i < T; i++)
            total[i][h] = _mm512_add_epi32(total[i][h], _mm512_mullo_epi32(isum[i][h], scale));
    }
}

/* Asks for part `part` of 8 of a block. */
INLINE void prefetch_part(const set_256 *next, int part)
{
    for (int line = 0; line < 4;
         line++) /* 256 elements of 6 tokens and what belongs to them: 32 lines */
        _mm_prefetch((const char *)next + (part * 4 + line) * 64, _MM_HINT_T0);
}

/* The exact sums of block b for T tokens: of Q3_K their negatives.  next: the same block of the
 * next set, prefetched. */
INLINE void block_sums(__m512i total[NR][2], const panel *p, int32_t b, const set_256 *x,
                       const set_256 *next, int32_t type, int32_t bias, int T)
{
    const int whole = step_of(type) == BLOCK_K;
    for (int i = 0; i < T; i++)
        for (int h = 0; h < 2; h++)
            total[i][h] = whole ? p->begin[b][0][h]
                : bias == SMALL ? p->less[b][h]
                                : _mm512_setzero_si512();
    if (!whole && !bias) {
        for (int s = 0; s < 2 * pairs_of(type); s++) {
            prefetch_part(next, s * 4 / pairs_of(type));
            add_step(total, p, b, s, x, type, T);
        }
        return;
    }
    for (int part = 0; part < 8; part++) {
        prefetch_part(next, part);
        if (whole)
            add_products(total, p->w[b] + part * 8, x->q + part * 8, 8, T);
        else if (pairs_of(type) == 8 || part % 2 == 0)
            add_two_groups(total, p, b, part * pairs_of(type) / 8, x, type, bias, T);
    }
}

/* A block and T tokens.  from, to [token][row]: what earlier blocks of these rows added, and where
 * the sums go. */
INLINE void block_set(const panel *p, int32_t b, const set_256 *x, const set_256 *next,
                      const float (*from)[ROWS], float (*to)[ROWS], int32_t type, int32_t bias,
                      int T)
{
    const int32_t (*const sums)[NR] = group_of(type) == 32 ? x->sums_32 : x->sums;
    __m512i total[NR][2];
    block_sums(total, p, b, x, next, type, bias, T);
#pragma GCC unroll 6
    for (int i = 0; i < T; i++) {
        const __m512 d = _mm512_set1_ps(x->d[i]);
        __m512i msum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        for (int g = 0; g < pairs_of(type) && has_min(type); g++) {
            const __m512i two = all_lanes(&sums[g][i]);
            DOT_WORDS(msum[0], p->other[b][g][0], two);
            DOT_WORDS(msum[1], p->other[b][g][1], two);
        }
        for (int h = 0; h < 2; h++) {
            const __m512 scale = _mm512_mul_ps(p->d[b][h], d),
                         isum = _mm512_cvtepi32_ps(total[i][h]);
            const __m512 before = _mm512_loadu_ps(from[i] + h * HALF);
            __m512 sum = type == T_Q3_K ? _mm512_fnmadd_ps(scale, isum, before)
                                        : _mm512_fmadd_ps(scale, isum, before);
            if (has_min(type))
                sum = _mm512_fnmadd_ps(_mm512_mul_ps(p->m[b][h], d), _mm512_cvtepi32_ps(msum[h]),
                                       sum);
            _mm512_storeu_ps(to[i] + h * HALF, sum);
        }
    }
}

INLINE void add_set(const panel *p, const packed_set *x, int64_t n_all, const float (*from)[ROWS],
                    float (*to)[ROWS], int32_t n_block, int32_t type, int n_tok)
{
    for (int32_t b = 0; b < n_block; b++, from = (const float (*)[ROWS])to) {
        const int32_t bias = bias_for(type, x + b),
                      usual = type == T_Q4_K ? SMALL
            : is_word(type)                  ? LARGE
                                             : 0;
        if (type == T_Q4_K && bias == LARGE)
            block_set(p, b, x + b, x + n_all + b, from, to, type, LARGE, NR);
        else if (bias != usual)
            block_set(p, b, x + b, x + n_all + b, from, to, type, 0, NR);
        else if (n_tok > NR / 2)
            block_set(p, b, x + b, x + n_all + b, from, to, type, usual, NR);
        else
            block_set(p, b, x + b, x + n_all + b, from, to, type, usual, NR / 2);
    }
}

#include "kernels/x86/avx512_panels.h"

void matmul_kquant_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    _Alignas(64) kept_sums kept; /* 72 KB: a caller may have 256 KB of stack */
#define CALL(type) matmul_panels(kept, a, begin, end, type)
    switch (a->type) {
        TYPES_256(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
