/* encode.h - what encode.c and the builds of encode_k.c say to each other. */
#ifndef SLUICE_ENCODE_H
#define SLUICE_ENCODE_H
#include "formats/quant.h"

/* elements that are encoded at a time: the 16 groups of two blocks of Q4_K */
enum { ENCODE_UNIT = 2 * BLOCK_K };

/* y = two blocks of Q4_K, Q5_K or Q6_K with the n (256 or 512) finite elements at x.  -1, or the
 * first of the blocks whose scale is beyond half precision: 0 or 1, and y is then undefined from
 * there on. */
int encode_k_reference(uint8_t *y, int32_t type, const float *x, int n);
int encode_k_avx2(uint8_t *y, int32_t type, const float *x, int n);
int encode_k_avx512(uint8_t *y, int32_t type, const float *x, int n);

/* encode_pack.c: y = a block of such a type; q as unsigned bytes (Q6_K: q + 32), scale of each of
 * its groups (Q6_K: int8, the bits), min where it has them. */
void pack_k(uint8_t *y, int32_t type, const uint8_t q[BLOCK_K], const uint8_t *scale,
            const uint8_t *min, uint16_t d, uint16_t dmin);
#endif
