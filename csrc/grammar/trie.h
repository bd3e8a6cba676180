/* trie.h - a trie (prefix tree) of the texts of a vocabulary. */
#ifndef SLUICE_GRAMMAR_TRIE_H
#define SLUICE_GRAMMAR_TRIE_H
#include "api/grammar.h"

/* nodes in preorder, so a subtree and its tokens are contiguous; node 0 is the root */
struct trie {
    int32_t n_node, n_vocab, max_depth;
    uint8_t *byte;
    uint16_t *depth;
    int32_t *end;   /* first node after the subtree */
    int32_t *first; /* [n_node + 1] tokens of node i: tokens[first[i] .. first[i + 1]) */
    int32_t *tokens;
    int32_t *path;       /* scratch [max_depth + 1] */
    uint8_t *plain;      /* is all text below a node plain characters? see split.c */
    struct split *split; /* NULL for a part of another trie */
    uint64_t *below;     /* characters below each node, by class_of; see mask.c */
    uint8_t class_of[256];
};
/* Where the texts of a trie lie: text[from[i] .. to[i]). */
struct texts {
    const uint8_t *text;
    const uint32_t *from, *to;
};
/* A trie of n tokens, the part of a larger one; NULL: out of memory. Reorders `ids`. */
trie *trie_of(const struct texts *x, const int32_t *ids, int32_t n, int32_t n_vocab);
#endif
