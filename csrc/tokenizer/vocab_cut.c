/* vocab_cut.c - find control and added tokens in raw text; they are split off before encoding. */
#include "tokenizer/vocab_trie.h"
#include "tokenizer/vocabulary.h"

/* Like vocab_match, but in raw text: except in a byte-level vocabulary a space matches U+2581.
 * *id, unless NULL: the piece. */
static uint64_t match_raw(int32_t *id, const vocab *v, const uint8_t *text, uint64_t n_bytes,
                          uint32_t sets, uint32_t kinds)
{
    const int fold = v->model != VOCAB_BYTES;
    uint8_t normalized[3 * MAX_TOKEN_BYTES];
    uint64_t longest = 0, n_normalized = 0, n_longest = 0, edge = 1;
    uint32_t node = 0;
    if (!n_bytes || !(v->first[fold && text[0] == ' ' ? SPACE[0] : text[0]] & sets))
        return 0;
    for (uint64_t i = 0; i < n_bytes && edge; i++) {
        const uint8_t *bytes = fold && text[i] == ' ' ? SPACE : text + i;
        for (int k = 0; k < (bytes == SPACE ? 3 : 1) && (edge = *find_edge(v, node, bytes[k]));
             k++) {
            normalized[n_normalized++] = bytes[k];
            node = (uint32_t)edge & EDGE_NODE;
        }
        if ((uint32_t)edge >> NODE_BITS & sets)
            longest = i + 1, n_longest = n_normalized;
    }
    if (longest && id)
        *id = vocab_find(v, normalized, n_longest, kinds);
    return longest;
}

void vocab_next_cut(vocab_cut *out, const vocab *v, const uint8_t *text, uint64_t n_bytes,
                    uint64_t at, uint32_t sets, uint32_t user)
{
    const uint32_t added = sets & (SET_ADDED | SET_ADDED_MARKER);
    const uint32_t kinds = (added & SET_ADDED ? 1u << PIECE_ADDED : 0)
        | (added & SET_ADDED_MARKER ? 1u << PIECE_ADDED_MARKER : 0);
    while (at < n_bytes) {
        const uint8_t *p = text + at;
        const uint64_t n = n_bytes - at, n_control = match_in_trie(v, p, n, sets & SET_CONTROL);
        const uint64_t n_added = added ? match_raw(&out->id, v, p, n, added, kinds) : 0;
        const uint64_t n_cut = n_control > n_added ? n_control : n_added,
                       n_user = match_raw(NULL, v, p, n, user, 0);
        if (n_cut && n_cut >= n_user) {
            if (n_control >= n_added)
                out->id = vocab_find(v, p, n_control, 1u << PIECE_CONTROL);
            out->at = at;
            out->end = at + n_cut;
            return;
        }
        at += n_user ? n_user : 1;
    }
    out->at = out->end = n_bytes;
}
