/* grids.c - the grids of IQ1, IQ2 and IQ3: 8 or 4 weights of each entry as bytes, from grids.h. */
#include "formats/grids.h"
#include "formats/grid.h"

/* What a digit stands for: -1, 0, 1, times 8; 8, 25, 43; 4, 12 ... 52, 62; 1, 3 ... 15. */
#define IQ1_VALUE(d) (8 * ((d) - 1) & 255)
#define IQ2_VALUE(d) (8 + 17 * (d) + ((d) == 2))
#define IQ3_XXS_VALUE(d) (4 + 8 * (d) + 2 * ((d) == 7))
#define IQ3_S_VALUE(d) (2 * (d) + 1)

#define BYTE_2(VALUE, x, i) (uint64_t)VALUE((x) >> 2 * (i) & 3) << 8 * (i)
#define BYTE_3(VALUE, x, i) (uint32_t)VALUE((x) >> 3 * (i) & 7) << 8 * (i)
#define EIGHT(VALUE, x) \
    BYTE_2(VALUE, x, 0) | BYTE_2(VALUE, x, 1) | BYTE_2(VALUE, x, 2) | BYTE_2(VALUE, x, 3) \
        | BYTE_2(VALUE, x, 4) | BYTE_2(VALUE, x, 5) | BYTE_2(VALUE, x, 6) | BYTE_2(VALUE, x, 7),
#define FOUR(VALUE, x) \
    BYTE_3(VALUE, x, 0) | BYTE_3(VALUE, x, 1) | BYTE_3(VALUE, x, 2) | BYTE_3(VALUE, x, 3),

#define IQ1(x) EIGHT(IQ1_VALUE, x)
#define IQ2(x) EIGHT(IQ2_VALUE, x)
#define IQ3_XXS(x) FOUR(IQ3_XXS_VALUE, x)
#define IQ3_S(x) FOUR(IQ3_S_VALUE, x)
const uint64_t grid_iq1[2048] = {GRID_IQ1(IQ1)};
const uint64_t grid_iq2_xxs[256] = {GRID_IQ2_XXS(IQ2)};
const uint64_t grid_iq2_xs[512] = {GRID_IQ2_XS(IQ2)};
const uint64_t grid_iq2_s[1024] = {GRID_IQ2_S(IQ2)};
const uint32_t grid_iq3_xxs[256] = {GRID_IQ3_XXS(IQ3_XXS)};
const uint32_t grid_iq3_s[512] = {GRID_IQ3_S(IQ3_S)};
