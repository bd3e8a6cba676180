/* avx-vnni_matmul.c - avx2_matmul.c's quantised products once more, for AVX2 with AVX-VNNI; what
 * differs is in avx2.h. */
#ifdef __AVXVNNI__
#define SET avx_vnni
#define WITH_VNNI
#include "kernels/x86/avx2_matmul.c"
#endif
