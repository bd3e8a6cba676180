/* encode_pack.c - a block of 256 from its integers: what unpack_256 of quant.c reads. */
#include <string.h>
#include "formats/encode.h"

/* Scale and minimum of group j of 8, where scale_of and min_of of quant.c find them. */
static void put_scale(uint8_t sc[12], int j, uint8_t scale, uint8_t min)
{
    if (j < 4) {
        sc[j] = (uint8_t)(sc[j] | scale), sc[j + 4] = (uint8_t)(sc[j + 4] | min);
        return;
    }
    sc[j + 4] = (uint8_t)((scale & 15) | min << 4);
    sc[j - 4] = (uint8_t)(sc[j - 4] | scale >> 4 << 6);
    sc[j] = (uint8_t)(sc[j] | min >> 4 << 6);
}

/* 32 bytes of q hold 64 elements, low halves first; h holds bit 4 of element i in bit i / 32 of
 * byte i % 32. */
static void pack_q5(block_q5_k *y, const uint8_t q[BLOCK_K], const uint8_t scale[8],
                    const uint8_t min[8])
{
    for (int j = 0; j < 8; j++)
        put_scale(y->sc, j, scale[j], min[j]);
    for (int k = 0; k < BLOCK_K / 64; k++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *two = q + 64 * k + i;
            y->q[32 * k + i] = (uint8_t)((two[0] & 15) | (two[32] & 15) << 4);
            y->h[i] = (uint8_t)(y->h[i] | (two[0] >> 4) << 2 * k | (two[32] >> 4) << (2 * k + 1));
        }
}

/* 64 bytes of q and 32 of h hold 128 elements: low halves the first 64, pairs of bits 32 by 32. */
static void pack_q6(block_q6_k *y, const uint8_t q[BLOCK_K], const uint8_t scale[16])
{
    memcpy(y->sc, scale, sizeof y->sc);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *four = q + 128 * k + i;
            y->q[64 * k + i] = (uint8_t)((four[0] & 15) | (four[64] & 15) << 4);
            y->q[64 * k + 32 + i] = (uint8_t)((four[32] & 15) | (four[96] & 15) << 4);
            y->h[32 * k + i] = (uint8_t)(four[0] >> 4 | four[32] >> 4 << 2 | four[64] >> 4 << 4
                                         | four[96] >> 4 << 6);
        }
}

void pack_k(uint8_t *y, int32_t type, const uint8_t q[BLOCK_K], const uint8_t *scale,
            const uint8_t *min, uint16_t d, uint16_t dmin)
{
    block_q5_k five = {.d = d, .dmin = dmin};
    block_q6_k six = {.d = d};
    if (type == T_Q6_K) {
        pack_q6(&six, q, scale);
        memcpy(y, &six, sizeof six);
        return;
    }
    pack_q5(&five, q, scale, min);
    if (type == T_Q5_K) {
        memcpy(y, &five, sizeof five);
        return;
    }
    memcpy(y, &five, offsetof(block_q4_k, q)); /* both begin alike */
    memcpy(y + offsetof(block_q4_k, q), five.q, sizeof five.q);
}
