/* vocab.c - a vocabulary, from the arrays of GGUF metadata.
 *
 * Two passes over the tokens: vocab_scan checks and classifies them, vocab_index
 * enters them in a hash table (open addressing, at most half full, 32-bit slots
 * {10 bits of the hash, id + 1}; small, because what misses the cache is what
 * takes the time) and the texts that are matched whole in a
 * trie (edges in a hash table of {node, byte} -> node). Texts stay where the
 * file's metadata has them.
 *
 * Which texts may come out of untrusted text: pieces of kind control never. GGUF
 * files also carry markers of turns and images as user defined pieces, which
 * SentencePiece matches in every text. Here such a piece counts as control if,
 * blanks at both ends aside, it begins with < or [, ends with > or ], and has a
 * letter, a digit or a | between, unless it is an HTML tag of the list below.
 * `<s>` is left out of the list: in other vocabularies it begins a text.
 *
 * The hash is seeded: a file whose writer does not know the seed cannot be made
 * of texts that collide. Results do not depend on the seed. */
#include <math.h>
#include <string.h>
#include "internal.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { SET_USER = 1, SET_CONTROL = 2 }; /* sets of the trie */
enum { MAX_TEXT_BYTES = 1024 };
enum { ID_BITS = 22, BLOCK = 32 };      /* a slot: {10 bits of the hash, id + 1}; tokens whose slots are fetched at a time */
#define SLOT_ID ((1u << ID_BITS) - 1)
#define EDGE_NODE 0x3fffffffu           /* an edge: {node << 8 | byte, sets << 30 | child} */

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
    return v->piece[id].n_bytes == n_bytes && !memcmp(v->tokens + v->piece[id].at, text, n_bytes);
}

static inline uint32_t slot_of(uint64_t h, int32_t id) { return (uint32_t)(h >> (32 + ID_BITS)) << ID_BITS | ((uint32_t)id + 1); }

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

/* Slot of the edge from a node by a byte: the one it has, or the free one where it belongs. */
static inline uint64_t *find_edge(const vocab *v, uint32_t node, uint8_t byte)
{
    const uint32_t key = node << 8 | byte;
    uint32_t i = (uint32_t)((key * (v->seed | 1)) >> 32) & v->edge_mask;
    while (v->edge[i] && v->edge[i] >> 32 != key)
        i = (i + 1) & v->edge_mask;
    return v->edge + i;
}

uint64_t vocab_match(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t set)
{
    if (!n_bytes || !(v->first[text[0]] & set))
        return 0;
    uint64_t longest = 0;
    uint32_t node = 0;
    for (uint64_t i = 0; i < n_bytes; i++) {
        const uint64_t edge = *find_edge(v, node, text[i]);
        if (!edge)
            break;
        if ((uint32_t)edge >> 30 & set)
            longest = i + 1;
        node = (uint32_t)edge & EDGE_NODE;
    }
    return longest;
}

uint64_t vocab_next_control(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint64_t at)
{
    while (at < n_bytes && !vocab_match(v, text + at, n_bytes - at, SET_CONTROL))
        at++;
    return at;
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
    *edge |= (uint64_t)set << 30;
    v->first[text[0]] |= (uint8_t)set;
}

/* The tags that are text even where a vocabulary has them as one piece. */
static int is_html_tag(const uint8_t *text, uint32_t n_bytes)
{
    static const char names[] =
        " a abbr address article aside b bbox blockquote body br button caption cite code col colgroup dd del details "
        "div dl dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins "
        "kbd label li link main mark meta nav ol option p pre q section select small span strong style sub summary sup "
        "svg table tbody td textarea tfoot th thead title tr u ul var video ";
    char name[16] = " ";
    uint32_t n = 1;
    if (n_bytes < 3 || text[0] != '<' || text[n_bytes - 1] != '>')
        return 0;
    for (uint32_t i = text[1] == '/' ? 2 : 1; i < n_bytes - 1; i++) {
        if (n >= sizeof name - 2 || !((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9')))
            return 0;
        name[n++] = (char)text[i];
    }
    name[n++] = ' ';
    return n > 2 && strstr(names, name) != NULL;
}

/* Blanks at p: a space, tab, newline or U+2581; its bytes, 0: none. */
static inline uint32_t blank(const uint8_t *p, uint32_t n)
{
    if (n >= 3 && !memcmp(p, "\xe2\x96\x81", 3))
        return 3;
    return n && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r');
}

static int is_marker(const uint8_t *text, uint32_t n)
{
    for (uint32_t k; (k = blank(text, n)); n -= k)
        text += k;
    while (n) {
        if (n >= 3 && blank(text + n - 3, 3) == 3)
            n -= 3;
        else if (blank(text + n - 1, 1))
            n -= 1;
        else
            break;
    }
    if (n < 3 || !(text[0] == '<' || text[0] == '[') || !(text[n - 1] == '>' || text[n - 1] == ']'))
        return 0;
    if (is_html_tag(text, n))
        return 0;
    for (uint32_t i = 1; i < n - 1; i++) {
        const uint8_t c = text[i], letter = c | 32;
        if ((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '|' || c >= 0x80)
            return 1;
    }
    return 0;
}

/* Is there U+2581 after anything but U+2581? */
static int spans_words(const uint8_t *text, uint32_t n)
{
    const uint8_t *end = text + n, *p = text;
    while (end - p >= 3 && (p = memchr(p, 0xe2, (size_t)(end - p) - 2)) != NULL) {
        if (p[1] == 0x96 && p[2] == 0x81 && p > text && !(p - text >= 3 && blank(p - 3, 3) == 3))
            return 1;
        p++;
    }
    return 0;
}

/* The value of "<0x41>", -1: it is not of that form. */
static int32_t byte_value(const uint8_t *text, uint32_t n_bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (n_bytes != 6 || memcmp(text, "<0x", 3) || text[5] != '>' || !text[3] || !text[4])
        return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high && low ? (int32_t)((high - digits) * 16 + (low - digits)) : -1;
}

static int is_utf8(const uint8_t *text, uint32_t n)
{
    for (uint32_t i = 0, step; i < n; i += step)
        if (!(step = utf8_bytes(text + i, n - i)))
            return 0;
    return 1;
}

/* Takes one token into v; 0 or an error of vocab_scan. */
static int32_t scan_token(vocab *v, int32_t id, int32_t type)
{
    vocab_piece *piece = v->piece + id;
    const uint8_t *text = v->tokens + piece->at;
    if (!isfinite(piece->score))
        return 1;
    if (type < NORMAL || type > BYTE)
        return 2;
    if (type == USER_DEFINED && is_marker(text, piece->n_bytes))
        type = CONTROL;
    piece->kind = (uint8_t)type;
    v->has_unused |= type == UNUSED && v->model == VOCAB_SPM;
    if (type == BYTE && v->model == VOCAB_BYTES)
        return 6;
    if (type == USER_DEFINED && v->model == VOCAB_BYTES && !is_utf8(text, piece->n_bytes))
        return 7; /* it could be found within a character, and pretokenize goes by whole ones */
    if (type == BYTE) {
        const int32_t byte = byte_value(text, piece->n_bytes);
        if (byte < 0)
            return 3;
        v->has_bytes = 1;
        v->byte_id[byte] = id;
    }
    if (v->text_kinds >> type & 1) {
        v->max_bytes = piece->n_bytes > v->max_bytes ? piece->n_bytes : v->max_bytes;
        if (v->words_apart && spans_words(text, piece->n_bytes))
            v->words_apart = 0;
    }
    return 0;
}

int32_t vocab_scan(vocab_clash *out, vocab *v, const int32_t *special, int32_t n_special)
{
    uint64_t at = 0;
    memset(v->byte_id, -1, sizeof v->byte_id);
    v->max_bytes = v->trie_bytes = v->text_bytes = 0;
    v->has_bytes = v->has_unused = 0;
    v->words_apart = 1;
    v->text_kinds = v->model == VOCAB_SPM ? 1u << NORMAL | 1u << USER_DEFINED | 1u << UNUSED : 1u << NORMAL;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        vocab_piece *piece = v->piece + id;
        int32_t type;
        const uint64_t n_bytes = load(v->tokens + at, 8);
        out->id = id;
        if (n_bytes > MAX_TEXT_BYTES)
            return 4;
        piece->at = (uint32_t)(at + 8);
        piece->n_bytes = (uint16_t)n_bytes;
        piece->zero = 0;
        at += 8 + n_bytes;
        piece->score = 0;
        if (v->scores)
            memcpy(&piece->score, v->scores + 4 * (size_t)id, 4);
        memcpy(&type, v->types + 4 * (size_t)id, 4);
        for (int32_t i = 0; i < n_special; i++)
            if (special[i] == id && (type == NORMAL || type == USER_DEFINED || type == UNUSED))
                type = CONTROL;
        const int32_t status = scan_token(v, id, type);
        if (status)
            return status;
        v->text_bytes += (uint32_t)n_bytes;
        if (piece->kind == CONTROL || piece->kind == USER_DEFINED)
            v->trie_bytes += (uint32_t)n_bytes;
    }
    for (int32_t i = 0; i < 256 && v->has_bytes; i++)
        if (v->byte_id[i] < 0) {
            out->other = i;
            return 5;
        }
    return 0;
}

/* Enters one token, whose text hashes to h; the id of one that has the same text already, or -1. */
static int32_t enter(vocab *v, int32_t id, uint64_t h)
{
    const vocab_piece *piece = v->piece + id;
    const uint8_t *text = v->tokens + piece->at;
    const uint32_t wanted = slot_of(h, id), is_text = v->text_kinds >> piece->kind & 1;
    uint32_t i = (uint32_t)h & v->slot_mask;
    for (; v->slot[i]; i = (i + 1) & v->slot_mask) {
        if ((v->slot[i] ^ wanted) > SLOT_ID)
            continue;
        const int32_t other = (int32_t)((v->slot[i] & SLOT_ID) - 1);
        if ((v->text_kinds >> v->piece[other].kind & 1) == is_text && text_equals(v, other, text, piece->n_bytes))
            return other;
    }
    v->slot[i] = wanted;
    if (piece->kind == CONTROL || piece->kind == USER_DEFINED)
        add_to_trie(v, text, piece->n_bytes, piece->kind == CONTROL ? SET_CONTROL : SET_USER);
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
            h[i] = text_hash(v->tokens + piece->at, piece->n_bytes, v->seed);
            __builtin_prefetch(v->slot + ((uint32_t)h[i] & v->slot_mask), 1);
        }
        for (int32_t i = 0; i < n; i++) {
            const vocab_piece *piece = v->piece + first + i;
            if (!piece->n_bytes || (piece->kind == UNUSED && v->model != VOCAB_SPM))
                continue; /* nothing spells it, and it writes nothing */
            const int32_t other = enter(v, first + i, h[i]);
            if (other >= 0) {
                *out = (vocab_clash){ .id = first + i, .other = other };
                return 1;
            }
        }
    }
    for (int32_t byte = 0; byte < 256 && v->model == VOCAB_BYTES; byte++) {
        const uint8_t one = (uint8_t)byte;
        uint8_t letter[2];
        v->byte_id[byte] = vocab_find(v, letter, alphabet_encode(letter, &one, 1), 1u << NORMAL);
    }
    return 0;
}

/* out = what the text of a token in the byte-level alphabet stands for, or, where it is not in it, the text as it is. Returns its bytes. */
static uint32_t alphabet_decode(uint8_t *out, const uint8_t *text, uint32_t n)
{
    uint32_t n_out = 0, step;
    for (uint32_t i = 0; i < n; i += step) {
        const int32_t byte = alphabet_byte(&step, text + i, n - i);
        if (byte < 0) {
            memcpy(out, text, n);
            return n;
        }
        out[n_out++] = (uint8_t)byte;
    }
    return n_out;
}

void vocab_table(uint8_t *text, uint32_t *offset, const vocab *v)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        const vocab_piece *piece = v->piece + id;
        const uint8_t *p = v->tokens + piece->at, *end = p + piece->n_bytes;
        offset[id] = n;
        if (piece->kind == BYTE)
            text[n++] = (uint8_t)byte_value(p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && piece->kind == NORMAL)
            n += alphabet_decode(text + n, p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && piece->kind == USER_DEFINED) {
            memcpy(text + n, p, piece->n_bytes);
            n += piece->n_bytes;
        } else if (piece->kind == NORMAL || piece->kind == USER_DEFINED)
            while (p < end) {
                const int is_space = blank(p, (uint32_t)(end - p)) == 3;
                text[n++] = is_space ? ' ' : *p;
                p += is_space ? 3 : 1;
            }
    }
    offset[v->n_vocab] = n;
}
