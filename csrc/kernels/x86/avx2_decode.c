/* avx2_decode.c - decode.h for x86-64 with AVX2. */
#ifdef __AVX2__
#define SET avx2
#include "kernels/decode.h"
#endif
