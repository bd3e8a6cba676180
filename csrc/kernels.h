/* kernels.h - every function Python may call.  This file is also the cffi cdef: */
/* plain C declarations only, no macros, no guards.                              */
/* Arguments come in the order outputs, inputs, sizes, scalars.                  */

/* ---- gguf.c: metadata arrays ------------------------------------------------ */

typedef struct {
    uint64_t at;      /* byte after the last string passed */
    uint64_t n_done;  /* strings passed by this call */
    uint64_t n_bytes; /* length of the string it stopped at */
} gguf_scan;

/* Passes up to n strings {u64 n_bytes, bytes} of buf[0..size) from byte at on.
 * Returns 0 where all were passed or the buffer ends within one (n_done < n; it
 * wants 8 + n_bytes bytes from at), -1 where one is longer than max_bytes. */
int32_t gguf_skip_strings(gguf_scan *out, const uint8_t *buf, uint64_t size, uint64_t at, uint64_t n, uint64_t max_bytes);

/* ---- quant.c: the formats of weights ---------------------------------------- */

/* Customary name of a GGML type number, "" if there is none. */
const char *type_name(int32_t type);
/* Elements of a block of a type that files may hold; 0: no such type. */
int64_t type_block(int32_t type);
/* Bytes of a row of n elements, n from 0 to 2^50; 0: no such type; -1: n is not a multiple of the block. */
int64_t type_row_bytes(int32_t type, int64_t n);
/* 1 if dequantize_row and the kernels read this type, else 0. */
int32_t type_supported(int32_t type);
/* y f32 [n] = the n elements at x, of a supported type, n a multiple of its block. */
void dequantize_row(float *y, int32_t type, const void *x, int64_t n);
/* y f16 [n], the bits = x f32 [n], to nearest, ties to even. */
void convert_f32_f16(uint16_t *y, const float *x, int64_t n);
/* How many stored numbers of the n elements at x are infinite or NaN: elements of a
 * float type, scales and minima of a block type.  *first: index of the first
 * element that one of them spoils, -1 if none does. */
int64_t count_nonfinite(int64_t *first, int32_t type, const void *x, int64_t n);

/* ---- spm.c: SentencePiece BPE ------------------------------------------------ */

/* ---- grammar.c: which ids a grammar allows ----------------------------------- */

/* ---- sample.c: logits to an id ----------------------------------------------- */

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

/* ---- guard.c: a map whose file was cut ---------------------------------------- */

/* From now on a SIGBUS within [p, p + n_bytes), in any thread, writes `line` (UTF-8, no
 * newline, cut to 511 bytes) to stderr and exits with 74.  0; -1: 64 maps are registered. */
int32_t guard_map(const void *p, uint64_t n_bytes, const char *line);
/* Before the map is removed: forget it. */
void guard_forget(const void *p);

/* ---- dispatch.c, threads.c: which processor, how many --------------------------- */

/* ---- the arithmetic: reference.c defines it --------------------------------------- */
