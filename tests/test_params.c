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
    refuse_layer(&layer, "w_q.type");
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
    static const uint64_t shapes[][4] = {{3, 2, 3, 5}, {2, 3, 3, 5}, {2, 2, 5, 3}, {2, 2, 3, 6}, {0, 1, 1, 5}};
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
    cr_assert_eq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error), VKMHA_OK);
    cr_assert_eq(resolved.value, resolved.key);
    inputs.value = data;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error), VKMHA_OK);
    cr_assert(strstr(error.message, "value"), "%s", error.message);
    inputs.value = NULL;
    inputs.key = NULL;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error), VKMHA_OK);
    cr_assert(strstr(error.message, "key"), "%s", error.message);
    const int32_t lengths[2] = {5, 6};
    inputs.key = data;
    inputs.key_lengths = lengths;
    checked.has_key_lengths = true;
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &checked, &inputs, &resolved, &error), VKMHA_OK);
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
