/*
 * Weights, scores or the mass on keys: Q K^T once more, with the maximum and sum that attention left of
 * each row: w_ij = exp(s_ij - max_i) / sum_i.
 *
 * Group (x, y, z): query rows (x % row tiles) * TILE_ROWS .., columns x / row tiles * STEP .., head y,
 * batch z. An invocation owns COLUMNS columns and takes ROWS rows at a time. Columns are the keys,
 * then bias_k's and the zero key's where the layer has them.
 * Means add to what the heads before left in the result, key masses to what the queries before
 * left, FLAG_FIRST aside: the same order and bits for any cut. A key mass takes all rows of the
 * dispatch in one workgroup.
 * Shared memory: none. Barriers: none.
 * Trips: for ROWS rows 1 + COLUMNS + ROWS * COLUMNS + (1 + ROWS * COLUMNS) * ceil(head_dim / 4).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = WORKGROUP;
const bool IS_MASS = MASS != 0u;
const uint TILE_ROWS = IS_MASS ? 0x40000000u : ROWS;

#include "attention.glsl"

/* Written by its bits. */

uint told_base; /* element of row 0; padded where sequences are packed */

uint num_columns()
{
    return options.key_len + uint(has_option(VKMHA_OPTION_BIAS_KV)) +
           uint(has_option(VKMHA_OPTION_ZERO_ATTN));
}

/* The product of a query row with bias_k of its head. */
float bias_key_product(uint query_row)
{
    const uint head_vectors = ceil_div(head_dim(), 4u);
    const uint key = options.bias_k / 4u + layer_head() / options.group_size * head_vectors;
    float product = 0.0;
    for (uint k = 0u; k < head_vectors; k++) {
        product =
            dot_add(load_query(query_row, 4u * k, head_dim()), table_vectors[key + k], product);
    }
    return product;
}

/* The score of a column behind the keys, which every row of the sequence sees. */
float extra_score(uint query_row, uint column)
{
    if (!HAS_EXTRAS || !has_option(VKMHA_OPTION_BIAS_KV) || column > options.key_len) {
        return 0.0;
    }
    const float product = bias_key_product(query_row);
    if (tell() == VKMHA_TELL_SCORES_SCALED) {
        precise const float scaled = product * options.scale;
        return scaled;
    }
    const float score = scaled_score(product);
    return tell() != VKMHA_TELL_SCORES_CAPPED && score < -FLT_MAX ? -FLT_MAX : score;
}

float weight_of(uint i, float score)
{
    const uint at = told_row(i);
#ifdef VKMHA_MUTANT_NEXT_ROWS_SUM
    const float sum = state[told_row(i == 0u ? options.query_len - 1u : i - 1u) + 1u];
#else
    const float sum = state[at + 1u];
#endif
    return sum != 0.0 ? softmax_exp(score, state[at]) / sum : 0.0;
}

/* Scores, as far as they are wanted, and which of them the rows attend. */
void inspect_scores(uint lane, uint step_key)
{
    if (length == 0u) {
        clear_scores();
        [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
            attended[i] = false;
        }
        return;
    }
    score_from_memory(lane, step_key);
    if (!IS_MASS &&
        (tell() == VKMHA_TELL_SCORES_SCALED || tell() == VKMHA_TELL_SCORES_CAPPED)) {
        [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
            const uint j = step_key + i % COLUMNS * LANES + lane;
            precise const float scaled = scores[i] * options.scale;
            scores[i] = tell() == VKMHA_TELL_SCORES_SCALED ? scaled : scaled_score(scores[i]);
            attended[i] = j >= first_key && j < length;
        }
        return;
    }
    mask_scores(lane, step_key);
}

void write_element(uint element, uint i, bool is_seen, float score)
{
    if (tell() == VKMHA_TELL_SCORES_MASKED) {
        result_words[element] = is_seen ? floatBitsToUint(score) : MINUS_INFINITY;
    } else if (tell() == VKMHA_TELL_SCORES_SCALED || tell() == VKMHA_TELL_SCORES_CAPPED) {
        result_floats[element] = is_seen ? score : 0.0;
    } else {
        float weight = is_seen ? weight_of(i, score) : 0.0;
        if (tell() == VKMHA_TELL_MEAN_WEIGHTS) {
            weight += has_flag(VKMHA_FLAG_FIRST) ? 0.0 : result_floats[element];
            weight = has_flag(VKMHA_FLAG_LAST) ? weight / float(options.mean_heads) : weight;
        }
        result_floats[element] = weight;
    }
}

/* The lane's columns behind the keys, of the block's rows. */
void write_extras(uint lane, uint step_key, uint block)
{
    for (uint j = step_key + lane; j < min(step_key + STEP, num_columns()); j += LANES) {
        for (uint i = block; i < min(block + ROWS, push.query_count) && j >= options.key_len; i++) {
            const uint query_row = query_base + clamped_row(i) * push.query.row_stride;
            write_element(told_base + i * push.result.row_stride + j, i, i < row_count,
                          extra_score(query_row, j));
        }
    }
}

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint step_key = split_chunk() * STEP;
    begin_sequence();
    told_base = tensor_head(push.result, gl_WorkGroupID.y);

    float masses[COLUMNS];
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        const uint j = step_key + c * LANES + lane;
        const bool goes_on = IS_MASS && !has_flag(VKMHA_FLAG_FIRST) && j < options.key_len;
        masses[c] = goes_on ? result_floats[told_base + j] : 0.0;
    }

    const uint first_row = row_tile() * ROWS;
    const uint end_row = IS_MASS ? row_count : first_row + 1u;
    for (uint block = first_row; block < end_row; block += ROWS) {
        begin_block(block);
        inspect_scores(lane, step_key);
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
            const uint j = step_key + c * LANES + lane;
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                const uint at = r * COLUMNS + c;
                const uint i = block + r;
                if (IS_MASS) {
                    masses[c] += i < row_count && attended[at] ? weight_of(i, scores[at]) : 0.0;
                } else if (i < push.query_count && j < options.key_len) {
                    write_element(told_base + i * push.result.row_stride + j, i,
                                  i < row_count && attended[at], scores[at]);
                }
            }
        }
        if (!IS_MASS) {
            write_extras(lane, step_key, block);
        }
    }

    if (IS_MASS) {
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
            const uint j = step_key + c * LANES + lane;
            if (j < options.key_len) {
                result_floats[told_base + j] = masses[c];
            }
        }
    }
}
