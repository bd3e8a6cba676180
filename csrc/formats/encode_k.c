/* encode_k.c - f32 to blocks of 256 with two levels of scales: Q4_K, Q5_K, Q6_K.
 *
 *   Q4_K, Q5_K   w = d sc q - dmin m   8 groups of 32; q 0 to 15 or 31, sc and m 0 to 63
 *   Q6_K         w = d sc q            16 groups of 16; q -32 to 31, sc -128 to 127
 *
 * The encoder minimizes the sum of (x - w)^2 over the block, in three steps.
 *
 * 1. Each group by itself, with a scale D (and an offset M >= 0, w = D q - M) that are any f32.
 *    For a few D around the one that takes the group's range to the range of q, the q are rounded;
 *    D and M are then the least squares solution for these q, and the candidate whose solution
 *    leaves the smallest sum is chosen.
 * 2. The greatest D and M of the block give d and dmin, rounded to half precision; from here on
 *    their rounded values count.  Each group tries the sc next to D / d, for each the best m, and
 *    keeps the pair that leaves the smallest sum.
 * 3. For these sc, m and q, d and dmin are the least squares solution of the whole block, rounded;
 *    the groups choose again. Of all rounds the best is kept.
 *
 * Least squares is plain, no element weighs more than another: nothing is known here of the
 * activations.
 *
 * 16 groups lie side by side, element i of group l at x[i][l], so that each group's sums are plain
 * sums in the order of its elements, and the compiler makes vectors of the groups: this file is
 * compiled once for every instruction set that does it faster (avx2_encode.c, avx512_encode.c), to
 * the same bits.  Blocks are scaled by a power of two first: no square overflows or vanishes.  One
 * whose weights are all below 2^-40 is zero: the smallest scale of a half is 2^-24. */
#include <math.h>
#include <string.h>
#include "formats/encode.h"
#include "kernels/set.h"
#ifndef SET
#define SET reference
#endif

enum { GROUPS = 16, LONGEST = 32, STARTS = 4, ROUNDS = 3 };
/* added and subtracted again: rounds to nearest, ties to even, below 2^22 */
static const float TO_INTEGER = 0x1.8p23f;
static const float MIN_SIZE = 0x1p-40f;

typedef float per_group[GROUPS];

typedef struct {
    int n, n_block;             /* elements of a group; blocks that the 16 groups are */
    float low, top;             /* range of q */
    float scale_low, scale_top; /* range of sc */
    int has_min;
    float x[LONGEST][GROUPS];
    per_group sum;  /* of x */
    float power[2]; /* of two, by which the blocks were scaled */
} groups;

typedef struct { per_group d, m; } fit; /* step 1 */
/* steps 2 and 3 */
typedef struct {
    float d[2], m[2];
    uint16_t half_d[2], half_m[2];
    per_group scale, min, error;
} choice;
typedef struct { per_group q, qq, qx; } moments; /* sums of q, q^2, q x */

static inline float nearest(float x) { return (x + TO_INTEGER) - TO_INTEGER; }
static inline float f32_min(float a, float b) { return a < b ? a : b; }
static inline float f32_max(float a, float b) { return a > b ? a : b; }

/* Where the time goes, with the groups in vectors as wide as the set has: a compiler left to itself
 * would make them of elements. */
#if defined(__AVX512F__)
enum { WIDE = 16 };
#elif defined(__AVX2__)
enum { WIDE = 8 };
#else
enum { WIDE = 4 };
#endif
typedef float lanes __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t lane_bits __attribute__((vector_size(4 * WIDE)));

#define AT(p) (*(const lanes *)(p))
#define PICK(condition, a, b) \
    ((lanes)(((condition) & (lane_bits)(a)) | (~(condition) & (lane_bits)(b))))
/* q = (x + m) / d, rounded and cut, with 1 / d given. */
#define CODE(q, x, m, inverse, low, top) \
    do { \
        lanes v_ = ((x) + (m)) * (inverse); \
        v_ = PICK(v_ < (top), v_, (top)); \
        v_ = PICK(v_ > (low), v_, (low)); \
        q = (v_ + TO_INTEGER) - TO_INTEGER; \
    } while (0)

static void count(moments *s, const groups *g, const float *m, const float *inverse)
{
    const lanes zero = {0}, low = zero + g->low, top = zero + g->top;
    for (int l = 0; l < GROUPS; l += WIDE) {
        const lanes add = AT(m + l), scale = AT(inverse + l);
        lanes q1 = zero, q2 = zero, qx = zero, q;
        for (int i = 0; i < g->n; i++) {
            const lanes x = AT(g->x[i] + l);
            CODE(q, x, add, scale, low, top);
            q1 += q;
            q2 += q * q;
            qx += q * x;
        }
        *(lanes *)(s->q + l) = q1, *(lanes *)(s->qq + l) = q2, *(lanes *)(s->qx + l) = qx;
    }
}

/* error = the sum of (x - d q + m)^2, with the q that d and m give. */
static void measure(float *error, const groups *g, const float *d, const float *m,
                    const float *inverse)
{
    const lanes zero = {0}, low = zero + g->low, top = zero + g->top;
    for (int l = 0; l < GROUPS; l += WIDE) {
        const lanes add = AT(m + l), scale = AT(inverse + l), unit = AT(d + l);
        lanes sum = zero, q;
        for (int i = 0; i < g->n; i++) {
            const lanes x = AT(g->x[i] + l);
            CODE(q, x, add, scale, low, top);
            const lanes e = x + add - unit * q;
            sum += e * e;
        }
        *(lanes *)(error + l) = sum;
    }
}

/* The q of one element, as CODE has it. */
static inline float code(float x, float m, float inverse, float low, float top)
{
    return nearest(f32_max(f32_min((x + m) * inverse, top), low));
}

static void invert(float *inverse, const float *d)
{
    for (int l = 0; l < GROUPS; l++)
        inverse[l] = d[l] != 0 ? 1 / d[l] : 0;
}

/* ---- step 1: a group by itself ------------------------------------------------------------------
 */

/* Candidates: the range of x goes to that of q and so many steps more. */
static const float MORE[] = {-1.0f, -0.85f, -0.7f, -0.55f, -0.4f, -0.3f, -0.2f, -0.1f,
                             0,     0.1f,   0.2f,  0.3f,   0.4f,  0.5f,  0.6f,  0.8f};
enum { N_MORE = sizeof MORE / sizeof *MORE };

/* With an offset.  M is the greatest -x to begin with, so that x + M = D q is 0 or more. */
static void fit_with_min(fit *f, const groups *g)
{
    per_group range, m, inverse, best;
    moments s;
    for (int l = 0; l < GROUPS; l++) {
        float lo = 0, hi = -INFINITY;
        for (int i = 0; i < g->n; i++)
            lo = f32_min(g->x[i][l], lo), hi = f32_max(g->x[i][l], hi);
        m[l] = -lo, range[l] = hi - lo;
        f->d[l] = 0, f->m[l] = -lo, best[l] = INFINITY;
    }
    for (int k = 0; k < N_MORE; k++) {
        for (int l = 0; l < GROUPS; l++)
            inverse[l] = range[l] > 0x1p-60f ? (g->top + MORE[k]) / range[l] : 0;
        count(&s, g, m, inverse);
        /* of y = x + m >= 0, where nothing cancels: y ~ d q + b */
        for (int l = 0; l < GROUPS; l++) {
            const float n = (float)g->n, sum = g->sum[l] + n * m[l], qy = s.qx[l] + m[l] * s.q[l];
            const float det = n * s.qq[l] - s.q[l] * s.q[l], two = det > 0 ? 1 / det : 0,
                        one = s.qq[l] > 0 ? 1 / s.qq[l] : 0;
            float d = (n * qy - s.q[l] * sum) * two, b = (s.qq[l] * sum - s.q[l] * qy) * two;
            /* all q are one, or M would be negative: d by itself, M = 0 */
            const int alone = !(det > 0) || b > m[l];
            d = alone ? s.qx[l] * one : d;
            b = alone ? m[l] : b;
            const float error =
                (d * d * s.qq[l] + 2 * d * b * s.q[l] + n * b * b) - 2 * (d * qy + b * sum);
            const int better = d > 0 && error < best[l];
            best[l] = better ? error : best[l];
            f->d[l] = better ? d : f->d[l];
            f->m[l] = better ? m[l] - b : f->m[l];
        }
    }
}

/* Without: the x farthest from 0 goes to the far end of q, or to the near one. */
static void fit_without_min(fit *f, const groups *g)
{
    per_group far, zero, inverse, best;
    moments s;
    for (int l = 0; l < GROUPS; l++) {
        float lo = 0, hi = 0;
        for (int i = 0; i < g->n; i++)
            lo = f32_min(g->x[i][l], lo), hi = f32_max(g->x[i][l], hi);
        far[l] = -lo > hi ? lo : hi;
        zero[l] = f->d[l] = f->m[l] = best[l] = 0;
    }
    for (int k = 0; k < 2 * N_MORE; k++) {
        const float to = k < N_MORE ? g->low - MORE[k] : g->top + MORE[k - N_MORE];
        for (int l = 0; l < GROUPS; l++)
            inverse[l] = far[l] > 0x1p-60f || far[l] < -0x1p-60f ? to / far[l] : 0;
        count(&s, g, zero, inverse);
        for (int l = 0; l < GROUPS; l++) {
            const float d = s.qq[l] > 0 ? s.qx[l] / s.qq[l] : 0, gain = d * s.qx[l];
            const int better = gain > best[l];
            best[l] = better ? gain : best[l];
            f->d[l] = better ? d : f->d[l];
        }
    }
}

/* ---- step 2: scales of a block
 * -------------------------------------------------------------------- */

/* Blocks of the 16 groups: of group l. */
static inline int block_of(const groups *g, int l) { return l * g->n_block / GROUPS; }

/* The half next to x / power, and its value times power.  The smallest half rather than 0 where x /
 * power is half of that. */
static float half_of(uint16_t *half, float x, float power)
{
    const float real = x / power;
    *half = f32_to_f16(real);
    if (!(*half & 0x7fff) && fabsf(real) >= 0x1p-25f)
        *half = (uint16_t)(real < 0 ? 0x8001 : 1);
    return f16_to_f32(*half) * power;
}

/* d and dmin of each block from the groups' own, so that the greatest has its scale so much below
 * the greatest there is. */
static void begin(choice *c, const groups *g, const fit *f, float below)
{
    for (int b = 0; b < g->n_block; b++) {
        float d = 0, m = 0;
        for (int l = 0; l < GROUPS; l++)
            if (block_of(g, l) == b) {
                d = fabsf(f->d[l]) > fabsf(d) ? f->d[l] : d;
                m = f32_max(m, f->m[l]);
            }
        c->d[b] =
            half_of(&c->half_d[b], d / (g->has_min ? g->scale_top - below : g->scale_low + below),
                    g->power[b]);
        c->m[b] = half_of(&c->half_m[b], m / (g->scale_top - below), g->power[b]);
    }
}

/* scale and min of each group for the c->d and c->m of its block, from what is near those of f. */
static void choose(choice *c, const groups *g, const fit *f)
{
    per_group at, unit, unit_m, d, m, inverse, scale, min, error;
    moments s;
    for (int l = 0; l < GROUPS; l++) {
        unit[l] = c->d[block_of(g, l)], unit_m[l] = c->m[block_of(g, l)];
        at[l] = unit[l] != 0
            ? nearest(f32_max(f32_min(f->d[l] / unit[l], g->scale_top), g->scale_low))
            : 0;
        c->error[l] = INFINITY, c->scale[l] = c->min[l] = 0;
    }
    for (int step = -1; step <= 1; step++) {
        for (int l = 0; l < GROUPS; l++) {
            scale[l] = f32_max(f32_min(at[l] + (float)step, g->scale_top), g->scale_low);
            d[l] = unit[l] * scale[l], m[l] = f->m[l], min[l] = 0;
        }
        invert(inverse, d);
        if (g->has_min) {
            count(&s, g, m, inverse);
            for (int l = 0; l < GROUPS; l++) { /* the offset that is best for these q */
                const float own = (d[l] * s.q[l] - g->sum[l]) / (float)g->n;
                min[l] =
                    unit_m[l] > 0 ? nearest(f32_max(f32_min(own / unit_m[l], g->scale_top), 0)) : 0;
                m[l] = unit_m[l] * min[l];
            }
        }
        measure(error, g, d, m, inverse);
        for (int l = 0; l < GROUPS; l++) {
            const int better = error[l] < c->error[l];
            c->scale[l] = better ? scale[l] : c->scale[l];
            c->min[l] = better ? min[l] : c->min[l];
            c->error[l] = better ? error[l] : c->error[l];
        }
    }
}

/* ---- step 3: the block as a whole
 * ----------------------------------------------------------------- */

/* f = what the choice means; inverse of its d. */
static void meant(fit *f, float *inverse, const groups *g, const choice *c)
{
    for (int l = 0; l < GROUPS; l++)
        f->d[l] = c->d[block_of(g, l)] * c->scale[l], f->m[l] = c->m[block_of(g, l)] * c->min[l];
    invert(inverse, f->d);
}

/* d and dmin of `to`: the least squares solution for the scales, minima and q of c; those of c
 * where there is none. */
static void solve(choice *to, const groups *g, const choice *c)
{
    moments s;
    fit f;
    per_group inverse;
    meant(&f, inverse, g, c);
    count(&s, g, f.m, inverse);
    for (int b = 0; b < g->n_block; b++) {
        double dd = 0, dm = 0, mm = 0, dx = 0, mx = 0;
        for (int l = 0; l < GROUPS; l++)
            if (block_of(g, l) == b) {
                const double scale = (double)c->scale[l], min = (double)c->min[l];
                dd += scale * scale * (double)s.qq[l];
                dm += scale * min * (double)s.q[l];
                mm += min * min * (double)g->n;
                dx += scale * (double)s.qx[l];
                mx += min * (double)g->sum[l];
            }
        const double det = dd * mm - dm * dm; /* d dd - m dm = dx, d dm - m mm = mx */
        double d = dd > 0 ? dx / dd : (double)c->d[b], m = (double)c->m[b];
        if (det > 0 && dm * dx - dd * mx > 0)
            d = (dx * mm - dm * mx) / det, m = (dm * dx - dd * mx) / det;
        else if (dd > 0 && mm > 0)
            d = (dx + dm * m) / dd; /* m as it was */
        to->d[b] = half_of(&to->half_d[b], (float)d, g->power[b]);
        to->m[b] = half_of(&to->half_m[b], (float)m, g->power[b]);
    }
}

static double error_of(const choice *c, const groups *g, int b)
{
    double sum = 0;
    for (int l = 0; l < GROUPS; l++)
        if (block_of(g, l) == b)
            sum += (double)c->error[l];
    return sum;
}

static int is_infinite(uint16_t half) { return (half & 0x7c00) == 0x7c00; }

/* What is better in `other`, block by block, comes into c. */
static void keep_better(choice *c, const choice *other, const groups *g)
{
    for (int b = 0; b < g->n_block; b++) {
        if (!(error_of(other, g, b) < error_of(c, g, b)))
            continue;
        c->d[b] = other->d[b], c->m[b] = other->m[b];
        c->half_d[b] = other->half_d[b], c->half_m[b] = other->half_m[b];
        for (int l = 0; l < GROUPS; l++)
            if (block_of(g, l) == b)
                c->scale[l] = other->scale[l], c->min[l] = other->min[l],
                c->error[l] = other->error[l];
    }
}

static void put(uint8_t *y, int32_t type, const groups *g, const choice *c)
{
    uint8_t q[GROUPS * LONGEST], scale[GROUPS], min[GROUPS];
    fit f;
    per_group inverse;
    meant(&f, inverse, g, c);
    for (int i = 0; i < g->n; i++)
        for (int l = 0; l < GROUPS; l++)
            q[l * g->n + i] =
                (uint8_t)(code(g->x[i][l], f.m[l], inverse[l], g->low, g->top) - g->low);
    for (int l = 0; l < GROUPS; l++)
        scale[l] = (uint8_t)(int8_t)c->scale[l], min[l] = (uint8_t)c->min[l];
    for (int b = 0, n_group = GROUPS / g->n_block; b < g->n_block; b++)
        pack_k(y + b * type_row_bytes(type, BLOCK_K), type, q + b * BLOCK_K, scale + b * n_group,
               min + b * n_group, c->half_d[b], c->half_m[b]);
}

/* The blocks of x, scaled. */
static void load_groups(groups *g, const float *x)
{
    for (int b = 0; b < g->n_block; b++) {
        float greatest = 0;
        int exponent;
        for (int i = 0; i < BLOCK_K; i++)
            greatest = f32_max(greatest, fabsf(x[b * BLOCK_K + i]));
        frexpf(greatest, &exponent);
        g->power[b] = greatest < MIN_SIZE ? 0 : ldexpf(1, -exponent < 127 ? -exponent : 127);
    }
    for (int l = 0; l < GROUPS; l++) {
        float sum = 0;
        for (int i = 0; i < g->n; i++)
            sum += g->x[i][l] = x[l * g->n + i] * g->power[block_of(g, l)];
        g->sum[l] = sum;
    }
    for (int b = 0; b < g->n_block; b++)
        g->power[b] = g->power[b] > 0 ? g->power[b] : 1;
}

static int encode_groups(uint8_t *y, int32_t type, groups *g, const float *x)
{
    fit f;
    choice best, next;
    load_groups(g, x);
    (g->has_min ? fit_with_min : fit_without_min)(&f, g);
    for (int below = 0; below < STARTS; below++) {
        begin(&next, g, &f, (float)below);
        for (int b = 0; b < g->n_block; b++)
            if (is_infinite(next.half_d[b]) || is_infinite(next.half_m[b]))
                return b;
        choose(&next, g, &f);
        if (below)
            keep_better(&best, &next, g);
        else
            best = next;
    }
    for (int round = 0; round < ROUNDS; round++) {
        per_group inverse;
        solve(&next, g, round ? &next : &best);
        for (int b = 0; b < g->n_block; b++)
            if (is_infinite(next.half_d[b]) || is_infinite(next.half_m[b]))
                next.d[b] = best.d[b], next.m[b] = best.m[b], next.half_d[b] = best.half_d[b],
                next.half_m[b] = best.half_m[b];
        meant(&f, inverse, g, &next);
        choose(&next, g, &f);
        keep_better(&best, &next, g);
    }
    put(y, type, g, &best);
    return -1;
}

int NAME(encode_k)(uint8_t *y, int32_t type, const float *x, int n)
{
    groups g = {.n = 16, .n_block = 1, .low = -32, .top = 31, .scale_low = -128, .scale_top = 127};
    if (type != T_Q6_K) {
        /* where there is one block, the other is zero and thrown away */
        float both[ENCODE_UNIT] = {0};
        uint8_t blocks[2 * sizeof(block_q5_k)];
        g = (groups){.n = 32,
                     .n_block = 2,
                     .low = 0,
                     .top = type == T_Q4_K ? 15 : 31,
                     .scale_low = 0,
                     .scale_top = 63,
                     .has_min = 1};
        memcpy(both, x, (size_t)n * sizeof *x);
        const int bad = encode_groups(blocks, type, &g, both);
        memcpy(y, blocks, (size_t)type_row_bytes(type, n));
        return bad;
    }
    for (int b = 0; b < n / BLOCK_K; b++)
        if (encode_groups(y + b * (int)sizeof(block_q6_k), type, &g, x + b * BLOCK_K) >= 0)
            return b;
    return -1;
}
