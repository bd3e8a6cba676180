/* trie.h - the texts of a vocabulary as a prefix tree. */
#ifndef SLUICE_GRAMMAR_TRIE_H
#define SLUICE_GRAMMAR_TRIE_H
#include "api/grammar.h"

/* nodes in preorder, so that a subtree and its ids are contiguous; node 0 is the root */
struct trie {
    int32_t n_node, n_vocab, max_depth;
    uint8_t *byte;
    uint16_t *depth;
    int32_t *end;   /* first node after the subtree */
    int32_t *first; /* [n_node + 1] ids of node i: ids[first[i] .. first[i + 1]) */
    int32_t *ids;
    int32_t *path;   /* scratch [max_depth + 1] */
    uint64_t *below; /* what is below each node, for class_of; see mask.c */
    uint8_t class_of[256];
};
#endif
