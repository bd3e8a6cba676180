/* runtime.h - threads, instruction sets, guarded maps, checksums, and functions of f64 with the
 * same bits on every machine. */
#ifndef SLUICE_API_RUNTIME_H
#define SLUICE_API_RUNTIME_H
#include <stdint.h>

/* ---- crc32c.c: checksums ------------------------------------------------------ */

/* CRC-32C (RFC 3720, section 12.1) of n bytes at p, continued from crc; crc is 0 at the start. */
uint32_t crc32c(uint32_t crc, const uint8_t *p, uint64_t n);
/* The same by a table, for processors without the instruction. */
uint32_t crc32c_plain(uint32_t crc, const uint8_t *p, uint64_t n);

/* crc[i] = CRC-32C of the bytes from p + begin[i] up to p + end[i], for i below n, on the threads
 * of the pool. */
void crc32c_pieces(uint32_t *crc, const uint8_t *p, const uint64_t *begin, const uint64_t *end,
                   int64_t n);

/* ---- math64.c: the same bits on every machine ---------------------------------- */

/* e^x; 0 below -745.14, infinity above 709.79, NaN for NaN; error below 1 ulp. */
double sluice_exp(double x);
/* ln x; -infinity for 0, NaN for x < 0 and NaN, infinity for infinity; error below 1 ulp. */
double sluice_log(double x);
/* *s = sin x, *c = cos x; both NaN for |x| > 2^23 and for NaN; error below 1 ulp. */
void sluice_sincos(double *s, double *c, double x);

/* ---- nonfinite.c ---------------------------------------------------------- */

/* Index of the first infinity or NaN in x f32 [n], or -1. */
int64_t first_nonfinite(const float *x, int64_t n);

/* ---- guard.c: truncated files ---------------------------------------- */

/* Registers a map: a SIGBUS within [p, p + n_bytes), in any thread, then writes `line` (UTF-8, no
 * newline, truncated to 511 bytes) to stderr and exits with 74. 0; -1: 1,024 maps are registered.
 */
int32_t guard_map(const void *p, uint64_t n_bytes, const char *line);
/* Unregisters a map; call it before munmap. */
void guard_forget(const void *p);

/* ---- threads.c: the thread pool ------------------------------------------------------- */

/* Starts n - 1 worker threads, so the pool has n with the caller's. 0; -1: the system refused, or
 * the pool already has another size. Only one thread at a time may call operations. A forked child
 * has a pool of one thread. */
int32_t threads_start(int32_t n);
int32_t threads_count(void);

/* cores.c: the default number of threads of a process that may run on these CPUs (cpu [n_cpu],
 * Linux's numbers). proc, sys: "/proc", "/sys". */
int32_t threads_default(const char *proc, const char *sys, const int32_t *cpu, int32_t n_cpu);

/* ---- isa.c: the instruction sets -------------------------------------------------- */

/* Selects one of isa_known, or the best for "". 0; -1: no such name; -2: not on this machine. */
int32_t isa_select(const char *name);
/* Name i of the instruction sets of this build, best first: "amx", "avx512", "avx-vnni", "avx2" or
 * "i8mm", "neon", then "reference"; NULL after the last. */
const char *isa_known(int32_t i);
const char *isa_name(void);

/* Rows of quantized weights that a GEMV reads side by side (avx512_matvec.c): 1 or 4, depending on
 * the processor. matvec_streams_set, for tests, sets it; 0: depending on the processor. */
int32_t matvec_streams(void);
void matvec_streams_set(int32_t n);
#endif
