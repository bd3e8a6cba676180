/* grammar.c - where in a context-free grammar a text stands, byte by byte.
 *
 * The grammar is a pushdown automaton.  A configuration is a node that takes a
 * byte, and a stack: where the open rules return to and how many rounds each open
 * counted loop has done.  Stacks are linked frames of which equal ones are stored
 * once (hash-consing), so a stack is a number and sharing bounds the memory.  A
 * state is the set of all live configurations; states too are stored once, and
 * their successors are remembered by class of byte, so that the automaton becomes
 * deterministic as it is used (Thompson 1968, "Regular Expression Search
 * Algorithm", CACM 11(6), here with stacks).
 *
 * Two rules keep the set small and finite.  A round of a loop that took no byte
 * is dropped: `fresh` counts the frames pushed since the last byte, and a loop
 * whose frame is fresh has made no progress.  And a configuration goes when
 * another differs only in loop counts and allows all that it allows (`covers`).
 *
 * Nothing here recurses; every table has a limit and every step is counted. */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

enum {
    MAX_LIVE = 4096, MAX_STEPS = 4000000, MAX_SEEN = 1 << 18, MAX_FRAME = 1 << 20, MAX_CONFIG = 1 << 20,
    MAX_STATE = 1 << 17, MAX_STEP_BYTES = 16 << 20, TIDY_FRAME = 1 << 16, TIDY_CONFIG = 1 << 18, TIDY_STATE = 1 << 14,
};
struct grammar_frame {  /* parent < own number; frame 0 is the bottom */
    int32_t parent;
    int32_t where;      /* node to return to, or loop */
    int32_t count;      /* rounds done before this one; -1: not a loop */
    uint32_t hash;
    uint32_t shape;     /* hash of the stack but for its counts */
};
struct grammar_config { int32_t node, stack; };
struct grammar_work { int32_t node, stack, fresh; };
struct seen { uint32_t stamp; struct grammar_work work; };
struct grammar_closure { /* scratch of one step */
    struct seen *seen;
    int32_t n_seen, max_seen;
    uint32_t stamp;
    struct grammar_config live[MAX_LIVE];
    int32_t n_live;
    int complete;
};

static uint32_t mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9e3779b1u;
    return h ^ h >> 15;
}

/* Make room for `need` elements of `size` bytes in *array; 0, or an error. */
static int32_t reserve(void *array, int32_t *max, int64_t need, int64_t limit, size_t size)
{
    if (need <= *max)
        return 0;
    if (need > limit)
        return GRAMMAR_DEEP;
    int64_t n = *max ? 2 * (int64_t)*max : 64;
    n = n < need ? need : n > limit ? limit : n;
    void *p;
    memcpy(&p, array, sizeof p);
    p = realloc(p, (size_t)n * size);
    if (!p)
        return GRAMMAR_NO_MEMORY;
    memcpy(array, &p, sizeof p);
    *max = (int32_t)n;
    return 0;
}

/* Hash tables hold number + 1; open addressing, a power of two of slots, at most half full. */
static int32_t rehash(int32_t **table, int32_t *n_slot, int32_t n, uint32_t (*hash)(const grammar *, int32_t), const grammar *g)
{
    int32_t size = *n_slot ? *n_slot : 256;
    while (size < 2 * n + 2)
        size *= 2;
    int32_t *t = calloc((size_t)size, sizeof *t);
    if (!t)
        return GRAMMAR_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        uint32_t at = hash(g, i) & (uint32_t)(size - 1);
        while (t[at])
            at = (at + 1) & (uint32_t)(size - 1);
        t[at] = i + 1;
    }
    free(*table);
    *table = t;
    *n_slot = size;
    return 0;
}
static uint32_t hash_of_frame(const grammar *g, int32_t i) { return g->frame[i].hash; }
static uint32_t hash_of_state(const grammar *g, int32_t i) { return g->state[i].hash; }

/* The number of the stack `parent` with one frame more, or an error. */
static int32_t push_frame(grammar *g, int32_t parent, int32_t where, int32_t count)
{
    const uint32_t hash = mix(mix(mix(0, (uint32_t)parent), (uint32_t)where), (uint32_t)count);
    uint32_t at = hash & (uint32_t)(g->n_frame_hash - 1);
    for (int32_t i; (i = g->frame_hash[at]) != 0; at = (at + 1) & (uint32_t)(g->n_frame_hash - 1)) {
        const struct grammar_frame *f = g->frame + i - 1;
        if (f->parent == parent && f->where == where && f->count == count)
            return i - 1;
    }
    int32_t status = reserve(&g->frame, &g->max_frame, (int64_t)g->n_frame + 1, MAX_FRAME, sizeof *g->frame);
    if (status)
        return status;
    const uint32_t above = parent < 0 ? 0 : g->frame[parent].shape;
    g->frame[g->n_frame] = (struct grammar_frame){parent, where, count, hash, mix(mix(above, (uint32_t)where), count >= 0)};
    g->frame_hash[at] = ++g->n_frame;
    if (2 * g->n_frame > g->n_frame_hash && (status = rehash(&g->frame_hash, &g->n_frame_hash, g->n_frame, hash_of_frame, g)))
        return status;
    return g->n_frame - 1;
}

/* Slot of `w` in the set of what this step has seen. */
static struct seen *find_seen(struct grammar_closure *c, struct grammar_work w)
{
    uint32_t at = mix(mix(mix(0, (uint32_t)w.node), (uint32_t)w.stack), (uint32_t)w.fresh);
    for (;; at++) {
        struct seen *s = c->seen + (at & (uint32_t)(c->max_seen - 1));
        if (s->stamp != c->stamp ||
            (s->work.node == w.node && s->work.stack == w.stack && s->work.fresh == w.fresh))
            return s;
    }
}

static int32_t grow_seen(struct grammar_closure *c)
{
    if (c->max_seen >= 2 * MAX_SEEN)
        return GRAMMAR_WIDE;
    struct seen *old = c->seen;
    const int32_t n = c->max_seen;
    struct seen *fresh = calloc((size_t)(n ? 4 * n : 256), sizeof *fresh);
    if (!fresh)
        return GRAMMAR_NO_MEMORY;
    c->seen = fresh;
    c->max_seen = n ? 4 * n : 256;
    for (int32_t i = 0; i < n; i++)
        if (old[i].stamp == c->stamp)
            *find_seen(c, old[i].work) = old[i];
    free(old);
    return 0;
}

/* Note that `node` is reached with `stack`: as live if it takes a byte, else as work to do. */
static int32_t reach(grammar *g, int32_t node, int32_t stack, int32_t fresh)
{
    struct grammar_closure *c = g->closure;
    if (stack < 0)
        return stack; /* push_frame failed */
    if (++g->n_steps > MAX_STEPS)
        return GRAMMAR_SLOW;
    const int takes = g->node[node].op == GRAMMAR_BYTES;
    const struct grammar_work w = {node, stack, takes ? 0 : fresh};
    struct seen *s = find_seen(c, w);
    if (s->stamp == c->stamp)
        return 0;
    *s = (struct seen){c->stamp, w};
    int32_t status = 2 * ++c->n_seen > c->max_seen ? grow_seen(c) : 0;
    if (status)
        return status;
    if (takes) {
        if (c->n_live == MAX_LIVE)
            return GRAMMAR_WIDE;
        c->live[c->n_live++] = (struct grammar_config){node, stack};
        return 0;
    }
    if ((status = reserve(&g->work, &g->max_work, (int64_t)g->n_work + 1, 2 * MAX_SEEN, sizeof *g->work)))
        return status;
    g->work[g->n_work++] = w;
    return 0;
}

/* One round of a counted loop is done; the top frame of w.stack is the loop's. */
static int32_t again(grammar *g, struct grammar_work w, int32_t number)
{
    if (w.fresh > 0)
        return 0; /* an empty round */
    const grammar_loop *l = g->loop + number;
    const int32_t parent = g->frame[w.stack].parent, done = g->frame[w.stack].count + 1;
    int32_t status = done >= l->min ? reach(g, l->exit, parent, 0) : 0;
    if (!status && (l->max < 0 || done < l->max)) {
        /* without a limit, all counts that permit to leave are alike */
        const int32_t count = l->max < 0 && done >= l->min ? (l->min ? l->min - 1 : 0) : done;
        status = reach(g, l->body, push_frame(g, parent, number, count), 1);
    }
    return status;
}

/* Follow everything that takes no byte, until only nodes that take one are left. */
static int32_t close_over(grammar *g)
{
    int32_t status = 0;
    while (g->n_work && !status) {
        const struct grammar_work w = g->work[--g->n_work];
        const grammar_node n = g->node[w.node];
        const int32_t deeper = w.fresh + 1, higher = w.fresh > 0 ? w.fresh - 1 : 0;
        switch (n.op) {
        case GRAMMAR_SPLIT:
            for (int32_t i = 0; i < n.b && !status; i++)
                status = reach(g, g->target[n.a + i], w.stack, w.fresh);
            break;
        case GRAMMAR_CALL:
            status = reach(g, n.a, push_frame(g, w.stack, n.b, -1), deeper);
            break;
        case GRAMMAR_RETURN:
            if (w.stack == 0)
                g->closure->complete = 1;
            else
                status = reach(g, g->frame[w.stack].where, g->frame[w.stack].parent, higher);
            break;
        case GRAMMAR_REPEAT:
            if (g->loop[n.a].min == 0)
                status = reach(g, g->loop[n.a].exit, w.stack, w.fresh);
            if (!status)
                status = reach(g, g->loop[n.a].body, push_frame(g, w.stack, n.a, 0), deeper);
            break;
        case GRAMMAR_AGAIN:
            status = again(g, w, n.a);
            break;
        }
    }
    return status;
}

/* Whether stack a allows all that stack b allows, because only counts differ and
 * each loop of a has done fewer rounds and is as free to end. */
static int covers(grammar *g, int32_t a, int32_t b)
{
    while (a != b) {
        const struct grammar_frame *x = g->frame + a, *y = g->frame + b;
        g->n_steps++;
        if (a == 0 || b == 0 || x->shape != y->shape || x->where != y->where || (x->count < 0) != (y->count < 0))
            return 0;
        if (x->count > y->count || (x->count < y->count && x->count + 1 < g->loop[x->where].min))
            return 0;
        a = x->parent;
        b = y->parent;
    }
    return 1;
}

static int before(const grammar *g, struct grammar_config a, struct grammar_config b)
{
    const uint32_t x = g->frame[a.stack].shape, y = g->frame[b.stack].shape;
    return a.node != b.node ? a.node < b.node : x != y ? x < y : a.stack < b.stack;
}

/* Bring the live configurations into their one order and drop covered ones. */
static int32_t settle(grammar *g)
{
    struct grammar_closure *c = g->closure;
    struct grammar_config *v = c->live;
    for (int32_t gap = c->n_live / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (int32_t i = gap; i < c->n_live; i++) {
            const struct grammar_config x = v[i];
            int32_t j = i;
            for (; j >= gap && before(g, x, v[j - gap]); j -= gap)
                v[j] = v[j - gap];
            v[j] = x;
        }
    if (!g->n_loop)
        return 0;
    int32_t n = 0, group = 0;
    for (int32_t i = 0; i < c->n_live; i++) {
        const struct grammar_config x = v[i];
        if (n == group || v[group].node != x.node || g->frame[v[group].stack].shape != g->frame[x.stack].shape)
            group = n;
        int covered = 0;
        for (int32_t j = group; j < n && !covered; j++)
            covered = covers(g, v[j].stack, x.stack);
        if (g->n_steps > MAX_STEPS)
            return GRAMMAR_SLOW;
        if (covered)
            continue;
        int32_t kept = group;
        for (int32_t j = group; j < n; j++)
            if (!covers(g, x.stack, v[j].stack))
                v[kept++] = v[j];
        n = kept;
        v[n++] = x;
    }
    c->n_live = n;
    return 0;
}

/* The number of the state that is the live set, or an error. */
static int32_t intern(grammar *g)
{
    const struct grammar_closure *c = g->closure;
    const size_t n_bytes = (size_t)c->n_live * sizeof *c->live;
    uint32_t hash = (uint32_t)c->complete;
    for (int32_t i = 0; i < c->n_live; i++)
        hash = mix(mix(hash, (uint32_t)c->live[i].node), (uint32_t)c->live[i].stack);
    uint32_t at = hash & (uint32_t)(g->n_state_hash - 1);
    for (int32_t i; (i = g->state_hash[at]) != 0; at = (at + 1) & (uint32_t)(g->n_state_hash - 1)) {
        const struct grammar_states *s = g->state + i - 1;
        if (s->hash == hash && s->n == c->n_live && s->complete == c->complete &&
            !memcmp(g->config + s->first, c->live, n_bytes))
            return i - 1;
    }
    const int64_t limit = MAX_STEP_BYTES / 4 / g->n_class < MAX_STATE ? MAX_STEP_BYTES / 4 / g->n_class : MAX_STATE;
    int32_t max_state = g->max_state;
    int32_t status = reserve(&g->config, &g->max_config, (int64_t)g->n_config + c->n_live + 1, MAX_CONFIG, sizeof *g->config);
    if (!status)
        status = reserve(&g->state, &max_state, (int64_t)g->n_state + 1, limit, sizeof *g->state);
    if (!status)
        status = reserve(&g->step, &g->max_state, (int64_t)g->n_state + 1, limit, (size_t)g->n_class * sizeof *g->step);
    if (status)
        return status;
    memcpy(g->config + g->n_config, c->live, n_bytes);
    g->state[g->n_state] = (struct grammar_states){.first = g->n_config, .n = c->n_live, .hash = hash, .complete = (uint8_t)c->complete};
    for (int32_t i = 0; i < g->n_class; i++)
        g->step[(int64_t)g->n_state * g->n_class + i] = STATE_UNKNOWN;
    g->n_config += c->n_live;
    g->state_hash[at] = ++g->n_state;
    if (2 * g->n_state > g->n_state_hash && (status = rehash(&g->state_hash, &g->n_state_hash, g->n_state, hash_of_state, g)))
        return status;
    return g->n_state - 1;
}

static void begin(grammar *g)
{
    struct grammar_closure *c = g->closure;
    g->n_work = c->n_live = c->n_seen = c->complete = 0;
    if (++c->stamp == 0) {
        memset(c->seen, 0, (size_t)c->max_seen * sizeof *c->seen);
        c->stamp = 1;
    }
}

static int32_t finish(grammar *g)
{
    int32_t status = close_over(g);
    if (!status && !g->closure->n_live && !g->closure->complete)
        status = GRAMMAR_REFUSED;
    if (!status)
        status = settle(g);
    return status ? status : intern(g);
}

int32_t grammar_next(grammar *g, int32_t state, int32_t class)
{
    int32_t *step = g->step + (int64_t)state * g->n_class + class;
    if (*step != STATE_UNKNOWN)
        return *step;
    begin(g);
    const uint8_t byte = g->byte_of[class];
    const struct grammar_states s = g->state[state];
    for (int32_t i = 0; i < s.n; i++) {
        const struct grammar_config x = g->config[s.first + i];
        const grammar_arc *arc = g->arc + g->node[x.node].a;
        int32_t lo = 0, hi = g->node[x.node].b; /* the first arc with arc.hi >= byte */
        while (lo < hi)
            arc[(lo + hi) / 2].hi < byte ? (lo = (lo + hi) / 2 + 1) : (hi = (lo + hi) / 2);
        if (lo < g->node[x.node].b && arc[lo].lo <= byte) {
            const int32_t status = reach(g, arc[lo].next, x.stack, 0);
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
    if ((g->n_frame < g->tidy_frame && g->n_config < TIDY_CONFIG && g->n_state < TIDY_STATE) || g->current < 0)
        return 0;
    grammar_drop_masks(g);
    struct grammar_closure *c = g->closure;
    begin(g);
    const struct grammar_states s = g->state[g->current];
    memcpy(c->live, g->config + s.first, (size_t)s.n * sizeof *c->live);
    c->n_live = s.n;
    c->complete = s.complete;
    int32_t *moved = calloc((size_t)g->n_frame, sizeof *moved), n = 0; /* 0: not live; new number + 1 */
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
            f.hash = mix(mix(mix(0, (uint32_t)f.parent), (uint32_t)f.where), (uint32_t)f.count);
            g->frame[n] = f;
            moved[i] = ++n;
        }
    for (int32_t i = 0; i < s.n; i++)
        c->live[i].stack = moved[c->live[i].stack] - 1;
    free(moved);
    g->n_frame = n;
    g->tidy_frame = 2 * n > TIDY_FRAME ? 2 * n : TIDY_FRAME;
    g->n_state = g->n_config = 0;
    int32_t status = rehash(&g->frame_hash, &g->n_frame_hash, g->n_frame, hash_of_frame, g);
    if (!status)
        status = rehash(&g->state_hash, &g->n_state_hash, 0, hash_of_state, g);
    if (!status)
        status = settle(g); /* their order is by stack number */
    g->current = status ? status : intern(g);
    return g->current < 0 ? g->current : 0;
}

/* Bytes between two neighbouring ends of arcs go the same way everywhere. */
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

grammar *grammar_new(int32_t *status, const grammar_node *node, const grammar_arc *arc, const int32_t *target,
                     const grammar_loop *loop, int32_t n_node, int32_t n_arc, int32_t n_loop, int32_t start)
{
    (void)n_node;
    *status = GRAMMAR_NO_MEMORY;
    grammar *g = calloc(1, sizeof *g);
    if (!g || !(g->closure = calloc(1, sizeof *g->closure)) || grow_seen(g->closure)) {
        grammar_free(g);
        return NULL;
    }
    g->node = node;
    g->arc = arc;
    g->target = target;
    g->loop = loop;
    g->n_loop = n_loop;
    g->tidy_frame = TIDY_FRAME;
    find_classes(g, n_arc);
    *status = rehash(&g->frame_hash, &g->n_frame_hash, 0, hash_of_frame, g);
    if (!*status)
        *status = rehash(&g->state_hash, &g->n_state_hash, 0, hash_of_state, g);
    if (!*status)
        *status = push_frame(g, -1, -1, -1); /* frame 0, the bottom */
    if (!*status) {
        begin(g);
        *status = reach(g, start, 0, 0);
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
    if (g->closure)
        free(g->closure->seen);
    free(g->closure);
    free(g->frame);
    free(g->frame_hash);
    free(g->config);
    free(g->state);
    free(g->state_hash);
    free(g->step);
    free(g->work);
    free(g);
}

int32_t grammar_feed(grammar *g, const uint8_t *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n && g->current >= 0; i++)
        if (grammar_tidy(g) == 0)
            g->current = grammar_next(g, g->current, g->class_of[bytes[i]]);
    return g->current < 0 ? g->current : 0;
}

int32_t grammar_state(const grammar *g)
{
    if (g->current < 0)
        return 0;
    const struct grammar_states *s = g->state + g->current;
    return (s->complete ? GRAMMAR_COMPLETE : 0) | (s->n ? GRAMMAR_OPEN : 0);
}
