/* avx2_encode.c - encode_k.c for x86-64 with AVX2. */
#ifdef __AVX2__
#define SET avx2
#include "formats/encode_k.c"
#endif
