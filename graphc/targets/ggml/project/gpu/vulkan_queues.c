// Queues, events and recordings of Vulkan's devices.

#include "vulkan.h"

#include <stdlib.h>
#include <string.h>

enum gpu_status vulkan_wait_for(struct vulkan_device * d, uint64_t done) {
    const struct vulkan_semaphore_wait wait = {vulkan_made(VULKAN_SEMAPHORE_WAIT, NULL), 0, 1, &d->timeline, &done};
    return vulkan_result(d->vk.WaitSemaphores(d->device, &wait, UINT64_MAX), "WaitSemaphores");
}

/// Give command buffers to the device's queue; `done` is how far it is when they are done.
static enum gpu_status submit(struct vulkan_device * d, vulkan_object commands, uint64_t * done) {
    gpu_take(&d->lock);
    const uint64_t value = d->submitted + 1;
    const struct vulkan_timeline_submit timeline = {vulkan_made(VULKAN_TIMELINE_SUBMIT, NULL), 0, NULL, 1, &value};
    const struct vulkan_submit_info info = {vulkan_made(VULKAN_SUBMIT_INFO, &timeline), 0, NULL, NULL, 1, &commands, 1, &d->timeline};
    const int code = d->vk.QueueSubmit(d->queue, 1, &info, 0);
    if (code == 0) d->submitted = *done = value;
    gpu_give(&d->lock);
    return vulkan_result(code, "QueueSubmit");
}

static enum gpu_status flush(struct vulkan_device * d, struct vulkan_queue * queue) {
    if (queue->open < 0) return GPU_DONE;
    struct vulkan_command_buffer * open = &queue->commands[queue->open];
    queue->open = -1;
    VULKAN_TRY(&d->vk, EndCommandBuffer, open->buffer);
    VULKAN_CHECK(submit(d, open->buffer, &open->done));
    queue->last = open->done;
    return GPU_DONE;
}

static enum gpu_status command_buffer(struct vulkan_device * d, vulkan_number pool, vulkan_object * made) {
    const struct vulkan_commands_info info = {vulkan_made(VULKAN_COMMANDS_INFO, NULL), pool, 0, 1};
    return vulkan_result(d->vk.AllocateCommandBuffers(d->device, &info, made), "AllocateCommandBuffers");
}

static enum gpu_status begin(struct vulkan_device * d, vulkan_object commands, uint32_t how) {
    const struct vulkan_begin_info info = {vulkan_made(VULKAN_BEGIN_INFO, NULL), how, NULL};
    return vulkan_result(d->vk.BeginCommandBuffer(commands, &info), "BeginCommandBuffer");
}

/// Open a command buffer: a new one, or the one that was submitted first, once it is done.
static enum gpu_status open_commands(struct vulkan_device * d, struct vulkan_queue * queue) {
    int next = queue->used;
    if (next < VULKAN_MOST_SUBMITTED) {
        VULKAN_CHECK(command_buffer(d, queue->pool, &queue->commands[next].buffer));
        queue->used++;
    } else {
        next = 0;
        for (int i = 1; i < queue->used; i++) {
            if (queue->commands[i].done < queue->commands[next].done) next = i;
        }
        VULKAN_CHECK(vulkan_wait_for(d, queue->commands[next].done));
    }
    VULKAN_CHECK(begin(d, queue->commands[next].buffer, VULKAN_SUBMIT_ONCE));
    queue->open = next, queue->count = 0;
    return GPU_DONE;
}

enum gpu_status vulkan_commands(struct vulkan_device * d, struct vulkan_queue * queue, vulkan_object * commands) {
    if (queue->recording != NULL) {
        *commands = queue->recording->buffer;
    } else {
        if (queue->open >= 0 && queue->count == VULKAN_MOST_COMMANDS) VULKAN_CHECK(flush(d, queue));
        if (queue->open < 0) VULKAN_CHECK(open_commands(d, queue));
        queue->count++;
        *commands = queue->commands[queue->open].buffer;
    }
    const struct vulkan_barrier barrier = {vulkan_made(VULKAN_BARRIER, NULL), VULKAN_ACCESS_WRITE, VULKAN_ACCESS_READ | VULKAN_ACCESS_WRITE};
    const uint32_t stages = VULKAN_PIPELINE_COMPUTE | VULKAN_PIPELINE_TRANSFER;
    d->vk.CmdPipelineBarrier(*commands, stages, stages, 0, 1, &barrier, 0, NULL, 0, NULL);
    return GPU_DONE;
}

enum gpu_status vulkan_queue_new(struct gpu_device * device, struct gpu_queue ** made) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) calloc(1, sizeof *queue);
    if (queue == NULL) return vulkan_no_memory();
    queue->open = -1;
    const struct vulkan_pool_info info = {vulkan_made(VULKAN_POOL_INFO, NULL), VULKAN_RESET_COMMANDS, d->family};
    const enum gpu_status status = vulkan_result(d->vk.CreateCommandPool(d->device, &info, NULL, &queue->pool), "CreateCommandPool");
    if (status == GPU_DONE) *made = (struct gpu_queue *) queue;
    else free(queue);
    return status;
}

void vulkan_queue_free(struct gpu_device * device, struct gpu_queue * handle) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    if (queue->last != 0) vulkan_wait_for(d, queue->last);
    d->vk.DestroyCommandPool(d->device, queue->pool, NULL);
    vulkan_memory_free(d, queue->staging);
    vulkan_memory_free(d, queue->arguments);
    free(queue);
}

/// What the device wrote for the host is made visible to it, and brought where it was wanted.
enum gpu_status vulkan_wait(struct gpu_device * device, struct gpu_queue * handle) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    if (queue->download_count > 0) {
        vulkan_object commands = NULL;
        VULKAN_CHECK(vulkan_commands(d, queue, &commands));
        const struct vulkan_barrier barrier = {vulkan_made(VULKAN_BARRIER, NULL), VULKAN_ACCESS_COPIED, VULKAN_ACCESS_HOST_READ};
        d->vk.CmdPipelineBarrier(commands, VULKAN_PIPELINE_TRANSFER, VULKAN_PIPELINE_HOST, 0, 1, &barrier, 0, NULL, 0, NULL);
    }
    VULKAN_CHECK(flush(d, queue));
    if (queue->last != 0) VULKAN_CHECK(vulkan_wait_for(d, queue->last));
    for (int i = 0; i < queue->download_count; i++) {
        const struct vulkan_download * each = &queue->downloads[i];
        memcpy(each->to, (const char *) queue->staging->host + each->from, each->size);
    }
    queue->download_count = 0, queue->staged = 0;
    return GPU_DONE;
}

// Events

enum gpu_status vulkan_event_new(struct gpu_device * device, bool timed, struct gpu_event ** made) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_event * event = (struct vulkan_event *) calloc(1, sizeof *event);
    if (event == NULL) return vulkan_no_memory();
    const struct vulkan_query_info info = {vulkan_made(VULKAN_QUERY_INFO, NULL), 0, VULKAN_QUERY_TIMESTAMP, 1, 0};
    enum gpu_status status = GPU_DONE;
    if (timed) status = vulkan_result(d->vk.CreateQueryPool(d->device, &info, NULL, &event->times), "CreateQueryPool");
    if (status == GPU_DONE) *made = (struct gpu_event *) event;
    else free(event);
    return status;
}

void vulkan_event_free(struct gpu_device * device, struct gpu_event * handle) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_event * event = (struct vulkan_event *) handle;
    if (event->done != 0) vulkan_wait_for(d, event->done);
    if (event->times != 0) d->vk.DestroyQueryPool(d->device, event->times, NULL);
    free(event);
}

enum gpu_status vulkan_event_record(struct gpu_device * device, struct gpu_queue * handle, struct gpu_event * point) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    struct vulkan_event * event = (struct vulkan_event *) point;
    vulkan_object commands = NULL;
    VULKAN_CHECK(vulkan_commands(d, queue, &commands));
    if (event->times != 0) {
        d->vk.CmdResetQueryPool(commands, event->times, 0, 1);
        d->vk.CmdWriteTimestamp(commands, VULKAN_PIPELINE_END, event->times, 0);
    }
    VULKAN_CHECK(flush(d, queue));
    event->done = queue->last;
    return GPU_DONE;
}

/// All of a device's queues are one to Vulkan, and events were submitted: what comes later waits by itself.
enum gpu_status vulkan_event_wait(struct gpu_device * device, struct gpu_queue * handle, struct gpu_event * event) {
    (void) event;
    return flush((struct vulkan_device *) device, (struct vulkan_queue *) handle);
}

enum gpu_status vulkan_event_synchronize(struct gpu_device * device, struct gpu_event * event) {
    const uint64_t done = ((struct vulkan_event *) event)->done;
    return done == 0 ? GPU_DONE : vulkan_wait_for((struct vulkan_device *) device, done);
}

static enum gpu_status time_of(struct vulkan_device * d, const struct vulkan_event * event, uint64_t * time) {
    const uint32_t how = VULKAN_QUERY_64 | VULKAN_QUERY_WAIT;
    return vulkan_result(d->vk.GetQueryPoolResults(d->device, event->times, 0, 1, sizeof *time, time, sizeof *time, how), "GetQueryPoolResults");
}

enum gpu_status vulkan_event_seconds(struct gpu_device * device, struct gpu_event * first, struct gpu_event * last, double * seconds) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    const struct vulkan_event *begin = (const struct vulkan_event *) first, *end = (const struct vulkan_event *) last;
    if (begin->done == 0 || end->done == 0 || begin->times == 0 || end->times == 0) return gpu_say("the event knows no time"), GPU_FAILED;
    uint64_t times[2] = {0};
    VULKAN_CHECK(time_of(d, begin, &times[0]));
    VULKAN_CHECK(time_of(d, end, &times[1]));
    *seconds = (double) (times[1] - times[0]) * d->properties.limits.timestamp_period * 1e-9;
    return GPU_DONE;
}

// Recordings

void vulkan_recording_free(struct gpu_device * device, struct gpu_recording * handle) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_recording * recording = (struct vulkan_recording *) handle;
    if (recording->done != 0) vulkan_wait_for(d, recording->done);
    if (recording->pool != 0) d->vk.DestroyCommandPool(d->device, recording->pool, NULL);
    free(recording);
}

static enum gpu_status open_recording(struct vulkan_device * d, struct vulkan_recording * recording) {
    const struct vulkan_pool_info info = {vulkan_made(VULKAN_POOL_INFO, NULL), 0, d->family};
    VULKAN_TRY(&d->vk, CreateCommandPool, d->device, &info, NULL, &recording->pool);
    VULKAN_CHECK(command_buffer(d, recording->pool, &recording->buffer));
    return begin(d, recording->buffer, VULKAN_SUBMIT_AGAIN);
}

enum gpu_status vulkan_record_begin(struct gpu_device * device, struct gpu_queue * queue) {
    struct vulkan_recording * recording = (struct vulkan_recording *) calloc(1, sizeof *recording);
    if (recording == NULL) return vulkan_no_memory();
    const enum gpu_status status = open_recording((struct vulkan_device *) device, recording);
    if (status == GPU_DONE) ((struct vulkan_queue *) queue)->recording = recording;
    else vulkan_recording_free(device, (struct gpu_recording *) recording);
    return status;
}

enum gpu_status vulkan_record_end(struct gpu_device * device, struct gpu_queue * handle, struct gpu_recording ** made) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    struct vulkan_recording * recording = queue->recording;
    queue->recording = NULL, *made = NULL;
    const enum gpu_status status = vulkan_result(d->vk.EndCommandBuffer(recording->buffer), "EndCommandBuffer");
    if (status == GPU_DONE) *made = (struct gpu_recording *) recording;
    else vulkan_recording_free(device, (struct gpu_recording *) recording);
    return status;
}

enum gpu_status vulkan_replay(struct gpu_device * device, struct gpu_queue * handle, struct gpu_recording * made) {
    struct vulkan_device * d = (struct vulkan_device *) device;
    struct vulkan_queue * queue = (struct vulkan_queue *) handle;
    struct vulkan_recording * recording = (struct vulkan_recording *) made;
    VULKAN_CHECK(flush(d, queue));
    VULKAN_CHECK(submit(d, recording->buffer, &recording->done));
    queue->last = recording->done;
    return GPU_DONE;
}
