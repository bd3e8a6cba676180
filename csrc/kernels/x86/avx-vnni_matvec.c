/* avx-vnni_matvec.c - avx2_matvec.c once more, for AVX2 with AVX-VNNI; what differs is in avx2.h.
 */
#ifdef __AVXVNNI__
#define SET avx_vnni
#define WITH_VNNI
#include "kernels/x86/avx2_matvec.c"
#endif
