// Memory of devices as buffers of ggml's, and copies to and from them.
//
// ggml's functions on buffers are those of no backend: they are done when they return. Each takes a queue that nobody else uses
// meanwhile, so threads do not wait for each other's copies.

#include "state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/// A queue for one copy; NULL, and an error, if there can be none.
static struct gpu_queue * take_queue(struct gpu_unit * unit) {
    struct gpu_queue * queue = NULL;
    if (gpu_is_lost(unit)) return NULL;
    gpu_take(&unit->lock);
    if (unit->idle_count > 0) queue = unit->idle[--unit->idle_count];
    gpu_give(&unit->lock);
    if (queue != NULL || gpu_check(unit, unit->host->calls->queue_new(unit->open, &queue), "making a queue for copies")) return queue;
    return NULL;
}

static void give_queue(struct gpu_unit * unit, struct gpu_queue * queue) {
    gpu_take(&unit->lock);
    const bool keeps = unit->idle_count < GPU_MOST_QUEUES && !unit->lost;
    if (keeps) unit->idle[unit->idle_count++] = queue;
    gpu_give(&unit->lock);
    if (!keeps) unit->host->calls->queue_free(unit->open, queue);
}

static struct gpu_buffer * context_of(ggml_backend_buffer_t buffer) { return (struct gpu_buffer *) buffer->context; }

static const char * type_name(ggml_backend_buffer_type_t type) { return gpu_unit_of(type->device)->name; }

static ggml_backend_buffer_t holder_of(const struct ggml_tensor * tensor) {
    return tensor->view_src != NULL ? tensor->view_src->buffer : tensor->buffer;
}

const struct gpu_buffer * gpu_buffer_of(const struct ggml_tensor * tensor, size_t * offset) {
    ggml_backend_buffer_t buffer = holder_of(tensor);
    if (buffer == NULL || buffer->type->get_name != type_name || buffer->context == NULL || tensor->data == NULL) return NULL;
    *offset = (size_t) ((uintptr_t) tensor->data - (uintptr_t) context_of(buffer)->base);
    return context_of(buffer);
}

int64_t gpu_number(void) {
    static int64_t last = 0;
#ifdef _MSC_VER
    return InterlockedIncrement64(&last);
#else
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
#endif
}

struct gpu_buffer * gpu_buffer_new(struct gpu_unit * unit, size_t size) {
    struct gpu_buffer * made = (struct gpu_buffer *) calloc(1, sizeof *made);
    if (made == NULL) gpu_fail(unit, "the host has no memory left");
    if (made == NULL || !gpu_hold(unit)) {
        free(made);
        return NULL;
    }
    made->unit = unit, made->number = gpu_number();
    const enum gpu_status status = unit->host->calls->allocate(unit->open, size, &made->memory, &made->base);
    if (gpu_check(unit, status, "%.1f MiB of memory", (double) size / (1 << 20))) return made;
    gpu_drop(unit);
    free(made);
    return NULL;
}

void gpu_buffer_free(struct gpu_buffer * buffer) {
    if (buffer == NULL) return;
    struct gpu_unit * unit = buffer->unit;
    unit->host->calls->release(unit->open, buffer->memory);
    gpu_drop(unit);
    free(buffer);
}

static void free_ggml_buffer(ggml_backend_buffer_t buffer) { gpu_buffer_free(context_of(buffer)); }

static void * base_of(ggml_backend_buffer_t buffer) { return context_of(buffer)->base; }

/// The place of some bytes of a tensor that lies in a buffer of ours.
static struct gpu_place part_of(const struct ggml_tensor * tensor, size_t offset) {
    size_t start = 0;
    const struct gpu_buffer * buffer = gpu_buffer_of(tensor, &start);
    return (struct gpu_place) {buffer->memory, start + offset};
}

/// Have done what was queued, and give the queue back. `what` is for an error.
static void finish(struct gpu_unit * unit, struct gpu_queue * queue, enum gpu_status status, const char * what, size_t size) {
    if (status == GPU_DONE) status = gpu_settle(unit, queue);
    gpu_check(unit, status, "%s (%zu bytes)", what, size);
    give_queue(unit, queue);
}

static void fill(struct gpu_unit * unit, struct gpu_place place, uint8_t value, size_t size) {
    struct gpu_queue * queue = take_queue(unit);
    if (queue == NULL) return;
    finish(unit, queue, unit->host->calls->fill(unit->open, queue, place, value, size), "filling memory", size);
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, uint8_t value, size_t offset, size_t size) {
    fill(context_of(buffer)->unit, part_of(tensor, offset), value, size);
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const struct gpu_buffer * found = context_of(buffer);
    fill(found->unit, (struct gpu_place) {found->memory, 0}, value, buffer->size);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    struct gpu_unit * unit = context_of(buffer)->unit;
    struct gpu_queue * queue = take_queue(unit);
    if (queue == NULL) return;
    const enum gpu_status status = unit->host->calls->upload(unit->open, queue, part_of(tensor, offset), data, size);
    finish(unit, queue, status, "copying to the device", size);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    struct gpu_unit * unit = context_of(buffer)->unit;
    struct gpu_queue * queue = take_queue(unit);
    if (queue == NULL) return;
    const enum gpu_status status = unit->host->calls->download(unit->open, queue, data, part_of(tensor, offset), size);
    finish(unit, queue, status, "copying from the device", size);
}

/// Returns false, and ggml copies through the host, if the other memory is not of a device of the same driver.
static bool copy_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor * from, struct ggml_tensor * to) {
    struct gpu_unit * unit = context_of(buffer)->unit;
    size_t start = 0;
    const struct gpu_buffer * source = gpu_buffer_of(from, &start);
    if (source == NULL || source->unit->host != unit->host) return false;
    const size_t size = unit->host->functions->nbytes(from);
    struct gpu_queue * queue = take_queue(unit);
    if (queue == NULL) return true;
    const enum gpu_status status = unit->host->calls->copy(unit->open, queue, part_of(to, 0), source->unit->open, part_of(from, 0), size);
    finish(unit, queue, status, "copying on devices", size);
    return true;
}

static const struct ggml_buffer_functions buffer_functions = {
    .free_buffer = free_ggml_buffer,
    .get_base = base_of,
    .memset_tensor = memset_tensor,
    .set_tensor = set_tensor,
    .get_tensor = get_tensor,
    .cpy_tensor = copy_tensor,
    .clear = clear,
};

static ggml_backend_buffer_t new_ggml_buffer(ggml_backend_buffer_type_t type, size_t size) {
    struct gpu_unit * unit = gpu_unit_of(type->device);
    const size_t whole = (size + GPU_ALIGNMENT - 1) / GPU_ALIGNMENT * GPU_ALIGNMENT;
    if (whole < size || whole > unit->facts.largest) {
        gpu_fail(unit, "%.1f MiB of memory: one allocation has at most %.1f", (double) size / (1 << 20),
                 (double) unit->facts.largest / (1 << 20));
        return NULL;
    }
    struct gpu_buffer * made = gpu_buffer_new(unit, whole);
    return made == NULL ? NULL : unit->host->functions->backend_buffer_init(type, buffer_functions, made, size);
}

static size_t alignment_of(ggml_backend_buffer_type_t type) {
    (void) type;
    return GPU_ALIGNMENT;
}

/// ggml divides what is larger into several buffers.
static size_t largest_of(ggml_backend_buffer_type_t type) { return gpu_unit_of(type->device)->facts.largest; }

void gpu_buffer_type_new(struct gpu_unit * unit) {
    unit->buffers = (struct ggml_backend_buffer_type) {
        .get_name = type_name,
        .alloc_buffer = new_ggml_buffer,
        .get_alignment = alignment_of,
        .get_max_size = largest_of,
        .device = &unit->ggml,
    };
}
