/* An HTML page that is complete in itself: no script, no other file. */
#include "heads.h"
#include "picture.h"
#include "writer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MAX_LABELS = 48,  /* tokens a side that are named */
    MAP_PIXELS = 384, /* a side that small maps are enlarged to, about */
    MAX_CELL = 28,
    LETTER = 7, /* pixels of a label's letter, about */
    LINE = 14,
    LEGEND = 34, /* height below a map */
    LEGEND_PIXELS = 180,
    MAX_TICKS = 5,
    TICK_PIXELS = 40,
};

static const char style[] =
    ":root{color-scheme:light}\n"
    "body{font:16px/1.45 system-ui,sans-serif;color:#222;background:#fff;max-width:1180px;"
    "margin:0 auto;padding:1.2rem}\n"
    "h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:1.6rem 0 .4rem}\n"
    "p{margin:.3rem 0;max-width:70rem}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\n"
    "caption{text-align:left;padding:.3rem 0;color:#444}\n"
    "th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid #dde1e6}\n"
    "thead th{border-bottom:2px solid #8a929c;vertical-align:bottom}\n"
    ".note{font-size:.9rem;color:#444}sub,sup{line-height:0}\n"
    "td.kind{text-align:left}tbody tr:nth-child(even){background:#f5f7fa}\n"
    ".maps{display:flex;flex-wrap:wrap;gap:1.4rem 2rem;align-items:flex-start}\n"
    "figure{margin:0;max-width:100%}figcaption{font-size:.9rem;max-width:34rem;color:#333}\n"
    "figcaption b{font-size:1rem;color:#111}\n"
    "figure:target{outline:2px solid #1a4f90;outline-offset:6px}\n"
    ".pair{display:flex;flex-wrap:wrap;gap:.6rem}\n"
    "svg{max-width:100%;height:auto;font:11px system-ui,sans-serif;fill:#333;display:block}\n"
    "svg image{image-rendering:pixelated}\n"
    "a{color:#1a4f90}dt{font-weight:600;float:left;clear:left;margin-right:.5rem}dd{margin:0}\n";

/* What writing works on. */
typedef struct page {
    const vkmha_gallery *gallery;
    FILE *stream;
    vkmha_pool pool; /* of pictures */
    vkmha_error *error;
} page;

/* ---- Text ---------------------------------------------------------------------------------- */

static void put_escaped(FILE *stream, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", stream);
            break;
        case '<':
            fputs("&lt;", stream);
            break;
        case '>':
            fputs("&gt;", stream);
            break;
        case '"':
            fputs("&quot;", stream);
            break;
        default:
            fputc(*text, stream);
            break;
        }
    }
}

static void put_base64(FILE *stream, const uint8_t *bytes, uint64_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (uint64_t i = 0; i < size; i += 3) {
        const uint64_t left = size - i;
        const uint32_t word = (uint32_t)bytes[i] << 16 |
                              (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                              (left > 2 ? (uint32_t)bytes[i + 2] : 0);
        fputc(digits[word >> 18], stream);
        fputc(digits[word >> 12 & 63], stream);
        fputc(left > 1 ? digits[word >> 6 & 63] : '=', stream);
        fputc(left > 2 ? digits[word & 63] : '=', stream);
    }
}

/* A picture as an element of an SVG. */
static vkmha_status put_picture(page *to, const vkmha_picture *picture, uint32_t x, uint32_t y)
{
    const uint8_t *bytes = NULL;
    uint64_t size = 0;
    const vkmha_status status = vkmha_picture_encode(picture, &to->pool, &bytes, &size, to->error);
    if (status == VKMHA_OK) {
        fprintf(to->stream,
                "<image x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" width=\"%" PRIu32 "\" height=\"%" PRIu32
                "\" href=\"data:image/png;base64,",
                x, y, picture->width, picture->height);
        put_base64(to->stream, bytes, size);
        fputs("\"/>\n", to->stream);
    }
    return status;
}

/* ---- One map ------------------------------------------------------------------------------- */

/* Where a map's parts lie in its SVG. */
typedef struct frame {
    uint32_t scale;
    uint32_t left;
    uint32_t top;
    uint32_t width; /* of the cells, as the next */
    uint32_t height;
    bool has_words;
} frame;

static uint32_t longest_word(const vkmha_sentence *sentence)
{
    size_t longest = 0;
    for (uint64_t i = 0; i < sentence->num_tokens && i < VKMHA_MAX_TOKENS; i++) {
        const size_t length = strlen(sentence->words[i]);
        longest = length > longest ? length : longest;
    }
    return (uint32_t)longest;
}

static frame frame_of(const vkmha_gallery *gallery, const vkmha_map *map)
{
    const uint32_t longest = map->width > map->height ? map->width : map->height;
    const uint32_t fit = MAP_PIXELS / longest;
    frame made = {.scale = fit < 1 ? 1 : fit > MAX_CELL ? MAX_CELL : fit};
    made.has_words = gallery->sentence.has_words && longest <= MAX_LABELS &&
                     map->num_queries <= gallery->sentence.num_tokens;
    const uint32_t letters = made.has_words ? longest_word(&gallery->sentence) : 5;
    made.left = letters * LETTER + LINE;
    made.top = (made.has_words ? letters * LETTER : LINE) + LINE + 4;
    made.width = map->width * made.scale;
    made.height = map->height * made.scale;
    return made;
}

static void put_words(const page *to, const vkmha_map *map, const frame *in)
{
    const vkmha_sentence *sentence = &to->gallery->sentence;
    for (uint32_t i = 0; i < map->height; i++) {
        fprintf(to->stream, "<text x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" text-anchor=\"end\">",
                in->left - 4, in->top + i * in->scale + in->scale / 2 + 4);
        put_escaped(to->stream, sentence->words[i]);
        fputs("</text>\n", to->stream);
    }
    for (uint32_t j = 0; j < map->width; j++) {
        const uint32_t x = in->left + j * in->scale + in->scale / 2 + 4;
        fprintf(to->stream,
                "<text x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" transform=\"rotate(-90 %" PRIu32
                " %" PRIu32 ")\">",
                x, in->top - 4, x, in->top - 4);
        put_escaped(to->stream, sentence->words[j]);
        fputs("</text>\n", to->stream);
    }
}

/* As many numbers as a side has room for. */
static uint32_t ticks_of(uint32_t pixels)
{
    const uint32_t fit = pixels / TICK_PIXELS;
    return fit < 1 ? 1 : fit > MAX_TICKS ? MAX_TICKS : fit;
}

/* Numbers of queries and keys, evenly from the first to the last. */
static void put_ticks(const page *to, const vkmha_map *map, const frame *in)
{
    const uint32_t query_ticks = ticks_of(in->height);
    for (uint32_t t = 0; t < query_ticks; t++) {
        const uint64_t query = query_ticks > 1 ? (map->num_queries - 1) * t / (query_ticks - 1) : 0;
        const uint32_t y = in->top + (uint32_t)(query / map->block) * in->scale + in->scale / 2;
        fprintf(to->stream,
                "<text x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" text-anchor=\"end\">%" PRIu64
                "</text>\n",
                in->left - 4, y + 4, query);
    }
    const uint32_t key_ticks = ticks_of(in->width);
    for (uint32_t t = 0; t < key_ticks; t++) {
        const uint64_t key = key_ticks > 1 ? (map->num_keys - 1) * t / (key_ticks - 1) : 0;
        const uint32_t x = in->left + (uint32_t)(key / map->block) * in->scale + in->scale / 2;
        fprintf(to->stream,
                "<text x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" text-anchor=\"%s\">%" PRIu64 "</text>\n",
                x, in->top - 4,
                t == 0               ? "start"
                : t == key_ticks - 1 ? "end"
                                     : "middle",
                key);
    }
}

static vkmha_status put_legend(page *to, const frame *in, double top)
{
    vkmha_picture ramp;
    const uint32_t y = in->top + in->height + 10;
    if (!vkmha_picture_make(LEGEND_PIXELS, 8, &to->pool, &ramp)) {
        return vkmha_tool_fail(to->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t x = 0; x < LEGEND_PIXELS; x++) {
        vkmha_picture_fill(&ramp, x, 0, 1, 8,
                           (uint8_t)(x * VKMHA_COLOR_MOST / (LEGEND_PIXELS - 1)));
    }
    const vkmha_status status = put_picture(to, &ramp, in->left, y);
    fprintf(to->stream,
            "<rect x=\"%" PRIu32 "\" y=\"%" PRIu32
            "\" width=\"%d\" height=\"8\" fill=\"none\" stroke=\"#9aa0a8\"/>\n",
            in->left, y, LEGEND_PIXELS);
    /* Colours go by the square root. */
    for (uint32_t t = 0; t <= 2; t++) {
        fprintf(to->stream,
                "<text x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" text-anchor=\"%s\">%.3g</text>\n",
                in->left + t * LEGEND_PIXELS / 2, y + 20,
                t == 0   ? "start"
                : t == 1 ? "middle"
                         : "end",
                top * t * t / 4.0);
    }
    return status;
}

static float top_of(const float *values, const vkmha_map *map)
{
    float top = 0.0f;
    for (uint64_t i = 0; i < (uint64_t)map->width * map->height; i++) {
        top = values[i] > top ? values[i] : top;
    }
    return top;
}

static vkmha_status put_map(page *to, const vkmha_map *map, const float *values, const char *what)
{
    const vkmha_head *head = &to->gallery->heads[map->head];
    const frame in = frame_of(to->gallery, map);
    const double top = top_of(values, map);
    vkmha_picture cells;
    if (!vkmha_picture_make(in.width, in.height, &to->pool, &cells)) {
        return vkmha_tool_fail(to->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    vkmha_picture_cells(&cells, 0, 0, in.scale, values, map->width, map->height, top);
    const uint32_t least = in.left + LEGEND_PIXELS;
    const uint32_t right = in.left + in.width > least ? in.left + in.width : least;
    fprintf(
        to->stream,
        "<svg role=\"img\" width=\"%" PRIu32 "\" height=\"%" PRIu32 "\" viewBox=\"0 0 %" PRIu32
        " %" PRIu32 "\" aria-label=\"Attention map of head %" PRIu32 ", kind %s, %s; %" PRIu64
        " queries from top to bottom, %" PRIu64
        " keys from left to right; darkest is %.3g. The largest weight is %.3g, of query %" PRIu64
        " and key %" PRIu64 ".\">\n",
        right + 8, in.top + in.height + LEGEND, right + 8, in.top + in.height + LEGEND, map->head,
        head->kind, what, map->num_queries, map->num_keys, top, map->weight, map->query, map->key);
    if (in.has_words) {
        put_words(to, map, &in);
    } else {
        put_ticks(to, map, &in);
    }
    fprintf(to->stream,
            "<text x=\"%" PRIu32 "\" y=\"11\" fill=\"#666\">key &#8594;</text>\n"
            "<text x=\"0\" y=\"%" PRIu32 "\" fill=\"#666\">query &#8595;</text>\n",
            in.left, in.has_words ? in.top - 4 : 11);
    /* Around the cells: a column of one pixel may be all there is to see. */
    fprintf(to->stream,
            "<rect x=\"%" PRIu32 "\" y=\"%" PRIu32 "\" width=\"%" PRIu32 "\" height=\"%" PRIu32
            "\" fill=\"#d5d9df\"/>\n",
            in.left - 2, in.top - 2, in.width + 4, in.height + 4);
    vkmha_status status = put_picture(to, &cells, in.left, in.top);
    if (status == VKMHA_OK) {
        status = put_legend(to, &in, top);
    }
    fputs("</svg>\n", to->stream);
    vkmha_pool_finish(&to->pool);
    return status;
}

/* ---- The page ------------------------------------------------------------------------------ */

static void put_share(FILE *stream, double share)
{
    if (isfinite(share)) {
        fprintf(stream, "%.0f&#8201;%%", 100.0 * share);
    } else {
        fputs("&#8211;", stream);
    }
}

static void put_caption(const page *to, const vkmha_map *map)
{
    const vkmha_head *head = &to->gallery->heads[map->head];
    const vkmha_sentence *sentence = &to->gallery->sentence;
    fprintf(to->stream, "<figcaption><b>Head %" PRIu32 ": %s.</b> Entropy %.2f nats (", map->head,
            head->kind, head->entropy);
    put_share(to->stream, head->entropy_share);
    fprintf(to->stream, " of equal weights). Largest weight %.3g, ", map->weight);
    if (sentence->has_words && map->query < sentence->num_tokens) {
        fputs("&#8220;", to->stream);
        put_escaped(to->stream, sentence->words[map->query]);
        fputs("&#8221; &#8594; &#8220;", to->stream);
        put_escaped(to->stream, sentence->words[map->key]);
        fputs("&#8221;.", to->stream);
    } else {
        fprintf(to->stream, "query %" PRIu64 " &#8594; key %" PRIu64 ".", map->query, map->key);
    }
    if (map->block > 1) {
        fprintf(to->stream,
                " Down-sampled: each cell is a block of %" PRIu64 " &#215; %" PRIu64
                " weights, on the left the largest of them, on the right their mean.",
                map->block, map->block);
    }
    fputs("</figcaption>\n", to->stream);
}

static vkmha_status put_figures(page *to)
{
    vkmha_status status = VKMHA_OK;
    for (uint32_t m = 0; status == VKMHA_OK && m < to->gallery->num_maps; m++) {
        const vkmha_map *map = &to->gallery->maps[m];
        fprintf(to->stream, "<figure id=\"head-%" PRIu32 "\">\n", map->head);
        put_caption(to, map);
        fputs("<div class=\"pair\">\n", to->stream);
        status =
            put_map(to, map, map->max, map->block > 1 ? "largest weight of each block" : "weights");
        if (status == VKMHA_OK && map->block > 1) {
            status = put_map(to, map, map->mean, "mean weight of each block");
        }
        fputs("</div></figure>\n", to->stream);
    }
    return status;
}

static bool has_map(const vkmha_gallery *gallery, uint32_t head)
{
    for (uint32_t m = 0; m < gallery->num_maps; m++) {
        if (gallery->maps[m].head == head) {
            return true;
        }
    }
    return false;
}

static void put_table(const page *to)
{
    static const char *const titles[] = {"Head",
                                         "Kind",
                                         "Entropy (nats)",
                                         "of equal weights",
                                         "Largest weight",
                                         "Distance",
                                         "Previous",
                                         "Self",
                                         "Next",
                                         "First",
                                         "Last",
                                         "Contribution",
                                         "y changes without"};
    fputs(
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Table of heads\"><table>\n"
        "<caption>Means over the queries that are not padding</caption>\n<thead><tr>",
        to->stream);
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
        fprintf(to->stream, "<th scope=\"col\">%s</th>", titles[i]);
    }
    fputs("</tr></thead>\n<tbody>\n", to->stream);
    for (uint32_t h = 0; h < to->gallery->subject->problem.layer.num_heads; h++) {
        const vkmha_head *head = &to->gallery->heads[h];
        if (has_map(to->gallery, h)) {
            fprintf(to->stream,
                    "<tr><th scope=\"row\"><a href=\"#head-%" PRIu32 "\">%" PRIu32 "</a></th>", h,
                    h);
        } else {
            fprintf(to->stream, "<tr><th scope=\"row\">%" PRIu32 "</th>", h);
        }
        fprintf(to->stream, "<td class=\"kind\">%s</td><td>%.3f</td><td>", head->kind,
                head->entropy);
        put_share(to->stream, head->entropy_share);
        fprintf(to->stream, "</td><td>%.3f</td><td>%.2f</td>", head->max_weight, head->distance);
        const double masses[] = {head->previous, head->self, head->next, head->first, head->last};
        for (size_t i = 0; i < sizeof(masses) / sizeof(masses[0]); i++) {
            fprintf(to->stream, "<td>%.3f</td>", masses[i]);
        }
        fprintf(to->stream, "<td>%.1f&#8201;%%</td><td>%.4f</td></tr>\n",
                100.0 * head->contribution, head->leave_one_out);
    }
    fputs(
        "</tbody></table></div>\n<p class=\"note\">Contribution: "
        "|o<sub>h</sub> W<sub>O</sub><sup>h</sup>| as a share of the sum over heads. Distance: sum "
        "over keys of weight times |query &#8722; key|. Last column: |y &#8722; y without the "
        "head| "
        "/ |y|.</p>\n",
        to->stream);
}

static void put_head(const page *to)
{
    const vkmha_gallery *gallery = to->gallery;
    const vkmha_plan_params *plan = &gallery->subject->problem.plan;
    FILE *stream = to->stream;
    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>Heads of ",
        stream);
    put_escaped(stream, gallery->subject->name);
    fprintf(stream, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>Heads of ", style);
    put_escaped(stream, gallery->subject->name);
    fprintf(stream,
            "</h1>\n<p>%" PRIu32 " heads of %" PRIu32 " features; batch size %" PRIu64 ", %" PRIu64
            " queries that are not padding.</p>\n",
            gallery->subject->problem.layer.num_heads, gallery->subject->problem.layer.head_dim,
            plan->batch_size, gallery->subject->real_rows);
}

static void put_kinds(FILE *stream)
{
    fputs("<details><summary>How kinds are told</summary>\n<pre>", stream);
    put_escaped(stream, VKMHA_HEAD_KINDS);
    fputs("</pre>The first line that holds; weights are means over queries.</details>\n", stream);
}

static void put_maps_title(const page *to)
{
    const vkmha_gallery *gallery = to->gallery;
    const vkmha_map *map = &gallery->maps[0];
    fprintf(to->stream,
            "<h2>Attention maps</h2>\n<p>Sequence %" PRIu64 ", %" PRIu64 " queries &#215; %" PRIu64
            " keys",
            gallery->sequence, map->num_queries, map->num_keys);
    if (gallery->sentence.text[0] != '\0') {
        fputs(": &#8220;", to->stream);
        put_escaped(to->stream, gallery->sentence.text);
        fputs("&#8221;", to->stream);
    }
    fputs(". Rows are queries, columns keys; each row sums to 1 over all keys. Colours go by the "
          "square root of the weight, so that small weights are seen; the darkest is each "
          "map&#8217;s "
          "own largest value, written below it.</p>\n",
          to->stream);
}

vkmha_status vkmha_heads_write_page(const vkmha_gallery *gallery, const char *path,
                                    vkmha_error *error)
{
    vkmha_writer writer;
    vkmha_status status = vkmha_writer_open(path, &writer, error);
    if (status != VKMHA_OK) {
        return status;
    }
    page to = {.gallery = gallery, .stream = writer.stream, .error = error};
    put_head(&to);
    put_table(&to);
    put_kinds(to.stream);
    put_maps_title(&to);
    fputs("<div class=\"maps\">\n", to.stream);
    status = put_figures(&to);
    fputs("</div>\n</main>\n</body>\n</html>\n", to.stream);
    if (status == VKMHA_OK) {
        status = vkmha_writer_commit(&writer, error);
    }
    vkmha_writer_finish(&writer);
    vkmha_pool_finish(&to.pool);
    return status;
}
