// Streams, events, modules, launches and graphs.
#include "doing.h"

int cuStreamCreate(void ** stream, unsigned flags) {
    BEGIN("cuStreamCreate");
    if (flags != 1) misuse("a stream that waits for others");
    *stream = new_object(STREAM);
    return end(0);
}

/// What it has queued is done some time later.
int cuStreamDestroy_v2(void * stream) {
    const int code = begin("cuStreamDestroy", true);
    CHECK(stream, STREAM);
    struct object * found = stream;
    if (found->work.first == NULL) destroy(found);
    else found->dead = true;
    return end(code);
}

int cuStreamSynchronize(void * stream) {
    BEGIN("cuStreamSynchronize");
    CHECK(stream, STREAM);
    struct object * found = stream;
    if (found->capturing) return found->invalid = true, end(CAPTURE_UNSUPPORTED);
    const int code = others(found->device);
    return end(code != 0 ? code : drain(found, NULL));
}

int cuEventCreate(void ** event, unsigned flags) {
    BEGIN("cuEventCreate");
    struct object * made = new_object(EVENT);
    made->timed = (flags & 2) == 0;
    *event = made;
    return end(0);
}

int cuEventDestroy_v2(void * event) {
    const int code = begin("cuEventDestroy", true);
    CHECK(event, EVENT);
    destroy(event);
    return end(code);
}

int cuEventRecord(void * event, void * stream) {
    BEGIN("cuEventRecord");
    CHECK(event, EVENT);
    struct mark * mark = calloc(1, sizeof *mark);
    mark->stream = stream, mark->users = 1;
    const int code = queue(stream, &(struct operation) {.doing = MARK, .mark = mark});
    if (code != 0) return unmark(mark), end(code);
    unmark(((struct object *) event)->mark);
    ((struct object *) event)->mark = mark;
    return end(0);
}

int cuStreamWaitEvent(void * stream, void * event, unsigned flags) {
    (void) flags;
    BEGIN("cuStreamWaitEvent");
    CHECK(event, EVENT);
    struct mark * mark = ((struct object *) event)->mark;
    return end(mark == NULL ? 0 : queue(stream, &(struct operation) {.doing = WAIT, .mark = mark}));
}

int cuEventSynchronize(void * event) {
    BEGIN("cuEventSynchronize");
    CHECK(event, EVENT);
    struct mark * mark = ((struct object *) event)->mark;
    return end(mark == NULL || mark->done ? 0 : drain(mark->stream, mark));
}

int cuEventElapsedTime(float * milliseconds, void * from, void * to) {
    BEGIN("cuEventElapsedTime");
    CHECK(from, EVENT);
    CHECK(to, EVENT);
    const struct object *first = from, *second = to;
    if (!first->timed || !second->timed || first->mark == NULL || second->mark == NULL) return end(INVALID_HANDLE);
    if (!first->mark->done || !second->mark->done) return end(600);
    *milliseconds = (float) (1e3 * (second->mark->seconds - first->mark->seconds));
    return end(0);
}

// --- modules and launches

/// A library by its path, or from its bytes, whose last are the table of sections.
static void * opened(const char * image) {
    if (memcmp(image, ELFMAG, SELFMAG) != 0) return dlopen(image, RTLD_NOW | RTLD_LOCAL);
    const Elf64_Ehdr * head = (const Elf64_Ehdr *) image;
    char path[] = "/tmp/fake_cuda_XXXXXX";
    const int file = mkstemp(path);
    const size_t size = head->e_shoff + (size_t) head->e_shentsize * head->e_shnum;
    void * library = file >= 0 && write(file, image, size) == (ssize_t) size ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file >= 0) close(file), unlink(path);
    return library;
}

int cuModuleLoadDataEx(void ** module, const void * image, unsigned count, int * options, void ** values) {
    BEGIN("cuModuleLoadDataEx");
    void * library = opened(image);
    if (library == NULL) {
        const char * said = dlerror();
        if (count == 2 && options[0] == 5) snprintf(values[0], (size_t) (uintptr_t) values[1], "%s", said == NULL ? "no path" : said);
        return end(INVALID_IMAGE);
    }
    struct object * made = new_object(MODULE);
    made->library = library;
    *module = made;
    return end(0);
}

int cuModuleUnload(void * module) {
    const int code = begin("cuModuleUnload", true);
    CHECK(module, MODULE);
    for (struct object *each = objects, *next; each != NULL; each = next) {
        next = each->next;
        for (struct operation * o = each->kind == STREAM ? each->work.first : NULL; o != NULL; o = o->next) {
            if (o->doing == LAUNCH && o->function->module == module) misuse("a module is unloaded whose kernel is to run");
        }
    }
    for (struct object *each = objects, *next; each != NULL; each = next) {
        next = each->next;
        if (each->kind == FUNCTION && each->module == module) destroy(each);
    }
    destroy(module);
    return end(code);
}

int cuModuleGetFunction(void ** function, void * module, const char * name) {
    BEGIN("cuModuleGetFunction");
    CHECK(module, MODULE);
    char entry[256], kernel[256];
    snprintf(entry, sizeof entry, "graphc_emulate_%s", name);
    snprintf(kernel, sizeof kernel, "graphc_kernel_%s", name);
    void * library = ((struct object *) module)->library;
    void *found = dlsym(library, entry), *described = dlsym(library, kernel);
    if (found == NULL || described == NULL) return end(NOT_FOUND);
    struct object * made = new_object(FUNCTION);
    made->module = module, made->kernel = described, made->shared = USUAL_SHARED;
    *(void **) &made->entry = found;
    *function = made;
    return end(0);
}

int cuFuncSetAttribute(void * function, int attribute, int value) {
    BEGIN("cuFuncSetAttribute");
    CHECK(function, FUNCTION);
    if (attribute != 8 || value < 0 || value > MOST_SHARED) return end(INVALID_VALUE);
    ((struct object *) function)->shared = (uint32_t) value;
    return end(0);
}

/// Queue a kernel, if all of a launch is right.
static int launch(void * function, const unsigned * grid, const unsigned * threads, unsigned shared, void * stream, void ** arguments,
                  void ** more) {
    CHECK(function, FUNCTION);
    const struct object * found = function;
    const bool some = grid[0] > 0 && grid[1] > 0 && grid[1] < 65536 && grid[2] > 0 && grid[2] < 65536;
    const bool fits = some && threads[0] == found->kernel->threads && threads[1] == 1 && threads[2] == 1;
    if (!fits || more != NULL || shared > found->shared) return end(INVALID_VALUE);
    struct operation wanted = {.doing = LAUNCH, .function = function, .grid = {grid[0], grid[1], grid[2]}, .threads = threads[0], .shared = shared};
    for (uint32_t i = 0; i < found->kernel->parameter_count; i++) memcpy(wanted.values[i], arguments[i], found->kernel->parameter_bytes[i]);
    return end(queue(stream, &wanted));
}

int cuLaunchKernel(void * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void * stream, void ** arguments, void ** more) {
    BEGIN("cuLaunchKernel");
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, threads[3] = {threads_x, threads_y, threads_z};
    return launch(function, grid, threads, shared, stream, arguments, more);
}

/// As cuda.h has it.
struct launch_config {
    unsigned grid[3], threads[3], shared;
    void * stream;
    struct {
        int number, padding, value[16];
    } * attributes;
    unsigned attribute_count;
};

int cuLaunchKernelEx(const struct launch_config * config, void * function, void ** arguments, void ** more) {
    BEGIN("cuLaunchKernelEx");
    if (config->attribute_count != 1 || config->attributes->number != 6 || config->attributes->value[0] != 1) return end(INVALID_VALUE);
    return launch(function, config->grid, config->threads, config->shared, config->stream, arguments, more);
}

int cuFuncGetAttribute(int * value, int attribute, void * function) {
    BEGIN("cuFuncGetAttribute");
    CHECK(function, FUNCTION);
    if (attribute != 5) return end(INVALID_VALUE);
    *value = 90;
    return end(0);
}

// --- graphs

int cuStreamBeginCapture_v2(void * stream, int mode) {
    BEGIN("cuStreamBeginCapture");
    CHECK(stream, STREAM);
    struct object * found = stream;
    if (found->capturing || mode != 1) return end(ILLEGAL_STATE);
    found->capturing = true, found->invalid = false, found->thread = pthread_self();
    return end(0);
}

int cuStreamEndCapture(void * stream, void ** graph) {
    BEGIN("cuStreamEndCapture");
    CHECK(stream, STREAM);
    struct object * found = stream;
    if (!found->capturing) return end(ILLEGAL_STATE);
    found->capturing = false;
    *graph = NULL;
    if (found->invalid) return drop(&found->captured), end(CAPTURE_INVALIDATED);
    struct object * made = new_object(GRAPH);
    made->work = found->captured;
    found->captured = (struct operations) {NULL, NULL};
    *graph = made;
    return end(0);
}

static void append_all(struct operations * work, const struct object * graph) {
    for (const struct operation * o = graph->work.first; o != NULL; o = o->next) append(work, o);
}

int cuGraphInstantiateWithFlags(void ** executable, void * graph, unsigned long long flags) {
    (void) flags;
    BEGIN("cuGraphInstantiate");
    CHECK(graph, GRAPH);
    struct object * made = new_object(EXECUTABLE);
    append_all(&made->work, graph);
    *executable = made;
    return end(0);
}

int cuGraphLaunch(void * executable, void * stream) {
    BEGIN("cuGraphLaunch");
    CHECK(executable, EXECUTABLE);
    CHECK(stream, STREAM);
    for (const struct operation * o = ((struct object *) executable)->work.first; o != NULL; o = o->next) {
        if (!is_there(o->function, FUNCTION)) return end(INVALID_HANDLE);
    }
    append_all(&((struct object *) stream)->work, executable);
    return end(0);
}

int cuGraphDestroy(void * graph) {
    const int code = begin("cuGraphDestroy", true);
    CHECK(graph, GRAPH);
    destroy(graph);
    return end(code);
}

int cuGraphExecDestroy(void * executable) {
    const int code = begin("cuGraphExecDestroy", true);
    CHECK(executable, EXECUTABLE);
    destroy(executable);
    return end(code);
}
