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
/* Elements of a block of a type that files may hold; 0: no such type. */
int64_t type_block(int32_t type);
/* Bytes of a row of n elements, n from 0 to 2^50; 0: no such type; -1: n is not a multiple of the block. */
int64_t type_row_bytes(int32_t type, int64_t n);
/* 1 if dequantize_row and the kernels read this type, else 0. */
int32_t type_supported(int32_t type);
/* y f32 [n] = the n elements at x, of a supported type, n a multiple of its block. */
void dequantize_row(float *y, int32_t type, const void *x, int64_t n);
/* y f16 [n], the bits = x f32 [n], to nearest, ties to even. */
void convert_f32_f16(uint16_t *y, const float *x, int64_t n);
/* How many stored numbers of the n elements at x are infinite or NaN: elements of a
 * float type, scales and minima of a block type.  *first: index of the first
 * element that one of them spoils, -1 if none does. */
int64_t count_nonfinite(int64_t *first, int32_t type, const void *x, int64_t n);

/* ---- encode.c, encode_k.c: weights to another format ---------------------------- */

/* Whether encode_weights makes this type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K. */
int32_t encodable(int32_t type);
/* y = n elements of an encodable type, made by all threads of the n at x, of a supported type `from`; n is a multiple of both blocks.
 * Where both are one type y is a copy.  Returns -1, or the first element that stops it, and then y is good for nothing: an infinity or
 * NaN in x (*beyond = 0), or, by block, what is greater than the type can say (*beyond = 1). */
int64_t encode_weights(int32_t *beyond, void *y, int32_t type, const void *x, int32_t from, int64_t n);

/* ---- vocab.c: a vocabulary ------------------------------------------------------ */

typedef struct {
    uint32_t at;      /* where its text begins in tokens, or in respelt */
    float score;      /* SentencePiece: the highest of all possible merges is made first */
    uint16_t n_bytes; /* of its text */
    uint8_t kind;     /* PIECE_... */
    uint8_t flags;    /* OR of PIECE_RESPELT, PIECE_TAKES_BEFORE, PIECE_TAKES_BEHIND */
} vocab_piece;

/* The first six are types of the file. A user defined piece is one of four kinds: it may have the form of a mark of turns (MARKER),
 * and it may have been added to a SentencePiece vocabulary by another tokenizer (ADDED), which matches it first. */
enum {
    PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE, PIECE_MARKER, PIECE_ADDED,
    PIECE_ADDED_MARKER
};
enum {
    PIECE_RESPELT = 1,      /* its text has U+2581 where the file has blanks, and is in `respelt` */
    PIECE_TAKES_BEFORE = 2, /* where it is split off a text it takes the white space before it along, */
    PIECE_TAKES_BEHIND = 4  /* that behind it */
};

enum { VOCAB_SPM, VOCAB_BYTES, VOCAB_MERGES }; /* tokenizer.ggml.model "llama", "gpt2" (byte-level), "gemma4" */

typedef struct {
    const uint8_t *tokens; /* n_vocab times {u64 n_bytes, bytes}, as in the file; already walked by gguf_skip_strings */
    const uint8_t *scores; /* f32 [n_vocab], any alignment; NULL: not of this model */
    const uint8_t *types;  /* i32 [n_vocab], any alignment */
    uint8_t *respelt;      /* [respelt_room] */
    const uint8_t *end_marks; /* texts between zero bytes: user defined pieces with these texts are control */
    const uint8_t *merges; /* n_merge times {u64 n_bytes, "left right"}, as in the file; walked as well */
    vocab_piece *piece;    /* [n_vocab] */
    uint16_t *n_left;      /* [n_merge] bytes of the left half */
    uint32_t *last_merge;  /* [n_vocab], zeroed: 1 + the last merge that makes this id */
    uint32_t *merge_before; /* [n_merge]: 1 + the one before it that makes the same id, 0: none */
    uint32_t *slot;        /* [slot_mask + 1], zeroed: hash of text -> id, n_vocab is 2^21 at most */
    uint64_t *edge;        /* [edge_mask + 1], zeroed: trie of the texts of control and user defined pieces */
    uint64_t tokens_bytes, merges_bytes, respelt_room, end_marks_bytes;
    uint64_t seed;         /* of the hashes; any number, best one that the writer of the file did not know */
    uint32_t slot_mask, edge_mask;
    uint32_t n_node;
    int32_t n_vocab;
    int32_t n_merge;
    int32_t model;         /* VOCAB_... */
    int32_t pre;           /* PRE_..., of VOCAB_BYTES */
    int32_t ignore_merges; /* a word that is a token is that token, whatever merging gives */
    int32_t unknown;       /* id for what no piece spells, where there is no byte fallback */
    int32_t byte_id[256];  /* -1: missing */
    int32_t add_prefix;    /* SentencePiece: text begins with a blank of its own */
    uint32_t respelt_bytes;
    uint32_t max_bytes;    /* of the longest text that merging can reach */
    uint32_t trie_bytes;   /* of all texts in the trie */
    uint32_t text_bytes;   /* of all tokens */
    uint32_t text_kinds;   /* set of the kinds that merging makes (bit 1 << kind) */
    uint8_t has_bytes;     /* there are byte tokens: text without a piece becomes its bytes */
    uint8_t has_unused;
    uint8_t added_scores;  /* the scores say which pieces were added */
    uint8_t has_added;     /* user defined pieces that are matched first */
    uint8_t words_apart;   /* no piece reaches across the begin of a word */
    uint8_t first[256];    /* which sets (SET_...) have a text that begins with this byte */
} vocab;

/* Sets of texts in the trie, by kind, to be ORed. */
enum { SET_USER = 1, SET_CONTROL = 2, SET_MARKER = 4, SET_ADDED = 8, SET_ADDED_MARKER = 16 };

typedef struct {
    int32_t id, other; /* of an error: the token, and the one it clashes with */
} vocab_clash;

/* Fills piece [n_vocab] and everything in v that is not a pointer, a mask, the seed or a rule of the model. special [n_special]
 * ids are control tokens whatever their type says (-1: none). 0, or what is wrong with token out->id:
 * 1 score not finite, 2 type not 1 to 6, 3 byte token malformed, 4 text too long, 5 a byte token is missing
 * (out->other: which), in a byte-level vocabulary: 6 a byte token, 7 a user defined token that is not UTF-8. */
int32_t vocab_scan(vocab_clash *out, vocab *v, const int32_t *special, int32_t n_special);
/* Fills slot, edge and, of a byte-level vocabulary, byte_id. 0, or 1: tokens out->id and out->other have the same text. */
int32_t vocab_index(vocab_clash *out, vocab *v);
/* Sets flags of all pieces whose kind is in the set `kinds`. */
void vocab_flag(vocab *v, uint32_t kinds, uint8_t flags);
/* Id of the piece with this text whose kind is in the set `kinds` (bit 1 << kind), -1: none. */
int32_t vocab_find(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t kinds);
/* Bytes of the longest text of the sets that text [n_bytes] begins with, 0: none. */
uint64_t vocab_match(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t sets);

typedef struct {
    uint64_t at, end; /* of the token in the text, both its length: there is none */
    int32_t id;
} vocab_cut;

/* Finds the first token at or after `at` that is split off raw text [n_bytes] before it is encoded: the leftmost, of these the
 * longest, of `sets` of control and added texts. A piece of `user` (SET_USER, SET_MARKER) that is longer is passed over. */
void vocab_next_cut(vocab_cut *out, const vocab *v, const uint8_t *text, uint64_t n_bytes, uint64_t at, uint32_t sets,
                    uint32_t user);
/* Fills n_left, last_merge and merge_before, after vocab_index. 0, or what is wrong with line out->id of the merges:
 * 1 not two texts with a blank between, 2 what it makes is no token of kind normal, 3 it is line out->other again. */
int32_t vocab_index_merges(vocab_clash *out, vocab *v);
/* text [text_bytes], offset [n_vocab + 1]: what each id writes: nothing for unknown, control and unused. */
void vocab_table(uint8_t *text, uint32_t *offset, const vocab *v);

/* ---- merge.c, spm.c: SentencePiece BPE, and Gemma 4's ---------------------------- */

typedef struct {
    int32_t prev, next; /* symbols beside it, -1: none */
    uint32_t at, n_bytes;
    int32_t id;         /* -1: not looked up */
} merge_symbol;

typedef struct {
    uint64_t key;     /* score and place: the greatest is merged first */
    uint32_t n_bytes; /* of both symbols together */
    int32_t id;       /* of the piece they make */
} merge_pair;

/* `user` (SET_USER, SET_MARKER): the user defined pieces that text may become. */
/* out [3 n_bytes + 3] = text as SentencePiece sees it. Returns its bytes. */
uint64_t spm_normalize(uint8_t *out, const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes, int32_t add_prefix,
                       int32_t remove_extra);
/* Symbols of the longest part of a normalized text that must be merged as one. */
uint64_t spm_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes);
/* id [n_bytes] = the ids of a normalized text of at most 2^31 - 1 bytes. Returns how many. Work: symbol [n],
 * pair [2 n] for n = spm_longest; split [n_vocab], only used where has_unused. */
uint64_t spm_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v, uint32_t user, merge_symbol *symbol,
                    merge_pair *pair, uint32_t *split);

/* ---- pretokenize.c, bpe.c: byte-level BPE ----------------------------------------- */

enum { PRE_GPT2, PRE_LLAMA3, PRE_QWEN2, PRE_QWEN35, PRE_TEKKEN, PRE_STARCODER, PRE_DEEPSEEK_LLM };
typedef struct { uint64_t end[6]; } word_ends; /* of the pieces of each rule; zero before the first word of a text */
/* Where the word ends that begins at byte `at` of UTF-8 text [n_bytes], at < n_bytes; words are asked for in order. */
uint64_t pretokenize(word_ends *w, const uint8_t *text, uint64_t at, uint64_t n_bytes, int32_t pre);

/* The ends of the white space (\s, by whole characters) in text [end] that begins at `at`, and the begin of that which ends at `end`,
 * at `at` or after. */
uint64_t white_space_end(const uint8_t *text, uint64_t at, uint64_t end);
uint64_t white_space_begin(const uint8_t *text, uint64_t at, uint64_t end);

/* out [3 n_bytes] = text with U+FFFD for each byte that is not UTF-8. Returns its bytes. */
uint64_t utf8_repair(uint8_t *out, const uint8_t *text, uint64_t n_bytes);
/* out [2 n_bytes] = text in the byte-level alphabet, in which tokens of kind normal are written. Returns its bytes. */
uint64_t alphabet_encode(uint8_t *out, const uint8_t *text, uint64_t n_bytes);
/* Bytes of the longest word of a text that is UTF-8. */
uint64_t bpe_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes);
/* id [n_bytes] = the ids of a UTF-8 text of at most 2^31 - 1 bytes. Returns how many. Work, for n = bpe_longest: letters [2 n],
 * symbol [n], pair [2 n]. */
uint64_t bpe_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v, uint32_t user, uint8_t *letters,
                    merge_symbol *symbol, merge_pair *pair);

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

typedef struct {
    double temperature; /* 0: the best id */
    double top_p;       /* 1: off */
    double min_p;       /* 0: off */
    double repeat;      /* > 0; 1: off */
    double presence, frequency;
    int32_t top_k;      /* 0: off */
    int32_t least;      /* 1: all logits change their sign, after bias and penalties, so that the worst are the best; 0: off */
    int32_t n_bias;
    const int32_t *bias_id; /* [n_bias], ascending, each once */
    const double *bias;     /* [n_bias], added to their logits; -infinity: never chosen */
} sample_options;

/* Choose *id of the n candidates of a record: dense, payload is f32 [n], else {i32 id, f32 logit} [n] by ascending id.
 * log_p (may be null): ln of its probability in the softmax of the payload as it is.
 * seen i32 [2 n_seen]: ids of the recent past, each once, with their counts. random: 64 even bits, used where
 * temperature > 0. work: u64 [4 n]. n is 1 to 2^21. Returns 0; -1 where *id is the first with a
 * logit that is not finite; -2 where every candidate has a bias of -infinity. */
int32_t sample_pick(int32_t *id, double *log_p, uint64_t *work, const void *payload, const int32_t *seen,
                    int64_t n, int32_t dense, int32_t n_seen, const sample_options *options, uint64_t random);

/* ---- score.c: rows of logits against a text and against another model's ----------- */

typedef struct {
    double log_p;      /* ln of the id's probability */
    double base_log_p; /* the same in the kept row; 0 without one */
    double kl;         /* divergence of these logits from the kept row, KL(kept || these), in nats; 0 without one */
    int32_t top;       /* the id with the greatest logit, the first of equals */
    int32_t base_top;  /* of the kept row; -1 without one */
} logit_score;

/* out [n_row] = of logits f32 [n_row, n], all finite, and ids [n_row] below n. kept: rows of keep_logits, or NULL; any bits do. */
void score_logits(logit_score *out, const float *logits, const int32_t *ids, const uint8_t *kept, int32_t n_row, int32_t n);
/* kept u8 [n_row, kept_row_bytes(n)] = logits f32 [n_row, n], all finite, in 16 bits each. */
void keep_logits(uint8_t *kept, const float *logits, int32_t n_row, int32_t n);
int64_t kept_row_bytes(int32_t n);
/* The first of n_row rows of n that keep_logits cannot have written: its checksum, greatest id or step; or -1. */
int32_t first_bad_kept(const uint8_t *kept, int32_t n_row, int32_t n);

/* ---- crc32c.c: checksums ------------------------------------------------------ */

/* CRC32C (RFC 3720 section 12.1) of n bytes at p, continuing from crc; 0 before the first byte. */
uint32_t crc32c(uint32_t crc, const uint8_t *p, uint64_t n);
/* The same without the processor's instruction: what crc32c is where there is none. */
uint32_t crc32c_plain(uint32_t crc, const uint8_t *p, uint64_t n);

/* ---- math64.c: the same bits on every machine ---------------------------------- */

/* e^x: 0 below -745.14, infinity above 709.79, NaN of NaN; error below 1 ulp. */
double sluice_exp(double x);
/* ln x: -infinity of 0, NaN of x < 0 and of NaN, infinity of infinity; error below 1 ulp. */
double sluice_log(double x);
/* s = sin x, c = cos x for |x| <= 2^23, error below 1 ulp; both NaN beyond and of NaN. */
void sluice_sincos(double *s, double *c, double x);

/* ---- guard.c: a map whose file was cut ---------------------------------------- */

/* From now on a SIGBUS within [p, p + n_bytes), in any thread, writes `line` (UTF-8, no
 * newline, cut to 511 bytes) to stderr and exits with 74.  0; -1: 1,024 maps are registered. */
int32_t guard_map(const void *p, uint64_t n_bytes, const char *line);
/* Before the map is removed: forget it. */
void guard_forget(const void *p);

/* ---- threads.c: the pool ------------------------------------------------------- */

/* Makes the pool n threads wide, the caller's among them (1: no threads at all).  0, or -1: the system refused.
 * The operations below are for one caller at a time.  A forked child begins with a pool of one. */
int32_t threads_start(int32_t n);
int32_t threads_count(void);

/* cores.c: how many threads suit a process that may run on these CPUs (cpu [n_cpu], ids of Linux).  proc, sys: "/proc", "/sys". */
int32_t threads_default(const char *proc, const char *sys, const int32_t *cpu, int32_t n_cpu);

/* ---- dispatch.c: the operations, by the best instruction set this machine has ----- */
/* The bits of every result are those of reference.c (of products with terms, of reference_fast.c) whatever the set, threads and rows. */

/* One of isa_known, or "" for the best.  0; -1: no such name; -2: not on this machine. */
int32_t isa_select(const char *name);
/* The instruction sets of this build, the best first: "amx", "avx512", "avx-vnni", "avx2" or "i8mm", "neon", then "reference"; NULL after
 * the last. */
const char *isa_known(int32_t i);
const char *isa_name(void);

/* Rows that a product of quantised weights with one token reads side by side (avx512_matvec.c): 1 or 4, as suits the processor, or as a
 * test has set it; 0: as suits. */
int32_t matvec_streams(void);
void matvec_streams_set(int32_t n);

/* y f32 [n_tok, n] = scale * the rows ids of w, type [*, n]. */
void embed(float *y, int32_t type, const void *w, const int32_t *ids, int32_t n_tok, int32_t n, float scale);

/* Activations for weights in blocks of 32: x f32 [n_tok, n] ~ d q.  n % 32 == 0.
 * q i8 [n_tok, n], -127 ... 127; d f32 [n_tok, n/32] scales; s f32 [n_tok, n/32]: d times the sum of the block's q. */
void quantize_q8(int8_t *q, float *d, float *s, const float *x, int32_t n_tok, int32_t n);

/* The same for weights in blocks of 256.  n % 256 == 0.
 * q i8 [n_tok, n], -127 ... 127; d f32 [n_tok, n/256] scales; sums i16 [n_tok, n/16]: of 16 q each. */
void quantize_q8_k(int8_t *q, float *d, int16_t *sums, const float *x, int32_t n_tok, int32_t n);

/* y f32 [n_tok, n_row] = x w^T, w type [*, n]: its first n_row rows, or the rows named in rows [n_row] if not NULL.
 * F32, F16, BF16 read x f32 [n_tok, n]; types in blocks of 32 the q, d, s of quantize_q8; types in blocks of 256 the q, d, sums
 * of quantize_q8_k.  What is not read may be NULL. */
void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x, const int8_t *q, const float *d,
            const float *s, const int16_t *sums, int32_t n_tok, int32_t n_row, int32_t n);
/* The same for one or more products, of which none reads what another writes: the threads wait for each other once. */
typedef struct product {
    float *y; const void *w; const int32_t *rows; const float *x; const int8_t *q; const float *d, *s;
    const int16_t *sums; int32_t type, n_tok, n_row, n;
    const uint16_t *terms; /* of split_bf16: F32, F16, BF16 weights in the arithmetic of reference_fast.c; NULL: in that of reference.c */
    const void *packed; /* for matmuls itself */
    const struct product *then; int32_t n_then; /* in the first of a group: NULL, or the next group, whose weights threads that wait ask for */
} product;
void matmuls(product *p, int32_t n_product);

/* Whether the chosen instruction set has products with `terms`: 1 or 0. */
int32_t fast_supported(void);
/* terms [terms_size(n_tok, n)] = x f32 [n_tok, n] as sums of bf16, in a form that is the instruction set's own, for all products with x.
 * They read x, too: it must not have changed. */
void split_bf16(uint16_t *terms, const float *x, int32_t n_tok, int32_t n);
int64_t terms_size(int32_t n_tok, int32_t n);

/* y f32 [n_row, n] = w x / sqrt(mean(x^2) + eps), row by row; w f32 [n]; y may be x. */
void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps);

/* freq f64 [n_pair]: base^(-i / n_pair) / (linear * factor[i]), factor f32 [n_pair] or NULL for ones. */
void rope_freq(double *freq, const float *factor, int32_t n_pair, double base, double linear);
/* freq f64 [n_pair]: base^(-i / n_pair) as it is for pairs that turn `fast` times or more within n_ctx positions, divided by `factor`
 * for those that turn `slow` times or less, a blend, linear in i, between.  base > 1; n_ctx, factor, fast >= slow > 0. */
void rope_freq_yarn(double *freq, int32_t n_pair, double base, double factor, double n_ctx, double fast, double slow);
/* cs f32 [n_tok, n_pair, 2]: cosine and sine of (pos + t) freq[i], times `scale`. */
void rope_angles(float *cs, const double *freq, int32_t pos, int32_t n_tok, int32_t n_pair, double scale);
/* Rotates x f32 [n_tok, n_head, head_dim] in place, the first 2 n_pair elements of each head: elements 2i and 2i + 1,
 * or i and i + n_pair where half is not 0. */
void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim, int32_t n_pair, int32_t half);

/* y, a cache of type F32, F16 or, where n is a multiple of 32, Q8_0 [n] = x f32 [n]. */
void cache_store(void *y, int32_t type, const float *x, int64_t n);

/* o f32 [n_tok, n_head, head_dim]: causal attention of the queries q (same shape) at positions pos ... pos + n_tok - 1
 * over rows 0 ... of the caches k, v: type [*, n_head_kv, head_dim], F32, F16 or, where head_dim is a multiple of 32, Q8_0.  Position p
 * sees the last window positions up to p (0: all).  A score is scale q k, then soft_cap of it where cap is not 0.  scores: scratch f32
 * [attention_scores(...)]. */
void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores, int32_t n_tok,
               int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t window, float scale, float cap);
/* Floats of scratch for a call of attention, with the pool and the instruction set as they are. */
int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv);

/* gate f32 [n] = silu(gate) up;  silu(x) = x / (1 + exp(-x)). */
void silu_mul(float *gate, const float *up, int64_t n);
/* gate f32 [n] = gelu(gate) up;  gelu(x) = x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), the tanh form. */
void gelu_mul(float *gate, const float *up, int64_t n);
/* x f32 [n] = cap tanh(x / cap), cap > 0. */
void soft_cap(float *x, int64_t n, float cap);
/* x f32 [n] += y. */
void add(float *x, const float *y, int64_t n);
/* x f32 [n_tok, n] += b f32 [n], row by row. */
void add_bias(float *x, const float *b, int32_t n_tok, int32_t n);
/* Index of the first infinity or NaN in x f32 [n], or -1. */
int64_t first_nonfinite(const float *x, int64_t n);

/* ---- replay.c: calls of the operations above, from a list ---------------------------- */

enum { CALL_EMBED, CALL_QUANTIZE_Q8, CALL_QUANTIZE_Q8_K, CALL_SPLIT_BF16, CALL_MATMULS, CALL_RMSNORM, CALL_ROPE, CALL_CACHE_STORE,
       CALL_ATTENTION, CALL_SILU_MUL, CALL_GELU_MUL, CALL_ADD, CALL_ADD_BIAS };

/* kind: one of CALL_...; then the parameters of the function of that name, in its order.  Those of cache_store are the cache, whose rows
 * of row_bytes bytes are positions, and attention's own pos does not count. */
typedef struct {
    int32_t kind;
    union {
        struct { float *y; int32_t type; const void *w; const int32_t *ids; int32_t n_tok, n; float scale; } embed;
        struct { int8_t *q; float *d, *s; const float *x; int32_t n_tok, n; } quantize_q8;
        struct { int8_t *q; float *d; int16_t *sums; const float *x; int32_t n_tok, n; } quantize_q8_k;
        struct { uint16_t *terms; const float *x; int32_t n_tok, n; } split_bf16;
        struct { product *p; int32_t n_product; } matmuls;
        struct { float *y; const float *x, *w; int32_t n_row, n; float eps; } rmsnorm;
        struct { float *x; const float *cs; int32_t n_tok, n_head, head_dim, n_pair, half; } rope;
        struct { void *y; int32_t type; const float *x; int64_t n, row_bytes; } cache_store;
        struct { float *o; const float *q; int32_t type; const void *k, *v; float *scores; int32_t n_tok, pos, n_head, n_head_kv, head_dim,
                 window; float scale, cap; } attention;
        struct { float *y; const float *x; int64_t n; } pair; /* silu_mul, gelu_mul, add */
        struct { float *x; const float *b; int32_t n_tok, n; } add_bias;
    };
} operation;
/* Makes n calls, each behind the one before; the token is at position pos. */
void replay(const operation *p, int64_t n, int32_t pos);

/* ---- limits.c: what the machine could do, measured beside what the kernels do --------- */

/* Reads the n_bytes at p once, lines of 64, by all threads.  Returns a sum of what it read, so that no compiler leaves it out. */
uint64_t limit_read(const void *p, int64_t n_bytes);
/* Multiplies and adds in registers alone, on all threads, and returns how many operations that were, a multiplication and
 * an addition each counting as one; 0 where this machine or the chosen instruction set has no such unit. */
enum { LIMIT_FMA_F32, LIMIT_DOT_INT8, LIMIT_TILE_INT8, LIMIT_TILE_BF16, LIMIT_FMA_TILES };
int64_t limit_products(int32_t unit, int64_t n_round);

/* ---- marking.c: the headers that say what was found about a mail -------------------- */

enum { MARK_YES, MARK_NO, MARK_UNSURE, MARK_UNCHECKED };
enum { MARK_TIMEOUT, MARK_SIZE, MARK_MEMORY, MARK_CRASHED, MARK_MODEL, MARK_EMPTY, MARK_ATTEMPTS, MARK_INPUT, MARK_WORKER, MARK_SKIPPED };
enum { MARK_BYTES = 512 }; /* enough for mark_headers */

typedef struct {
    int32_t answer;    /* MARK_YES the first answer of the question, MARK_NO another one, MARK_UNSURE, MARK_UNCHECKED none */
    int32_t reason;    /* of MARK_UNCHECKED: MARK_TIMEOUT ... MARK_SKIPPED */
    char score[7];     /* "0.9931", zero-terminated as the others: probability of the first answer */
    char required[7];  /* from which it counts */
    char model[17];    /* 16 hexadecimal digits */
} mail_verdict;

/* The word of a reason ("timeout"), NULL: there is none of that number. */
const char *mark_word(int32_t reason);
/* The verdict in a line of `classify --long` or of a worker, without its newline: "yes 0.9931 0.9386 3f9a0c1b2d4e5f60"
 * (or no, unsure), or "error WORD".  0, or -1: the line is anything else. */
int32_t mark_read(mail_verdict *out, const uint8_t *line, uint64_t n_bytes);
/* out [MARK_BYTES] = the headers of a verdict, each "Name: value\n", zero-terminated.  Returns their bytes. */
int64_t mark_headers(char *out, const mail_verdict *v);

typedef struct {
    uint64_t n_out;     /* bytes of the new beginning: n_read + 2 head_bytes + 4 at most */
    uint64_t n_read;    /* bytes of the mail that it replaces; all behind them stays as it is */
    uint64_t n_removed; /* headers that were taken out */
    uint64_t n_status;  /* how many of them were an X-Spam-Status */
} mail_marking;

/* The beginning of mail [n_bytes] without its own headers, and `head` [head_bytes], lines that end in \n, on its top:
 * to [n_out], or NULL: it is only measured.  Line ends of what is added are those of the mail's first line; without a head nothing is. */
void mark_mail(mail_marking *out, uint8_t *to, const uint8_t *mail, uint64_t n_bytes, const uint8_t *head, uint64_t head_bytes);
