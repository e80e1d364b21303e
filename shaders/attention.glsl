/*
 * What the attention kernels share: bindings, where a row of each tensor starts, which keys a query
 * may see. The includer defines LANES, the lanes that share a block of ROWS query rows: in one step
 * each takes COLUMNS keys, and of the output features the vec4 lane, lane + LANES, lane + 2
 * LANES...
 */

/* Keys; a divisor of VKMHA_KEY_CHUNK, so that steps start at multiples of it. */
const uint STEP = LANES * COLUMNS;

/* Values of the constant MASK; vkmha_mask in C. */
const uint MASK_NONE = 0u;
const uint MASK_ATTEND = 1u;

layout(push_constant) uniform Push
{
    vkmha_attention_push push;
};

layout(std430, binding = VKMHA_BIND_QUERY) readonly buffer QueryFloats
{
    float query_floats[];
};
layout(std430, binding = VKMHA_BIND_QUERY) readonly buffer QueryVectors
{
    vec4 query_vectors[];
};
layout(std430, binding = VKMHA_BIND_KEY) readonly buffer KeyFloats
{
    float key_floats[];
};
layout(std430, binding = VKMHA_BIND_KEY) readonly buffer KeyVectors
{
    vec4 key_vectors[];
};
layout(std430, binding = VKMHA_BIND_VALUE) readonly buffer ValueFloats
{
    float value_floats[];
};
layout(std430, binding = VKMHA_BIND_VALUE) readonly buffer ValueVectors
{
    vec4 value_vectors[];
};
layout(std430, binding = VKMHA_BIND_OUTPUT) buffer ResultFloats
{
    float result_floats[];
};
layout(std430, binding = VKMHA_BIND_OUTPUT) buffer ResultVectors
{
    vec4 result_vectors[];
};
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
layout(binding = VKMHA_BIND_LENGTHS) uniform Lengths
{
    ivec4 lengths[VKMHA_MAX_UNIFORM_LENGTHS / 4];
};

VKMHA_DEFINE_LOAD(load_query, query_floats, query_vectors, VECTOR_A)
VKMHA_DEFINE_LOAD(load_key, key_floats, key_vectors, VECTOR_A)
VKMHA_DEFINE_LOAD(load_value, value_floats, value_vectors, VECTOR_B)
VKMHA_DEFINE_LOAD(load_result, result_floats, result_vectors, VECTOR_C)

uint head_dim()
{
    return push.dims & 0xffffu;
}

uint v_head_dim()
{
    return push.dims >> 16;
}

uint has_flag(uint flag)
{
    return push.flags & flag;
}

/* Element of a tensor's position 0, for this group's batch and `head`. */
uint tensor_head(vkmha_tensor_push tensor, uint head)
{
    return tensor.base + gl_WorkGroupID.z * tensor.batch_stride + head * tensor.head_stride;
}

uint key_head()
{
    return ((push.group >> 16) + gl_WorkGroupID.y) / (push.group & 0xffffu);
}

uint result_head()
{
#ifdef VKMHA_MUTANT_SWAP_HEADS
    return tensor_head(push.result, gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y);
#else
    return tensor_head(push.result, gl_WorkGroupID.y);
#endif
}

/*
 * Rows past the last are computed as copies of it, so that no lane leaves the barriers; they are
 * not written.
 */
uint clamped_row(uint i)
{
    return min(i, push.query_count - 1u);
}

/* Keys of this batch's sequence; what lies behind them is never read. */
uint sequence_length()
{
    if (has_flag(VKMHA_FLAG_LENGTHS) == 0u) {
        return push.key_len;
    }
    const uint index = push.lengths_base + gl_WorkGroupID.z;
    return uint(clamp(lengths[index >> 2][index & 3u], 0, int(push.key_len)));
}

/* Keys 0..n-1 may be seen by row i, masks aside; grows with i. */
uint visible_keys(uint i, uint length)
{
    int end = int(length);
    if (has_flag(VKMHA_FLAG_CAUSAL) != 0u) {
        end = int(i) + push.causal_offset + 1;
        end += has_flag(VKMHA_FLAG_CAUSAL_ENDS) != 0u ? int(length) : 0;
#ifdef VKMHA_MUTANT_CAUSAL_OFF_BY_ONE
        end += 1;
#endif
    }
    uint visible = min(uint(max(end, 0)), length);
#ifdef VKMHA_MUTANT_DROP_KEY
    visible = max(visible, 1u) - 1u;
#endif
#ifdef VKMHA_MUTANT_TAIL
    visible = visible == length ? ceil_div(length, STEP) * STEP : visible;
#endif
    return visible;
}

/* A key whose load is harmless: j, or the sequence's last. Never called for an empty sequence. */
uint clamped_key(uint j, uint length)
{
#ifdef VKMHA_MUTANT_TAIL
    return min(j, push.key_len - 1u);
#else
    return min(j, length - 1u);
#endif
}

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
    if (ATTEND_KEYS == 0u) {
        return true;
    }
    const uint index = push.attend_base + gl_WorkGroupID.z * push.attend_batch_stride + key;
    return is_attend_byte(attend_words[index >> 2], index);
}

/*
 * The mask tensor on a score, `key` keys after a row's start: false where it forbids the key, else
 * it is added. -Inf is told by its bits, as Vulkan need not preserve it.
 */
bool apply_mask(uint row, uint key, inout float score)
{
    if (MASK == MASK_NONE) {
        return true;
    }
    const uint index = row + (has_flag(VKMHA_FLAG_MASK_KEYS) != 0u ? key : 0u);
    if (MASK == MASK_ATTEND) {
        return is_attend_byte(mask_words[index >> 2], index);
    }
    const uint bits = mask_words[index];
#ifndef VKMHA_MUTANT_NO_BIAS
    score += uintBitsToFloat(bits);
#endif
#ifdef VKMHA_MUTANT_INVERT_MASK
    return bits == 0xff800000u;
#else
    return bits != 0xff800000u;
#endif
}

/*
 * Turns the product of a row and a key into its score and tells whether the mask lets the row
 * attend. A score below the finite numbers, alone or by the mask, becomes the least of them; NaN
 * stays.
 */
bool finish_score(uint mask_row, uint key, inout float score)
{
    float scale = push.scale;
#ifdef VKMHA_MUTANT_SCALE
    scale *= 1.01;
#endif
    precise float scaled = score * scale;
    const bool is_attended = apply_mask(mask_row, key, scaled);
    score = scaled < -FLT_MAX ? -FLT_MAX : scaled;
    return is_attended;
}

/*
 * ---- A lane's block: ROWS rows, and of a step COLUMNS keys, of which number c is key c * LANES +
 * lane ----
 */

uint query_rows[ROWS];
uint mask_rows[ROWS];
uint limits[ROWS];               /* keys that a row may see; grows from row to row */
float scores[ROWS * COLUMNS];    /* row by row */
bool attended[ROWS * COLUMNS];
float maxima[ROWS];              /* of the attended scores, at least the rows' maxima */

void begin_block(uint first_row, uint length)
{
    const uint query = tensor_head(push.query, gl_WorkGroupID.y);
    const uint mask = tensor_head(push.mask, gl_WorkGroupID.y);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = clamped_row(first_row + r);
        query_rows[r] = query + i * push.query.row_stride;
        mask_rows[r] = mask + i * push.mask.row_stride;
        limits[r] = visible_keys(i, length);
    }
}

void clear_scores()
{
    [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
        scores[i] = 0.0;
    }
}

/* Products of the block, both operands straight from memory. */
void score_from_memory(uint lane, uint step_key, uint length)
{
    const uint key_base = tensor_head(push.key, key_head());
    const uint count = head_dim();
    const uint head_vectors = ceil_div(count, 4u);
    uint key_rows[COLUMNS];
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        const uint key = clamped_key(step_key + c * LANES + lane, length);
        key_rows[c] = key_base + key * push.key.row_stride;
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

/*
 * Turns the block's products into scores, and tells which are attended and the lane's greatest of
 * each row.
 */
void mask_scores(uint lane, uint step_key, uint length)
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        maxima[r] = -FLT_MAX;
    }
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        const uint j = step_key + c * LANES + lane;
        const uint key = clamped_key(j, length);
        const bool is_attended = is_attended_key(key);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const uint at = r * COLUMNS + c;
            const bool is_open = finish_score(mask_rows[r], key, scores[at]);
            attended[at] = is_open && is_attended && j < limits[r];
            maxima[r] = attended[at] ? max(maxima[r], scores[at]) : maxima[r];
        }
    }
}

/* Whether the step may mask a key of the block. */
bool step_masks(uint step_key)
{
    return MASK != MASK_NONE || ATTEND_KEYS != 0u || step_key + STEP > limits[0];
}
