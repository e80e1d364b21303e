/* All maps as one PNG: a grid of titled maps with their scales. */
#include "heads.h"
#include "picture.h"
#include "writer.h"

#include <inttypes.h>

enum {
    MARGIN = 16,
    GAP = 12,
    TILE_PIXELS = 280, /* a side that small maps are enlarged to, about */
    MAX_CELL = 24,
    TITLE = 24, /* above a map */
    SCALE = 22, /* below it */
    RAMP = 96,
    MAX_SHEET_WIDTH = 1600,
    TITLE_LETTERS = 23, /* "HEAD 65535 PREVIOUS MEAN" */
};

/* How the tiles lie: one for each map, or two where it is down-sampled. */
typedef struct grid {
    uint32_t scale;
    uint32_t tile_width;
    uint32_t tile_height;
    uint32_t tiles_a_map;
    uint32_t columns;
    uint32_t rows;
} grid;

static grid grid_of(const vkmha_gallery *gallery)
{
    const vkmha_map *map = &gallery->maps[0];
    const uint32_t longest = map->width > map->height ? map->width : map->height;
    const uint32_t fit = TILE_PIXELS / longest;
    const uint32_t title_width = TITLE_LETTERS * VKMHA_GLYPH_WIDTH * 2;
    grid made = {.scale = fit < 1 ? 1 : fit > MAX_CELL ? MAX_CELL : fit};
    const uint32_t width = map->width * made.scale;
    made.tile_width = (width > title_width ? width : title_width) + GAP;
    made.tile_height = TITLE + map->height * made.scale + SCALE + GAP;
    made.tiles_a_map = map->block > 1 ? 2 : 1;
    const uint32_t tiles = gallery->num_maps * made.tiles_a_map;
    const uint32_t fitting = (MAX_SHEET_WIDTH - 2 * MARGIN) / made.tile_width;
    made.columns = fitting < made.tiles_a_map ? made.tiles_a_map
                   : fitting > tiles          ? tiles
                                              : fitting / made.tiles_a_map * made.tiles_a_map;
    made.rows = (tiles + made.columns - 1) / made.columns;
    return made;
}

static void draw_tile(vkmha_picture *picture, const grid *in, uint32_t tile, const vkmha_map *map,
                      const char *kind, const float *values, const char *what)
{
    const uint32_t x = MARGIN + tile % in->columns * in->tile_width;
    const uint32_t y = MARGIN + tile / in->columns * in->tile_height;
    const uint32_t width = map->width * in->scale;
    const uint32_t height = map->height * in->scale;
    double top = 0.0;
    for (uint64_t i = 0; i < (uint64_t)map->width * map->height; i++) {
        top = (double)values[i] > top ? (double)values[i] : top;
    }
    char text[64];
    snprintf(text, sizeof(text), "head %" PRIu32 " %s%s", map->head, kind, what);
    vkmha_picture_text(picture, x, y + 4, 2, text);
    const uint32_t map_y = y + TITLE;
    vkmha_picture_fill(picture, x - 2, map_y - 2, width + 4, height + 4, VKMHA_COLOR_LINE);
    vkmha_picture_cells(picture, x, map_y, in->scale, values, map->width, map->height, top);
    const uint32_t scale_y = map_y + height + 8;
    vkmha_picture_text(picture, x, scale_y, 1, "0");
    const uint32_t ramp_x = x + 2 * VKMHA_GLYPH_WIDTH;
    vkmha_picture_fill(picture, ramp_x - 1, scale_y - 1, RAMP + 2, VKMHA_GLYPH_HEIGHT + 2,
                       VKMHA_COLOR_LINE);
    for (uint32_t i = 0; i < RAMP; i++) {
        vkmha_picture_fill(picture, ramp_x + i, scale_y, 1, VKMHA_GLYPH_HEIGHT,
                           (uint8_t)(i * VKMHA_COLOR_MOST / (RAMP - 1)));
    }
    snprintf(text, sizeof(text), "%.3g", top);
    vkmha_picture_text(picture, ramp_x + RAMP + VKMHA_GLYPH_WIDTH, scale_y, 1, text);
}

vkmha_status vkmha_heads_write_sheet(const vkmha_gallery *gallery, const char *path,
                                     vkmha_error *error)
{
    const grid in = grid_of(gallery);
    vkmha_pool pool = {0};
    vkmha_picture picture;
    vkmha_writer writer = {0};
    const uint8_t *bytes = NULL;
    uint64_t size = 0;
    vkmha_status status =
        vkmha_picture_make(2 * MARGIN + in.columns * in.tile_width - GAP,
                           2 * MARGIN + in.rows * in.tile_height - GAP, &pool, &picture)
            ? VKMHA_OK
            : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t m = 0; status == VKMHA_OK && m < gallery->num_maps; m++) {
        const vkmha_map *map = &gallery->maps[m];
        const char *kind = gallery->heads[map->head].kind;
        const uint32_t tile = m * in.tiles_a_map;
        draw_tile(&picture, &in, tile, map, kind, map->max, map->block > 1 ? " max" : "");
        if (map->block > 1) {
            draw_tile(&picture, &in, tile + 1, map, kind, map->mean, " mean");
        }
    }
    if (status == VKMHA_OK) {
        status = vkmha_picture_encode(&picture, &pool, &bytes, &size, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_writer_open(path, &writer, error);
    }
    if (status == VKMHA_OK) {
        fwrite(bytes, 1, (size_t)size, writer.stream);
        status = vkmha_writer_commit(&writer, error);
    }
    vkmha_writer_finish(&writer);
    vkmha_pool_finish(&pool);
    return status;
}
