// Memory of Vulkan's devices, and copies to and from it through memory that the host sees.

#include "vulkan.h"

#include <stdlib.h>
#include <string.h>

enum { VULKAN_ALIGNMENT = 4 };  // bytes: of what is filled

/// The kind of memory with all of these properties, and with the others if there is one; -1 if there is none.
static int kind_of_memory(const struct vulkan_device * d, uint32_t types, uint32_t needed, uint32_t wanted) {
    int found = -1;
    for (uint32_t i = 0; i < d->memory.type_count; i++) {
        const uint32_t flags = d->memory.types[i].flags;
        if (!(types >> i & 1) || (flags & needed) != needed) continue;
        if ((flags & wanted) == wanted) return (int) i;
        if (found < 0) found = (int) i;
    }
    return found;
}

static enum gpu_status fill_in(struct vulkan_device * d, struct vulkan_memory * memory, bool staging) {
    const struct vulkan_buffer_info info = {.head = vulkan_made(VULKAN_BUFFER_INFO, NULL), .size = memory->size, .usage = VULKAN_BUFFER_USES};
    VULKAN_TRY(&d->vk, CreateBuffer, d->device, &info, NULL, &memory->buffer);
    struct vulkan_requirements needs = {0};
    d->vk.GetBufferMemoryRequirements(d->device, memory->buffer, &needs);
    const uint32_t host = VULKAN_MEMORY_VISIBLE | VULKAN_MEMORY_COHERENT;
    const int kind = kind_of_memory(d, needs.types, staging ? host : VULKAN_MEMORY_DEVICE, staging ? VULKAN_MEMORY_CACHED : 0);
    if (kind < 0) return gpu_say("the device has no memory that the %s", staging ? "host sees" : "kernels may use"), GPU_FAILED;
    const struct vulkan_allocate_flags flags = {vulkan_made(VULKAN_ALLOCATE_FLAGS, NULL), VULKAN_ALLOCATE_ADDRESS, 0};
    const struct vulkan_memory_info wanted = {vulkan_made(VULKAN_MEMORY_INFO, &flags), needs.size, (uint32_t) kind};
    VULKAN_TRY(&d->vk, AllocateMemory, d->device, &wanted, NULL, &memory->memory);
    VULKAN_TRY(&d->vk, BindBufferMemory, d->device, memory->buffer, memory->memory, 0);
    if (staging) VULKAN_TRY(&d->vk, MapMemory, d->device, memory->memory, 0, VULKAN_WHOLE, 0, &memory->host);
    const struct vulkan_address_info address = {vulkan_made(VULKAN_ADDRESS_INFO, NULL), memory->buffer};
    memory->address = d->vk.GetBufferDeviceAddress(d->device, &address);
    return GPU_DONE;
}

enum gpu_status vulkan_memory_new(struct vulkan_device * d, uint64_t size, bool staging, struct vulkan_memory ** made) {
    struct vulkan_memory * memory = (struct vulkan_memory *) calloc(1, sizeof *memory);
    if (memory == NULL) return vulkan_no_memory();
    memory->size = (size + VULKAN_ALIGNMENT - 1) / VULKAN_ALIGNMENT * VULKAN_ALIGNMENT;
    if (memory->size == 0) memory->size = VULKAN_ALIGNMENT;
    const enum gpu_status status = fill_in(d, memory, staging);
    if (status == GPU_DONE) *made = memory;
    else vulkan_memory_free(d, memory);
    return status;
}

void vulkan_memory_free(struct vulkan_device * d, struct vulkan_memory * memory) {
    if (memory == NULL) return;
    if (memory->buffer != 0) d->vk.DestroyBuffer(d->device, memory->buffer, NULL);
    if (memory->memory != 0) d->vk.FreeMemory(d->device, memory->memory, NULL);
    free(memory);
}

enum gpu_status vulkan_allocate(struct gpu_device * device, size_t size, struct gpu_memory ** memory, void ** base) {
    struct vulkan_memory * made = NULL;
    VULKAN_CHECK(vulkan_memory_new((struct vulkan_device *) device, size, false, &made));
    *memory = (struct gpu_memory *) made, *base = (void *) (uintptr_t) made->address;
    return GPU_DONE;
}

void vulkan_release(struct gpu_device * device, struct gpu_memory * memory) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    gpu_take(&d->lock);
    d->vk.DeviceWaitIdle(d->device);
    gpu_give(&d->lock);
    vulkan_memory_free(d, (struct vulkan_memory *) memory);
}

enum gpu_status vulkan_free_memory(struct gpu_device * device, size_t * free, size_t * total) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_budget budget = {.head = vulkan_made(VULKAN_BUDGET, NULL)};
    struct vulkan_memory_kinds kinds = {.head = vulkan_made(VULKAN_MEMORY_PROPERTIES_2, d->has_budget ? &budget : NULL)};
    d->driver->vk.GetPhysicalDeviceMemoryProperties2(d->physical, &kinds);
    *free = *total = 0;
    for (uint32_t i = 0; i < kinds.heap_count; i++) {
        if (!(kinds.heaps[i].flags & 1)) continue;
        *total += (size_t) kinds.heaps[i].size;
        *free += (size_t) (d->has_budget ? budget.budget[i] - (budget.usage[i] < budget.budget[i] ? budget.usage[i] : budget.budget[i])
                                         : kinds.heaps[i].size);
    }
    return GPU_DONE;
}

/// Staging for so many bytes at most; what it has from earlier copies is done with if there is no room.
static enum gpu_status staged(struct gpu_device * device, struct vulkan_queue * queue, size_t size, size_t * at, size_t * count) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    if (queue->staging == NULL) VULKAN_CHECK(vulkan_memory_new(d, VULKAN_STAGING, true, &queue->staging));
    const size_t wanted = size < VULKAN_STAGING ? size : VULKAN_STAGING;
    if (wanted > VULKAN_STAGING - queue->staged || queue->download_count == VULKAN_MOST_DOWNLOADS) {
        VULKAN_CHECK(vulkan_wait(device, (struct gpu_queue *) queue));
    }
    *at = queue->staged, *count = wanted;
    queue->staged += (wanted + 15) / 16 * 16;
    return GPU_DONE;
}

static enum gpu_status copied(struct vulkan_device * d, struct vulkan_queue * queue, const struct vulkan_memory * to, uint64_t to_offset,
                              const struct vulkan_memory * from, uint64_t from_offset, uint64_t size) {
    vulkan_object commands = NULL;
    VULKAN_CHECK(vulkan_commands(d, queue, &commands));
    const struct vulkan_region region = {from_offset, to_offset, size};
    d->vk.CmdCopyBuffer(commands, from->buffer, to->buffer, 1, &region);
    return GPU_DONE;
}

enum gpu_status vulkan_upload(struct gpu_device * device, struct gpu_queue * handle, struct gpu_place to, const void * from, size_t size) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    size_t at = 0, count = 0;
    for (size_t done = 0; done < size; done += count) {
        VULKAN_CHECK(staged(device, queue, size - done, &at, &count));
        memcpy((char *) queue->staging->host + at, (const char *) from + done, count);
        VULKAN_CHECK(copied(d, queue, (struct vulkan_memory *) to.memory, to.offset + done, queue->staging, at, count));
    }
    return GPU_DONE;
}

enum gpu_status vulkan_download(struct gpu_device * device, struct gpu_queue * handle, void * to, struct gpu_place from, size_t size) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    size_t at = 0, count = 0;
    for (size_t done = 0; done < size; done += count) {
        VULKAN_CHECK(staged(device, queue, size - done, &at, &count));
        VULKAN_CHECK(copied(d, queue, queue->staging, at, (struct vulkan_memory *) from.memory, from.offset + done, count));
        const struct vulkan_download wanted = {(char *) to + done, at, count};
        queue->downloads[queue->download_count++] = wanted;
    }
    return GPU_DONE;
}

/// From another device by way of the host.
static enum gpu_status between(struct gpu_device * device, struct gpu_queue * queue, struct gpu_place to, struct gpu_device * source,
                               struct gpu_place from, size_t size, void * host) {
    struct gpu_queue * theirs = NULL;
    VULKAN_CHECK(vulkan_queue_new(source, &theirs));
    enum gpu_status status = vulkan_download(source, theirs, host, from, size);
    if (status == GPU_DONE) status = vulkan_wait(source, theirs);
    vulkan_queue_free(source, theirs);
    return status == GPU_DONE ? vulkan_upload(device, queue, to, host, size) : status;
}

enum gpu_status vulkan_copy(struct gpu_device * device, struct gpu_queue * queue, struct gpu_place to, struct gpu_device * source,
                            struct gpu_place from, size_t size) {
    if (size == 0) return GPU_DONE;
    if (source == device) {
        return copied((struct vulkan_device *) device, (struct vulkan_queue *) queue, (struct vulkan_memory *) to.memory, to.offset,
                      (struct vulkan_memory *) from.memory, from.offset, size);
    }
    void * host = malloc(size);
    if (host == NULL) return vulkan_no_memory();
    const enum gpu_status status = between(device, queue, to, source, from, size, host);
    free(host);
    return status;
}

enum gpu_status vulkan_fill(struct gpu_device * device, struct gpu_queue * queue, struct gpu_place to, uint8_t value, size_t size) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    const uint8_t few[VULKAN_ALIGNMENT] = {value, value, value, value};
    const size_t before = (VULKAN_ALIGNMENT - to.offset % VULKAN_ALIGNMENT) % VULKAN_ALIGNMENT;
    const size_t first = before < size ? before : size, whole = (size - first) / VULKAN_ALIGNMENT * VULKAN_ALIGNMENT;
    VULKAN_CHECK(vulkan_upload(device, queue, to, few, first));
    if (whole != 0) {
        vulkan_object commands = NULL;
        VULKAN_CHECK(vulkan_commands(d, (struct vulkan_queue *) queue, &commands));
        d->vk.CmdFillBuffer(commands, ((struct vulkan_memory *) to.memory)->buffer, to.offset + first, whole, value * 0x01010101u);
    }
    const struct gpu_place rest = {to.memory, to.offset + first + whole};
    return vulkan_upload(device, queue, rest, few, size - first - whole);
}
