// A libcuda without a GPU: the functions that graphc uses, for tests. Here: what is there, what was queued, what a test wants to fail.
//
// A device's memory is the host's, at addresses that the host cannot read, with zones around each allocation that nothing may write.
// What is queued is done late: when something waits for it, and then perhaps not before what another stream has queued. Memory of the
// host is read and written at that time, too. A module is a library of kernels that the emulator compiled (emulator_entry.h), by its
// path or its bytes.
//
// Each function fails when a test says so (`fake_cuda_fail`). What was not given back is counted, and so is every misuse: handles that
// are not there, calls without a context.

#define _GNU_SOURCE
#include "emulator_entry.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t address;

enum { INVALID_VALUE = 1, FULL = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
       INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };
enum { MOST_DEVICES = 16, MOST_DEPTH = 16, ZONE = 1024, MOST_SHARED = 227 << 10, USUAL_SHARED = 48 << 10, MOST_NAMES = 64, TEXT = 512 };
#define THERE ((address) 1 << 62)

enum kind { MEMORY, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXECUTABLE, KINDS };
static const char * const kinds[] = {"memory", "stream", "event", "module", "function", "graph", "executable graph"};

enum doing { LAUNCH, UPLOAD, DOWNLOAD, COPY, FILL, MARK, WAIT };

/// A point in a stream.
struct mark {
    int users;
    bool done;
    double seconds;
    struct object * stream;
};

struct operation {
    enum doing doing;
    struct operation * next;
    struct object * function;
    uint32_t grid[3], threads, shared;
    uint64_t values[EMULATOR_MOST_PARAMETERS][2];
    void * host;
    const void * source;
    address to, from;
    size_t size;
    uint8_t value;
    struct mark * mark;
};

struct operations {
    struct operation *first, *last;
};

struct object {
    enum kind kind;
    int device;
    struct object * next;
    bool dead;  // a stream that was given back with work left
    char * zones;
    size_t size;
    struct operations work;      // of streams and graphs
    struct operations captured;  // by a stream, until that ends
    bool capturing, invalid;
    pthread_t thread;
    struct mark * mark;
    bool timed;
    void * library;
    struct object * module;
    EmulatorEntry entry;
    const struct EmulatorKernel * kernel;
    uint32_t shared;
};

static struct device {
    int users, lost;
    size_t used;
    double seconds;
} devices[MOST_DEVICES];

static struct {
    char name[64];
    long count, fails_at;
    int code;
    void (*meanwhile)(void);
} names[MOST_NAMES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object * objects;
static int misuses, device_count = 2;
static double (*pace)(uint32_t blocks, uint32_t threads, uint32_t shared);  // seconds of a launch, if a test sets the clock
static size_t memory_size = (size_t) 1 << 30;
static uint32_t seed = 1;
static char misuse_text[TEXT], fault[TEXT];
static bool initialized;
static _Thread_local int stack[MOST_DEPTH], depth;

static void misuse(const char * format, ...) {
    va_list rest;
    va_start(rest, format);
    if (misuses++ == 0) vsnprintf(misuse_text, sizeof misuse_text, format, rest);
    va_end(rest);
}

static uint32_t draw(uint32_t limit) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

static bool is_lost_by(int code) { return (code >= 700 && code != 701 && code < 800) || code == 214 || code == 999; }

/// What was queued for the device will never be done.
static void drop(struct operations * work);
static void lose(int device, int code) {
    devices[device].lost = code;
    for (struct object * each = objects; each != NULL; each = each->next) {
        if (each->kind == STREAM && each->device == device) drop(&each->work);
    }
}

static int number_of(const char * name) {
    int i = 0;
    while (i < MOST_NAMES - 1 && names[i].name[0] != 0 && strcmp(names[i].name, name) != 0) i++;
    if (names[i].name[0] == 0) snprintf(names[i].name, sizeof names[i].name, "%s", name);
    return i;
}

/// What other threads do before a call, if a test wants it; once.
static void do_meanwhile(int i) {
    void (*const meanwhile)(void) = names[i].meanwhile;
    names[i].meanwhile = NULL;
    if (meanwhile == NULL) return;
    pthread_mutex_unlock(&lock);
    meanwhile();
    pthread_mutex_lock(&lock);
}

/// Every call begins here: it fails if a test wants it, or its device is lost.
static int begin(const char * name, bool in_context) {
    pthread_mutex_lock(&lock);
    const int i = number_of(name);
    do_meanwhile(i);
    const int device = depth > 0 ? stack[depth - 1] : 0;
    if (++names[i].count == names[i].fails_at) {
        if (is_lost_by(names[i].code) && devices[device].users > 0) lose(device, names[i].code);
        return names[i].code;
    }
    if (!in_context) return 0;
    if (depth > 0) return devices[device].lost;
    misuse("%s without a context", name);
    return INVALID_CONTEXT;
}

static int end(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

#define BEGIN(name)                          \
    do {                                     \
        const int failed_ = begin(name, true); \
        if (failed_ != 0) return end(failed_); \
    } while (0)

static int here(void) { return stack[depth - 1]; }

static struct object * new_object(enum kind kind) {
    struct object * made = calloc(1, sizeof *made);
    made->kind = kind, made->device = here(), made->next = objects;
    return objects = made;
}

static bool is_there(const void * handle, enum kind kind) {
    for (const struct object * each = objects; each != NULL; each = each->next) {
        if (each == handle && each->kind == kind && !each->dead) return true;
    }
    misuse("a handle that is no %s", kinds[kind]);
    return false;
}

#define CHECK(handle, kind)                                     \
    do {                                                        \
        if (!is_there(handle, kind)) return end(INVALID_HANDLE); \
    } while (0)

static void unmark(struct mark * mark) {
    if (mark != NULL && --mark->users == 0) free(mark);
}

static void drop(struct operations * work) {
    while (work->first != NULL) {
        struct operation * next = work->first->next;
        if (work->first->doing == MARK) work->first->mark->done = true;
        unmark(work->first->mark);
        free(work->first);
        work->first = next;
    }
    work->last = NULL;
}

static void destroy(struct object * object) {
    drop(&object->work);
    drop(&object->captured);
    unmark(object->mark);
    if (object->library != NULL) dlclose(object->library);
    if (object->kind == MEMORY) devices[object->device].used -= object->size;
    free(object->zones);
    struct object ** place = &objects;
    while (*place != object) place = &(*place)->next;
    *place = object->next;
    free(object);
}

static void append(struct operations * work, const struct operation * wanted) {
    struct operation * made = malloc(sizeof *made);
    *made = *wanted;
    made->next = NULL;
    if (made->mark != NULL) made->mark->users++;
    if (work->last == NULL) work->first = made;
    else work->last->next = made;
    work->last = made;
}
