/* avx512_matvec.c - products of weights in small integers with one token, AVX-512 VNNI; the bits of reference.c.  (Q8_0 has nothing
 * to unpack: avx2_matmul.c is as fast as memory.)
 *
 * What counts here is memory: every weight is met once.  A thread reads its rows in the order of the file and asks for what comes 8 KB later,
 * which is two pages: the processor's own prefetcher begins anew in each, and what it then leaves undone is known by that time.  (On Zen 5, one
 * thread, against 4 streams a quarter of the rows apart that ask for 2 KB ahead: Q4_K 1.15 times, Q6_K 1.25 times as fast.)
 *
 * Weights stay as they lie, lanes are elements, in units of 256 of them.  Each row's exact sums are put aside: two lanes for each of 8 blocks
 * of 32, or the lanes of the sum of a K-quant's block; and its scales, as halves.  Then the units of 16 rows are folded so that lane = row, and
 * the steps in f32 follow in the order of the reference. */
#ifdef __AVX512VNNI__
#include "avx512_unpack.h"

enum { UNIT = 256, MOST = 32, BLOCKS = UNIT / BLOCK }; /* MOST: units of a stretch */
enum { AHEAD = 8192 };

/* A stretch of the token, and what its products with 16 rows leave.  One for all types: a thread's stack is small. */
typedef struct {
    __m512i x[MOST][4];       /* i8, as weights_64, natural_64 or packed_64 has the weights */
    __m512i begin[MOST][2];   /* i32, lanes of 4 blocks each: -offset times the sum of x */
    union {
        struct { __m512i isum[HALF]; uint32_t dm[BLOCKS][HALF]; } of_32[MOST]; /* lanes of a row each, of all blocks; [block][row] d, and m above it */
        struct { __m512i isum[HALF], msum[HALF / 2]; uint16_t d[HALF], m[HALF]; } of_256[MOST]; /* lanes of a row each; of rows 2 i, 2 i + 1 */
    };
} room;

/* Bytes of a block: a constant where the type is one, unlike type_row_bytes. */
INLINE int32_t bytes_of(int32_t type)
{
    switch (type) {
    case T_Q4_0: return sizeof(block_q4_0);
    case T_Q4_1: return sizeof(block_q4_1);
    case T_Q5_0: return sizeof(block_q5_0);
    case T_Q5_1: return sizeof(block_q5_1);
    case T_IQ4_NL: return sizeof(block_iq4_nl);
    case T_Q2_K: return sizeof(block_q2_k);
    case T_Q3_K: return sizeof(block_q3_k);
    case T_Q4_K: return sizeof(block_q4_k);
    case T_Q5_K: return sizeof(block_q5_k);
    case T_Q6_K: return sizeof(block_q6_k);
    default: return sizeof(block_iq4_xs);
    }
}

/* Whether weights are so small that sums of four times them fit 16 bits too. */
INLINE int is_small(int32_t type) { return type == T_Q2_K || type == T_Q3_K; }

/* Whether packed_block takes them: what has the most instructions for its bytes. */
INLINE int is_packed(int32_t type) { return is_small(type) || type == T_IQ4_XS; }

INLINE int is_of_32(int32_t type) { return bytes_of(type) <= (int32_t)sizeof(block_q5_1); }

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* 16 bytes of each of 4 neighbouring blocks.  A masked broadcast is a load and a blend, which has more ports than a shuffle. */
INLINE __m512i four_blocks(const uint8_t *x, int64_t bytes)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)x));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const __m128i *)(x + bytes)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const __m128i *)(x + 2 * bytes)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const __m128i *)(x + 3 * bytes)));
}

/* The fifth bits of elements 16 h ... 16 h + 15 of 4 neighbouring blocks. */
INLINE __mmask64 four_fifths(const uint8_t *x, int64_t bytes, int h)
{
    uint64_t bits = 0;
    for (int b = 3; b >= 0; b--) {
        uint16_t of;
        memcpy(&of, x + b * bytes + 2 * h, 2);
        bits = bits << 16 | of;
    }
    return bits;
}

/* 64 weights of a unit of 8 blocks plus offset_of(type): the first (k even) or the last 16 elements of blocks 0 to 3 (k < 2) or 4 to 7. */
INLINE __m512i weights_64(int32_t type, const uint8_t *unit, int k)
{
    const int64_t bytes = bytes_of(type);
    const uint8_t *block = unit + k / 2 * 4 * bytes;
    const int64_t at_q = bytes - HALF, at_h = type == T_Q5_1 ? offsetof(block_q5_1, h) : offsetof(block_q5_0, h);
    const __m512i q = four_blocks(block + at_q, bytes), n = low_bits(k % 2 ? _mm512_srli_epi16(q, 4) : q, 15);
    if (type == T_IQ4_NL)
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_unsigned()), n);
    if (type == T_Q5_0 || type == T_Q5_1)
        return _mm512_mask_add_epi8(n, four_fifths(block + at_h, bytes, k % 2), n, _mm512_set1_epi8(16));
    return n;
}

/* Lanes of 4 blocks each, a quarter a block: v += the products of w, as weights_64 gives them, with x. */
INLINE void add_products(__m512i v[2], const __m512i w[4], const __m512i x[4])
{
    for (int i = 0; i < 2; i++)
        v[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(v[i], w[2 * i], x[2 * i]), w[2 * i + 1], x[2 * i + 1]);
}

/* Units u0 ... u0 + n - 1 of the token to r: the elements in the order of weights_64. */
INLINE void take_32(room *r, const matmul_args *a, int64_t u0, int64_t n, int32_t type)
{
    const __m512i zero = _mm512_setzero_si512(), offset = _mm512_set1_epi8((char)offset_of(type)), offsets[4] = {offset, offset, offset, offset};
    for (int64_t u = 0; u < n; u++) {
        const int8_t *q = a->q + (u0 + u) * UNIT;
        __m512i sum[2] = {zero, zero};
        for (int k = 0; k < 4; k++)
            r->x[u][k] = four_blocks((const uint8_t *)q + k / 2 * 4 * BLOCK + k % 2 * HALF, BLOCK);
        add_products(sum, offsets, r->x[u]);
        for (int i = 0; i < 2; i++)
            r->begin[u][i] = _mm512_sub_epi32(zero, sum[i]);
    }
}

/* n units of row i, whose first is at w, times the token's. */
INLINE void row_of_32(room *r, int i, const uint8_t *w, int64_t n, int32_t type)
{
    const int32_t bytes = bytes_of(type);
    for (int64_t u = 0; u < n; u++, w += BLOCKS * bytes) {
        __m512i q[4], v[2] = {r->begin[u][0], r->begin[u][1]};
        for (int line = 0; line < BLOCKS * bytes; line += 64)
            _mm_prefetch((const char *)w + AHEAD + line, _MM_HINT_T0);
        for (int k = 0; k < 4; k++)
            q[k] = weights_64(type, w, k);
        add_products(v, q, r->x[u]);
        /* in quarter b two lanes of block b and, after each, one of block b + 4 */
        r->of_32[u].isum[i] = plus(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        for (int b = 0; b < BLOCKS; b++)
            r->of_32[u].dm[b][i] = word(w + b * bytes); /* all blocks begin with d, then m */
    }
}

/* What row_of_32 left of 16 rows -> out[b], lane = row. */
INLINE void fold_blocks(__m512i out[BLOCKS], const __m512i isum[HALF])
{
    __m512 pair[BLOCKS], four[2][4]; /* of rows 2 i, 2 i + 1, of four rows: blocks 0 to 3, 4 to 7 */
    for (int i = 0; i < BLOCKS; i++)
        pair[i] = _mm512_castsi512_ps(plus(_mm512_unpacklo_epi64(isum[2 * i], isum[2 * i + 1]), _mm512_unpackhi_epi64(isum[2 * i], isum[2 * i + 1])));
    for (int i = 0; i < 4; i++) {
        four[0][i] = _mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0x88);
        four[1][i] = _mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0xdd);
    }
    for (int h = 0; h < 2; h++) { /* quarters: 4 x 4 */
        const __m512 a = _mm512_shuffle_f32x4(four[h][0], four[h][1], 0x44), b = _mm512_shuffle_f32x4(four[h][0], four[h][1], 0xee);
        const __m512 c = _mm512_shuffle_f32x4(four[h][2], four[h][3], 0x44), d = _mm512_shuffle_f32x4(four[h][2], four[h][3], 0xee);
        out[4 * h] = _mm512_castps_si512(_mm512_shuffle_f32x4(a, c, 0x88));
        out[4 * h + 1] = _mm512_castps_si512(_mm512_shuffle_f32x4(a, c, 0xdd));
        out[4 * h + 2] = _mm512_castps_si512(_mm512_shuffle_f32x4(b, d, 0x88));
        out[4 * h + 3] = _mm512_castps_si512(_mm512_shuffle_f32x4(b, d, 0xdd));
    }
}

/* sum [row] plus n units of 16 rows; at: the number of their first block. */
INLINE __m512 add_32(__m512 sum, const room *r, const matmul_args *a, int64_t at, int64_t n, int32_t type)
{
    for (int64_t u = 0; u < n; u++) {
        __m512i isum[BLOCKS];
        fold_blocks(isum, r->of_32[u].isum);
        for (int b = 0; b < BLOCKS; b++) {
            const __m512i dm = _mm512_loadu_si512(r->of_32[u].dm[b]);
            const __m512 d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dm));
            sum = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a->d[at + u * BLOCKS + b])), _mm512_cvtepi32_ps(isum[b]), sum);
            if (has_min(type)) {
                const __m512 m = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dm, 16)));
                sum = _mm512_fmadd_ps(m, _mm512_set1_ps(a->s[at + u * BLOCKS + b]), sum);
            }
        }
    }
    return sum;
}

/* ---- blocks of 256 ----------------------------------------------------------------------------- */

/* A block of the token in the order of packed_64. */
INLINE void take_packed(__m512i x[4], const int8_t *q, int32_t type)
{
    __m512i in[4];
    for (int k = 0; k < 4; k++)
        in[k] = _mm512_loadu_si512(q + k * ELEMENTS);
    for (int k = 0; k < 4; k++)
        if (type == T_IQ4_XS)
            x[k] = k % 2 ? _mm512_shuffle_i32x4(in[k - 1], in[k], 0xdd) : _mm512_shuffle_i32x4(in[k], in[k + 1], 0x88);
        else
            x[k] = k % 2 ? _mm512_shuffle_i32x4(in[k / 2], in[k / 2 + 2], 0xee) : _mm512_shuffle_i32x4(in[k / 2], in[k / 2 + 2], 0x44);
}

/* Vector k of a block's weights, with offsets.  IQ4_XS: quarters are groups, k % 2 halves of them.  Q2_K, Q3_K: elements 32 k ... 32 k + 31 and
 * 128 more; where k is odd, four times. */
INLINE __m512i packed_64(int32_t type, const uint8_t *block, int k)
{
    if (type == T_IQ4_XS) {
        const __m512i q = _mm512_loadu_si512(block + offsetof(block_iq4_xs, q) + k / 2 * 64);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(iq4_unsigned()), low_bits(k % 2 ? _mm512_srli_epi16(q, 4) : q, 15));
    }
    const __m512i q = _mm512_loadu_si512(block + (type == T_Q2_K ? offsetof(block_q2_k, q) : offsetof(block_q3_k, q)));
    const __m512i n = low_bits(k / 2 ? _mm512_srli_epi16(q, 4) : q, k % 2 ? 12 : 3);
    if (type == T_Q2_K)
        return n;
    const __m512i h = _mm512_rorv_epi64(twice(block + offsetof(block_q3_k, h)), counts(62, 2)); /* bit 2 + k is vector k's */
    switch (k) {
    case 0: return or_masked(n, h, 4);
    case 1: return or_masked(n, _mm512_slli_epi16(h, 1), 16);
    case 2: return or_masked(n, _mm512_srli_epi16(h, 2), 4);
    default: return or_masked(n, _mm512_srli_epi16(h, 1), 16);
    }
}

/* Shuffles the scales of groups to words of 16 bits, as their upper byte (`high`) or lower: in quarter i four times that of group a, four times b,
 * for i = 0; of 1, 8 and 9 more for the others. */
INLINE __m512i pick(int a, int b, int high)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)(i % 2 == high ? (i % 16 < 8 ? a : b) + i / 32 * 8 + i / 16 % 2 : 0x80);
    return _mm512_loadu_si512(at);
}

/* The exact sum of a block in 16 lanes, of a type of packed_64 (is_small: four times it); *msum: that of the minima in 8. */
INLINE __m512i packed_block(__m256i *msum, int32_t type, const uint8_t *block, const __m512i x[4], __m256i sums)
{
    const __m512i zero = _mm512_setzero_si512();
    __m128i min;
    const __m512i scale = _mm512_broadcast_i32x4(group_scales(&min, type, block));
    *msum = _mm256_madd_epi16(_mm256_cvtepi8_epi16(min), sums);
    __m512i v[4], total = zero;
    if (offset_of(type))
        total = _mm512_zextsi256_si512(_mm256_mullo_epi32(*msum, _mm256_set1_epi32(-offset_of(type) * (is_small(type) ? 4 : 1))));
    for (int k = 0; k < 4; k++)
        v[k] = _mm512_dpbusd_epi32(type == T_IQ4_XS && k % 2 ? v[k - 1] : zero, packed_64(type, block, k), x[k]);
    if (type == T_IQ4_XS) { /* words: two of a group, two of the fourth after it */
        uint8_t at[64];
        for (int i = 0; i < 64; i++)
            at[i] = (uint8_t)(i % 4 < 3 ? 0x80 : 2 * (i / 16 + i % 16 / 8 * 4));
        const __m512i both = plus(_mm512_unpacklo_epi64(v[1], v[3]), _mm512_unpackhi_epi64(v[1], v[3]));
        return plus(total, _mm512_mullo_epi32(both, _mm512_srai_epi32(_mm512_shuffle_epi8(scale, _mm512_loadu_si512(at)), 24)));
    }
    /* all sums fit 16 bits, 4 * 28 * 127 at most; scales of vectors 0 and 2 four times too */
    const int high = type == T_Q3_K;
    const __m512i s02 = _mm512_shuffle_epi8(scale, pick(0, 4, high)), s13 = _mm512_shuffle_epi8(scale, pick(2, 6, high));
    total = _mm512_dpwssd_epi32(total, _mm512_packs_epi32(v[0], v[2]), high ? _mm512_srai_epi16(s02, 6) : _mm512_slli_epi16(s02, 2));
    return _mm512_dpwssd_epi32(total, _mm512_packs_epi32(v[1], v[3]), high ? _mm512_srai_epi16(s13, 8) : s13);
}

/* The exact sum of a block in 16 lanes; *msum: that of the minima in 8.  sums: those of the activations' groups. */
INLINE __m512i block_256(__m256i *msum, int32_t type, const uint8_t *block, const __m512i x[4], __m256i sums)
{
    __m128i min;
    const __m512i scale = _mm512_cvtepi8_epi32(group_scales(&min, type, block)); /* [group of 16] */
    /* the sum of 4 products is at most 4 * 63 * 127 < 2^15: as lower half of a lane it can meet the scale's */
    const __m512i low = _mm512_and_si512(scale, _mm512_set1_epi32(0xffff));
    *msum = _mm256_madd_epi16(_mm256_cvtepi8_epi16(min), sums);
    __m512i total = offset_of(type) ? _mm512_zextsi256_si512(_mm256_mullo_epi32(*msum, _mm256_set1_epi32(-offset_of(type)))) : _mm512_setzero_si512();
    for (int k = 0; k < 4; k++) {
        const __m512i isum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), natural_64(type, block, k), x[k]);
        const __m512i group = _mm512_add_epi32(_mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0), _mm512_set1_epi32(4 * k));
        total = _mm512_dpwssd_epi32(total, isum, _mm512_permutexvar_epi32(group, low));
    }
    return total;
}

/* n blocks of row i, as above. */
INLINE void row_of_256(room *r, int i, const matmul_args *a, const uint8_t *w, int64_t at, int64_t n, int32_t type)
{
    const int64_t bytes = bytes_of(type);
    for (int64_t u = 0; u < n; u++, w += bytes) {
        __m256i msum;
        for (int64_t line = 0; line < bytes; line += 64)
            _mm_prefetch((const char *)w + AHEAD + line, _MM_HINT_T0);
        const __m256i sums = _mm256_loadu_si256((const __m256i *)(a->sums + (at + u) * N_GROUP));
        r->of_256[u].isum[i] = is_packed(type) ? packed_block(&msum, type, w, r->x[u], sums) : block_256(&msum, type, w, r->x[u], sums);
        memcpy(&r->of_256[u].d[i], w + at_d(type), 2);
        if (has_min(type)) {
            _mm256_store_si256((__m256i *)&r->of_256[u].msum[i / 2] + i % 2, msum);
            memcpy(&r->of_256[u].m[i], w + at_d(type) + 2, 2);
        }
    }
}

INLINE __m512 add_256(__m512 sum, const room *r, const matmul_args *a, int64_t at, int64_t n, int32_t type)
{
    for (int64_t u = 0; u < n; u++) {
        const __m512 x = _mm512_set1_ps(a->d[at + u]), d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)r->of_256[u].d));
        const __m512i isum = fold_16(r->of_256[u].isum, plus), exact = is_small(type) ? _mm512_srai_epi32(isum, 2) : isum;
        sum = _mm512_fmadd_ps(_mm512_mul_ps(d, x), _mm512_cvtepi32_ps(exact), sum);
        if (has_min(type)) {
            const __m512 m = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)r->of_256[u].m));
            sum = _mm512_fnmadd_ps(_mm512_mul_ps(m, x), _mm512_cvtepi32_ps(fold_halves(r->of_256[u].msum, plus)), sum);
        }
    }
    return sum;
}

/* ---- both ------------------------------------------------------------------------------------------ */

/* Rows begin ... end - 1, units u0 ... u0 + n - 1; y has what earlier units added. */
INLINE void stretch(room *r, const matmul_args *a, int64_t begin, int64_t end, int64_t u0, int64_t n, int32_t type)
{
    const int64_t at = u0 * (is_of_32(type) ? BLOCKS : 1), first = at * bytes_of(type); /* block, byte */
    if (is_of_32(type))
        take_32(r, a, u0, n, type);
    else if (!is_packed(type))
        memcpy(r->x, a->q + u0 * UNIT, n * UNIT);
    else
        for (int64_t u = 0; u < n; u++)
            take_packed(r->x[u], a->q + (u0 + u) * UNIT, type);
    for (int64_t row = begin; row < end; row += HALF) {
        const uint8_t *w[HALF];
        const __mmask16 valid = first_lanes(end - row);
        rows_from(w, HALF, a, row, end);
        for (int i = 0; i < HALF; i++)
            if (is_of_32(type))
                row_of_32(r, i, w[i] + first, n, type);
            else
                row_of_256(r, i, a, w[i] + first, at, n, type);
        const __m512 sum = u0 ? _mm512_maskz_loadu_ps(valid, a->y + row) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(a->y + row, valid, is_of_32(type) ? add_32(sum, r, a, at, n, type) : add_256(sum, r, a, at, n, type));
    }
}

void matvec_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    const int64_t units = a->n / UNIT;
    room r;
    for (int64_t u0 = 0; u0 < units; u0 += MOST) {
        const int64_t n = units - u0 < MOST ? units - u0 : MOST;
        switch (a->type) {
#define OF(type) case type: stretch(&r, a, begin, end, u0, n, type); break;
        OF(T_Q4_0) OF(T_Q4_1) OF(T_Q5_0) OF(T_Q5_1) OF(T_IQ4_NL)
        OF(T_Q2_K) OF(T_Q3_K) OF(T_Q4_K) OF(T_Q5_K) OF(T_Q6_K) OF(T_IQ4_XS)
#undef OF
        }
    }
}
#endif
