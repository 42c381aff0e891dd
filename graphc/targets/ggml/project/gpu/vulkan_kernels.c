// Kernels of Vulkan's devices: SPIR-V, of which each entry point becomes a pipeline when it is asked for.

#include "vulkan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPIRV_MAGIC = 0x07230203,
    SPIRV_HEADER = 5,  // words before the first instruction
    SPIRV_ENTRY_POINT = 15,
    SPIRV_CAPABILITY = 17,
    SPIRV_COOPERATIVE = 6022,
    SPIRV_PROCESSED = 330,  // says "lanes 32 pushed 128": what the kernels are written for
};

/// The text in the words of an instruction from a place on; NULL if its end is not there.
static const char * text_in(const uint32_t * instruction, uint32_t from, uint32_t count) {
    const char * text = (const char *) (instruction + from);
    return from < count && memchr(text, 0, (count - from) * sizeof *instruction) != NULL ? text : NULL;
}

/// True if the module has an entry point of this name; what it says of lanes is remembered on the way. False for what is no module.
static bool look_through(struct vulkan_module * module, const char * name) {
    const size_t size = module->size / sizeof *module->code;
    bool found = false;
    for (size_t at = SPIRV_HEADER; at < size;) {
        const uint32_t *instruction = module->code + at, count = *instruction >> 16, operation = *instruction & 0xffff;
        if (count == 0 || count > size - at) return false;
        const char * entry = operation == SPIRV_ENTRY_POINT ? text_in(instruction, 3, count) : NULL;
        const char * lanes = operation == SPIRV_PROCESSED ? text_in(instruction, 1, count) : NULL;
        if (operation == SPIRV_CAPABILITY && count == 2 && instruction[1] == SPIRV_COOPERATIVE) module->cooperative = true;
        if (lanes != NULL) sscanf(lanes, "lanes %u pushed %u", &module->lanes, &module->pushed);
        found = found || name == NULL || (entry != NULL && strcmp(entry, name) == 0);
        at += count;
    }
    return found;
}

enum gpu_status vulkan_module_load(struct gpu_device * device, const void * image, size_t size, struct gpu_module ** made) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_module * module = (struct vulkan_module *) calloc(1, sizeof *module + size);
    if (module == NULL) return vulkan_no_memory();
    memcpy(module->code, image, size);
    module->size = size;
    if (size % sizeof *module->code != 0 || size < SPIRV_HEADER * sizeof *module->code || module->code[0] != SPIRV_MAGIC ||
        !look_through(module, NULL) || module->pushed > d->pushed) {
        return free(module), gpu_say("this is no SPIR-V"), GPU_FAILED;
    }
    if (module->cooperative && !d->cooperative) {
        return free(module), gpu_say("the kernel needs cooperative matrices, which the device has not"), GPU_FAILED;
    }
    const struct vulkan_shader_info info = {vulkan_made(VULKAN_SHADER_INFO, NULL), 0, size, module->code};
    const enum gpu_status status = vulkan_result(d->vk.CreateShaderModule(d->device, &info, NULL, &module->shader), "CreateShaderModule");
    if (status == GPU_DONE) *made = (struct gpu_module *) module;
    else free(module);
    return status;
}

void vulkan_module_free(struct gpu_device * device, struct gpu_module * handle) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_module * module = (struct vulkan_module *) handle;
    gpu_take(&d->lock);
    d->vk.DeviceWaitIdle(d->device);
    gpu_give(&d->lock);
    while (module->kernels != NULL) {
        struct vulkan_kernel * first = module->kernels;
        module->kernels = first->next;
        d->vk.DestroyPipeline(d->device, first->pipeline, NULL);
        free(first);
    }
    d->vk.DestroyShaderModule(d->device, module->shader, NULL);
    free(module);
}

static enum gpu_status pipeline_of(struct vulkan_device * d, const struct vulkan_module * module, const char * name, vulkan_number * made) {
    const struct vulkan_subgroup_required required = {vulkan_made(VULKAN_SUBGROUP_REQUIRED, NULL), module->lanes};
    const bool fixed = module->lanes != 0 && d->can_choose_subgroup && (d->sizes.stages & VULKAN_STAGE_COMPUTE) != 0;
    const bool possible = fixed ? d->sizes.least <= module->lanes && module->lanes <= d->sizes.most : module->lanes == d->subgroup.size;
    if (!possible) return gpu_say("the kernel has %u lanes, and the device %u", module->lanes, d->subgroup.size), GPU_FAILED;
    const struct vulkan_stage_info stage = {vulkan_made(VULKAN_STAGE_INFO, fixed ? &required : NULL), fixed ? VULKAN_FULL_SUBGROUPS : 0,
                                            VULKAN_STAGE_COMPUTE, module->shader, name, NULL};
    const struct vulkan_pipeline_info info = {.head = vulkan_made(VULKAN_PIPELINE_INFO, NULL), .stage = stage, .layout = d->layout};
    return vulkan_result(d->vk.CreateComputePipelines(d->device, 0, 1, &info, NULL, made), "CreateComputePipelines");
}

static enum gpu_status new_kernel(struct vulkan_device * d, struct vulkan_module * module, const char * name, uint32_t shared,
                                  struct vulkan_kernel ** made) {
    if (!look_through(module, name)) return gpu_say("the module has no kernel %s", name), GPU_FAILED;
    if (shared > d->properties.limits.shared) {
        return gpu_say("%s needs %u bytes of shared memory, and the device has %u", name, shared, d->properties.limits.shared), GPU_FAILED;
    }
    struct vulkan_kernel * kernel = (struct vulkan_kernel *) calloc(1, sizeof *kernel + strlen(name) + 1);
    if (kernel == NULL) return vulkan_no_memory();
    memcpy(kernel->name, name, strlen(name) + 1);
    kernel->pushed = module->pushed;
    const enum gpu_status status = pipeline_of(d, module, name, &kernel->pipeline);
    if (status != GPU_DONE) return free(kernel), status;
    kernel->next = module->kernels, module->kernels = kernel;
    *made = kernel;
    return GPU_DONE;
}

enum gpu_status vulkan_kernel_find(struct gpu_device * device, struct gpu_module * handle, const char * name, uint32_t shared,
                                   struct gpu_kernel ** found) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_module * module = (struct vulkan_module *) handle;
    gpu_take(&d->lock);
    struct vulkan_kernel * kernel = module->kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0) kernel = kernel->next;
    const enum gpu_status status = kernel == NULL ? new_kernel(d, module, name, shared, &kernel) : GPU_DONE;
    gpu_give(&d->lock);
    *found = (struct gpu_kernel *) kernel;
    return status;
}

/// Arguments one behind the other, addresses at multiples of 8, all else at multiples of 4. Returns their bytes, 0 if they do not fit.
static uint32_t packed(const struct gpu_work * work, uint8_t * bytes, uint32_t room) {
    uint32_t used = 0;
    for (int i = 0; i < work->count; i++) {
        const struct gpu_argument * each = &work->arguments[i];
        const uint32_t size = each->is_place ? 8 : (each->size + 3u) / 4 * 4, step = each->is_place ? 8 : 4;
        used = (used + step - 1) / step * step;
        if (used + size > room) return 0;
        if (each->is_place) {
            const uint64_t address = ((const struct vulkan_memory *) each->place.memory)->address + each->place.offset;
            memcpy(bytes + used, &address, sizeof address);
        } else {
            memcpy(bytes + used, each->bytes, each->size);
        }
        used += size;
    }
    return used;
}

/// Have the device bring arguments to where the next kernel of the queue finds them.
static enum gpu_status put_arguments(struct vulkan_device * d, struct vulkan_queue * queue, const uint8_t * bytes, uint32_t size) {
    vulkan_object commands = NULL;
    if (queue->arguments == NULL) VULKAN_CHECK(vulkan_memory_new(d, VULKAN_ARGUMENTS, false, &queue->arguments));
    VULKAN_CHECK(vulkan_commands(d, queue, &commands));
    d->vk.CmdUpdateBuffer(commands, queue->arguments->buffer, 0, size, bytes);
    return GPU_DONE;
}

enum gpu_status vulkan_launch(struct gpu_device * device, struct gpu_queue * queue, const struct gpu_work * work) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    const struct vulkan_kernel * kernel = (const struct vulkan_kernel *) work->kernel;
    uint8_t bytes[VULKAN_ARGUMENTS] = {0};
    const uint32_t size = packed(work, bytes, sizeof bytes);
    if (size == 0) return gpu_say("%s has more arguments than %d bytes", kernel->name, VULKAN_ARGUMENTS), GPU_FAILED;
    for (int axis = 0; axis < 3; axis++) {
        if (work->grid[axis] <= d->properties.limits.groups[axis]) continue;
        gpu_say("%s has %u blocks, and the device takes %u", kernel->name, work->grid[axis], d->properties.limits.groups[axis]);
        return GPU_FAILED;
    }
    vulkan_object commands = NULL;
    const bool beside = size > kernel->pushed;
    if (beside) VULKAN_CHECK(put_arguments(d, (struct vulkan_queue *) queue, bytes, size));
    VULKAN_CHECK(vulkan_commands(d, (struct vulkan_queue *) queue, &commands));
    d->vk.CmdBindPipeline(commands, 1, kernel->pipeline);
    if (beside) {
        d->vk.CmdPushConstants(commands, d->layout, VULKAN_STAGE_COMPUTE, 0, sizeof(uint64_t), &((struct vulkan_queue *) queue)->arguments->address);
    } else {
        d->vk.CmdPushConstants(commands, d->layout, VULKAN_STAGE_COMPUTE, 0, size, bytes);
    }
    d->vk.CmdDispatch(commands, work->grid[0], work->grid[1], work->grid[2]);
    return GPU_DONE;
}
