/* emulated_tiles.h - the tile instructions of csrc/kernels/x86/amx_tile.h as functions of
 * emulated_tiles.c. */
#ifndef EMULATED_TILES_H
#define EMULATED_TILES_H

void emulated_config(const tile_shapes *shapes);
void emulated_release(void);
void emulated_load(int tile, const void *p, int64_t stride);
void emulated_store(int tile, void *p, int64_t stride);
void emulated_zero(int tile);
void emulated_dot_int8(int sum, int a, int b);
void emulated_dot_bf16(int sum, int a, int b);
void emulated_bf16(void *to, const float low[16], const float high[16]);

#ifdef EMULATED_TILES
#define TILE_CONFIG(shapes) emulated_config(shapes)
#define TILE_RELEASE() emulated_release()
#define TILE_LOAD(tile, p, stride) emulated_load(tile, p, stride)
#define TILE_STORE(tile, p, stride) emulated_store(tile, p, stride)
#define TILE_ZERO(tile) emulated_zero(tile)
#define TILE_DOT_INT8(sum, a, b) emulated_dot_int8(sum, a, b)
#define TILE_DOT_BF16(sum, a, b) emulated_dot_bf16(sum, a, b)
#define NEAREST_BF16(to, low, high) \
    emulated_bf16(&(to), (const float *)&(low), (const float *)&(high))
#endif
#endif
