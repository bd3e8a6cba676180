/* merge_list.c - index the list of BPE merges (tokenizer.ggml.merges) of byte-level BPE and
 * Gemma 4.
 *
 * The token that a merge makes and the length of its left half identify the merge, so the index is
 * a linked list for each token. A merge whose halves never occur as symbols is never applied, as in
 * llama.cpp. */
#include <string.h>
#include "tokenizer/vocabulary.h"

__extension__ typedef unsigned __int128 uint128;

static inline uint128 load16(const uint8_t *p)
{
    uint128 w;
    memcpy(&w, p, 16);
    return w;
}

static inline uint128 first_bytes(uint64_t n) { return ((uint128)1 << 8 * n) - 1; } /* n < 16 */

/* The index of the separating space in a line [n]; n: none. Index 0 is skipped, because the left
 * half may begin with a space. */
static inline uint64_t find_space(const uint8_t *line, uint64_t n)
{
    uint64_t i = 1;
    while (i < n && line[i] != ' ')
        i++;
    return i;
}

/* The same for a line of at most 16 bytes; 16 bytes can be read. */
static inline uint64_t find_space_16(uint128 line, uint64_t n)
{
    const uint64_t one = 0x0101010101010101u;
    /* spaces become zero bytes; the first byte never */
    const uint64_t a = ((uint64_t)line ^ ' ' * one) | 0xff, b = (uint64_t)(line >> 64) ^ ' ' * one;
    /* the lowest bit set belongs to a zero byte */
    const uint64_t in_a = (a - one) & ~a & 0x80 * one, in_b = (b - one) & ~b & 0x80 * one;
    const uint64_t i = in_a ? (uint64_t)__builtin_ctzll(in_a) / 8
        : in_b              ? 8 + (uint64_t)__builtin_ctzll(in_b) / 8
                            : n;
    return i < n ? i : n;
}

/* Is token `id` normal, with the text of a line [n] without its space at `left`? */
static inline int makes(const vocab *v, int32_t id, const uint8_t *line, uint64_t n, uint64_t left)
{
    if (id < 0 || id >= v->n_vocab || v->piece[id].kind != PIECE_NORMAL
        || v->piece[id].n_bytes != n - 1)
        return 0;
    const uint8_t *text = v->tokens + v->piece[id].at;
    return !memcmp(text, line, left) && !memcmp(text + left, line + left + 1, n - 1 - left);
}

/* The same for a line of at most 16 bytes; `joined` is the line without its space, and 16 bytes of
 * the token can be read. */
static inline int makes_16(const vocab *v, int32_t id, uint128 joined, uint64_t n)
{
    if (id < 0 || id >= v->n_vocab || v->piece[id].kind != PIECE_NORMAL
        || v->piece[id].n_bytes != n - 1)
        return 0;
    return !((load16(v->tokens + v->piece[id].at) ^ joined) & first_bytes(n - 1));
}

/* The token that a line [n] makes, or -1. before: the token of the line before. Lists usually are
 * in the order of the tokens, so this token and the next are tried before the hash table. Most
 * texts are short; comparing 16 bytes as one number saves a fifth of the time of 514,906 merges. */
static inline int32_t made_by(const vocab *v, int32_t before, const uint8_t *line, uint64_t n,
                              uint64_t left, uint128 short_line)
{
    const int32_t last = before + 1;
    if (short_line && last < v->n_vocab && v->piece[last].at + 16 <= v->tokens_bytes) {
        const uint128 keep = first_bytes(left),
                      joined = (short_line & keep) | (short_line >> 8 & ~keep);
        for (int32_t id = before; id <= last; id++)
            if (makes_16(v, id, joined, n))
                return id;
    } else
        for (int32_t id = before; id <= last; id++)
            if (makes(v, id, line, n, left))
                return id;
    uint8_t text[MAX_TOKEN_BYTES];
    memcpy(text, line, left);
    memcpy(text + left, line + left + 1, n - 1 - left);
    return vocab_find(v, text, n - 1, 1u << PIECE_NORMAL);
}

int32_t vocab_index_merges(vocab_clash *out, vocab *v)
{
    const uint8_t *p = v->merges, *end = p + v->merges_bytes;
    int32_t id = -1;
    for (int32_t i = 0; i < v->n_merge; i++) {
        uint64_t n;
        memcpy(&n, p, 8);
        p += 8;
        out->id = i;
        const uint128 short_line = n <= 16 && end - p >= 16 ? load16(p) : 0;
        const uint64_t left = short_line ? find_space_16(short_line, n) : find_space(p, n);
        if (left + 1 >= n)
            return 1;
        id = n - 1 > v->max_bytes ? -1 : made_by(v, id, p, n, left, short_line);
        if (id < 0)
            return 2;
        const uint32_t other = find_merge(v, id, left);
        if (other) {
            out->other = (int32_t)other - 1;
            return 3;
        }
        v->n_left[i] = (uint16_t)left;
        v->merge_before[i] = v->last_merge[id];
        v->last_merge[id] = (uint32_t)i + 1;
        p += n;
    }
    return 0;
}
