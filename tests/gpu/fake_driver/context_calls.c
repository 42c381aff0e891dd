// Devices, contexts and memory.
#include "doing.h"

int cuInit(unsigned flags) {
    (void) flags;
    const int code = begin("cuInit", false);
    const char *count = getenv("FAKE_CUDA_DEVICES"), *memory = getenv("FAKE_CUDA_MEMORY");
    device_count = count == NULL ? 2 : atoi(count);
    if (device_count > MOST_DEVICES) device_count = MOST_DEVICES;
    if (memory != NULL) memory_size = (size_t) atoll(memory);
    initialized = initialized || code == 0;
    return end(code != 0 ? code : device_count == 0 ? NO_DEVICE : 0);
}

static int begin_device(const char * name, int device) {
    const int code = begin(name, false);
    if (code != 0) return code;
    return !initialized ? NOT_INITIALIZED : device < 0 || device >= device_count ? INVALID_DEVICE : 0;
}

int cuGetErrorName(int code, const char ** name) {
    const int failed = begin("cuGetErrorName", false);
    if (failed != 0) return end(failed);
    *name = code == FULL                  ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == NO_DEVICE           ? "CUDA_ERROR_NO_DEVICE"
            : code == ILLEGAL_ADDRESS     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == INVALID_VALUE       ? "CUDA_ERROR_INVALID_VALUE"
            : code == INVALID_IMAGE       ? "CUDA_ERROR_INVALID_IMAGE"
            : code == NOT_FOUND           ? "CUDA_ERROR_NOT_FOUND"
            : code == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                          : NULL;
    return end(*name == NULL ? INVALID_VALUE : 0);
}

int cuGetErrorString(int code, const char ** text) {
    const int failed = begin("cuGetErrorString", false);
    if (failed != 0) return end(failed);
    *text = code == FULL ? "out of memory" : code == NO_DEVICE ? "no CUDA-capable device is detected" : "as a test wants it";
    return end(0);
}

int cuDeviceGetCount(int * count) {
    const int code = begin_device("cuDeviceGetCount", 0);
    *count = device_count;
    return end(code);
}

int cuDeviceGet(int * device, int index) {
    const int code = begin_device("cuDeviceGet", index);
    *device = index;
    return end(code);
}

int cuDeviceGetName(char * name, int size, int device) {
    const int code = begin_device("cuDeviceGetName", device);
    snprintf(name, (size_t) size, "Emulated GPU");
    return end(code);
}

int cuDeviceGetPCIBusId(char * text, int size, int device) {
    const int code = begin_device("cuDeviceGetPCIBusId", device);
    snprintf(text, (size_t) size, "0000:C%d:00.0", device);
    return end(code);
}

int cuDeviceTotalMem_v2(size_t * size, int device) {
    const int code = begin_device("cuDeviceTotalMem", device);
    *size = memory_size;
    return end(code);
}

int cuDeviceGetAttribute(int * value, int attribute, int device) {
    static const int known[][2] = {{16, 132}, {18, 0}, {38, 50 << 20}, {39, 2048}, {75, 9}, {76, 0}, {82, 65536}, {97, MOST_SHARED}};
    const int code = begin_device("cuDeviceGetAttribute", device);
    for (size_t i = 0; code == 0 && i < sizeof known / sizeof *known; i++) {
        if (known[i][0] == attribute) return *value = known[i][1], end(0);
    }
    return end(code != 0 ? code : INVALID_VALUE);
}

int cuDevicePrimaryCtxRetain(void ** context, int device) {
    const int code = begin_device("cuDevicePrimaryCtxRetain", device);
    if (code != 0) return end(code);
    devices[device].users++;
    *context = &devices[device];
    return end(0);
}

/// With its last user a context ends, and with it all that is left in it.
int cuDevicePrimaryCtxRelease_v2(int device) {
    const int code = begin_device("cuDevicePrimaryCtxRelease", device);
    if (devices[device].users == 0) return misuse("a context that nobody has is given back"), end(INVALID_CONTEXT);
    if (--devices[device].users > 0) return end(code);
    for (struct object *each = objects, *next; each != NULL; each = next) {
        next = each->next;
        if (each->device != device) continue;
        if (!each->dead && each->kind != FUNCTION) misuse("a context ends that still has a %s", kinds[each->kind]);
        destroy(each);
    }
    devices[device].lost = 0;
    return end(code);
}

int cuCtxPushCurrent_v2(void * context) {
    const int code = begin("cuCtxPushCurrent", false);
    const int device = (int) ((struct device *) context - devices);
    if (code != 0) return end(code);
    if (device < 0 || device >= device_count || devices[device].users == 0) return misuse("a context that is not there"), end(INVALID_CONTEXT);
    if (depth == MOST_DEPTH) return misuse("contexts are not taken back"), end(INVALID_CONTEXT);
    stack[depth++] = device;
    return end(0);
}

int cuCtxPopCurrent_v2(void ** context) {
    const int code = begin("cuCtxPopCurrent", false);
    if (depth == 0) return misuse("no context is current"), end(INVALID_CONTEXT);
    *context = &devices[stack[--depth]];  // also if it fails: a test wants to see what is said of it
    return end(code);
}

int cuCtxSynchronize(void) {
    BEGIN("cuCtxSynchronize");
    return end(disturbs_capture() ? CAPTURE_UNSUPPORTED : drain_all(here()));
}

// --- memory

int cuMemGetInfo_v2(size_t * free, size_t * total) {
    BEGIN("cuMemGetInfo");
    *free = memory_size - devices[here()].used, *total = memory_size;
    return end(0);
}

int cuMemAlloc_v2(address * place, size_t size) {
    BEGIN("cuMemAlloc");
    if (disturbs_capture()) return end(CAPTURE_UNSUPPORTED);
    if (size == 0) return end(INVALID_VALUE);
    if (size > memory_size - devices[here()].used) return end(FULL);
    struct object * made = new_object(MEMORY);
    made->zones = aligned_alloc(ZONE, (size + 2 * ZONE + ZONE - 1) / ZONE * ZONE);
    made->size = size;
    devices[here()].used += size;
    memset(made->zones, 0x5a, size + 2 * ZONE);
    memset(start_of(made), 0xff, size);  // NaN
    *place = THERE | (uintptr_t) start_of(made);
    return end(0);
}

int cuMemFree_v2(address place) {
    const int code = begin("cuMemFree", true);
    if (depth > 0) drain_all(here());
    for (struct object * each = objects; each != NULL; each = each->next) {
        if (each->kind != MEMORY || (THERE | (uintptr_t) start_of(each)) != place) continue;
        if (!zones_are_whole(each)) misuse("something wrote around an allocation");
        destroy(each);
        return end(code);
    }
    misuse("memory that is not there is given back");
    return end(INVALID_VALUE);
}

int cuMemcpyHtoDAsync_v2(address to, const void * from, size_t size, void * stream) {
    BEGIN("cuMemcpyHtoDAsync");
    if (at(to, size) == NULL) return end(INVALID_VALUE);
    return end(queue(stream, &(struct operation) {.doing = UPLOAD, .to = to, .source = from, .size = size}));
}

int cuMemcpyDtoHAsync_v2(void * to, address from, size_t size, void * stream) {
    BEGIN("cuMemcpyDtoHAsync");
    if (at(from, size) == NULL) return end(INVALID_VALUE);
    return end(queue(stream, &(struct operation) {.doing = DOWNLOAD, .host = to, .from = from, .size = size}));
}

int cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void * stream) {
    BEGIN("cuMemcpyDtoDAsync");
    if (at(to, size) == NULL || at(from, size) == NULL) return end(INVALID_VALUE);
    return end(queue(stream, &(struct operation) {.doing = COPY, .to = to, .from = from, .size = size}));
}

int cuMemcpyPeerAsync(address to, void * to_context, address from, void * from_context, size_t size, void * stream) {
    BEGIN("cuMemcpyPeerAsync");
    if (to_context == from_context || at(to, size) == NULL || at(from, size) == NULL) return end(INVALID_VALUE);
    return end(queue(stream, &(struct operation) {.doing = COPY, .to = to, .from = from, .size = size}));
}

int cuMemsetD8Async(address to, unsigned char value, size_t size, void * stream) {
    BEGIN("cuMemsetD8Async");
    if (at(to, size) == NULL) return end(INVALID_VALUE);
    return end(queue(stream, &(struct operation) {.doing = FILL, .to = to, .value = value, .size = size}));
}
