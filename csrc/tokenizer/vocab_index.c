/* vocab_index.c - text to token: a hash table of all tokens, and a trie of control and user defined
 * tokens, which are matched whole.
 *
 * The hash table uses open addressing and is at most half full. A slot has 32 bits, {10 bits of the
 * hash, token + 1}: small, because cache misses take the time. The trie is in vocab_trie.h.
 *
 * The hash is seeded against hash flooding: without the seed, a file cannot be made whose texts
 * collide. Results do not depend on the seed. */
#include <string.h>
#include "tokenizer/alphabet.h"
#include "tokenizer/vocab_trie.h"
#include "tokenizer/vocabulary.h"

/* bits of token + 1 in a slot; tokens whose slots are prefetched together */
enum { ID_BITS = 22, BLOCK = 32 };
#define SLOT_ID ((1u << ID_BITS) - 1)
_Static_assert(MAX_VOCAB < 1 << ID_BITS && MAX_TRIE_BYTES < 1 << NODE_BITS,
               "tokens and nodes fit their bits");

__extension__ typedef unsigned __int128 uint128;

static inline uint64_t load(const uint8_t *p, size_t n)
{
    uint64_t w = 0;
    memcpy(&w, p, n);
    return w;
}

/* The 128-bit product, its halves folded: every bit of x reaches every bit of the result. */
static inline uint64_t fold(uint64_t x, uint64_t k)
{
    const uint128 product = (uint128)x * k;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t text_hash(const uint8_t *p, uint64_t n, uint64_t seed)
{
    uint64_t h = seed ^ n * 0x9e3779b97f4a7c15u;
    for (; n >= 8; p += 8, n -= 8)
        h = fold(h ^ load(p, 8), 0xd6e8feb86659fd93u);
    if (n >= 4)
        h ^= load(p, 4) | load(p + n - 4, 4) << 32;
    else if (n)
        h ^= p[0] | (uint64_t)p[n / 2] << 8 | (uint64_t)p[n - 1] << 16;
    return fold(h ^ seed >> 7, 0xa0761d6478bd642fu);
}

static inline int text_equals(const vocab *v, int32_t id, const uint8_t *text, uint64_t n_bytes)
{
    return v->piece[id].n_bytes == n_bytes && !memcmp(piece_text(v, v->piece + id), text, n_bytes);
}

static inline uint32_t slot_of(uint64_t h, int32_t id)
{
    return (uint32_t)(h >> (32 + ID_BITS)) << ID_BITS | ((uint32_t)id + 1);
}

int32_t vocab_find(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t kinds)
{
    const uint64_t h = text_hash(text, n_bytes, v->seed);
    const uint32_t wanted = slot_of(h, -1);
    for (uint32_t i = (uint32_t)h & v->slot_mask; v->slot[i]; i = (i + 1) & v->slot_mask) {
        if ((v->slot[i] ^ wanted) > SLOT_ID)
            continue;
        const int32_t id = (int32_t)((v->slot[i] & SLOT_ID) - 1);
        if (kinds >> v->piece[id].kind & 1 && text_equals(v, id, text, n_bytes))
            return id;
    }
    return -1;
}

uint64_t vocab_match(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t sets)
{
    return match_in_trie(v, text, n_bytes, sets);
}

static void add_to_trie(vocab *v, const uint8_t *text, uint32_t n_bytes, uint32_t set)
{
    uint32_t node = 0;
    uint64_t *edge = v->edge;
    for (uint32_t i = 0; i < n_bytes; i++) {
        edge = find_edge(v, node, text[i]);
        if (!*edge)
            *edge = (uint64_t)(node << 8 | text[i]) << 32 | ++v->n_node;
        node = (uint32_t)*edge & EDGE_NODE;
    }
    *edge |= (uint64_t)set << NODE_BITS;
    v->first[text[0]] |= (uint8_t)set;
}

/* Two tokens may have the same text if their classes differ: 1 made by merges, 2 matched first, 0
 * all others. */
static inline int class_of_kind(const vocab *v, uint8_t kind)
{
    return v->text_kinds >> kind & 1                        ? 1
        : kind == PIECE_ADDED || kind == PIECE_ADDED_MARKER ? 2
                                                            : 0;
}

/* Of two tokens with the same text the one with the higher rank is used. Equal ranks are an error.
 */
static inline int rank(const vocab_piece *piece)
{
    return is_user(piece->kind) ? 1 + (piece->flags & PIECE_RESPELT) : 0;
}

/* Enters token `id`, whose text has hash h. Returns a conflicting token with the same text, or -1.
 */
static int32_t enter(vocab *v, int32_t id, uint64_t h)
{
    const vocab_piece *piece = v->piece + id;
    const uint8_t *text = piece_text(v, piece);
    const uint32_t wanted = slot_of(h, id);
    const int class = class_of_kind(v, piece->kind);
    uint32_t i = (uint32_t)h & v->slot_mask;
    for (; v->slot[i]; i = (i + 1) & v->slot_mask) {
        if ((v->slot[i] ^ wanted) > SLOT_ID)
            continue;
        const int32_t other = (int32_t)((v->slot[i] & SLOT_ID) - 1);
        if (class_of_kind(v, v->piece[other].kind) != class
            || !text_equals(v, other, text, piece->n_bytes))
            continue;
        const int a = rank(piece), b = rank(v->piece + other);
        if (a == b || (!class && (!a || !b)))
            return other;
        if (a < b)
            return -1;
        break; /* it replaces the other */
    }
    v->slot[i] = wanted;
    if (set_of(piece->kind))
        add_to_trie(v, text, piece->n_bytes, set_of(piece->kind));
    return -1;
}

int32_t vocab_index(vocab_clash *out, vocab *v)
{
    uint64_t h[BLOCK];
    v->n_node = 0;
    memset(v->first, 0, sizeof v->first);
    for (int32_t first = 0; first < v->n_vocab; first += BLOCK) {
        const int32_t n = v->n_vocab - first < BLOCK ? v->n_vocab - first : BLOCK;
        for (int32_t i = 0; i < n; i++) {
            const vocab_piece *piece = v->piece + first + i;
            h[i] = text_hash(piece_text(v, piece), piece->n_bytes, v->seed);
            __builtin_prefetch(v->slot + ((uint32_t)h[i] & v->slot_mask), 1);
        }
        for (int32_t i = 0; i < n; i++) {
            const vocab_piece *piece = v->piece + first + i;
            if (!piece->n_bytes || (piece->kind == PIECE_UNUSED && v->model != VOCAB_SPM))
                continue; /* no text becomes it, and it has no text */
            const int32_t other = enter(v, first + i, h[i]);
            if (other >= 0) {
                *out = (vocab_clash){.id = first + i, .other = other};
                return 1;
            }
        }
    }
    for (int32_t byte = 0; byte < 256 && v->model == VOCAB_BYTES; byte++) {
        const uint8_t one = (uint8_t)byte;
        uint8_t letter[2];
        v->byte_id[byte] =
            vocab_find(v, letter, alphabet_encode(letter, &one, 1), 1u << PIECE_NORMAL);
    }
    return 0;
}
