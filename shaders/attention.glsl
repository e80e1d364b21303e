/*
 * What the attention kernels share: bindings, where a row of each tensor starts, which keys a query
 * may see. The includer defines LANES, the lanes that share a block of ROWS query rows: in one step
 * each takes COLUMNS keys, and of the output features the vec4 lane, lane + LANES, lane + 2
 * LANES...; and TILE_ROWS, the rows of a workgroup.
 */

/* Keys; a divisor of VKMHA_KEY_CHUNK, so that steps start at multiples of it. */
const uint STEP = LANES * COLUMNS;

/* Values of options.mask; vkmha_mask_type in C. */
const uint MASK_NONE = 0u;
const uint MASK_ATTEND = 1u;
const uint MASK_ADDITIVE = 2u;
const uint MASK_ADDITIVE_F16 = 3u;
const uint MASK_ATTEND_BITS = 4u;

const bool HAS_MASKS = (CLASSES & VKMHA_CLASS_MASKS) != 0u;
const bool HAS_FIRSTS = (CLASSES & VKMHA_CLASS_FIRSTS) != 0u;
const bool HAS_SCORES = (CLASSES & VKMHA_CLASS_SCORES) != 0u;
const bool HAS_EXTRAS = (CLASSES & VKMHA_CLASS_EXTRAS) != 0u;
const bool IS_SPLIT = (CLASSES & VKMHA_CLASS_SPLIT) != 0u;
const bool HAS_STATISTICS = (CLASSES & VKMHA_CLASS_STATISTICS) != 0u;
const uint STATE_FLOATS = VKMHA_STATE_FLOATS(CLASSES);

layout(push_constant) uniform Push
{
    vkmha_attention_push push;
};

VKMHA_DECLARE_TENSOR(VKMHA_BIND_QUERY, readonly, Query, query)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_KEY, readonly, Key, key)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_VALUE, readonly, Value, value)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_OUTPUT, , Result, result)
layout(std430, binding = VKMHA_BIND_MASK) readonly buffer MaskWords
{
    uint mask_words[];
};
layout(std430, binding = VKMHA_BIND_ATTEND_KEYS) readonly buffer AttendWords
{
    uint attend_words[];
};
layout(std430, binding = VKMHA_BIND_STATE) buffer State
{
    float state[];
};
layout(std430, binding = VKMHA_BIND_TABLES) readonly buffer TableFloats
{
    float table_floats[];
};
layout(std430, binding = VKMHA_BIND_TABLES) readonly buffer TableVectors
{
    vec4 table_vectors[];
};
VKMHA_DECLARE_SEQUENCES
layout(binding = VKMHA_BIND_GATES) uniform Gates
{
    vec4 gates[VKMHA_MAX_UNIFORM_GATES / 4];
};
layout(binding = VKMHA_BIND_OPTIONS) uniform Options
{
    vkmha_attention_options options;
};

bool has_option(uint bit)
{
    return (options.bits & bit) != 0u;
}

VKMHA_DEFINE_LOAD(query, VKMHA_BIND_QUERY, VECTOR_A)
VKMHA_DEFINE_LOAD(key, VKMHA_BIND_KEY, VECTOR_A)
VKMHA_DEFINE_LOAD(value, VKMHA_BIND_VALUE, VECTOR_B)
VKMHA_DEFINE_LOAD(result, VKMHA_BIND_OUTPUT, VECTOR_C) /* always fp32 */

/* A VKMHA_TELL_. */
uint tell()
{
    return push.flags >> VKMHA_TELL_SHIFT;
}

uint head_dim()
{
    return options.head_dim;
}

uint v_head_dim()
{
    return options.v_head_dim;
}

bool has_flag(uint flag)
{
    return (push.flags & flag) != 0u;
}

/* Element of a tensor's position 0, for this group's batch and `head`. */
uint tensor_head(vkmha_tensor_push tensor, uint head)
{
    return tensor.base + gl_WorkGroupID.z * tensor.batch_stride + head * tensor.head_stride;
}

/* Of the layer's heads, the one that this group computes. */
uint layer_head()
{
    return push.first_head + gl_WorkGroupID.y;
}

/* Of the dispatch's key heads, the one that this group reads. */
uint key_head()
{
    return layer_head() / options.group_size - push.first_head / options.group_size;
}

/* 1 leaves a head as it is. */
float head_gate()
{
    if (!has_option(VKMHA_OPTION_GATES)) {
        return 1.0;
    }
    const uint index =
        push.gates_base + gl_WorkGroupID.z * push.gates_batch_stride + gl_WorkGroupID.y;
    return gates[index >> 2][index & 3u];
}

/* ---- Tiles ---- */

/* With CLASS_SPLIT, groups along x are tiles of rows times chunks of keys (inspect: tiles of keys). */
uint row_tiles()
{
    return ceil_div(push.query_count, TILE_ROWS);
}

uint row_tile()
{
    return IS_SPLIT ? gl_WorkGroupID.x % row_tiles() : gl_WorkGroupID.x;
}

uint split_chunk()
{
    return IS_SPLIT ? gl_WorkGroupID.x / row_tiles() : 0u;
}

/* ---- What is so for all rows of the workgroup; begin_sequence sets it ---- */

uint row_count;     /* rows of the dispatch that the sequence has; those past them are not written */
int first_position; /* where the dispatch's row 0 stands among the keys */
uint first_key;     /* keys first_key..length-1 are there; what lies behind is never read */
uint length;        /* 0 where the head is left out and nothing is told of it */
int left_reach;     /* a row at position p may see keys p - left_reach..p + right_reach */
int right_reach;
uint query_base; /* element of row 0, or of key 0 */
uint key_base;
uint value_base;
uint result_base;

const int FAR = 0x7fffffff;
const int MOST_OFFSET = 0x40000000; /* lengths are below it, so that sums of two stay in 32 bits */

void begin_sequence()
{
#ifdef VKMHA_MUTANT_SWAP_HEADS
    const uint result_head = gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y;
#else
    const uint result_head = gl_WorkGroupID.y;
#endif
    row_count = push.query_count;
    first_position = push.position_offset;
    first_key = 0u;
    length = options.key_len;
    query_base = tensor_head(push.query, gl_WorkGroupID.y);
    key_base = tensor_head(push.key, key_head());
    value_base = tensor_head(push.value, key_head());
    result_base = tensor_head(push.result, result_head);
    if (has_option(VKMHA_OPTION_SEQUENCES)) {
        const uint index = 2u * (push.sequences_base + gl_WorkGroupID.z);
        const ivec4 keys = sequences[index];
        uint room = length;
        if (has_option(VKMHA_OPTION_PACKED)) {
            const ivec4 rows = sequences[index + 1u];
            const uint first_row = min(uint(max(rows.x, 0)), options.total_queries);
            const uint key_row = min(uint(max(rows.z, 0)), options.total_keys);
            const int there =
                min(rows.y, int(options.total_queries - first_row)) - int(push.first_query);
            row_count = uint(clamp(there, 0, int(row_count)));
            room = min(room, options.total_keys - key_row);
            /* A tile behind the sequence's rows has nothing to do, and reads a row that there is. */
            room = row_tile() * TILE_ROWS < row_count ? room : 0u;
            const uint query_row = min(first_row + push.first_query, options.total_queries - 1u);
            query_base += query_row * push.query.row_stride;
            result_base += query_row * push.result.row_stride;
            key_base += key_row * push.key.row_stride;
            value_base += key_row * push.value.row_stride;
        }
        first_key = uint(max(keys.x, 0));
        length = uint(clamp(keys.y, 0, int(room)));
        first_position = int(push.first_query) + clamp(keys.z, -MOST_OFFSET, MOST_OFFSET);
    }
    if (head_gate() == 0.0 && !has_option(VKMHA_OPTION_TOLD)) {
        length = 0u;
    }
    left_reach = has_option(VKMHA_OPTION_WINDOW_LEFT) ? options.window_left : FAR;
#ifdef VKMHA_MUTANT_WINDOW_OFF_BY_ONE
    left_reach -= 1;
#endif
    right_reach = has_option(VKMHA_OPTION_WINDOW_RIGHT) ? options.window_right : FAR;
    if (has_option(VKMHA_OPTION_CAUSAL)) {
#ifdef VKMHA_MUTANT_CAUSAL_OFF_BY_ONE
        right_reach = min(right_reach, 1);
#else
        right_reach = 0;
#endif
    }
}

/*
 * Rows past the last are computed as copies of it, so that no lane leaves the barriers; they are
 * not written.
 */
uint clamped_row(uint i)
{
    return min(i, max(row_count, 1u) - 1u);
}

/* Keys x..y-1 may be seen by row i, masks aside; both ends grow with i. */
uvec2 visible_keys(uint i)
{
    const int p = first_position + int(i);
    const int end = right_reach < int(length) - p ? p + right_reach + 1 : int(length);
    uint first = 0u;
    if (HAS_FIRSTS) {
        first = max(first_key, left_reach < p ? uint(p - left_reach) : 0u);
    }
    uint visible = uint(max(end, 0));
#ifdef VKMHA_MUTANT_DROP_KEY
    visible = max(visible, 1u) - 1u;
#endif
#ifdef VKMHA_MUTANT_TAIL
    visible = visible == length ? ceil_div(length, STEP) * STEP : visible;
#endif
    return uvec2(first, visible);
}

/* A key whose load is harmless: j, or the sequence's last. Never called for an empty sequence. */
uint clamped_key(uint j)
{
#ifdef VKMHA_MUTANT_TAIL
    return min(j, options.key_len - 1u);
#else
    return min(j, length - 1u);
#endif
}

/* ---- Keys of the dispatch, in chunks ---- */

/* Keys x..y-1, of those that the workgroup's rows may see, are seen by this workgroup now. */
uvec2 workgroup_keys(uvec2 visible)
{
    uint first = push.key_begin + split_chunk() * VKMHA_KEY_CHUNK;
    /* None where rows see none: rounded down to a step, their first key might lie before their last. */
    uint end = visible.x < visible.y ? min(push.key_end, visible.y) : first;
    if (IS_SPLIT) {
        end = min(end, first + VKMHA_KEY_CHUNK);
    }
    return uvec2(max(first, visible.x / STEP * STEP), end);
}

uint chunk_of(uint key)
{
    return key / VKMHA_KEY_CHUNK * VKMHA_KEY_CHUNK;
}

/* ---- Results ---- */

/* Row i among the rows of all groups, and with chunks among theirs. */
uint state_row(uint chunk, uint i)
{
    const uint batch = chunk * gl_NumWorkGroups.z + gl_WorkGroupID.z;
    return (batch * gl_NumWorkGroups.y + gl_WorkGroupID.y) * push.query_count + i;
}

/* Element of row i of the result, or of the chunk's part of it. */
uint result_row(uint i)
{
    if (IS_SPLIT) {
        return push.result.base + state_row(split_chunk(), i) * push.result.row_stride;
    }
    return result_base + i * push.result.row_stride;
}

/* Where row i leaves its state with OPTION_ROWS. */
uint told_row(uint i)
{
    const uint head = gl_WorkGroupID.z * options.num_heads + gl_WorkGroupID.y;
    return push.state_base + VKMHA_TOLD_FLOATS * (head * options.query_len + i);
}

/* ---- Masks and scores ---- */

bool is_attend_byte(uint word, uint index)
{
    const bool attend = ((word >> (8u * (index & 3u))) & 0xffu) != 0u;
#ifdef VKMHA_MUTANT_INVERT_MASK
    return !attend;
#else
    return attend;
#endif
}

/* Whether the mask over keys lets the batch attend a key. */
bool is_attended_key(uint key)
{
    if (!HAS_MASKS || !has_option(VKMHA_OPTION_ATTEND_KEYS)) {
        return true;
    }
    const uint index = push.attend_base + gl_WorkGroupID.z * options.attend_batch_stride + key;
    return is_attend_byte(attend_words[index >> 2], index);
}

/*
 * The mask tensor on a score, `key` keys after a row's start: false where it forbids the key, else
 * it is added. -Inf is told by its bits, as Vulkan need not preserve it.
 */
bool apply_mask(uint row, uint key, inout float score)
{
    if (!HAS_MASKS || options.mask == MASK_NONE) {
        return true;
    }
    const uint column = has_flag(VKMHA_FLAG_MASK_KEYS) ? key : 0u;
    const uint index = row + column;
    bool attend = true;
    float added = 0.0;
    if (options.mask == MASK_ATTEND) {
        return is_attend_byte(mask_words[index >> 2], index);
    } else if (options.mask == MASK_ATTEND_BITS) {
        attend = (mask_words[row + (column >> 5)] >> (column & 31u) & 1u) != 0u;
    } else if (options.mask == MASK_ADDITIVE_F16) {
        const uint bits = mask_words[index >> 1] >> (16u * (index & 1u)) & 0xffffu;
        attend = bits != 0xfc00u;
        added = half_to_float(bits);
    } else {
        const uint bits = mask_words[index];
        attend = bits != MINUS_INFINITY;
        added = uintBitsToFloat(bits);
    }
#ifndef VKMHA_MUTANT_NO_BIAS
    score += added;
#endif
#ifdef VKMHA_MUTANT_INVERT_MASK
    return !attend;
#else
    return attend;
#endif
}

/* tanh, with no overflow inside and no cancellation near 0. */
float bounded_tanh(float x)
{
    const float size = abs(x) > 16.0 ? 16.0 : abs(x); /* NaN stays */
    const float decay = exp(-2.0 * size);
    const float square = size * size;
    /* The odd series up to x^9; its next term is below 1e-8 of the sum at 1/4. */
    const float series =
        size + size * square *
                   (-0.33333334 +
                    square * (0.13333334 + square * (-0.053968254 + square * 0.021869488)));
    const float value = size < 0.25 ? series : (1.0 - decay) / (1.0 + decay);
    return x < 0.0 ? -value : value;
}

/* A product of query and key as a score: scaled, then bounded. */
float scaled_score(float product)
{
    float scale = options.scale;
#ifdef VKMHA_MUTANT_SCALE
    scale *= 1.01;
#endif
    precise float score = product * scale;
#ifdef VKMHA_MUTANT_NO_SOFTCAP
    return score;
#endif
    if (HAS_SCORES && has_option(VKMHA_OPTION_SOFTCAP)) {
        score = options.softcap * bounded_tanh(score / options.softcap);
    }
    return score;
}

const float LOWEST_EXPONENT = -88.0; /* e^-88 is below the normal numbers */

/* exp(score - maximum), never asked of -Inf; exactly 1 at the maximum. */
float softmax_exp(float score, float maximum)
{
    precise const float x = score - maximum;
    const float weight = exp(x < LOWEST_EXPONENT ? LOWEST_EXPONENT : x);
    return x < LOWEST_EXPONENT ? 0.0 : x == 0.0 ? 1.0 : weight;
}

/* The biases of a key that is `distance` before or behind the row's position. */
float distance_bias(float score, int distance)
{
    precise float biased = score;
    if (!HAS_SCORES) {
        return biased;
    }
    if (has_option(VKMHA_OPTION_ALIBI)) {
        biased -= table_floats[options.slopes + layer_head()] * float(abs(distance));
    }
    if (has_option(VKMHA_OPTION_RELATIVE)) {
        const int reach = options.relative_reach;
        const uint row = layer_head() * uint(2 * reach + 1);
        biased += table_floats[options.relative + row + uint(clamp(distance, -reach, reach) + reach)];
    }
    return biased;
}

/*
 * Turns the product of a row and a key into its score and tells whether the mask lets the row
 * attend. A score below the finite numbers, alone or by the mask, becomes the least of them; NaN
 * stays.
 */
bool finish_score(uint mask_row, int position, uint key, inout float score)
{
    precise float biased = distance_bias(scaled_score(score), int(key) - position);
    const bool is_attended = apply_mask(mask_row, key, biased);
    score = biased < -FLT_MAX ? -FLT_MAX : biased;
    return is_attended;
}

/*
 * ---- A lane's block: ROWS rows, and of a step COLUMNS keys, of which number c is key c * LANES +
 * lane ----
 */

uint query_rows[ROWS];
uint mask_rows[ROWS];
int row_positions[ROWS];
uint firsts[ROWS];               /* keys first..limit-1 may be seen by a row; both grow from row to row */
uint limits[ROWS];
float scores[ROWS * COLUMNS];    /* row by row */
bool attended[ROWS * COLUMNS];
float maxima[ROWS];              /* of the attended scores, at least the rows' maxima */

void begin_block(uint first_row)
{
    const uint mask = tensor_head(push.mask, gl_WorkGroupID.y);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = clamped_row(first_row + r);
        const uvec2 visible = visible_keys(i);
        query_rows[r] = query_base + i * push.query.row_stride;
        mask_rows[r] = mask + i * push.mask.row_stride;
        row_positions[r] = first_position + int(i);
        firsts[r] = visible.x;
        limits[r] = visible.y;
    }
}

void clear_scores()
{
    [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
        scores[i] = 0.0;
    }
}

/* Products of the block, both operands straight from memory. */
void score_from_memory(uint lane, uint step_key)
{
    const uint count = head_dim();
    const uint head_vectors = ceil_div(count, 4u);
    uint key_rows[COLUMNS];
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        key_rows[c] = key_base + clamped_key(step_key + c * LANES + lane) * push.key.row_stride;
    }
    clear_scores();
    for (uint k = 0u; k < head_vectors; k++) {
        vec4 keys[COLUMNS];
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
            keys[c] = load_key(key_rows[c], 4u * k, count);
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const vec4 query = load_query(query_rows[r], 4u * k, count);
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                const uint at = r * COLUMNS + c;
                scores[at] = dot_add(query, keys[c], scores[at]);
            }
        }
    }
}

#ifdef VKMHA_COUNT_STEPS
uint counted_steps = 0u; /* every step masks its scores once; tests/count_steps.c reads it as the output */
#endif

/*
 * Turns the block's products into scores, and tells which are attended and the lane's greatest of
 * each row.
 */
void mask_scores(uint lane, uint step_key)
{
#ifdef VKMHA_COUNT_STEPS
    counted_steps++;
#endif
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        maxima[r] = -FLT_MAX;
    }
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        const uint j = step_key + c * LANES + lane;
        const uint key = clamped_key(j);
        const bool is_attended = is_attended_key(key);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const uint at = r * COLUMNS + c;
            const bool is_open = finish_score(mask_rows[r], row_positions[r], key, scores[at]);
            attended[at] = is_open && is_attended && j < limits[r] && (!HAS_FIRSTS || j >= firsts[r]);
            maxima[r] = attended[at] ? max(maxima[r], scores[at]) : maxima[r];
        }
    }
}

/* Whether the step may mask a key of the block. */
bool step_masks(uint step_key)
{
    return HAS_MASKS || step_key + STEP > limits[0] ||
           (HAS_FIRSTS && step_key < firsts[ROWS - 1u]);
}
