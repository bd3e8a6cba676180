/* merge.h - the merging of symbols, for those that cut a text into them. */
#ifndef SLUICE_TOKENIZER_MERGE_H
#define SLUICE_TOKENIZER_MERGE_H
#include "api/tokenizer.h"

/* merge.c: a part of a text, symbol by symbol, then its ids. */
typedef struct {
    const vocab *v;
    uint32_t kinds; /* that merging makes: v->text_kinds, or fewer of them */
    const uint8_t *text;
    merge_symbol *symbol;
    merge_pair *pair;
    uint32_t *split; /* [n_vocab] of an unused piece: bytes of its left half, when last seen */
    uint64_t n_pair;
    int32_t n_symbol;
    int32_t *id; /* where the next id goes */
    int after_unknown;
} merger;
/* the next symbol; frozen: it merges with nothing */
void merge_add(merger *m, uint64_t at, uint64_t n_bytes, int frozen);
/* its id; -1: what stands for a text without one */
void merge_emit(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id);
/* merges what was added, writes ids, begins anew */
void merge_finish(merger *m);
#endif
