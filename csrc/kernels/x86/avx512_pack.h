/* avx512_pack.h - activations as the micro-kernels of avx512_matmul.c and avx512_kquant.c read
 * them: in micropanels ("sets") of NR = 6 tokens, block after block, so that a tile reads one
 * stream.
 *
 * VPDPBUSD wants one factor without sign.  It is the activation, with 128 added once, here; a
 * tile's sums then begin at -128 times the sum of their weights, which comes with the panel and
 * costs nothing per token. */
#ifndef SLUICE_AVX512_PACK_H
#define SLUICE_AVX512_PACK_H
#include "kernels/x86/avx512_unpack.h"

enum { NR = 6 };

/* Where there is no token: 128 as q, zeros else. */
typedef struct {
    int32_t q[BLOCK / 4][NR]; /* u8 [four elements][token][4] */
    float d[NR], s[NR];
} set_32; /* [set][block] */
typedef struct {
    int32_t q[BLOCK_K / 4][NR];
    int32_t sums[N_GROUP / 2][NR];    /* i16 [two groups][token][2]; groups of 16 */
    int32_t sums_32[N_GROUP / 4][NR]; /* the same of groups of 32 */
    float d[NR];
    /* the greatest sum, of any group and token: of |x| in 16; of x of one sign, without it, in 32
     * */
    int32_t max_16, max_32;
} set_256; /* [set][block] */

INLINE int64_t sets_of_6(int64_t n_tok) { return (n_tok + NR - 1) / NR; }

/* One word in all lanes, from memory: what a load can do by itself.  The compiler, left to it,
 * loads words that it wants twice to general registers, and spreading them from there takes the
 * units of arithmetic. */
INLINE __m512i all_lanes(const int32_t *x)
{
    __m512i v;
    __asm__("vpbroadcastd %1, %0" : "=v"(v) : "m"(*x));
    return v;
}

/* acc += x w in fours, x without sign.  As assembly: gcc 12 copies the sums of the intrinsic from
 * register to register. */
#define DOT(acc, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w))

/* acc += x y in twos, both i16. */
#define DOT_WORDS(acc, x, y) __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y))

/* Asks for 32 rows' results of a set. */
INLINE void prefetch_results(const float *y, int64_t n_row)
{
    for (int i = 0; i < NR; i++)
        for (int h = 0; h < 2; h++)
            _mm_prefetch((const char *)(y + i * n_row + h * HALF), _MM_HINT_T0);
}

/* The sums of n_tok tokens with 32 rows become results; valid: of either half of the rows. */
INLINE void store_results(float *y, int64_t n_row, const float (*sums)[ROWS], int64_t n_tok,
                          const __mmask16 valid[2])
{
    for (int64_t i = 0; i < n_tok; i++)
        for (int h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(y + i * n_row + h * HALF, valid[h],
                                  _mm512_loadu_ps(sums[i] + h * HALF));
}

/* -128 times the sums of fours of w, added to sum. */
INLINE __m512i less_128(__m512i sum, __m512i w)
{
    return _mm512_sub_epi32(sum,
                            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), w));
}
#endif
