/* pushdown.h - stacks of the pushdown automaton, and the steps that consume no byte. */
#ifndef SLUICE_GRAMMAR_PUSHDOWN_H
#define SLUICE_GRAMMAR_PUSHDOWN_H
#include <stddef.h>
#include "grammar/matcher.h"

static inline uint32_t grammar_mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9e3779b1u;
    return h ^ h >> 15;
}
int32_t grammar_reserve(void *array, int32_t *max, int64_t need, int64_t limit, size_t size);
int32_t grammar_rehash(int32_t **table, int32_t *n_slot, int32_t n, const void *hash,
                       size_t stride);
/* 0, or an error; call pushdown_free in both cases */
int32_t pushdown_new(grammar *g);
void pushdown_free(grammar *g);
/* the new stack, or an error */
int32_t pushdown_push(grammar *g, int32_t parent, int32_t where, int32_t count);
/* clears configurations and work */
void pushdown_begin(grammar *g);
int32_t pushdown_reach(grammar *g, int32_t node, int32_t stack, int32_t fresh);
/* follows all nodes that consume no byte */
int32_t pushdown_close(grammar *g);
/* sorts configurations and drops covered ones */
int32_t pushdown_settle(grammar *g);
#endif
