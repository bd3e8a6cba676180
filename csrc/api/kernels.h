/* kernels.h - the operations of a model, by the best instruction set this machine has. */
#ifndef SLUICE_API_KERNELS_H
#define SLUICE_API_KERNELS_H
#include <stdint.h>

/* The bits of every result are those of reference.c (of products with terms, of reference_fast.c)
 * whatever the set, threads and rows. */

/* y f32 [n_tok, n] = scale * the rows `tokens` of w, type [*, n]. */
void embed(float *y, int32_t type, const void *w, const int32_t *tokens, int32_t n_tok, int32_t n,
           float scale);

/* Activations for weights in blocks of 32: x f32 [n_tok, n] ~ d q.  n % 32 == 0.
 * q i8 [n_tok, n], -127 ... 127; d f32 [n_tok, n/32] scales; s f32 [n_tok, n/32]: d times the sum
 * of the block's q. */
void quantize_q8(int8_t *q, float *d, float *s, const float *x, int32_t n_tok, int32_t n);

/* The same for weights in blocks of 256.  n % 256 == 0.
 * q i8 [n_tok, n], -127 ... 127; d f32 [n_tok, n/256] scales; sums i16 [n_tok, n/16]: of 16 q each.
 */
void quantize_q8_k(int8_t *q, float *d, int16_t *sums, const float *x, int32_t n_tok, int32_t n);

/* y f32 [n_tok, n_row] = x w^T, w type [*, n]: its first n_row rows, or the rows named in rows
 * [n_row] if not NULL. F32, F16, BF16 read x f32 [n_tok, n]; types in blocks of 32 the q, d, s of
 * quantize_q8; types in blocks of 256 the q, d, sums of quantize_q8_k.  What is not read may be
 * NULL. */
void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x,
            const int8_t *q, const float *d, const float *s, const int16_t *sums, int32_t n_tok,
            int32_t n_row, int32_t n);
/* The same for one or more products, of which none reads what another writes: the threads wait for
 * each other once. */
typedef struct product {
    float *y;
    const void *w;
    const int32_t *rows;
    const float *x;
    const int8_t *q;
    const float *d, *s;
    const int16_t *sums;
    int32_t type, n_tok, n_row, n;
    /* of split_bf16: F32, F16, BF16 weights in the arithmetic of reference_fast.c; NULL: in that of
     * reference.c */
    const uint16_t *terms;
    const void *packed; /* for matmuls itself */
    /* in the first of a group: NULL, or the next group, whose weights waiting threads prefetch */
    const struct product *then;
    int32_t n_then;
} product;
void matmuls(product *p, int32_t n_product);

/* Whether the chosen instruction set has products with `terms`: 1 or 0. */
int32_t fast_supported(void);
/* terms [terms_size(n_tok, n)] = x f32 [n_tok, n] as sums of bf16, in a form that is the
 * instruction set's own, for all products with x. They read x, too: it must not have changed. */
void split_bf16(uint16_t *terms, const float *x, int32_t n_tok, int32_t n);
int64_t terms_size(int32_t n_tok, int32_t n);

/* y f32 [n_row, n] = w x / sqrt(mean(x^2) + eps), row by row; w f32 [n]; y may be x. */
void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps);

/* freq f64 [n_pair]: base^(-i / n_pair) / (linear * factor[i]), factor f32 [n_pair] or NULL for
 * ones. */
void rope_freq(double *freq, const float *factor, int32_t n_pair, double base, double linear);
/* freq f64 [n_pair]: base^(-i / n_pair) as it is for pairs that turn `fast` times or more within
 * n_ctx positions, divided by `factor` for those that turn `slow` times or less, a blend, linear in
 * i, between.  base > 1; n_ctx, factor, fast >= slow > 0. */
void rope_freq_yarn(double *freq, int32_t n_pair, double base, double factor, double n_ctx,
                    double fast, double slow);
/* cs f32 [n_tok, n_pair, 2]: cosine and sine of (pos + t) freq[i], times `scale`. */
void rope_angles(float *cs, const double *freq, int32_t pos, int32_t n_tok, int32_t n_pair,
                 double scale);
/* Rotates x f32 [n_tok, n_head, head_dim] in place, the first 2 n_pair elements of each head:
 * elements 2i and 2i + 1, or i and i + n_pair where half is not 0. */
void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim,
          int32_t n_pair, int32_t half);

/* y, a cache of type F32, F16 or, where n is a multiple of 32, Q8_0 [n] = x f32 [n]. */
void cache_store(void *y, int32_t type, const float *x, int64_t n);

/* o f32 [n_tok, n_head, head_dim]: causal attention of the queries q (same shape) at positions pos
 * ... pos + n_tok - 1 over rows 0 ... of the caches k, v: type [*, n_head_kv, head_dim], F32, F16
 * or, where head_dim is a multiple of 32, Q8_0.  Position p sees the last window positions up to p
 * (0: all).  A score is scale q k, then soft_cap of it where cap is not 0.  scores: scratch f32
 * [attention_scores(...)]. */
void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores,
               int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim,
               int32_t window, float scale, float cap);
/* Floats of scratch for a call of attention, with the pool and the instruction set as they are. */
int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv);

/* gate f32 [n] = silu(gate) up;  silu(x) = x / (1 + exp(-x)). */
void silu_mul(float *gate, const float *up, int64_t n);
/* gate f32 [n] = gelu(gate) up;  gelu(x) = x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), the
 * tanh form. */
void gelu_mul(float *gate, const float *up, int64_t n);
/* x f32 [n] = cap tanh(x / cap), cap > 0. */
void soft_cap(float *x, int64_t n, float cap);
/* x f32 [n] *= sigmoid(gate);  sigmoid(x) = 1 / (1 + exp(-x)). */
void sigmoid_mul(float *x, const float *gate, int64_t n);
/* x f32 [n] += y. */
void add(float *x, const float *y, int64_t n);
/* x f32 [n] *= y. */
void mul(float *x, const float *y, int64_t n);
/* x f32 [n_tok, n] += b f32 [n], row by row. */
void add_bias(float *x, const float *b, int32_t n_tok, int32_t n);
/* x f32 [n] *= factor. */
void scale(float *x, int64_t n, float factor);
/* Row t of x f32 [n_tok, n] *= factor[t]. */
void scale_each(float *x, const float *factor, int32_t n_tok, int32_t n);
/* y f32 [n_tok, n] = the first n elements of each row of x, [n_tok, n_x]; x may point into a row.
 */
void take_columns(float *y, const float *x, int32_t n_tok, int32_t n, int32_t n_x);

/* ---- pooling.c: the vector of a text ------------------------------------------------- */

/* sum f64 [n] += each row of x f32 [n_row, n], one after the other. */
void pool_add(double *sum, const float *x, int32_t n_row, int32_t n);
/* y f32 [n] = sum f64 [n] / n_row. */
void pool_mean(float *y, const double *sum, int64_t n_row, int32_t n);
/* Divides x f32 [n] by its length, which is returned; a length of 0 leaves it as it is. */
double to_unit_length(float *x, int32_t n);
/* Returns the sum of a[i] b[i], f32 [n]. */
double dot_f64(const float *a, const float *b, int32_t n);

/* ---- layers with a state: what they keep of the tokens so far, and change ------------- */

/* y f32 [n_tok, n]: a convolution of each column of x, [n_tok, n_x], of which it reads the first n
 * columns (x may point into a row): y_t = sum_j w_j x_{t - n_tap + 1 + j}, then SiLU of it where
 * silu is not 0.  w f32 [n, n_tap].  state f32 [n_tap - 1, n]: the rows before the first, then the
 * last ones.  2 <= n_tap <= MAX_CONV. */
void causal_conv(float *y, const float *x, const float *w, float *state, int32_t n_tok, int32_t n,
                 int32_t n_x, int32_t n_tap, int32_t silu);
/* decay f32 [n_tok, n_head] = exp(a softplus(x + dt)), beta = sigmoid(beta); x of the same shape, a
 * and dt f32 [n_head].  softplus(x) = ln(1 + exp(x)). */
void delta_gates(float *decay, float *beta, const float *x, const float *a, const float *dt,
                 int32_t n_tok, int32_t n_head);
/* o f32 [n_tok, n_head, dim]: the gated delta rule, token by token in each head,
 *     S *= decay;  S += k (beta (v - S^T k))^T;  o = S^T q
 * q, k f32 [n_tok, n_head_k, dim], head h with h mod n_head_k; v f32 [n_tok, n_head, dim]; decay,
 * beta f32 [n_tok, n_head]; state f32 [n_head, dim, dim]: S, a row for each element of k. */
void delta_net(float *o, const float *q, const float *k, const float *v, const float *decay,
               const float *beta, float *state, int32_t n_tok, int32_t n_head_k, int32_t n_head,
               int32_t dim);

/* ---- replay.c: calls of the operations above, from a list ---------------------------- */

enum {
    CALL_EMBED,
    CALL_QUANTIZE_Q8,
    CALL_QUANTIZE_Q8_K,
    CALL_SPLIT_BF16,
    CALL_MATMULS,
    CALL_RMSNORM,
    CALL_ROPE,
    CALL_CACHE_STORE,
    CALL_ATTENTION,
    CALL_SILU_MUL,
    CALL_GELU_MUL,
    CALL_ADD,
    CALL_ADD_BIAS,
    CALL_SCALE,
    CALL_SCALE_EACH,
    CALL_TAKE_COLUMNS,
    CALL_MUL,
    CALL_SIGMOID_MUL,
    CALL_CAUSAL_CONV,
    CALL_DELTA_GATES,
    CALL_DELTA_NET
};

/* kind: one of CALL_...; then the parameters of the function of that name, in its order.  Those of
 * cache_store are the cache, whose rows of row_bytes bytes are positions, and attention's own pos
 * does not count. */
typedef struct {
    int32_t kind;
    // clang-format off
    union {
        struct { float *y; int32_t type; const void *w; const int32_t *tokens; int32_t n_tok, n;
                 float scale; } embed;
        struct { int8_t *q; float *d, *s; const float *x; int32_t n_tok, n; } quantize_q8;
        struct { int8_t *q; float *d; int16_t *sums; const float *x; int32_t n_tok, n; } quantize_q8_k;
        struct { uint16_t *terms; const float *x; int32_t n_tok, n; } split_bf16;
        struct { product *p; int32_t n_product; } matmuls;
        struct { float *y; const float *x, *w; int32_t n_row, n; float eps; } rmsnorm;
        struct { float *x; const float *cs; int32_t n_tok, n_head, head_dim, n_pair, half; } rope;
        struct { void *y; int32_t type; const float *x; int64_t n, row_bytes; } cache_store;
        struct { float *o; const float *q; int32_t type; const void *k, *v; float *scores;
                 int32_t n_tok, pos, n_head, n_head_kv, head_dim, window;
                 float scale, cap; } attention;
        /* silu_mul, gelu_mul, add, mul, sigmoid_mul */
        struct { float *y; const float *x; int64_t n; } pair;
        struct { float *x; const float *b; int32_t n_tok, n; } add_bias;
        struct { float *x; int64_t n; float factor; } scale;
        struct { float *x; const float *factor; int32_t n_tok, n; } scale_each;
        struct { float *y; const float *x; int32_t n_tok, n, n_x; } take_columns;
        struct { float *y; const float *x, *w; float *state; int32_t n_tok, n, n_x, n_tap, silu;
        } causal_conv;
        struct { float *decay, *beta; const float *x, *a, *dt; int32_t n_tok, n_head; } delta_gates;
        struct { float *o; const float *q, *k, *v, *decay, *beta; float *state;
                 int32_t n_tok, n_head_k, n_head, dim; } delta_net;
    };
    // clang-format on
} operation;
/* Makes n calls, each behind the one before; the token is at position pos. */
void replay(const operation *p, int64_t n, int32_t pos);

/* ---- roofline.c: what the machine could do, measured beside what the kernels do --------- */

/* Reads the n_bytes at p once, lines of 64, by all threads.  Returns a sum of what it read, so that
 * no compiler leaves it out. */
uint64_t limit_read(const void *p, int64_t n_bytes);
/* Multiplies and adds in registers alone, on all threads, and returns how many operations that
 * were, a multiplication and an addition each counting as one; 0 where this machine or the chosen
 * instruction set has no such unit. */
enum { LIMIT_FMA_F32, LIMIT_DOT_INT8, LIMIT_TILE_INT8, LIMIT_TILE_BF16, LIMIT_FMA_TILES };
int64_t limit_products(int32_t unit, int64_t n_round);
#endif
