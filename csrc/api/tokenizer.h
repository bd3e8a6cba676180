/* tokenizer.h - vocabularies, and text to tokens: SentencePiece BPE and byte-level BPE. */
#ifndef SLUICE_API_TOKENIZER_H
#define SLUICE_API_TOKENIZER_H
#include <stdint.h>

/* ---- vocab_*.c, merge_list.c: a vocabulary ----------------------------------------- */

typedef struct {
    uint32_t at;      /* where its text begins in vocab.tokens or vocab.respelt */
    float score;      /* SentencePiece: the merge with the highest score is made first */
    uint16_t n_bytes; /* of its text */
    uint8_t kind;     /* PIECE_... */
    uint8_t flags;    /* OR of PIECE_RESPELT, PIECE_LSTRIP, PIECE_RSTRIP */
} vocab_piece;

/* Kinds of pieces; the first six are the types of GGUF files. A user defined piece is of one of
 * four kinds: it may have the form of a chat marker (MARKER), and it may have been added to a
 * SentencePiece vocabulary by another tokenizer (ADDED), which matches it first. */
enum {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE,
    PIECE_MARKER,
    PIECE_ADDED,
    PIECE_ADDED_MARKER
};
enum {
    PIECE_RESPELT = 1, /* its text has U+2581 for the spaces in the file, and is in `respelt` */
    /* when it is split off a text, it includes the white space before it */
    PIECE_LSTRIP = 2,
    PIECE_RSTRIP = 4 /* the white space behind it */
};

/* tokenizer.ggml.model "llama", "gpt2" (byte-level), "gemma4" */
enum { VOCAB_SPM, VOCAB_BYTES, VOCAB_MERGES };

typedef struct {
    /* n_vocab times {u64 n_bytes, bytes}, as in the file; validated by gguf_skip_strings */
    const uint8_t *tokens;
    const uint8_t *scores; /* f32 [n_vocab], any alignment; NULL: not of this model */
    const uint8_t *types;  /* i32 [n_vocab], any alignment */
    uint8_t *respelt;      /* [respelt_capacity] */
    /* texts, with a zero byte before and after each: user defined pieces that are control */
    const uint8_t *end_marks;
    /* n_merge times {u64 n_bytes, "left right"}, as in the file; validated, too */
    const uint8_t *merges;
    vocab_piece *piece;   /* [n_vocab] */
    uint16_t *n_left;     /* [n_merge] bytes of the left half */
    uint32_t *last_merge; /* [n_vocab], zeroed: 1 + the last merge that makes this token */
    uint32_t
        *merge_before; /* [n_merge]: 1 + the previous merge that makes the same token, 0: none */
    /* [slot_mask + 1], zeroed: hash table of text -> token; n_vocab <= MAX_VOCAB */
    uint32_t *slot;
    /* [edge_mask + 1], zeroed: trie of the texts of control and user defined pieces */
    uint64_t *edge;
    uint64_t tokens_bytes, merges_bytes, respelt_capacity, end_marks_bytes;
    /* seed of the hashes: any number, best one that the writer of the file cannot know */
    uint64_t seed;
    uint32_t slot_mask, edge_mask;
    uint32_t n_node;
    int32_t n_vocab;
    int32_t n_merge;
    int32_t model;         /* VOCAB_... */
    int32_t pre;           /* PRE_..., of VOCAB_BYTES */
    int32_t ignore_merges; /* a word that is a token becomes that token without merging */
    int32_t unknown;       /* token for text without a piece, if there is no byte fallback */
    int32_t byte_id[256];  /* byte tokens; -1: missing */
    int32_t add_prefix;    /* SentencePiece: a space is put before the text */
    uint32_t respelt_bytes;
    uint32_t max_bytes;  /* of the longest text that merges can make */
    uint32_t trie_bytes; /* of all texts in the trie */
    uint32_t text_bytes; /* of all tokens */
    uint32_t text_kinds; /* set of the kinds that merges make (bit 1 << kind) */
    uint8_t has_bytes;   /* byte fallback: text without a piece becomes byte tokens */
    uint8_t has_unused;
    uint8_t added_scores; /* the scores tell which pieces were added */
    uint8_t has_added;    /* user defined pieces that are matched first */
    uint8_t words_apart;  /* no piece spans the beginning of a word */
    uint8_t first[256];   /* the sets (SET_...) with a text that begins with this byte */
} vocab;

/* Sets of texts in the trie, by kind; can be ORed. */
enum { SET_USER = 1, SET_CONTROL = 2, SET_MARKER = 4, SET_ADDED = 8, SET_ADDED_MARKER = 16 };

typedef struct {
    int32_t id, other; /* of an error: the token, and the token it conflicts with */
} vocab_clash;

/* Fills piece [n_vocab] and all members of v, except pointers, masks, the seed and the rules of the
 * model. The tokens special [n_special] are control tokens whatever their type (-1: none). Returns
 * 0, or the error of token out->id: 1 score not finite, 2 type not 1 to 6, 3 byte token malformed,
 * 4 text too long, 5 a byte token is missing (out->other: which), in a byte-level vocabulary: 6 a
 * byte token, 7 a user defined token that is not UTF-8. */
int32_t vocab_scan(vocab_clash *out, vocab *v, const int32_t *special, int32_t n_special);
/* Fills slot, edge and, in a byte-level vocabulary, byte_id. 0; 1: tokens out->id and out->other
 * have the same text. */
int32_t vocab_index(vocab_clash *out, vocab *v);
/* Sets flags of all pieces whose kind is in the set `kinds`. */
void vocab_flag(vocab *v, uint32_t kinds, uint8_t flags);
/* The token with this text whose kind is in the set `kinds` (bit 1 << kind), or -1. */
int32_t vocab_find(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t kinds);
/* Bytes of the longest text in `sets` that text [n_bytes] begins with; 0: none. */
uint64_t vocab_match(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t sets);

typedef struct {
    uint64_t at, end; /* of the token in the text; both n_bytes: no token */
    int32_t id;
} vocab_cut;

/* Finds the first token at or after `at` that is split off raw text [n_bytes] before encoding: the
 * leftmost, then the longest, in `sets` of control and added texts. A longer piece of `user`
 * (SET_USER, SET_MARKER) takes precedence and is skipped. */
void vocab_next_cut(vocab_cut *out, const vocab *v, const uint8_t *text, uint64_t n_bytes,
                    uint64_t at, uint32_t sets, uint32_t user);
/* Fills n_left, last_merge and merge_before; call it after vocab_index. Returns 0, or the error of
 * line out->id of the merges: 1 not two texts with a space between, 2 the result is not a normal
 * token, 3 it repeats line out->other. */
int32_t vocab_index_merges(vocab_clash *out, vocab *v);
/* Detokenizer table: token i stands for text[offset[i] .. offset[i + 1]); text [text_bytes], offset
 * [n_vocab + 1]. Empty for unknown, control and unused tokens. */
void vocab_table(uint8_t *text, uint32_t *offset, const vocab *v);

/* ---- merge.c, spm.c: SentencePiece BPE and Gemma 4 ---------------------------- */

typedef struct {
    int32_t prev, next; /* neighbours; -1: none */
    uint32_t at, n_bytes;
    int32_t id; /* -1: not looked up */
} merge_symbol;

typedef struct {
    uint64_t key;     /* priority and position: the greatest is merged first */
    uint32_t n_bytes; /* of both symbols together */
    int32_t id;       /* of the piece they make */
} merge_pair;

/* `user` (SET_USER, SET_MARKER): the user defined pieces that the text may become. */
/* out [3 n_bytes + 3] = text as normalized by SentencePiece. Returns its bytes. */
uint64_t spm_normalize(uint8_t *out, const vocab *v, uint32_t user, const uint8_t *text,
                       uint64_t n_bytes, int32_t add_prefix, int32_t remove_extra);
/* Symbols of the longest part of a normalized text that is merged as a whole. */
uint64_t spm_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes);
/* id [n_bytes] = tokens of a normalized text of at most 2^31 - 1 bytes. Returns their number. Work:
 * symbol [n], pair [2 n] for n = spm_longest; split [n_vocab], used only if has_unused. */
uint64_t spm_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v,
                    uint32_t user, merge_symbol *symbol, merge_pair *pair, uint32_t *split);

/* ---- pretokenize.c, alphabet.c, utf8.c, bpe.c: byte-level BPE ------------------------- */

enum {
    PRE_GPT2,
    PRE_LLAMA3,
    PRE_QWEN2,
    PRE_QWEN35,
    PRE_TEKKEN,
    PRE_STARCODER,
    PRE_DEEPSEEK_LLM,
    PRE_GPT4O
};
/* ends of the current part of each rule; zero before the first word of a text */
typedef struct { uint64_t end[6]; } word_ends;
/* The end of the word that begins at byte `at` of UTF-8 text [n_bytes], at < n_bytes. Call it for
 * the words in order. */
uint64_t pretokenize(word_ends *w, const uint8_t *text, uint64_t at, uint64_t n_bytes, int32_t pre);

/* The end of the white space (\s, whole characters) that begins at `at` of text [end], and the
 * beginning, `at` or later, of the white space that ends at `end`. */
uint64_t white_space_end(const uint8_t *text, uint64_t at, uint64_t end);
uint64_t white_space_begin(const uint8_t *text, uint64_t at, uint64_t end);

/* out [3 n_bytes] = text with U+FFFD for each byte that is not UTF-8. Returns its bytes. */
uint64_t utf8_repair(uint8_t *out, const uint8_t *text, uint64_t n_bytes);
/* out [2 n_bytes] = text in the byte-level alphabet, in which files write normal tokens. Returns
 * its bytes. */
uint64_t alphabet_encode(uint8_t *out, const uint8_t *text, uint64_t n_bytes);
/* Bytes of the longest word of a UTF-8 text. */
uint64_t bpe_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes);
/* id [n_bytes] = tokens of a UTF-8 text of at most 2^31 - 1 bytes. Returns their number. Work, for
 * n = bpe_longest: letters [2 n], symbol [n], pair [2 n]. */
uint64_t bpe_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v,
                    uint32_t user, uint8_t *letters, merge_symbol *symbol, merge_pair *pair);
#endif
