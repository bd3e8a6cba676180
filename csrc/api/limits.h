/* limits.h - the largest sizes that files may ask for, for C and for Python (`lib.MAX_VOCAB`).
 *
 * Readers refuse more with an error; what comes after them relies on these. */
#ifndef SLUICE_API_LIMITS_H
#define SLUICE_API_LIMITS_H

/* Of a model: layers, elements of a row, heads, elements of a head, positions. */
enum {
    MAX_LAYERS = 512,
    MAX_WIDTH = 1 << 20,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024, /* kernels of attention keep a block of positions on the stack */
    MAX_CONTEXT = 1 << 24
};

/* Of a vocabulary. */
enum {
    MAX_VOCAB = 1 << 21,       /* tokens, logits of a record: a hash slot has 22 bits for id + 1 */
    MAX_TOKEN_BYTES = 1024,    /* text of a token in a file */
    MAX_TRIE_BYTES = 1 << 22,  /* texts of control and user defined tokens: an edge has 27 bits */
    MAX_VOCAB_BYTES = 32 << 20 /* what all tokens write, where a grammar is to go by it */
};

enum { MAX_THREADS = 1024 }; /* of the pool */
#endif
