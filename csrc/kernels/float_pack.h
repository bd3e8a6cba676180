/* float_pack.h - activations in f32 as the micro-kernel of float_panel.h reads them: in micropanels
 * ("sets") of NR = 6 tokens, KC block by KC block, all sets of a block before the next one, so that
 * tile after tile reads on in one stream:
 *
 *     [KC block][set][step of the block][token of the set][16 elements]
 *
 * Behind them lies the workspace for the sums of each thread. */
#ifndef SLUICE_FLOAT_PACK_H
#define SLUICE_FLOAT_PACK_H
#include "kernels/arguments.h"

/* of reference.c, and elements of a step; of a set; rows of a tile */
enum { FLOAT_LANES = 16, FLOAT_TOKENS = 6, FLOAT_TILE = 4 };
/* sets and rows of a round; 512 tokens are two times 43 sets */
enum { FLOAT_SETS = 43, FLOAT_ROWS = 32 };
enum { FLOAT_SET_STEP = FLOAT_TOKENS * FLOAT_LANES }; /* floats */

/* of a set */
typedef float float_sums[FLOAT_ROWS / FLOAT_TILE][FLOAT_TOKENS][FLOAT_TILE][FLOAT_LANES];

static inline int64_t float_sets(int64_t n_tok)
{
    return (n_tok + FLOAT_TOKENS - 1) / FLOAT_TOKENS;
}
static inline int64_t float_steps(int64_t n) { return (n + FLOAT_LANES - 1) / FLOAT_LANES; }
static inline int64_t float_bytes(int64_t n_tok, int64_t n)
{
    return float_sets(n_tok) * float_steps(n) * FLOAT_SET_STEP * 4;
}

/* Floats before a set's KC block, which begins with step k and has n_step. */
static inline int64_t float_at(int64_t n_set, int64_t set, int64_t k, int64_t n_step)
{
    return (k * n_set + set * n_step) * FLOAT_SET_STEP;
}

/* with the workspace behind; 0: too few tokens, they stay as they are */
int64_t packed_bytes_floats(int64_t n_tok, int64_t n);
/* pack_args, `block` the steps of a KC block; items: sets */
void pack_floats(const void *arg, int64_t begin, int64_t end, int32_t thread);
#endif
