/* Pictures of weights: a palette, pixels, text of small capitals, PNG. */
#ifndef VKMHA_TOOL_PICTURE_H
#define VKMHA_TOOL_PICTURE_H

#include "tool.h"

enum {
    VKMHA_COLOR_MOST = 249, /* of the ramp, from light (0) to dark */
    VKMHA_COLOR_PAPER = 250,
    VKMHA_COLOR_INK = 251,
    VKMHA_COLOR_LINE = 252,
    VKMHA_NUM_COLORS = 253,
    VKMHA_GLYPH_WIDTH = 6, /* with the gap after it */
    VKMHA_GLYPH_HEIGHT = 7,
};

typedef struct vkmha_picture {
    uint32_t width;
    uint32_t height;
    uint8_t *pixels; /* colours of the palette */
} vkmha_picture;

/* All paper. False where memory is out. */
bool vkmha_picture_make(uint32_t width, uint32_t height, vkmha_pool *pool, vkmha_picture *picture);

void vkmha_picture_fill(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t width,
                        uint32_t height, uint8_t color);

/* The colour of a value between 0 and `top`: its square root, so that small weights are seen. Other
 * values are taken as the nearer end, NaN as 0. */
uint8_t vkmha_picture_color(double value, double top);

/* Cells [height, width] from (x, y) on, each of scale x scale pixels. */
void vkmha_picture_cells(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t scale,
                         const float *values, uint32_t width, uint32_t height, double top);

/* Letters, digits, '.', '-', '%' and spaces; small letters are shown as capitals. What does not fit
 * is cut. */
void vkmha_picture_text(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t scale,
                        const char *text);

/* A PNG in memory of the pool. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_picture_encode(const vkmha_picture *picture, vkmha_pool *pool,
                                  const uint8_t **bytes, uint64_t *size, vkmha_error *error);

#endif
