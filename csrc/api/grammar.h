/* grammar.h - which tokens a grammar allows. */
#ifndef SLUICE_API_GRAMMAR_H
#define SLUICE_API_GRAMMAR_H
#include <stdint.h>

/* ---- grammar.c: which ids a grammar allows ----------------------------------- */

/* A compiled grammar is nodes; what `a` and `b` are depends on `op`:
 *   GRAMMAR_BYTES    take one byte by the arcs [a, a + b)
 *   GRAMMAR_SPLIT    go on at each of targets [a, a + b)
 *   GRAMMAR_CALL     go on at a; its RETURN goes to b
 *   GRAMMAR_RETURN
 *   GRAMMAR_REPEAT   counted loop a begins
 *   GRAMMAR_AGAIN    one round of loop a is done */
enum { GRAMMAR_BYTES, GRAMMAR_SPLIT, GRAMMAR_CALL, GRAMMAR_RETURN, GRAMMAR_REPEAT, GRAMMAR_AGAIN };
// clang-format off
typedef struct { int32_t op, a, b; } grammar_node;
/* Of one node they are disjoint and ascending. */
typedef struct { int32_t next; uint8_t lo, hi; } grammar_arc;
/* max -1: no limit; min 0 where the body may be empty. */
typedef struct { int32_t body, exit, min, max; } grammar_loop;
typedef struct grammar grammar;
typedef struct trie trie;
typedef struct { int32_t id; float logit; } candidate;
// clang-format on

/* What the functions below return beside 0. */
enum {
    GRAMMAR_REFUSED = -1, /* no sentence of the grammar goes on like this */
    GRAMMAR_WIDE = -2,    /* more than 4,096 live stacks */
    GRAMMAR_SLOW = -3,    /* more than 4 million steps for one token */
    GRAMMAR_DEEP = -4,    /* too deeply nested: more than 16 MB of stacks or states */
    GRAMMAR_NO_MEMORY = -5
};
enum { GRAMMAR_COMPLETE = 1, GRAMMAR_OPEN = 2 };

/* A matcher before the first byte.  The arrays must outlive it; their content is trusted.
 * *status = 0 or one of the above; NULL where it is not 0. */
grammar *grammar_new(int32_t *status, const grammar_node *node, const grammar_arc *arc,
                     const int32_t *target, const grammar_loop *loop, int32_t n_node, int32_t n_arc,
                     int32_t n_loop, int32_t start);
void grammar_free(grammar *g);
/* Takes n bytes.  Anything but 0 is final: the matcher refuses everything from then on. */
int32_t grammar_feed(grammar *g, const uint8_t *bytes, uint64_t n);
/* GRAMMAR_COMPLETE: the bytes so far are a sentence; GRAMMAR_OPEN: more may follow.  Both bits, or
 * 0 after an error. */
int32_t grammar_state(const grammar *g);

/* The texts of a vocabulary as a prefix tree.  Text i is text[offset[i] .. offset[i + 1]); empty
 * ones and those with their bit in `skip` (u64 [(n_vocab + 63) / 64]) stay out.  NULL: out of
 * memory, or more than MAX_VOCAB_BYTES of text. */
trie *trie_new(const uint8_t *text, const uint32_t *offset, const uint64_t *skip, int32_t n_vocab);
void trie_free(trie *t);
int32_t trie_n_node(const trie *t);
/* allowed u64 [(n_vocab + 63) / 64] = the ids whose text keeps the grammar alive; *last = 1 if
 * after each of them it is complete and nothing may follow.  A trie may serve several grammars in
 * turn, not at once. */
int32_t grammar_allowed(uint64_t *allowed, int32_t *last, grammar *g, trie *t);
/* out [number of bits set] = the allowed ids, ascending, with their logits f32 [n_vocab].  Returns
 * their number. */
int32_t candidates_of_dense(candidate *out, const float *logits, const uint64_t *allowed,
                            int32_t n_vocab);
/* The same from n candidates; ids below 64 times the words of `allowed`.  out may be in. */
int32_t candidates_of_candidates(candidate *out, const candidate *in, const uint64_t *allowed,
                                 int32_t n);
#endif
