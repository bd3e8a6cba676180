/* grid.h - the weights of IQ1, IQ2 and IQ3, which come 8 or 4 at a time from a table: a grid. */
#ifndef SLUICE_FORMATS_GRID_H
#define SLUICE_FORMATS_GRID_H
#include <stdint.h>
#include "formats/types.h"

/* grids.c: the weights of each entry as bytes, the first in the lowest; of IQ1 eight times what
 * they are. */
extern const uint64_t grid_iq1[2048], grid_iq2_xxs[256], grid_iq2_xs[512], grid_iq2_s[1024];
extern const uint32_t grid_iq3_xxs[256], grid_iq3_s[512];

/* Vectors as gcc and clang have them for every processor. */
typedef uint8_t bytes_16 __attribute__((vector_size(16)));
typedef uint8_t bytes_32 __attribute__((vector_size(32)));
typedef uint32_t words_4 __attribute__((vector_size(16)));
typedef uint64_t halves_2 __attribute__((vector_size(16)));

enum { EIGHTS = BLOCK_K / 8, FOURS = BLOCK_K / 4 };

/* A block: the entries of its weights; of IQ2 and IQ3 a bit for each weight, set if it is negative;
 * of IQ1 what is added to each 8 weights. */
typedef struct {
    uint16_t index[FOURS];
    union {
        uint8_t sign[EIGHTS];
        int8_t delta[EIGHTS];
    };
} grid_parts;
#endif
