/* html.c - HTML to the text that a reader sees, in one pass.
 *
 * WHATWG, "HTML Living Standard", section 13.2.5 (tokenization).  There is no tree, only a stack of open elements
 * of fixed depth (html_elements.c), so the time is proportional to the bytes whatever they are and the memory is the
 * caller's.  (Parsers that build the tree are quadratic in its depth, or in the attributes of a tag.)
 *
 * Not text: comments, script, style, title and the like, and elements that cannot be seen: `hidden`, display: none, visibility:
 * hidden, font-size 0, boxes of no size, and text of its background's colour.  These characters are counted.  Style sheets
 * are not applied; where one speaks of backgrounds, only a background that is set by an attribute counts.
 *
 * Blocks become newlines (one, or two around what stands apart), other blanks one blank.  Alternative texts of
 * images are left out.  Bytes of 128 and above pass as they are. */
#include <string.h>
#include "internal.h"

struct attributes { struct html_slice style, color, text, bgcolor, background, link; int hidden, named; };
struct page {
    html_page *out; uint8_t *text, *link; const uint8_t *html; int64_t n, max_link;
    int32_t want, space, has_sheet; /* want: newlines before the next character; space: a blank before it */
    struct html_stack stack;
};

static int blank(uint8_t c) { return c == ' ' || (c >= 9 && c <= 13); }
static int letter(uint8_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }
static uint8_t lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? c | 32 : c; }
static int same(const uint8_t *s, const char *word, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (lower(s[i]) != (uint8_t)word[i])
            return 0;
    return 1;
}

uint8_t html_character(const uint8_t *s, int64_t n, int64_t *used)
{
    static const struct { const char *name; uint8_t c; } REF[] = {
        {"colon;", ':'}, {"semi;", ';'}, {"num;", '#'}, {"lpar;", '('}, {"rpar;", ')'}, {"amp;", '&'}, {"tab;", 9},
        {"newline;", 10}, {"period;", '.'}, {"comma;", ','}, {"sol;", '/'}, {"bsol;", '\\'}, {"ast;", '*'}, {"percnt;", '%'},
        {"quot;", '"'}, {"apos;", '\''}, {"nbsp;", ' '}, {"midast;", '*'}};
    *used = 1;
    if (*s != '&' || n < 3)
        return *s;
    if (s[1] != '#') {
        for (size_t i = 0; i < sizeof REF / sizeof *REF; i++) {
            const int64_t n_name = (int64_t)strlen(REF[i].name);
            if (n > n_name && same(s + 1, REF[i].name, n_name)) {
                *used = n_name + 1;
                return REF[i].c;
            }
        }
        return '&';
    }
    const int32_t base = (s[2] | 32) == 'x' ? 16 : 10;
    int64_t i = base == 16 ? 3 : 2, value = 0;
    const int64_t first = i;
    for (; i < n; i++) {
        const uint8_t c = lower(s[i]);
        const int32_t digit = c >= '0' && c <= '9' ? c - '0' : base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            break;
        value = value > 0x10ffff ? value : value * base + digit;
    }
    if (i == first)
        return '&';
    *used = i + (i < n && s[i] == ';');
    return value < 128 ? (uint8_t)value : '?';
}

/* Text ----------------------------------------------------------------------------------------- */

static void put(struct page *page, uint8_t c)
{
    if (page->out->n_text < page->n)
        page->text[page->out->n_text++] = c;
}

static void newlines(struct page *page, int32_t n)
{
    if (page->want < n)
        page->want = n;
}

static void characters(struct page *page, int64_t at, int64_t end)
{
    const int unseen = html_is_hidden(&page->stack);
    for (; at < end; at++) {
        const uint8_t c = page->html[at];
        if (blank(c)) {
            page->space = 1;
            if (page->stack.n_pre > 0 && c == '\n' && page->want < 2)
                page->want++;
        } else if (unseen)
            page->out->n_hidden += c >> 6 != 2; /* not the later bytes of a UTF-8 character */
        else {
            if (page->out->n_text)
                for (; page->want > 0; page->want--, page->space = 0)
                    put(page, '\n');
            if (page->space && page->out->n_text && page->text[page->out->n_text - 1] != '\n')
                put(page, ' ');
            page->want = page->space = 0;
            put(page, c);
        }
    }
}

/* Tags ----------------------------------------------------------------------------------------- */

static void keep_attribute(struct attributes *a, struct html_slice name, struct html_slice value)
{
    struct html_slice *to = html_named(name, "style") ? &a->style : html_named(name, "color") ? &a->color : html_named(name, "text") ? &a->text :
        html_named(name, "bgcolor") ? &a->bgcolor : html_named(name, "background") ? &a->background :
        html_named(name, "href") || html_named(name, "action") ? &a->link : NULL;
    if (to && !to->s) /* of two of a name the first counts */
        *to = value;
    a->hidden |= html_named(name, "hidden");
    a->named |= html_named(name, "class") || html_named(name, "id");
}

/* The attributes of a tag from byte at on; returns the byte after its >, or -1 if it never ends. */
static int64_t attributes(struct attributes *a, const uint8_t *s, int64_t at, int64_t n)
{
    memset(a, 0, sizeof *a);
    for (;;) {
        while (at < n && (blank(s[at]) || s[at] == '/'))
            at++;
        if (at >= n)
            return -1;
        if (s[at] == '>')
            return at + 1;
        struct html_slice name = {s + at, 0}, value = {s + at, 0};
        for (at++; at < n && !blank(s[at]) && s[at] != '/' && s[at] != '>' && s[at] != '='; at++)
            ;
        name.n = s + at - name.s;
        while (at < n && blank(s[at]))
            at++;
        if (at < n && s[at] == '=') {
            for (at++; at < n && blank(s[at]); at++)
                ;
            if (at >= n)
                return -1;
            if (s[at] == '"' || s[at] == '\'') {
                const uint8_t *end = memchr(s + at + 1, s[at], (size_t)(n - at - 1));
                if (!end)
                    return -1;
                value = (struct html_slice){s + at + 1, end - (s + at + 1)};
                at = end - s + 1;
            } else {
                value.s = s + at;
                for (; at < n && !blank(s[at]) && s[at] != '>'; at++)
                    ;
                value.n = s + at - value.s;
            }
        }
        keep_attribute(a, name, value);
    }
}

static int32_t attribute_color(struct html_slice value)
{
    uint8_t word[32];
    int64_t n = 0;
    for (int64_t i = 0, used; i < value.n && n < (int64_t)sizeof word; i += used)
        word[n++] = lower(html_character(value.s + i, value.n - i, &used));
    return css_color(word, n);
}

static void look_of(struct page *page, struct look *look, const struct attributes *a, struct html_slice name)
{
    *look = (struct look){LOOK_UNSET, LOOK_UNSET, 0, -1, -1};
    if (html_named(name, "a") && a->link.s)
        look->fg = 0x0000ee;
    if (html_named(name, "font")) {
        if (a->color.s)
            look->fg = attribute_color(a->color);
    } else if (html_named(name, "body") && a->text.s)
        look->fg = attribute_color(a->text);
    if (page->has_sheet && a->named)
        look->bg = LOOK_UNKNOWN;
    if (a->bgcolor.s)
        look->bg = attribute_color(a->bgcolor) == LOOK_CLEAR ? LOOK_UNSET : attribute_color(a->bgcolor);
    if (a->background.s)
        look->bg = LOOK_UNKNOWN;
    look->gone = (int8_t)a->hidden;
    if (a->style.s)
        css_style(look, a->style.s, a->style.n);
}

static void keep_link(struct page *page, struct html_slice value)
{
    if (!value.s || page->out->n_link + value.n + 1 > page->max_link)
        return;
    for (int64_t i = 0; i < value.n; i++) /* browsers leave newlines out */
        if (value.s[i] != '\n' && value.s[i] != '\r')
            page->link[page->out->n_link++] = value.s[i];
    page->link[page->out->n_link++] = '\n';
}

/* The byte after the end tag of a raw element, or -1; a style sheet is looked through for backgrounds. */
static int64_t raw_end(struct page *page, struct html_slice name, int64_t at)
{
    const int sheet = html_named(name, "style");
    const uint8_t *s = page->html;
    for (; at < page->n; at++) {
        if (sheet && lower(s[at]) == 'b' && page->n - at >= 10 && same(s + at, "background", 10))
            page->has_sheet = 1;
        if (s[at] != '<' || page->n - at < name.n + 3 || s[at + 1] != '/')
            continue;
        int64_t i = 0;
        while (i < name.n && lower(s[at + 2 + i]) == lower(name.s[i]))
            i++;
        if (i == name.n && !letter(s[at + 2 + i]) && s[at + 2 + i] != '-') {
            const uint8_t *end = memchr(s + at, '>', (size_t)(page->n - at));
            return end ? end - s + 1 : -1;
        }
    }
    return -1;
}

/* A tag whose name begins at byte at; returns the byte after it, or -1. */
static int64_t tag(struct page *page, int64_t at, int is_end)
{
    const uint8_t *s = page->html;
    struct html_slice name = {s + at, 0};
    struct attributes a;
    struct look look;
    uint32_t id;
    for (; at < page->n && !blank(s[at]) && s[at] != '/' && s[at] != '>'; at++)
        ;
    name.n = s + at - name.s;
    at = attributes(&a, s, at, page->n);
    if (at < 0)
        return -1;
    const struct html_tag tag = html_tag_find(&id, name);
    if (page->want < 2 && html_named(name, "br"))
        page->want++;
    newlines(page, tag.kind & APART ? 2 : tag.kind & LINE ? 1 : 0);
    page->space |= (tag.kind & CELL) != 0;
    if (is_end) {
        if (!html_named(name, "body") && !html_named(name, "html")) /* text after them is shown as if it were before */
            html_close(&page->stack, id, tag.kind, tag.group);
        return at;
    }
    if (tag.kind & RAW)
        return raw_end(page, name, at);
    html_imply_ends(&page->stack, tag.kind, tag.group);
    if (a.link.s && !html_named(name, "base") && !html_named(name, "link"))
        keep_link(page, a.link);
    look_of(page, &look, &a, name);
    look.gone |= (tag.kind & DROP) != 0;
    if (!(tag.kind & VOID) && html_open(&page->stack, id, tag, look) < 0)
        page->out->n_too_deep++;
    return at;
}

/* The byte after what begins with <! or <? at byte at, or -1. */
static int64_t comment(struct page *page, int64_t at)
{
    const uint8_t *s = page->html, *end;
    const int64_t n = page->n;
    if (n - at < 4 || s[at + 1] != '!' || s[at + 2] != '-' || s[at + 3] != '-') {
        end = memchr(s + at, '>', (size_t)(n - at));
        return end ? end - s + 1 : -1;
    }
    page->out->n_comment++;
    if (n - at > 4 && s[at + 4] == '>')
        return at + 5;
    if (n - at > 5 && s[at + 4] == '-' && s[at + 5] == '>')
        return at + 6;
    for (at += 4; (end = memchr(s + at, '>', (size_t)(n - at))); at = end - s + 1)
        if ((end - s >= at + 2 && end[-1] == '-' && end[-2] == '-') ||
            (end - s >= at + 3 && end[-1] == '!' && end[-2] == '-' && end[-3] == '-'))
            return end - s + 1;
    return -1;
}

void html_text(html_page *out, uint8_t *text, uint8_t *link, const uint8_t *html, int64_t n_bytes, int64_t max_link)
{
    struct page page = {.out = out, .text = text, .link = link, .html = html, .n = n_bytes, .max_link = max_link};
    memset(out, 0, sizeof *out);
    page.stack.open[0].seen = (struct look){0x000000, 0xffffff, 0, 0, 0};
    for (int64_t at = 0; at < n_bytes;) {
        const uint8_t *open = memchr(html + at, '<', (size_t)(n_bytes - at));
        const int64_t to = open ? open - html : n_bytes;
        characters(&page, at, to);
        if (!open)
            break;
        const uint8_t next = to + 1 < n_bytes ? html[to + 1] : 0, after = to + 2 < n_bytes ? html[to + 2] : 0;
        if (letter(next))
            at = tag(&page, to + 1, 0);
        else if (next == '/' && letter(after))
            at = tag(&page, to + 2, 1);
        else if (next == '!' || next == '?' || next == '/')
            at = comment(&page, to);
        else {
            characters(&page, to, to + 1);
            at = to + 1;
        }
        if (at < 0) {
            out->n_cut = n_bytes - to;
            break;
        }
        if (page.has_sheet && page.stack.open[0].seen.bg >= 0) { /* it may have painted the page */
            page.stack.open[0].seen.bg = LOOK_UNKNOWN;
            html_inherit_all(&page.stack);
        }
    }
}
