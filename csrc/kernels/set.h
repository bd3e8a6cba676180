/* set.h - one text, compiled for several instruction sets.
 *
 * A shared file is written once and included by a file of each set, which is compiled with that
 * set's flags and says beforehand what is its own:
 *
 *     SET              what names end in: avx2, avx_vnni, avx512, neon, i8mm. A shared file that is
 *                      compiled by itself, for the first of its sets, chooses it.
 *     WITH_x           an instruction that this set has: WITH_VNNI (VPDPBUSD), WITH_SMMLA
 *     WITHOUT_x        a function of the shared file that this set has written by itself:
 *                      WITHOUT_QUANTIZE
 *     VECTOR           the register of f32, and VECTOR_LANES, VECTOR_ZERO(), VECTOR_LOAD(p),
 *                      VECTOR_STORE(p, v), VECTOR_FMA(a, b, sum) and VECTOR_KEEP(v): v stays in a
 *                      register. For float_panel.h; VECTOR_SET(x) for delta.h
 *
 * A name that other files see is NAME(f); all others are static.
 *
 *     shared file               compiled again by
 *     reference.c               x86/avx2.c, x86/avx512.c, arm/neon.c
 *     formats/encode_k.c        x86/avx2_encode.c, x86/avx512_encode.c
 *     decode.h                  x86/avx2_decode.c, x86/avx512_decode.c, arm/neon_decode.c
 *     x86/avx2_matmul.c, avx2_matvec.c, avx2_kquant.c
 *                               x86/avx-vnni_*.c
 *     float_panel.h             x86/avx2_float.c, x86/avx512_float.c
 *     arm/neon_panel.c          arm/i8mm.c
 *
 * Bits are the same in every set: what differs is which instruction does a step. */
#ifndef SLUICE_KERNELS_SET_H
#define SLUICE_KERNELS_SET_H

#define NAME(f) NAME_OF(f, SET)
#define NAME_OF(f, set) NAME_JOINED(f, set)
#define NAME_JOINED(f, set) f##_##set
#endif
