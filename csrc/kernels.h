/* kernels.h - every function Python may call.  This file is also the cffi cdef: */
/* plain C declarations only, no macros, no guards.                              */
/* Arguments come in the order outputs, inputs, sizes, scalars.                  */

/* ---- gguf.c: metadata arrays ------------------------------------------------ */

typedef struct {
    uint64_t at;      /* byte after the last string passed */
    uint64_t n_done;  /* strings passed by this call */
    uint64_t n_bytes; /* length of the string it stopped at */
} gguf_scan;

/* Passes up to n strings {u64 n_bytes, bytes} of buf[0..size) from byte at on.
 * Returns 0 where all were passed or the buffer ends within one (n_done < n; it
 * wants 8 + n_bytes bytes from at), -1 where one is longer than max_bytes. */
int32_t gguf_skip_strings(gguf_scan *out, const uint8_t *buf, uint64_t size, uint64_t at, uint64_t n, uint64_t max_bytes);

/* ---- quant.c: the formats of weights ---------------------------------------- */

/* Customary name of a GGML type number, "" if there is none. */
const char *type_name(int32_t type);
/* Bytes of a row of n elements; 0: not supported by this build; -1: n is not a multiple of the block. */
int64_t type_row_bytes(int32_t type, int64_t n);
/* y f32 [n] = the n elements at x, type as above. */
void dequantize_row(float *y, int32_t type, const void *x, int64_t n);

/* ---- spm.c: SentencePiece BPE ------------------------------------------------ */

/* ---- grammar.c: which ids a grammar allows ----------------------------------- */

/* A compiled grammar is nodes; what `a` and `b` are depends on `op`:
 *   GRAMMAR_BYTES    take one byte by the arcs [a, a + b)
 *   GRAMMAR_SPLIT    go on at each of targets [a, a + b)
 *   GRAMMAR_CALL     go on at a; its RETURN goes to b
 *   GRAMMAR_RETURN
 *   GRAMMAR_REPEAT   counted loop a begins
 *   GRAMMAR_AGAIN    one round of loop a is done */
enum { GRAMMAR_BYTES, GRAMMAR_SPLIT, GRAMMAR_CALL, GRAMMAR_RETURN, GRAMMAR_REPEAT, GRAMMAR_AGAIN };
typedef struct { int32_t op, a, b; } grammar_node;
typedef struct { int32_t next; uint8_t lo, hi; } grammar_arc;          /* disjoint and ascending within a node */
typedef struct { int32_t body, exit, min, max; } grammar_loop;         /* max -1: no limit; min 0 where the body may be empty */
typedef struct grammar grammar;
typedef struct trie trie;
typedef struct { int32_t id; float logit; } candidate;

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
grammar *grammar_new(int32_t *status, const grammar_node *node, const grammar_arc *arc, const int32_t *target,
                     const grammar_loop *loop, int32_t n_node, int32_t n_arc, int32_t n_loop, int32_t start);
void grammar_free(grammar *g);
/* Takes n bytes.  Anything but 0 is final: the matcher refuses everything from then on. */
int32_t grammar_feed(grammar *g, const uint8_t *bytes, uint64_t n);
/* GRAMMAR_COMPLETE: the bytes so far are a sentence; GRAMMAR_OPEN: more may follow.  Both bits, or 0 after an error. */
int32_t grammar_state(const grammar *g);

/* The texts of a vocabulary as a prefix tree.  Text i is text[offset[i] .. offset[i + 1]); empty ones and those with
 * their bit in `skip` (u64 [(n_vocab + 63) / 64]) stay out.  NULL: out of memory, or more than 32 million bytes of text. */
trie *trie_new(const uint8_t *text, const uint32_t *offset, const uint64_t *skip, int32_t n_vocab);
void trie_free(trie *t);
int32_t trie_n_node(const trie *t);
/* allowed u64 [(n_vocab + 63) / 64] = the ids whose text keeps the grammar alive; *last = 1 if after each of them it is
 * complete and nothing may follow.  A trie may serve several grammars in turn, not at once. */
int32_t grammar_allowed(uint64_t *allowed, int32_t *last, grammar *g, trie *t);
/* out [number of bits set] = the allowed ids, ascending, with their logits f32 [n_vocab].  Returns their number. */
int32_t candidates_of_dense(candidate *out, const float *logits, const uint64_t *allowed, int32_t n_vocab);
/* The same from n candidates; ids below 64 times the words of `allowed`.  out may be in. */
int32_t candidates_of_candidates(candidate *out, const candidate *in, const uint64_t *allowed, int32_t n);

/* ---- sample.c: logits to an id ----------------------------------------------- */

/* ---- crc32c.c: checksums ------------------------------------------------------ */

/* ---- guard.c: a map whose file was cut ---------------------------------------- */

/* ---- dispatch.c, threads.c: which processor, how many --------------------------- */

/* ---- the arithmetic: reference.c defines it --------------------------------------- */
