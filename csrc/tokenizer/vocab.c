/* vocab.c - a vocabulary, from the arrays of GGUF metadata.
 *
 * Two passes over the tokens: vocab_scan checks and classifies them, vocab_index
 * enters them in a hash table (open addressing, at most half full, 32-bit slots
 * {10 bits of the hash, id + 1}; small, because what misses the cache is what
 * takes the time) and the texts that are matched whole in a
 * trie (edges in a hash table of {node, byte} -> node). Texts stay where the
 * file's metadata has them.
 *
 * Control tokens never come out of text. User defined pieces do, in every text: they
 * are matched before anything else, the leftmost first, of these the longest. GGUF files
 * hold marks of turns and images as such pieces, too. A caller may leave those out (for
 * a message, which must not forge a turn): a piece is a mark if, blanks at both ends
 * aside, it begins with < or [, ends with > or ], and has a letter, a digit or a |
 * between, unless it is an HTML tag of the list below. A mark that ends a turn
 * (v->end_marks) is a control token whatever its type, as in llama.cpp.
 *
 * Two programs make user defined pieces of a SentencePiece vocabulary, and differ where text begins with a
 * blank of its own. SentencePiece's own pieces are matched behind that blank. Those that transformers
 * added split the text first, and each part has its blank; llama.cpp's converter
 * gives these the score -1000, and as a rule control tokens, too: where none has it,
 * only marks are taken for added.
 *
 * SentencePiece writes a blank U+2581, in its pieces, too. GGUF files have user defined pieces with
 * blanks instead, because llama.cpp compares raw text: they are spelt back (`respelt`). Of two
 * pieces that differ in that alone text becomes the one that the file writes with blanks.
 *
 * The hash is seeded: a file whose writer does not know the seed cannot be made
 * of texts that collide. Results do not depend on the seed. */
#include <math.h>
#include <string.h>
#include "internal.h"

enum { MAX_TEXT_BYTES = 1024 };
static const float ADDED_SCORE = -1000;
static const uint8_t SPACE[3] = {0xe2, 0x96, 0x81}; /* U+2581 */
enum { ID_BITS = 22, BLOCK = 32 };      /* a slot: {10 bits of the hash, id + 1}; tokens whose slots are fetched at a time */
#define SLOT_ID ((1u << ID_BITS) - 1)
enum { NODE_BITS = 27 };                /* an edge: {node << 8 | byte, sets << 27 | child} */
#define EDGE_NODE ((1u << NODE_BITS) - 1)

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

uint64_t vocab_match(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t sets)
{
    if (!n_bytes || !(v->first[text[0]] & sets))
        return 0;
    uint64_t longest = 0;
    uint32_t node = 0;
    for (uint64_t i = 0; i < n_bytes; i++) {
        const uint64_t edge = *find_edge(v, node, text[i]);
        if (!edge)
            break;
        if ((uint32_t)edge >> NODE_BITS & sets)
            longest = i + 1;
        node = (uint32_t)edge & EDGE_NODE;
    }
    return longest;
}

/* As vocab_match in raw text, where a blank is U+2581, too, but in a byte-level vocabulary. *id: that piece, if it is not NULL. */
static uint64_t match_raw(int32_t *id, const vocab *v, const uint8_t *text, uint64_t n_bytes, uint32_t sets, uint32_t kinds)
{
    const int fold = v->model != VOCAB_BYTES;
    uint8_t spelt[3 * MAX_TEXT_BYTES];
    uint64_t longest = 0, n_spelt = 0, n_longest = 0, edge = 1;
    uint32_t node = 0;
    if (!n_bytes || !(v->first[fold && text[0] == ' ' ? SPACE[0] : text[0]] & sets))
        return 0;
    for (uint64_t i = 0; i < n_bytes && edge; i++) {
        const uint8_t *bytes = fold && text[i] == ' ' ? SPACE : text + i;
        for (int k = 0; k < (bytes == SPACE ? 3 : 1) && (edge = *find_edge(v, node, bytes[k])); k++) {
            spelt[n_spelt++] = bytes[k];
            node = (uint32_t)edge & EDGE_NODE;
        }
        if ((uint32_t)edge >> NODE_BITS & sets)
            longest = i + 1, n_longest = n_spelt;
    }
    if (longest && id)
        *id = vocab_find(v, spelt, n_longest, kinds);
    return longest;
}

void vocab_next_cut(vocab_cut *out, const vocab *v, const uint8_t *text, uint64_t n_bytes, uint64_t at, uint32_t sets,
                    uint32_t user)
{
    const uint32_t added = sets & (SET_ADDED | SET_ADDED_MARKER);
    const uint32_t kinds = (added & SET_ADDED ? 1u << PIECE_ADDED : 0) |
                           (added & SET_ADDED_MARKER ? 1u << PIECE_ADDED_MARKER : 0);
    while (at < n_bytes) {
        const uint8_t *p = text + at;
        const uint64_t n = n_bytes - at, n_control = vocab_match(v, p, n, sets & SET_CONTROL);
        const uint64_t n_added = added ? match_raw(&out->id, v, p, n, added, kinds) : 0;
        const uint64_t n_cut = n_control > n_added ? n_control : n_added, n_user = match_raw(NULL, v, p, n, user, 0);
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

/* The tags that are text even where a vocabulary has them as one piece. */
static int is_html_tag(const uint8_t *text, uint32_t n_bytes)
{
    static const char names[] =
        " a abbr address article aside b bbox blockquote body br button caption cite code col colgroup dd del details "
        "div dl dt em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i iframe img input ins "
        "kbd label li link main mark meta nav ol option p pre q s section select small span strong style sub summary sup "
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

/* The set of the trie that a kind is in, 0: none. */
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

static int is_end_mark(const vocab *v, const uint8_t *text, uint32_t n)
{
    for (const uint8_t *p = v->end_marks, *end = p + v->end_marks_bytes; (p = memchr(p, 0, (size_t)(end - p))) != NULL && ++p < end;)
        if ((uint64_t)(end - p) > n && !p[n] && !memcmp(p, text, n))
            return 1;
    return 0;
}

/* Whether scores say which tokens transformers added: a control token or the unknown one has the score of those. */
static uint8_t has_added_scores(const vocab *v)
{
    for (int32_t id = 0; id < v->n_vocab && v->scores && v->add_prefix; id++) {
        int32_t type;
        float score;
        memcpy(&score, v->scores + 4 * (size_t)id, 4);
        memcpy(&type, v->types + 4 * (size_t)id, 4);
        if (score == ADDED_SCORE && (type == PIECE_CONTROL || type == PIECE_UNKNOWN))
            return 1;
    }
    return 0;
}

/* The kind of a piece of type user defined. */
static uint8_t user_kind(const vocab *v, const vocab_piece *piece, const uint8_t *text)
{
    const int mark = is_marker(text, piece->n_bytes);
    if (mark && is_end_mark(v, text, piece->n_bytes))
        return PIECE_CONTROL;
    if (piece->score == ADDED_SCORE && v->model == VOCAB_SPM && v->add_prefix && (mark || v->added_scores))
        return mark ? PIECE_ADDED_MARKER : PIECE_ADDED;
    return mark ? PIECE_MARKER : PIECE_USER;
}

/* Writes U+2581 for the blanks of a user defined piece, where there is room (what does not fit is refused, MAX_TRIE_BYTES). */
static void respell(vocab *v, vocab_piece *piece)
{
    const uint8_t *text = v->tokens + piece->at, *end = text + piece->n_bytes;
    uint8_t *out = v->respelt + v->respelt_bytes;
    if (!memchr(text, ' ', piece->n_bytes) || v->respelt_bytes + 3u * piece->n_bytes > v->respelt_room)
        return;
    for (; text < end; text++)
        if (*text == ' ') {
            memcpy(out, SPACE, 3);
            out += 3;
        } else
            *out++ = *text;
    piece->at = v->respelt_bytes;
    piece->n_bytes = (uint16_t)(out - v->respelt - v->respelt_bytes);
    piece->flags |= PIECE_RESPELT;
    v->respelt_bytes += piece->n_bytes;
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
    if (type < PIECE_NORMAL || type > PIECE_BYTE)
        return 2;
    piece->kind = type == PIECE_USER ? user_kind(v, piece, text) : (uint8_t)type;
    v->has_unused |= type == PIECE_UNUSED && v->model == VOCAB_SPM;
    v->has_added |= piece->kind == PIECE_ADDED || piece->kind == PIECE_ADDED_MARKER;
    if (type == PIECE_BYTE && v->model == VOCAB_BYTES)
        return 6;
    if (is_user(piece->kind) && v->model == VOCAB_BYTES && !is_utf8(text, piece->n_bytes))
        return 7; /* it could be found within a character, and pretokenize goes by whole ones */
    if (is_user(piece->kind) && v->model != VOCAB_BYTES)
        respell(v, piece);
    if (type == PIECE_BYTE) {
        const int32_t byte = byte_value(text, piece->n_bytes);
        if (byte < 0)
            return 3;
        v->has_bytes = 1;
        v->byte_id[byte] = id;
    }
    if (v->text_kinds >> piece->kind & 1) {
        v->max_bytes = piece->n_bytes > v->max_bytes ? piece->n_bytes : v->max_bytes;
        if (v->words_apart && spans_words(piece_text(v, piece), piece->n_bytes))
            v->words_apart = 0;
    }
    return 0;
}

int32_t vocab_scan(vocab_clash *out, vocab *v, const int32_t *special, int32_t n_special)
{
    uint64_t at = 0;
    memset(v->byte_id, -1, sizeof v->byte_id);
    v->max_bytes = v->trie_bytes = v->text_bytes = v->respelt_bytes = 0;
    v->has_bytes = v->has_unused = v->has_added = 0;
    v->added_scores = has_added_scores(v);
    v->words_apart = 1;
    v->text_kinds = 1u << PIECE_NORMAL;
    if (v->model == VOCAB_SPM)
        v->text_kinds |= 1u << PIECE_USER | 1u << PIECE_MARKER | 1u << PIECE_UNUSED;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        vocab_piece *piece = v->piece + id;
        int32_t type;
        const uint64_t n_bytes = load(v->tokens + at, 8);
        out->id = id;
        if (n_bytes > MAX_TEXT_BYTES)
            return 4;
        piece->at = (uint32_t)(at + 8);
        piece->n_bytes = (uint16_t)n_bytes;
        piece->flags = 0;
        at += 8 + n_bytes;
        piece->score = 0;
        if (v->scores)
            memcpy(&piece->score, v->scores + 4 * (size_t)id, 4);
        memcpy(&type, v->types + 4 * (size_t)id, 4);
        for (int32_t i = 0; i < n_special; i++)
            if (special[i] == id && (type == PIECE_NORMAL || type == PIECE_USER || type == PIECE_UNUSED))
                type = PIECE_CONTROL;
        const int32_t status = scan_token(v, id, type);
        if (status)
            return status;
        v->text_bytes += (uint32_t)n_bytes;
        if (set_of(piece->kind))
            v->trie_bytes += piece->n_bytes;
    }
    for (int32_t i = 0; i < 256 && v->has_bytes; i++)
        if (v->byte_id[i] < 0) {
            out->other = i;
            return 5;
        }
    return 0;
}

/* Two tokens may have one text if they differ in this: 1 what merging makes, 2 what is matched first, 0 all else. */
static inline int class_of_kind(const vocab *v, uint8_t kind)
{
    return v->text_kinds >> kind & 1 ? 1 : kind == PIECE_ADDED || kind == PIECE_ADDED_MARKER ? 2 : 0;
}

/* Of two tokens with one text the one with the greater number is what text becomes; of equals there may not be two. */
static inline int rank(const vocab_piece *piece) { return is_user(piece->kind) ? 1 + (piece->flags & PIECE_RESPELT) : 0; }

/* Enters one token, whose text hashes to h; the id of one that has the same text already, or -1. */
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
        if (class_of_kind(v, v->piece[other].kind) != class || !text_equals(v, other, text, piece->n_bytes))
            continue;
        const int a = rank(piece), b = rank(v->piece + other);
        if (a == b || (!class && (!a || !b)))
            return other;
        if (a < b)
            return -1;
        break; /* it takes the other's place */
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
        v->byte_id[byte] = vocab_find(v, letter, alphabet_encode(letter, &one, 1), 1u << PIECE_NORMAL);
    }
    return 0;
}

void vocab_flag(vocab *v, uint32_t kinds, uint8_t flags)
{
    for (int32_t id = 0; id < v->n_vocab; id++)
        if (kinds >> v->piece[id].kind & 1)
            v->piece[id].flags |= flags;
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
        const uint8_t *p = piece_text(v, piece), *end = p + piece->n_bytes;
        offset[id] = n;
        if (piece->kind == PIECE_BYTE)
            text[n++] = (uint8_t)byte_value(p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && piece->kind == PIECE_NORMAL)
            n += alphabet_decode(text + n, p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && is_user(piece->kind)) {
            memcpy(text + n, p, piece->n_bytes);
            n += piece->n_bytes;
        } else if (piece->kind == PIECE_NORMAL || is_user(piece->kind))
            while (p < end) {
                const int is_space = blank(p, (uint32_t)(end - p)) == 3;
                text[n++] = is_space ? ' ' : *p;
                p += is_space ? 3 : 1;
            }
    }
    offset[v->n_vocab] = n;
}
