#include "cache.h"

#include <inttypes.h>

#include <vkmha/vkmha_vulkan.h>

#include "convert.h"
#include "params_check.h"

void vkmha_cache_destroy(vkmha_cache *cache)
{
    if (!cache) {
        return;
    }
    vkmha_layer *layer = cache->layer;
    vkmha_device *device = layer->device;
    const vkmha_host host = device->host;
    vkmha_block_destroy(device, &cache->key);
    vkmha_block_destroy(device, &cache->value);
    vkmha_host_release(&host, cache->lengths);
    vkmha_host_release(&host, cache);
    vkmha_layer_destroy(layer);
}

/* One block, which one binding of one sequence and head must reach whole. */
static vkmha_status create_block(vkmha_cache *cache, const char *name, uint32_t dim,
                                 vkmha_block *block, vkmha_error *error)
{
    vkmha_device *device = cache->layer->device;
    const uint64_t limit = device->info.limits.max_allocation_bytes;
    const uint64_t factors[] = {cache->batch_size, cache->capacity,
                                cache->layer->params.num_kv_heads, vkmha_round_up(dim, 4),
                                vkmha_type_bytes(cache->layer->params.cache_type)};
    uint64_t bytes = 0;
    if (!vkmha_multiply_all(factors, sizeof(factors) / sizeof(factors[0]), &bytes) ||
        bytes > limit) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "capacity %" PRIu64 " is too large for this device: the %ss of %" PRIu64
                          " sequences exceed an allocation of %" PRIu64 " bytes",
                          cache->capacity, name, cache->batch_size, limit);
    }
    return vkmha_block_create(device, bytes,
                              VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
                              VKMHA_MEMORY_DEVICE, block, error);
}

vkmha_status vkmha_cache_create(vkmha_layer *layer, uint64_t batch_size, uint64_t capacity,
                                vkmha_cache **cache, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!cache) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "cache is NULL");
    }
    *cache = NULL;
    if (!layer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "layer is NULL");
    }
    const struct {
        const char *field;
        uint64_t value;
    } sizes[] = {{"batch_size", batch_size}, {"capacity", capacity}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].value == 0 || sizes[i].value > INT32_MAX) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s %" PRIu64 " is not in 1..%d",
                              sizes[i].field, sizes[i].value, INT32_MAX);
        }
    }
    const vkmha_host *host = &layer->device->host;
    vkmha_cache *made = vkmha_host_allocate(host, 1, sizeof(*made));
    if (!made) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    made->layer = layer;
    made->batch_size = batch_size;
    made->capacity = capacity;
    vkmha_layer_retain(layer);
    made->lengths = vkmha_host_allocate(host, batch_size, sizeof(uint64_t));
    vkmha_status status = made->lengths
                              ? create_block(made, "key", layer->params.head_dim, &made->key, error)
                              : vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    if (status == VKMHA_OK) {
        status = create_block(made, "value", layer->params.v_head_dim, &made->value, error);
    }
    if (status != VKMHA_OK) {
        vkmha_cache_destroy(made);
        return status;
    }
    *cache = made;
    return VKMHA_OK;
}

uint64_t vkmha_cache_length(const vkmha_cache *cache, uint64_t b)
{
    return cache && b < cache->batch_size ? cache->lengths[b] : 0;
}

vkmha_status vkmha_cache_trim(vkmha_cache *cache, uint64_t b, uint64_t length, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!cache) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "cache is NULL");
    }
    if (b >= cache->batch_size) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "b %" PRIu64 " is not a sequence of the cache's %" PRIu64, b,
                          cache->batch_size);
    }
    if (length > cache->lengths[b]) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "length %" PRIu64 " is more than the %" PRIu64
                          " keys of sequence %" PRIu64,
                          length, cache->lengths[b], b);
    }
    cache->lengths[b] = length;
    return VKMHA_OK;
}

void vkmha_cache_get_buffers(const vkmha_cache *cache, vkmha_buffer *key, vkmha_buffer *value)
{
    *key = (vkmha_buffer){cache->key.buffer, 0, cache->key.size};
    *value = (vkmha_buffer){cache->value.buffer, 0, cache->value.size};
}

vkmha_status vkmha_cache_check(const vkmha_cache *cache, const vkmha_layer *layer,
                               const vkmha_plan_params *plan, const vkmha_inputs *inputs,
                               vkmha_error *error)
{
    if (cache->layer != layer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "cache is of another layer");
    }
    if (cache->batch_size != plan->batch_size || cache->capacity != plan->cache_capacity) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "cache of %" PRIu64 " sequences and capacity %" PRIu64
                          ", the plan needs %" PRIu64 " and %" PRIu64,
                          cache->batch_size, cache->capacity, plan->batch_size,
                          plan->cache_capacity);
    }
    for (uint64_t b = 0; b < cache->batch_size; b++) {
        if (plan->key_len > cache->capacity - cache->lengths[b]) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "key_len %" PRIu64 " does not fit behind the %" PRIu64
                              " keys of sequence %" PRIu64 ": the cache's capacity is %" PRIu64,
                              plan->key_len, cache->lengths[b], b, cache->capacity);
        }
        const vkmha_item item = vkmha_plan_item(plan, inputs, cache->lengths[b], b);
        vkmha_status status = vkmha_check_item_positions(&layer->params, plan, &item, b, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

void vkmha_cache_advance(vkmha_cache *cache, uint64_t new_keys)
{
    for (uint64_t b = 0; b < cache->batch_size; b++) {
        cache->lengths[b] += new_keys;
    }
}
