/* What vkmha heads works on: heads.c (the command), heads_measure.c (the table's numbers),
 * heads_maps.c (attention maps), heads_page.c (HTML), heads_sheet.c (one PNG of all maps). */
#ifndef VKMHA_TOOL_HEADS_H
#define VKMHA_TOOL_HEADS_H

#include "subject.h"
#include "words.h"

/* ---- heads_measure.c ----------------------------------------------------------------------- */

/* Means over the queries that see a key and are not padding. */
typedef struct vkmha_head {
    const char *kind;
    double entropy; /* nats */
    double
        entropy_share; /* of that of equal weights on the keys a query may see; NAN for one key */
    double max_weight;
    double largest_weight; /* of all queries */
    double distance;       /* sum_j w_j |p - j| */
    double distance_share; /* as entropy_share */
    double previous;
    double self;
    double next;
    double first;
    double last;
    double contribution; /* sum over rows of |o_h W_O^h|, as a share of all heads' */
    double leave_one_out;
} vkmha_head;

/* How kinds are told, for --help and the page: the first rule that holds. */
#define VKMHA_HEAD_KINDS                                                                           \
    "self, previous, next, first, last\n"                                                          \
    "         the largest of these five mean weights is 0.4 or more\n"                             \
    "uniform  entropy is 0.9 or more of that of equal weights on the keys a query may see\n"       \
    "local    previous + self + next is 0.4 or more, or the distance a quarter or less of that "   \
    "of\n"                                                                                         \
    "         equal weights\n"                                                                     \
    "diffuse  entropy is 0.7 or more of that of equal weights\n"                                   \
    "mixed    else\n"

/* heads: [num_heads]. Errors: those of the library. */
vkmha_status vkmha_heads_measure(vkmha_subject *subject, vkmha_head *heads, vkmha_error *error);

/* ---- heads_maps.c -------------------------------------------------------------------------- */

enum {
    VKMHA_MAP_SIZE = 512, /* cells a side, at most */
};

/* One head's weights of one sequence, [height, width] cells, each of block x block weights. */
typedef struct vkmha_map {
    uint32_t head;
    uint32_t width;
    uint32_t height;
    uint64_t block; /* 1: the weights themselves */
    uint64_t num_queries;
    uint64_t num_keys;
    float *max;  /* largest weight of each cell */
    float *mean; /* mean of each cell */
    /* The largest weight. */
    uint64_t query;
    uint64_t key;
    float weight;
} vkmha_map;

/* Maps of `count` chosen heads, without trailing padding. At most 64 MiB of weights are held at
 * once. Errors: those of the library. */
vkmha_status vkmha_heads_map(vkmha_subject *subject, uint64_t sequence, const uint32_t *heads,
                             uint32_t count, vkmha_map *maps, vkmha_error *error);

/* ---- heads_page.c, heads_sheet.c ----------------------------------------------------------- */

/* What is shown of a layer. */
typedef struct vkmha_gallery {
    const vkmha_subject *subject;
    const vkmha_head *heads; /* all of them */
    const vkmha_map *maps;
    uint32_t num_maps;
    uint64_t sequence;
    vkmha_sentence sentence;
} vkmha_gallery;

/* Errors: FILE, OUT_OF_MEMORY. The file appears whole or not at all. */
vkmha_status vkmha_heads_write_page(const vkmha_gallery *gallery, const char *path,
                                    vkmha_error *error);
vkmha_status vkmha_heads_write_sheet(const vkmha_gallery *gallery, const char *path,
                                     vkmha_error *error);

#endif
