/* dispatch.c - from kernels.h to the chosen instruction set (isa.c), over the threads.
 *
 * Each function packs its arguments, picks how many items a thread should take at
 * a time, and runs the operation of that set. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "float_pack.h"

/* A grain of about `least` operations: small enough to share, large enough to be worth handing out. */
static int64_t grain_of(int64_t operations_per_item, int64_t least, int64_t multiple)
{
    const int64_t items = 1 + least / (operations_per_item > 0 ? operations_per_item : 1);
    return (items + multiple - 1) / multiple * multiple;
}

enum { SMALL_WORK = 1 << 16 };

/* Operations that need no vectors of their own: arguments, and a range of items. */
typedef struct { float *y; const void *w; const int32_t *ids; int32_t type, n; float scale; } embed_args;

static void embed_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const embed_args *a = arg;
    const int64_t row_bytes = type_row_bytes(a->type, a->n);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *y = a->y + t * a->n;
        dequantize_row(y, a->type, (const uint8_t *)a->w + a->ids[t] * row_bytes, a->n);
        if (a->scale != 1.0f)
            for (int64_t i = 0; i < a->n; i++)
                y[i] *= a->scale;
    }
}

void embed(float *y, int32_t type, const void *w, const int32_t *ids, int32_t n_tok, int32_t n, float scale)
{
    const embed_args a = {y, w, ids, type, n, scale};
    parallel(embed_rows, &a, n_tok, grain_of(n, SMALL_WORK / 8, 1));
}

void quantize_q8(int8_t *q, float *d, float *s, const float *x, int32_t n_tok, int32_t n)
{
    const quantize_args a = {q, d, s, NULL, x, n};
    parallel(best_isa()->quantize, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

void quantize_q8_k(int8_t *q, float *d, int16_t *sums, const float *x, int32_t n_tok, int32_t n)
{
    const quantize_args a = {q, d, NULL, sums, x, n};
    parallel(best_isa()->quantize_k, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

/* Products of terms of bf16: on the set that has tiles of them, and by their definition. */
typedef struct {
    const isa *set;
    void (*split)(const void *, int64_t, int64_t, int32_t);  /* split_args; items: sets of 16 tokens */
    void (*matmul)(const void *, int64_t, int64_t, int32_t); /* matmul_args; items: rows of w */
} fast_products;

static const fast_products *fast(void) /* NULL: the chosen set has none */
{
    static const fast_products by_definition = {&isa_reference, split_reference, matmul_fast_reference};
#if defined(__x86_64__)
    static const fast_products on_tiles = {&isa_amx, split_amx, matmul_fast_amx};
    if (best_isa() == &isa_amx && has_tiles_of_bf16())
        return &on_tiles;
#endif
    return best_isa() == &isa_reference ? &by_definition : NULL;
}

int32_t fast_supported(void) { return fast() != NULL; }

/* 3 terms, whole sets of 16 tokens (or fewer than one), whole steps; sums of each thread, pairs of sets; room to begin at a line of the
 * cache. */
int64_t terms_size(int32_t n_tok, int32_t n)
{
    const int64_t tokens = n_tok < 16 ? n_tok : ((int64_t)n_tok + 15) / 16 * 16, n_step = ((int64_t)n + FAST_STEP - 1) / FAST_STEP;
    const int64_t together = n_tok < FAST_TOKENS ? ((int64_t)n_tok + 31) / 32 * 32 : FAST_TOKENS;
    return 3 * tokens * n_step * FAST_STEP + 2 * threads_count() * FAST_ROWS * together + 32;
}

void split_bf16(uint16_t *terms, const float *x, int32_t n_tok, int32_t n)
{
    const split_args a = {terms, x, n_tok, n};
    parallel(fast()->split, &a, ((int64_t)n_tok + 15) / 16, 1);
}

/* Products side by side, in units of rows that are a multiple of every kernel's panel. */
typedef struct { const matmul_args *p; int32_t n; } group_args;
enum { UNIT = 32 };

static int64_t units_of(const matmul_args *a) { return ((int64_t)a->n_row + UNIT - 1) / UNIT; }

static void matmul_units(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const group_args *g = arg;
    int64_t first = 0; /* unit of the group with which product i begins */
    for (int32_t i = 0; i < g->n; first += units_of(g->p + i++)) {
        const int64_t from = begin > first ? (begin - first) * UNIT : 0, to = (end - first) * UNIT;
        const int64_t last = to < g->p[i].n_row ? to : g->p[i].n_row;
        if (from < last)
            (g->p[i].terms ? fast()->matmul : best_isa()->matmul)(g->p + i, from, last, thread);
    }
}

/* Room for packed activations, or for what attention holds, kept from call to call: as much as the largest prompt took. */
static struct { void *p; int64_t size; } room;
enum { PAGE = 4096 };

/* Room for `size` bytes, as aligned as a page; NULL: there is no memory. */
static void *room_of(int64_t size)
{
    if (size > room.size) {
        free(room.p);
        room.p = aligned_alloc(PAGE, (size_t)(size + PAGE - 1) / PAGE * PAGE);
        room.size = room.p ? size : 0;
    }
    return size <= room.size ? room.p : NULL;
}

static int64_t packed_bytes(const product *p)
{
    const int64_t block = type_block(p->type);
    if (block == 1)
        return best_isa()->float_piece && !p->terms ? packed_bytes_floats(p->n_tok, p->n) : 0;
    return best_isa()->pack ? best_isa()->packed_bytes((int32_t)block, p->n_tok, p->n) : 0;
}

static int are_packed_alike(const product *a, const product *b)
{
    const int64_t block = type_block(a->type);
    return (block == 1 ? a->x == b->x : a->q == b->q) && a->n_tok == b->n_tok && a->n == b->n && block == type_block(b->type);
}

static void pack_product(product *p, void *to)
{
    const int is_float = type_block(p->type) == 1;
    const int64_t n_packed = is_float ? FLOAT_TOKENS : best_isa()->n_packed;
    const pack_args a = {p, to, is_float ? best_isa()->float_piece : (int32_t)type_block(p->type)};
    p->packed = to;
    parallel(is_float ? pack_floats : best_isa()->pack, &a, (p->n_tok + n_packed - 1) / n_packed, 1);
}

/* Packs the activations of products as the set wants them, those of several once.  Without memory they stay as they are: the bits are the
 * same. */
static void pack(product *p, int32_t n_product)
{
    int64_t size = 0;
    for (int32_t i = 0; i < n_product; i++)
        size += packed_bytes(p + i);
    uint8_t *next = room_of(size);
    for (int32_t i = 0; i < n_product; i++) {
        int32_t same = 0;
        while (same < i && !(p[same].packed && are_packed_alike(p + same, p + i)))
            same++;
        p[i].packed = same < i ? p[same].packed : NULL;
        if (same == i && next && packed_bytes(p + i)) {
            pack_product(p + i, next);
            next += packed_bytes(p + i);
        }
    }
}

/* Units of a share: at most 128 rows, so that it stays in the second-level cache, or 256 for tiles; of one token, which meets weights
 * in memory's order, 256, long enough to begin and short enough to end together.  As large as that allows, since a share prepares
 * weights or activations, but as many for each thread, two or more; one, where two would be too small to be worth handing out. */
enum { ROWS_OF_ONE = 256 };

static int64_t share_of(const product *p, int64_t n_unit)
{
    const int64_t most = (p->n_tok == 1 ? ROWS_OF_ONE : best_isa()->most_rows) / UNIT, n_thread = threads_count(), round = most * n_thread;
    const int64_t least = grain_of((int64_t)p->n * p->n_tok * UNIT, SMALL_WORK * 4, 1);
    int64_t n_share = (n_unit > round ? (n_unit + round - 1) / round : 2) * n_thread;
    if (n_unit < least * n_share)
        n_share = n_unit >= least * n_thread || least >= most ? n_thread : (n_unit + least - 1) / least;
    return (n_unit + n_share - 1) / n_share;
}

static int64_t units_of_group(const product *p, int32_t n_product)
{
    int64_t n_unit = 0;
    for (int32_t i = 0; i < n_product; i++)
        n_unit += units_of(p + i);
    return n_unit;
}

/* Names to each thread the first weights of its share of a group with one token, as far as they lie in one matrix; of none, nothing. */
static void name_shares(const product *p, int32_t n_product)
{
    const int64_t n_unit = units_of_group(p, n_product), share = n_unit ? share_of(p, n_unit) : 1;
    for (int32_t t = 0; t < threads_count(); t++) {
        const int64_t begin = first_item(n_unit, share, t), end = first_item(n_unit, share, t + 1);
        int64_t first = 0; /* unit of the group with which product i begins */
        int32_t i = 0;
        while (i < n_product && begin >= first + units_of(p + i))
            first += units_of(p + i++);
        if (i == n_product || begin == end) {
            look_ahead_at(t, NULL, 0);
            continue;
        }
        const int64_t row_bytes = type_row_bytes(p[i].type, p[i].n), row = (begin - first) * UNIT, last = (end - first) * UNIT;
        look_ahead_at(t, (const uint8_t *)p[i].w + row * row_bytes, ((last < p[i].n_row ? last : p[i].n_row) - row) * row_bytes);
    }
}

void matmuls(product *p, int32_t n_product)
{
    const group_args g = {p, n_product};
    const int64_t n_unit = units_of_group(p, n_product);
    pack(p, n_product);
    if (threads_count() > 1)
        name_shares(p->then, p->then ? p->n_then : 0);
    parallel(matmul_units, &g, n_unit, share_of(p, n_unit));
}

void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x, const int8_t *q, const float *d,
            const float *s, const int16_t *sums, int32_t n_tok, int32_t n_row, int32_t n)
{
    product p = {y, w, rows, x, q, d, s, sums, type, n_tok, n_row, n, NULL, NULL, NULL, 0};
    matmuls(&p, 1);
}

void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps)
{
    const rmsnorm_args a = {y, x, w, n, eps};
    parallel(best_isa()->rmsnorm, &a, n_row, grain_of(n, SMALL_WORK / 2, 1));
}

void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim, int32_t n_pair, int32_t half)
{
    const rope_args a = {x, cs, n_head, head_dim, n_pair, half};
    parallel(best_isa()->rope, &a, n_tok, grain_of((int64_t)n_head * head_dim, SMALL_WORK / 2, 1));
}

typedef struct { uint8_t *y; const float *x; int32_t type; } store_args;

static void store_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const store_args *a = arg;
    (void)thread;
    best_isa()->cache_store(a->y + type_row_bytes(a->type, begin), a->type, a->x + begin, end - begin);
}

void cache_store(void *y, int32_t type, const float *x, int64_t n)
{
    const store_args a = {y, x, type};
    parallel(store_range, &a, n, SMALL_WORK / 4);
}

/* Tokens that an item of attention covers: some 128 queries, at most 64 tokens, share each row of K and V; one token where a group
 * is larger. */
static int32_t item_tokens(int32_t n_tok, int32_t group)
{
    const int32_t most = group <= 2 ? 64 : group <= 128 ? 128 / group : 1;
    return n_tok < most ? n_tok : most;
}

/* How a call is cut.  Items where there are many queries and the items go round the threads, or where the call is small; else in n_part parts:
 * one of some heads for each thread, or, where heads do not go round the threads, more parts of each step, which costs two barriers more. */
enum { WORTH_CUTTING = 256 /* positions */, MAX_CUT_TOKENS = 64 /* all their scores are kept at once */, FEW_QUERIES = 8 };
typedef struct { int32_t item_tok, n_part; int64_t n_item; } cut;

static cut cut_of(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const int32_t group = n_head / n_head_kv, item_tok = item_tokens(n_tok, group), n_thread = threads_count();
    const int64_t n_item = (int64_t)(n_tok + item_tok - 1) / item_tok * n_head_kv;
    const int few = (int64_t)n_tok * group <= FEW_QUERIES || (n_item % n_thread != 0 && n_item < 4 * n_thread);
    const int in_parts = best_isa()->cuts_attention && few && pos + n_tok >= WORTH_CUTTING && n_tok <= MAX_CUT_TOKENS
        && (int64_t)n_tok * n_head <= ATTEND_QUERIES;
    if (in_parts)
        return (cut){n_tok, n_head_kv % n_thread == 0 ? n_thread : 4 * n_thread, n_head_kv};
    return (cut){item_tok, 0, n_item};
}

int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    const int64_t n_scores = (int64_t)c.item_tok * (n_head / n_head_kv) * score_stride((int64_t)pos + n_tok);
    return n_scores * (c.n_part ? n_head_kv : threads_count());
}

/* Where each thread has two items of a head or more, it converts that head's rows once and keeps them, if they are not too many.  Without
 * memory every item converts what it meets: the bits are the same. */
enum { MOST_HELD = 4 << 20 /* bytes of a thread */ };

static void hold(attention_args *a, const cut *c)
{
    const int32_t n_thread = threads_count();
    const int64_t first = a->window && a->pos >= a->window ? a->pos - a->window + 1 : 0, rows = (int64_t)a->pos + a->n_tok - first;
    const int64_t n_bytes = HELD_HEADER + 4 * (held_keys(rows, a->head_dim) + rows * a->head_dim);
    const int64_t n_held = (n_bytes + PAGE - 1) / PAGE * PAGE;
    if (!best_isa()->cuts_attention || c->n_part || c->n_item < 2 * (int64_t)n_thread * a->n_head_kv || n_held > MOST_HELD)
        return;
    a->held = room_of(n_held * n_thread);
    if (!a->held)
        return;
    const int32_t none = -1;
    for (int32_t i = 0; i < n_thread; i++)
        memcpy(a->held + i * n_held, &none, sizeof none);
    a->n_held = n_held;
    a->held_rows = (int32_t)rows;
}

void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores, int32_t n_tok,
               int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t window, float scale, float cap)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    attention_args a = {o, q, k, v, scores, (int64_t)c.item_tok * (n_head / n_head_kv) * score_stride((int64_t)pos + n_tok), type, n_tok,
                        pos, n_head, n_head_kv, head_dim, window, scale, cap, c.item_tok, NULL, 0, 0, ATTEND_ALL, c.n_part};
    hold(&a, &c);
    if (c.n_part <= threads_count()) {
        parallel(best_isa()->attention, &a, c.n_part ? c.n_part : c.n_item, 1);
        return;
    }
    for (a.steps = ATTEND_SCORES; a.steps <= ATTEND_VALUES; a.steps *= 2)
        parallel(best_isa()->attention, &a, a.n_part, 1);
}

void silu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best_isa()->silu_mul, &a, n, SMALL_WORK / 8);
}

void gelu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best_isa()->gelu_mul, &a, n, SMALL_WORK / 8);
}

void soft_cap(float *x, int64_t n, float cap)
{
    const cap_args a = {x, cap};
    parallel(best_isa()->soft_cap, &a, n, SMALL_WORK / 8);
}

static void add_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pair_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->y[i] += a->x[i];
}

void add(float *x, const float *y, int64_t n)
{
    const pair_args a = {x, y};
    parallel(add_range, &a, n, SMALL_WORK / 2);
}

typedef struct { float *x; const float *b; int32_t n; } bias_args;

static void bias_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const bias_args *a = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n; i++)
            a->x[t * a->n + i] += a->b[i];
}

void add_bias(float *x, const float *b, int32_t n_tok, int32_t n)
{
    const bias_args a = {x, b, n};
    parallel(bias_rows, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

/* Without an end in the middle, so that it becomes vectors: 262,144 logits are looked at for every token. */
static int has_nonfinite(const float *x, int64_t n)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++)
        any |= (f32_bits(x[i]) & 0x7f800000) == 0x7f800000;
    return any != 0;
}

int64_t first_nonfinite(const float *x, int64_t n)
{
    enum { STEP = 256 };
    int64_t i = 0;
    while (i + STEP <= n && !has_nonfinite(x + i, STEP))
        i += STEP;
    for (; i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return -1;
}
