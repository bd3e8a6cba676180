/* runtime.h - threads, instruction sets, guarded maps, checksums, and mathematics that give the
 * same bits everywhere. */
#ifndef SLUICE_API_RUNTIME_H
#define SLUICE_API_RUNTIME_H
#include <stdint.h>

/* ---- crc32c.c: checksums ------------------------------------------------------ */

/* CRC32C (RFC 3720 section 12.1) of n bytes at p, continuing from crc; 0 before the first byte. */
uint32_t crc32c(uint32_t crc, const uint8_t *p, uint64_t n);
/* The same without the processor's instruction: what crc32c is where there is none. */
uint32_t crc32c_plain(uint32_t crc, const uint8_t *p, uint64_t n);

/* ---- math64.c: the same bits on every machine ---------------------------------- */

/* e^x: 0 below -745.14, infinity above 709.79, NaN of NaN; error below 1 ulp. */
double sluice_exp(double x);
/* ln x: -infinity of 0, NaN of x < 0 and of NaN, infinity of infinity; error below 1 ulp. */
double sluice_log(double x);
/* s = sin x, c = cos x for |x| <= 2^23, error below 1 ulp; both NaN beyond and of NaN. */
void sluice_sincos(double *s, double *c, double x);

/* ---- nonfinite.c: damage ---------------------------------------------------------- */

/* Index of the first infinity or NaN in x f32 [n], or -1. */
int64_t first_nonfinite(const float *x, int64_t n);

/* ---- guard.c: a map whose file was cut ---------------------------------------- */

/* From now on a SIGBUS within [p, p + n_bytes), in any thread, writes `line` (UTF-8, no
 * newline, cut to 511 bytes) to stderr and exits with 74.  0; -1: 1,024 maps are registered. */
int32_t guard_map(const void *p, uint64_t n_bytes, const char *line);
/* Before the map is removed: forget it. */
void guard_forget(const void *p);

/* ---- threads.c: the pool ------------------------------------------------------- */

/* Makes the pool n threads wide, the caller's among them (1: no threads at all).  0, or -1: the
 * system refused. The operations below are for one caller at a time.  A forked child begins with a
 * pool of one. */
int32_t threads_start(int32_t n);
int32_t threads_count(void);

/* cores.c: how many threads suit a process that may run on these CPUs (cpu [n_cpu], ids of Linux).
 * proc, sys: "/proc", "/sys". */
int32_t threads_default(const char *proc, const char *sys, const int32_t *cpu, int32_t n_cpu);

/* ---- isa.c: the instruction sets -------------------------------------------------- */

/* One of isa_known, or "" for the best.  0; -1: no such name; -2: not on this machine. */
int32_t isa_select(const char *name);
/* The instruction sets of this build, the best first: "amx", "avx512", "avx-vnni", "avx2" or
 * "i8mm", "neon", then "reference"; NULL after the last. */
const char *isa_known(int32_t i);
const char *isa_name(void);

/* Rows that a product of quantised weights with one token reads side by side (avx512_matvec.c): 1
 * or 4, as suits the processor, or as a test has set it; 0: as suits. */
int32_t matvec_streams(void);
void matvec_streams_set(int32_t n);
#endif
