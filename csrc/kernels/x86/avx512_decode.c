/* avx512_decode.c - decode.h for x86-64 with AVX-512. */
#ifdef __AVX512VNNI__
#define SET avx512
#include "kernels/decode.h"
#endif
