/* avx512.c - x86-64 with AVX-512 (F, BW, DQ, VL) and VNNI; the bits of reference.c.
 *
 * What works element by element is reference.c compiled again for this set.  By hand: the
 * activations in int8 here, matrix products in avx512_matmul.c, attention in avx512_attention.c. */
#ifdef __AVX512VNNI__
#define SET avx512
#define WITHOUT_QUANTIZE
#include <immintrin.h>
#include "runtime/isa.h"
#define VECTOR __m512
#define VECTOR_ZERO _mm512_setzero_ps
#define VECTOR_LOAD(p) _mm512_loadu_ps(p)
#define VECTOR_STORE(p, v) _mm512_storeu_ps(p, v)
#define VECTOR_SET _mm512_set1_ps
#define VECTOR_FMA _mm512_fmadd_ps
enum { VECTOR_LANES = 16, DELTA_VECTORS = 2 };
#include "kernels/reference.c"
#include "kernels/x86/avx512.h"

/* ---- activations in int8 ------------------------------------------------------------------- */

INLINE __m512i greater(__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }

/* A block in int8; the sums of 8 of its elements in 4 words.  zero: all are. */
INLINE __m128i quantize_block(int8_t *q, const float *x, __m512 inverse, int zero)
{
    /* reference.c's nearest: the integer is in the low bits of the sum */
    const __m512 round = _mm512_set1_ps(0x1.8p23f);
    const __mmask16 lanes = zero ? 0 : 0xffff;
    const __m128i ones = _mm_set1_epi8(1);
    __m128i isum = _mm_setzero_si128();
    for (int i = 0; i < BLOCK; i += 16) {
        const __m512 v =
            _mm512_add_ps(_mm512_maskz_mul_ps(lanes, _mm512_loadu_ps(x + i), inverse), round);
        const __m128i part = _mm512_cvtepi32_epi8(_mm512_castps_si512(v));
        _mm_storeu_si128((__m128i *)(q + i), part);
        isum = _mm_dpbusd_epi32(isum, ones, part);
    }
    return isum;
}

/* 16 blocks at a time; past the end the last one again, whose scales are not stored. */
static void quantize_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const quantize_args *a = arg;
    const int64_t first = begin * (a->n / BLOCK), last = end * (a->n / BLOCK) - 1;
    const __m512i size = _mm512_set1_epi32(0x7fffffff), infinite = _mm512_set1_epi32(0x7f800000);
    const __m512 top = _mm512_set1_ps(127.0f);
    (void)thread;
    for (int64_t b = first; b <= last; b += 16) {
        const __mmask16 valid = first_lanes(last + 1 - b);
        __m512i v[16], x[4];
        float inverse[16];
        for (int i = 0; i < 16; i++) {
            const float *from = a->x + (b + i < last ? b + i : last) * BLOCK;
            v[i] = greater(_mm512_and_si512(_mm512_loadu_si512(from), size),
                           _mm512_and_si512(_mm512_loadu_si512(from + 16), size));
        }
        const __m512i max = fold_16(v, greater);
        const __mmask16 finite = _mm512_cmplt_epu32_mask(max, infinite);
        const __mmask16 usable =
            finite & _mm512_cmpge_epu32_mask(max, _mm512_set1_epi32((int32_t)f32_bits(0x1p-100f)));
        _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(usable, top, _mm512_castsi512_ps(max)));
        for (int i = 0; i < 4; i++) {
            x[i] = _mm512_setzero_si512();
            for (int k = 0; k < 4; k++) {
                const int at = 4 * i + k;
                const int64_t to = b + at < last ? b + at : last;
                const __m128i part =
                    quantize_block(a->q + to * BLOCK, a->x + to * BLOCK,
                                   _mm512_set1_ps(inverse[at]), !(usable >> at & 1));
                x[i] = _mm512_mask_broadcast_i32x4(x[i], (__mmask16)(15 << 4 * k), part);
            }
        }
        const __m512 d =
            _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN),
                                 _mm512_maskz_div_ps(usable, _mm512_castsi512_ps(max), top));
        _mm512_mask_storeu_ps(a->d + b, valid, d);
        _mm512_mask_storeu_ps(a->s + b, valid,
                              _mm512_mul_ps(d, _mm512_cvtepi32_ps(fold_quarters(x, plus))));
    }
}

/* 64 elements in int8, in order. */
INLINE __m512i nearest_64(const float *x, __m512 inverse, __mmask16 lanes)
{
    const __m512 round = _mm512_set1_ps(0x1.8p23f); /* as in quantize_block */
    __m512i v[4];
    for (int i = 0; i < 4; i++) {
        const __m512 sum =
            _mm512_add_ps(_mm512_maskz_mul_ps(lanes, _mm512_loadu_ps(x + 16 * i), inverse), round);
        v[i] = _mm512_and_si512(_mm512_castps_si512(sum), _mm512_set1_epi32(255));
    }
    /* by quarters */
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
    return _mm512_permutexvar_epi32(
        _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), bytes);
}

static void quantize_k_avx512(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const quantize_args *a = arg;
    const __m512i size = _mm512_set1_epi32(0x7fffffff), ones = _mm512_set1_epi8(1);
    (void)thread;
    for (int64_t n_block = a->n / BLOCK_K, b = begin * n_block; b < end * n_block; b++) {
        const float *x = a->x + b * BLOCK_K;
        __m512i v = _mm512_setzero_si512(), sums[4];
        for (int i = 0; i < BLOCK_K; i += 16)
            v = greater(v, _mm512_and_si512(_mm512_loadu_si512(x + i), size));
        const uint32_t max = _mm512_reduce_max_epu32(v);
        const int usable = max < 0x7f800000 && max >= f32_bits(0x1p-100f);
        const __m512 inverse = _mm512_set1_ps(usable ? 127.0f / bits_f32(max) : 0.0f);
        for (int i = 0; i < 4; i++) {
            const __m512i q = nearest_64(x + 64 * i, inverse, usable ? 0xffff : 0);
            _mm512_storeu_si512(a->q + b * BLOCK_K + 64 * i, q);
            sums[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, q);
        }
        _mm256_storeu_si256((__m256i *)(a->sums + b * (BLOCK_K / GROUP_K)),
                            _mm512_cvtepi32_epi16(fold_quarters(sums, plus)));
        a->d[b] = usable ? bits_f32(max) / 127.0f : max < 0x7f800000 ? 0.0f : NAN;
    }
}

/* avx512_decode.c */
void decode_avx512(void *y, int32_t type, const uint8_t *x, int64_t n_block);

const isa isa_avx512 = {
    "avx512",
    128,
    matmul_avx512,
    quantize_avx512,
    quantize_k_avx512,
    rmsnorm_avx512,
    rope_avx512,
    attention_avx512,
    silu_mul_avx512,
    gelu_mul_avx512,
    sigmoid_mul_avx512,
    soft_cap_avx512,
    causal_conv_avx512,
    delta_net_avx512,
    cache_store_avx512,
    packed_bytes_avx512,
    pack_avx512,
    6,
    AVX512_KC,
    AVX512_MIN_TOKENS,
    1,
    decode_avx512,
};
const isa isa_amx = {
    /* products of many tokens are its own */
    "amx",
    256,
    matmul_amx,
    quantize_avx512,
    quantize_k_avx512,
    rmsnorm_avx512,
    rope_avx512,
    attention_avx512,
    silu_mul_avx512,
    gelu_mul_avx512,
    sigmoid_mul_avx512,
    soft_cap_avx512,
    causal_conv_avx512,
    delta_net_avx512,
    cache_store_avx512,
    packed_bytes_amx,
    pack_amx,
    16,
    AVX512_KC,
    AVX512_MIN_TOKENS,
    1,
    decode_avx512,
};
#endif
