/* marks.c - recognize chat markers by their form: <|im_start|>, [INST].
 *
 * Apart from white space at both ends, a marker begins with < or [, ends with > or ], and has a
 * letter, a digit or a | between. HTML tags of the list below are no markers. */
#include "tokenizer/vocabulary.h"

/* HTML tags are text, even if a vocabulary has them as pieces. */
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
        if (n >= sizeof name - 2
            || !((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9')))
            return 0;
        name[n++] = (char)text[i];
    }
    name[n++] = ' ';
    return n > 2 && strstr(names, name) != NULL;
}

int is_marker(const uint8_t *text, uint32_t n)
{
    for (uint32_t k; (k = white_space(text, n)); n -= k)
        text += k;
    while (n) {
        if (n >= 3 && white_space(text + n - 3, 3) == 3)
            n -= 3;
        else if (white_space(text + n - 1, 1))
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
