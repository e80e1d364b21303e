#include "picture.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

bool vkmha_picture_make(uint32_t width, uint32_t height, vkmha_pool *pool, vkmha_picture *picture)
{
    *picture = (vkmha_picture){width, height, vkmha_pool_allocate(pool, width, height)};
    if (picture->pixels) {
        vkmha_picture_fill(picture, 0, 0, width, height, VKMHA_COLOR_PAPER);
    }
    return picture->pixels != NULL;
}

void vkmha_picture_fill(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t width,
                        uint32_t height, uint8_t color)
{
    for (uint32_t row = y; row < y + height && row < picture->height; row++) {
        for (uint32_t column = x; column < x + width && column < picture->width; column++) {
            picture->pixels[(uint64_t)row * picture->width + column] = color;
        }
    }
}

uint8_t vkmha_picture_color(double value, double top)
{
    const double share = top > 0.0 ? value / top : 0.0;
    if (!(share > 0.0)) {
        return 0;
    }
    return (uint8_t)(share < 1.0 ? sqrt(share) * VKMHA_COLOR_MOST + 0.5 : VKMHA_COLOR_MOST);
}

void vkmha_picture_cells(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t scale,
                         const float *values, uint32_t width, uint32_t height, double top)
{
    for (uint32_t row = 0; row < height; row++) {
        for (uint32_t column = 0; column < width; column++) {
            const double value = values[(uint64_t)row * width + column];
            vkmha_picture_fill(picture, x + column * scale, y + row * scale, scale, scale,
                               vkmha_picture_color(value, top));
        }
    }
}

/* ---- Text ---------------------------------------------------------------------------------- */

/* Rows from the top, the leftmost of five pixels in bit 4. */
static const struct {
    char letter;
    uint8_t rows[VKMHA_GLYPH_HEIGHT];
} glyphs[] = {
    {'0', {14, 17, 17, 17, 17, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 2, 4, 8, 31}},     {'3', {14, 17, 1, 6, 1, 17, 14}},
    {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {14, 16, 16, 30, 17, 17, 14}}, {'7', {31, 1, 2, 4, 4, 8, 8}},
    {'8', {14, 17, 17, 14, 17, 17, 14}}, {'9', {14, 17, 17, 15, 1, 1, 14}},
    {'A', {14, 17, 17, 31, 17, 17, 17}}, {'B', {30, 17, 17, 30, 17, 17, 30}},
    {'C', {14, 17, 16, 16, 16, 17, 14}}, {'D', {30, 17, 17, 17, 17, 17, 30}},
    {'E', {31, 16, 16, 30, 16, 16, 31}}, {'F', {31, 16, 16, 30, 16, 16, 16}},
    {'G', {14, 17, 16, 19, 17, 17, 14}}, {'H', {17, 17, 17, 31, 17, 17, 17}},
    {'I', {14, 4, 4, 4, 4, 4, 14}},      {'J', {7, 2, 2, 2, 2, 18, 12}},
    {'K', {17, 18, 20, 24, 20, 18, 17}}, {'L', {16, 16, 16, 16, 16, 16, 31}},
    {'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 25, 21, 19, 17, 17, 17}},
    {'O', {14, 17, 17, 17, 17, 17, 14}}, {'P', {30, 17, 17, 30, 16, 16, 16}},
    {'Q', {14, 17, 17, 17, 21, 18, 13}}, {'R', {30, 17, 17, 30, 20, 18, 17}},
    {'S', {15, 16, 16, 14, 1, 1, 30}},   {'T', {31, 4, 4, 4, 4, 4, 4}},
    {'U', {17, 17, 17, 17, 17, 17, 14}}, {'V', {17, 17, 17, 17, 17, 10, 4}},
    {'W', {17, 17, 17, 21, 21, 27, 17}}, {'X', {17, 17, 10, 4, 10, 17, 17}},
    {'Y', {17, 17, 10, 4, 4, 4, 4}},     {'Z', {31, 1, 2, 4, 8, 16, 31}},
    {'.', {0, 0, 0, 0, 0, 12, 12}},      {'-', {0, 0, 0, 14, 0, 0, 0}},
    {'%', {24, 25, 2, 4, 8, 19, 3}},
};

static void draw_glyph(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t scale,
                       const uint8_t *rows)
{
    for (uint32_t row = 0; row < VKMHA_GLYPH_HEIGHT; row++) {
        for (uint32_t column = 0; column < VKMHA_GLYPH_WIDTH - 1; column++) {
            if (rows[row] >> (VKMHA_GLYPH_WIDTH - 2 - column) & 1) {
                vkmha_picture_fill(picture, x + column * scale, y + row * scale, scale, scale,
                                   VKMHA_COLOR_INK);
            }
        }
    }
}

void vkmha_picture_text(vkmha_picture *picture, uint32_t x, uint32_t y, uint32_t scale,
                        const char *text)
{
    for (; *text != '\0'; text++, x += VKMHA_GLYPH_WIDTH * scale) {
        const char letter = (char)toupper((unsigned char)*text);
        for (size_t i = 0; i < sizeof(glyphs) / sizeof(glyphs[0]); i++) {
            if (glyphs[i].letter == letter) {
                draw_glyph(picture, x, y, scale, glyphs[i].rows);
            }
        }
    }
}

/* ---- PNG ----------------------------------------------------------------------------------- */

/* From near white through blue to near black, of evenly falling lightness. */
static void make_palette(png_color *palette)
{
    static const double stops[][3] = {
        {250.0, 251.0, 253.0}, {205.0, 222.0, 240.0}, {142.0, 180.0, 221.0},
        {72.0, 131.0, 194.0},  {26.0, 79.0, 144.0},   {8.0, 25.0, 64.0},
    };
    const uint32_t last = sizeof(stops) / sizeof(stops[0]) - 1;
    for (uint32_t i = 0; i <= VKMHA_COLOR_MOST; i++) {
        const double place = (double)i * last / VKMHA_COLOR_MOST;
        const uint32_t stop = place < last ? (uint32_t)place : last - 1;
        const double share = place - stop;
        double color[3];
        for (uint32_t c = 0; c < 3; c++) {
            color[c] = stops[stop][c] + share * (stops[stop + 1][c] - stops[stop][c]) + 0.5;
        }
        palette[i] = (png_color){(png_byte)color[0], (png_byte)color[1], (png_byte)color[2]};
    }
    palette[VKMHA_COLOR_PAPER] = (png_color){255, 255, 255};
    palette[VKMHA_COLOR_INK] = (png_color){34, 34, 34};
    palette[VKMHA_COLOR_LINE] = (png_color){213, 217, 223};
}

/* What has been encoded so far. */
typedef struct sink {
    vkmha_pool *pool;
    uint8_t *bytes;
    uint64_t size;
    uint64_t capacity;
} sink;

static void append(png_structp png, png_bytep bytes, png_size_t size)
{
    sink *to = png_get_io_ptr(png);
    if (to->size + size > to->capacity) {
        const uint64_t capacity = 2 * (to->size + size);
        uint8_t *larger = vkmha_pool_allocate(to->pool, capacity, 1);
        if (!larger) {
            png_error(png, "out of memory");
        }
        if (to->size > 0) {
            memcpy(larger, to->bytes, (size_t)to->size);
        }
        to->bytes = larger;
        to->capacity = capacity;
    }
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

/* The library's way to fail is to jump; nothing of this function's own is read after that. */
static bool encode(png_structp png, png_infop info, const vkmha_picture *picture, sink *to)
{
    png_color palette[VKMHA_NUM_COLORS];
    make_palette(palette);
    if (setjmp(png_jmpbuf(png))) {
        return false;
    }
    png_set_write_fn(png, to, append, flush_nothing);
    png_set_IHDR(png, info, picture->width, picture->height, 8, PNG_COLOR_TYPE_PALETTE,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_PLTE(png, info, palette, VKMHA_NUM_COLORS);
    png_write_info(png, info);
    for (uint32_t row = 0; row < picture->height; row++) {
        png_write_row(png, picture->pixels + (uint64_t)row * picture->width);
    }
    png_write_end(png, NULL);
    return true;
}

static void be_silent(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void jump(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

vkmha_status vkmha_picture_encode(const vkmha_picture *picture, vkmha_pool *pool,
                                  const uint8_t **bytes, uint64_t *size, vkmha_error *error)
{
    sink to = {.pool = pool};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, jump, be_silent);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const bool is_encoded = info && encode(png, info, picture, &to);
    png_destroy_write_struct(&png, &info);
    if (!is_encoded) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "no memory for a picture");
    }
    *bytes = to.bytes;
    *size = to.size;
    return VKMHA_OK;
}
