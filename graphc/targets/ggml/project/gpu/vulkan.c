// Devices of every vendor, by Vulkan 1.3 as their drivers install it: neither an SDK nor its headers are needed.
//
// What is queued goes into command buffers, each command behind a barrier, and to the device's one queue when somebody waits, or
// when much has come together. A number that only grows (a timeline semaphore) says how far the device is. Kernels are SPIR-V of
// graphc.kernels.gpu.render.spirv: their arguments are push constants, tensors' addresses among them.

#include "library.h"
#include "vulkan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
static const char * const vulkan_files[] = {"vulkan-1.dll"};
#elif defined(__APPLE__)
static const char * const vulkan_files[] = {"libvulkan.1.dylib", "libMoltenVK.dylib"};
#else
static const char * const vulkan_files[] = {"libvulkan.so.1", "libvulkan.so"};
#endif

enum gpu_status vulkan_result(int code, const char * call) {
    if (code == 0) return GPU_DONE;
    const struct {
        int code;
        const char * text;
    } known[] = {{VULKAN_NOT_READY, "not ready"},
                 {VULKAN_TIMEOUT, "timeout"},
                 {VULKAN_OUT_OF_HOST_MEMORY, "the host has no memory left"},
                 {VULKAN_OUT_OF_DEVICE_MEMORY, "the device has no memory left"},
                 {-3, "initialization failed"},
                 {VULKAN_DEVICE_LOST, "the device was lost"},
                 {-5, "memory cannot be mapped"},
                 {-7, "an extension is not present"},
                 {-8, "a feature is not present"},
                 {VULKAN_INCOMPATIBLE_DRIVER, "no driver is compatible"}};
    const char * text = "an error";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].code == code) text = known[i].text;
    }
    gpu_say("vk%s: %s (%d)", call, text, code);
    return code == VULKAN_OUT_OF_DEVICE_MEMORY ? GPU_FULL : code == VULKAN_DEVICE_LOST ? GPU_LOST : GPU_FAILED;
}

// Devices

/// What a device can do. `chain` begins with the features that all have; the others follow.
struct vulkan_device_features {
    struct vulkan_features all;
    struct vulkan_features_11 v11;
    struct vulkan_features_12 v12;
    struct vulkan_features_13 v13;
    struct vulkan_features_layout layout;
    struct vulkan_features_cooperative cooperative;
};

static void vulkan_chain(struct vulkan_device_features * f, bool layout, bool cooperative) {
    memset(f, 0, sizeof *f);
    f->cooperative.head = vulkan_made(VULKAN_COOPERATIVE, NULL);
    f->layout.head = vulkan_made(VULKAN_EXPLICIT_LAYOUT, cooperative ? &f->cooperative : NULL);
    f->v13.head = vulkan_made(VULKAN_FEATURES_13, layout ? &f->layout : NULL);
    f->v12.head = vulkan_made(VULKAN_FEATURES_12, &f->v13);
    f->v11.head = vulkan_made(VULKAN_FEATURES_11, &f->v12);
    f->all.head = vulkan_made(VULKAN_FEATURES_2, &f->v11);
}

static enum gpu_status vulkan_has_extension(const struct vulkan_driver * driver, vulkan_object device, const char * name, bool * found) {
    uint32_t count = 0;
    *found = false;
    VULKAN_TRY(&driver->vk, EnumerateDeviceExtensionProperties, device, NULL, &count, NULL);
    struct vulkan_extension * all = (struct vulkan_extension *) calloc(count + 1, sizeof *all);
    if (all == NULL) return vulkan_no_memory();
    const int code = driver->vk.EnumerateDeviceExtensionProperties(device, NULL, &count, all);
    for (uint32_t i = 0; i < count; i++) *found |= strcmp(all[i].name, name) == 0;
    free(all);
    return code == VULKAN_INCOMPLETE ? GPU_DONE : vulkan_result(code, "EnumerateDeviceExtensionProperties");
}

#define VULKAN_LAYOUT_EXTENSION "VK_KHR_workgroup_memory_explicit_layout"
#define VULKAN_COOPERATIVE_EXTENSION "VK_KHR_cooperative_matrix"
#define VULKAN_BUDGET_EXTENSION "VK_EXT_memory_budget"

/// Those that kernels use if they are there; the second needs the first.
static enum gpu_status vulkan_extensions(const struct vulkan_driver * driver, vulkan_object device, bool * layout, bool * cooperative) {
    VULKAN_CHECK(vulkan_has_extension(driver, device, VULKAN_LAYOUT_EXTENSION, layout));
    VULKAN_CHECK(vulkan_has_extension(driver, device, VULKAN_COOPERATIVE_EXTENSION, cooperative));
    *cooperative = *cooperative && *layout;
    return GPU_DONE;
}

uint32_t vulkan_lanes(const struct vulkan_subgroup * subgroup, const struct vulkan_subgroup_sizes * sizes) {
    const bool can_choose = (sizes->stages & VULKAN_STAGE_COMPUTE) != 0;
    const uint32_t wanted[] = {can_choose ? 32 : subgroup->size, subgroup->size, 64, 16, 8};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const uint32_t lanes = wanted[i];
        const bool possible = can_choose ? sizes->least <= lanes && lanes <= sizes->most : lanes == subgroup->size;
        if (possible && 4 <= lanes && lanes <= 64) return lanes;
    }
    return 0;
}

/// What our kernels cannot do without that a device lacks; NULL if it has all.
static const char * vulkan_lacking(const struct vulkan_driver * driver, vulkan_object device) {
    struct vulkan_properties_12 numbers = {.head = vulkan_made(VULKAN_PROPERTIES_12, NULL)};
    struct vulkan_subgroup_sizes sizes = {.head = vulkan_made(VULKAN_SUBGROUP_SIZES, &numbers)};
    struct vulkan_subgroup subgroup = {.head = vulkan_made(VULKAN_SUBGROUP_PROPERTIES, &sizes)};
    struct vulkan_properties properties = {.head = vulkan_made(VULKAN_PROPERTIES_2, NULL)};
    driver->vk.GetPhysicalDeviceProperties2(device, &properties);
    if (properties.api < VULKAN_VERSION_1_3) return "Vulkan 1.3";
    properties.head.next = &subgroup;
    driver->vk.GetPhysicalDeviceProperties2(device, &properties);
    if (vulkan_lanes(&subgroup, &sizes) == 0) return "subgroups of 4 to 64 lanes";
    const uint32_t operations = VULKAN_SUBGROUP_BASIC | VULKAN_SUBGROUP_VOTE | VULKAN_SUBGROUP_SHUFFLE;
    if ((subgroup.operations & operations) != operations || !(subgroup.stages & VULKAN_STAGE_COMPUTE)) return "votes and shuffles of subgroups";
    if (!numbers.keeps_specials) return "infinities and numbers that are none";
    struct vulkan_device_features f;
    vulkan_chain(&f, false, false);
    driver->vk.GetPhysicalDeviceFeatures2(device, &f.all);
    const struct {
        vulkan_bool is;
        const char * name;
    } needed[] = {{f.v12.is[VULKAN_FEATURE_ADDRESS], "addresses of buffers"},
                  {f.v12.is[VULKAN_FEATURE_MEMORY_MODEL], "Vulkan's memory model"},
                  {f.v12.is[VULKAN_FEATURE_TIMELINE], "timeline semaphores"},
                  {f.v12.is[VULKAN_FEATURE_FLOAT16], "numbers of 16 bits"},
                  {f.v12.is[VULKAN_FEATURE_INT8], "integers of 8 bits"},
                  {f.v12.is[VULKAN_FEATURE_STORAGE_8], "memory of 8 bits"},
                  {f.v11.is[VULKAN_FEATURE_STORAGE_16], "memory of 16 bits"},
                  {f.all.is[VULKAN_FEATURE_INT16], "integers of 16 bits"}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!needed[i].is) return needed[i].name;
    }
    return NULL;
}

static uint32_t vulkan_pushed(const struct vulkan_properties * properties) {
    return properties->limits.push_constants < VULKAN_MOST_PUSHED ? properties->limits.push_constants : VULKAN_MOST_PUSHED;
}

static void vulkan_give_back(struct vulkan_driver * driver) {
    if (driver->instance != NULL) driver->vk.DestroyInstance(driver->instance, NULL);
    gpu_library_close(driver->library);
    free(driver);
}

static enum gpu_status vulkan_missing(const char * name) { return gpu_say("the driver has no vk%s; it is too old", name), GPU_FAILED; }

/// Have a device among those that are used, or say what it lacks.
static void vulkan_take(struct vulkan_driver * driver, vulkan_object device, const char ** lacks) {
    const char * found = vulkan_lacking(driver, device);
    if (found != NULL) *lacks = found;
    else if (driver->count < VULKAN_MOST_DEVICES) driver->devices[driver->count++] = device;
}

/// As ggml's own backend does it: the devices that GGML_VK_VISIBLE_DEVICES names by their numbers, or all that are no software.
static enum gpu_status vulkan_choose(struct vulkan_driver * driver, const vulkan_object * all, uint32_t count) {
    const char *named = getenv("GGML_VK_VISIBLE_DEVICES"), *lacks = NULL;
    if (count == 0) return gpu_say("no driver has a device"), GPU_FAILED;
    if (named != NULL) {
        for (char * end = NULL; *named != 0; named = *end == ',' ? end + 1 : end) {
            const unsigned long number = strtoul(named, &end, 10);
            if (end == named || number >= count) return gpu_say("GGML_VK_VISIBLE_DEVICES: there are devices 0 to %u", count - 1), GPU_FAILED;
            vulkan_take(driver, all[number], &lacks);
        }
    } else {
        for (uint32_t i = 0; i < count; i++) {
            struct vulkan_properties properties = {.head = vulkan_made(VULKAN_PROPERTIES_2, NULL)};
            driver->vk.GetPhysicalDeviceProperties2(all[i], &properties);
            if (properties.type != VULKAN_SOFTWARE) vulkan_take(driver, all[i], &lacks);
        }
    }
    if (driver->count > 0) return GPU_DONE;
    if (lacks != NULL) return gpu_say("no device has what kernels need: %s", lacks), GPU_FAILED;
    return gpu_say("there are devices of software alone, which are passed over unless GGML_VK_VISIBLE_DEVICES=0 names one"), GPU_FAILED;
}

static enum gpu_status vulkan_start(struct vulkan_driver * driver) {
    *(void **) &driver->get = gpu_library_find(driver->library, "vkGetInstanceProcAddr");
    if (driver->get == NULL) return vulkan_missing("GetInstanceProcAddr");
#define FIND(name, gives, takes)                                                              \
    *(void **) &driver->vk.name = driver->get(driver->instance, "vk" #name);                  \
    if (driver->vk.name == NULL) return vulkan_missing(#name);
    VULKAN_LIBRARY_CALLS(FIND)
    const struct vulkan_application application = {vulkan_made(VULKAN_APPLICATION_INFO, NULL), "graphc", 0, "graphc", 0, VULKAN_VERSION_1_3};
    const struct vulkan_instance_info info = {.head = vulkan_made(VULKAN_INSTANCE_INFO, NULL), .application = &application};
    VULKAN_TRY(&driver->vk, CreateInstance, &info, NULL, &driver->instance);
    VULKAN_INSTANCE_CALLS(FIND)
#undef FIND
    vulkan_object all[VULKAN_MOST_DEVICES];
    uint32_t count = VULKAN_MOST_DEVICES;
    const int code = driver->vk.EnumeratePhysicalDevices(driver->instance, &count, all);
    if (code != VULKAN_INCOMPLETE) VULKAN_CHECK(vulkan_result(code, "EnumeratePhysicalDevices"));
    return vulkan_choose(driver, all, count);
}

static void vulkan_close(struct gpu_driver * driver) { vulkan_give_back((struct vulkan_driver *) driver); }

static enum gpu_status vulkan_open(const char * file, struct gpu_driver ** opened, int * count) {
    struct vulkan_driver * driver = (struct vulkan_driver *) calloc(1, sizeof *driver);
    if (driver == NULL) return vulkan_no_memory();
    const size_t places = file != NULL ? 1 : sizeof vulkan_files / sizeof *vulkan_files;
    for (size_t i = 0; driver->library == NULL && i < places; i++) {
        driver->library = gpu_library_open(file != NULL ? file : vulkan_files[i]);
        if (driver->library == NULL && i == 0) gpu_say("%s", gpu_library_error());
    }
    if (driver->library == NULL) return free(driver), GPU_FAILED;
    const enum gpu_status status = vulkan_start(driver);
    if (status != GPU_DONE) return vulkan_give_back(driver), status;
    *opened = (struct gpu_driver *) driver, *count = driver->count;
    return GPU_DONE;
}

/// Append the shapes of float16 matrices whose products are added in float32.
static enum gpu_status vulkan_matrices(const struct vulkan_driver * driver, vulkan_object device, char * text, size_t room) {
    int32_t (VULKAN_CALL * ask)(vulkan_object, uint32_t *, struct vulkan_shape *) = NULL;
    *(void **) &ask = driver->get(driver->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    struct vulkan_shape shapes[64];
    uint32_t count = sizeof shapes / sizeof *shapes;
    if (ask == NULL) return GPU_DONE;
    for (uint32_t i = 0; i < count; i++) shapes[i] = (struct vulkan_shape) {.head = vulkan_made(VULKAN_COOPERATIVE_SHAPE, NULL)};
    const int code = ask(device, &count, shapes);
    if (code != VULKAN_INCOMPLETE) VULKAN_CHECK(vulkan_result(code, "GetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    size_t used = 0;
    for (uint32_t i = 0; i < count && used + 16 < room; i++) {
        const struct vulkan_shape * s = &shapes[i];
        if (s->scope != VULKAN_SCOPE_SUBGROUP || s->a != VULKAN_HALF || s->b != VULKAN_HALF || s->c != VULKAN_SINGLE || s->result != VULKAN_SINGLE) continue;
        used += (size_t) snprintf(text + used, room - used, "%s%ux%ux%u", used == 0 ? "" : " ", s->m, s->n, s->k);
    }
    return GPU_DONE;
}

static enum gpu_status vulkan_describe(struct gpu_driver * handle, int index, struct gpu_facts * facts) {
    const struct vulkan_driver * driver = (const struct vulkan_driver *) handle;
    const vulkan_object device = driver->devices[index];
    bool has_pci = false, layout = false, cooperative = false;
    VULKAN_CHECK(vulkan_has_extension(driver, device, "VK_EXT_pci_bus_info", &has_pci));
    VULKAN_CHECK(vulkan_extensions(driver, device, &layout, &cooperative));
    struct vulkan_pci pci = {.head = vulkan_made(VULKAN_PCI, NULL)};
    struct vulkan_maintenance limits = {.head = vulkan_made(VULKAN_MAINTENANCE_3, has_pci ? &pci : NULL)};
    struct vulkan_subgroup_sizes sizes = {.head = vulkan_made(VULKAN_SUBGROUP_SIZES, &limits)};
    struct vulkan_subgroup subgroup = {.head = vulkan_made(VULKAN_SUBGROUP_PROPERTIES, &sizes)};
    struct vulkan_properties properties = {.head = vulkan_made(VULKAN_PROPERTIES_2, &subgroup)};
    struct vulkan_memory_kinds memory = {.head = vulkan_made(VULKAN_MEMORY_PROPERTIES_2, NULL)};
    struct vulkan_device_features has;
    vulkan_chain(&has, layout, cooperative);
    driver->vk.GetPhysicalDeviceProperties2(device, &properties);
    driver->vk.GetPhysicalDeviceMemoryProperties2(device, &memory);
    driver->vk.GetPhysicalDeviceFeatures2(device, &has.all);
    memset(facts, 0, sizeof *facts);
    snprintf(facts->description, sizeof facts->description, "%.255s", properties.name);
    if (has_pci) snprintf(facts->address, sizeof facts->address, "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device, pci.function);
    facts->lanes = (int) vulkan_lanes(&subgroup, &sizes), facts->arguments = vulkan_pushed(&properties);
    snprintf(facts->architecture, sizeof facts->architecture, "vulkan_%d", facts->lanes);
    const bool sees_all = has.layout.is[0] && has.layout.is[2] && has.layout.is[3];
    snprintf(facts->abilities, sizeof facts->abilities, "%s%s%s%s", sees_all ? " layout" : "", has.all.is[VULKAN_FEATURE_FLOAT64] ? " float64" : "",
             has.all.is[VULKAN_FEATURE_INT64] ? " int64" : "", properties.type == VULKAN_SOFTWARE ? "" : " fused");
    facts->integrated = properties.type == VULKAN_INTEGRATED || properties.type == VULKAN_SOFTWARE;
    for (uint32_t i = 0; i < memory.heap_count; i++) {
        if (memory.heaps[i].flags & 1) facts->memory += (size_t) memory.heaps[i].size;
    }
    facts->largest = limits.largest < facts->memory ? (size_t) limits.largest : facts->memory;
    facts->shared = properties.limits.shared, facts->threads = (int) properties.limits.invocations;
    return has.cooperative.is[0] ? vulkan_matrices(driver, device, facts->matrices, sizeof facts->matrices) : GPU_DONE;
}

/// The family of queues that computes; one that cannot draw too, if there is none.
static uint32_t vulkan_computing_family(const struct vulkan_driver * driver, vulkan_object device) {
    struct vulkan_family families[32];
    uint32_t count = 32, found = 0;
    driver->vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, families);
    for (uint32_t i = count; i-- > 0;) {
        if (families[i].flags & VULKAN_QUEUE_COMPUTE) found = i;
    }
    return found;
}

static void vulkan_device_close(struct gpu_device * device) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    if (d->device != NULL && d->vk.DestroyDevice != NULL) {
        if (d->layout != 0) d->vk.DestroyPipelineLayout(d->device, d->layout, NULL);
        if (d->timeline != 0) d->vk.DestroySemaphore(d->device, d->timeline, NULL);
        d->vk.DestroyDevice(d->device, NULL);
    }
    free(d);
}

/// A device with all that our kernels use and it has.
static enum gpu_status vulkan_create(struct vulkan_device * d) {
    const struct vulkan_library * vk = &d->driver->vk;
    bool layout = false, cooperative = false;
    VULKAN_CHECK(vulkan_extensions(d->driver, d->physical, &layout, &cooperative));
    VULKAN_CHECK(vulkan_has_extension(d->driver, d->physical, VULKAN_BUDGET_EXTENSION, &d->has_budget));
    struct vulkan_device_features has, used;
    vulkan_chain(&has, layout, cooperative);
    vulkan_chain(&used, layout, cooperative);
    vk->GetPhysicalDeviceFeatures2(d->physical, &has.all);
    static const int all[] = {VULKAN_FEATURE_FLOAT64, VULKAN_FEATURE_INT64, VULKAN_FEATURE_INT16};
    static const int v12[] = {VULKAN_FEATURE_STORAGE_8, VULKAN_FEATURE_FLOAT16, VULKAN_FEATURE_INT8, VULKAN_FEATURE_SUBGROUP_TYPES,
                              VULKAN_FEATURE_TIMELINE,  VULKAN_FEATURE_ADDRESS, VULKAN_FEATURE_MEMORY_MODEL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) used.all.is[all[i]] = has.all.is[all[i]];
    for (size_t i = 0; i < sizeof v12 / sizeof *v12; i++) used.v12.is[v12[i]] = has.v12.is[v12[i]];
    used.v11.is[VULKAN_FEATURE_STORAGE_16] = has.v11.is[VULKAN_FEATURE_STORAGE_16];
    used.v13.is[VULKAN_FEATURE_SUBGROUP_SIZES] = has.v13.is[VULKAN_FEATURE_SUBGROUP_SIZES];
    used.v13.is[VULKAN_FEATURE_FULL_SUBGROUPS] = has.v13.is[VULKAN_FEATURE_FULL_SUBGROUPS];
    memcpy(used.layout.is, has.layout.is, sizeof used.layout.is);
    used.cooperative.is[0] = has.cooperative.is[0];
    d->cooperative = has.cooperative.is[0] != 0;
    d->can_choose_subgroup = has.v13.is[VULKAN_FEATURE_SUBGROUP_SIZES] != 0;
    const char * names[3] = {NULL};
    uint32_t count = 0;
    if (layout) names[count++] = VULKAN_LAYOUT_EXTENSION;
    if (cooperative) names[count++] = VULKAN_COOPERATIVE_EXTENSION;
    if (d->has_budget) names[count++] = VULKAN_BUDGET_EXTENSION;
    const float priority = 1;
    d->family = vulkan_computing_family(d->driver, d->physical);
    const struct vulkan_queue_info queue = {vulkan_made(VULKAN_QUEUE_INFO, NULL), 0, d->family, 1, &priority};
    const struct vulkan_device_info info = {vulkan_made(VULKAN_DEVICE_INFO, &used.all), 0, 1, &queue, 0, NULL, count, names, NULL};
    VULKAN_TRY(vk, CreateDevice, d->physical, &info, NULL, &d->device);
#define FIND(name, gives, takes)                                                              \
    *(void **) &d->vk.name = vk->GetDeviceProcAddr(d->device, "vk" #name);                    \
    if (d->vk.name == NULL) return vulkan_missing(#name);
    VULKAN_DEVICE_CALLS(FIND)
#undef FIND
    d->vk.GetDeviceQueue(d->device, d->family, 0, &d->queue);
    return GPU_DONE;
}

static enum gpu_status vulkan_prepare(struct vulkan_device * d) {
    VULKAN_CHECK(vulkan_create(d));
    d->sizes.head = vulkan_made(VULKAN_SUBGROUP_SIZES, NULL);
    d->subgroup.head = vulkan_made(VULKAN_SUBGROUP_PROPERTIES, &d->sizes);
    d->properties.head = vulkan_made(VULKAN_PROPERTIES_2, &d->subgroup);
    d->memory.head = vulkan_made(VULKAN_MEMORY_PROPERTIES_2, NULL);
    d->driver->vk.GetPhysicalDeviceProperties2(d->physical, &d->properties);
    d->driver->vk.GetPhysicalDeviceMemoryProperties2(d->physical, &d->memory);
    d->pushed = vulkan_pushed(&d->properties);
    const struct vulkan_push_range range = {VULKAN_STAGE_COMPUTE, 0, d->pushed};
    const struct vulkan_layout_info layout = {.head = vulkan_made(VULKAN_LAYOUT_INFO, NULL), .range_count = 1, .ranges = &range};
    VULKAN_TRY(&d->vk, CreatePipelineLayout, d->device, &layout, NULL, &d->layout);
    const struct vulkan_semaphore_type kind = {vulkan_made(VULKAN_SEMAPHORE_TYPE, NULL), VULKAN_TIMELINE, 0};
    const struct vulkan_semaphore_info semaphore = {vulkan_made(VULKAN_SEMAPHORE_INFO, &kind), 0};
    VULKAN_TRY(&d->vk, CreateSemaphore, d->device, &semaphore, NULL, &d->timeline);
    return GPU_DONE;
}

static enum gpu_status vulkan_device_open(struct gpu_driver * handle, int index, struct gpu_device ** opened) {
    struct vulkan_driver * driver = (struct vulkan_driver *) handle;
    struct vulkan_device * d = (struct vulkan_device *) calloc(1, sizeof *d);
    if (d == NULL) return vulkan_no_memory();
    d->driver = driver, d->physical = driver->devices[index];
    gpu_lock_new(&d->lock);
    const enum gpu_status status = vulkan_prepare(d);
    if (status == GPU_DONE) *opened = (struct gpu_device *) d;
    else vulkan_device_close((struct gpu_device *) d);
    return status;
}

const struct gpu_calls graphc_gpu_vulkan = {
    .open = vulkan_open,
    .close = vulkan_close,
    .describe = vulkan_describe,
    .device_open = vulkan_device_open,
    .device_close = vulkan_device_close,
    .free_memory = vulkan_free_memory,
    .allocate = vulkan_allocate,
    .release = vulkan_release,
    .queue_new = vulkan_queue_new,
    .queue_free = vulkan_queue_free,
    .wait = vulkan_wait,
    .upload = vulkan_upload,
    .download = vulkan_download,
    .copy = vulkan_copy,
    .fill = vulkan_fill,
    .event_new = vulkan_event_new,
    .event_free = vulkan_event_free,
    .event_record = vulkan_event_record,
    .event_wait = vulkan_event_wait,
    .event_synchronize = vulkan_event_synchronize,
    .event_seconds = vulkan_event_seconds,
    .module_load = vulkan_module_load,
    .module_free = vulkan_module_free,
    .kernel_find = vulkan_kernel_find,
    .launch = vulkan_launch,
    .record_begin = vulkan_record_begin,
    .record_end = vulkan_record_end,
    .replay = vulkan_replay,
    .recording_free = vulkan_recording_free,
};
