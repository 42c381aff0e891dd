// The devices of drivers, as ggml's registry knows them.

#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gpu_hold(struct gpu_unit * unit) {
    if (gpu_is_lost(unit)) return false;
    gpu_take(&unit->lock);
    const bool first = unit->users == 0;
    enum gpu_status status = GPU_DONE;
    if (first) status = unit->host->calls->device_open(unit->host->driver, unit->index, &unit->open);
    if (status == GPU_DONE) unit->users++;
    gpu_give(&unit->lock);
    // what cannot be opened has nothing that could be lost
    return gpu_check(unit, status == GPU_LOST ? GPU_FAILED : status, "opening the device");
}

void gpu_drop(struct gpu_unit * unit) {
    gpu_take(&unit->lock);
    if (--unit->users == 0) {
        while (unit->idle_count > 0) unit->host->calls->queue_free(unit->open, unit->idle[--unit->idle_count]);
        unit->host->calls->device_close(unit->open);
        unit->open = NULL;
        unit->lost = false;
    }
    gpu_give(&unit->lock);
}

static const char * name_of(ggml_backend_dev_t device) { return gpu_unit_of(device)->name; }

static const char * description_of(ggml_backend_dev_t device) { return gpu_unit_of(device)->facts.description; }

static enum ggml_backend_dev_type type_of(ggml_backend_dev_t device) {
    return gpu_unit_of(device)->facts.integrated ? GGML_BACKEND_DEVICE_TYPE_IGPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

/// What is free is 0 where the driver does not say: who only wants to know gets no error.
static void memory_of(ggml_backend_dev_t device, size_t * free, size_t * total) {
    struct gpu_unit * unit = gpu_unit_of(device);
    const bool failed = gpu_has_failed();
    *free = 0, *total = unit->facts.memory;
    if (gpu_hold(unit)) {
        size_t now = 0, all = 0;
        if (unit->host->calls->free_memory(unit->open, &now, &all) == GPU_DONE) *free = now, *total = all;
        gpu_drop(unit);
    }
    if (!failed) graphc_gpu_error();
}

static void properties_of(ggml_backend_dev_t device, struct ggml_backend_dev_props * properties) {
    struct gpu_unit * unit = gpu_unit_of(device);
    properties->name = unit->name;
    properties->description = unit->facts.description;
    properties->type = type_of(device);
    properties->device_id = unit->facts.address[0] == 0 ? NULL : unit->facts.address;
    properties->caps.async = true;
    properties->caps.events = true;
    memory_of(device, &properties->memory_free, &properties->memory_total);
}

static ggml_backend_t backend_of(ggml_backend_dev_t device, const char * parameters) {
    (void) parameters;
    return gpu_backend_new(gpu_unit_of(device));
}

static ggml_backend_buffer_type_t buffers_of(ggml_backend_dev_t device) { return &gpu_unit_of(device)->buffers; }

static bool takes_node(ggml_backend_dev_t device, const struct ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE: return gpu_unit_of(device)->host->functions->nbytes(node) <= gpu_unit_of(device)->facts.largest;
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return true;
        case GGML_OP_CUSTOM: return gpu_computes(gpu_unit_of(device), node);
        default: return false;
    }
}

static bool takes_buffers(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) { return type == &gpu_unit_of(device)->buffers; }

/// An event of ggml's, with its own part behind it.
static ggml_backend_event_t new_event(ggml_backend_dev_t device) {
    struct gpu_unit * unit = gpu_unit_of(device);
    struct ggml_backend_event * event = (struct ggml_backend_event *) calloc(1, sizeof *event);
    if (event == NULL || !gpu_hold(unit)) {
        free(event);
        return NULL;
    }
    struct gpu_event * made = NULL;
    if (!gpu_check(unit, unit->host->calls->event_new(unit->open, false, &made), "making an event")) {
        gpu_drop(unit);
        free(event);
        return NULL;
    }
    event->device = device, event->context = made;
    return event;
}

static void free_event(ggml_backend_dev_t device, ggml_backend_event_t event) {
    struct gpu_unit * unit = gpu_unit_of(device);
    unit->host->calls->event_free(unit->open, (struct gpu_event *) event->context);
    gpu_drop(unit);
    free(event);
}

static void synchronize_event(ggml_backend_dev_t device, ggml_backend_event_t event) {
    struct gpu_unit * unit = gpu_unit_of(device);
    if (gpu_is_lost(unit)) return;
    gpu_check(unit, unit->host->calls->event_synchronize(unit->open, (struct gpu_event *) event->context), "waiting for an event");
}

static const char * registry_name(ggml_backend_reg_t registry) {
    (void) registry;
    return "generated";
}

static size_t device_count(ggml_backend_reg_t registry) { return (size_t) ((struct gpu_host *) registry)->count; }

static ggml_backend_dev_t device_at(ggml_backend_reg_t registry, size_t index) { return &((struct gpu_host *) registry)->units[index].ggml; }

/// Those of the first device. ggml knows features of a whole backend alone.
static const struct gpu_feature * features_of(ggml_backend_reg_t registry) { return ((struct gpu_host *) registry)->units[0].features; }

static void name_features(struct gpu_unit * unit) {
    const struct gpu_facts * facts = &unit->facts;
    const struct gpu_feature texts[] = {
        {"ARCHITECTURE", facts->architecture}, {"ABILITIES", facts->abilities}, {"MATRICES", facts->matrices}};
    const struct {
        const char * name;
        long long value;
    } numbers[] = {{"MULTIPROCESSORS", facts->multiprocessors}, {"REGISTERS", facts->registers}, {"THREADS", facts->threads},
                   {"SHARED_MEMORY", (long long) facts->shared}, {"CACHE", (long long) facts->cache}, {"LANES", facts->lanes},
                   {"ARGUMENTS", (long long) facts->arguments}};
    int count = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].value[0] != 0) unit->features[count++] = texts[i];
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value == 0) continue;
        snprintf(unit->feature_texts[count], GPU_FEATURE_TEXT, "%lld", numbers[i].value);
        unit->features[count].name = numbers[i].name, unit->features[count].value = unit->feature_texts[count];
        count++;
    }
}

static void * function_named(ggml_backend_reg_t registry, const char * name) {
    (void) registry;
    return strcmp(name, "ggml_backend_get_features") == 0 ? (void *) features_of : NULL;
}

static const struct ggml_backend_device device_functions = {
    .get_name = name_of,
    .get_description = description_of,
    .get_memory = memory_of,
    .get_type = type_of,
    .get_props = properties_of,
    .init_backend = backend_of,
    .get_buffer_type = buffers_of,
    .supports_op = takes_node,
    .supports_buft = takes_buffers,
    .event_new = new_event,
    .event_free = free_event,
    .event_synchronize = synchronize_event,
};

bool graphc_gpu_is(ggml_backend_dev_t device) { return device != NULL && device->get_name == name_of; }

const struct gpu_feature * graphc_gpu_features(ggml_backend_dev_t device) { return gpu_unit_of(device)->features; }

static bool new_unit(struct gpu_host * host, int index, const char * prefix) {
    struct gpu_unit * unit = &host->units[index];
    unit->ggml = device_functions;
    unit->ggml.registry = &host->ggml;
    unit->host = host, unit->index = index;
    snprintf(unit->name, sizeof unit->name, "%s%d", prefix, index);
    gpu_lock_new(&unit->lock);
    gpu_buffer_type_new(unit);
    const bool fine = gpu_check(unit, host->calls->describe(host->driver, index, &unit->facts), "looking at the device");
    name_features(unit);
    return fine;
}

/// Every ggml has some backend, at least the CPU's, and all are of one version.
static const char * wrong_version(const struct graphc_gpu_ggml * ggml) {
    static char text[GPU_TEXT];
    if (ggml->backend_reg_count() == 0) return "ggml has no backend that says which version it is";
    const int version = ggml->backend_reg_get(0)->version;
    if (version == GGML_INTERFACE_VERSION) return NULL;
    snprintf(text, sizeof text, "this ggml has version %d of the interface of backends, and graphc's is written for version %d", version,
             GGML_INTERFACE_VERSION);
    return text;
}

static const char * kept_error(void) {
    static char text[GPU_TEXT];
    const char * found = graphc_gpu_error();
    snprintf(text, sizeof text, "%s", found == NULL ? "there is no memory left" : found);
    return text;
}

static const struct {
    const char * name;
    const struct gpu_calls * calls;
} drivers[] = {{"cuda", &graphc_gpu_cuda}, {"vulkan", &graphc_gpu_vulkan}};

static const struct gpu_calls * driver_named(const char * name) {
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        if (strcmp(drivers[i].name, name) == 0) return drivers[i].calls;
    }
    return NULL;
}

const char * graphc_gpu_register(const struct graphc_gpu_ggml * ggml, const char * driver, const char * library, const char * prefix) {
    const char * wrong = wrong_version(ggml);
    if (wrong != NULL) return wrong;
    const struct gpu_calls * calls = driver_named(driver);
    if (calls == NULL) return "there is no such driver";
    struct gpu_host * host = (struct gpu_host *) calloc(1, sizeof *host);
    if (host == NULL) return kept_error();
    host->ggml = (struct ggml_backend_reg) {GGML_INTERFACE_VERSION, registry_name, device_count, device_at, function_named, NULL};
    host->functions = ggml, host->calls = calls;
    struct gpu_unit nobody = {.host = host};
    snprintf(nobody.name, sizeof nobody.name, "%s", prefix);
    gpu_lock_new(&nobody.lock);
    if (!gpu_check(&nobody, host->calls->open(library, &host->driver, &host->count), "looking for devices")) {
        free(host);
        return kept_error();
    }
    host->units = (struct gpu_unit *) calloc((size_t) host->count, sizeof *host->units);
    bool fine = host->units != NULL;
    for (int i = 0; fine && i < host->count; i++) fine = new_unit(host, i, prefix);
    if (!fine) {
        host->calls->close(host->driver);
        free(host->units);
        free(host);
        return kept_error();
    }
    ggml->backend_register(&host->ggml);
    return NULL;
}
