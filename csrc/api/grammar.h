/* grammar.h - which tokens a grammar allows. */
#ifndef SLUICE_API_GRAMMAR_H
#define SLUICE_API_GRAMMAR_H
#include <stdint.h>

/* ---- grammar.c, mask.c: which tokens a grammar allows ----------------------------------- */

/* A compiled grammar is a pushdown automaton, an array of nodes. `op` gives `a` and `b` a meaning:
 *   GRAMMAR_BYTES    consume one byte by the arcs [a, a + b)
 *   GRAMMAR_SPLIT    continue at each of targets [a, a + b)
 *   GRAMMAR_CALL     call a; its RETURN continues at b
 *   GRAMMAR_RETURN
 *   GRAMMAR_REPEAT   start counted loop a
 *   GRAMMAR_AGAIN    one round of loop a is complete
 *   GRAMMAR_EXCEPT   consume bytes as exception a says
 *   GRAMMAR_TOKEN    consume a whole token as terminal a says; b is 0 */
enum {
    GRAMMAR_BYTES,
    GRAMMAR_SPLIT,
    GRAMMAR_CALL,
    GRAMMAR_RETURN,
    GRAMMAR_REPEAT,
    GRAMMAR_AGAIN,
    GRAMMAR_EXCEPT,
    GRAMMAR_TOKEN
};
// clang-format off
typedef struct { int32_t op, a, b; } grammar_node;
/* The arcs of a node are disjoint and ascending. */
typedef struct { int32_t next; uint8_t lo, hi; } grammar_arc;
/* max -1: no limit. min is 0 if the body may be empty. */
typedef struct { int32_t body, exit, min, max; } grammar_loop;
/* What BYTES node `bound` matches, but not the words [first, first + n) (sorted, distinct). Where a
 * word has been left, an arc to `free` leads there; where one is still possible, back to `bound`. */
typedef struct { int32_t bound, free, first, n; } grammar_exception;
/* Token `id`, or any other one if `negated`; then continue at `next`. */
typedef struct { int32_t id, negated, next; } grammar_token;
/* Word i is words[word_end[i] .. word_end[i + 1]). */
typedef struct {
    const grammar_node *node;
    const grammar_arc *arc;
    const int32_t *target;
    const grammar_loop *loop;
    const grammar_exception *exception;
    const int32_t *word_end;
    const uint8_t *words;
    int32_t n_node, n_arc, n_loop, start;
} grammar_program;
typedef struct grammar grammar;
typedef struct trie trie;
typedef struct { int32_t id; float logit; } candidate;
// clang-format on

/* Errors of the functions below; 0 is success. */
enum {
    GRAMMAR_REFUSED = -1, /* no sentence of the grammar has this prefix */
    GRAMMAR_WIDE = -2,    /* more than 4,096 live stacks */
    GRAMMAR_SLOW = -3,    /* more than 4 million steps for one token */
    GRAMMAR_DEEP = -4,    /* too deeply nested: more than 16 MB of stacks or states */
    GRAMMAR_NO_MEMORY = -5
};
enum { GRAMMAR_COMPLETE = 1, GRAMMAR_OPEN = 2 };

/* A new matcher, before the first byte. The arrays must outlive it; their content is not checked.
 * *status = 0, or an error; then it returns NULL. */
grammar *grammar_new(int32_t *status, const grammar_program *p, const grammar_token *token);
void grammar_free(grammar *g);
/* Matches n more bytes. An error is final: all later calls fail. */
int32_t grammar_feed(grammar *g, const uint8_t *bytes, uint64_t n);
/* Matches token `id`, whose text is n bytes: as these bytes, or as a terminal. */
int32_t grammar_feed_token(grammar *g, int32_t id, const uint8_t *bytes, uint64_t n);
/* OR of GRAMMAR_COMPLETE, the bytes so far are a sentence, and GRAMMAR_OPEN, more may follow; 0
 * after an error. */
int32_t grammar_state(const grammar *g);

/* A trie (prefix tree) of the texts of a vocabulary. Token i has text[offset[i] .. offset[i + 1]).
 * Empty texts, and tokens with their bit in `skip` (u64 [(n_vocab + 63) / 64]), are left out. NULL:
 * out of memory, or more than MAX_VOCAB_BYTES of text. */
trie *trie_new(const uint8_t *text, const uint32_t *offset, const uint64_t *skip, int32_t n_vocab);
void trie_free(trie *t);
int32_t trie_n_node(const trie *t);
/* The token mask: allowed u64 [(n_vocab + 63) / 64] = tokens whose text may come next. *last = 1 if
 * after each of them the sentence is complete and nothing may follow. Several grammars may use a
 * trie in turn, not at the same time. */
int32_t grammar_allowed(uint64_t *allowed, int32_t *last, grammar *g, trie *t);
/* The bytes that must come next: text [n], n at most `max`. open[i] = 1 if a token that begins at
 * byte i may go on beyond all of them. *last = 1 if the sentence is complete behind them and
 * nothing may follow. Returns n, or GRAMMAR_NO_MEMORY; 0 where the grammar is too ambiguous to
 * tell. */
int32_t grammar_forced(uint8_t *text, uint8_t *open, int32_t *last, int32_t max, grammar *g,
                       trie *t);
/* The shortest text that completes the sentence, if possible without a backslash or a control
 * character; the same on every machine: out [n], a byte each, or 256 + the number of a token
 * terminal. Returns n; GRAMMAR_DEEP if it is not below `max`, GRAMMAR_REFUSED if no text completes
 * it. */
int32_t grammar_shortest(int32_t *out, int32_t max, grammar *g);
/* out [n] = the allowed tokens, ascending. Returns n, or -1 if there are more than `max`. */
int32_t tokens_of_mask(int32_t *out, int32_t max, const uint64_t *allowed, int32_t n_vocab);
/* out [number of bits set] = the allowed tokens, ascending, with their logits, from f32 [n_vocab].
 * Returns their number. */
int32_t candidates_of_dense(candidate *out, const float *logits, const uint64_t *allowed,
                            int32_t n_vocab);
/* The same from n tokens and their logits. */
void candidates_of_rows(candidate *out, const int32_t *id, const float *logit, int32_t n);
/* The same from n candidates; `allowed` has a bit for each of their tokens. out may be in. */
int32_t candidates_of_candidates(candidate *out, const candidate *in, const uint64_t *allowed,
                                 int32_t n);
#endif
