/* dispatch.c - from kernels.h to the best instruction set, over the threads.
 *
 *   amx        avx512 and AMX-INT8: Intel servers since Sapphire Rapids (2023)
 *   avx512     x86-64 with AVX-512 F, BW, DQ, VL and VNNI: Intel servers since Cascade Lake (2019), AMD since Zen 4 (2022)
 *   avx-vnni   avx2 and AVX-VNNI: Intel desktops since Alder Lake (2021), servers of efficient cores since Sierra Forest (2024)
 *   avx2       x86-64 with AVX2, FMA and F16C: Intel since Haswell (2013), AMD since Excavator (2015)
 *   i8mm       neon and I8MM (SMMLA): Arm servers since Neoverse V1 (2020) and N2, others since Cortex-X2, A710 and A510 (2021)
 *   neon       AArch64 with dot products (SDOT, FEAT_DotProd): since Cortex-A55 and A75 (2017), Neoverse N1 (2019)
 *   reference  everything else
 *
 * Each function packs its arguments, picks how many items a thread should take at
 * a time, and runs the operation of the chosen set. */
#define _DEFAULT_SOURCE /* syscall */
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#include "internal.h"

static const isa *chosen = NULL;

#if defined(__x86_64__)
/* cpuid leaf 1, ecx bit 29 (Intel SDM 2, CPUID): clang's __builtin_cpu_supports does not know the name. */
static int has_f16c(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
}

/* cpuid leaf 7, subleaf 1, eax bit 4; zero where there is no such subleaf.  gcc 12's __builtin_cpu_supports does not know the name. */
static int has_avx_vnni(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}

/* AMX-TILE and AMX-INT8 (cpuid leaf 7, edx bits 24 and 25), and Linux's permission for the state of tiles, asked once
 * (Documentation/arch/x86/xstate.rst): for all threads, refused where it does not know of tiles or the signal stack is too small. */
static int has_amx(void)
{
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned int a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3 && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
#else
    return 0;
#endif
}
#endif

#if defined(__aarch64__)
/* Linux's word for it (Documentation/arch/arm64/elf_hwcaps.rst): bits of AT_HWCAP and AT_HWCAP2.  Other systems
 * have other ways to ask, none of them tried: there the reference runs. */
static int has_hwcap(unsigned long hwcap, unsigned long hwcap2)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & hwcap) == hwcap && (getauxval(AT_HWCAP2) & hwcap2) == hwcap2;
#else
    (void)hwcap, (void)hwcap2;
    return 0;
#endif
}
#endif

static int runs_here(const isa *set)
{
#if defined(__x86_64__)
    if (set == &isa_amx)
        return runs_here(&isa_avx512) && has_amx();
    if (set == &isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
            && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && runs_here(&isa_avx2);
    if (set == &isa_avx_vnni)
        return runs_here(&isa_avx2) && has_avx_vnni();
    if (set == &isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#elif defined(__aarch64__)
    enum { HWCAP_DOT = 1 << 20, HWCAP2_SMMLA = 1 << 13 }; /* ASIMDDP, I8MM; older headers do not name the second */
    if (set == &isa_i8mm)
        return has_hwcap(HWCAP_DOT, HWCAP2_SMMLA);
    if (set == &isa_neon)
        return has_hwcap(HWCAP_DOT, 0);
#endif
    return set == &isa_reference;
}

static const isa *const sets[] = { /* the best first */
#if defined(__x86_64__)
    &isa_amx,
    &isa_avx512,
    &isa_avx_vnni,
    &isa_avx2,
#elif defined(__aarch64__)
    &isa_i8mm,
    &isa_neon,
#endif
    &isa_reference,
};
static const char *const known[] = {"amx", "avx512", "avx-vnni", "avx2", "i8mm", "neon"}; /* of any processor */

enum { N_SET = sizeof sets / sizeof *sets };

const char *isa_known(int32_t i) { return i >= 0 && i < N_SET ? sets[i]->name : NULL; }

int32_t isa_select(const char *name)
{
    for (int32_t i = 0; i < N_SET; i++) {
        if (*name && strcmp(name, sets[i]->name))
            continue;
        if (runs_here(sets[i])) {
            chosen = sets[i];
            return 0;
        }
        if (*name)
            return -2;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]))
            return -2;
    return -1;
}

static inline const isa *best(void)
{
    if (!chosen)
        isa_select("");
    return chosen;
}

const char *isa_name(void) { return best()->name; }

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
    parallel(best()->quantize, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
}

void quantize_q8_k(int8_t *q, float *d, int16_t *sums, const float *x, int32_t n_tok, int32_t n)
{
    const quantize_args a = {q, d, NULL, sums, x, n};
    parallel(best()->quantize_k, &a, n_tok, grain_of(n, SMALL_WORK / 2, 1));
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
            best()->matmul(g->p + i, from, last, thread);
    }
}

void matmuls(const product *p, int32_t n_product)
{
    const group_args g = {p, n_product};
    int64_t n_unit = 0;
    for (int32_t i = 0; i < n_product; i++)
        n_unit += units_of(p + i);
    /* at most 128 rows, so that a share stays in the second-level cache, or 1,024 for tiles, which
     * pack the activations for each; two shares or more a thread, but large ones, since each prepares the activations */
    const int64_t most = best()->most_rows / UNIT, share = n_unit / (2 * threads_count());
    int64_t grain = grain_of((int64_t)p->n * p->n_tok * UNIT, SMALL_WORK * 4, 1);
    grain = grain > share ? grain : share;
    parallel(matmul_units, &g, n_unit, grain < most ? grain : most);
}

void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x, const int8_t *q, const float *d,
            const float *s, const int16_t *sums, int32_t n_tok, int32_t n_row, int32_t n)
{
    const product p = {y, w, rows, x, q, d, s, sums, type, n_tok, n_row, n};
    matmuls(&p, 1);
}

void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps)
{
    const rmsnorm_args a = {y, x, w, n, eps};
    parallel(best()->rmsnorm, &a, n_row, grain_of(n, SMALL_WORK / 2, 1));
}

void rope_freq(double *freq, const float *factor, int32_t n_pair, double base, double linear)
{
    const double log_base = sluice_log(base);
    for (int32_t i = 0; i < n_pair; i++)
        freq[i] = sluice_exp(-((double)i / n_pair) * log_base) / (factor ? linear * (double)factor[i] : linear);
}

typedef struct { float *cs; const double *freq; int32_t pos, n_pair; } angles_args;

static void angles_rows(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const angles_args *a = arg;
    float *cs = a->cs + begin * a->n_pair * 2;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < a->n_pair; i++, cs += 2) {
            double sine, cosine;
            sluice_sincos(&sine, &cosine, (double)(a->pos + t) * a->freq[i]);
            cs[0] = (float)cosine;
            cs[1] = (float)sine;
        }
}

void rope_angles(float *cs, const double *freq, int32_t pos, int32_t n_tok, int32_t n_pair)
{
    const angles_args a = {cs, freq, pos, n_pair};
    parallel(angles_rows, &a, n_tok, grain_of(n_pair, SMALL_WORK / 64, 1));
}

void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim, int32_t n_pair, int32_t half)
{
    const rope_args a = {x, cs, n_head, head_dim, n_pair, half};
    parallel(best()->rope, &a, n_tok, grain_of((int64_t)n_head * head_dim, SMALL_WORK / 2, 1));
}

typedef struct { uint8_t *y; const float *x; int32_t type; } store_args;

static void store_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const store_args *a = arg;
    (void)thread;
    best()->cache_store(a->y + type_row_bytes(a->type, begin), a->type, a->x + begin, end - begin);
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

/* How an item is cut: not at all where the items go round the threads, or where a call costs less than two more barriers. */
enum { WORTH_CUTTING = 256 /* positions */, MAX_CUT_TOKENS = 64 /* all their scores are kept at once */, MAX_CUT_GROUP = 512 };
typedef struct { int32_t item_tok, n_part; int64_t n_item; } cut;

static cut cut_of(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const int32_t group = n_head / n_head_kv, item_tok = item_tokens(n_tok, group), n_thread = threads_count();
    const int64_t n_item = (int64_t)(n_tok + item_tok - 1) / item_tok * n_head_kv;
    const int whole = n_item % n_thread == 0 || n_item >= 4 * n_thread || pos + n_tok < WORTH_CUTTING || n_tok > MAX_CUT_TOKENS
        || group > MAX_CUT_GROUP;
    return (cut){item_tok, whole || !best()->cuts_attention ? 1 : (int32_t)((4 * n_thread + n_item - 1) / n_item), n_item};
}

int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    const int64_t n_scores = (int64_t)c.item_tok * (n_head / n_head_kv) * ((int64_t)pos + n_tok + 1);
    return n_scores * (c.n_part > 1 ? c.n_item : threads_count());
}

void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores, int32_t n_tok,
               int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t window, float scale)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    attention_args a = {o, q, k, v, scores, (int64_t)c.item_tok * (n_head / n_head_kv) * ((int64_t)pos + n_tok + 1), type, n_tok, pos,
                        n_head, n_head_kv, head_dim, window, scale, c.item_tok, ATTEND_ALL, c.n_part};
    if (c.n_part == 1)
        parallel(best()->attention, &a, c.n_item, 1);
    else
        for (a.steps = ATTEND_SCORES; a.steps <= ATTEND_VALUES; a.steps *= 2)
            parallel(best()->attention, &a, c.n_item * c.n_part, 1);
}

void silu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best()->silu_mul, &a, n, SMALL_WORK / 8);
}

void gelu_mul(float *gate, const float *up, int64_t n)
{
    const pair_args a = {gate, up};
    parallel(best()->gelu_mul, &a, n, SMALL_WORK / 8);
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

int64_t first_nonfinite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return -1;
}
