/* limits.h - the largest sizes in input files, for C and for Python (`lib.MAX_VOCAB`).
 *
 * Readers reject larger values with an error; all other code relies on these bounds. */
#ifndef SLUICE_API_LIMITS_H
#define SLUICE_API_LIMITS_H

/* A model: layers, elements of a row, heads, elements of a head, positions. */
enum {
    MAX_LAYERS = 512,
    MAX_WIDTH = 1 << 20,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024, /* attention kernels keep a block of positions on the stack */
    MAX_CONV = 16,       /* taps of a causal convolution */
    MAX_CONTEXT = 1 << 24
};

/* A vocabulary. */
enum {
    MAX_VOCAB = 1 << 21, /* tokens, and logits of a record: a hash slot has 22 bits for token + 1 */
    MAX_TOKEN_BYTES = 1024,   /* text of a token in a file */
    MAX_TRIE_BYTES = 1 << 22, /* texts of control and user defined tokens: 27 bits of a trie edge */
    MAX_VOCAB_BYTES = 32 << 20 /* text of all tokens, if a grammar is used */
};

enum { MAX_THREADS = 1024 }; /* in the pool */
#endif
