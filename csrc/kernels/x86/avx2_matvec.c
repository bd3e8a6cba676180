/* avx2_matvec.c - GEMV (one token) of blocks of 32, AVX2. avx-vnni_matvec.c compiles it again.
 * Y[row] = sum_k X[k] * W[row][k]; X int8, Y f32.
 * Micro-kernel: 8 rows, one after the other or in four streams (avx512_matvec.c), in units of 8
 *   blocks; KC <= KC_UNITS units.
 * Registers: one unit of one row; its 8 exact sums are the lanes of one ymm.
 * Packing: none; weights are read as they lie. Sums and scales wait in the workspace and are
 *   transposed 8 x 8, so that lane = row. A shorter last unit is read together with the beginning
 *   of the next row, whose elements are multiplied by 0.
 * Overflow: none; fits_16 says where 8 products fit 16 bits.
 * Result: bit-identical to reference.c. */
#ifdef __AVX2__
#include "api/runtime.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/blocks.h"

/* KC_UNITS: units of a KC block */
enum { BLOCK = 32, HALF = 16, BLOCKS = 8, UNIT = BLOCK * BLOCKS, KC_UNITS = 32 };
enum { MAX_UNIT_BYTES = BLOCKS * sizeof(block_q8_0) }; /* of a unit */

/* A KC block of the token, and the sums and scales of 8 rows. */
typedef struct {
    /* i8: of 2 j and 2 j + 1 the halves of block j, and above them those of block j + 4; Q8_0:
     * block j */
    __m256i x[KC_UNITS][BLOCKS];
    __m256i begin[KC_UNITS];      /* i32 [block]: -offset times the sum of x */
    __m256i isum[KC_UNITS][ROWS]; /* i32 [block] */
    /* halves; where there are minima, m above d */
    union {
        uint16_t d[KC_UNITS][BLOCKS][ROWS];
        uint32_t dm[KC_UNITS][BLOCKS][ROWS];
    };
} workspace;

/* Whether 8 products of any weights and activations fit 16 bits. */
INLINE int fits_16(int32_t type)
{
#ifdef WITH_VNNI
    return (void)type, 0; /* VPDPBUSD leaves 32 */
#else
    return pairs_in_16(type) >= 4;
#endif
}

/* 16 bytes of a block, and of the fourth block after it. */
INLINE __m256i two_blocks(const uint8_t *x, int32_t bytes)
{
    const __m128i one = _mm_loadu_si128((const __m128i *)x),
                  other = _mm_loadu_si128((const __m128i *)(x + 4 * bytes));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(one), other, 1);
}

/* 16 in each byte whose element, 16 h and on, has its fifth bit set. */
INLINE __m256i two_fifths(int32_t type, const uint8_t *block, int h)
{
    const int64_t at = type == T_Q5_1 ? offsetof(block_q5_1, h) : offsetof(block_q5_0, h);
    const __m256i which = _mm256_broadcastsi128_si256(
        _mm_set_epi64x(0x0101010101010101 * (2 * h + 1), 0x0101010101010101 * (2 * h)));
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(two_blocks(block + at, bytes_of_block(type)), which);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit),
                            _mm256_set1_epi8(16));
}

/* Elements 16 h ... 16 h + 15 of a block and of the fourth after it, plus offset_of(type). */
INLINE __m256i two_halves(int32_t type, const uint8_t *block, int h)
{
    const int32_t bytes = bytes_of_block(type);
    const __m256i q = two_blocks(block + bytes - HALF, bytes),
                  n = _mm256_and_si256(h ? _mm256_srli_epi16(q, 4) : q, _mm256_set1_epi8(15));
    if (is_indices(type))
        return _mm256_add_epi8(values_of(type, n), _mm256_set1_epi8((char)offset_of(type)));
    return type == T_Q5_0 || type == T_Q5_1 ? _mm256_or_si256(n, two_fifths(type, block, h)) : n;
}

/* Products of two blocks: 8 sums of four in 16 bits, or 4 of eight in 32, of each. */
INLINE __m256i block_products(int32_t type, const uint8_t *block, const __m256i x[2])
{
    const __m256i low = two_halves(type, block, 0), high = two_halves(type, block, 1);
    if (fits_16(type))
        return _mm256_add_epi16(times(type, low, x[0]), times(type, high, x[1]));
    return add_fours(add_fours(_mm256_setzero_si256(), type, low, x[0]), type, high, x[1]);
}

/* The same of four blocks, from those of two and two: two sums in 32 bits of each. */
INLINE __m256i join(int32_t type, __m256i a, __m256i b)
{
    const __m256i low = _mm256_unpacklo_epi64(a, b), high = _mm256_unpackhi_epi64(a, b);
    return fits_16(type) ? _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1))
                         : _mm256_add_epi32(low, high);
}

/* The exact sums of a unit's blocks, less `begin`. */
INLINE __m256i unit_sums(int32_t type, const uint8_t *unit, const __m256i x[BLOCKS])
{
    __m256i two[4], one[BLOCKS];
    if (type == T_Q8_0) { /* 32 bytes as they are */
        for (int j = 0; j < BLOCKS; j++) {
            const __m256i q =
                _mm256_loadu_si256((const __m256i *)((const block_q8_0 *)unit + j)->q);
            one[j] = add_fours(_mm256_setzero_si256(), type,
                               _mm256_add_epi8(q, _mm256_set1_epi8((char)offset_of(type))), x[j]);
        }
        return fold(one);
    }
    for (int j = 0; j < 4; j++)
        two[j] = block_products(type, unit + j * bytes_of_block(type), x + 2 * j);
    const __m256 a = _mm256_castsi256_ps(join(type, two[0], two[1])),
                 b = _mm256_castsi256_ps(join(type, two[2], two[3]));
    return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
}

/* n blocks from b0 on of the token to r. */
INLINE void load_tokens(workspace *r, const matmul_args *a, int64_t b0, int64_t n, int32_t type)
{
    for (int64_t b = 0; b < n; b += BLOCKS) {
        int8_t q[UNIT] = {0};
        int32_t begin[BLOCKS] = {0};
        memcpy(q, a->q + (b0 + b) * BLOCK, (size_t)(n - b < BLOCKS ? n - b : BLOCKS) * BLOCK);
        for (int i = 0; i < UNIT; i++)
            begin[i / BLOCK] -= offset_of(type) * q[i];
        r->begin[b / BLOCKS] = _mm256_loadu_si256((const __m256i *)begin);
        for (int j = 0; j < BLOCKS; j++)
            r->x[b / BLOCKS][j] = type == T_Q8_0
                ? _mm256_loadu_si256((const __m256i *)(q + j * BLOCK))
                : two_blocks((const uint8_t *)q + j / 2 * BLOCK + j % 2 * HALF, BLOCK);
    }
}

INLINE void row_unit(workspace *r, int i, int64_t u, const uint8_t *w, int32_t type)
{
    const int32_t bytes = bytes_of_block(type);
    r->isum[u][i] = _mm256_add_epi32(r->begin[u], unit_sums(type, w, r->x[u]));
    for (int b = 0; b < BLOCKS; b++) { /* all blocks begin with d, then m */
        if (has_min(type))
            memcpy(&r->dm[u][b][i], w + b * bytes, 4);
        else
            memcpy(&r->d[u][b][i], w + b * bytes, 2);
    }
}

/* Blocks b ... of row i, up to 8 before block n; the first is at w, and nothing may be read from
 * `after` on.  Where fewer are left, those of the next row stand beside them and are multiplied by
 * zeros. */
INLINE void row_blocks(workspace *r, int i, const uint8_t *w, const uint8_t *after, int64_t b,
                       int64_t n, int n_stream, int32_t type)
{
    const int32_t bytes = bytes_of_block(type);
    prefetch_ahead(w, (int32_t)(n - b < BLOCKS ? n - b : BLOCKS) * bytes, n_stream);
    if (b + BLOCKS <= n || w + BLOCKS * bytes <= after) {
        row_unit(r, i, b / BLOCKS, w, type);
    } else {
        uint8_t rest[MAX_UNIT_BYTES] = {0};
        memcpy(rest, w, (size_t)(n - b) * bytes);
        row_unit(r, i, b / BLOCKS, rest, type);
    }
}

/* Scales of block b of a unit of 8 rows: d, and where there are minima m. */
INLINE void scales_of(__m256 *d, __m256 *m, const workspace *r, int64_t u, int64_t b, int32_t type)
{
    if (!has_min(type)) {
        *d = scales_of_32(type, _mm_loadu_si128((const __m128i *)r->d[u][b]));
        return;
    }
    const __m256i dm = _mm256_loadu_si256((const __m256i *)r->dm[u][b]);
    const __m256i halves = _mm256_packus_epi32(_mm256_and_si256(dm, _mm256_set1_epi32(0xffff)),
                                               _mm256_srli_epi32(dm, 16));
    const __m256i both = _mm256_permute4x64_epi64(halves, 0xd8);
    *d = _mm256_cvtph_ps(_mm256_castsi256_si128(both));
    *m = _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1));
}

/* sum [row] plus n blocks of 8 rows; b0: the number of the first. */
INLINE __m256 add_blocks(__m256 sum, const workspace *r, const matmul_args *a, int64_t b0,
                         int64_t n, int32_t type)
{
    for (int64_t b = 0; b < n; b += BLOCKS) {
        __m256i isum[BLOCKS];
        transpose(isum, r->isum[b / BLOCKS]);
        for (int64_t i = 0; i < (n - b < BLOCKS ? n - b : BLOCKS); i++) {
            __m256 d, m;
            scales_of(&d, &m, r, b / BLOCKS, i, type);
            sum = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(a->d[b0 + b + i])),
                                  _mm256_cvtepi32_ps(isum[i]), sum);
            if (has_min(type))
                sum = _mm256_fmadd_ps(m, _mm256_set1_ps(a->s[b0 + b + i]), sum);
        }
    }
    return sum;
}

INLINE void matvec_of(const matmul_args *a, int64_t begin, int64_t end, int n_stream, int32_t type)
{
    const int64_t n_block = a->n / BLOCK, bytes = bytes_of_block(type);
    /* rows that are picked: copied */
    const uint8_t *after = a->rows ? NULL : (const uint8_t *)a->w + a->n_row * n_block * bytes;
    workspace r;
    for (int64_t b0 = 0; b0 < n_block; b0 += KC_UNITS * BLOCKS) {
        const int64_t n = n_block - b0 < KC_UNITS * BLOCKS ? n_block - b0 : KC_UNITS * BLOCKS;
        load_tokens(&r, a, b0, n, type);
        for (int64_t at = 0; at < rows_of_stream(begin, end, n_stream); at += ROWS / n_stream) {
            rows_8 g;
            rows_of_streams(&g, a, begin, end, at, n_stream);
            for (int i = 0; i < ROWS / n_stream; i++)
                for (int64_t b = 0; b < n; b += BLOCKS)
                    for (int row = i; row < ROWS; row += ROWS / n_stream)
                        row_blocks(&r, row, g.w[row] + (b0 + b) * bytes, after, b, n, n_stream,
                                   type);
            results_to(
                a->y, &g,
                add_blocks(b0 ? results_of(&g, a->y) : _mm256_setzero_ps(), &r, a, b0, n, type));
        }
    }
}

void NAME(matvec)(const matmul_args *a, int64_t begin, int64_t end)
{
    const int is_one = matvec_streams() == 1;
#define CALL(type) is_one ? matvec_of(a, begin, end, 1, type) : matvec_of(a, begin, end, 4, type)
    switch (a->type) {
        TYPES_32(CASE_OF_TYPE)
    }
#undef CALL
}
#endif
