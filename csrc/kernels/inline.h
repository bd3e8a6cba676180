/* inline.h - functions that are part of their caller, so that a type or a count given as a constant
 * is one. */
#ifndef SLUICE_KERNELS_INLINE_H
#define SLUICE_KERNELS_INLINE_H
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The 32 bits at any address. */
INLINE uint32_t word(const void *x)
{
    uint32_t w;
    memcpy(&w, x, 4);
    return w;
}
#endif
