// Doing what was queued.
#include "state.h"

static char * start_of(const struct object * memory) { return memory->zones + ZONE; }

/// Where bytes of a device lie; NULL if they are not all of one allocation.
static void * at(address place, size_t size) {
    for (const struct object * each = objects; each != NULL; each = each->next) {
        if (each->kind != MEMORY) continue;
        const address start = THERE | (uintptr_t) start_of(each);
        if (place >= start && size <= each->size && place - start <= each->size - size) return (void *) (uintptr_t) (place & ~THERE);
    }
    return NULL;
}

static bool zones_are_whole(const struct object * memory) {
    for (size_t i = 0; i < ZONE; i++) {
        if (memory->zones[i] != 0x5a || memory->zones[ZONE + memory->size + i] != 0x5a) return false;
    }
    return true;
}

// --- doing what was queued

static int crash(int device, const char * text) {
    snprintf(fault, sizeof fault, "%s", text);
    lose(device, ILLEGAL_ADDRESS);
    return ILLEGAL_ADDRESS;
}

static int run_kernel(struct operation * o, int device) {
    struct object * function = o->function;
    const struct EmulatorKernel * kernel = function->kernel;
    void * arguments[EMULATOR_MOST_PARAMETERS];
    struct EmulatorBuffer buffers[1024];
    uint64_t count = 0;
    for (const struct object * each = objects; each != NULL && count < 1024; each = each->next) {
        if (each->kind == MEMORY && each->device == device) buffers[count++] = (struct EmulatorBuffer) {start_of(each), each->size, NULL};
    }
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        if (kernel->parameter_bytes[i] == 8 && at(o->values[i][0], 0) != NULL) o->values[i][0] &= ~THERE;
        arguments[i] = o->values[i];
    }
    const struct EmulatorLaunch launch = {{o->grid[0], o->grid[1], o->grid[2]}, o->threads, o->shared, draw(1u << 16), 1,
                                          kernel->parameter_count, arguments, count, buffers};
    struct EmulatorReport report = {0};
    devices[device].seconds += pace == NULL ? 1e-3 : pace(o->grid[0] * o->grid[1] * o->grid[2], o->threads, o->shared);
    if (function->entry(&launch, &report) != 0) return crash(device, report.error);
    for (const struct object * each = objects; each != NULL; each = each->next) {
        if (each->kind == MEMORY && !zones_are_whole(each)) return crash(device, "a kernel wrote outside of its memory");
    }
    return 0;
}

static int drain(struct object * stream, const struct mark * until);

static int move(struct operation * o, int device) {
    devices[device].seconds += 1e-6;
    void * to = o->doing == DOWNLOAD ? o->host : at(o->to, o->size);
    const void * from = o->doing == UPLOAD ? o->source : o->doing == FILL ? to : at(o->from, o->size);
    if (to == NULL || from == NULL) return crash(device, "a copy of what is not there");
    if (o->doing == FILL) memset(to, o->value, o->size);
    else memmove(to, from, o->size);
    return 0;
}

/// The first thing of a stream's queue.
static int step(struct object * stream) {
    struct operation * o = stream->work.first;
    stream->work.first = o->next;
    if (o->next == NULL) stream->work.last = NULL;
    const int device = stream->device;
    int code = 0;
    if (o->doing == LAUNCH) code = run_kernel(o, device);
    else if (o->doing == MARK) o->mark->done = true, o->mark->seconds = devices[device].seconds;
    else if (o->doing == WAIT) code = o->mark->done ? 0 : drain(o->mark->stream, o->mark);
    else code = move(o, device);
    unmark(o->mark);
    free(o);
    return code;
}

/// Do what a stream has queued, at least up to a mark.
static int drain(struct object * stream, const struct mark * until) {
    while (stream->work.first != NULL && (until == NULL || !until->done)) {
        const int code = step(stream);
        if (code != 0) return code;
    }
    return devices[stream->device].lost;
}

/// Some of what other streams have queued, as a real device might.
static int others(int device) {
    for (struct object *each = objects, *next; each != NULL; each = next) {
        next = each->next;
        if (each->kind != STREAM || each->device != device) continue;
        for (uint32_t wanted = draw(4); wanted > 0 && each->work.first != NULL; wanted--) {
            const int code = step(each);
            if (code != 0) return code;
        }
    }
    return 0;
}

static int drain_all(int device) {
    for (struct object *each = objects, *next; each != NULL; each = next) {
        next = each->next;
        if (each->kind != STREAM || each->device != device) continue;
        const int code = drain(each, NULL);
        if (code != 0) return code;
        if (each->dead) destroy(each);
    }
    return devices[device].lost;
}

static int queue(struct object * stream, const struct operation * wanted) {
    if (!is_there(stream, STREAM)) return INVALID_HANDLE;
    if (stream->capturing && wanted->doing != LAUNCH) return stream->invalid = true, CAPTURE_UNSUPPORTED;
    append(stream->capturing ? &stream->captured : &stream->work, wanted);
    return 0;
}

/// True if this thread records; what would disturb that ends it.
static bool disturbs_capture(void) {
    bool found = false;
    for (struct object * each = objects; each != NULL; each = each->next) {
        if (each->kind == STREAM && each->capturing && pthread_equal(each->thread, pthread_self())) each->invalid = found = true;
    }
    return found;
}
