/* limits.c - what the machine could do: memory read once, and products that never leave the registers.
 *
 * For sluice-bench, which puts these beside its figures.  No result of the engine depends on this file, so its functions
 * for several instruction sets stand in one, compiled for each by attribute; isa_name() picks, as it picks the kernels.
 * The accumulators of a unit are enough to hide its latency: 4 cycles at 2 a cycle take 8, we use 12; of the 8 tile
 * registers 4 accumulate.  All values are 0, and an empty asm at every step keeps that from the compiler. */
#define _GNU_SOURCE /* syscall */
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "internal.h"

enum { PIECE = 1 << 18, LINE = 64, N_STREAM = 4, AHEAD = 1024, N_ACC = 12, PIECES_PER_THREAD = 32 };

typedef struct { const uint8_t *p; uint64_t *sum; } read_args;

static inline void add_line(uint64_t *lane, const uint8_t *p)
{
    uint64_t v[8];
    memcpy(v, p, LINE);
    for (int i = 0; i < 8; i++)
        lane[i] += v[i];
}

/* Several streams at once, and asked for ahead: one alone, in the registers of the baseline, does not fill the bus. */
static void read_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const read_args *a = arg;
    const uint8_t *p = a->p + begin * LINE;
    const int64_t stream = (end - begin) / N_STREAM * LINE;
    uint64_t lane[8] = {0}, sum = 0;
    (void)thread;
    for (int64_t at = 0; at < stream; at += LINE)
        for (int i = 0; i < N_STREAM; i++) {
            __builtin_prefetch(p + i * stream + at + AHEAD);
            add_line(lane, p + i * stream + at);
        }
    for (int64_t at = N_STREAM * stream; at < (end - begin) * LINE; at += LINE)
        add_line(lane, p + at);
    for (int i = 0; i < 8; i++)
        sum += lane[i];
    __atomic_fetch_add(a->sum, sum, __ATOMIC_RELAXED);
}

uint64_t limit_read(const void *p, int64_t n_bytes)
{
    uint64_t sum = 0;
    const read_args a = {p, &sum};
    parallel(read_range, &a, n_bytes / LINE, PIECE / LINE);
    return sum;
}

/* One unit: `rounds` steps of N_ACC (or 4) accumulators; `operations` of one step. */
typedef struct { void (*rounds)(int64_t n); int64_t operations; } unit;
#define HIDE(x) __asm__ volatile("" : "+x"(x))
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) /* indices written out: registers */
#define ZERO(i) acc[i] = x;

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void fma_avx2(int64_t n)
{
    __m256 acc[N_ACC], x = {0};
#define STEP(i) HIDE(x); acc[i] = _mm256_fmadd_ps(x, x, acc[i]);
#define KEEP(i) HIDE(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

/* maddubs, madd with ones, add: what AVX2 has for four int8 products a lane. */
__attribute__((target("avx2"))) static void dot_avx2(int64_t n)
{
    __m256i acc[N_ACC], x = {0};
    const __m256i one = _mm256_set1_epi16(1);
#define STEP(i) HIDE(x); acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), one));
#define KEEP(i) HIDE(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

__attribute__((target("avx2,avxvnni"))) static void dot_avx_vnni(int64_t n)
{
    __m256i acc[N_ACC], x = {0};
#define STEP(i) HIDE(x); acc[i] = _mm256_dpbusd_avx_epi32(acc[i], x, x);
#define KEEP(i) HIDE(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

#define HIDE512(x) __asm__ volatile("" : "+v"(x))
__attribute__((target("avx512f"))) static void fma_avx512(int64_t n)
{
    __m512 acc[N_ACC], x = {0};
#define STEP(i) HIDE512(x); acc[i] = _mm512_fmadd_ps(x, x, acc[i]);
#define KEEP(i) HIDE512(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

__attribute__((target("avx512f,avx512vnni"))) static void dot_avx512(int64_t n)
{
    __m512i acc[N_ACC], x = {0};
#define STEP(i) HIDE512(x); acc[i] = _mm512_dpbusd_epi32(acc[i], x, x);
#define KEEP(i) HIDE512(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

#if defined(__linux__)
/* Tiles of 16 x 64 bytes (Intel SDM 1, "Intel AMX").  Written as asm: compilers of 2022 have no clobber on LDTILECFG. */
static void tile_amx(int64_t n)
{
    static const struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } config = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7" : : "m"(config) : "memory");
    for (int64_t r = 0; r < n; r++)
        __asm__ volatile("tdpbssd %%tmm6, %%tmm4, %%tmm0\n\ttdpbssd %%tmm7, %%tmm4, %%tmm1\n\t"
                         "tdpbssd %%tmm6, %%tmm5, %%tmm2\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3" : : : "memory");
    __asm__ volatile("tilerelease" : : : "memory");
}

/* cpuid leaf 7, edx bits 24 (tiles) and 25 (int8); and the kernel must be asked once per process for their 8 KB of state. */
static int has_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned int a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3
        && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static int has_tiles(void) { return 0; }
static void tile_amx(int64_t n) { (void)n; }
#endif
#endif

/* Every processor: vectors of 16 bytes, fused where that is one instruction. */
#if defined(__aarch64__)
typedef float32x4_t vec;
static inline vec step(vec acc, vec x) { return vfmaq_f32(acc, x, x); }
#define HIDE_VEC(x) __asm__ volatile("" : "+w"(x))
#else
typedef float vec __attribute__((vector_size(16)));
static inline vec step(vec acc, vec x) { return acc + x * x; }
#if defined(__x86_64__)
#define HIDE_VEC(x) HIDE(x)
#else
#define HIDE_VEC(x) __asm__ volatile("" : "+m"(x))
#endif
#endif

static void fma_plain(int64_t n)
{
    vec acc[N_ACC], x = {0};
#define STEP(i) HIDE_VEC(x); acc[i] = step(acc[i], x);
#define KEEP(i) HIDE_VEC(acc[i]);
    EACH(ZERO)
    for (int64_t r = 0; r < n; r++) {
        EACH(STEP)
    }
    EACH(KEEP)
#undef STEP
#undef KEEP
}

#if defined(__aarch64__)
/* SDOT and SMMLA v0 ... v11 += v16 v16, by number: assemblers know the names only in a file compiled for these extensions. */
#define CLOBBERED "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11"
#define SDOT(i) ".inst 0x4e909600 + " #i "\n\t"
#define SMMLA(i) ".inst 0x4e90a600 + " #i "\n\t"

static void dot_neon(int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        __asm__ volatile(EACH(SDOT) : : : CLOBBERED);
}

static void dot_i8mm(int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        __asm__ volatile(EACH(SMMLA) : : : CLOBBERED);
}
#endif

static unit unit_of(int32_t which)
{
#if defined(__x86_64__)
    const int is_512 = !strncmp(isa_name(), "avx512", 6) || !strncmp(isa_name(), "amx", 3); /* any other has AVX2 at least */
    if (which == LIMIT_TILE_INT8)
        return is_512 && has_tiles() ? (unit){tile_amx, 4 * 16 * 16 * 64 * 2} : (unit){NULL, 0};
    if (strcmp(isa_name(), "reference")) {
        if (which == LIMIT_FMA_F32)
            return is_512 ? (unit){fma_avx512, N_ACC * 16 * 2} : (unit){fma_avx2, N_ACC * 8 * 2};
        if (!strcmp(isa_name(), "avx-vnni"))
            return (unit){dot_avx_vnni, N_ACC * 32 * 2};
        return is_512 ? (unit){dot_avx512, N_ACC * 64 * 2} : (unit){dot_avx2, N_ACC * 32 * 2};
    }
#elif defined(__aarch64__)
    if (which == LIMIT_DOT_INT8 && strcmp(isa_name(), "reference"))
        return strcmp(isa_name(), "i8mm") ? (unit){dot_neon, N_ACC * 16 * 2} : (unit){dot_i8mm, N_ACC * 32 * 2};
#endif
    return which == LIMIT_FMA_F32 ? (unit){fma_plain, N_ACC * 4 * 2} : (unit){NULL, 0};
}

typedef struct { unit u; int64_t n_round; } products_args;

static void products_range(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const products_args *a = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->u.rounds(a->n_round);
}

int64_t limit_products(int32_t which, int64_t n_round)
{
    const products_args a = {unit_of(which), n_round};
    const int64_t n_piece = (int64_t)threads_count() * PIECES_PER_THREAD; /* small ones, so that all threads end together */
    if (!a.u.rounds)
        return 0;
    parallel(products_range, &a, n_piece, 1);
    return n_piece * n_round * a.u.operations;
}
