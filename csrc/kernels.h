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
/* Bytes of a row of n elements; 0: not supported by this build; -1: n is not a multiple of the block. */
int64_t type_row_bytes(int32_t type, int64_t n);
/* y f32 [n] = the n elements at x, type as above. */
void dequantize_row(float *y, int32_t type, const void *x, int64_t n);

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

/* ---- threads.c: the pool ------------------------------------------------------- */

/* Makes the pool n threads wide, the caller's among them (1: no threads at all).  0, or -1: the system refused. */
int32_t threads_start(int32_t n);
int32_t threads_count(void);

/* ---- dispatch.c: the operations, by the best instruction set this machine has ----- */
/* The bits of every result are those of reference.c whatever the instruction set,     */
/* the number of threads and the number of rows in a call.                             */

/* "reference", "avx2", or "" for the best.  0; -1: no such name; -2: not on this machine. */
int32_t isa_select(const char *name);
const char *isa_name(void);

/* y f32 [n_tok, n] = scale * the rows ids of w, type [*, n]. */
void embed(float *y, int32_t type, const void *w, const int32_t *ids, int32_t n_tok, int32_t n, float scale);

/* Activations for weights in blocks of 32: x f32 [n_tok, n] ~ d q.  n % 32 == 0.
 * q i8 [n_tok, n]; d f32 [n_tok, n/32] scales; s f32 [n_tok, n/32]: d times the sum of the block's q. */
void quantize_q8(int8_t *q, float *d, float *s, const float *x, int32_t n_tok, int32_t n);

/* y f32 [n_tok, n_row] = x w^T, w type [*, n]: its first n_row rows, or the rows named in rows [n_row] if not NULL.
 * F32, F16, BF16 read x f32 [n_tok, n]; the others q, d, s of quantize_q8.  What is not read may be NULL. */
void matmul(float *y, int32_t type, const void *w, const int32_t *rows, const float *x, const int8_t *q, const float *d,
            const float *s, int32_t n_tok, int32_t n_row, int32_t n);

/* y f32 [n_row, n] = w x / sqrt(mean(x^2) + eps), row by row; w f32 [n]; y may be x. */
void rmsnorm(float *y, const float *x, const float *w, int32_t n_row, int32_t n, float eps);

/* freq f64 [n_pair]: base^(-i / n_pair) / (linear * factor[i]), factor f32 [n_pair] or NULL for ones. */
void rope_freq(double *freq, const float *factor, int32_t n_pair, double base, double linear);
/* cs f32 [n_tok, n_pair, 2]: cosine and sine of (pos + t) freq[i]. */
void rope_angles(float *cs, const double *freq, int32_t pos, int32_t n_tok, int32_t n_pair);
/* Rotates x f32 [n_tok, n_head, head_dim] in place, the first 2 n_pair elements of each head: elements 2i and 2i + 1,
 * or i and i + n_pair where half is not 0. */
void rope(float *x, const float *cs, int32_t n_tok, int32_t n_head, int32_t head_dim, int32_t n_pair, int32_t half);

/* y, a cache of type F32 or F16 [n] = x f32 [n]. */
void cache_store(void *y, int32_t type, const float *x, int64_t n);

/* o f32 [n_tok, n_head, head_dim]: causal attention of the queries q (same shape) at positions pos ... pos + n_tok - 1
 * over rows 0 ... of the caches k, v: type [*, n_head_kv, head_dim].  Position p sees the last window positions up to p
 * (0: all).  scores: scratch f32 [threads_count(), attention_scores(...)]. */
void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores, int32_t n_tok,
               int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t window, float scale);
/* Floats of scratch a thread needs for a call of attention. */
int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv);

/* gate f32 [n] = silu(gate) up;  silu(x) = x / (1 + exp(-x)). */
void silu_mul(float *gate, const float *up, int64_t n);
/* gate f32 [n] = gelu(gate) up;  gelu(x) = x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), the tanh form. */
void gelu_mul(float *gate, const float *up, int64_t n);
/* x f32 [n] += y. */
void add(float *x, const float *y, int64_t n);
/* Index of the first infinity or NaN in x f32 [n], or -1. */
int64_t first_nonfinite(const float *x, int64_t n);
