/* vocab_trie.h - a trie of control and user defined pieces, whose texts are matched whole. Its
 * edges are in a hash table of {node, byte} -> node. */
#ifndef SLUICE_TOKENIZER_VOCAB_TRIE_H
#define SLUICE_TOKENIZER_VOCAB_TRIE_H
#include "api/tokenizer.h"

enum { NODE_BITS = 27 }; /* an edge: {node << 8 | byte, sets << 27 | child} */
#define EDGE_NODE ((1u << NODE_BITS) - 1)

/* The slot of the edge from a node by a byte, or the free slot for it. */
static inline uint64_t *find_edge(const vocab *v, uint32_t node, uint8_t byte)
{
    const uint32_t key = node << 8 | byte;
    uint32_t i = (uint32_t)((key * (v->seed | 1)) >> 32) & v->edge_mask;
    while (v->edge[i] && v->edge[i] >> 32 != key)
        i = (i + 1) & v->edge_mask;
    return v->edge + i;
}

/* vocab_match, inline for loops that call it for each byte. */
static inline uint64_t match_in_trie(const vocab *v, const uint8_t *text, uint64_t n_bytes,
                                     uint32_t sets)
{
    if (!n_bytes || !(v->first[text[0]] & sets))
        return 0;
    uint64_t longest = 0;
    uint32_t node = 0;
    for (uint64_t i = 0; i < n_bytes; i++) {
        const uint64_t edge = *find_edge(v, node, text[i]);
        if (!edge)
            break;
        if ((uint32_t)edge >> NODE_BITS & sets)
            longest = i + 1;
        node = (uint32_t)edge & EDGE_NODE;
    }
    return longest;
}
#endif
