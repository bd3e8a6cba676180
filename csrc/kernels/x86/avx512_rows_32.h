/* avx512_rows_32.h - rows in blocks of 32 times one token: for avx512_matvec.c. */
#ifndef SLUICE_AVX512_ROWS_32_H
#define SLUICE_AVX512_ROWS_32_H
#include "kernels/x86/avx512_one_token.h"

/* The nibbles of 4 neighbouring blocks, 16 bytes each: those of the last three are within 64 bytes.
 */
INLINE __m512i four_nibbles(int32_t type, const uint8_t *block)
{
    const int32_t bytes = bytes_of_block(type), at_q = bytes - HALF, from = 4 * bytes - 64;
    uint16_t at[32] = {0};
    if (bytes % 2) /* no words */
        return four_blocks(block + at_q, bytes);
    for (int i = 8; i < 32; i++)
        at[i] = (uint16_t)((i / 8 * bytes + at_q - from) / 2 + i % 8);
    const __m512i first = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(block + at_q)));
    return _mm512_mask_permutexvar_epi16(first, 0xffffff00, _mm512_loadu_si512(at),
                                         _mm512_loadu_si512(block + from));
}

/* 64 weights of a unit of 8 blocks plus offset_of(type): the first (k even) or the last 16 elements
 * of blocks 0 to 3 (k < 2) or 4 to 7. fifths: their fifth bits, where they have some. */
INLINE __m512i weights_64(int32_t type, const uint8_t *unit, int k, uint64_t fifths)
{
    const __m512i q = four_nibbles(type, unit + k / 2 * 4 * bytes_of_block(type)),
                  n = low_bits(k % 2 ? _mm512_srli_epi16(q, 4) : q, 15);
    if (is_indices(type))
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values_of(type)), n);
    return has_fifths(type) ? _mm512_mask_add_epi8(n, fifths, n, _mm512_set1_epi8(16)) : n;
}

/* Blocks 2 k and 2 k + 1 of a unit of Q8_0, plus offset_of(T_Q8_0). */
INLINE __m512i bytes_64(const uint8_t *unit, int k)
{
    const block_q8_0 *block = (const block_q8_0 *)unit + 2 * k;
    const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)block[0].q));
    return _mm512_xor_si512(
        _mm512_inserti64x4(first, _mm256_loadu_si256((const __m256i *)block[1].q), 1),
        _mm512_set1_epi8(-128));
}

/* Lanes of 4 blocks each, a quarter a block: v += the products of w, as weights_64 or bytes_64
 * gives them, with x. */
INLINE void add_products(__m512i v[2], int32_t type, const __m512i w[4], const __m512i x[4],
                         int halves)
{
    for (int i = 0; i < halves; i++)
        if (type == T_Q8_0) {
            const __m512i a = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[2 * i], x[2 * i]);
            const __m512i b =
                _mm512_dpbusd_epi32(_mm512_setzero_si512(), w[2 * i + 1], x[2 * i + 1]);
            v[i] = plus(v[i],
                        plus(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd)));
        } else {
            v[i] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(v[i], w[2 * i], x[2 * i]), w[2 * i + 1],
                                       x[2 * i + 1]);
        }
}

/* Blocks b0 ... b0 + n - 1 of the token to r: the elements in the order of weights_64, or of
 * bytes_64; what the last unit lacks is 0. */
INLINE void load_32(workspace *r, const matmul_args *a, int64_t b0, int64_t n, int32_t type)
{
    const __m512i zero = _mm512_setzero_si512(), offset = _mm512_set1_epi8((char)offset_of(type));
    const __m512i offsets[4] = {offset, offset, offset, offset};
    for (int64_t u = 0; u * BLOCKS < n; u++) {
        const int8_t *q = a->q + (b0 + u * BLOCKS) * BLOCK;
        int8_t part[UNIT] = {0};
        __m512i sum[2] = {zero, zero};
        if (n - u * BLOCKS < BLOCKS)
            q = memcpy(part, q, (size_t)(n - u * BLOCKS) * BLOCK);
        for (int k = 0; k < 4; k++)
            r->x[u][k] = type == T_Q8_0
                ? _mm512_loadu_si512(q + k * ELEMENTS)
                : four_blocks((const uint8_t *)q + k / 2 * 4 * BLOCK + k % 2 * HALF, BLOCK);
        add_products(sum, type, offsets, r->x[u], 2);
        for (int i = 0; i < 2; i++)
            r->begin[u][i] = _mm512_sub_epi32(zero, sum[i]);
    }
}

/* Byte of a unit where word i of unit_words lies; -1: nowhere. */
INLINE int32_t byte_of_word(int32_t type, int i)
{
    const int32_t bytes = bytes_of_block(type), each = has_min(type) ? 2 : 1;
    if (i < each * BLOCKS)
        return i / each * bytes + i % each * 2; /* all blocks begin with d, then m */
    if (i < HALF || !has_fifths(type))
        return -1;
    const int k = (i - HALF) / 4;
    return (k / 2 * 4 + i % 4) * bytes + 2 * each + k % 2 * 2; /* then come fifth bits */
}

/* Words of a unit that are not nibbles or bytes: d of block b in word b, or d and m in words 2 b
 * and 2 b + 1; from word 16 on the fifth bits, those of weights_64(k) in word 16 + 4 k and three
 * more. */
INLINE __m512i unit_words(int32_t type, const uint8_t *unit)
{
    const int32_t bytes = bytes_of_block(type), size = BLOCKS * bytes;
    __m512i v = _mm512_setzero_si512();
    if (bytes % 2) { /* MXFP4: the blocks' first bytes */
        uint64_t d[2] = {0};
        for (int b = 0; b < BLOCKS; b++)
            d[b / 4] |= (uint64_t)unit[b * bytes] << b % 4 * 16;
        return _mm512_zextsi128_si512(_mm_set_epi64x((int64_t)d[1], (int64_t)d[0]));
    }
    for (int32_t from = 0; from < size; from += 64) {
        /* nothing is read beyond the unit */
        const int32_t begin = from < size - 64 ? from : size - 64;
        uint16_t at[32];
        __mmask32 here = 0;
        for (int i = 0; i < 32; i++) {
            const int32_t byte = byte_of_word(type, i);
            at[i] = (uint16_t)((byte - begin) / 2);
            here |= (__mmask32)(byte >= from && byte < from + 64) << i;
        }
        if (here)
            v = _mm512_mask_permutexvar_epi16(v, here, _mm512_loadu_si512(at),
                                              _mm512_loadu_si512(unit + begin));
    }
    return v;
}

/* Where the scales of row i stay, so that fold_scales need not move rows. */
INLINE int slot_of(int32_t type, int i)
{
    return has_min(type) ? i / 8 * 8 + i % 4 * 2 + i / 4 % 2 : i % 4 * 4 + i / 4;
}

/* Unit u of row i, which is at w, times the token's; of the 2 halves of its blocks the second may
 * be none of the row's. */
INLINE void unit_of_32(workspace *r, int i, const uint8_t *w, int64_t u, int halves, int32_t type)
{
    __m512i q[4], v[2] = {r->begin[u][0], r->begin[u][1]};
    const __m512i words = unit_words(type, w);
    uint64_t fifths[4];
    _mm256_storeu_si256((__m256i *)fifths, _mm512_extracti64x4_epi64(words, 1));
    for (int k = 0; k < 2 * halves; k++)
        q[k] = type == T_Q8_0 ? bytes_64(w, k) : weights_64(type, w, k, fifths[k]);
    add_products(v, type, q, r->x[u], halves);
    /* in quarter b two lanes of block b and, after each, one of block b + 4 */
    r->of_32[u].isum[i] =
        plus(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    uint16_t *const to =
        r->of_32[u].d[0] + (has_min(type) ? 2 * BLOCKS : BLOCKS) * slot_of(type, i);
    if (has_min(type))
        _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(words));
    else
        _mm_storeu_si128((__m128i *)to, _mm512_castsi512_si128(words));
}

/* The scales that unit_of_32 left of 16 rows -> d[b], m[b], halves, lane = row. */
INLINE void fold_scales(__m256i d[BLOCKS], __m256i m[BLOCKS], const uint16_t *from, int32_t type)
{
    __m512i v[8], t[8];
    for (int i = 0; i < (has_min(type) ? 8 : 4); i++)
        v[i] = _mm512_loadu_si512(from + 32 * i);
    if (has_min(type)) { /* v[i]: two rows, two quarters each */
        transpose_4(t, v);
        transpose_4(t + 4, v + 4);
        for (int b = 0; b < BLOCKS; b++) {
            const __m512i dm = b < 4 ? _mm512_shuffle_i32x4(t[b], t[4 + b], 0x88)
                                     : _mm512_shuffle_i32x4(t[b - 4], t[b], 0xdd);
            d[b] = _mm512_cvtepi32_epi16(dm);
            m[b] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(dm, 16));
        }
        return;
    }
    for (int h = 0; h < 2; h++) { /* v[i]: rows i, i + 4, i + 8, i + 12, a quarter each */
        t[h] = h ? _mm512_unpackhi_epi16(v[0], v[1]) : _mm512_unpacklo_epi16(v[0], v[1]);
        t[2 + h] = h ? _mm512_unpackhi_epi16(v[2], v[3]) : _mm512_unpacklo_epi16(v[2], v[3]);
    }
    for (int i = 0; i < 4; i++) {
        const __m512i two = i % 2 ? _mm512_unpackhi_epi32(t[i / 2], t[2 + i / 2])
                                  : _mm512_unpacklo_epi32(t[i / 2], t[2 + i / 2]);
        const __m512i apart =
            _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), two);
        d[2 * i] = _mm512_castsi512_si256(apart);
        d[2 * i + 1] = _mm512_extracti64x4_epi64(apart, 1);
    }
}

/* What unit_of_32 left of 16 rows -> out[b], lane = row. */
INLINE void fold_blocks(__m512i out[BLOCKS], const __m512i isum[HALF])
{
    __m512 pair[BLOCKS]; /* of rows 2 i, 2 i + 1 */
    __m512i four[4];     /* of four rows: blocks 0 to 3 or 4 to 7 */
    for (int i = 0; i < BLOCKS; i++) {
        const __m512i one = isum[2 * i], other = isum[2 * i + 1];
        pair[i] = _mm512_castsi512_ps(
            plus(_mm512_unpacklo_epi64(one, other), _mm512_unpackhi_epi64(one, other)));
    }
    for (int i = 0; i < 4; i++)
        four[i] = _mm512_castps_si512(_mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0x88));
    transpose_quarters(out, four);
    for (int i = 0; i < 4; i++)
        four[i] = _mm512_castps_si512(_mm512_shuffle_ps(pair[2 * i], pair[2 * i + 1], 0xdd));
    transpose_quarters(out + 4, four);
}

/* sum [row] plus n blocks of 16 rows; at: the number of the first. */
INLINE __m512 add_32(__m512 sum, const workspace *r, const matmul_args *a, int64_t at, int64_t n,
                     int32_t type)
{
    for (int64_t u = 0; u * BLOCKS < n; u++) {
        __m512i isum[BLOCKS];
        __m256i d[BLOCKS], m[BLOCKS];
        fold_blocks(isum, r->of_32[u].isum);
        fold_scales(d, m, r->of_32[u].d[0], type);
        for (int b = 0; b < BLOCKS && u * BLOCKS + b < n; b++) {
            const __m512 scale =
                _mm512_mul_ps(scales_of_32(type, d[b]), _mm512_set1_ps(a->d[at + u * BLOCKS + b]));
            sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(isum[b]), sum);
            if (has_min(type))
                sum = _mm512_fmadd_ps(_mm512_cvtph_ps(m[b]),
                                      _mm512_set1_ps(a->s[at + u * BLOCKS + b]), sum);
        }
    }
    return sum;
}
#endif
