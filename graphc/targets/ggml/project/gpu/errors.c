// What went wrong: on a device for all, in a thread for the one that asks.

#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef _MSC_VER
#define GPU_THREAD __declspec(thread)
#else
#define GPU_THREAD _Thread_local
#endif

static GPU_THREAD char said[GPU_TEXT];    // by the driver, last
static GPU_THREAD char error[GPU_TEXT];   // the first that nobody asked for
static GPU_THREAD char asked[GPU_TEXT];   // what was answered last

void gpu_say(const char * format, ...) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(said, sizeof said, format, rest);
    va_end(rest);
}

const char * graphc_gpu_error(void) {
    if (error[0] == 0) return NULL;
    memcpy(asked, error, sizeof asked);
    error[0] = 0;
    return asked;
}

bool gpu_has_failed(void) { return error[0] != 0; }

/// Keep the first error: what follows is a consequence of it.
static void keep_error(const char * text) {
    if (error[0] == 0) snprintf(error, sizeof error, "%s", text);
}

void gpu_fail(const struct gpu_unit * unit, const char * format, ...) {
    char text[GPU_TEXT];
    int used = unit == NULL ? 0 : snprintf(text, sizeof text, "%s: ", unit->name);
    va_list rest;
    va_start(rest, format);
    vsnprintf(text + used, sizeof text - (size_t) used, format, rest);
    va_end(rest);
    keep_error(text);
}

/// Unlike `snprintf`, as much of the texts as there is room for is what is wanted.
static void join(char * text, const char * first, const char * second, const char * third) {
    snprintf(text, GPU_TEXT, "%.*s%.*s%.*s", GPU_TEXT / 4, first, GPU_TEXT / 4, second, GPU_TEXT / 2, third);
}

bool gpu_check(struct gpu_unit * unit, enum gpu_status status, const char * format, ...) {
    if (status == GPU_DONE) return true;
    char what[GPU_TEXT], text[GPU_TEXT];
    va_list rest;
    va_start(rest, format);
    vsnprintf(what, sizeof what, format, rest);
    va_end(rest);
    if (status != GPU_LOST) {
        join(text, what, ": ", said);
        gpu_fail(unit, "%s", text);
        return false;
    }
    gpu_take(&unit->lock);
    if (!unit->lost) {
        unit->lost = true;
        join(unit->why, what, ": ", said);
    }
    gpu_give(&unit->lock);
    gpu_is_lost(unit);
    return false;
}

bool gpu_is_lost(struct gpu_unit * unit) {
    gpu_take(&unit->lock);
    const bool lost = unit->lost;
    if (lost) gpu_fail(unit, "the device is lost, and with it all that was loaded on it: %s", unit->why);
    gpu_give(&unit->lock);
    return lost;
}

enum gpu_status gpu_settle(struct gpu_unit * unit, struct gpu_queue * queue) {
    const struct gpu_calls * calls = unit->host->calls;
    const enum gpu_status first = calls->wait(unit->open, queue);
    if (first == GPU_DONE || first == GPU_LOST) return first;
    char why[GPU_TEXT];
    memcpy(why, said, sizeof why);
    const enum gpu_status second = calls->wait(unit->open, queue);
    memcpy(said, why, sizeof said);
    return second == GPU_DONE ? first : GPU_LOST;
}
