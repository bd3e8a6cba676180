/* shortest.c - the shortest text that completes a sentence of a grammar.
 *
 * need[node] is the least number of bytes from a node to the end of the rule, or of the round of a
 * loop, in which it stands; a rule that is called on the way counts with its own. Such sums are
 * found as shortest paths are: nodes become final in the order of their need, and each then lowers
 * those of the nodes that lead to it (Knuth 1977, "A Generalization of Dijkstra's Algorithm", IPL
 * 6(1)). The text follows nodes that became final earlier, so it always gets nearer to the end. Of
 * several it takes the lowest byte from the blank on, or the first alternative.
 *
 * A backslash counts as ESCAPE bytes: a text without escapes, if there is one, is easier to read,
 * and a name with a newline would escape from patterns that do not mean it. So does a control
 * character, which shells drop and terminals obey; a tab or an end of line counts as two bytes.
 *
 * It begins at the configuration whose need, with those of its stack, is the least; of equal ones
 * at the one with the lowest byte, then at the first. So the text is the same on every machine. */
#include <stdlib.h>
#include "grammar/pushdown.h"

#define NEVER ((int64_t)1 << 60)
#define LARGEST (NEVER - 1)
enum { MAX_WALK = 1 << 24, ESCAPE = 64 };

struct need {
    const grammar *g;
    int64_t *need;
    int32_t *first; /* [n_node + 1] nodes that lead to node i: from[first[i] .. first[i + 1]) */
    int32_t *from;
    int32_t *rank;                 /* when a node became final, from 1; 0: it is not final */
    int32_t *heap, *place, n_heap; /* place: of a node in the heap, + 1; 0: none */
};

/* Sums and products of finite needs are finite, at most LARGEST. */
static int64_t sum(int64_t a, int64_t b)
{
    if (a == NEVER || b == NEVER)
        return NEVER;
    return a + b < LARGEST ? a + b : LARGEST;
}

static int64_t times(int64_t n, int64_t a)
{
    if (a == NEVER)
        return NEVER;
    return n && a >= LARGEST / n ? LARGEST : n * a;
}

static int consumes(const struct need *x, int32_t node)
{
    return x->g->node[node].op == GRAMMAR_BYTES || x->g->node[node].op == GRAMMAR_TOKEN;
}

/* Of equal need, nodes that consume come first, then inner ones, which mostly have higher numbers.
 * So all alternatives are final before the node that chooses among them. */
static int less(const struct need *x, int32_t a, int32_t b)
{
    if (x->need[a] != x->need[b])
        return x->need[a] < x->need[b];
    if (consumes(x, a) != consumes(x, b))
        return consumes(x, a);
    return consumes(x, a) ? a < b : a > b;
}

static void put(struct need *x, int32_t at, int32_t node)
{
    x->heap[at] = node;
    x->place[node] = at + 1;
}

/* Moves `node` towards the root of the heap. */
static void rise(struct need *x, int32_t node)
{
    int32_t at = x->place[node] ? x->place[node] - 1 : x->n_heap++;
    for (int32_t up; at > 0 && less(x, node, x->heap[up = (at - 1) / 2]); at = up)
        put(x, at, x->heap[up]);
    put(x, at, node);
}

static int32_t take_least(struct need *x)
{
    const int32_t top = x->heap[0], last = x->heap[--x->n_heap];
    int32_t at = 0;
    for (int32_t down; (down = 2 * at + 1) < x->n_heap; at = down) {
        if (down + 1 < x->n_heap && less(x, x->heap[down + 1], x->heap[down]))
            down++;
        if (!less(x, x->heap[down], last))
            break;
        put(x, at, x->heap[down]);
    }
    if (x->n_heap)
        put(x, at, last);
    x->place[top] = 0;
    return top;
}

/* For each node that `node` leads to, counts it (pass 0), or notes `node` (pass 1). */
static void link_back(struct need *x, const grammar *g, int32_t node, int pass)
{
    const grammar_node n = g->node[node];
    int32_t to[2] = {-1, -1}, many = 0;
    switch (n.op) {
    case GRAMMAR_BYTES:
    case GRAMMAR_SPLIT: many = n.b; break;
    case GRAMMAR_CALL: to[0] = n.a, to[1] = n.b; break;
    case GRAMMAR_REPEAT: to[0] = g->loop[n.a].body, to[1] = g->loop[n.a].exit; break;
    case GRAMMAR_TOKEN: to[0] = g->token[n.a].next; break;
    }
    for (int32_t i = 0; i < (many ? many : 2); i++) {
        const int32_t t = !many     ? to[i]
            : n.op == GRAMMAR_BYTES ? g->arc[n.a + i].next
                                    : g->target[n.a + i];
        if (t < 0)
            continue;
        if (pass)
            x->from[--x->first[t]] = node;
        else
            x->first[t]++;
    }
}

/* What a byte of a text counts. */
static int64_t cost_of_byte(int byte)
{
    if (byte == '\t' || byte == '\n' || byte == '\r')
        return 2;
    return byte == '\\' || byte < ' ' || byte == 127 ? ESCAPE : 1;
}

/* The byte of an arc that counts least; of several, the lowest. */
static int byte_of(grammar_arc arc)
{
    int best = arc.lo;
    for (int byte = arc.lo; byte <= arc.hi && cost_of_byte(best) > 1; byte++)
        if (cost_of_byte(byte) < cost_of_byte(best))
            best = byte;
    return best;
}

static int64_t cost_of(grammar_arc arc) { return cost_of_byte(byte_of(arc)); }

/* The need of `node` by way of `next`, which has just become final. */
static int64_t by_way_of(const struct need *x, const grammar *g, int32_t node, int32_t next)
{
    const grammar_node n = g->node[node];
    const grammar_loop *l;
    int64_t cost = ESCAPE;
    switch (n.op) {
    case GRAMMAR_BYTES:
        for (int32_t i = n.a; i < n.a + n.b && cost > 1; i++)
            if (g->arc[i].next == next)
                cost = cost_of(g->arc[i]);
        return sum(cost, x->need[next]);
    case GRAMMAR_TOKEN: return sum(1, x->need[next]);
    case GRAMMAR_SPLIT: return x->need[next];
    case GRAMMAR_CALL:
        return x->rank[n.a] && x->rank[n.b] ? sum(x->need[n.a], x->need[n.b]) : NEVER;
    case GRAMMAR_REPEAT:
        l = g->loop + n.a;
        if (!x->rank[l->exit] || (l->min > 0 && !x->rank[l->body]))
            return NEVER;
        return sum(l->min ? times(l->min, x->need[l->body]) : 0, x->need[l->exit]);
    }
    return NEVER;
}

static void find_needs(struct need *x, const grammar *g)
{
    for (int32_t i = 0; i < g->n_node; i++)
        link_back(x, g, i, 0);
    for (int32_t i = 0; i < g->n_node; i++)
        x->first[i + 1] += x->first[i];
    for (int32_t i = g->n_node - 1; i >= 0; i--) /* so that each list ascends */
        link_back(x, g, i, 1);
    for (int32_t i = 0; i < g->n_node; i++) {
        const int ends = g->node[i].op == GRAMMAR_RETURN || g->node[i].op == GRAMMAR_AGAIN;
        x->need[i] = ends ? 0 : NEVER;
        if (ends)
            rise(x, i);
    }
    for (int32_t rank = 1; x->n_heap; rank++) {
        const int32_t node = take_least(x);
        x->rank[node] = rank;
        for (int32_t k = x->first[node]; k < x->first[node + 1]; k++) {
            const int32_t from = x->from[k];
            const int64_t need = x->rank[from] ? NEVER : by_way_of(x, g, from, node);
            if (need < x->need[from]) {
                x->need[from] = need;
                rise(x, from);
            }
        }
    }
}

/* The need of the frames of a stack. */
static int64_t need_of_stack(const struct need *x, const grammar *g, int32_t stack)
{
    int64_t total = 0;
    for (; stack > 0; stack = g->frame[stack].parent) {
        const struct grammar_frame f = g->frame[stack];
        if (f.count < 0) {
            total = sum(total, x->need[f.where]);
            continue;
        }
        const grammar_loop *l = g->loop + f.where;
        const int64_t left = (int64_t)l->min - f.count - 1;
        total = sum(total, left > 0 ? times(left, x->need[l->body]) : 0);
        total = sum(total, x->need[l->exit]);
    }
    return total;
}

/* Frames that were pushed on the way; the stack of the configuration lies below. */
struct way {
    struct grammar_frame *frame;
    int32_t n, max, below;
};

static int32_t push(struct way *w, int32_t where, int32_t count)
{
    int32_t status =
        grammar_reserve(&w->frame, &w->max, (int64_t)w->n + 1, 1 << 20, sizeof *w->frame);
    if (!status)
        w->frame[w->n++] = (struct grammar_frame){.where = where, .count = count};
    return status;
}

/* Pops the top frame; 0 if there is none. */
static int pop(struct way *w, const grammar *g, struct grammar_frame *top)
{
    if (w->n) {
        *top = w->frame[--w->n];
        return 1;
    }
    *top = g->frame[w->below];
    if (!w->below)
        return 0;
    w->below = top->parent;
    return 1;
}

/* The arc of a node of bytes, or the target of a SPLIT, that is on the way. */
static int32_t next_of(const struct need *x, const grammar *g, int32_t node)
{
    const grammar_node n = g->node[node];
    int32_t i = n.a;
    if (n.op == GRAMMAR_BYTES)
        while (x->need[g->arc[i].next] + cost_of(g->arc[i]) != x->need[node])
            i++;
    else
        while (x->need[g->target[i]] != x->need[node] || x->rank[g->target[i]] >= x->rank[node])
            i++;
    return i;
}

/* Writes the text from `node` on. Returns its length, or an error. */
static int32_t follow(int32_t *out, int32_t max, struct way *w, const struct need *x,
                      const grammar *g, int32_t node)
{
    int32_t n_out = 0, status = 0;
    for (int32_t n_step = 0; !status; n_step++) {
        const grammar_node n = g->node[node];
        struct grammar_frame top;
        grammar_arc arc;
        if (n_out == max || n_step == MAX_WALK)
            return GRAMMAR_DEEP;
        switch (n.op) {
        case GRAMMAR_BYTES:
            arc = g->arc[next_of(x, g, node)];
            out[n_out++] = byte_of(arc);
            node = arc.next;
            break;
        case GRAMMAR_SPLIT: node = g->target[next_of(x, g, node)]; break;
        case GRAMMAR_TOKEN:
            out[n_out++] = 256 + n.a;
            node = g->token[n.a].next;
            break;
        case GRAMMAR_CALL:
            status = push(w, n.b, -1);
            node = n.a;
            break;
        case GRAMMAR_RETURN:
            if (!pop(w, g, &top))
                return n_out;
            node = top.where;
            break;
        case GRAMMAR_REPEAT:
            if (g->loop[n.a].min == 0)
                node = g->loop[n.a].exit;
            else {
                status = push(w, n.a, 0);
                node = g->loop[n.a].body;
            }
            break;
        case GRAMMAR_AGAIN:
            pop(w, g, &top);
            if (top.count + 1 < g->loop[n.a].min) {
                status = push(w, n.a, top.count + 1);
                node = g->loop[n.a].body;
            } else
                node = g->loop[n.a].exit;
            break;
        }
    }
    return status;
}

/* Does the way from node a begin with a lower byte than that from node b? */
static int is_lower(const struct need *x, const grammar *g, int32_t a, int32_t b)
{
    return g->node[a].op == GRAMMAR_BYTES && g->node[b].op == GRAMMAR_BYTES
        && g->arc[next_of(x, g, a)].lo < g->arc[next_of(x, g, b)].lo;
}

static int32_t shortest(int32_t *out, int32_t max, struct need *x, const grammar *g)
{
    find_needs(x, g);
    const struct grammar_states s = g->state[g->current];
    int64_t least = NEVER;
    struct grammar_config begin = {-1, -1};
    for (int32_t i = 0; i < s.n; i++) {
        const struct grammar_config c = g->config[s.first + i];
        const int64_t need = sum(x->need[c.node], need_of_stack(x, g, c.stack));
        if (need < least || (need == least && need < max && is_lower(x, g, c.node, begin.node))) {
            least = need;
            begin = c;
        }
    }
    if (least >= max)
        return least == NEVER ? GRAMMAR_REFUSED : GRAMMAR_DEEP;
    struct way w = {.below = begin.stack};
    const int32_t n = follow(out, max, &w, x, g, begin.node);
    free(w.frame);
    return n;
}

int32_t grammar_shortest(int32_t *out, int32_t max, grammar *g)
{
    if (g->current < 0 || g->state[g->current].complete)
        return g->current < 0 ? g->current : 0;
    size_t n = (size_t)g->n_node, n_link = 0;
    for (int32_t i = 0; i < g->n_node; i++)
        n_link += g->node[i].op == GRAMMAR_BYTES || g->node[i].op == GRAMMAR_SPLIT
            ? (size_t)g->node[i].b
            : 2;
    struct need x = {
        .g = g,
        .need = calloc(n, sizeof *x.need),
        .first = calloc(n + 1, sizeof *x.first),
        .from = calloc(n_link + 1, sizeof *x.from),
        .rank = calloc(n, sizeof *x.rank),
        .heap = calloc(n, sizeof *x.heap),
        .place = calloc(n, sizeof *x.place),
    };
    const int has_all = x.need && x.first && x.from && x.rank && x.heap && x.place;
    const int32_t n_out = has_all ? shortest(out, max, &x, g) : GRAMMAR_NO_MEMORY;
    free(x.need);
    free(x.first);
    free(x.from);
    free(x.rank);
    free(x.heap);
    free(x.place);
    return n_out;
}
