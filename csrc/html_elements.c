/* html_elements.c - which element text is in.
 *
 * WHATWG, "HTML Living Standard", section 13.2.6: implied end tags, scopes, formatting elements that outlive a block, and
 * 13.2.4.2 for the stack; only what decides the inheritance of looks.  The stack has a fixed depth, so every
 * tag costs a bounded time; deeper tags are not followed. */
#include <string.h>
#include "internal.h"

enum { MAX_KEPT = 16, NEAR = 16 }; /* formatting elements that outlive a block; difference of colours that is not seen */

static const struct html_tag TAG[] = {
    {"a", FORMAT, 0}, {"b", FORMAT, 0}, {"i", FORMAT, 0}, {"u", FORMAT, 0}, {"s", FORMAT, 0}, {"p", APART | SPECIAL, GROUP_P},
    {"br", VOID, 0}, {"hr", APART | VOID, 0}, {"td", CELL | SPECIAL, GROUP_CELL}, {"th", CELL | SPECIAL, GROUP_CELL},
    {"tr", LINE | SPECIAL, GROUP_ROW}, {"li", LINE | SPECIAL, GROUP_LI}, {"dt", LINE | SPECIAL, GROUP_DD}, {"dd", LINE | SPECIAL, GROUP_DD},
    {"ul", APART | SPECIAL | LIST, 0}, {"ol", APART | SPECIAL | LIST, 0}, {"dl", APART | SPECIAL | LIST, 0}, {"em", FORMAT, 0}, {"tt", FORMAT, 0},
    {"h1", APART | SPECIAL, 0}, {"h2", APART | SPECIAL, 0}, {"h3", APART | SPECIAL, 0},
    {"h4", APART | SPECIAL, 0}, {"h5", APART | SPECIAL, 0}, {"h6", APART | SPECIAL, 0},
    {"div", LINE | SPECIAL, 0}, {"font", FORMAT, 0}, {"span", 0, 0}, {"img", VOID, 0}, {"table", APART | SPECIAL | TABLE, 0},
    {"body", LINE | SPECIAL, 0}, {"html", LINE | SPECIAL, 0}, {"head", LINE | SPECIAL, 0}, {"big", FORMAT, 0},
    {"code", FORMAT, 0}, {"small", FORMAT, 0}, {"strike", FORMAT, 0}, {"strong", FORMAT, 0}, {"nobr", FORMAT, 0},
    {"center", LINE | SPECIAL, 0}, {"pre", APART | SPECIAL | PRE, 0}, {"form", LINE | SPECIAL, 0}, {"blockquote", APART | SPECIAL, 0},
    {"address", LINE | SPECIAL, 0}, {"article", LINE | SPECIAL, 0}, {"section", LINE | SPECIAL, 0}, {"aside", LINE | SPECIAL, 0},
    {"header", LINE | SPECIAL, 0}, {"footer", LINE | SPECIAL, 0}, {"main", LINE | SPECIAL, 0}, {"nav", LINE | SPECIAL, 0},
    {"figure", LINE | SPECIAL, 0}, {"fieldset", LINE | SPECIAL, 0}, {"tbody", LINE | SPECIAL, GROUP_SECTION}, {"thead", LINE | SPECIAL, GROUP_SECTION},
    {"tfoot", LINE | SPECIAL, GROUP_SECTION}, {"caption", LINE | SPECIAL, 0}, {"option", LINE, GROUP_OPTION}, {"select", LINE | SPECIAL, 0},
    {"dir", APART | SPECIAL, 0}, {"menu", APART | SPECIAL, 0}, {"listing", APART | SPECIAL, 0}, {"textarea", LINE | SPECIAL, 0},
    {"area", VOID, 0}, {"base", VOID, 0}, {"col", VOID, 0}, {"embed", VOID, 0}, {"input", VOID, 0}, {"link", VOID, 0},
    {"meta", VOID, 0}, {"param", VOID, 0}, {"source", VOID, 0}, {"track", VOID, 0}, {"wbr", VOID, 0}, {"bgsound", VOID, 0},
    {"basefont", VOID, 0}, {"frame", VOID, 0}, {"keygen", VOID, 0}, {"script", RAW, 0}, {"style", RAW, 0}, {"title", RAW, 0},
    {"iframe", RAW, 0}, {"noembed", RAW, 0}, {"noframes", RAW, 0}, {"template", SPECIAL | DROP, 0},
};
enum { N_TAG = sizeof TAG / sizeof *TAG };

static uint8_t lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? c | 32 : c; }

int html_named(struct html_slice name, const char *word)
{
    for (int64_t i = 0; i < name.n; i++)
        if (!word[i] || lower(name.s[i]) != (uint8_t)word[i]) /* a name may hold a NUL */
            return 0;
    return !word[name.n];
}

struct html_tag html_tag_find(uint32_t *id, struct html_slice name)
{
    for (*id = 0; *id < N_TAG; ++*id)
        if (lower(*name.s) == (uint8_t)*TAG[*id].name && html_named(name, TAG[*id].name))
            return TAG[*id];
    *id = 2166136261u; /* FNV-1a */
    for (int64_t i = 0; i < name.n; i++)
        *id = (*id ^ lower(name.s[i])) * 16777619u;
    *id |= 1u << 31;
    return (struct html_tag){"", 0, 0};
}

static void inherit(struct html_element *e, const struct html_element *up)
{
    const struct look *own = &e->own, *over = &up->seen;
    e->seen.fg = own->fg == LOOK_UNSET ? over->fg : own->fg;
    e->seen.bg = own->bg == LOOK_UNSET ? over->bg : own->bg;
    e->seen.gone = own->gone | over->gone;
    e->seen.veiled = own->veiled < 0 ? over->veiled : own->veiled;
    e->seen.tiny = own->tiny < 0 ? over->tiny : own->tiny;
}

void html_inherit_all(struct html_stack *stack)
{
    for (int32_t i = 1; i <= stack->n; i++)
        inherit(&stack->open[i], &stack->open[i - 1]);
}

int html_is_hidden(const struct html_stack *stack)
{
    const struct look *l = &stack->open[stack->n].seen;
    if (l->gone || l->veiled || l->tiny || l->fg == LOOK_CLEAR)
        return 1;
    if (l->fg < 0 || l->bg < 0)
        return 0;
    for (int32_t shift = 0; shift < 24; shift += 8) {
        const int32_t d = (l->fg >> shift & 255) - (l->bg >> shift & 255);
        if (d > NEAR || d < -NEAR)
            return 0;
    }
    return 1;
}

/* Closes open[i] and what is in it, but for up to MAX_KEPT formatting elements if keep is not 0. */
static void close_from(struct html_stack *stack, int32_t i, int keep)
{
    int32_t n = i;
    for (int32_t j = i; j <= stack->n; j++) {
        if (!keep || j == i || !(stack->open[j].kind & FORMAT) || n == i + MAX_KEPT) {
            stack->n_pre -= (stack->open[j].kind & PRE) != 0;
            continue;
        }
        stack->open[n] = stack->open[j];
        inherit(&stack->open[n], &stack->open[n - 1]);
        n++;
    }
    stack->n = n - 1;
}

/* Ends the open element of this group that a new one cannot be in, if there is one in its scope. */
static void imply_end(struct html_stack *stack, uint8_t group)
{
    const int in_table = group >= GROUP_CELL;
    int32_t found = 0;
    for (int32_t i = stack->n; i > 0 && (in_table || !found); i--) {
        const struct html_element *e = &stack->open[i];
        if (e->kind & TABLE || (!in_table && e->kind & CELL) || ((group == GROUP_LI || group == GROUP_DD) && e->kind & LIST))
            break;
        if (in_table ? e->group >= GROUP_CELL && e->group <= group : e->group == group)
            found = i; /* in a table the outermost: a row ends a cell and its row */
    }
    if (found)
        close_from(stack, found, !in_table);
}

void html_imply_ends(struct html_stack *stack, uint16_t kind, uint8_t group)
{
    if (kind & SPECIAL && group < GROUP_CELL)
        imply_end(stack, GROUP_P); /* a paragraph holds no block */
    if (group && group != GROUP_P)
        imply_end(stack, group);
}

int html_open(struct html_stack *stack, uint32_t id, struct html_tag tag, struct look own)
{
    if (stack->n == MAX_OPEN)
        return -1;
    struct html_element *e = &stack->open[++stack->n];
    *e = (struct html_element){.id = id, .kind = tag.kind, .group = tag.group, .own = own};
    inherit(e, e - 1);
    stack->n_pre += (tag.kind & PRE) != 0;
    return 0;
}

void html_close(struct html_stack *stack, uint32_t id, uint16_t kind, uint8_t group)
{
    const int in_table = group >= GROUP_CELL || kind & TABLE;
    for (int32_t i = stack->n; i > 0; i--) {
        struct html_element *e = &stack->open[i];
        if (e->id == id) {
            if (kind & FORMAT) { /* what is in it stays open, like the block of a misnested pair */
                memmove(e, e + 1, (size_t)(stack->n - i) * sizeof *e);
                stack->n--;
                for (; i <= stack->n; i++)
                    inherit(&stack->open[i], &stack->open[i - 1]);
            } else
                close_from(stack, i, kind & SPECIAL && !in_table);
            return;
        }
        if (e->kind & TABLE || (!in_table && e->kind & CELL) || (!(kind & (SPECIAL | FORMAT)) && e->kind & SPECIAL))
            return;
    }
}
