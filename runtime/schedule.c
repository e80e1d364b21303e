#include "schedule.h"

#include <inttypes.h>
#include <string.h>

enum {
    REGION_ALIGNMENT = 256, /* the largest minStorageBufferOffsetAlignment that Vulkan allows */
    MAX_STEPS = 65536,      /* more means a work limit that is too small to be meant */
};

/* ---- Windows
 * ---------------------------------------------------------------------------------------- */

vkmha_range vkmha_aligned_window(const vkmha_limits *limits, vkmha_resource resource,
                                 uint64_t offset, uint64_t bytes, uint64_t *skip)
{
    const bool is_uniform =
        resource == VKMHA_RESOURCE_SEQUENCES || resource == VKMHA_RESOURCE_GATES;
    const uint32_t given =
        is_uniform ? limits->uniform_alignment_bytes : limits->storage_alignment_bytes;
    const uint64_t alignment = given > 16 ? given : 16; /* vec4 loads stay aligned */
    *skip = offset % alignment;
    const uint64_t granule = is_uniform ? 16 : 4;
    return (vkmha_range){
        .resource = resource,
        .offset = offset - *skip,
        .bytes = (bytes + *skip + granule - 1) / granule * granule,
    };
}

static uint64_t box_first(const vkmha_view *view, const vkmha_box *box)
{
    return box->first_batch * view->batch_stride + box->first_head * view->head_stride +
           box->first_row * view->row_stride;
}

static uint64_t box_span(const vkmha_view *view, const vkmha_box *box)
{
    return (box->batches - 1) * view->batch_stride + (box->heads - 1) * view->head_stride +
           (box->rows - 1) * view->row_stride + view->row_elements;
}

uint64_t vkmha_box_bytes(const vkmha_planner *planner, const vkmha_view *view, const vkmha_box *box)
{
    const uint64_t first = view->offset + box_first(view, box) * view->element_bytes;
    uint64_t skip;
    return vkmha_aligned_window(planner->limits, view->resource, first,
                                box_span(view, box) * view->element_bytes, &skip)
        .bytes;
}

vkmha_range vkmha_box_window(const vkmha_planner *planner, const vkmha_view *view,
                             const vkmha_box *box, uint32_t *base)
{
    const uint64_t first = view->offset + box_first(view, box) * view->element_bytes;
    uint64_t skip;
    const vkmha_range range = vkmha_aligned_window(
        planner->limits, view->resource, first, box_span(view, box) * view->element_bytes, &skip);
    *base = (uint32_t)(skip / view->element_bytes);
    return range;
}

/* ---- Boxes
 * ------------------------------------------------------------------------------------------ */

vkmha_cut vkmha_box_next_cut(const vkmha_box *box, uint64_t tile_rows)
{
    return box->batches > 1        ? VKMHA_CUT_BATCHES
           : box->heads > 1        ? VKMHA_CUT_HEADS
           : box->rows > tile_rows ? VKMHA_CUT_ROWS
                                   : VKMHA_CUT_IMPOSSIBLE;
}

void vkmha_box_halve(const vkmha_box *box, vkmha_cut cut, uint64_t tile_rows, vkmha_box *first,
                     vkmha_box *second)
{
    *first = *box;
    *second = *box;
    if (cut == VKMHA_CUT_BATCHES) {
        first->batches = box->batches / 2;
        second->first_batch += first->batches;
        second->batches -= first->batches;
    } else if (cut == VKMHA_CUT_HEADS) {
        first->heads = box->heads / 2;
        second->first_head += first->heads;
        second->heads -= first->heads;
    } else {
        first->rows = (box->rows / 2 + tile_rows - 1) / tile_rows * tile_rows;
        second->first_row += first->rows;
        second->rows -= first->rows;
    }
}

/* ---- Steps
 * ------------------------------------------------------------------------------------------ */

static bool conflict(const vkmha_range *a, const vkmha_range *b)
{
    return (a->is_written || b->is_written) && a->resource == b->resource && a->block == b->block &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool needs_barrier(const vkmha_planner *planner, const vkmha_step *step)
{
    if (planner->num_pending + VKMHA_NUM_BINDINGS >
        sizeof(planner->pending) / sizeof(planner->pending[0])) {
        return true;
    }
    for (uint32_t i = 0; i < planner->num_pending; i++) {
        for (uint32_t k = 0; k < VKMHA_NUM_BINDINGS; k++) {
            if (conflict(&planner->pending[i], &step->bindings[k])) {
                return true;
            }
        }
    }
    return false;
}

static vkmha_status grow_steps(vkmha_planner *planner)
{
    vkmha_schedule *schedule = planner->schedule;
    if (schedule->num_steps < schedule->capacity) {
        return VKMHA_OK;
    }
    if (schedule->num_steps >= MAX_STEPS) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "max_work_per_dispatch %" PRIu64 " would cut this plan into more than %d "
                          "dispatches",
                          planner->max_work, MAX_STEPS);
    }
    const uint32_t capacity = schedule->capacity ? schedule->capacity * 2 : 8;
    vkmha_step *steps = vkmha_host_allocate(planner->host, capacity, sizeof(vkmha_step));
    if (!steps) {
        return vkmha_fail(planner->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    if (schedule->num_steps > 0) {
        memcpy(steps, schedule->steps, schedule->num_steps * sizeof(vkmha_step));
    }
    vkmha_host_release(planner->host, schedule->steps);
    schedule->steps = steps;
    schedule->capacity = capacity;
    return VKMHA_OK;
}

static bool same_bindings(const vkmha_step *a, const vkmha_step *b)
{
    for (uint32_t i = 0; i < VKMHA_NUM_BINDINGS; i++) {
        const vkmha_range *left = &a->bindings[i];
        const vkmha_range *right = &b->bindings[i];
        if (left->resource != right->resource || left->block != right->block ||
            left->offset != right->offset || left->bytes != right->bytes) {
            return false;
        }
    }
    return true;
}

vkmha_status vkmha_planner_append(vkmha_planner *planner, const vkmha_step *step)
{
    vkmha_schedule *schedule = planner->schedule;
    vkmha_status status = grow_steps(planner);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_step *added = &schedule->steps[schedule->num_steps];
    *added = *step;
    added->needs_barrier = needs_barrier(planner, step);
    if (added->needs_barrier) {
        planner->num_pending = 0;
    }
    for (uint32_t i = 0; i < VKMHA_NUM_BINDINGS; i++) {
        if (step->bindings[i].resource != VKMHA_RESOURCE_NONE) {
            planner->pending[planner->num_pending++] = step->bindings[i];
        }
    }
    const bool shares_set = schedule->num_steps > 0 && same_bindings(added - 1, added);
    added->set = shares_set ? schedule->num_sets - 1 : schedule->num_sets++;
    schedule->num_steps++;
    return VKMHA_OK;
}

/* ---- The whole
 * -------------------------------------------------------------------------------------- */

static bool place_region(vkmha_schedule *schedule, uint64_t elements, vkmha_type type,
                         vkmha_region *region)
{
    uint64_t bytes;
    if (!vkmha_multiply(elements, vkmha_type_bytes(type), &bytes) || bytes > (uint64_t)INT64_MAX / 8) {
        return false;
    }
    *region = (vkmha_region){schedule->workspace_bytes, bytes};
    schedule->workspace_bytes +=
        (bytes + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
    return true;
}

static vkmha_status place_regions(vkmha_planner *planner)
{
    vkmha_schedule *schedule = planner->schedule;
    const vkmha_workspace elements =
        vkmha_workspace_measure(planner->layer, planner->plan, &planner->sizes);
    const vkmha_type kept = vkmha_kept_type(planner->layer, planner->plan);
    if (!place_region(schedule, elements.query, VKMHA_TYPE_F32, &schedule->query) ||
        !place_region(schedule, elements.key, kept, &schedule->key) ||
        !place_region(schedule, elements.value, kept, &schedule->value) ||
        !place_region(schedule, elements.attention, VKMHA_TYPE_F32, &schedule->attention) ||
        !place_region(schedule, elements.rows, VKMHA_TYPE_F32, &schedule->rows)) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "the projected tensors are too large");
    }
    schedule->state.offset =
        schedule->workspace_bytes; /* the last region: its size is known last */
    return VKMHA_OK;
}

/* Each tensor lies in one buffer, which one allocation must hold. */
static vkmha_status check_tensors(const vkmha_planner *planner)
{
    const vkmha_sizes *sizes = &planner->sizes;
    const vkmha_plan_params *plan = planner->plan;
    const uint32_t kept_bytes = vkmha_type_bytes(planner->layer->cache_type);
    const struct {
        const char *name;
        uint64_t bytes;
    } tensors[] = {{"query", sizes->query * vkmha_type_bytes(plan->query_type)},
                   {"key", sizes->key * vkmha_type_bytes(plan->key_type)},
                   {"value", sizes->value * vkmha_type_bytes(plan->value_type)},
                   {"mask", sizes->mask_bytes},
                   {"output", sizes->output * vkmha_type_bytes(plan->output_type)},
                   {"attend_keys", sizes->attend_keys},
                   {"past_key", sizes->past_key * kept_bytes},
                   {"past_value", sizes->past_value * kept_bytes},
                   {"present_key", sizes->present_key * kept_bytes},
                   {"present_value", sizes->present_value * kept_bytes},
                   {"output_gradient", sizes->output_gradient * 4},
                   {"lse", sizes->lse * 4},
                   {"weights", sizes->weights * 4},
                   {"mean_weights", sizes->mean_weights * 4},
                   {"scores", sizes->scores * 4},
                   {"statistics", sizes->statistics * 4},
                   {"key_mass", sizes->key_mass * 4},
                   {"positions", sizes->positions * 4}};
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        if (tensors[i].bytes > planner->limits->max_allocation_bytes) {
            return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                              "the %s tensor of %" PRIu64 " bytes is too large for this device: an "
                              "allocation holds at most %" PRIu64,
                              tensors[i].name, tensors[i].bytes,
                              planner->limits->max_allocation_bytes);
        }
    }
    return VKMHA_OK;
}

static vkmha_status check_workspace(const vkmha_planner *planner)
{
    vkmha_schedule *schedule = planner->schedule;
    schedule->workspace_bytes += schedule->state.bytes;
    if (schedule->workspace_bytes > planner->limits->max_allocation_bytes) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "a workspace of %" PRIu64 " bytes is too large for this device: an "
                          "allocation holds at most %" PRIu64 "; lower batch_size or the lengths",
                          schedule->workspace_bytes, planner->limits->max_allocation_bytes);
    }
    return VKMHA_OK;
}

vkmha_status vkmha_schedule_init(const vkmha_limits *limits, const vkmha_layer_params *layer,
                                 const vkmha_packing *packing, const vkmha_plan_params *plan,
                                 const vkmha_host *host, vkmha_schedule *schedule,
                                 vkmha_error *error)
{
    *schedule = (vkmha_schedule){0};
    vkmha_planner planner = {
        .limits = limits,
        .layer = layer,
        .packing = packing,
        .plan = plan,
        .host = host,
        .error = error,
        .schedule = schedule,
        .max_work = plan->max_work_per_dispatch ? plan->max_work_per_dispatch
                                                : limits->max_work_per_dispatch,
    };
    vkmha_plan_sizes(layer, plan, &planner.sizes);
    const bool has_queries = planner.sizes.query_rows > 0;
    if (!has_queries &&
        (plan->batch_size == 0 || (plan->cache_capacity == 0 && !plan->has_present))) {
        return VKMHA_OK; /* nothing to do, and nothing needed for it */
    }
    vkmha_status status = check_tensors(&planner);
    if (status == VKMHA_OK) {
        status = place_regions(&planner);
    }
    if (status == VKMHA_OK) {
        status = vkmha_schedule_places(&planner);
    }
    if (status == VKMHA_OK && !layer->attention_only) {
        status = vkmha_schedule_projections(&planner);
    }
    if (status == VKMHA_OK) {
        status = vkmha_schedule_presents(&planner);
    }
    if (status == VKMHA_OK && has_queries) {
        status = vkmha_schedule_attention(&planner);
    }
    if (status == VKMHA_OK && has_queries) {
        status = vkmha_schedule_result(&planner);
    }
    if (status == VKMHA_OK && has_queries && !layer->attention_only) {
        status = vkmha_schedule_output(&planner);
    }
    if (status == VKMHA_OK && has_queries && !layer->attention_only) {
        status = vkmha_schedule_contributions(&planner);
    }
    if (status == VKMHA_OK) {
        status = check_workspace(&planner);
    }
    if (status != VKMHA_OK) {
        vkmha_schedule_finish(schedule, host);
    }
    return status;
}

void vkmha_schedule_finish(vkmha_schedule *schedule, const vkmha_host *host)
{
    vkmha_host_release(host, schedule->steps);
    *schedule = (vkmha_schedule){0};
}
