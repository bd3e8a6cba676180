/* split.h - the tokens of a vocabulary by the plain characters that they begin with. */
#ifndef SLUICE_GRAMMAR_SPLIT_H
#define SLUICE_GRAMMAR_SPLIT_H
#include "grammar/trie.h"

enum { MAX_RUN = 250, N_LENGTH = 9 };
struct split {
    /* tokens of plain characters only, by their number: tokens[first[n] .. first[n + 1]) */
    int32_t *tokens;
    int32_t first[MAX_RUN + 2];
    int32_t longest;
    uint64_t *upto[N_LENGTH]; /* the set of those of at most lengths[k] characters */
    uint8_t *n_plain;         /* [n_vocab] plain characters at the beginning */
    trie *rest;               /* the others, without those characters */
    trie *odd;                /* tokens that are not UTF-8, whole */
};
extern const uint8_t split_lengths[N_LENGTH];
/* Is b the first byte of a plain character? */
static inline int is_plain(uint8_t b)
{
    return b >= 0x20 && b != '"' && b != '\\' && b != 0x7f && (b < 0x80 || (b >= 0xc2 && b < 0xf5));
}
/* The number of bytes that follow lead byte b, and bounds of the first; -1: not a lead byte. */
static inline int n_more(uint8_t *lo, uint8_t *hi, uint8_t b)
{
    *lo = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    *hi = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    return b < 0x80 ? 0 : b < 0xc2 ? -1 : b < 0xe0 ? 1 : b < 0xf0 ? 2 : b < 0xf5 ? 3 : -1;
}
/* Sets t->split and t->plain for a trie of n tokens; 0, or an error. */
int32_t split_new(trie *t, const struct texts *x, const int32_t *ids, int32_t n);
void split_free(struct split *s);
#endif
