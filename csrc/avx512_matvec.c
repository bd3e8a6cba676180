/* avx512_matvec.c - products of weights in small integers with one token, AVX-512 VNNI; the bits of reference.c.  (Q8_0 has nothing
 * to unpack: avx2_matmul.c is as fast as memory.)
 *
 * What counts here is memory: every weight is met once.  A thread reads its rows in N_STREAM places at a time, each in the order of
 * the file and a little ahead: one stream alone stands still wherever a page ends, as the processor does not look beyond it
 * (Q8_0 in this way, one thread: one stream 10 GB/s, four 13, of 14 that reading alone gives).  So a tile of 16 rows is 4 rows of each
 * stream, taken in turns: what is asked for 2 KB ahead is needed 8 KB later.  (4 rows of a stream on end were 20 % slower; 16 streams
 * a block at a time 5 to 10 %, though they take fewer instructions.)
 *
 * Weights stay as they lie, lanes are elements, in units of 256 of them.  Each row's exact sums are put aside: 8 sums of blocks
 * of 32 with the products of their scales, or the lanes of the sum of a K-quant's block.  Then the units of the 16 rows are
 * transposed (or folded), so that lane = row, and the steps in f32 follow in the order of the reference. */
#ifdef __AVX512VNNI__
#include "avx512_unpack.h"

enum { UNIT = 256, MOST = 32, BLOCKS = UNIT / BLOCK }; /* MOST: units of a stretch */
enum { N_STREAM = 4, ROWS_OF_STREAM = HALF / N_STREAM };

/* A stretch of the token, and what its products with 16 rows leave.  One for all types: a thread's stack is small. */
typedef struct {
    __m512i x[MOST][4];       /* i8, as weights_64, natural_64 or packed_64 has the weights */
    __m256i less[MOST];       /* i32 [block]: offset times the sum of x */
    union {
        struct { __m512 isum[BLOCKS], scale[BLOCKS], min[BLOCKS]; } of_32[MOST]; /* slots of two rows: transpose_rows */
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

/* 16 bytes of each of 4 neighbouring blocks. */
INLINE __m512i four_blocks(const uint8_t *x, int64_t bytes)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)x));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(x + bytes)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(x + 2 * bytes)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(x + 3 * bytes)), 3);
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

/* i32 [block]: the sums of products of the 8 blocks of a unit; w[4]: as weights_64 gives them. */
INLINE __m256i block_sums(const __m512i w[4], const __m512i x[4])
{
    __m512i v[2]; /* a quarter a block */
    for (int i = 0; i < 2; i++)
        v[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w[2 * i], x[2 * i]), w[2 * i + 1], x[2 * i + 1]);
    const __m512i two = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i one = _mm512_add_epi32(two, _mm512_shuffle_epi32(two, 0x4e)); /* quarter i: blocks i, i + 4 */
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 13, 9, 5, 1, 12, 8, 4, 0), one));
}

/* Units u0 ... u0 + n - 1 of the token to r: the elements in the order of weights_64. */
INLINE void take_32(room *r, const matmul_args *a, int64_t u0, int64_t n, int32_t type)
{
    const __m512i offset = _mm512_set1_epi8((char)offset_of(type)), offsets[4] = {offset, offset, offset, offset};
    for (int64_t u = 0; u < n; u++) {
        const int8_t *q = a->q + (u0 + u) * UNIT;
        for (int k = 0; k < 4; k++)
            r->x[u][k] = four_blocks((const uint8_t *)q + k / 2 * 4 * BLOCK + k % 2 * HALF, BLOCK);
        r->less[u] = block_sums(offsets, r->x[u]);
    }
}

/* Where row i's 8 values are in the vectors that transpose_rows takes: a half of one. */
INLINE float *slot(__m512 v[BLOCKS], int i) { return (float *)&v[i % 4 + i / 8 * 4] + i / 4 % 2 * 8; }

/* 16 rows of 8 values in their slots -> out[b], lane = row. */
INLINE void transpose_rows(__m512 out[BLOCKS], const __m512 in[BLOCKS])
{
    __m512 pair[BLOCKS], four[BLOCKS];
    for (int i = 0; i < BLOCKS; i += 2) {
        pair[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
    }
    for (int i = 0; i < BLOCKS; i += 4)
        for (int k = 0; k < 2; k++) {
            const __m512d x = _mm512_castps_pd(pair[i + k]), y = _mm512_castps_pd(pair[i + k + 2]);
            four[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            four[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    for (int b = 0; b < 4; b++) {
        out[b] = _mm512_shuffle_f32x4(four[b], four[b + 4], 0x88);
        out[b + 4] = _mm512_shuffle_f32x4(four[b], four[b + 4], 0xdd);
    }
}

/* n units of row i, whose first is at w, times the token's; at: the number of its first block. */
INLINE void row_of_32(room *r, int i, const matmul_args *a, const uint8_t *w, int64_t at, int64_t n, int32_t type)
{
    const int32_t bytes = bytes_of(type);
    const __m256i blocks = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(bytes));
    for (int64_t u = 0; u < n; u++, w += BLOCKS * bytes) {
        __m512i q[4];
        for (int line = 0; line < BLOCKS * bytes; line += 64)
            _mm_prefetch((const char *)w + BYTES_AHEAD + line, _MM_HINT_T0);
        for (int k = 0; k < 4; k++)
            q[k] = weights_64(type, w, k);
        const __m256i isum = _mm256_sub_epi32(block_sums(q, r->x[u]), r->less[u]);
        const __m256i dm = _mm256_i32gather_epi32((const int *)w, blocks, 1); /* all blocks begin with d, then m */
        const __m256 d = _mm256_cvtph_ps(_mm256_cvtepi32_epi16(dm));
        _mm256_store_ps(slot(r->of_32[u].isum, i), _mm256_cvtepi32_ps(isum));
        _mm256_store_ps(slot(r->of_32[u].scale, i), _mm256_mul_ps(d, _mm256_loadu_ps(a->d + at + u * BLOCKS)));
        if (has_min(type))
            _mm256_store_ps(slot(r->of_32[u].min, i), _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(dm, 16))));
    }
}

/* sum [row] plus n units of 16 rows. */
INLINE __m512 add_32(__m512 sum, const room *r, const matmul_args *a, int64_t at, int64_t n, int32_t type)
{
    for (int64_t u = 0; u < n; u++) {
        __m512 isum[BLOCKS], scale[BLOCKS], min[BLOCKS];
        transpose_rows(isum, r->of_32[u].isum);
        transpose_rows(scale, r->of_32[u].scale);
        if (has_min(type))
            transpose_rows(min, r->of_32[u].min);
        for (int b = 0; b < BLOCKS; b++) {
            sum = _mm512_fmadd_ps(scale[b], isum[b], sum);
            if (has_min(type))
                sum = _mm512_fmadd_ps(min[b], _mm512_set1_ps(a->s[at + u * BLOCKS + b]), sum);
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
            _mm_prefetch((const char *)w + BYTES_AHEAD + line, _MM_HINT_T0);
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

/* Lane i of the tile whose first stream is at `row`, with n_own rows a stream. */
INLINE int64_t row_of(int64_t row, int i, int64_t n_own) { return row + i / ROWS_OF_STREAM * n_own + i % ROWS_OF_STREAM; }

/* Rows begin ... end - 1, units u0 ... u0 + n - 1; y has what earlier units added. */
INLINE void stretch(room *r, const matmul_args *a, int64_t begin, int64_t end, int64_t u0, int64_t n, int32_t type)
{
    const int64_t at = u0 * (is_of_32(type) ? BLOCKS : 1), first = at * bytes_of(type);
    const int64_t n_own = (end - begin + HALF - 1) / HALF * ROWS_OF_STREAM; /* rows of a stream */
    if (is_of_32(type))
        take_32(r, a, u0, n, type);
    else if (!is_packed(type))
        memcpy(r->x, a->q + u0 * UNIT, n * UNIT);
    else
        for (int64_t u = 0; u < n; u++)
            take_packed(r->x[u], a->q + (u0 + u) * UNIT, type);
    for (int64_t row = begin; row < begin + n_own; row += ROWS_OF_STREAM) {
        const uint8_t *w[N_STREAM][ROWS_OF_STREAM];
        for (int s = 0; s < N_STREAM; s++)
            rows_from(w[s], ROWS_OF_STREAM, a, row + s * n_own, end);
        for (int i = 0; i < ROWS_OF_STREAM; i++)
            for (int s = 0; s < N_STREAM; s++)
                if (is_of_32(type))
                    row_of_32(r, s * ROWS_OF_STREAM + i, a, w[s][i] + first, at, n, type);
                else
                    row_of_256(r, s * ROWS_OF_STREAM + i, a, w[s][i] + first, at, n, type);
        float y[HALF] = {0};
        for (int i = 0; i < HALF && u0; i++)
            if (row_of(row, i, n_own) < end)
                y[i] = a->y[row_of(row, i, n_own)];
        const __m512 sum = _mm512_loadu_ps(y);
        _mm512_storeu_ps(y, is_of_32(type) ? add_32(sum, r, a, at, n, type) : add_256(sum, r, a, at, n, type));
        for (int i = 0; i < HALF; i++)
            if (row_of(row, i, n_own) < end)
                a->y[row_of(row, i, n_own)] = y[i];
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
