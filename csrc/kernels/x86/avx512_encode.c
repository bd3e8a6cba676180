/* avx512_encode.c - encode_k.c for x86-64 with AVX-512. */
#ifdef __AVX512VNNI__
#define SET avx512
#include "formats/encode_k.c"
#endif
