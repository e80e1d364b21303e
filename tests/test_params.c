/* Bad input: an error that names the field, the value and the rule; nothing is built. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "runtime/params.h"

static float data[64 * 64];

static vkmha_layer_params usual(void)
{
    vkmha_layer_params layer = {.num_heads = 2, .head_dim = 4, .embed_dim = 8};
    layer.w_q = (vkmha_matrix){.data = data, .rows = 8, .columns = 8};
    layer.w_k = layer.w_v = layer.w_o = layer.w_q;
    return layer;
}

static void refuse_layer(const vkmha_layer_params *layer, const char *field)
{
    vkmha_layer_params checked;
    vkmha_error error = {VKMHA_OK, ""};
    cr_assert_eq(vkmha_check_layer(layer, &checked, &error), VKMHA_ERROR_INVALID_ARGUMENT,
                 "%s was accepted", field);
    cr_assert_eq(error.status, VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, field), "\"%s\" does not name %s", error.message, field);
    cr_assert(!strchr(error.message, '\n'));
}

Test(params, F28_heads_that_do_not_divide)
{
    vkmha_layer_params layer;
    vkmha_error error;
    cr_assert_eq(vkmha_layer_params_init(&layer, 10, 3, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "embed_dim 10"), "%s", error.message);
    cr_assert_eq(vkmha_layer_params_init(&layer, 10, 0, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "num_heads 0"), "%s", error.message);
    cr_assert_eq(vkmha_layer_params_init(&layer, 12, 3, &error), VKMHA_OK);
    cr_assert_eq(layer.head_dim, 4);

    layer = usual();
    layer.num_heads = 3;
    layer.num_kv_heads = 2;
    refuse_layer(&layer, "num_heads 3");
    layer = usual();
    layer.num_heads = 0;
    refuse_layer(&layer, "num_heads 0");
    layer = usual();
    layer.head_dim = 0;
    refuse_layer(&layer, "head_dim 0");
    layer = usual();
    layer.head_dim = 257;
    refuse_layer(&layer, "head_dim 257");
    layer = usual();
    layer.v_head_dim = 300;
    refuse_layer(&layer, "v_head_dim 300");
    layer = usual();
    layer.num_heads = 1u << 31;
    refuse_layer(&layer, "num_heads 2147483648");
    layer = usual();
    layer.num_kv_heads = UINT32_MAX;
    refuse_layer(&layer, "num_kv_heads");
}

Test(params, F38_wrong_shaped_weights)
{
    vkmha_layer_params layer = usual();
    layer.w_k.rows = 6;
    refuse_layer(&layer, "w_k");
    layer = usual();
    layer.w_o.columns = 9;
    refuse_layer(&layer, "w_o");
    layer = usual();
    layer.w_v.data = NULL;
    refuse_layer(&layer, "w_v");
    layer = usual();
    layer.b_q = (vkmha_vector){.data = data, .size = 7};
    refuse_layer(&layer, "b_q");
    layer = usual();
    layer.w_q.type = (vkmha_type)9;
    refuse_layer(&layer, "w_q.type 9");
    layer = usual();
    layer.w_q.row_stride = UINT64_MAX / 2;
    refuse_layer(&layer, "w_q strides");
}

Test(params, options_are_refused_by_name)
{
    vkmha_layer_params layer = usual();
    layer.reserved[3] = 1;
    refuse_layer(&layer, "reserved");
    layer = usual();
    layer.scale = 0.5f;
    refuse_layer(&layer, "has_scale");
    layer.has_scale = true;
    layer.scale = INFINITY;
    refuse_layer(&layer, "scale");
    layer = usual();
    layer.embed_dim = 0;
    refuse_layer(&layer, "embed_dim");
    layer = usual();
    layer.attention_only = true;
    refuse_layer(&layer, "embed_dim");
    layer = usual();
    layer.weight_type = (vkmha_type)3;
    refuse_layer(&layer, "weight_type 3");
    layer = usual();
    layer.cache_type = (vkmha_type)4;
    refuse_layer(&layer, "cache_type 4");
    layer = (vkmha_layer_params){.num_heads = 1,
                                 .head_dim = 4,
                                 .attention_only = true,
                                 .cache_type = VKMHA_TYPE_F16,
                                 .weight_type = VKMHA_TYPE_F16};
    refuse_layer(&layer, "weight_type");
}

static void refuse_plan(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                        const char *field)
{
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked;
    vkmha_error error = {VKMHA_OK, ""};
    cr_assert_eq(vkmha_check_layer(layer, &checked_layer, &error), VKMHA_OK, "%s", error.message);
    cr_assert_neq(vkmha_check_plan(&checked_layer, plan, &checked, &error), VKMHA_OK,
                  "%s was accepted", field);
    cr_assert(strstr(error.message, field), "\"%s\" does not name %s", error.message, field);
}

Test(params, plans)
{
    vkmha_layer_params layer = usual();
    const vkmha_plan_params good = {.batch_size = 2, .query_len = 3, .key_len = 5};
    vkmha_plan_params plan = good;
    plan.key_is_query = true;
    refuse_plan(&layer, &plan, "key_len 5");
    plan = good;
    plan.layout = VKMHA_LAYOUT_BHSD;
    refuse_plan(&layer, &plan, "layout");
    plan = good;
    plan.causal = (vkmha_causal)7;
    refuse_plan(&layer, &plan, "causal 7");
    plan = good;
    plan.mask_dims[1] = 2;
    refuse_plan(&layer, &plan, "mask_dims[1]");
    plan = good;
    plan.batch_size = (uint64_t)1 << 40;
    refuse_plan(&layer, &plan, "batch_size");
    plan = good;
    plan.reserved[0] = 1;
    refuse_plan(&layer, &plan, "reserved");
    plan = good;
    plan.query_type = (vkmha_type)3;
    refuse_plan(&layer, &plan, "query_type 3");
    plan = good;
    plan.output_type = (vkmha_type)77;
    refuse_plan(&layer, &plan, "output_type 77");
    plan = good;
    plan.key_len = plan.query_len;
    plan.key_is_query = true;
    plan.query_type = VKMHA_TYPE_F16;
    refuse_plan(&layer, &plan, "key_type 0");
    plan = good;
    plan.value_is_key = true;
    plan.value_type = VKMHA_TYPE_BF16;
    refuse_plan(&layer, &plan, "value_type 2");
    layer.key_dim = 16;
    layer.w_k = (vkmha_matrix){.data = data, .rows = 8, .columns = 16};
    plan = good;
    plan.key_len = plan.query_len;
    plan.key_is_query = true;
    refuse_plan(&layer, &plan, "key_dim 16");
}

/* F14: any shape of a mask that is not a broadcast is refused. */
Test(params, F14_other_mask_shapes)
{
    const vkmha_layer_params layer = usual();
    static const uint64_t shapes[][4] = {
        {3, 2, 3, 5}, {2, 3, 3, 5}, {2, 2, 5, 3}, {2, 2, 3, 6}, {0, 1, 1, 5}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        vkmha_plan_params plan = {.batch_size = 2, .query_len = 3, .key_len = 5};
        plan.mask = VKMHA_MASK_ATTEND;
        memcpy(plan.mask_dims, shapes[i], sizeof(shapes[i]));
        refuse_plan(&layer, &plan, "mask_dims");
    }
}

Test(params, inputs)
{
    vkmha_layer_params layer = usual();
    vkmha_layer_params checked_layer;
    vkmha_plan_params plan = {.batch_size = 2, .query_len = 3, .key_len = 5, .value_is_key = true};
    vkmha_plan_params checked;
    vkmha_inputs inputs = {.query = data, .key = data};
    vkmha_inputs resolved;
    vkmha_error error;
    cr_assert_eq(vkmha_check_layer(&layer, &checked_layer, &error), VKMHA_OK);
    cr_assert_eq(vkmha_check_plan(&checked_layer, &plan, &checked, &error), VKMHA_OK);
    cr_assert_eq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error),
                 VKMHA_OK);
    cr_assert_eq(resolved.value, resolved.key);
    inputs.value = data;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error),
                  VKMHA_OK);
    cr_assert(strstr(error.message, "value"), "%s", error.message);
    inputs.value = NULL;
    inputs.key = NULL;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error),
                  VKMHA_OK);
    cr_assert(strstr(error.message, "key"), "%s", error.message);
    const int32_t lengths[2] = {5, 6};
    inputs.key = data;
    inputs.key_lengths = lengths;
    checked.has_key_lengths = true;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error),
                  VKMHA_OK);
    cr_assert(strstr(error.message, "key_lengths[1] 6"), "%s", error.message);
}

Test(params, F42_products_do_not_wrap)
{
    uint64_t product = 5;
    cr_assert(vkmha_multiply_all((uint64_t[]){65537, 65537}, 2, &product));
    cr_assert_eq(product, UINT64_C(4295098369));
    cr_assert(vkmha_multiply_all((uint64_t[]){64, 12, 4096, 4096}, 4, &product));
    cr_assert_eq(product, UINT64_C(12884901888));
    cr_assert(!vkmha_multiply_all((uint64_t[]){1 << 20, 1 << 20, 1 << 20, 16}, 4, &product));
    cr_assert(vkmha_multiply_all((uint64_t[]){UINT64_MAX, 0, UINT64_MAX}, 3, &product));
    cr_assert_eq(product, 0);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const float bad_values[] = {1.0f, NAN};
static const float sinks_with_infinity[] = {-INFINITY, INFINITY};

Test(params, options_of_layers)
{
#define HEADS .num_heads = 2, .head_dim = 6, .attention_only = true
    const struct {
        const char *field;
        vkmha_layer_params layer;
    } rules[] = {
        {"softcap -1", {HEADS, .softcap = -1.0f}},
        {"softcap inf", {HEADS, .softcap = INFINITY}},
        {"rope.style 3", {HEADS, .rope = {.style = (vkmha_rope_style)3}}},
        {"rope.dim", {HEADS, .rope = {.dim = 2}}},
        {"rope.max_positions", {HEADS, .rope = {.max_positions = 2}}},
        {"rope.base", {HEADS, .rope = {.base = 2.0f}}},
        {"rope.cos", {HEADS, .rope = {.cos = data}}},
        {"rope.dim 3", {HEADS, .rope = {VKMHA_ROPE_HALF, .dim = 3, .max_positions = 4}}},
        {"rope.dim 8", {HEADS, .rope = {VKMHA_ROPE_HALF, .dim = 8, .max_positions = 4}}},
        {"rope.max_positions 0", {HEADS, .rope = {VKMHA_ROPE_HALF}}},
        {"rope.max_positions 16777217",
         {HEADS, .rope = {VKMHA_ROPE_HALF, .max_positions = (1 << 24) + 1}}},
        {"rope.sin", {HEADS, .rope = {VKMHA_ROPE_HALF, .max_positions = 4, .cos = data}}},
        {"rope.base 2",
         {HEADS,
          .rope = {VKMHA_ROPE_HALF, .max_positions = 4, .base = 2.0f, .cos = data, .sin = data}}},
        {"rope.base -2", {HEADS, .rope = {VKMHA_ROPE_HALF, .max_positions = 4, .base = -2.0f}}},
        {"alibi_slopes", {HEADS, .alibi_slopes = data}},
        {"alibi_slopes[1] nan", {HEADS, .has_alibi = true, .alibi_slopes = bad_values}},
        {"relative_bias.num_buckets", {HEADS, .relative_bias = {.num_buckets = 4}}},
        {"relative_bias.num_buckets 3", {HEADS, .relative_bias = {data, 3, 8, true}}},
        {"relative_bias.max_distance 2", {HEADS, .relative_bias = {data, 4, 2, false}}},
        {"relative_bias.max_distance 65537", {HEADS, .relative_bias = {data, 4, 65537, true}}},
        {"relative_bias.table[1] nan", {HEADS, .relative_bias = {(float[8]){1.0f, NAN}, 4, 9}}},
        {"sinks[1] nan", {HEADS, .sinks = bad_values}},
        {"sinks[1] inf", {HEADS, .sinks = sinks_with_infinity}},
        {"bias_v", {HEADS, .bias_k = data}},
        {"bias_k", {HEADS, .bias_v = data}},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        refuse_layer(&rules[i].layer, rules[i].field);
    }
    const vkmha_layer_params layer = {
        HEADS,
        .rope = {VKMHA_ROPE_HALF, .max_positions = 4},
        .relative_bias = {data, 4, 2, true},
        .sinks = (float[]){-INFINITY, 0.0f},
    };
    vkmha_layer_params checked;
    cr_assert_eq(vkmha_check_layer(&layer, &checked, NULL), VKMHA_OK);
    cr_assert(checked.rope.dim == 6 && checked.rope.base == 10000.0f);
#undef HEADS
}

#define SHAPE  .batch_size = 2, .query_len = 3, .key_len = 5
#define PACKED SHAPE, .is_packed = true, .total_queries = 4, .total_keys = 6

Test(params, options_of_plans)
{
    const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 4, .attention_only = true};
    const struct {
        const char *field;
        vkmha_plan_params plan;
    } rules[] = {
        {"causal 4", {SHAPE, .causal = (vkmha_causal)4}},
        {"positions 3", {SHAPE, .positions = (vkmha_positions)3}},
        {"positions 1",
         {SHAPE, .causal = VKMHA_CAUSAL_TOP_LEFT, .positions = VKMHA_POSITIONS_BOTTOM_RIGHT}},
        {"position_offset 1", {SHAPE, .position_offset = 1}},
        {"position_offset 2147483648",
         {SHAPE, .causal = VKMHA_CAUSAL_OFFSET, .position_offset = (int64_t)1 << 31}},
        {"has_position_offsets", {SHAPE, .has_position_offsets = true}},
        {"position_offset 1",
         {SHAPE, .causal = VKMHA_CAUSAL_OFFSET, .position_offset = 1,
          .has_position_offsets = true}},
        {"window_left 2", {SHAPE, .window_left = 2}},
        {"window_right 2", {SHAPE, .window_right = 2}},
        {"window_left 2147483648", {SHAPE, .has_window_left = true, .window_left = 1u << 31}},
        {"mask 5", {SHAPE, .mask = (vkmha_mask_type)5}},
        {"mask_dims[3] 5",
         {SHAPE, .mask = VKMHA_MASK_ATTEND_BITS, .mask_dims = {1, 1, 1, 5}, .past_len = 1}},
        {"has_key_lengths", {SHAPE, .has_key_lengths = true, .cache_capacity = 9}},
        {"has_key_lengths", {PACKED, .has_key_lengths = true}},
        {"past_len", {SHAPE, .past_len = 1, .cache_capacity = 9}},
        {"has_present", {SHAPE, .has_present = true, .cache_capacity = 9}},
        {"key_len 5", {SHAPE, .cache_capacity = 4}},
        {"past_len", {PACKED, .past_len = 1}},
        {"has_present", {PACKED, .has_present = true}},
        {"cache_capacity", {PACKED, .cache_capacity = 9}},
        {"past_len 2147483643", {SHAPE, .past_len = INT32_MAX - 4}},
        {"total_queries 4", {SHAPE, .total_queries = 4}},
        {"total_keys 4", {SHAPE, .total_keys = 4}},
        {"total_queries 7", {SHAPE, .is_packed = true, .total_queries = 7}},
        {"total_keys 11", {SHAPE, .is_packed = true, .total_keys = 11}},
        {"has_positions", {SHAPE, .has_positions = true}},
        {"query_strides.row 8", {SHAPE, .query_strides = {.row = 8}}},
        {"key_strides.batch 64", {PACKED, .key_strides = {.is_given = true, .batch = 64}}},
        {"value_strides", {SHAPE, .value_strides = {.is_given = true, .row = UINT64_MAX / 2}}},
        {"output_strides.row 6",
         {SHAPE, .output_strides = {.is_given = true, .batch = 64, .row = 6, .head = 4}}},
        {"output_strides.head 3",
         {SHAPE, .output_strides = {.is_given = true, .batch = 64, .row = 8, .head = 3}}},
        {"output_strides.batch 0",
         {SHAPE, .output_strides = {.is_given = true, .row = 8, .head = 4}}},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        refuse_plan(&layer, &rules[i].plan, rules[i].field);
    }
    const vkmha_layer_params projected = usual();
    const vkmha_plan_params heads = {SHAPE, .key_strides = {.is_given = true, .head = 4}};
    refuse_plan(&projected, &heads, "key_strides.head 4");
}

Test(params, checked_plans_are_resolved)
{
    const vkmha_layer_params layer = {
        .num_heads = 4, .num_kv_heads = 2, .head_dim = 4, .attention_only = true};
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked;
    vkmha_sizes sizes;
    vkmha_error error;
    cr_assert_eq(vkmha_check_layer(&layer, &checked_layer, NULL), VKMHA_OK);
    /* Packed QKV: one memory, queries, keys and values of a token side by side. */
    const vkmha_plan_params packed_heads = {
        .batch_size = 2,
        .query_len = 3,
        .key_len = 3,
        .key_is_query = true,
        .value_is_key = true,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        .has_gates_per_sequence = true,
        .query_strides = {.is_given = true, .batch = 96, .row = 32, .head = 4},
        .key_strides = {.is_given = true, .offset = 16, .batch = 96, .row = 32, .head = 4},
        .value_strides = {.is_given = true, .offset = 24, .batch = 96, .row = 32, .head = 4},
    };
    cr_assert_eq(vkmha_check_plan(&checked_layer, &packed_heads, &checked, &error), VKMHA_OK, "%s",
                 error.message);
    cr_assert_eq(checked.positions, VKMHA_POSITIONS_BOTTOM_RIGHT);
    cr_assert(checked.has_head_gates && checked.output_strides.is_given);
    cr_assert_eq(checked.output_strides.batch, 48);
    vkmha_plan_sizes(&checked_layer, &checked, &sizes);
    cr_assert(sizes.query == 192 && sizes.key == 0 && sizes.value == 0 && sizes.output == 96);
    cr_assert(sizes.head_gates == 8 && sizes.sequences == 0 && sizes.positions == 0);

    const vkmha_plan_params packed = {PACKED, .mask = VKMHA_MASK_ATTEND_BITS,
                                      .mask_dims = {2, 1, 3, 5}};
    cr_assert_eq(vkmha_check_plan(&checked_layer, &packed, &checked, &error), VKMHA_OK, "%s",
                 error.message);
    vkmha_plan_sizes(&checked_layer, &checked, &sizes);
    cr_assert(sizes.query_rows == 4 && sizes.key_rows == 6 && sizes.query == 64);
    cr_assert(sizes.mask == 6 && sizes.mask_bytes == 24 && sizes.sequences == 2);
    const vkmha_inputs inputs = {
        .cu_query_lens = (int32_t[]){0, 1, 4},
        .cu_key_lens = (int32_t[]){0, 1, 6},
    };
    const vkmha_item item = vkmha_plan_item(&checked, &inputs, 0, 1);
    cr_assert(item.first_query_row == 1 && item.query_length == 3);
    cr_assert(item.first_key_row == 1 && item.new_keys == 5 && item.key_length == 5);
}

Test(params, options_of_inputs)
{
    const vkmha_layer_params layer = {
        .num_heads = 2,
        .head_dim = 4,
        .attention_only = true,
        .rope = {VKMHA_ROPE_HALF, .max_positions = 5},
    };
    static const int32_t ramp[] = {0, 1, 2, 3, 4, 5, 6};
#define QKV .query = data, .key = data, .value = data
    const struct {
        const char *field;
        vkmha_plan_params plan;
        vkmha_inputs inputs;
    } rules[] = {
        {"first_keys is NULL", {SHAPE, .has_first_keys = true}, {QKV}},
        {"first_keys is given", {SHAPE}, {QKV, .first_keys = ramp}},
        {"first_keys[1] 6", {SHAPE, .has_first_keys = true}, {QKV, .first_keys = ramp + 5}},
        {"key_lengths[0] -1",
         {SHAPE, .has_key_lengths = true},
         {QKV, .key_lengths = (int32_t[]){-1, 0}}},
        {"position_offsets is given", {SHAPE}, {QKV, .position_offsets = ramp}},
        {"query_positions is NULL", {SHAPE, .has_positions = true}, {QKV, .key_positions = ramp}},
        {"query_positions[5] 5",
         {SHAPE, .has_positions = true},
         {QKV, .query_positions = ramp, .key_positions = (int32_t[10]){0}}},
        {"sequence 1's last query stands at position 5",
         {SHAPE, .causal = VKMHA_CAUSAL_OFFSET, .has_position_offsets = true},
         {QKV, .position_offsets = ramp + 2}},
        {"sequence 0's last key stands at position 5",
         {SHAPE, .past_len = 1},
         {QKV, .past_key = data, .past_value = data}},
        {"head_gates is NULL", {SHAPE, .has_gates_per_sequence = true}, {QKV}},
        {"head_gates is given", {SHAPE}, {QKV, .head_gates = data}},
        {"past_key is NULL", {SHAPE, .past_len = 1}, {QKV, .past_value = data}},
        {"past_value is given", {SHAPE}, {QKV, .past_value = data}},
        {"cache is NULL", {SHAPE, .cache_capacity = 9}, {QKV}},
        {"cu_key_lens is NULL", {PACKED}, {QKV, .cu_query_lens = ramp}},
        {"cu_key_lens is given", {SHAPE}, {QKV, .cu_key_lens = ramp}},
        {"cu_query_lens[0] 1",
         {PACKED},
         {QKV, .cu_query_lens = (int32_t[]){1, 2, 4}, .cu_key_lens = (int32_t[]){0, 2, 6}}},
        {"cu_query_lens[2] 4",
         {PACKED},
         {QKV, .cu_query_lens = (int32_t[]){0, 0, 4}, .cu_key_lens = (int32_t[]){0, 2, 6}}},
        {"cu_key_lens[2] 3",
         {PACKED},
         {QKV, .cu_query_lens = (int32_t[]){0, 1, 4}, .cu_key_lens = (int32_t[]){0, 4, 3}}},
        {"cu_key_lens[2] 5",
         {PACKED},
         {QKV, .cu_query_lens = (int32_t[]){0, 1, 4}, .cu_key_lens = (int32_t[]){0, 1, 5}}},
    };
    vkmha_layer_params checked_layer;
    cr_assert_eq(vkmha_check_layer(&layer, &checked_layer, NULL), VKMHA_OK);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        vkmha_plan_params plan;
        vkmha_inputs inputs;
        vkmha_error error = {VKMHA_OK, ""};
        cr_assert_eq(vkmha_check_plan(&checked_layer, &rules[i].plan, &plan, &error), VKMHA_OK,
                     "%s: %s", rules[i].field, error.message);
        cr_assert_eq(vkmha_check_inputs(&checked_layer, &plan, &rules[i].inputs, &inputs, &error),
                     VKMHA_ERROR_INVALID_ARGUMENT, "%s was accepted", rules[i].field);
        cr_assert(strstr(error.message, rules[i].field), "\"%s\" does not name %s", error.message,
                  rules[i].field);
    }
    /* Negative positions are taken as 0; keys past a sequence's length have none. */
    const vkmha_plan_params plan = {
        .batch_size = 2,
        .query_len = 3,
        .key_len = 8,
        .has_key_lengths = true,
        .positions = VKMHA_POSITIONS_OFFSET,
        .position_offset = -7,
    };
    const vkmha_inputs inputs = {QKV, .key_lengths = ramp + 4};
    vkmha_plan_params checked;
    vkmha_inputs resolved;
    vkmha_error error;
    cr_assert_eq(vkmha_check_plan(&checked_layer, &plan, &checked, &error), VKMHA_OK);
    cr_assert_eq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error), VKMHA_OK,
                 "%s", error.message);
#undef QKV
}
