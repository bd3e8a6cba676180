/* float_bits.h - f32 as bits and back; compile-time checks: IEEE arithmetic, little-endian. */
#ifndef SLUICE_RUNTIME_FLOAT_BITS_H
#define SLUICE_RUNTIME_FLOAT_BITS_H
#include <float.h>
#include <stdint.h>

#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "this code needs IEEE arithmetic as written, and a little-endian processor"
#endif

static inline float bits_f32(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = u};
    return v.f;
}
static inline uint32_t f32_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = f};
    return v.u;
}
#endif
