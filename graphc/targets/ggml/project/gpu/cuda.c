// NVIDIA's devices, by libcuda as the driver installs it: neither a toolkit nor its headers are needed.
//
// A device has its primary context, which others in the process (PyTorch, ggml's own backend) use too. Each function makes it the
// thread's current one and puts back what was current before.

#include "cuda_calls.h"
#include "driver.h"
#include "library.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu_driver {
    struct cuda_library cu;
    void * library;
    bool records, launches_early;
};

struct gpu_device {
    struct gpu_driver * driver;
    const struct cuda_library * cu;
    int device;
    void * context;
};

enum {
    KNOWN_SHARED = 48 << 10,  // bytes that a kernel may have without being told
    LOG_SIZE = 512,
    LEAST_THAT_WAITS = 90,  // the architecture from which on kernels can wait for others: of sm_90
};

#ifdef _WIN32
static const char * const files[] = {"nvcuda.dll"};
#else
static const char * const files[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
#endif

/// After these a context does nothing any more.
static bool is_lost(int code) {
    static const int codes[] = {4, 46, 201, 214, 219, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911, 999};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (code == codes[i]) return true;
    }
    return false;
}

static enum gpu_status result(const struct cuda_library * cu, int code, const char * call) {
    if (code == 0) return GPU_DONE;
    const char *name = NULL, *text = NULL;
    char number[32];
    snprintf(number, sizeof number, "error %d", code);
    cu->GetErrorName(code, &name);
    cu->GetErrorString(code, &text);
    gpu_say("%s: %s (%s)", call, name == NULL ? number : name, text == NULL ? "no text" : text);
    return code == CUDA_OUT_OF_MEMORY ? GPU_FULL : is_lost(code) ? GPU_LOST : GPU_FAILED;
}

/// Leave a function of the driver's if a call fails.
#define TRY(cu, name, ...)                                                                    \
    do {                                                                                      \
        const enum gpu_status status_ = result(cu, (cu)->name(__VA_ARGS__), "cu" #name);      \
        if (status_ != GPU_DONE) return status_;                                              \
    } while (0)

static enum gpu_status enter(const struct gpu_device * d) { return result(d->cu, d->cu->CtxPushCurrent(d->context), "cuCtxPushCurrent"); }

static enum gpu_status leave(const struct gpu_device * d, enum gpu_status status) {
    void * context = NULL;
    const int code = d->cu->CtxPopCurrent(&context);
    return status == GPU_DONE ? result(d->cu, code, "cuCtxPopCurrent") : status;
}

/// One call in the device's context.
#define INSIDE(d, name, ...)                                                                  \
    do {                                                                                      \
        const enum gpu_status entered_ = enter(d);                                            \
        if (entered_ != GPU_DONE) return entered_;                                            \
        return leave(d, result((d)->cu, (d)->cu->name(__VA_ARGS__), "cu" #name));             \
    } while (0)

/// The same for what must be done, such as giving something back: it is tried twice, and then without the context.
static enum gpu_status enter_surely(const struct gpu_device * d, bool * entered) {
    const enum gpu_status first = enter(d);
    *entered = first == GPU_DONE || d->cu->CtxPushCurrent(d->context) == 0;
    return first;
}

#define GIVE_BACK(d, name, ...)                                                               \
    do {                                                                                      \
        bool entered_ = false;                                                                \
        enter_surely(d, &entered_);                                                           \
        (d)->cu->name(__VA_ARGS__);                                                           \
        if (entered_) leave(d, GPU_DONE);                                                     \
    } while (0)

static cuda_address address_of(struct gpu_place place) { return (cuda_address) (uintptr_t) place.memory + place.offset; }

static bool find_all(struct gpu_driver * driver, const char ** missing) {
    driver->records = true;
    *missing = NULL;
#define FIND(name, there, parameters)                                                         \
    *(void **) &driver->cu.name = gpu_library_find(driver->library, #there);                  \
    if (driver->cu.name == NULL && *missing == NULL) *missing = #there;
    CUDA_CALLS(FIND)
    if (*missing != NULL) return false;
    CUDA_GRAPH_CALLS(FIND)
    driver->records = *missing == NULL;
    *missing = NULL;
    CUDA_EARLY_CALLS(FIND)
    driver->launches_early = *missing == NULL && getenv("GRAPHC_EARLY_KERNELS") != NULL;  // no device has done it yet
#undef FIND
    return true;
}

static enum gpu_status start(struct gpu_driver * driver, int * count) {
    TRY(&driver->cu, Init, 0);
    TRY(&driver->cu, DeviceGetCount, count);
    if (*count > 0) return GPU_DONE;
    return result(&driver->cu, CUDA_NO_DEVICE, "cuDeviceGetCount");
}

static void cuda_close(struct gpu_driver * driver) {
    gpu_library_close(driver->library);
    free(driver);
}

static enum gpu_status cuda_open(const char * file, struct gpu_driver ** opened, int * count) {
    struct gpu_driver * driver = (struct gpu_driver *) calloc(1, sizeof *driver);
    if (driver == NULL) return gpu_say("the host has no memory left"), GPU_FAILED;
    const char * missing = NULL;
    const size_t places = file != NULL ? 1 : sizeof files / sizeof *files;
    for (size_t i = 0; driver->library == NULL && i < places; i++) {
        driver->library = gpu_library_open(file != NULL ? file : files[i]);
        if (driver->library == NULL && i == 0) gpu_say("%s", gpu_library_error());
    }
    if (driver->library == NULL) return free(driver), GPU_FAILED;
    enum gpu_status status = GPU_FAILED;
    if (!find_all(driver, &missing)) {
        gpu_say("the driver has no %s; it is too old", missing);
    } else {
        status = start(driver, count);
    }
    if (status == GPU_DONE) *opened = driver;
    else cuda_close(driver);
    return status;
}

static enum gpu_status cuda_describe(struct gpu_driver * driver, int index, struct gpu_facts * facts) {
    const struct cuda_library * cu = &driver->cu;
    int device = 0, major = 0, minor = 0, shared = 0, cache = 0, integrated = 0;
    TRY(cu, DeviceGet, &device, index);
    TRY(cu, DeviceGetName, facts->description, (int) sizeof facts->description, device);
    TRY(cu, DeviceGetPCIBusId, facts->address, (int) sizeof facts->address, device);
    TRY(cu, DeviceTotalMem, &facts->memory, device);
    const struct {
        int attribute, *value;
    } wanted[] = {{CUDA_ATTRIBUTE_MAJOR, &major},
                  {CUDA_ATTRIBUTE_MINOR, &minor},
                  {CUDA_ATTRIBUTE_SHARED, &shared},
                  {CUDA_ATTRIBUTE_CACHE, &cache},
                  {CUDA_ATTRIBUTE_INTEGRATED, &integrated},
                  {CUDA_ATTRIBUTE_MULTIPROCESSORS, &facts->multiprocessors},
                  {CUDA_ATTRIBUTE_REGISTERS, &facts->registers},
                  {CUDA_ATTRIBUTE_THREADS, &facts->threads}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) TRY(cu, DeviceGetAttribute, wanted[i].value, wanted[i].attribute, device);
    for (char * each = facts->address; *each != 0; each++) *each = (char) tolower((unsigned char) *each);
    snprintf(facts->architecture, sizeof facts->architecture, "sm_%d%d", major, minor);
    facts->integrated = integrated != 0, facts->shared = (size_t) shared, facts->cache = (size_t) cache;
    facts->largest = facts->memory, facts->lanes = 32, facts->arguments = 4096;
    return GPU_DONE;
}

static enum gpu_status cuda_device_open(struct gpu_driver * driver, int index, struct gpu_device ** opened) {
    struct gpu_device * d = (struct gpu_device *) calloc(1, sizeof *d);
    if (d == NULL) return gpu_say("the host has no memory left"), GPU_FAILED;
    d->driver = driver, d->cu = &driver->cu;
    enum gpu_status status = result(d->cu, d->cu->DeviceGet(&d->device, index), "cuDeviceGet");
    if (status == GPU_DONE) status = result(d->cu, d->cu->DevicePrimaryCtxRetain(&d->context, d->device), "cuDevicePrimaryCtxRetain");
    if (status == GPU_DONE) *opened = d;
    else free(d);
    return status;
}

static void cuda_device_close(struct gpu_device * d) {
    d->cu->DevicePrimaryCtxRelease(d->device);
    free(d);
}

static enum gpu_status cuda_free_memory(struct gpu_device * d, size_t * free, size_t * total) { INSIDE(d, MemGetInfo, free, total); }

static enum gpu_status cuda_allocate(struct gpu_device * d, size_t size, struct gpu_memory ** memory, void ** base) {
    cuda_address address = 0;
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    const enum gpu_status status = result(d->cu, d->cu->MemAlloc(&address, size), "cuMemAlloc");
    *memory = (struct gpu_memory *) (uintptr_t) address, *base = (void *) (uintptr_t) address;
    const enum gpu_status left = leave(d, status);
    if (status == GPU_DONE && left != GPU_DONE) GIVE_BACK(d, MemFree, address);
    return left;
}

static void cuda_release(struct gpu_device * d, struct gpu_memory * memory) { GIVE_BACK(d, MemFree, (cuda_address) (uintptr_t) memory); }

static enum gpu_status cuda_queue_new(struct gpu_device * d, struct gpu_queue ** queue) {
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    const enum gpu_status status = result(d->cu, d->cu->StreamCreate((void **) queue, CUDA_STREAM_NON_BLOCKING), "cuStreamCreate");
    const enum gpu_status left = leave(d, status);
    if (status == GPU_DONE && left != GPU_DONE) GIVE_BACK(d, StreamDestroy, *queue);
    return left;
}

static void cuda_queue_free(struct gpu_device * d, struct gpu_queue * queue) { GIVE_BACK(d, StreamDestroy, queue); }

static enum gpu_status cuda_wait(struct gpu_device * d, struct gpu_queue * queue) { INSIDE(d, StreamSynchronize, queue); }

static enum gpu_status cuda_upload(struct gpu_device * d, struct gpu_queue * queue, struct gpu_place to, const void * from, size_t size) {
    INSIDE(d, MemcpyHtoDAsync, address_of(to), from, size, queue);
}

static enum gpu_status cuda_download(struct gpu_device * d, struct gpu_queue * queue, void * to, struct gpu_place from, size_t size) {
    INSIDE(d, MemcpyDtoHAsync, to, address_of(from), size, queue);
}

static enum gpu_status cuda_copy(struct gpu_device * d, struct gpu_queue * queue, struct gpu_place to, struct gpu_device * source,
                                 struct gpu_place from, size_t size) {
    if (source == d) INSIDE(d, MemcpyDtoDAsync, address_of(to), address_of(from), size, queue);
    INSIDE(d, MemcpyPeerAsync, address_of(to), d->context, address_of(from), source->context, size, queue);
}

static enum gpu_status cuda_fill(struct gpu_device * d, struct gpu_queue * queue, struct gpu_place to, uint8_t value, size_t size) {
    INSIDE(d, MemsetD8Async, address_of(to), value, size, queue);
}

static enum gpu_status cuda_event_new(struct gpu_device * d, bool timed, struct gpu_event ** event) {
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    const int code = d->cu->EventCreate((void **) event, timed ? 0 : CUDA_EVENT_DISABLE_TIMING);
    const enum gpu_status left = leave(d, result(d->cu, code, "cuEventCreate"));
    if (code == 0 && left != GPU_DONE) GIVE_BACK(d, EventDestroy, *event);
    return left;
}

static void cuda_event_free(struct gpu_device * d, struct gpu_event * event) { GIVE_BACK(d, EventDestroy, event); }

static enum gpu_status cuda_event_record(struct gpu_device * d, struct gpu_queue * queue, struct gpu_event * event) {
    INSIDE(d, EventRecord, event, queue);
}

static enum gpu_status cuda_event_wait(struct gpu_device * d, struct gpu_queue * queue, struct gpu_event * event) {
    INSIDE(d, StreamWaitEvent, queue, event, 0);
}

static enum gpu_status cuda_event_synchronize(struct gpu_device * d, struct gpu_event * event) { INSIDE(d, EventSynchronize, event); }

static enum gpu_status cuda_event_seconds(struct gpu_device * d, struct gpu_event * begin, struct gpu_event * end, double * seconds) {
    float milliseconds = 0;
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    const enum gpu_status status = result(d->cu, d->cu->EventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
    *seconds = milliseconds / 1e3;
    return leave(d, status);
}

/// PTX is text that a 0 ends, which `image` need not have. What its compiler says becomes part of the error.
static enum gpu_status cuda_module_load(struct gpu_device * d, const void * image, size_t size, struct gpu_module ** module) {
    char log[LOG_SIZE] = "";
    char * copy = (char *) calloc(1, size + 1);
    if (copy == NULL) return gpu_say("the host has no memory left"), GPU_FAILED;
    memcpy(copy, image, size);
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return free(copy), entered;
    int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_SIZE};
    void * values[] = {log, (void *) (uintptr_t) sizeof log};
    const int code = d->cu->ModuleLoadDataEx((void **) module, copy, 2, options, values);
    log[LOG_SIZE - 1] = 0;
    char call[LOG_SIZE + 64] = "cuModuleLoadDataEx";
    if (log[0] != 0) snprintf(call, sizeof call, "cuModuleLoadDataEx: %s", log);
    const enum gpu_status left = leave(d, result(d->cu, code, call));
    free(copy);
    if (code == 0 && left != GPU_DONE) GIVE_BACK(d, ModuleUnload, *module);
    return left;
}

static void cuda_module_free(struct gpu_device * d, struct gpu_module * module) {
    bool entered = false;
    enter_surely(d, &entered);
    d->cu->CtxSynchronize();
    d->cu->ModuleUnload(module);
    if (entered) leave(d, GPU_DONE);
}

static enum gpu_status find_kernel(const struct gpu_device * d, void * module, const char * name, uint32_t shared, void ** kernel) {
    TRY(d->cu, ModuleGetFunction, kernel, module, name);
    if (shared > KNOWN_SHARED) TRY(d->cu, FuncSetAttribute, *kernel, CUDA_FUNCTION_MAX_SHARED, (int) shared);
    return GPU_DONE;
}

static enum gpu_status cuda_kernel_find(struct gpu_device * d, struct gpu_module * module, const char * name, uint32_t shared,
                                        struct gpu_kernel ** kernel) {
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    return leave(d, find_kernel(d, module, name, shared, (void **) kernel));
}

/// True for kernels that wait for those before them, before they read or write anything: all whose code is of an architecture that can.
static bool waits(const struct gpu_device * d, void * kernel) {
    int architecture = 0;
    if (!d->driver->launches_early) return false;
    return d->cu->FuncGetAttribute(&architecture, CUDA_FUNCTION_PTX_ARCHITECTURE, kernel) == 0 && architecture >= LEAST_THAT_WAITS;
}

/// So its blocks may be there when those before it end.
static int launch_early(const struct gpu_device * d, void * stream, const struct gpu_work * work, void ** arguments) {
    const uint32_t *grid = work->grid, *threads = work->threads;
    struct cuda_launch_attribute early = {CUDA_LAUNCH_EARLY, 0, {1}};
    const struct cuda_launch launch = {
        {grid[0], grid[1], grid[2]}, {threads[0], threads[1], threads[2]}, work->shared, stream, &early, 1};
    return d->cu->LaunchKernelEx(&launch, work->kernel, arguments, NULL);
}

static enum gpu_status cuda_launch(struct gpu_device * d, struct gpu_queue * queue, const struct gpu_work * work) {
    cuda_address addresses[GPU_MOST_ARGUMENTS];
    void * arguments[GPU_MOST_ARGUMENTS];
    for (int i = 0; i < work->count; i++) {
        const struct gpu_argument * each = &work->arguments[i];
        if (each->is_place) addresses[i] = address_of(each->place);
        arguments[i] = each->is_place ? (void *) &addresses[i] : (void *) each->bytes;
    }
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    if (waits(d, work->kernel)) return leave(d, result(d->cu, launch_early(d, queue, work, arguments), "cuLaunchKernelEx"));
    const uint32_t *grid = work->grid, *threads = work->threads;
    const int code = d->cu->LaunchKernel(work->kernel, grid[0], grid[1], grid[2], threads[0], threads[1], threads[2], work->shared, queue,
                                         arguments, NULL);
    return leave(d, result(d->cu, code, "cuLaunchKernel"));
}

static enum gpu_status cuda_record_begin(struct gpu_device * d, struct gpu_queue * queue) {
    if (!d->driver->records) return gpu_say("the driver records no graphs; it is too old"), GPU_FAILED;
    const enum gpu_status entered = enter(d);
    if (entered != GPU_DONE) return entered;
    const enum gpu_status status = result(d->cu, d->cu->StreamBeginCapture(queue, CUDA_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
    const enum gpu_status left = leave(d, status);
    void * graph = NULL;
    if (status == GPU_DONE && left != GPU_DONE) GIVE_BACK(d, StreamEndCapture, queue, &graph);
    if (graph != NULL) GIVE_BACK(d, GraphDestroy, graph);
    return left;
}

/// A stream that could not end its recording would take all that follows for part of it: it is asked once more.
static enum gpu_status end_recording(const struct gpu_device * d, void * stream, void ** executable) {
    void * graph = NULL;
    const int code = d->cu->StreamEndCapture(stream, &graph);
    if (code != 0) {
        void * rest = NULL;
        if (d->cu->StreamEndCapture(stream, &rest) == 0 && rest != NULL) d->cu->GraphDestroy(rest);
        return result(d->cu, code, "cuStreamEndCapture");
    }
    const int made = d->cu->GraphInstantiate(executable, graph, 0);
    if (made != 0) *executable = NULL;
    d->cu->GraphDestroy(graph);
    return result(d->cu, made, "cuGraphInstantiate");
}

static enum gpu_status cuda_record_end(struct gpu_device * d, struct gpu_queue * queue, struct gpu_recording ** recording) {
    void * executable = NULL;
    bool entered = false;
    enum gpu_status status = enter_surely(d, &entered);
    const enum gpu_status ended = end_recording(d, queue, &executable);
    if (status == GPU_DONE) status = ended;
    if (entered) status = leave(d, status);
    if (status != GPU_DONE && executable != NULL) {
        GIVE_BACK(d, GraphExecDestroy, executable);
        executable = NULL;
    }
    *recording = (struct gpu_recording *) executable;
    return status;
}

static enum gpu_status cuda_replay(struct gpu_device * d, struct gpu_queue * queue, struct gpu_recording * recording) {
    INSIDE(d, GraphLaunch, recording, queue);
}

static void cuda_recording_free(struct gpu_device * d, struct gpu_recording * recording) { GIVE_BACK(d, GraphExecDestroy, recording); }

const struct gpu_calls graphc_gpu_cuda = {
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .free_memory = cuda_free_memory,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .queue_new = cuda_queue_new,
    .queue_free = cuda_queue_free,
    .wait = cuda_wait,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_synchronize = cuda_event_synchronize,
    .event_seconds = cuda_event_seconds,
    .module_load = cuda_module_load,
    .module_free = cuda_module_free,
    .kernel_find = cuda_kernel_find,
    .launch = cuda_launch,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .recording_free = cuda_recording_free,
};
