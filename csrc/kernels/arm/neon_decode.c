/* neon_decode.c - decode.h for AArch64 with NEON. */
#ifdef __ARM_FEATURE_DOTPROD
#define SET neon
#include "kernels/decode.h"
#endif
