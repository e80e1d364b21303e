/* What each head adds to the layer's output, c = o_h W_O^h: its norm, and its product with the
 * output's gradient. */
#include <math.h>

#include "reference.h"
#include "reference_bound.h"

bool vkmha_reference_contributes(const vkmha_reference_outputs *outputs)
{
    return outputs->contributions || outputs->contributions_bound || outputs->gate_gradients ||
           outputs->gate_gradients_bound;
}

/* The columns of W_O that read head h. */
static vkmha_matrix head_columns(const vkmha_layer_params *layer, uint64_t h)
{
    const uint64_t element_bytes = layer->w_o.type == VKMHA_TYPE_F32 ? 4 : 2;
    vkmha_matrix weight = layer->w_o;
    weight.columns = layer->v_head_dim;
    weight.data = (const char *)layer->w_o.data +
                  h * layer->v_head_dim * layer->w_o.column_stride * element_bytes;
    return weight;
}

/* |c| moves by no more than the norm of what moves c. Squares are summed, and may vanish below the
 * normal numbers; their root is within 3 ULP, or 5 where it is made of a reciprocal root. */
static void tell_norm(const vkmha_reference *reference, const double *added, const double *off,
                      uint64_t at)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    const double count = (double)reference->layer->output_dim;
    double squares = 0.0;
    double squares_off = 0.0;
    for (uint64_t n = 0; n < reference->layer->output_dim; n++) {
        squares += added[n] * added[n];
        squares_off += off[n] * off[n];
    }
    const double norm = sqrt(squares);
    const double moved = sqrt(squares_off);
    const double sum_error = vkmha_rounding_error(count + 1.0);
    const double rounded = 0.5 * sum_error * (1.0 + sum_error) + 10.0 * VKMHA_UNIT;
    if (outputs->contributions) {
        outputs->contributions[at] = norm;
    }
    if (outputs->contributions_bound) {
        outputs->contributions_bound[at] =
            moved + rounded * (norm + moved) + sqrt(VKMHA_FLUSH * (count + 1.0));
    }
}

static void tell_gradient(const vkmha_reference *reference, const double *added, const double *off,
                          const float *gradient, uint64_t at)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    const double count = (double)reference->layer->output_dim;
    double product = 0.0;
    double magnitude = 0.0;
    double moved = 0.0;
    double sizes = 0.0;
    for (uint64_t n = 0; n < reference->layer->output_dim; n++) {
        const double slope = (double)gradient[n];
        product += added[n] * slope;
        magnitude += (fabs(added[n]) + off[n]) * fabs(slope);
        moved += off[n] * fabs(slope);
        sizes += fabs(added[n]) + off[n] + fabs(slope);
    }
    if (outputs->gate_gradients) {
        outputs->gate_gradients[at] = product;
    }
    if (outputs->gate_gradients_bound) {
        outputs->gate_gradients_bound[at] =
            moved + vkmha_likely_error(count + 1.0) * magnitude + VKMHA_FLUSH * (count + sizes);
    }
}

/* Rows first.. of one sequence and head. */
static void contribute_rows(const vkmha_reference *reference, const vkmha_item *item, uint64_t h,
                            uint64_t first, uint64_t rows, uint64_t at)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    const vkmha_values *attention = &reference->attention;
    const vkmha_scratch *scratch = &reference->scratch;
    const uint64_t output_dim = reference->layer->output_dim;
    const vkmha_matrix weight = head_columns(reference->layer, h);
    const uint64_t row = (uint64_t)item->first_query_row + first;
    const uint64_t from = vkmha_values_at(attention, row, h);
    const vkmha_feature_rows features = {
        .value = attention->value + from,
        .bound = attention->bound + from,
        .rows_per_batch = rows,
        .row_stride = attention->heads * attention->features,
    };
    vkmha_reference_project_rows(&features, rows, &weight, NULL, 0, scratch->added,
                                 scratch->added_bound);
    for (uint64_t r = 0; r < rows; r++) {
        const double *added = scratch->added + r * output_dim;
        const double *off = scratch->added_bound + r * output_dim;
        tell_norm(reference, added, off, at + r);
        if (outputs->gate_gradients || outputs->gate_gradients_bound) {
            const float *gradient = reference->inputs->output_gradient + (row + r) * output_dim;
            tell_gradient(reference, added, off, gradient, at + r);
        }
    }
}

static void clear(double *values, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; values && i < end; i++) {
        values[i] = 0.0;
    }
}

void vkmha_reference_contribute(const vkmha_reference *reference)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_reference_outputs *outputs = reference->outputs;
    if (!vkmha_reference_contributes(outputs)) {
        return;
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_item item = vkmha_plan_item(plan, reference->inputs, 0, b);
        const uint64_t length = (uint64_t)item.query_length;
        for (uint64_t h = 0; h < reference->layer->num_heads; h++) {
            const uint64_t at = (b * reference->layer->num_heads + h) * plan->query_len;
            for (uint64_t i = 0; i < length; i += VKMHA_CONTRIBUTE_ROWS) {
                const uint64_t rows =
                    length - i < VKMHA_CONTRIBUTE_ROWS ? length - i : VKMHA_CONTRIBUTE_ROWS;
                contribute_rows(reference, &item, h, i, rows, at + i);
            }
            clear(outputs->contributions, at + length, at + plan->query_len);
            clear(outputs->contributions_bound, at + length, at + plan->query_len);
            clear(outputs->gate_gradients, at + length, at + plan->query_len);
            clear(outputs->gate_gradients_bound, at + length, at + plan->query_len);
        }
    }
}
