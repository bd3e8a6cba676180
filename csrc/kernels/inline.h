/* inline.h - functions that are part of their caller, so that a type or a count given as a constant is one. */
#ifndef SLUICE_KERNELS_INLINE_H
#define SLUICE_KERNELS_INLINE_H

#define INLINE static inline __attribute__((always_inline))
#endif
