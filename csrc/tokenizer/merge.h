/* merge.h - BPE merges, for spm.c and bpe.c, which split a text into symbols. */
#ifndef SLUICE_TOKENIZER_MERGE_H
#define SLUICE_TOKENIZER_MERGE_H
#include "api/tokenizer.h"

/* A part of a text: its symbols are added one by one, then merged. */
typedef struct {
    const vocab *v;
    uint32_t kinds; /* that merges make: v->text_kinds, or a subset */
    const uint8_t *text;
    merge_symbol *symbol;
    merge_pair *pair;
    uint32_t *split; /* [n_vocab] bytes of the left half of an unused piece, as last merged */
    uint64_t n_pair;
    int32_t n_symbol;
    int32_t *id; /* where the next token is written */
    int after_unknown;
} merger;
/* Adds the next symbol; a frozen one is not merged. */
void merge_add(merger *m, uint64_t at, uint64_t n_bytes, int frozen);
/* Writes a token; id -1: byte fallback or unknown. */
void merge_emit(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id);
/* Merges the symbols added, writes their tokens, and removes the symbols. */
void merge_finish(merger *m);
#endif
