/* avx512_pack.c - activations in sets of 6 tokens, once for all products of a group: avx512_pack.h.
 */
#ifdef __AVX512VNNI__
#include "kernels/x86/avx512_pack.h"

enum { FEWEST_32 = 3, FEWEST_256 = 2 }; /* tokens for which a panel pays */

int64_t packed_bytes_avx512(int32_t block, int64_t n_tok, int64_t n)
{
    if (n_tok < (block == BLOCK ? FEWEST_32 : FEWEST_256))
        return 0;
    const int64_t size = sets_of_6(n_tok) * (n / block)
        * (int64_t)(block == BLOCK ? sizeof(set_32) : sizeof(set_256));
    return (size + 63) / 64 * 64; /* what follows may want to begin at a line */
}

/* n elements of up to 6 tokens, `stride` apart. */
INLINE void pack_elements(int32_t (*out)[NR], const int8_t *q, int64_t stride, int n_tok, int n)
{
    for (int k = 0; k < n; k += 16) {
        __m128i x[NR], y[4];
        for (int i = 0; i < NR; i++)
            x[i] = i < n_tok ? _mm_xor_si128(_mm_loadu_si128((const __m128i *)(q + i * stride + k)),
                                             _mm_set1_epi8(-128))
                             : _mm_set1_epi8(-128);
        const __m128i a = _mm_unpacklo_epi32(x[0], x[1]), b = _mm_unpackhi_epi32(x[0], x[1]);
        const __m128i c = _mm_unpacklo_epi32(x[2], x[3]), d = _mm_unpackhi_epi32(x[2], x[3]);
        const __m128i e = _mm_unpacklo_epi32(x[4], x[5]), f = _mm_unpackhi_epi32(x[4], x[5]);
        y[0] = _mm_unpacklo_epi64(a, c);
        y[1] = _mm_unpackhi_epi64(a, c);
        y[2] = _mm_unpacklo_epi64(b, d);
        y[3] = _mm_unpackhi_epi64(b, d);
        for (int j = 0; j < 4; j++) {
            const __m128i last = j < 2 ? e : f;
            _mm_storeu_si128((__m128i *)out[k / 4 + j], y[j]);
            _mm_storel_epi64((__m128i *)(out[k / 4 + j] + 4),
                             j % 2 ? _mm_unpackhi_epi64(last, last) : last);
        }
    }
}

/* One float of each token. */
INLINE void pack_floats(float out[NR], const float *x, int64_t stride, int n_tok)
{
    for (int i = 0; i < NR; i++)
        out[i] = i < n_tok ? x[i * stride] : 0;
}

/* Sums of groups of 16 of a block, and those of groups of 32: |sum| is at most 32 * 127. */
INLINE void pack_sums(set_256 *out, const int16_t *sums, int64_t stride, int n_tok)
{
    for (int i = 0; i < NR; i++) {
        int32_t of_16[N_GROUP / 2], of_32[N_GROUP / 4];
        const __m256i v = i < n_tok ? _mm256_loadu_si256((const __m256i *)(sums + i * stride))
                                    : _mm256_setzero_si256();
        _mm256_storeu_si256((__m256i *)of_16, v);
        _mm_storeu_si128((__m128i *)of_32,
                         _mm256_cvtepi32_epi16(_mm256_madd_epi16(v, _mm256_set1_epi16(1))));
        for (int g = 0; g < N_GROUP / 2; g++)
            out->sums[g][i] = of_16[g];
        for (int g = 0; g < N_GROUP / 4; g++)
            out->sums_32[g][i] = of_32[g];
    }
}

/* max_16 and max_32 of a block of n_tok tokens, `stride` apart. */
INLINE void pack_max(set_256 *out, const int8_t *q, int64_t stride, int n_tok)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i max_16 = zero, max_32 = zero;
    for (int i = 0; i < n_tok; i++)
        for (int k = 0; k < BLOCK_K; k += ELEMENTS) {
            const __m512i x = _mm512_loadu_si512(q + i * stride + k);
            const __m512i above = _mm512_sad_epu8(_mm512_max_epi8(x, zero), zero),
                          all = _mm512_sad_epu8(_mm512_abs_epi8(x), zero);
            /* i32: sums below, above 0 */
            const __m512i of_8 =
                _mm512_or_si512(_mm512_slli_epi64(above, 32), _mm512_sub_epi64(all, above));
            const __m512i of_16 = plus(of_8, _mm512_shuffle_epi32(of_8, 0x4e));
            const __m512i of_32 = plus(of_16, _mm512_shuffle_i32x4(of_16, of_16, 0xb1));
            max_16 = _mm512_max_epi32(max_16, plus(of_16, _mm512_shuffle_epi32(of_16, 0xb1)));
            max_32 = _mm512_max_epi32(max_32, of_32);
        }
    out->max_16 = _mm512_reduce_max_epi32(max_16);
    out->max_32 = _mm512_reduce_max_epi32(max_32);
}

void pack_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pack_args *p = arg;
    const matmul_args *a = p->a;
    const int64_t n = a->n, n_block = n / p->block;
    (void)thread;
    for (int64_t set = begin; set < end; set++) {
        const int64_t t = set * NR;
        const int n_tok = a->n_tok - t < NR ? (int)(a->n_tok - t) : NR;
        for (int64_t b = 0; b < n_block; b++) {
            const int64_t at = t * n_block + b;
            if (p->block == BLOCK) {
                set_32 *out = (set_32 *)p->packed + set * n_block + b;
                pack_elements(out->q, a->q + t * n + b * BLOCK, n, n_tok, BLOCK);
                pack_floats(out->d, a->d + at, n_block, n_tok);
                pack_floats(out->s, a->s + at, n_block, n_tok);
            } else {
                set_256 *out = (set_256 *)p->packed + set * n_block + b;
                pack_elements(out->q, a->q + t * n + b * BLOCK_K, n, n_tok, BLOCK_K);
                pack_sums(out, a->sums + at * N_GROUP, n_block * N_GROUP, n_tok);
                pack_floats(out->d, a->d + at, n_block, n_tok);
                pack_max(out, a->q + t * n + b * BLOCK_K, n, n_tok);
            }
        }
    }
}
#endif
