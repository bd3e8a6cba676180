/* neon_decode.c - decode.h for AArch64 with NEON: 16 weights at a time. */
#ifdef __ARM_FEATURE_DOTPROD
#include <arm_neon.h>
#include "formats/grid.h"
#include "formats/quant.h"
#include "kernels/inline.h"
#define SET neon

enum { WEIGHTS = 16 };
typedef int8x16_t weights;

INLINE weights entries_of_8(const uint64_t *grid, const uint16_t *index)
{
    return vcombine_s8(vcreate_s8(grid[index[0]]), vcreate_s8(grid[index[1]]));
}

INLINE weights entries_of_4(const uint32_t *grid, const uint16_t *index)
{
    return vcombine_s8(vcreate_s8(grid[index[0]] | (uint64_t)grid[index[1]] << 32),
                       vcreate_s8(grid[index[2]] | (uint64_t)grid[index[3]] << 32));
}

INLINE weights with_signs(weights w, const uint8_t *sign)
{
    const uint8x8_t bit = vcreate_u8(0x8040201008040201);
    const uint8x16_t negative =
        vtstq_u8(vcombine_u8(vdup_n_u8(sign[0]), vdup_n_u8(sign[1])), vcombine_u8(bit, bit));
    return vbslq_s8(negative, vnegq_s8(w), w);
}

INLINE weights with_deltas(weights w, const int8_t *delta)
{
    return vaddq_s8(w, vcombine_s8(vdup_n_s8(delta[0]), vdup_n_s8(delta[1])));
}

INLINE void store_weights(int8_t *q, weights w) { vst1q_s8(q, w); }

INLINE float f32_of_half(uint16_t h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

/* 16 weights of NVFP4: what their halves of bytes stand for, then as bf16. */
INLINE bytes_16 values_of_fp4(bytes_16 q)
{
    return (bytes_16)vqtbl1q_s8(vld1q_s8(fp4_value), (uint8x16_t)q);
}

INLINE void scaled_to_bf16(uint16_t *y, float d, bytes_16 v)
{
    const int8x16_t bytes = (int8x16_t)v;
    for (int i = 0; i < 16; i += 8) {
        const int16x8_t q = i ? vmovl_high_s8(bytes) : vmovl_s8(vget_low_s8(bytes));
        const float32x4_t low = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))), d),
                          high = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(q)), d);
        vst1q_u16(y + i,
                  vcombine_u16(vshrn_n_u32(vreinterpretq_u32_f32(low), 16),
                               vshrn_n_u32(vreinterpretq_u32_f32(high), 16)));
    }
}

#include "kernels/decode.h"
#endif
