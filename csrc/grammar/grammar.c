/* grammar.c - match text against a context-free grammar, byte by byte (constrained decoding).
 *
 * The grammar is a pushdown automaton (pushdown.c). A state is the set of its live configurations.
 * States are stored once and numbered. Their successors are cached by class of byte: a lazy DFA,
 * whose states have stacks (Thompson 1968, "Regular Expression Search Algorithm", CACM 11(6)).
 * When the tables have grown, all but the current state is dropped.
 *
 * Bounds against hostile grammars: live stacks, frames, states, and steps for one token. */
#include <stdlib.h>
#include <string.h>
#include "grammar/except.h"
#include "grammar/pushdown.h"

enum {
    MAX_CONFIG = 1 << 20,
    MAX_STATE = 1 << 17,
    MAX_STEP_BYTES = 16 << 20,
    TIDY_FRAME = 1 << 16,
    TIDY_CONFIG = 1 << 18,
    TIDY_STATE = 1 << 14,
};

/* The number of the state with the live configurations, or an error. */
static int32_t intern(grammar *g)
{
    const struct grammar_closure *c = g->closure;
    const size_t n_bytes = (size_t)c->n_live * sizeof *c->live;
    uint32_t hash = (uint32_t)c->complete;
    for (int32_t i = 0; i < c->n_live; i++)
        hash =
            grammar_mix(grammar_mix(hash, (uint32_t)c->live[i].node), (uint32_t)c->live[i].stack);
    uint32_t at = hash & (uint32_t)(g->n_state_hash - 1);
    for (int32_t i; (i = g->state_hash[at]) != 0; at = (at + 1) & (uint32_t)(g->n_state_hash - 1)) {
        const struct grammar_states *s = g->state + i - 1;
        if (s->hash == hash && s->n == c->n_live && s->complete == c->complete
            && !memcmp(g->config + s->first, c->live, n_bytes))
            return i - 1;
    }
    const int64_t limit =
        MAX_STEP_BYTES / 4 / g->n_class < MAX_STATE ? MAX_STEP_BYTES / 4 / g->n_class : MAX_STATE;
    int32_t max_state = g->max_state;
    int32_t status =
        grammar_reserve(&g->config, &g->max_config, (int64_t)g->n_config + c->n_live + 1,
                        MAX_CONFIG, sizeof *g->config);
    if (!status)
        status = grammar_reserve(&g->state, &max_state, (int64_t)g->n_state + 1, limit,
                                 sizeof *g->state);
    if (!status)
        status = grammar_reserve(&g->step, &g->max_state, (int64_t)g->n_state + 1, limit,
                                 (size_t)g->n_class * sizeof *g->step);
    if (status)
        return status;
    memcpy(g->config + g->n_config, c->live, n_bytes);
    g->state[g->n_state] = (struct grammar_states){
        .first = g->n_config, .n = c->n_live, .hash = hash, .complete = (uint8_t)c->complete};
    for (int32_t i = 0; i < g->n_class; i++)
        g->step[(int64_t)g->n_state * g->n_class + i] = STATE_UNKNOWN;
    g->n_config += c->n_live;
    g->state_hash[at] = ++g->n_state;
    if (2 * g->n_state > g->n_state_hash
        && (status = grammar_rehash(&g->state_hash, &g->n_state_hash, g->n_state, &g->state->hash,
                                    sizeof *g->state)))
        return status;
    return g->n_state - 1;
}

static int32_t finish(grammar *g)
{
    int32_t status = pushdown_close(g);
    if (!status && !g->closure->n_live && !g->closure->complete)
        status = GRAMMAR_REFUSED;
    if (!status)
        status = pushdown_settle(g);
    return status ? status : intern(g);
}

int32_t grammar_next(grammar *g, int32_t state, int32_t class)
{
    int32_t *step = g->step + (int64_t)state * g->n_class + class;
    if (*step != STATE_UNKNOWN)
        return *step;
    pushdown_begin(g);
    const uint8_t byte = g->byte_of[class];
    const struct grammar_states s = g->state[state];
    for (int32_t i = 0; i < s.n; i++) {
        const struct grammar_config x = g->config[s.first + i];
        const grammar_arc *arc = g->arc + g->node[x.node].a;
        int32_t lo = 0, hi = g->node[x.node].b; /* the first arc with arc.hi >= byte */
        while (lo < hi)
            arc[(lo + hi) / 2].hi < byte ? (lo = (lo + hi) / 2 + 1) : (hi = (lo + hi) / 2);
        if (lo < g->node[x.node].b && arc[lo].lo <= byte) {
            const int32_t status = pushdown_reach(g, arc[lo].next, x.stack, 0);
            if (status)
                return status;
        }
    }
    const int32_t next = finish(g);
    if (next >= GRAMMAR_REFUSED) /* the tables may have moved */
        g->step[(int64_t)state * g->n_class + class] = next;
    return next;
}

void grammar_drop_masks(grammar *g)
{
    for (int32_t i = 0; i < g->n_state; i++) {
        free(g->state[i].mask);
        g->state[i].mask = NULL;
    }
    g->n_mask_bytes = 0;
}

int32_t grammar_tidy(grammar *g)
{
    g->n_steps = 0;
    if ((g->n_frame < g->tidy_frame && g->n_config < TIDY_CONFIG && g->n_state < TIDY_STATE)
        || g->current < 0)
        return 0;
    grammar_drop_masks(g);
    struct grammar_closure *c = g->closure;
    pushdown_begin(g);
    const struct grammar_states s = g->state[g->current];
    memcpy(c->live, g->config + s.first, (size_t)s.n * sizeof *c->live);
    c->n_live = s.n;
    c->complete = s.complete;
    /* 0: not live; new number + 1 */
    int32_t *moved = calloc((size_t)g->n_frame, sizeof *moved), n = 0;
    if (!moved)
        return GRAMMAR_NO_MEMORY;
    for (int32_t i = 0; i < s.n; i++)
        for (int32_t f = c->live[i].stack; f > 0 && !moved[f]; f = g->frame[f].parent)
            moved[f] = 1;
    moved[0] = 1;
    for (int32_t i = 0; i < g->n_frame; i++) /* parents come first */
        if (moved[i]) {
            struct grammar_frame f = g->frame[i];
            f.parent = i ? moved[f.parent] - 1 : f.parent;
            f.hash = grammar_mix(grammar_mix(grammar_mix(0, (uint32_t)f.parent), (uint32_t)f.where),
                                 (uint32_t)f.count);
            g->frame[n] = f;
            moved[i] = ++n;
        }
    for (int32_t i = 0; i < s.n; i++)
        c->live[i].stack = moved[c->live[i].stack] - 1;
    free(moved);
    g->n_frame = n;
    g->tidy_frame = 2 * n > TIDY_FRAME ? 2 * n : TIDY_FRAME;
    g->n_state = g->n_config = 0;
    int32_t status = grammar_rehash(&g->frame_hash, &g->n_frame_hash, g->n_frame, &g->frame->hash,
                                    sizeof *g->frame);
    if (!status)
        status = grammar_rehash(&g->state_hash, &g->n_state_hash, 0, NULL, 0);
    if (!status)
        status = pushdown_settle(g); /* their order depends on stack numbers */
    g->current = status ? status : intern(g);
    return g->current < 0 ? g->current : 0;
}

/* Sorts bytes into classes that no arc tells apart. */
static void find_classes(grammar *g, int32_t n_arc)
{
    uint8_t starts[257] = {0};
    for (int32_t i = 0; i < n_arc; i++)
        starts[g->arc[i].lo] = starts[g->arc[i].hi + 1] = 1;
    for (int32_t b = 0; b < 256; b++) {
        if (b == 0 || starts[b])
            g->byte_of[g->n_class++] = (uint8_t)b;
        g->class_of[b] = (uint8_t)(g->n_class - 1);
    }
}

grammar *grammar_new(int32_t *status, const grammar_program *p, const grammar_token *token)
{
    *status = GRAMMAR_NO_MEMORY;
    grammar *g = calloc(1, sizeof *g);
    if (!g || pushdown_new(g)) {
        grammar_free(g);
        return NULL;
    }
    if ((*status = except_expand(g, p))) {
        grammar_free(g);
        return NULL;
    }
    g->target = p->target;
    g->loop = p->loop;
    g->token = token;
    for (int32_t i = 0; i < p->n_node; i++)
        g->has_tokens |= p->node[i].op == GRAMMAR_TOKEN;
    const int32_t n_arc = g->n_arc, n_loop = p->n_loop, start = p->start;
    g->n_loop = n_loop;
    g->tidy_frame = TIDY_FRAME;
    find_classes(g, n_arc);
    *status = grammar_rehash(&g->state_hash, &g->n_state_hash, 0, NULL, 0);
    if (!*status) {
        pushdown_begin(g);
        *status = pushdown_reach(g, start, 0, 0);
    }
    if (!*status) {
        g->current = finish(g);
        *status = g->current < 0 ? g->current : 0;
    }
    if (*status) {
        grammar_free(g);
        return NULL;
    }
    return g;
}

void grammar_free(grammar *g)
{
    if (!g)
        return;
    grammar_drop_masks(g);
    pushdown_free(g);
    free(g->own_node);
    free(g->after_plain);
    free(g->own_arc);
    free(g->config);
    free(g->state);
    free(g->state_hash);
    free(g->step);
    free(g);
}

int32_t grammar_feed(grammar *g, const uint8_t *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n && g->current >= 0; i++)
        if (grammar_tidy(g) == 0)
            g->current = grammar_next(g, g->current, g->class_of[bytes[i]]);
    return g->current < 0 ? g->current : 0;
}

int32_t grammar_feed_token(grammar *g, int32_t id, const uint8_t *bytes, uint64_t n)
{
    if (!g->has_tokens)
        return n ? grammar_feed(g, bytes, n) : (g->current = GRAMMAR_REFUSED);
    int32_t status = g->current < 0 ? g->current : grammar_tidy(g);
    if (status)
        return g->current = status;
    int32_t by_text = n ? g->current : GRAMMAR_REFUSED;
    for (uint64_t i = 0; i < n && by_text >= 0; i++)
        by_text = grammar_next(g, by_text, g->class_of[bytes[i]]);
    if (by_text < GRAMMAR_REFUSED)
        return g->current = by_text;
    pushdown_begin(g);
    const struct grammar_states s = g->state[g->current];
    for (int32_t i = 0; i < s.n && !status; i++) {
        const struct grammar_config x = g->config[s.first + i];
        if (g->node[x.node].op != GRAMMAR_TOKEN)
            continue;
        const grammar_token *t = g->token + g->node[x.node].a;
        if ((t->id == id) != t->negated)
            status = pushdown_reach(g, t->next, x.stack, 0);
    }
    if (by_text >= 0) {
        const struct grammar_states more = g->state[by_text];
        g->closure->complete |= more.complete;
        for (int32_t i = 0; i < more.n && !status; i++)
            status = pushdown_reach(g, g->config[more.first + i].node,
                                    g->config[more.first + i].stack, 0);
    }
    g->current = status ? status : finish(g);
    return g->current < 0 ? g->current : 0;
}

int32_t grammar_state(const grammar *g)
{
    if (g->current < 0)
        return 0;
    const struct grammar_states *s = g->state + g->current;
    return (s->complete ? GRAMMAR_COMPLETE : 0) | (s->n ? GRAMMAR_OPEN : 0);
}
