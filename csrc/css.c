/* css.c - what a style attribute and the colours of HTML say about whether text can be seen.
 *
 * CSS 2.1 section 4 (declarations, escapes, comments) and CSS Color 3, as much of them as decides
 * visibility; one pass over the value, a buffer of fixed size, no allocation.  A declaration that
 * is not understood changes nothing. */
#include <string.h>
#include "internal.h"

enum { MAX_STYLE_BYTES = 8192 };

/* Colours by name: those that mail uses to hide or to show, and all that are nearly white. */
static const struct { const char *name; int32_t rgb; } COLOR[] = {
    {"white", 0xffffff}, {"black", 0}, {"red", 0xff0000}, {"green", 0x008000}, {"blue", 0x0000ff}, {"yellow", 0xffff00},
    {"gray", 0x808080}, {"grey", 0x808080}, {"silver", 0xc0c0c0}, {"navy", 0x000080}, {"maroon", 0x800000},
    {"purple", 0x800080}, {"teal", 0x008080}, {"olive", 0x808000}, {"lime", 0x00ff00}, {"aqua", 0x00ffff},
    {"cyan", 0x00ffff}, {"fuchsia", 0xff00ff}, {"magenta", 0xff00ff}, {"orange", 0xffa500}, {"snow", 0xfffafa},
    {"ivory", 0xfffff0}, {"ghostwhite", 0xf8f8ff}, {"whitesmoke", 0xf5f5f5}, {"floralwhite", 0xfffaf0},
    {"azure", 0xf0ffff}, {"mintcream", 0xf5fffa}, {"aliceblue", 0xf0f8ff}, {"honeydew", 0xf0fff0},
    {"seashell", 0xfff5ee}, {"lavenderblush", 0xfff0f5}, {"lightyellow", 0xffffe0}, {"lightgrey", 0xd3d3d3},
    {"lightgray", 0xd3d3d3}, {"transparent", LOOK_CLEAR},
};

static int blank(uint8_t c) { return c == ' ' || (c >= 9 && c <= 13); }
static int32_t hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Trims blanks at both ends. */
static void trim(const uint8_t **s, int64_t *n)
{
    for (; *n && blank(**s); ++*s, --*n)
        ;
    for (; *n && blank((*s)[*n - 1]); --*n)
        ;
}

static int is(const uint8_t *s, int64_t n, const char *word) { return (int64_t)strlen(word) == n && !memcmp(s, word, (size_t)n); }
static int begins(const uint8_t *s, int64_t n, const char *word)
{
    const int64_t n_word = (int64_t)strlen(word);
    return n >= n_word && !memcmp(s, word, (size_t)n_word);
}
static int has(const uint8_t *s, int64_t n, const char *word)
{
    for (int64_t i = 0; i < n; i++)
        if (begins(s + i, n - i, word))
            return 1;
    return 0;
}

/* A decimal number at s, times 1000; *used: its bytes, 0 if there is none. */
static int64_t milli(const uint8_t *s, int64_t n, int64_t *used)
{
    int64_t i = 0, value = 0, unit = 1000, any = 0, negative = 0;
    if (i < n && (s[i] == '-' || s[i] == '+'))
        negative = s[i++] == '-';
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++, any = 1)
        value = value < 1000000000 ? value * 10 + (s[i] - '0') * 1000 : value;
    if (i < n && s[i] == '.')
        for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++, any = 1) {
            unit /= 10;
            value += (s[i] - '0') * unit;
        }
    *used = any ? i : 0;
    return negative ? -value : value;
}

/* rgb(1, 2, 3), rgba(1 2 3 / 0) and the like; s begins after the bracket. */
static int32_t rgb_function(const uint8_t *s, int64_t n)
{
    int64_t part[4] = {0, 0, 0, 1000}, used;
    int32_t k = 0;
    for (int64_t i = 0; i < n && k < 4 && s[i] != ')';) {
        const int64_t v = milli(s + i, n - i, &used);
        if (!used) {
            i++;
            continue;
        }
        i += used;
        const int percent = i < n && s[i] == '%';
        part[k] = percent ? (k == 3 ? v / 100 : v * 255 / 100) : v;
        k++;
    }
    if (k < 3)
        return LOOK_UNKNOWN;
    if (k == 4 && part[3] <= 50)
        return LOOK_CLEAR;
    int32_t rgb = 0;
    for (k = 0; k < 3; k++)
        rgb = rgb << 8 | (int32_t)(part[k] < 0 ? 0 : part[k] > 255000 ? 255 : part[k] / 1000);
    return rgb;
}

int32_t css_color(const uint8_t *s, int64_t n)
{
    trim(&s, &n);
    if (begins(s, n, "rgb"))
        for (int64_t i = 3; i < n && i < 6; i++)
            if (s[i] == '(')
                return rgb_function(s + i + 1, n - i - 1);
    for (size_t i = 0; i < sizeof COLOR / sizeof *COLOR; i++)
        if (is(s, n, COLOR[i].name))
            return COLOR[i].rgb;
    if (n && *s == '#')
        s++, n--;
    int32_t rgb = 0;
    if (n != 3 && n != 4 && n != 6 && n != 8)
        return LOOK_UNKNOWN;
    for (int64_t i = 0; i < n; i++)
        if (hex(s[i]) < 0)
            return LOOK_UNKNOWN;
    if ((n == 4 && s[3] == '0') || (n == 8 && s[6] == '0' && s[7] == '0'))
        return LOOK_CLEAR;
    for (int64_t i = 0; i < 3; i++)
        rgb = rgb << 8 | (n < 6 ? hex(s[i]) * 17 : hex(s[2 * i]) * 16 + hex(s[2 * i + 1]));
    return rgb;
}

/* The first colour among the words of a `background` value, LOOK_UNKNOWN if it names an image or none is found. */
static int32_t background(const uint8_t *s, int64_t n)
{
    int32_t rgb = LOOK_UNKNOWN;
    if (has(s, n, "url(") || has(s, n, "gradient"))
        return LOOK_UNKNOWN;
    for (int64_t i = 0; i < n && rgb == LOOK_UNKNOWN;) {
        int64_t m = i, depth = 0;
        for (; m < n && (depth || !blank(s[m])); m++)
            depth += s[m] == '(' ? 1 : s[m] == ')' && depth ? -1 : 0;
        rgb = css_color(s + i, m - i);
        i = m + 1;
    }
    return rgb == LOOK_CLEAR ? LOOK_UNSET : rgb;
}

/* What the declarations of one attribute say of boxes that hold nothing. */
struct box { int zero, clipped; };

static void declare(struct look *look, struct box *box, const uint8_t *name, int64_t n_name, const uint8_t *value, int64_t n)
{
    int64_t used;
    trim(&name, &n_name);
    trim(&value, &n);
    if (is(name, n_name, "display"))
        look->gone |= begins(value, n, "none") ? GONE_DISPLAY : 0;
    else if (is(name, n_name, "visibility"))
        look->veiled = begins(value, n, "hidden") || begins(value, n, "collapse") ? 1 : 0;
    else if (is(name, n_name, "opacity"))
        look->gone |= milli(value, n, &used) <= 20 && used ? GONE_DISPLAY : 0;
    else if (is(name, n_name, "color"))
        look->fg = css_color(value, n);
    else if (is(name, n_name, "background-color"))
        look->bg = css_color(value, n) == LOOK_CLEAR ? LOOK_UNSET : css_color(value, n);
    else if (is(name, n_name, "background"))
        look->bg = background(value, n);
    else if (is(name, n_name, "background-image"))
        look->bg = LOOK_UNKNOWN;
    else if (is(name, n_name, "overflow"))
        box->clipped = begins(value, n, "hidden");
    else if (is(name, n_name, "text-indent"))
        look->gone |= milli(value, n, &used) < -500000 ? GONE_DISPLAY : 0;
    else if (is(name, n_name, "height") || is(name, n_name, "max-height") || is(name, n_name, "width") || is(name, n_name, "max-width"))
        box->zero |= milli(value, n, &used) == 0 && used;
    else if (is(name, n_name, "font-size")) {
        const int64_t size = milli(value, n, &used);
        const int relative = used < n && (value[used] == '%' || begins(value + used, n - used, "em"));
        if (!used)
            look->tiny = 0; /* a word: small, large */
        else if (!relative)
            look->tiny = size <= 1000; /* a pixel or a point: no eye reads it */
        else if (size < (value[used] == '%' ? 8000 : 80))
            look->tiny = 1;
    }
}

/* out: the value as CSS reads it: lower case, references and escapes decoded, comments gone; at most MAX_STYLE_BYTES. */
static int64_t decode_style(uint8_t *out, const uint8_t *s, int64_t n)
{
    int64_t n_out = 0;
    for (int64_t i = 0; i < n && n_out < MAX_STYLE_BYTES;) {
        int64_t used = 1;
        uint8_t c = html_character(s + i, n - i, &used);
        i += used;
        if (c == '\\' && i < n) { /* one to six hexadecimal digits and a blank, or the character itself */
            int32_t code = 0, k = 0;
            for (; k < 6 && i < n && hex(s[i]) >= 0; k++)
                code = code << 4 | hex(s[i++]);
            if (k && i < n && blank(s[i]))
                i++;
            c = k ? (code < 128 ? (uint8_t)code : '?') : s[i++];
        }
        out[n_out++] = c >= 'A' && c <= 'Z' ? c | 32 : c;
        if (c == '*' && n_out > 1 && out[n_out - 2] == '/') {
            out[--n_out - 1] = ' '; /* a comment parts words */
            for (; i < n && !(s[i] == '*' && i + 1 < n && s[i + 1] == '/'); i++)
                ;
            i += 2;
        }
    }
    return n_out;
}

void css_style(struct look *look, const uint8_t *s, int64_t n)
{
    uint8_t style[MAX_STYLE_BYTES];
    struct box box = {0, 0};
    n = decode_style(style, s, n);
    for (int64_t i = 0; i < n;) { /* one declaration; a bracket holds its semicolons */
        int64_t end = i, colon = -1, depth = 0;
        for (; end < n && (depth || style[end] != ';'); end++) {
            depth += style[end] == '(' ? 1 : style[end] == ')' && depth ? -1 : 0;
            if (style[end] == ':' && colon < 0)
                colon = end;
        }
        if (colon >= 0)
            declare(look, &box, style + i, colon - i, style + colon + 1, end - colon - 1);
        i = end + 1;
    }
    if (box.zero && box.clipped)
        look->gone |= GONE_DISPLAY;
}
