/* Projections, plainly, with the error that an fp32 kernel may make. */
#include <inttypes.h>

#include "convert.h"
#include "reference.h"
#include "reference_bound.h"

static uint32_t at_most(uint64_t count, uint32_t limit)
{
    return count < limit ? (uint32_t)count : limit;
}

/* Products are summed a tile at a time, so that a weight is converted once for several rows. */
enum { TILE_ROWS = 16, TILE_FEATURES = 8, TILE_DEPTH = 64 };

typedef struct vkmha_project_tile {
    uint32_t rows;
    uint32_t features;
    uint32_t depth;
    double input[TILE_ROWS][TILE_DEPTH];
    double off[TILE_ROWS][TILE_DEPTH];
    double weight[TILE_DEPTH][TILE_FEATURES];
    /* Sums over the whole depth. */
    double sum[TILE_ROWS][TILE_FEATURES];
    double magnitude[TILE_ROWS][TILE_FEATURES]; /* of the products' absolute values */
    double carried[TILE_ROWS][TILE_FEATURES];   /* what the input's bounds make of it */
    double row_size[TILE_ROWS];                 /* of the input's absolute values */
    double feature_size[TILE_FEATURES];         /* of the weights' */
} vkmha_project_tile;

static uint64_t row_start(const vkmha_feature_rows *input, uint64_t row)
{
    return row / input->rows_per_batch * input->batch_stride +
           row % input->rows_per_batch * input->row_stride;
}

static void load_tile(vkmha_project_tile *tile, const vkmha_feature_rows *input, uint64_t first_row,
                      const vkmha_matrix *weight, uint64_t first_feature, uint64_t first_depth)
{
    for (uint32_t r = 0; r < tile->rows; r++) {
        const uint64_t row = row_start(input, first_row + r) + first_depth;
        for (uint32_t k = 0; k < tile->depth; k++) {
            tile->input[r][k] =
                input->value ? input->value[row + k] : (double)input->exact[row + k];
            tile->off[r][k] = input->value ? input->bound[row + k] : 0.0;
            tile->row_size[r] += fabs(tile->input[r][k]) + tile->off[r][k];
        }
    }
    for (uint32_t k = 0; k < tile->depth; k++) {
        for (uint32_t f = 0; f < TILE_FEATURES; f++) {
            const uint64_t at = (first_feature + f) * weight->row_stride +
                                (first_depth + k) * weight->column_stride;
            if (f < tile->features) {
                tile->weight[k][f] = (double)vkmha_load_element(weight->data, weight->type, at);
            }
            tile->feature_size[f] += fabs(tile->weight[k][f]);
        }
    }
}

static void add_tile(vkmha_project_tile *tile)
{
    for (uint32_t r = 0; r < tile->rows; r++) {
        for (uint32_t k = 0; k < tile->depth; k++) {
            const double x = tile->input[r][k];
            const double off = tile->off[r][k];
            const double size = fabs(x) + off;
            for (uint32_t f = 0; f < TILE_FEATURES; f++) {
                const double w = tile->weight[k][f];
                tile->sum[r][f] += x * w;
                tile->magnitude[r][f] += size * fabs(w);
                tile->carried[r][f] += off * fabs(w);
            }
        }
    }
}

void vkmha_reference_project_rows(const vkmha_feature_rows *input, uint64_t rows,
                                  const vkmha_matrix *weight, const vkmha_vector *bias,
                                  uint64_t chain, double *output, double *bound)
{
    /* The bias is one term more. */
    const double sum_error = vkmha_likely_error(vkmha_longest(chain, weight->columns) + 1.0);
    for (uint64_t n = 0; n < weight->rows; n += TILE_FEATURES) {
        for (uint64_t row = 0; row < rows; row += TILE_ROWS) {
            vkmha_project_tile tile = {
                .rows = at_most(rows - row, TILE_ROWS),
                .features = at_most(weight->rows - n, TILE_FEATURES),
            };
            for (uint64_t k = 0; k < weight->columns; k += TILE_DEPTH) {
                tile.depth = at_most(weight->columns - k, TILE_DEPTH);
                load_tile(&tile, input, row, weight, n, k);
                add_tile(&tile);
            }
            for (uint32_t f = 0; f < tile.features; f++) {
                const bool has_bias = bias && bias->data;
                const double added =
                    has_bias ? (double)vkmha_load_element(bias->data, bias->type, n + f) : 0.0;
                for (uint32_t r = 0; r < tile.rows; r++) {
                    const uint64_t at = (row + r) * weight->rows + n + f;
                    const double flushed = VKMHA_FLUSH * ((double)weight->columns +
                                                          tile.row_size[r] + tile.feature_size[f]);
                    if (output) {
                        output[at] = tile.sum[r][f] + added;
                    }
                    if (bound) {
                        bound[at] = tile.carried[r][f] + flushed +
                                    sum_error * (tile.magnitude[r][f] + fabs(added));
                    }
                }
            }
        }
    }
}

vkmha_status vkmha_reference_project(const float *input, uint64_t rows, const vkmha_matrix *weight,
                                     const vkmha_vector *bias, uint64_t chain, double *output,
                                     double *bound, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!weight || !weight->data) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "weight is NULL");
    }
    if (!input && rows > 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "input is NULL, %" PRIu64 " rows are asked for", rows);
    }
    if (bias && bias->data && bias->size != weight->rows) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "bias has %" PRIu64 " elements, weight has %" PRIu64 " rows", bias->size,
                          weight->rows);
    }
    vkmha_matrix resolved = *weight;
    resolved.row_stride = weight->row_stride ? weight->row_stride : weight->columns;
    resolved.column_stride = weight->column_stride ? weight->column_stride : 1;
    const vkmha_feature_rows features = {
        .exact = input,
        .rows_per_batch = rows ? rows : 1,
        .row_stride = weight->columns,
    };
    vkmha_reference_project_rows(&features, rows, &resolved, bias, chain, output, bound);
    return VKMHA_OK;
}
