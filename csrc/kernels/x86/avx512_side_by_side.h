/* avx512_side_by_side.h - 16 rows in blocks of 32 times one token, block by block: for
 * avx512_matvec.c.
 *
 * A register holds the nibbles of a block of 4 rows, a quarter a row, or the bytes of 2 rows, a
 * half each.  VPDPBUSD leaves several sums of a row beside one another; folding those of 16 rows
 * makes lane = row, where scales and steps in f32 follow at once.  Nothing is put aside but scales,
 * which 16 scalar loads a block bring: the vector units have no part in that.
 *
 * Cost on Zen 4, whose four vector units take half a register a cycle each: some 44 operations of a
 * whole register for a block of 16 rows in Q4_0, of which 12 bring rows together and 6 fold: 22
 * cycles at best.  36 are measured from the second-level cache. */
#ifndef SLUICE_AVX512_SIDE_BY_SIDE_H
#define SLUICE_AVX512_SIDE_BY_SIDE_H
#include "kernels/x86/avx512_one_token.h"

/* A block of 16 neighbouring rows: those of every fourth, and the way from one row to the next.  So
 * all are within reach of an address of the processor's, and 6 registers. */
typedef struct {
    const uint8_t *p[4];
    int64_t row_bytes;
} rows_16;

INLINE rows_16 rows_at(const uint8_t *w, int64_t row_bytes)
{
    return (rows_16){{w, w + 4 * row_bytes, w + 8 * row_bytes, w + 12 * row_bytes}, row_bytes};
}

INLINE const uint8_t *row_of(const rows_16 *w, int i) { return w->p[i / 4] + i % 4 * w->row_bytes; }

INLINE rows_16 next_block(rows_16 w, int32_t type)
{
    for (int i = 0; i < 4; i++)
        w.p[i] += bytes_of_block(type);
    return w;
}

/* Scales of up to 8 blocks of 16 rows: d, or d and, above it, m. */
typedef union {
    uint16_t d[BLOCKS][HALF];
    uint32_t dm[BLOCKS][HALF];
} row_scales;

INLINE uint64_t bits_at(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    memcpy(&v, p, (size_t)bytes);
    return v;
}

/* Scales of a block to place `to`.  All blocks begin with d, then m.  Several at a time are put
 * together before they are stored: stores are what there are fewest of. */
INLINE void load_scales(row_scales *s, int64_t to, const rows_16 *w, int64_t at, int32_t type)
{
    if (has_min(type))
        for (int r = 0; r < HALF; r += 2) {
            const uint64_t two =
                bits_at(row_of(w, r) + at, 4) | bits_at(row_of(w, r + 1) + at, 4) << 32;
            memcpy(&s->dm[to][r], &two, 8);
        }
    else
        for (int r = 0; r < HALF; r += 4) {
            const uint64_t low =
                bits_at(row_of(w, r) + at, 2) | bits_at(row_of(w, r + 1) + at, 2) << 16;
            const uint64_t four = low
                | (bits_at(row_of(w, r + 2) + at, 2) | bits_at(row_of(w, r + 3) + at, 2) << 16)
                    << 32;
            memcpy(&s->d[to][r], &four, 8);
        }
}

/* d and m of block b. */
INLINE void scales_of(__m512 *d, __m512 *m, const row_scales *s, int64_t b, int32_t type)
{
    if (!has_min(type)) {
        *d = scales_of_32(type, _mm256_loadu_si256((const __m256i *)s->d[b]));
        return;
    }
    const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)s->dm[b]));
    const __m512 high = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(s->dm[b] + 8)));
    *d = _mm512_permutex2var_ps(
        low, _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), high);
    *m = _mm512_permutex2var_ps(
        low, _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1), high);
}

/* 16 bytes of rows i, i + 4, i + 8, i + 12. */
INLINE __m512i four_rows(const rows_16 *w, int i, int64_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row_of(w, i) + at)));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0,
                                    _mm_loadu_si128((const __m128i *)(row_of(w, i + 4) + at)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00,
                                    _mm_loadu_si128((const __m128i *)(row_of(w, i + 8) + at)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000,
                                       _mm_loadu_si128((const __m128i *)(row_of(w, i + 12) + at)));
}

/* Sums of adjacent words: of a in the lower half of each quarter, of b in the upper. */
INLINE __m512i add_neighbours(__m512i a, __m512i b)
{
    const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return plus(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* The same where all words fit 16 bits. */
INLINE __m512i add_neighbours_16(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* The fifth bits of rows i, i + 4, i + 8, i + 12, elements 16 h ... 16 h + 15, as a mask of bytes.
 */
INLINE __mmask64 fifths_of(const rows_16 *w, int i, int64_t at, int h)
{
    uint16_t bits[4];
    for (int k = 0; k < 4; k++)
        memcpy(bits + k, row_of(w, i + 4 * k) + at + 2 * h, 2);
    uint64_t all;
    memcpy(&all, bits, 8);
    return all;
}

/* Sums of 16 rows, a block in nibbles: lane = row.  x: the block of the token. */
INLINE __m512i nibble_sums(const rows_16 *w, const int8_t *x, int32_t type)
{
    const int64_t at_q = bytes_of_block(type) - HALF, at_fifths = at_q - 4;
    const __m512i first = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)x));
    const __m512i last = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(x + HALF)));
    __m512i v[4];
    for (int i = 0; i < 4; i++) { /* a quarter a row: 4 sums of 8 products */
        const __m512i q = four_rows(w, i, at_q);
        __m512i low = low_bits(q, 15), high = low_bits(_mm512_srli_epi16(q, 4), 15);
        if (is_indices(type)) {
            low = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values_of(type)), low);
            high = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values_of(type)), high);
        }
        if (has_fifths(type)) {
            low =
                _mm512_mask_add_epi8(low, fifths_of(w, i, at_fifths, 0), low, _mm512_set1_epi8(16));
            high = _mm512_mask_add_epi8(high, fifths_of(w, i, at_fifths, 1), high,
                                        _mm512_set1_epi8(16));
        }
        v[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, first), high,
                                   last);
    }
    if (type == T_IQ4_NL)
        return add_neighbours(add_neighbours(v[0], v[1]), add_neighbours(v[2], v[3]));
    /* 8 * 31 * 127 < 2^15 */
    const __m512i a = add_neighbours_16(v[0], v[1]), b = add_neighbours_16(v[2], v[3]);
    /* 16 * 15 * 127 < 2^15 */
    return bits_of(type) == 5 ? add_neighbours(a, b) : add_neighbours_16(a, b);
}

/* The same in bytes. */
INLINE __m512i byte_sums(const rows_16 *w, const int8_t *x)
{
    const __m512i token = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)x));
    __m512i v[8];
    for (int i = 0; i < 8; i++) { /* rows 0 to 3 beside 4 to 7, 8 to 11 beside 12 to 15 */
        const int row = i / 4 * 8 + i % 4;
        const __m512i one =
            _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(row_of(w, row) + 2)));
        const __m512i both = _mm512_mask_broadcast_i64x4(
            one, 0xf0, _mm256_loadu_si256((const __m256i *)(row_of(w, row + 4) + 2)));
        v[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(),
                                   _mm512_xor_si512(both, _mm512_set1_epi8(-128)), token);
    }
    const __m512i a = add_neighbours(add_neighbours(v[0], v[1]), add_neighbours(v[2], v[3]));
    const __m512i b = add_neighbours(add_neighbours(v[4], v[5]), add_neighbours(v[6], v[7]));
    return plus(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Of blocks b0 ... b0 + n - 1 of the token, what offset_of(type) adds to sums. */
INLINE void load_offsets(int32_t *sum, const matmul_args *a, int64_t b0, int64_t n, int32_t type)
{
    for (int64_t b = 0; b < n; b++) {
        sum[b] = 0;
        for (int i = 0; i < BLOCK; i++)
            sum[b] += offset_of(type) * a->q[(b0 + b) * BLOCK + i];
    }
}

/* sum [row] plus blocks b0 ... b0 + n - 1 of 16 rows, the first of them at w. */
INLINE __m512 add_side_by_side(__m512 sum, const int32_t *offsets, const matmul_args *a, rows_16 w,
                               int64_t b0, int64_t n, int32_t type)
{
    enum { EARLY = 4 /* blocks: what was stored can be loaded by then */ };
    const int64_t bytes = bytes_of_block(type);
    const uint8_t *next = w.p[0] + HALF * w.row_bytes + FAR;
    row_scales s;
    for (int64_t i = 0; i < EARLY && i < n; i++)
        load_scales(&s, i, &w, i * bytes, type);
    for (int64_t i = 0; i < n; i++, w = next_block(w, type), next += bytes * HALF) {
        const int64_t b = b0 + i;
        const int8_t *x = a->q + b * BLOCK;
        __m512 d, m;
        for (int64_t line = 0; line < bytes * HALF; line += 64)
            _mm_prefetch((const char *)next + line, _MM_HINT_T1);
        if (i + EARLY < n)
            load_scales(&s, (i + EARLY) % BLOCKS, &w, EARLY * bytes, type);
        scales_of(&d, &m, &s, i % BLOCKS, type);
        __m512i isum = type == T_Q8_0 ? byte_sums(&w, x) : nibble_sums(&w, x, type);
        if (offset_of(type))
            isum = _mm512_sub_epi32(isum, _mm512_set1_epi32(offsets[i]));
        sum = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a->d[b])), _mm512_cvtepi32_ps(isum),
                              sum);
        if (has_min(type))
            sum = _mm512_fmadd_ps(m, _mm512_set1_ps(a->s[b]), sum);
    }
    return sum;
}
#endif
