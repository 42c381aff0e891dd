// The backend: what a graph's nodes are on a device, in the order of its queue.

#include "recordings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// A backend of ggml's with its own part behind it.
struct backend {
    struct ggml_backend ggml;
    struct gpu_unit * unit;
    struct gpu_queue * queue;
    struct gpu_workspace workspace;
    struct gpu_plan plan;
    struct gpu_recordings recordings;
    enum graphc_gpu_mode mode;
    char doing[GPU_TEXT / 2];  // what is waited for, in words
    void (*timer)(void * data, const struct ggml_tensor * node, double seconds);
    void * timer_data;
    int event_count;
    struct gpu_event ** events;
};

static const struct gpu_calls * calls_of(const struct backend * b) { return b->unit->host->calls; }

static struct backend * own(ggml_backend_t backend) { return (struct backend *) backend; }

static const char * backend_name(ggml_backend_t backend) { return own(backend)->unit->name; }

static void free_events(struct backend * b) {
    while (b->event_count > 0) calls_of(b)->event_free(b->unit->open, b->events[--b->event_count]);
    free(b->events);
    b->events = NULL;
}

/// What is queued is done first: others may still read the memory, and nobody asks any more how it went.
static void free_backend(ggml_backend_t backend) {
    struct backend * b = own(backend);
    gpu_settle(b->unit, b->queue);
    gpu_recordings_free(&b->recordings, b->unit);
    free_events(b);
    gpu_buffer_free(b->workspace.scratch);
    gpu_buffer_free(b->workspace.counters);
    calls_of(b)->queue_free(b->unit->open, b->queue);
    gpu_plan_free(&b->plan);
    gpu_drop(b->unit);
    free(b);
}

/// Where launches failed, nobody knows what they left: the next run has new counters.
static void forget_counters(struct backend * b) {
    gpu_buffer_free(b->workspace.counters);
    b->workspace.counters = NULL, b->workspace.counters_size = 0;
}

static void synchronize(ggml_backend_t backend) {
    struct backend * b = own(backend);
    if (gpu_is_lost(b->unit)) return;
    if (!gpu_check(b->unit, gpu_settle(b->unit, b->queue), "%s", b->doing)) forget_counters(b);
    snprintf(b->doing, sizeof b->doing, "waiting");
}

static void set_later(ggml_backend_t backend, struct ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    struct backend * b = own(backend);
    size_t start = 0;
    const struct gpu_buffer * buffer = gpu_buffer_of(tensor, &start);
    if (gpu_is_lost(b->unit)) return;
    const struct gpu_place to = {buffer->memory, start + offset};
    gpu_check(b->unit, calls_of(b)->upload(b->unit->open, b->queue, to, data, size), "copying to the device (%zu bytes)", size);
}

static void get_later(ggml_backend_t backend, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    struct backend * b = own(backend);
    size_t start = 0;
    const struct gpu_buffer * buffer = gpu_buffer_of(tensor, &start);
    if (gpu_is_lost(b->unit)) return;
    const struct gpu_place from = {buffer->memory, start + offset};
    gpu_check(b->unit, calls_of(b)->download(b->unit->open, b->queue, data, from, size), "copying from the device (%zu bytes)", size);
}

/// Have a queue wait for what another has queued until now.
static bool wait_for(struct backend * b, struct backend * other) {
    struct gpu_event * event = NULL;
    if (!gpu_check(other->unit, calls_of(b)->event_new(other->unit->open, false, &event), "making an event")) return false;
    const enum gpu_status recorded = calls_of(b)->event_record(other->unit->open, other->queue, event);
    const bool waits = gpu_check(other->unit, recorded, "recording an event") &&
                       gpu_check(b->unit, calls_of(b)->event_wait(b->unit->open, b->queue, event), "waiting for an event");
    calls_of(b)->event_free(other->unit->open, event);
    return waits;
}

/// Between devices of one driver. All else ggml copies when both sides have done what they were asked.
static bool copy_later(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor * tensor, struct ggml_tensor * copy) {
    if (!gpu_is_backend(from) || own(from)->unit->host != own(to)->unit->host) return false;
    struct backend *b = own(to), *other = own(from);
    size_t start = 0, end = 0;
    const struct gpu_buffer *source = gpu_buffer_of(tensor, &start), *target = gpu_buffer_of(copy, &end);
    if (source == NULL || target == NULL || source->unit != other->unit || target->unit != b->unit) return false;
    if (gpu_is_lost(b->unit) || gpu_is_lost(other->unit)) return true;
    const size_t size = b->unit->host->functions->nbytes(tensor);
    const struct gpu_place there = {source->memory, start}, here = {target->memory, end};
    if (b != other && !wait_for(b, other)) return true;
    const enum gpu_status status = calls_of(b)->copy(b->unit->open, b->queue, here, other->unit->open, there, size);
    const bool copied = gpu_check(b->unit, status, "copying on devices (%zu bytes)", size);
    if (copied && b != other) wait_for(other, b);  // before it changes what is copied
    return true;
}

static void record_event(ggml_backend_t backend, ggml_backend_event_t event) {
    struct backend * b = own(backend);
    if (gpu_is_lost(b->unit)) return;
    gpu_check(b->unit, calls_of(b)->event_record(b->unit->open, b->queue, (struct gpu_event *) event->context), "recording an event");
}

static void wait_event(ggml_backend_t backend, ggml_backend_event_t event) {
    struct backend * b = own(backend);
    if (!graphc_gpu_is(event->device) || gpu_unit_of(event->device)->host != b->unit->host) {
        event->device->event_synchronize(event->device, event);
        return;
    }
    if (gpu_is_lost(b->unit)) return;
    gpu_check(b->unit, calls_of(b)->event_wait(b->unit->open, b->queue, (struct gpu_event *) event->context), "waiting for an event");
}

/// Memory that is large enough; `*has` is what there is of it.
static bool make_larger(struct backend * b, struct gpu_buffer ** memory, size_t * has, size_t size) {
    gpu_buffer_free(*memory);
    *memory = gpu_buffer_new(b->unit, size);
    *has = *memory == NULL ? 0 : size;
    return *memory != NULL;
}

static bool grow_workspace(struct backend * b, struct gpu_workspace wanted) {
    struct gpu_workspace * workspace = &b->workspace;
    const bool larger = wanted.scratch_size > workspace->scratch_size;
    if (larger && !make_larger(b, &workspace->scratch, &workspace->scratch_size, wanted.scratch_size)) return false;
    if (wanted.counters_size <= workspace->counters_size) return true;
    if (!make_larger(b, &workspace->counters, &workspace->counters_size, wanted.counters_size)) return false;
    const struct gpu_place place = {workspace->counters->memory, 0};
    const enum gpu_status status = calls_of(b)->fill(b->unit->open, b->queue, place, 0, workspace->counters_size);
    if (gpu_check(b->unit, status, "clearing counters")) return true;
    forget_counters(b);
    return false;
}

static bool launch(struct backend * b, const struct gpu_step * step) {
    const enum gpu_status status = calls_of(b)->launch(b->unit->open, b->queue, &step->work);
    return gpu_check(b->unit, status, "kernel %s of %s", step->kernel->name, step->node->name);
}

static bool launch_all(struct backend * b) {
    for (int i = 0; i < b->plan.count; i++) {
        if (!launch(b, &b->plan.steps[i])) return false;
    }
    return true;
}

static bool launch_in_steps(struct backend * b) {
    for (int i = 0; i < b->plan.count; i++) {
        const struct gpu_step * step = &b->plan.steps[i];
        if (!launch(b, step)) return false;
        const enum gpu_status status = gpu_settle(b->unit, b->queue);
        if (!gpu_check(b->unit, status, "kernel %s of %s", step->kernel->name, step->node->name)) return false;
    }
    return true;
}

/// Record what is launched.
static enum gpu_status record_launches(struct backend * b, struct gpu_recording ** recording) {
    enum gpu_status status = calls_of(b)->record_begin(b->unit->open, b->queue);
    if (status != GPU_DONE) return status;
    const struct gpu_step * step = b->plan.steps;
    for (; status == GPU_DONE && step < b->plan.steps + b->plan.count; step++) {
        status = calls_of(b)->launch(b->unit->open, b->queue, &step->work);
        if (status == GPU_LOST) gpu_check(b->unit, status, "kernel %s of %s", step->kernel->name, step->node->name);
    }
    const enum gpu_status ended = calls_of(b)->record_end(b->unit->open, b->queue, recording);
    return status == GPU_DONE ? ended : status;
}

/// What the driver cannot record is launched as it is, and no error, unless the device is lost.
static bool record(struct backend * b, struct gpu_known * known) {
    const enum gpu_status status = record_launches(b, &known->recording);
    if (status == GPU_LOST) return gpu_check(b->unit, status, "recording a graph");
    known->state = status == GPU_DONE ? GPU_READY : GPU_REFUSED;
    b->recordings.recorded += status == GPU_DONE;
    return true;
}

/// One of a single kernel is not worth recording.
static bool record_or_launch(struct backend * b) {
    struct gpu_known * known = b->plan.count < 2 ? NULL : gpu_recordings_find(&b->recordings, b->unit, &b->plan);
    if (known != NULL && known->state == GPU_SEEN && !record(b, known)) return false;
    if (known == NULL || known->state != GPU_READY) return launch_all(b);
    b->recordings.replayed++;
    return gpu_check(b->unit, calls_of(b)->replay(b->unit->open, b->queue, known->recording), "%s", b->doing);
}

static bool make_events(struct backend * b, int count) {
    if (count <= b->event_count) return true;
    struct gpu_event ** moved = (struct gpu_event **) realloc(b->events, (size_t) count * sizeof *moved);
    if (moved == NULL) {
        gpu_fail(b->unit, "the host has no memory left");
        return false;
    }
    b->events = moved;
    for (; b->event_count < count; b->event_count++) {
        const enum gpu_status status = calls_of(b)->event_new(b->unit->open, true, &b->events[b->event_count]);
        if (!gpu_check(b->unit, status, "making an event")) return false;
    }
    return true;
}

static bool mark(struct backend * b, int number) {
    return gpu_check(b->unit, calls_of(b)->event_record(b->unit->open, b->queue, b->events[number]), "recording an event");
}

/// Tell what each node took, from event to event.
static bool tell(struct backend * b) {
    double seconds = 0;
    for (int i = 0; i < b->plan.count; i++) {
        double step = 0;
        const enum gpu_status status = calls_of(b)->event_seconds(b->unit->open, b->events[i], b->events[i + 1], &step);
        if (!gpu_check(b->unit, status, "timing kernel %s", b->plan.steps[i].kernel->name)) return false;
        seconds += step;
        const struct ggml_tensor * node = b->plan.steps[i].node;
        if (i + 1 < b->plan.count && b->plan.steps[i + 1].node == node) continue;
        b->timer(b->timer_data, node, seconds);
        seconds = 0;
    }
    return true;
}

static bool launch_timed(struct backend * b) {
    if (!make_events(b, b->plan.count + 1) || !mark(b, 0)) return false;
    for (int i = 0; i < b->plan.count; i++) {
        if (!launch(b, &b->plan.steps[i]) || !mark(b, i + 1)) return false;
    }
    return gpu_check(b->unit, gpu_settle(b->unit, b->queue), "%s", b->doing) && tell(b);
}

/// For an error that shows only when it is waited for.
static void describe(struct backend * b) {
    const struct gpu_step * steps = b->plan.steps;
    const int last = b->plan.count - 1;
    snprintf(b->doing, sizeof b->doing, "%d launches, kernel %.80s of %s to kernel %.80s of %s (GRAPHC_GPU=step finds the one)",
             b->plan.count, steps[0].kernel->name, steps[0].node->name, steps[last].kernel->name, steps[last].node->name);
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    struct backend * b = own(backend);
    if (gpu_is_lost(b->unit) || gpu_has_failed()) return GGML_STATUS_FAILED;  // what it reads may not be there
    const struct gpu_workspace wanted = gpu_workspace_of(b->unit->host->functions, graph);
    if (!grow_workspace(b, wanted) || !gpu_plan_graph(b->unit, &b->plan, graph, &b->workspace)) return GGML_STATUS_FAILED;
    if (b->plan.count == 0) return GGML_STATUS_SUCCESS;
    describe(b);
    const bool done = b->timer != NULL                  ? launch_timed(b)
                      : b->mode == GRAPHC_GPU_STEP      ? launch_in_steps(b)
                      : b->mode == GRAPHC_GPU_LAUNCH    ? launch_all(b)
                                                        : record_or_launch(b);
    if (!done) forget_counters(b);
    return done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

static const struct ggml_backend backend_functions = {
    .get_name = backend_name,
    .free = free_backend,
    .set_tensor_async = set_later,
    .get_tensor_async = get_later,
    .cpy_tensor_async = copy_later,
    .synchronize = synchronize,
    .graph_compute = compute,
    .event_record = record_event,
    .event_wait = wait_event,
};

bool gpu_is_backend(ggml_backend_t backend) { return backend != NULL && backend->get_name == backend_name; }

/// What the environment says, for backends that are told nothing. Returns false, with an error, for a word that is none.
static bool usual_mode(const struct gpu_unit * unit, enum graphc_gpu_mode * mode) {
    static const char * const words[] = {"record", "launch", "step"};
    const char * text = getenv("GRAPHC_GPU");
    *mode = GRAPHC_GPU_RECORD;
    if (text == NULL || text[0] == 0) return true;
    for (int i = 0; i < 3; i++) {
        *mode = (enum graphc_gpu_mode) i;
        if (strcmp(text, words[i]) == 0) return true;
    }
    gpu_fail(unit, "GRAPHC_GPU=%.40s: must be record, launch or step", text);
    return false;
}

ggml_backend_t gpu_backend_new(struct gpu_unit * unit) {
    static uint8_t guid[16] = {'g', 'r', 'a', 'p', 'h', 'c', ' ', 'g', 'e', 'n', 'e', 'r', 'a', 't', 'e', 'd'};
    enum graphc_gpu_mode mode;
    if (!usual_mode(unit, &mode)) return NULL;
    struct backend * b = (struct backend *) calloc(1, sizeof *b);
    if (b == NULL) gpu_fail(unit, "the host has no memory left");
    if (b == NULL || !gpu_hold(unit)) {
        free(b);
        return NULL;
    }
    if (!gpu_check(unit, unit->host->calls->queue_new(unit->open, &b->queue), "making a queue")) {
        gpu_drop(unit);
        free(b);
        return NULL;
    }
    b->ggml = backend_functions;
    b->ggml.guid = &guid, b->ggml.device = &unit->ggml;
    b->unit = unit, b->mode = mode;
    snprintf(b->doing, sizeof b->doing, "waiting");
    return &b->ggml;
}

void graphc_gpu_set_mode(ggml_backend_t backend, enum graphc_gpu_mode mode) { own(backend)->mode = mode; }

void graphc_gpu_set_timer(ggml_backend_t backend, void (*timer)(void * data, const struct ggml_tensor * node, double seconds),
                          void * data) {
    own(backend)->timer = timer, own(backend)->timer_data = data;
}

void graphc_gpu_recordings(ggml_backend_t backend, int64_t * recorded, int64_t * replayed) {
    *recorded = own(backend)->recordings.recorded, *replayed = own(backend)->recordings.replayed;
}
