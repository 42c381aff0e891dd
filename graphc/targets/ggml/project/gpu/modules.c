// Code on devices.

#include "state.h"

#include <stdlib.h>
#include <string.h>

struct graphc_module {
    struct gpu_unit * unit;
    struct gpu_module * module;
    gpu_lock lock;
    struct graphc_kernel * kernels;
};

struct graphc_module * graphc_gpu_module(ggml_backend_dev_t device, const void * image, size_t size) {
    if (!graphc_gpu_is(device)) {
        gpu_fail(NULL, "only a device of generated kernels takes a kernel");
        return NULL;
    }
    struct gpu_unit * unit = gpu_unit_of(device);
    struct graphc_module * made = (struct graphc_module *) calloc(1, sizeof *made);
    if (made == NULL) gpu_fail(unit, "the host has no memory left");
    if (made == NULL || !gpu_hold(unit)) {
        free(made);
        return NULL;
    }
    made->unit = unit;
    gpu_lock_new(&made->lock);
    if (gpu_check(unit, unit->host->calls->module_load(unit->open, image, size, &made->module), "loading kernels")) return made;
    gpu_drop(unit);
    free(made);
    return NULL;
}

void graphc_gpu_module_free(struct graphc_module * module) {
    if (module == NULL) return;
    while (module->kernels != NULL) {
        struct graphc_kernel * next = module->kernels->next;
        free(module->kernels);
        module->kernels = next;
    }
    module->unit->host->calls->module_free(module->unit->open, module->module);
    gpu_drop(module->unit);
    free(module);
}

struct graphc_kernel * graphc_gpu_kernel(struct graphc_module * module, const char * name, uint32_t shared) {
    struct gpu_unit * unit = module->unit;
    if (gpu_is_lost(unit)) return NULL;
    struct graphc_kernel * made = (struct graphc_kernel *) calloc(1, sizeof *made + strlen(name) + 1);
    if (made == NULL) {
        gpu_fail(unit, "the host has no memory left");
        return NULL;
    }
    const enum gpu_status status = unit->host->calls->kernel_find(unit->open, module->module, name, shared, &made->kernel);
    if (!gpu_check(unit, status, "kernel %s", name)) {
        free(made);
        return NULL;
    }
    made->unit = unit, made->number = gpu_number();
    memcpy(made->name, name, strlen(name) + 1);
    gpu_take(&module->lock);
    made->next = module->kernels, module->kernels = made;
    gpu_give(&module->lock);
    return made;
}
