/* amx_tile.h - the tile instructions of AMX (Intel SDM 1, "Intel AMX", and 2, each under its name):
 * eight registers of up to 16 rows of 64 bytes.
 *
 * With EMULATED_TILES they are functions in plain C, tests/kernels/emulated_tiles.c, by which the
 * kernels are tested on processors that have AVX-512 but no AMX; what is installed is never built
 * so. */
#ifndef SLUICE_AMX_TILE_H
#define SLUICE_AMX_TILE_H
#include <stdint.h>

enum { N_TILE = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

/* What LDTILECFG reads. */
typedef struct {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t n_row[16];
} tile_shapes;

#ifdef EMULATED_TILES
#include "emulated_tiles.h"
#else

/* As assembly: gcc 12's intrinsics do not say that they read and write memory.  Rows of a tile are
 * `stride` bytes apart in memory. */
#define TILE_CONFIG(shapes) \
    __asm__ volatile("ldtilecfg %0" : : "m"(*(const tile_shapes *)(shapes)) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" : : : "memory")
#define TILE_LOAD(tile, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile \
                     : \
                     : "r"(p), "r"((int64_t)(stride)) \
                     : "memory")
#define TILE_STORE(tile, p, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" \
                     : \
                     : "r"(p), "r"((int64_t)(stride)) \
                     : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")

/* sum [m][n] += a [m][k] times b [k][n], groups of four int8, or pairs of bf16, being one element
 * of k. */
#define TILE_DOT_INT8(sum, a, b) \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")
#define TILE_DOT_BF16(sum, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : : : "memory")

/* The nearest bf16 of 16 f32 in low, then of those in high: of AVX512_BF16, which what has AMX-BF16
 * has, too. */
#define NEAREST_BF16(to, low, high) \
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(to) : "v"(high), "v"(low))
#endif
#endif
