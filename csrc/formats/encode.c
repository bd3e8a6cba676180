/* encode.c - weights from one format to another: f32 to blocks of 32 and to short floats here, to
 * blocks of 256 in encode_k.c.
 *
 * Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 have the bits that the gguf package's `quantize` gives, operation
 * by operation in f32:
 *
 *   Q8_0         d = max |x| / 127         q = x / d, halves away from zero
 *   Q4_0, Q5_0   d = the first x farthest from 0 / -8, -16;  q = x / d + 8, 16, cut at 15, 31
 *   Q4_1, Q5_1   d = (max - min) / 15, 31, m = min;  q = (x - min) / d
 *
 * where "/ d" is a product with 1 / d (0 where d is 0) before d is rounded to half precision, and q
 * is rounded by adding 1/2 and cutting.  F16 and BF16: to nearest, ties to even.
 *
 * Chunks of 512 elements, which are whole blocks of any type but the last, go to the threads; none
 * depends on another. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "formats/encode.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

enum { BLOCK = 32, MAX_BLOCK_BYTES = 2 * sizeof(block_q5_k) };

typedef struct {
    uint8_t *y;
    const uint8_t *x;
    int64_t n;
    int32_t type, from;
    atomic_int_fast64_t *stop;
} encode_args;

static inline float inverse_of(float d)
{
    const float inverse = d != 0 ? 1 / d : 0;
    /* d this small is 0 as a half: q does not matter */
    return inverse <= FLT_MAX && inverse >= -FLT_MAX ? inverse : 0;
}

/* Low halves of q are the first 16 elements, bit i of h is the fifth of element i. */
static void put_nibbles(uint8_t to[16], const uint8_t q[BLOCK])
{
    for (int i = 0; i < 16; i++)
        to[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void put_fifth(uint8_t to[4], const uint8_t q[BLOCK])
{
    uint32_t h = 0;
    for (int i = 0; i < BLOCK; i++)
        h |= (uint32_t)(q[i] >> 4 & 1) << i;
    memcpy(to, &h, 4);
}

static void encode_q8_0(block_q8_0 *y, const float *x)
{
    float size = 0;
    for (int i = 0; i < BLOCK; i++)
        size = fabsf(x[i]) > size ? fabsf(x[i]) : size;
    const float d = size / 127, inverse = inverse_of(d);
    y->d = f32_to_f16(d);
    for (int i = 0; i < BLOCK; i++) {
        const float v = x[i] * inverse, a = fabsf(v);
        const int32_t whole = (int32_t)a, q = whole + (a - (float)whole >= 0.5f);
        y->q[i] = (int8_t)(v < 0 ? -q : q);
    }
}

/* q [32] and d of Q4_0 (half 8) or Q5_0 (16). */
static uint16_t encode_symmetric(uint8_t q[BLOCK], const float *x, int half)
{
    float far = x[0], size = fabsf(x[0]);
    for (int i = 1; i < BLOCK; i++) {
        const int farther = fabsf(x[i]) > size;
        far = farther ? x[i] : far;
        size = farther ? fabsf(x[i]) : size;
    }
    const float d = far / (float)-half, inverse = inverse_of(d), middle = (float)half + 0.5f;
    for (int i = 0; i < BLOCK; i++) {
        const int32_t v = (int32_t)(x[i] * inverse + middle);
        q[i] = (uint8_t)(v < 2 * half - 1 ? v : 2 * half - 1);
    }
    return f32_to_f16(d);
}

/* q [32], d and m of Q4_1 (top 15) or Q5_1 (31); q only where both are finite halves. */
static uint16_t encode_with_min(uint8_t q[BLOCK], uint16_t *m, const float *x, int top)
{
    float lo = x[0], hi = x[0];
    for (int i = 1; i < BLOCK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const float d = (hi - lo) / (float)top, inverse = inverse_of(d);
    const uint16_t half = f32_to_f16(d);
    *m = f32_to_f16(lo);
    if (finite_f16(half) && finite_f16(*m))
        for (int i = 0; i < BLOCK; i++) {
            const int32_t v = (int32_t)((x[i] - lo) * inverse + 0.5f);
            q[i] = (uint8_t)(v < top ? v : top);
        }
    return half;
}

/* One block of 32 from x; whether its scales are finite. */
static int encode_32(uint8_t *y, int32_t type, const float *x)
{
    uint8_t q[BLOCK] = {0};
    block_q5_1 b = {0};
    switch (type) {
    case T_Q8_0: {
        block_q8_0 q8;
        encode_q8_0(&q8, x);
        memcpy(y, &q8, sizeof q8);
        return finite_f16(q8.d);
    }
    case T_Q4_0:
    case T_Q5_0: b.d = encode_symmetric(q, x, type == T_Q4_0 ? 8 : 16); break;
    default: b.d = encode_with_min(q, &b.m, x, type == T_Q4_1 ? 15 : 31);
    }
    put_nibbles(b.q, q), put_fifth(b.h, q);
    memcpy(y, &b.d, 2), y += 2;
    if (has_min(type))
        memcpy(y, &b.m, 2), y += 2;
    if (type == T_Q5_0 || type == T_Q5_1)
        memcpy(y, b.h, 4), y += 4;
    memcpy(y, b.q, 16);
    return finite_f16(b.d) && finite_f16(b.m);
}

static uint16_t f32_to_bf16(float f)
{
    const uint32_t u = f32_bits(f);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* n finite elements x to y; -1, or where something begins that is beyond the type. */
static int64_t encode(uint8_t *y, int32_t type, const float *x, int64_t n)
{
    const int64_t block = type_block(type), bytes = type_row_bytes(type, block);
    int bad = -1;
    if (type == T_F32)
        memcpy(y, x, (size_t)n * 4);
    else if (block == 1)
        for (int64_t i = 0; i < n; i++) {
            const uint16_t h = type == T_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
            memcpy(y + 2 * i, &h, 2);
            if (bad < 0 && (type == T_F16 ? !finite_f16(h) : !finite_bf16(h)))
                bad = (int)i;
        }
    else if (block == BLOCK)
        for (int64_t b = 0; b < n / BLOCK && bad < 0; b++)
            bad = encode_32(y + b * bytes, type, x + b * BLOCK) ? -1 : (int)b;
    else {
#if defined(__x86_64__)
        const isa *set = best_isa();
        bad = (set == &isa_avx512 || set == &isa_amx ? encode_k_avx512
                   : set == &isa_avx2 || set == &isa_avx_vnni
                   ? encode_k_avx2
                   : encode_k_reference)(y, type, x, (int)n);
#else
        bad = encode_k_reference(y, type, x, (int)n);
#endif
    }
    return bad < 0 ? -1 : bad * block;
}

/* The element that stops it comes first, whichever thread finds it. */
static void stop_at(atomic_int_fast64_t *stop, int64_t at)
{
    int_fast64_t before = atomic_load(stop);
    while (at < before && !atomic_compare_exchange_weak(stop, &before, at)) {}
}

static void encode_units(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const encode_args *a = arg;
    float x[ENCODE_UNIT];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const int64_t at = u * ENCODE_UNIT, n = a->n - at < ENCODE_UNIT ? a->n - at : ENCODE_UNIT;
        uint8_t *y = a->y + type_row_bytes(a->type, at);
        const uint8_t *from = a->x + type_row_bytes(a->from, at);
        int64_t bad = -1;
        if (a->type == a->from) {
            memcpy(y, from, (size_t)type_row_bytes(a->type, n));
            count_nonfinite(&bad, a->type, y, n);
        } else {
            dequantize_row(x, a->from, from, n);
            bad = first_nonfinite(x, n);
        }
        if (bad >= 0)
            stop_at(a->stop, 2 * (at + bad));
        else if (a->type != a->from && (bad = encode(y, a->type, x, n)) >= 0)
            stop_at(a->stop, 2 * (at + bad) + 1);
    }
}

int64_t encode_weights(int32_t *beyond, void *y, int32_t type, const void *x, int32_t from,
                       int64_t n)
{
    atomic_int_fast64_t stop = INT64_MAX;
    const encode_args a = {y, x, n, type, from, &stop};
    parallel(encode_units, &a, (n + ENCODE_UNIT - 1) / ENCODE_UNIT, 32);
    *beyond = stop != INT64_MAX && (stop & 1);
    return stop == INT64_MAX ? -1 : (int64_t)(stop / 2);
}
