/* avx2_float.c - products of F32, F16 and BF16 weights and several tokens with AVX2 and FMA:
 * float_panel.h. */
#ifdef __AVX2__
#include "kernels/x86/avx2.h"

enum { VECTOR_LANES = 8, NR = 3, KC = AVX2_KC };
#define VECTOR __m256
#define VECTOR_ZERO _mm256_setzero_ps
#define VECTOR_LOAD(p) _mm256_loadu_ps(p)
#define VECTOR_STORE(p, v) _mm256_storeu_ps(p, v)
#define VECTOR_FMA _mm256_fmadd_ps
#define VECTOR_KEEP(v) __asm__("" : "+x"(v))

INLINE void load_16(float *to, int32_t type, const uint8_t *from, int64_t left)
{
    uint8_t part[64] = {0};
    if (left < 16)
        from = memcpy(part, from, (size_t)left * (type == T_F32 ? 4 : 2));
    const lanes v = load_lanes(type, from);
    _mm256_storeu_ps(to, v.lo);
    _mm256_storeu_ps(to + 8, v.hi);
}

/* Two sums' 16 lanes: halves on halves, and again; a's four and b's four. */
INLINE __m256 fold_pair(const float *a, const float *b)
{
    const __m256 x = _mm256_add_ps(_mm256_loadu_ps(a), _mm256_loadu_ps(a + 8));
    const __m256 y = _mm256_add_ps(_mm256_loadu_ps(b), _mm256_loadu_ps(b + 8));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}

INLINE void fold_rows(float *y, float (*sums)[6][4][16], int token, int n)
{
    for (int r = 0; r < n; r += 4, sums++) {
        float (*of)[16] = (*sums)[token];
        const __m256 a = fold_pair(of[0], of[1]), b = fold_pair(of[2], of[3]);
        /* of rows 0, 0, 2, 2, 1, 1, 3, 3 */
        const __m256 two =
            _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
        const __m128 lo = _mm256_castps256_ps128(two), hi = _mm256_extractf128_ps(two, 1);
        /* of rows 0, 2, 1, 3 */
        const __m128 one = _mm_add_ps(_mm_shuffle_ps(lo, hi, 0x88), _mm_shuffle_ps(lo, hi, 0xdd));
        const __m128 v = _mm_shuffle_ps(one, one, 0xd8);
        if (n - r >= 4)
            _mm_storeu_ps(y + r, v);
        else {
            float part[4];
            _mm_storeu_ps(part, v);
            memcpy(y + r, part, (size_t)(n - r) * 4);
        }
    }
}

#include "kernels/float_panel.h"

void matmul_floats_avx2(const matmul_args *a, int64_t begin, int64_t end, int32_t thread)
{
    multiply_packed(a, begin, end, thread);
}
#endif
