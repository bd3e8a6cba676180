/* formats.h - metadata arrays of GGUF files, and the formats of weights. */
#ifndef SLUICE_API_FORMATS_H
#define SLUICE_API_FORMATS_H
#include <stdint.h>

/* ---- gguf.c: metadata arrays ------------------------------------------------ */

typedef struct {
    uint64_t at;      /* byte after the last string passed */
    uint64_t n_done;  /* strings passed by this call */
    uint64_t n_bytes; /* length of the string it stopped at */
} gguf_scan;

/* Passes up to n strings {u64 n_bytes, bytes} of buf[0..size) from byte at on.
 * Returns 0 where all were passed or the buffer ends within one (n_done < n; it
 * wants 8 + n_bytes bytes from at), -1 where one is longer than max_bytes. */
int32_t gguf_skip_strings(gguf_scan *out, const uint8_t *buf, uint64_t size, uint64_t at,
                          uint64_t n, uint64_t max_bytes);

/* ---- quant.c: the formats of weights ---------------------------------------- */

/* A row of the table of weight types, types.h. */
typedef struct {
    const char *name; /* the customary one, such as Q4_K */
    int32_t number;   /* of GGML */
    /* elements of a block, 1 for floats; bytes of a block */
    int32_t block, bytes;
    /* bits of a weight without its scale; 0 if is_read is 0 */
    int32_t bits;
    /* byte of a block where its scales begin, and how many are an f16: d, or d and a minimum; 0
     * where the scale of a block is no f16 */
    int32_t at_d, n_scale;
    int32_t is_read;    /* 1 if dequantize_row and the kernels read this type */
    int32_t is_encoded; /* 1 if encode_weights makes it */
    /* what products with it read: int8 activations with a scale for so many, or 1: f32 */
    int32_t activations;
} weight_type;

/* What is known of a GGML type number; NULL: files hold no such type. */
const weight_type *type_facts(int32_t type);
/* Its name; "" for NULL. */
const char *type_name(int32_t type);
/* Its block; 0 for NULL. */
int64_t type_block(int32_t type);
/* Bytes of a row of n elements, n from 0 to 2^50; 0: no such type; -1: n is not a multiple of the
 * block. */
int64_t type_row_bytes(int32_t type, int64_t n);
/* is_read and is_encoded; 0 for NULL. */
int32_t type_supported(int32_t type);
int32_t encodable(int32_t type);
/* y f32 [n] = the n elements at x, of a supported type, n a multiple of its block. */
void dequantize_row(float *y, int32_t type, const void *x, int64_t n);
/* y f16 [n], the bits = x f32 [n], to nearest, ties to even. */
void convert_f32_f16(uint16_t *y, const float *x, int64_t n);
/* How many stored numbers of the n elements at x are infinite or NaN: elements of a
 * float type, scales and minima of a block type, or, where n_scale is 0, its blocks.  *first: index
 * of the first element that one of them spoils, -1 if none does. */
int64_t count_nonfinite(int64_t *first, int32_t type, const void *x, int64_t n);

/* ---- encode.c, encode_k.c: weights to another format ---------------------------- */

/* y = n elements of an encodable type, made by all threads of the n at x, of a supported type
 * `from`; n is a multiple of both blocks. Where both are one type y is a copy.  Returns -1, or the
 * first element that stops it, and then y is good for nothing: an infinity or NaN in x (*beyond =
 * 0), or, by block, what is greater than the type can say (*beyond = 1). */
int64_t encode_weights(int32_t *beyond, void *y, int32_t type, const void *x, int32_t from,
                       int64_t n);
#endif
