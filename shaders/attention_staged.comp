/*
 * softmax(scale Q K^T + mask) V by the online softmax: query, key and value tiles go through
 * workgroup-shared memory.
 *
 * Group (x, y, z): query rows x * TILE_ROWS .., head y, batch z. The workgroup is LANES invocations
 * along keys, then features, times WORKGROUP / LANES along rows. Each owns ROWS rows (a multiple of
 * 4) and of them COLUMNS keys of a step, then VALUE_VECTORS vec4 of features. Tiles are staged in
 * slices of SLICE vec4 of features; the softmax reduces, and the weights reach the lanes of their
 * rows, through shared memory. No subgroup operations.
 * Shared memory: 16 * (SLICE + 1) * (TILE_ROWS + STEP) + 4 * TILE_ROWS * (LANES + STEP) bytes.
 * Barriers: two a slice, before it is overwritten and when it is whole; one a step, when the lanes'
 * maxima are whole (the first slice of values does it for the weights); two a chunk (with statistics
 * six), when the lanes' sums are whole and when they are read; one before the state is written,
 * which all lanes have read. All lanes of a workgroup take the same steps.
 * Trips: a chunk of VKMHA_KEY_CHUNK keys takes 1 + 3 * LANES + chunk / STEP * (1 + LANES + slices of
 * head_dim * (1 + SLICE + TILE_ROWS / row lanes + STEP / row lanes) + VALUE_VECTORS * (STEP / row
 * lanes + STEP)).
 * Where features are stored one by one, 4 * ROWS * VALUE_VECTORS more a chunk.
 * Source: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = 32u / COLUMNS; /* a step of 32 keys */
const uint ROW_LANES = WORKGROUP / LANES;
const uint TILE_ROWS = ROW_LANES * ROWS;

#include "attention.glsl"
#include "softmax.glsl"

const uint SLICE = LANES;      /* vec4 of features staged at a time: one a lane */
const uint PITCH = SLICE + 1u; /* odd, against bank conflicts */

shared vec4 shared_query[TILE_ROWS * PITCH];
shared vec4 shared_tile[STEP * PITCH];        /* of keys, then of values */
shared float shared_lanes[TILE_ROWS * LANES]; /* a lane's maximum or sum of a row */
shared vec4 shared_weights[STEP * TILE_ROWS / 4];

/* Products of the block, both operands staged. */
void score_staged(uint lane, uint row_lane, uint step_key)
{
    const uint tile_first = row_tile() * TILE_ROWS;
    const uint count = head_dim();
    const uint head_vectors = ceil_div(count, 4u);
    clear_scores();
    for (uint slice = 0u; slice < head_vectors; slice += SLICE) {
        const bool is_feature = slice + lane < head_vectors;
        const uint feature = 4u * min(slice + lane, head_vectors - 1u);
        barrier();
        for (uint row = row_lane; row < TILE_ROWS; row += ROW_LANES) {
            const uint i = clamped_row(tile_first + row);
            const vec4 query = load_query(query_base + i * push.query.row_stride, feature, count);
            shared_query[row * PITCH + lane] = is_feature ? query : vec4(0.0);
        }
        for (uint key = row_lane; key < STEP; key += ROW_LANES) {
            const uint j = clamped_key(step_key + key);
            const vec4 loaded = load_key(key_base + j * push.key.row_stride, feature, count);
            shared_tile[key * PITCH + lane] = is_feature ? loaded : vec4(0.0);
        }
        barrier();
        const uint slice_vectors = min(SLICE, head_vectors - slice);
        for (uint k = 0u; k < slice_vectors; k++) {
            vec4 keys[COLUMNS];
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                keys[c] = shared_tile[(c * LANES + lane) * PITCH + k];
            }
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                const vec4 query = shared_query[(row_lane * ROWS + r) * PITCH + k];
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    const uint at = r * COLUMNS + c;
                    scores[at] = dot_add(query, keys[c], scores[at]);
                }
            }
        }
    }
}

/*
 * Adds the staged values, vec4 number v of the lane, to its rows; `masks` is a constant where it is
 * called.
 */
void add_values(uint lane, uint row_lane, uint v, bool masks)
{
    for (uint key = 0u; key < STEP; key++) {
        const vec4 value = shared_tile[key * PITCH + lane];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const uint weight_at = key * TILE_ROWS + row_lane * ROWS + r;
            const float weight = shared_weights[weight_at / 4u][r % 4u];
            const uint at = r * VALUE_VECTORS + v;
            row_output[at] = softmax_add(weight, value, row_output[at], masks);
        }
    }
}

/* Adds the lanes' parts of each row, which lie from shared_lanes[first] on. */
void sum_lanes(uint lane, uint first, float parts[ROWS], inout float sums[ROWS])
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        shared_lanes[first + r * LANES + lane] = parts[r];
    }
    barrier();
    for (uint l = 0u; l < LANES; l++) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            sums[r] += shared_lanes[first + r * LANES + l];
        }
    }
    barrier();
}

void main()
{
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint row_lane = gl_LocalInvocationID.x / LANES;
    const uint tile_first = row_tile() * TILE_ROWS;
    const uint first_row = tile_first + row_lane * ROWS;
    const uint lanes_at = row_lane * ROWS * LANES;
    const uint value_vectors = ceil_div(v_head_dim(), 4u);
    begin_sequence();
    begin_block(first_row);
    softmax_begin(first_row);

    const uvec2 keys =
        workgroup_keys(uvec2(visible_keys(clamped_row(tile_first)).x,
                             visible_keys(clamped_row(tile_first + TILE_ROWS - 1u)).y));
    uint chunk = chunk_of(keys.x);
    bool goes_on = !has_flag(VKMHA_FLAG_FIRST);
    do {
        softmax_clear();
        const uint chunk_end = min(chunk + VKMHA_KEY_CHUNK, keys.y);
        for (uint step_key = max(chunk, keys.x); step_key < chunk_end; step_key += STEP) {
            /* Score and mask: this lane's keys with its rows. */
            score_staged(lane, row_lane, step_key);
            mask_scores(lane, step_key);

            /* Rescale to the new maxima, and weigh. */
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                shared_lanes[lanes_at + r * LANES + lane] = maxima[r];
                maxima[r] = row_max[r];
            }
            barrier();
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    maxima[r] = max(maxima[r], shared_lanes[lanes_at + r * LANES + l]);
                }
            }
            softmax_raise();
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r += 4u) {
                    const uint weight_at = (c * LANES + lane) * TILE_ROWS + row_lane * ROWS + r;
                    shared_weights[weight_at / 4u] = softmax_weights(r, c, step_key + c * LANES + lane);
                }
            }

            /* Sum over V: this lane's features of its rows. */
            const bool masks = step_masks(step_key);
            [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                const uint feature = min(lane_feature(lane, v), 4u * (value_vectors - 1u));
                barrier();
                for (uint key = row_lane; key < STEP; key += ROW_LANES) {
                    const uint j = clamped_key(step_key + key);
                    shared_tile[key * PITCH + lane] =
                        load_value(value_base + j * push.value.row_stride, feature, v_head_dim());
                }
                barrier();
                if (masks) {
                    add_values(lane, row_lane, v, true);
                } else {
                    add_values(lane, row_lane, v, false);
                }
            }
        }

        /* The lanes' sums make the rows'. */
        sum_lanes(lane, lanes_at, lane_sum, row_sum);
        if (HAS_STATISTICS) {
            sum_lanes(lane, lanes_at, lane_logs, row_logs);
            sum_lanes(lane, lanes_at, lane_distances, row_distances);
        }

        softmax_join_memory(lane, first_row, goes_on);
        goes_on = true;
        chunk += VKMHA_KEY_CHUNK;
        if (chunk >= keys.y) {
            softmax_finish(lane);
        }
        softmax_keep(lane, first_row);
    } while (chunk < keys.y);

    barrier();
    softmax_keep_state(lane, first_row);
}
