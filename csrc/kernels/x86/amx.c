/* amx.c - GEMM on AMX-INT8 (Intel since Sapphire Rapids, 2023): packing of tokens, and dispatch to
 * amx_blocks.c and amx_kquant.c.
 *
 * TDPBSSD multiplies a tile of 16 rows of weights, up to 64 elements of each, with a tile of 16
 * tokens into 16 x 16 exact sums: 16 cycles. A tile of sums that is stored takes as long again,
 * beside other products only where the two go by turns.  What overlaps, too, is the step in f32
 * that follows a block, for each of the 256 sums: load, convert, product of scales, fma.  So the
 * next block's tiles are on their way while this one's sums are scaled.
 *
 * Weights are the operand whose rows are plain memory, so unpacking ends with a store. Tokens are
 * the operand with four elements of all 16 side by side.  They are packed so once,
 * here, for all products of a group. */
#ifdef __AVX512VNNI__
#include <string.h>
#include "kernels/x86/amx_operands.h"

enum { MIN_TOKENS = 8 }; /* tokens that are worth a tile; fewer: VNNI */

int64_t packed_bytes_amx(int32_t block, int64_t n_tok, int64_t n)
{
    if (n_tok < MIN_TOKENS)
        return packed_bytes_avx512(block, n_tok, n);
    return sets_of(n_tok) * (n / block)
        * (int64_t)(block == BLOCK ? sizeof(tokens_32) : sizeof(tokens_256));
}

/* The first `bytes` elements of up to 16 tokens, n apart, in fours. */
INLINE void pack_elements(__m512i *out, const int8_t *q, int64_t n, int n_tok, int bytes)
{
    for (int k = 0; k < bytes; k += ELEMENTS) {
        const __mmask64 some = bytes - k >= ELEMENTS ? ~0ull : (1ull << (bytes - k)) - 1;
        __m512i v[TOKENS];
        for (int i = 0; i < TOKENS; i++)
            v[i] =
                i < n_tok ? _mm512_maskz_loadu_epi8(some, q + i * n + k) : _mm512_setzero_si512();
        transpose_words(v);
        for (int i = 0; i < TOKENS && k + 4 * i < bytes; i++)
            out[k / 4 + i] = v[i];
    }
}

INLINE __m512 pack_floats(const float *d, int64_t stride, int n_tok)
{
    float of[TOKENS] = {0};
    for (int i = 0; i < n_tok; i++)
        of[i] = d[i * stride];
    return _mm512_loadu_ps(of);
}

/* Sums of groups of 16 of a block: as they are, and of groups of 32. */
INLINE void pack_sums(tokens_256 *out, const int16_t *sums, int64_t stride, int n_tok)
{
    __m512i v[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        v[i] = i < n_tok
            ? _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(sums + i * stride)))
            : _mm512_setzero_si512();
    transpose_words(v);
    for (int g = 0; g < N_GROUP / 2; g++)
        out->sums[g] = v[g];
    for (int g = 0; g < N_GROUP / 4; g++) { /* |sum| of 32 is at most 32 * 127 */
        const __m512i a = _mm512_madd_epi16(v[2 * g], _mm512_set1_epi16(1)),
                      b = _mm512_madd_epi16(v[2 * g + 1], _mm512_set1_epi16(1));
        out->sums_32[g] = _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
    }
}

void pack_amx(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pack_args *p = arg;
    const matmul_args *a = p->a;
    const int64_t n = a->n, n_block = n / p->block;
    if (a->n_tok < MIN_TOKENS) {
        pack_avx512(arg, 0, (a->n_tok + 5) / 6, thread);
        return;
    }
    for (int64_t set = begin; set < end; set++) {
        const int64_t t = set * TOKENS;
        const int n_tok = a->n_tok - t < TOKENS ? (int)(a->n_tok - t) : TOKENS;
        for (int64_t b = 0; b < n_block; b++) {
            const int64_t at = t * n_block + b;
            if (p->block == BLOCK) {
                tokens_32 *out = (tokens_32 *)p->packed + set * n_block + b;
                pack_elements(out->q, a->q + t * n + b * BLOCK, n, n_tok, BLOCK);
                out->d = pack_floats(a->d + at, n_block, n_tok);
                out->s = pack_floats(a->s + at, n_block, n_tok);
            } else {
                tokens_256 *out = (tokens_256 *)p->packed + b * sets_of(a->n_tok) + set;
                pack_elements(out->q, a->q + t * n + b * BLOCK_K, n, n_tok, BLOCK_K);
                pack_sums(out, a->sums + at * N_GROUP, n_block * N_GROUP, n_tok);
                out->d = pack_floats(a->d + at, n_block, n_tok);
            }
        }
    }
}

void matmul_amx(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const matmul_args *a = arg;
    if (!a->packed || type_block(a->type) == 1 || a->n_tok < MIN_TOKENS)
        matmul_avx512(arg, begin, end, thread);
    else if (type_block(a->type) == BLOCK)
        matmul_blocks_amx(a, begin, end);
    else
        matmul_kquant_amx(a, begin, end);
}
#endif
