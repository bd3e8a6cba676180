/* internal.h - what C files say to each other and Python does not see. */
#ifndef SLUICE_INTERNAL_H
#define SLUICE_INTERNAL_H
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include "api/kernels.h"

#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bits that reference.c defines need IEEE arithmetic as written, and files are little-endian"
#endif

/* GGML type numbers. */
enum {
    T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q4_1 = 3, T_Q5_0 = 6, T_Q5_1 = 7, T_Q8_0 = 8, T_Q2_K = 10, T_Q3_K = 11, T_Q4_K = 12,
    T_Q5_K = 13, T_Q6_K = 14, T_IQ4_NL = 20, T_IQ4_XS = 23, T_BF16 = 30
};
static inline int has_min(int32_t type)
{
    return type == T_Q4_1 || type == T_Q5_1 || type == T_Q2_K || type == T_Q4_K || type == T_Q5_K;
}

/* Blocks of 32 weights as GGUF stores them.  d, m: IEEE half, the bits. */
typedef struct { uint16_t d; uint8_t q[16]; } block_q4_0;             /* w = d (q - 8); element i: the low half of q[i], i + 16: the high */
typedef struct { uint16_t d, m; uint8_t q[16]; } block_q4_1;          /* w = d q + m; as above */
typedef struct { uint16_t d; uint8_t h[4], q[16]; } block_q5_0;       /* w = d (q - 16); as above, bit 4 of element i is bit i of h */
typedef struct { uint16_t d, m; uint8_t h[4], q[16]; } block_q5_1;    /* w = d q + m; as above */
typedef struct { uint16_t d; int8_t q[32]; } block_q8_0;              /* w = d q */
typedef struct { uint16_t d; uint8_t q[16]; } block_iq4_nl;           /* w = d iq4_value[q]; as q4_0 */

/* Blocks of 256, in groups of 16 or 32 with a small integer as scale of each, sc, and minimum, m.  Where the bits of
 * element i and of the scales are: unpack_256 in quant.c. */
enum { BLOCK_K = 256, GROUP_K = 16 };
typedef struct { uint8_t sc[16], q[64]; uint16_t d, dmin; } block_q2_k;         /* w = d sc q - dmin m, 2 bits; groups of 16 */
typedef struct { uint8_t h[32], q[64], sc[12]; uint16_t d; } block_q3_k;        /* w = d (sc - 32) (q - 4), 2 bits in q, 1 in h; 16 */
typedef struct { uint16_t d, dmin; uint8_t sc[12], q[128]; } block_q4_k;        /* w = d sc q - dmin m, 4 bits; 32 */
typedef struct { uint16_t d, dmin; uint8_t sc[12], h[32], q[128]; } block_q5_k; /* w = d sc q - dmin m, 4 bits in q, 1 in h; 32 */
typedef struct { uint8_t q[128], h[64]; int8_t sc[16]; uint16_t d; } block_q6_k; /* w = d sc (q - 32), 4 bits in q, 2 in h; 16 */
typedef struct { uint16_t d, sch; uint8_t sc[4], q[128]; } block_iq4_xs;        /* w = d (sc - 32) iq4_value[q], 4 bits; 32 */

_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22 && sizeof(block_q5_1) == 24
               && sizeof(block_q8_0) == 34 && sizeof(block_iq4_nl) == 18, "GGUF block sizes");
_Static_assert(sizeof(block_q2_k) == 84 && sizeof(block_q3_k) == 110 && sizeof(block_q4_k) == 144 && sizeof(block_q5_k) == 176
               && sizeof(block_q6_k) == 210 && sizeof(block_iq4_xs) == 136, "GGUF block sizes");

/* Elements that share a scale. */
static inline int32_t group_of(int32_t type) { return type == T_Q4_K || type == T_Q5_K || type == T_IQ4_XS ? 32 : 16; }

/* Byte of a block where d is; dmin, where there is one, comes after it. */
static inline int64_t at_d(int32_t type)
{
    switch (type) {
    case T_Q2_K: return offsetof(block_q2_k, d);
    case T_Q3_K: return offsetof(block_q3_k, d);
    case T_Q6_K: return offsetof(block_q6_k, d);
    default: return 0;
    }
}

/* quant.c: a block of any such type as integers.  w = d q + m, and w = d scale q - m min with scale and min of the
 * element's group of 16 (a group of 32 is two); m is 0 for types that have none. */
typedef struct { float d, m; int8_t q[32]; } unpacked_32;
typedef struct { float d, m; int8_t scale[BLOCK_K / GROUP_K], min[BLOCK_K / GROUP_K], q[BLOCK_K]; } unpacked_256;
void unpack_32(unpacked_32 *u, int32_t type, const void *block);
void unpack_256(unpacked_256 *u, int32_t type, const void *block);
extern const int8_t iq4_value[16];

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* to nearest, ties to even */

/* threads.c: calls work(arg, begin, end, thread) for ranges that cover 0 ... n - 1, each of at least grain items but for
 * the last; which thread gets which range is left to chance, so no result may depend on it. */
void parallel(void (*work)(const void *arg, int64_t begin, int64_t end, int32_t thread), const void *arg, int64_t n,
              int64_t grain);
/* The first item of thread t's share; of the thread after the last, an item that is n or more. */
int64_t first_item(int64_t n, int64_t grain, int32_t t);
/* Where thread t may ask the memory for bytes that it will read in a later call, up to MOST_AHEAD of them, while it waits. */
void look_ahead_at(int32_t t, const void *p, int64_t n_bytes);

/* The arguments of kernels.h's functions of the same names. */
typedef product matmul_args;
typedef struct { const matmul_args *a; void *packed; int32_t block; } pack_args; /* elements of a block, or of f32 steps of a piece */
typedef struct { float *y; const float *x, *w; int32_t n; float eps; } rmsnorm_args;
typedef struct { int8_t *q; float *d, *s; int16_t *sums; const float *x; int32_t n; } quantize_args;
typedef struct { uint16_t *terms; const float *x; int32_t n_tok, n; } split_args;
typedef struct { float *x; const float *cs; int32_t n_head, head_dim, n_pair, half; } rope_args;
typedef struct { float *y; const float *x; } pair_args;
typedef struct { float *x; float cap; } cap_args;
typedef struct {
    float *o; const float *q; const void *k, *v; float *scores; int64_t n_scores;
    int32_t type, n_tok, pos, n_head, n_head_kv, head_dim, window; float scale, cap; /* cap 0: none */
    int32_t item_tok; /* tokens an item covers */
    uint8_t *held; int64_t n_held; int32_t held_rows; /* NULL, or n_held bytes a thread where keys and values of this many positions stay */
    int32_t steps, n_part; /* 0: items as they are; else parts of ATTEND_ALL, cut by heads, or of a step, cut by positions, queries, elements */
} attention_args;
enum { ATTEND_SCORES = 1, ATTEND_SOFTMAX = 2, ATTEND_VALUES = 4, ATTEND_ALL = 7, ATTEND_QUERIES = 512 /* at once */ };

/* Floats from the scores of one query to those of the next, for n positions and the inverse of their sum: lines of the cache, and an odd
 * number of them, 9 more than a multiple of 16, so that what several queries hold of the same positions does not meet in the same sets. */
static inline int64_t score_stride(int64_t n) { return ((n + 1 + 15) / 16 + 6) / 16 * 256 + 144; }

/* Of attention_args.held: bytes before the floats of a thread's share, and floats that n keys take as columns. */
enum { HELD_HEADER = 64 };
static inline int64_t held_keys(int64_t n, int64_t dim) { return ((n + 31) / 32 * dim + 8) * 32; }

/* Item i of n_item: head by head, so that those of one head find its keys and values in the second-level cache. */
typedef struct { int32_t t0, n_tok, head_kv; } attention_item;
static inline attention_item item_of(const attention_args *a, int64_t i)
{
    const int32_t n_block = (a->n_tok + a->item_tok - 1) / a->item_tok, t0 = (int32_t)(i % n_block) * a->item_tok;
    return (attention_item){t0, a->n_tok - t0 < a->item_tok ? a->n_tok - t0 : a->item_tok, (int32_t)(i / n_block)};
}

/* Part `part` of n things cut in n_part parts, all but the last a multiple of `unit`. */
typedef struct { int32_t begin, end; } span;
static inline span span_of(int32_t n, int32_t unit, int32_t n_part, int32_t part)
{
    const int64_t n_unit = (n + unit - 1) / unit, begin = n_unit * part / n_part * unit, end = n_unit * (part + 1) / n_part * unit;
    return (span){(int32_t)(begin < n ? begin : n), (int32_t)(end < n ? end : n)};
}

/* Of exp_f32 in reference.c: log2 e, - ln 2 in two parts, and the polynomial from its highest term on. */
#define exp_log2e 0x1.715476p0f
static const float exp_ln2[2] = {-0x1.62e4p-1f, -0x1.7f7d1cp-20f};
static const float exp_term[5] = {0x1.6a23d0p-10f, 0x1.123a20p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};

/* One instruction set: each operation over a range of items. */
typedef struct {
    const char *name;
    int32_t most_rows; /* that a share of a product should have, a multiple of 32 */
    void (*matmul)(const void *, int64_t, int64_t, int32_t);    /* matmul_args; items: rows of w */
    void (*quantize)(const void *, int64_t, int64_t, int32_t);  /* quantize_args; items: tokens */
    void (*quantize_k)(const void *, int64_t, int64_t, int32_t); /* the same in blocks of 256 */
    void (*rmsnorm)(const void *, int64_t, int64_t, int32_t);   /* rmsnorm_args; items: rows */
    void (*rope)(const void *, int64_t, int64_t, int32_t);      /* rope_args; items: tokens */
    void (*attention)(const void *, int64_t, int64_t, int32_t); /* attention_args; items: n_head_kv x blocks of item_tok, or n_part */
    void (*silu_mul)(const void *, int64_t, int64_t, int32_t);  /* pair_args; items: elements */
    void (*gelu_mul)(const void *, int64_t, int64_t, int32_t);
    void (*soft_cap)(const void *, int64_t, int64_t, int32_t);  /* cap_args; items: elements */
    void (*cache_store)(void *, int32_t, const float *, int64_t);
    int64_t (*packed_bytes)(int32_t block, int64_t n_tok, int64_t n); /* of int8 activations as matmul wants them; 0, none: as they are */
    void (*pack)(const void *, int64_t, int64_t, int32_t);      /* pack_args; items: sets of n_packed tokens */
    int32_t n_packed;
    int32_t float_piece; /* steps of a piece of f32 activations, packed as float_pack.h has it; 0: as they are */
    int32_t float_fewest; /* tokens for which that pays */
    int32_t cuts_attention; /* its attention knows steps and parts: else n_part is 0 */
} isa;
const isa *best_isa(void); /* isa.c: the chosen set, or the best that runs here */
int has_tiles_of_bf16(void);
extern const isa isa_reference, isa_avx2, isa_avx_vnni, isa_avx512, isa_amx, isa_neon, isa_i8mm;
void matmul_reference(const void *arg, int64_t begin, int64_t end, int32_t thread); /* other sets use it for types that they lack */
/* reference_blocks.c: y [token * n_row] = one row w of a block type with every token. */
void row_of_blocks(float *y, const matmul_args *a, const uint8_t *w);

/* reference_fast.c and amx_bf16.c: products of split_bf16's terms, and these.  Elements of a step, and of a stretch. */
enum { FAST_STEP = 32, FAST_STRETCH = 256, FAST_ROWS = 1024, FAST_TOKENS = 256 };
void matmul_fast_reference(const void *arg, int64_t begin, int64_t end, int32_t thread); /* matmul_args; items: rows of w */
void matmul_fast_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);
void split_reference(const void *arg, int64_t begin, int64_t end, int32_t thread); /* split_args; items: sets of 16 tokens */
void split_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);

static inline float bits_f32(uint32_t u) { union { uint32_t u; float f; } v = { .u = u }; return v.f; }
static inline uint32_t f32_bits(float f) { union { float f; uint32_t u; } v = { .f = f }; return v.u; }

/* spm.c, bpe.c: bytes of the UTF-8 character at p, 0: it is not one (overlong, surrogate, beyond U+10FFFF, cut). */
static inline uint32_t utf8_bytes(const uint8_t *p, uint64_t n)
{
    const uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4 || n < 2 || p[1] >> 6 != 2)
        return 0;
    if (c < 0xe0)
        return 2;
    if (n < 3 || p[2] >> 6 != 2)
        return 0;
    if (c < 0xf0)
        return (c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ? 0 : 3;
    if (n < 4 || p[3] >> 6 != 2)
        return 0;
    return (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f) ? 0 : 4;
}

/* The merge, counted from 1, that makes `id` with a left half of n_left bytes; 0: none. */
static inline uint32_t find_merge(const vocab *v, int32_t id, uint64_t n_left)
{
    uint32_t i = v->last_merge[id];
    while (i && v->n_left[i - 1] != n_left)
        i = v->merge_before[i - 1];
    return i;
}

/* Where the text of a piece is. */
static inline const uint8_t *piece_text(const vocab *v, const vocab_piece *piece)
{
    return (piece->flags & PIECE_RESPELT ? v->respelt : v->tokens) + piece->at;
}

/* The kinds of the user defined pieces in a text's `user` sets. */
static inline uint32_t user_kinds(uint32_t user)
{
    return (user & SET_USER ? 1u << PIECE_USER : 0) | (user & SET_MARKER ? 1u << PIECE_MARKER : 0);
}

/* merge.c: a part of a text, symbol by symbol, then its ids. */
typedef struct {
    const vocab *v;
    uint32_t kinds;  /* that merging makes: v->text_kinds, or fewer of them */
    const uint8_t *text;
    merge_symbol *symbol;
    merge_pair *pair;
    uint32_t *split; /* [n_vocab] of an unused piece: bytes of its left half, when last seen */
    uint64_t n_pair;
    int32_t n_symbol;
    int32_t *id;     /* where the next id goes */
    int after_unknown;
} merger;
void merge_add(merger *m, uint64_t at, uint64_t n_bytes, int frozen);                /* the next symbol; frozen: it merges with nothing */
void merge_emit(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id);       /* its id; -1: what stands for a text without one */
void merge_finish(merger *m);                                                        /* merges what was added, writes ids, begins anew */

/* bpe.c: the byte that a character of the byte-level alphabet stands for, -1: it is none of them.  p [n], n >= 1; *n_bytes: of the
 * character. */
int32_t alphabet_byte(uint32_t *n_bytes, const uint8_t *p, uint64_t n);

/* pushdown.c, used by grammar.c. */
enum { MAX_LIVE = 4096 };
struct grammar_frame {  /* parent < own number; frame 0 is the bottom */
    int32_t parent;
    int32_t where;      /* node to return to, or loop */
    int32_t count;      /* rounds done before this one; -1: not a loop */
    uint32_t hash;
    uint32_t shape;     /* hash of the stack but for its counts */
};
struct grammar_config { int32_t node, stack; };
struct grammar_work { int32_t node, stack, fresh; };
struct seen { uint32_t stamp; struct grammar_work work; };
struct grammar_closure { /* scratch of one step */
    struct seen *seen;
    int32_t n_seen, max_seen;
    uint32_t stamp;
    struct grammar_config live[MAX_LIVE];
    int32_t n_live;
    int complete;
};
static inline uint32_t grammar_mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9e3779b1u;
    return h ^ h >> 15;
}
int32_t grammar_reserve(void *array, int32_t *max, int64_t need, int64_t limit, size_t size);
int32_t grammar_rehash(int32_t **table, int32_t *n_slot, int32_t n, const void *hash, size_t stride);
int32_t pushdown_new(grammar *g);                                                 /* 0 or an error; free either way */
void pushdown_free(grammar *g);
int32_t pushdown_push(grammar *g, int32_t parent, int32_t where, int32_t count); /* the new stack, or an error */
void pushdown_begin(grammar *g);                                                  /* no live configuration, no work */
int32_t pushdown_reach(grammar *g, int32_t node, int32_t stack, int32_t fresh);
int32_t pushdown_close(grammar *g);                                               /* follow what takes no byte */
int32_t pushdown_settle(grammar *g);                                              /* into order, covered ones dropped */

/* grammar.c gives mask.c its states: numbers from 0, or one of the errors (negative). */
enum { STATE_UNKNOWN = -100 };
struct grammar {
    const grammar_node *node;
    const grammar_arc *arc;
    const int32_t *target;
    const grammar_loop *loop;
    int32_t n_loop, current, n_steps, tidy_frame, has_loops;
    uint8_t class_of[256], byte_of[256]; /* bytes no arc tells apart; one byte of each class */
    int32_t n_class;
    struct grammar_frame *frame; /* stacks: linked frames, equal ones stored once */
    int32_t *frame_hash, n_frame, max_frame, n_frame_hash;
    struct grammar_config *config; /* configurations of all states */
    int32_t n_config, max_config;
    struct grammar_states *state;
    int32_t *state_hash, n_state, max_state, n_state_hash;
    int32_t *step; /* [max_state, n_class]: the next state, or STATE_UNKNOWN */
    struct grammar_work *work;
    int32_t n_work, max_work;
    uint64_t n_mask_bytes;
    struct grammar_closure *closure;
};
struct grammar_states {
    int32_t first, n;       /* its configurations */
    uint32_t hash;
    uint8_t complete, last, n_visit;
    uint64_t loops;         /* what leads back to this state; see mask.c */
    uint64_t *mask;         /* cached answer of grammar_allowed, or NULL */
};
/* The state after `class`; negative: an error. */
int32_t grammar_next(grammar *g, int32_t state, int32_t class);
/* Forget all but the current state once the tables have grown; 0 or an error. */
int32_t grammar_tidy(grammar *g);
void grammar_drop_masks(grammar *g);

struct trie { /* nodes in preorder, so that a subtree and its ids are contiguous; node 0 is the root */
    int32_t n_node, n_vocab, max_depth;
    uint8_t *byte;
    uint16_t *depth;
    int32_t *end;      /* first node after the subtree */
    int32_t *first;    /* [n_node + 1] ids of node i: ids[first[i] .. first[i + 1]) */
    int32_t *ids;
    int32_t *path;     /* scratch [max_depth + 1] */
    uint64_t *below;   /* what is below each node, for class_of; see mask.c */
    uint8_t class_of[256];
};
#endif
