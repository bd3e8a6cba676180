/* roofline.c - what the machine could do: memory read once, and products that never leave the
 * registers.
 *
 * For sluice-bench, which puts these beside its figures.  No result of the engine depends on this
 * file, so its functions for several instruction sets stand in one, compiled for each by attribute;
 * isa_name() picks, as it picks the kernels. The accumulators of a unit are enough to hide its
 * latency: 4 cycles at 2 a cycle take 8, we use 12; of the 8 tile registers 4 accumulate.  All
 * values are 0, and an empty asm at every step keeps that from the compiler. */
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#include "kernels/x86/amx_tile.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "api/kernels.h"
#include "api/runtime.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

enum { CHUNK = 1 << 18, LINE = 64, N_STREAM = 4, AHEAD = 1024, N_ACC = 12, CHUNKS_PER_THREAD = 32 };

typedef struct {
    const uint8_t *p;
    uint64_t *sum;
} read_args;

static inline void add_line(uint64_t *lane, const uint8_t *p)
{
    uint64_t v[8];
    memcpy(v, p, LINE);
    for (int i = 0; i < 8; i++)
        lane[i] += v[i];
}

/* Several streams at once, and prefetched ahead: one alone does not fill the bus. */
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

#if defined(__x86_64__)
/* The same: in registers of 16 bytes a thread adds more slowly than some memories bring. */
__attribute__((target("avx2"))) static void read_range_avx2(const void *arg, int64_t begin,
                                                            int64_t end, int32_t thread)
{
    const read_args *a = arg;
    const uint8_t *p = a->p + begin * LINE;
    const int64_t stream = (end - begin) / N_STREAM * LINE;
    __m256i low = _mm256_setzero_si256(), high = low;
    uint64_t lane[4];
    for (int64_t at = 0; at < stream; at += LINE)
        for (int i = 0; i < N_STREAM; i++) {
            const uint8_t *line = p + i * stream + at;
            __builtin_prefetch(line + AHEAD);
            low = _mm256_add_epi64(low, _mm256_loadu_si256((const __m256i *)line));
            high = _mm256_add_epi64(high, _mm256_loadu_si256((const __m256i *)(line + LINE / 2)));
        }
    _mm256_storeu_si256((__m256i *)lane, _mm256_add_epi64(low, high));
    __atomic_fetch_add(a->sum, lane[0] + lane[1] + lane[2] + lane[3], __ATOMIC_RELAXED);
    read_range(arg, begin + stream / LINE * N_STREAM, end, thread);
}
#endif

uint64_t limit_read(const void *p, int64_t n_bytes)
{
    uint64_t sum = 0;
    const read_args a = {p, &sum};
#if defined(__x86_64__)
    if (strcmp(isa_name(), "reference")) { /* any other has AVX2 at least */
        parallel(read_range_avx2, &a, n_bytes / LINE, CHUNK / LINE);
        return sum;
    }
#endif
    parallel(read_range, &a, n_bytes / LINE, CHUNK / LINE);
    return sum;
}

/* One unit: `rounds` steps of N_ACC (or 4) accumulators; `operations` of one step. */
typedef struct {
    void (*rounds)(int64_t n);
    int64_t operations;
} unit;

/* Rounds of acc[i] = NEXT(acc[i], x) in registers of type VEC, which asm calls FILE (a string);
 * indices are written out: registers. */
// clang-format off
#define EACH(DO, FILE, NEXT) \
    DO(0, FILE, NEXT) DO(1, FILE, NEXT) DO(2, FILE, NEXT) DO(3, FILE, NEXT) \
    DO(4, FILE, NEXT) DO(5, FILE, NEXT) DO(6, FILE, NEXT) DO(7, FILE, NEXT) \
    DO(8, FILE, NEXT) DO(9, FILE, NEXT) DO(10, FILE, NEXT) DO(11, FILE, NEXT)
// clang-format on
#define ZERO(i, FILE, NEXT) acc[i] = x;
#define STEP(i, FILE, NEXT) \
    __asm__ volatile("" : "+" FILE(x)); \
    acc[i] = NEXT(acc[i], x);
#define KEEP(i, FILE, NEXT) __asm__ volatile("" : "+" FILE(acc[i]));
#define ROUNDS(NAME, VEC, FILE, NEXT) ROUNDS_BESIDE(NAME, VEC, FILE, NEXT, , , )
#define ROUNDS_BESIDE(NAME, VEC, FILE, NEXT, BEFORE, BESIDE, AFTER) \
    static void NAME(int64_t n) \
    { \
        VEC acc[N_ACC], x = {0}; \
        BEFORE \
        EACH(ZERO, FILE, NEXT) \
        for (int64_t r = 0; r < n; r++) { \
            BESIDE \
            EACH(STEP, FILE, NEXT) \
        } \
        EACH(KEEP, FILE, NEXT) \
        AFTER \
    }

#if defined(__x86_64__)
#define FMA_AVX2(a, x) _mm256_fmadd_ps(x, x, a)
#define FMA_AVX512(a, x) _mm512_fmadd_ps(x, x, a)
/* maddubs, madd with ones, add: what AVX2 has for four int8 products a lane. */
#define DOT_AVX2(a, x) \
    _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), _mm256_set1_epi16(1)))
#define DOT_AVX_VNNI(a, x) _mm256_dpbusd_avx_epi32(a, x, x)
#define DOT_AVX512(a, x) _mm512_dpbusd_epi32(a, x, x)
__attribute__((target("avx2,fma"))) ROUNDS(fma_avx2, __m256, "x", FMA_AVX2)
    __attribute__((target("avx2"))) ROUNDS(dot_avx2, __m256i, "x", DOT_AVX2)
        __attribute__((target("avx2,avxvnni"))) ROUNDS(dot_avx_vnni, __m256i, "x", DOT_AVX_VNNI)
            __attribute__((target("avx512f"))) ROUNDS(fma_avx512, __m512, "v", FMA_AVX512)
                __attribute__((target("avx512f,avx512vnni")))
                ROUNDS(dot_avx512, __m512i, "v", DOT_AVX512)

    /* Tiles of 16 x 64 bytes, where the chosen set has enabled them. */
    static const tile_shapes full = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
#define TILES(NAME, DOT) \
    static void NAME(int64_t n) \
    { \
        TILE_CONFIG(&full); \
        TILE_ZERO(0); \
        TILE_ZERO(1); \
        TILE_ZERO(2); \
        TILE_ZERO(3); \
        TILE_ZERO(4); \
        TILE_ZERO(5); \
        TILE_ZERO(6); \
        TILE_ZERO(7); \
        for (int64_t r = 0; r < n; r++) { \
            DOT(0, 4, 6); \
            DOT(1, 4, 7); \
            DOT(2, 5, 6); \
            DOT(3, 5, 7); \
        } \
        TILE_RELEASE(); \
    }
TILES(tiles_int8, TILE_DOT_INT8)
TILES(tiles_bf16, TILE_DOT_BF16)

/* The fma units while tiles are at work: some processors slow them down then. */
__attribute__((target("avx512f"))) ROUNDS_BESIDE(fma_tiles, __m512, "v", FMA_AVX512,
                                                 TILE_CONFIG(&full);
                                                 , TILE_ZERO(0);, TILE_RELEASE();)
#endif

/* Every processor: vectors of 16 bytes, fused where that is one instruction. */
#if defined(__aarch64__)
#define FMA_PLAIN(a, x) vfmaq_f32(a, x, x)
    ROUNDS(fma_plain, float32x4_t, "w", FMA_PLAIN)
#else
typedef float vec __attribute__((vector_size(16)));
#define FMA_PLAIN(a, x) ((a) + (x) * (x))
#if defined(__x86_64__)
ROUNDS(fma_plain, vec, "x", FMA_PLAIN)
#else
ROUNDS(fma_plain, vec, "m", FMA_PLAIN)
#endif
#endif

#if defined(__aarch64__)
/* SDOT and SMMLA v0 ... v11 += v16 v16, by number: assemblers know the names only in a file
 * compiled for these extensions. */
#define CLOBBERED "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11"
#define SDOT(i, FILE, NEXT) ".inst 0x4e909600 + " #i "\n\t"
#define SMMLA(i, FILE, NEXT) ".inst 0x4e90a600 + " #i "\n\t"

        static void dot_neon(int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        __asm__ volatile(EACH(SDOT, , ) : : : CLOBBERED);
}

static void dot_i8mm(int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        __asm__ volatile(EACH(SMMLA, , ) : : : CLOBBERED);
}
#endif

static unit unit_of(int32_t which)
{
    const char *const name = isa_name();
#if defined(__x86_64__)
    const int has_tiles = !strcmp(name, "amx"), is_512 = has_tiles || !strcmp(name, "avx512");
    if (which == LIMIT_TILE_INT8)
        return has_tiles ? (unit){tiles_int8, 4 * 16 * 16 * 64 * 2} : (unit){NULL, 0};
    if (which == LIMIT_TILE_BF16)
        return has_tiles && has_amx_bf16() ? (unit){tiles_bf16, 4 * 16 * 16 * 32 * 2}
                                           : (unit){NULL, 0};
    if (which == LIMIT_FMA_TILES)
        return has_tiles ? (unit){fma_tiles, N_ACC * 16 * 2} : (unit){NULL, 0};
    if ((which == LIMIT_FMA_F32 || which == LIMIT_DOT_INT8)
        && strcmp(name, "reference")) { /* any other has AVX2 at least */
        if (which == LIMIT_FMA_F32)
            return is_512 ? (unit){fma_avx512, N_ACC * 16 * 2} : (unit){fma_avx2, N_ACC * 8 * 2};
        if (!strcmp(name, "avx-vnni"))
            return (unit){dot_avx_vnni, N_ACC * 32 * 2};
        return is_512 ? (unit){dot_avx512, N_ACC * 64 * 2} : (unit){dot_avx2, N_ACC * 32 * 2};
    }
#elif defined(__aarch64__)
    if (which == LIMIT_DOT_INT8 && strcmp(name, "reference"))
        return strcmp(name, "i8mm") ? (unit){dot_neon, N_ACC * 16 * 2}
                                    : (unit){dot_i8mm, N_ACC * 32 * 2};
#endif
    (void)name;
    return which == LIMIT_FMA_F32 ? (unit){fma_plain, N_ACC * 4 * 2} : (unit){NULL, 0};
}

typedef struct {
    unit u;
    int64_t n_round;
} products_args;

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
    /* small ones, so that all threads end together */
    const int64_t n_chunk = (int64_t)threads_count() * CHUNKS_PER_THREAD;
    if (!a.u.rounds)
        return 0;
    parallel(products_range, &a, n_chunk, 1);
    return n_chunk * n_round * a.u.operations;
}
