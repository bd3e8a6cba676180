/* avx512_float.c - products of F32, F16 and BF16 weights and several tokens with AVX-512:
 * float_panel.h. */
#ifdef __AVX512VNNI__
#include "kernels/x86/avx512.h"

enum { VECTOR_LANES = 16, NR = 6, KC = AVX512_KC };
#define VECTOR __m512
#define VECTOR_ZERO _mm512_setzero_ps
#define VECTOR_LOAD(p) _mm512_loadu_ps(p)
#define VECTOR_STORE(p, v) _mm512_storeu_ps(p, v)
#define VECTOR_FMA _mm512_fmadd_ps
#define VECTOR_KEEP(v) __asm__("" : "+v"(v))

INLINE void load_16(float *to, int32_t type, const uint8_t *from, int64_t left)
{
    _mm512_storeu_ps(to, load_lanes(type, from, first_lanes(left)));
}

/* 16 rows, 4 tiles, at a time. */
INLINE void fold_rows(float *y, float (*sums)[6][4][16], int token, int n)
{
    const __m512i in_order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    for (int r = 0; r < n; r += 16, sums += 4) {
        __m512 tile[4]; /* quarter q: row q of it */
        for (int i = 0; i < 4; i++) {
            float (*of)[16] = sums[i][token];
            tile[i] = fold_4(fold_8(_mm512_loadu_ps(of[0]), _mm512_loadu_ps(of[1])),
                             fold_8(_mm512_loadu_ps(of[2]), _mm512_loadu_ps(of[3])));
        }
        /* in quarter q: row q of each tile */
        const __m512 one = fold_1(fold_2(tile[0], tile[1]), fold_2(tile[2], tile[3]));
        _mm512_mask_storeu_ps(y + r, first_lanes(n - r), _mm512_permutexvar_ps(in_order, one));
    }
}

#include "kernels/float_panel.h"

void matmul_floats_avx512(const matmul_args *a, int64_t begin, int64_t end, int32_t thread)
{
    multiply_packed(a, begin, end, thread);
}
#endif
