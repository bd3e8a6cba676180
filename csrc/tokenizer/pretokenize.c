/* pretokenize.c - the pre-tokenizer of byte-level BPE: split text into words, which merges never
 * span.
 *
 * A vocabulary of this kind was trained on text that one or several regular expressions had split.
 * They are published with the models (tokenizer.json). Here each stands above a hand-written
 * function that does the same. A rule is a function (text, at, end) -> the end of the part that
 * begins at `at`. With several expressions, each rule splits the parts of the rule before, and sees
 * their ends as ends of the text (`$`, `(?!\S)`).
 *
 * Time is linear: no rule looks back, and each character is looked ahead at most twice. As in the
 * expressions, alternatives are tried in order, and repetition is greedy.
 *
 * \p{L}, \p{N}, \p{M}, \s are sets of the classes of unicode.h. Text must be UTF-8 (utf8_repair).
 */
#include "api/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

enum { OTHER, UPPER, LOWER, LETTER, MARK, NUMBER, SPACE, N_CLASS };
#define SET(class) (1u << (class))
#define L (SET(UPPER) | SET(LOWER) | SET(LETTER))
#define M SET(MARK)
#define N SET(NUMBER)
#define S SET(SPACE)
#define ANY (SET(N_CLASS) - 1)
#define NOT(set) (ANY & ~(set))

static inline uint32_t decode(uint32_t *n_bytes, const uint8_t *p)
{
    const uint32_t c = p[0];
    if (c < 0x80)
        return *n_bytes = 1, c;
    if (c < 0xe0)
        return *n_bytes = 2, (c & 31) << 6 | (p[1] & 63);
    if (c < 0xf0)
        return *n_bytes = 3, (c & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    return *n_bytes = 4,
           (c & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

static uint32_t class_of(uint32_t point)
{
    /* the range of `point` is in low ... high - 1 */
    uint32_t low = 0, high = sizeof unicode_ranges / sizeof *unicode_ranges;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (unicode_ranges[middle] >> 3 <= point)
            low = middle;
        else
            high = middle;
    }
    return unicode_ranges[low] & 7;
}

static inline uint32_t class_of_ascii(uint32_t c)
{
    if ((c | 32) >= 'a' && (c | 32) <= 'z')
        return c & 32 ? LOWER : UPPER;
    return c >= '0' && c <= '9' ? NUMBER : c == ' ' || (c >= 9 && c <= 13) ? SPACE : OTHER;
}

/* The set with only the class of the character at `at`, and its bytes; 0 and 0 at the end. */
static inline uint32_t look(uint32_t *n_bytes, const uint8_t *text, uint64_t at, uint64_t end)
{
    if (at >= end)
        return *n_bytes = 0, 0;
    if (text[at] < 0x80)
        return *n_bytes = 1, SET(class_of_ascii(text[at]));
    return SET(class_of(decode(n_bytes, text + at)));
}

static inline uint32_t set_at(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint32_t n_bytes;
    return look(&n_bytes, text, at, end);
}

/* The end of the run of characters in `set` that begins at `at`. */
static uint64_t run(const uint8_t *text, uint64_t at, uint64_t end, uint32_t set)
{
    uint32_t n_bytes;
    while (look(&n_bytes, text, at, end) & set)
        at += n_bytes;
    return at;
}

static inline int is_newline(uint8_t c) { return c == '\r' || c == '\n'; }
static inline uint64_t after(const uint8_t *text, uint64_t at, uint64_t end, uint8_t c)
{
    return at + (at < end && text[at] == c);
}

/* 's|'t|'re|'ve|'m|'ll|'d; fold: (?i:...), in which U+017F is an s. Returns the end; 0: no match.
 */
static uint64_t contraction(const uint8_t *text, uint64_t at, uint64_t end, int fold)
{
    if (end - at < 2 || text[at] != '\'')
        return 0;
    const uint8_t mask = fold ? 0xdf : 0xff, a = text[at + 1] & mask,
                  b = end - at > 2 ? text[at + 2] & mask : 0;
    const uint8_t low = fold ? 0 : 32;
#define IS(x, c) ((x) == ((c) - 32 + low))
    if (IS(a, 's') || IS(a, 't') || IS(a, 'm') || IS(a, 'd'))
        return at + 2;
    if ((IS(a, 'r') && IS(b, 'e')) || (IS(a, 'v') && IS(b, 'e')) || (IS(a, 'l') && IS(b, 'l')))
        return at + 3;
#undef IS
    return fold && end - at > 2 && text[at + 1] == 0xc5 && text[at + 2] == 0xbf ? at + 3 : 0;
}

/* \s+(?!\S)|\s+: a whole run of white space at the end of the text, else all of it but the last
 * character, which may belong to the next word. */
static uint64_t spaces(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint64_t last = at, e = at;
    uint32_t n_bytes;
    for (; look(&n_bytes, text, e, end) & S; e += n_bytes)
        last = e;
    return e == end || last == at ? e : last;
}

/* \s*[\r\n]+: up to the last line end in a run of white space; 0: no match. */
static uint64_t lines(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint64_t found = 0;
    uint32_t n_bytes;
    for (; look(&n_bytes, text, at, end) & S; at += n_bytes)
        if (is_newline(text[at]))
            found = at + 1;
    return found;
}

/* GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static uint64_t gpt2(const uint8_t *text, uint64_t at, uint64_t end)
{
    const uint64_t e = contraction(text, at, end, 0), b = after(text, at, end, ' ');
    if (e)
        return e;
    const uint32_t set = set_at(text, b, end);
    if (set & L)
        return run(text, b, end, L);
    if (set & N)
        return run(text, b, end, N);
    return set & NOT(S) ? run(text, b, end, NOT(L | N | S)) : spaces(text, at, end);
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+, the end of the newer expressions. slash:
 * [\r\n/]*; word: \p{L}, or \p{L} and more. */
static uint64_t marks_and_spaces(const uint8_t *text, uint64_t at, uint64_t end, uint32_t word,
                                 int slash)
{
    const uint64_t b = after(text, at, end, ' ');
    uint64_t e = run(text, b, end, NOT(word | N | S));
    if (e > b) {
        while (e < end && (is_newline(text[e]) || (slash && text[e] == '/')))
            e++;
        return e;
    }
    e = lines(text, at, end);
    return e ? e : spaces(text, at, end);
}

/* \p{N}{1,n}. */
static uint64_t some_digits(const uint8_t *text, uint64_t at, uint64_t end, int n)
{
    uint32_t n_bytes;
    for (; n-- && look(&n_bytes, text, at, end) & N; at += n_bytes)
        ;
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 * ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ with n_digit for 3, and `word` for \p{L} but in
 * the first [^...], in which a mark of `word` changes nothing. */
static uint64_t cl100k(const uint8_t *text, uint64_t at, uint64_t end, uint32_t word, int n_digit)
{
    uint64_t e = contraction(text, at, end, 1);
    uint32_t n_bytes;
    if (e)
        return e;
    const uint32_t set = look(&n_bytes, text, at, end);
    if (set & word)
        return run(text, at, end, word);
    if (set & N)
        return some_digits(text, at, end, n_digit);
    if (!is_newline(text[at]) && set_at(text, at + n_bytes, end) & word)
        return run(text, at + n_bytes, end, word);
    return marks_and_spaces(text, at, end, word, 0);
}

/* Llama 3: the expression above. */
static uint64_t llama3(const uint8_t *text, uint64_t at, uint64_t end)
{
    return cl100k(text, at, end, L, 3);
}
/* Qwen2, 2.5, 3: with \p{N} for \p{N}{1,3}. */
static uint64_t qwen2(const uint8_t *text, uint64_t at, uint64_t end)
{
    return cl100k(text, at, end, L, 1);
}
/* Qwen3.5: ...|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|... */
static uint64_t qwen35(const uint8_t *text, uint64_t at, uint64_t end)
{
    return cl100k(text, at, end, L | M, 1);
}

/* U*W+|U+W* for U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], W = [\p{Ll}\p{Lm}\p{Lo}\p{M}]; `whole`: only
 * U*W+.  0: no match. U* is greedy; if no W follows, it backtracks to behind the
 * last character that is in both. */
static uint64_t cased(const uint8_t *text, uint64_t at, uint64_t end, int whole)
{
    const uint32_t both = SET(LETTER) | M;
    uint64_t e = at, last = 0;
    uint32_t n_bytes, set;
    for (; (set = look(&n_bytes, text, e, end)) & (SET(UPPER) | both); e += n_bytes)
        if (set & both)
            last = e + n_bytes;
    if (set & SET(LOWER))
        return run(text, e, end, SET(LOWER) | both);
    return last ? last : !whole && e > at ? e : 0;
}

/* [^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*|\p{N}{1,3}|
 * ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ with n_digit for 3; glued: a contraction
 * directly behind a word of either kind belongs to it. */
static uint64_t by_case(const uint8_t *text, uint64_t at, uint64_t end, int n_digit, int glued)
{
    uint32_t n_bytes;
    const uint32_t set = look(&n_bytes, text, at, end);
    const int may_lead = !(set & (L | N)) && !is_newline(text[at]);
    for (int whole = 1; whole >= 0; whole--) {
        uint64_t e = may_lead ? cased(text, at + n_bytes, end, whole) : 0;
        e = e ? e : cased(text, at, end, whole);
        if (e) {
            const uint64_t tail = glued ? contraction(text, e, end, 1) : 0;
            return tail ? tail : e;
        }
    }
    return set & N ? some_digits(text, at, end, n_digit) : marks_and_spaces(text, at, end, L, 1);
}
/* Mistral tekken: \p{N} for \p{N}{1,3}. */
static uint64_t tekken(const uint8_t *text, uint64_t at, uint64_t end)
{
    return by_case(text, at, end, 1, 0);
}
/* o200k, of GPT-4o, Phi-4-mini, Llama 4: ...U*W+C?|...U+W*C?|\p{N}{1,3}|... for
 * C = (?i:'s|'t|'re|'ve|'m|'ll|'d). */
static uint64_t gpt4o(const uint8_t *text, uint64_t at, uint64_t end)
{
    return by_case(text, at, end, 3, 1);
}

/* \p{N}: every digit alone. */
static uint64_t digits(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint32_t n_bytes;
    return look(&n_bytes, text, at, end) & N ? at + n_bytes : run(text, at, end, NOT(N));
}

/* [\r\n]: every one alone. */
static uint64_t newlines(const uint8_t *text, uint64_t at, uint64_t end)
{
    if (is_newline(text[at]))
        return at + 1;
    while (at < end && !is_newline(text[at]))
        at++;
    return at;
}

typedef struct { uint32_t first, last; } points;

/* DeepSeek-LLM lists its letters: most of those with case. */
static const points deepseek_letters[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},
    {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},
    {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x377},     {0x37b, 0x37d},
    {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},
    {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},
    {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},
    {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},
    {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},
    {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},
    {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}};
/* !-/:-~ (so letters and [ too), their fullwidth forms, quotation marks U+2018-U+201F,
 * U+3000-U+3002. */
static const points deepseek_punctuation_marks[] = {{0x21, 0x2f},     {0x3a, 0x7e},
                                                    {0x2018, 0x201f}, {0x3000, 0x3002},
                                                    {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
static const points deepseek_cjk[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};

/* Bytes of the character at `at` if it is one of `list` (ascending), else 0. */
static uint32_t in_points(const points *list, uint32_t n, const uint8_t *text, uint64_t at,
                          uint64_t end)
{
    uint32_t n_bytes, low = 0;
    if (at >= end)
        return 0;
    const uint32_t point = decode(&n_bytes, text + at);
    while (n) { /* if listed, the range is in list[low ... low + n - 1] */
        const uint32_t half = n / 2;
        if (point > list[low + half].last) {
            low += half + 1;
            n -= half + 1;
        } else if (point < list[low + half].first)
            n = half;
        else
            return n_bytes;
    }
    return 0;
}

/* \s?[list]+ or, without `space`, [list]+: the match at `at`, or all before the next match. */
static uint64_t listed(const uint8_t *text, uint64_t at, uint64_t end, const points *list,
                       uint32_t n_list, int space)
{
    uint64_t e = at;
    uint32_t n_bytes, n;
    int first = 1;
    while (e < end) {
        const uint32_t set = look(&n_bytes, text, e, end);
        const uint64_t b =
            space && set & S && in_points(list, n_list, text, e + n_bytes, end) ? e + n_bytes : e;
        if (b > e || in_points(list, n_list, text, e, end)) {
            if (!first)
                return e;
            for (e = b; (n = in_points(list, n_list, text, e, end)); e += n)
                ;
            return e;
        }
        first = 0;
        e += n_bytes;
    }
    return e;
}

#define LIST(name) name, sizeof name / sizeof *name
static uint64_t deepseek_words(const uint8_t *text, uint64_t at, uint64_t end)
{
    return listed(text, at, end, LIST(deepseek_letters), 1);
}
static uint64_t deepseek_punctuation(const uint8_t *text, uint64_t at, uint64_t end)
{
    return listed(text, at, end, LIST(deepseek_punctuation_marks), 1);
}
static uint64_t deepseek_characters(const uint8_t *text, uint64_t at, uint64_t end)
{
    return listed(text, at, end, LIST(deepseek_cjk), 0);
}

/* \s+$ */
static uint64_t last_spaces(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint64_t begin = end;
    for (uint64_t before = end; before > at; begin = before) {
        do
            before--;
        while (before > at && text[before] >> 6 == 2);
        if (!(set_at(text, before, end) & S))
            break;
    }
    return begin > at ? begin : end;
}

uint64_t white_space_end(const uint8_t *text, uint64_t at, uint64_t end)
{
    uint32_t n_bytes;
    while (at < end && utf8_bytes(text + at, end - at) && look(&n_bytes, text, at, end) & S)
        at += n_bytes;
    return at;
}

uint64_t white_space_begin(const uint8_t *text, uint64_t at, uint64_t end)
{
    while (end > at) {
        uint64_t before = end - 1;
        while (before > at && end - before < 4 && text[before] >> 6 == 2)
            before--;
        if (utf8_bytes(text + before, end - before) != end - before
            || !(set_at(text, before, end) & S))
            break;
        end = before;
    }
    return end;
}

typedef uint64_t rule(const uint8_t *text, uint64_t at, uint64_t end);
static rule *const rules[][7] = {
    [PRE_GPT2] = {gpt2},
    [PRE_LLAMA3] = {llama3},
    [PRE_QWEN2] = {qwen2},
    [PRE_QWEN35] = {qwen35},
    [PRE_TEKKEN] = {tekken},
    [PRE_GPT4O] = {gpt4o},
    [PRE_STARCODER] = {digits, gpt2}, /* StarCoder 1 and 2, SmolLM, Command R */
    [PRE_DEEPSEEK_LLM] = {newlines, deepseek_words, deepseek_punctuation, last_spaces,
                          deepseek_characters, digits},
};

uint64_t pretokenize(word_ends *w, const uint8_t *text, uint64_t at, uint64_t n_bytes, int32_t pre)
{
    uint64_t end = n_bytes;
    for (int i = 0; rules[pre][i]; i++) {
        if (w->end[i] <= at)
            w->end[i] = rules[pre][i](text, at, end);
        end = w->end[i];
    }
    return end;
}
