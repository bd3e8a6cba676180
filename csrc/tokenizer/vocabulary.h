/* vocabulary.h - a piece (token) of a vocabulary: its text, its kind, the merges that make it. */
#ifndef SLUICE_TOKENIZER_VOCABULARY_H
#define SLUICE_TOKENIZER_VOCABULARY_H
#include <string.h>
#include "api/limits.h"
#include "api/tokenizer.h"

static const uint8_t SPACE[3] = {0xe2, 0x96, 0x81}; /* U+2581, written for a space */

static inline int is_space(const uint8_t *p, uint64_t n) { return n >= 3 && !memcmp(p, SPACE, 3); }

/* The merge, counted from 1, that makes `id` with a left half of n_left bytes; 0: none. */
static inline uint32_t find_merge(const vocab *v, int32_t id, uint64_t n_left)
{
    uint32_t i = v->last_merge[id];
    while (i && v->n_left[i - 1] != n_left)
        i = v->merge_before[i - 1];
    return i;
}

/* The text of a piece. */
static inline const uint8_t *piece_text(const vocab *v, const vocab_piece *piece)
{
    return (piece->flags & PIECE_RESPELT ? v->respelt : v->tokens) + piece->at;
}

/* The kinds of the user defined pieces in a text's `user` sets. */
static inline uint32_t user_kinds(uint32_t user)
{
    return (user & SET_USER ? 1u << PIECE_USER : 0) | (user & SET_MARKER ? 1u << PIECE_MARKER : 0);
}

/* Bytes of the white space character at p (space, tab, newline, U+2581); 0: none. */
static inline uint32_t white_space(const uint8_t *p, uint32_t n)
{
    if (n >= 3 && !memcmp(p, "\xe2\x96\x81", 3))
        return 3;
    return n && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r');
}

/* The set of the trie with this kind; 0: none. */
static inline uint32_t set_of(uint8_t kind)
{
    switch (kind) {
    case PIECE_CONTROL: return SET_CONTROL;
    case PIECE_USER: return SET_USER;
    case PIECE_MARKER: return SET_MARKER;
    case PIECE_ADDED: return SET_ADDED;
    case PIECE_ADDED_MARKER: return SET_ADDED_MARKER;
    default: return 0;
    }
}

static inline int is_user(uint8_t kind) { return set_of(kind) & ~(uint32_t)SET_CONTROL; }

/* marks.c: has the text the form of a chat marker? */
int is_marker(const uint8_t *text, uint32_t n);
/* byte_token.c: the value of "<0x41>"; -1: another form. */
int32_t byte_value(const uint8_t *text, uint32_t n_bytes);
#endif
