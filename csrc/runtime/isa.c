/* isa.c - the instruction sets, and which of them runs.
 *
 *   amx        avx512 and AMX-INT8: Intel servers since Sapphire Rapids (2023)
 *   avx512     x86-64 with AVX-512 F, BW, DQ, VL and VNNI: Intel servers since Cascade Lake (2019),
 *              AMD since Zen 4 (2022)
 *   avx-vnni   avx2 and AVX-VNNI: Intel desktops since Alder Lake (2021), servers of efficient
 *              cores since Sierra Forest (2024)
 *   avx2       x86-64 with AVX2, FMA and F16C: Intel since Haswell (2013), AMD since Excavator
 *              (2015)
 *   i8mm       neon and I8MM (SMMLA): Arm servers since Neoverse V1 (2020) and N2, others since
 *              Cortex-X2, A710 and A510 (2021)
 *   neon       AArch64 with dot products (SDOT, FEAT_DotProd): since Cortex-A55 and A75 (2017),
 *              Neoverse N1 (2019)
 *   reference  everything else */
#define _DEFAULT_SOURCE /* syscall */
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#include "runtime/isa.h"

static const isa *chosen = NULL;

#if defined(__x86_64__)
/* cpuid leaf 1, ecx bit 29 (Intel SDM 2, CPUID): clang's __builtin_cpu_supports does not know the
 * name. */
static int has_f16c(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
}

/* cpuid leaf 7, subleaf 1, eax bit 4; zero where there is no such subleaf.  gcc 12's
 * __builtin_cpu_supports does not know the name. Asked once: products want to know, and a virtual
 * machine takes microseconds to answer. */
int has_avx_vnni(void)
{
    static atomic_int known; /* 1: no, 2: yes */
    if (!known) {
        unsigned int a, b, c, d;
        known = 1 + (__get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1);
    }
    return known == 2;
}

/* AMX-TILE and AMX-INT8 (cpuid leaf 7, edx bits 24 and 25), and Linux's permission for the state of
 * tiles, n_prefetched once (Documentation/arch/x86/xstate.rst): for all threads, refused where it
 * does not know of tiles or the signal stack is too small. */
static int has_amx(void)
{
#if defined(EMULATED_TILES)
    return 1; /* see amx_tile.h */
#elif defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned int a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3) == 3
        && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
#else
    return 0;
#endif
}
#endif

#if defined(__aarch64__)
/* Linux's word for it (Documentation/arch/arm64/elf_hwcaps.rst): bits of AT_HWCAP and AT_HWCAP2.
 * Other systems have other ways to ask, none of them tried: there the reference runs. */
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

static atomic_int streams; /* 0: not n_prefetched yet, or as suits the processor */

void matvec_streams_set(int32_t n) { streams = n == 1 || n == 4 ? n : 0; }

int32_t matvec_streams(void)
{
    if (!streams)
#if defined(__x86_64__)
        streams = __builtin_cpu_is("intel") ? 4 : 1; /* avx512_matvec.c */
#else
        streams = 1;
#endif
    return streams;
}

static int runs_here(const isa *set)
{
#if defined(__x86_64__)
    if (set == &isa_amx)
        return runs_here(&isa_avx512) && has_amx();
    if (set == &isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx512vnni") && runs_here(&isa_avx2);
    if (set == &isa_avx_vnni)
        return runs_here(&isa_avx2) && has_avx_vnni();
    if (set == &isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#elif defined(__aarch64__)
    /* ASIMDDP, I8MM; older headers do not name the second */
    enum { HWCAP_DOT = 1 << 20, HWCAP2_SMMLA = 1 << 13 };
    if (set == &isa_i8mm)
        return has_hwcap(HWCAP_DOT, HWCAP2_SMMLA);
    if (set == &isa_neon)
        return has_hwcap(HWCAP_DOT, 0);
#endif
    return set == &isa_reference;
}

static const isa *const sets[] = {
/* the best first */
#if defined(__x86_64__)
#if !defined(EMULATED_TILES)
    &isa_amx,
#endif
    &isa_avx512,    &isa_avx_vnni, &isa_avx2,
#if defined(EMULATED_TILES)
    &isa_amx, /* never the best */
#endif
#elif defined(__aarch64__)
    &isa_i8mm,
    &isa_neon,
#endif
    &isa_reference,
};
static const char *const known[] = {"amx",  "avx512", "avx-vnni",
                                    "avx2", "i8mm",   "neon"}; /* of any processor */

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

const isa *best_isa(void)
{
    if (!chosen)
        isa_select("");
    return chosen;
}

const char *isa_name(void) { return best_isa()->name; }

/* AMX-BF16 (leaf 7, edx bit 22) and AVX512_BF16 (subleaf 1, eax bit 5): what has AMX-INT8 has them,
 * so far.  Asked once, too: every share of a product wants to know. */
int has_tiles_of_bf16(void)
{
#if defined(EMULATED_TILES)
    return 1;
#elif defined(__x86_64__)
    static atomic_int known; /* 1: no, 2: yes */
    if (!known) {
        unsigned int a, b, c, d, a1;
        known = 1
            + (__get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1
               && __get_cpuid_count(7, 1, &a1, &b, &c, &d) && a1 >> 5 & 1);
    }
    return known == 2;
#else
    return 0;
#endif
}
