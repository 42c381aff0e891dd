// What the files of the driver by Vulkan share.
#pragma once

#include "driver.h"
#include "lock.h"
#include "vulkan_calls.h"

enum {
    VULKAN_MOST_DEVICES = 16,
    VULKAN_MOST_PUSHED = 256,
    VULKAN_ARGUMENTS = 1024,      // bytes of a kernel's arguments
    VULKAN_STAGING = 32 << 20,    // bytes of host memory that copies go through
    VULKAN_MOST_DOWNLOADS = 256,  // that wait for their end
    VULKAN_MOST_COMMANDS = 256,   // in a command buffer that is not submitted yet
    VULKAN_MOST_SUBMITTED = 16,
};

struct vulkan_driver {
    struct vulkan_library vk;
    void *(VULKAN_CALL * get)(vulkan_object, const char *);
    void * library;
    vulkan_object instance;
    int count;
    vulkan_object devices[VULKAN_MOST_DEVICES];
};

struct vulkan_device {
    struct vulkan_driver * driver;
    struct vulkan_functions vk;
    vulkan_object physical, device, queue;
    gpu_lock lock;  // of the queue and of what was submitted
    struct vulkan_memory_kinds memory;
    struct vulkan_properties properties;
    struct vulkan_subgroup subgroup;
    struct vulkan_subgroup_sizes sizes;
    uint32_t family, pushed;
    bool can_choose_subgroup, has_budget, cooperative;
    vulkan_number layout, timeline;
    uint64_t submitted;
};

struct vulkan_memory {
    vulkan_number buffer, memory;
    uint64_t address, size;
    void * host;  // where the host sees it, if it is staging
};

struct vulkan_command_buffer {
    vulkan_object buffer;
    uint64_t done;  // when the device has come so far, it can be used again
};

struct vulkan_download {
    void * to;
    size_t from, size;
};

struct vulkan_queue {
    vulkan_number pool;
    struct vulkan_command_buffer commands[VULKAN_MOST_SUBMITTED];
    int open, used, count;  // the open one or -1, how many there are, and the commands in the open one
    uint64_t last;
    struct vulkan_memory * staging;
    size_t staged;
    struct vulkan_memory * arguments;  // of kernels that have more than can be pushed
    int download_count;
    struct vulkan_download downloads[VULKAN_MOST_DOWNLOADS];
    struct vulkan_recording * recording;  // while one is made
};

struct vulkan_event {
    uint64_t done;
    vulkan_number times;
};

struct vulkan_recording {
    vulkan_number pool;
    vulkan_object buffer;
    uint64_t done;  // as for command buffers
};

struct vulkan_kernel {
    struct vulkan_kernel * next;
    uint32_t pushed;
    vulkan_number pipeline;
    char name[];
};

struct vulkan_module {
    vulkan_number shader;
    uint32_t lanes, pushed;
    bool cooperative;
    size_t size;
    struct vulkan_kernel * kernels;
    uint32_t code[];
};

/// What a call has given, and what it says if it has failed.
enum gpu_status vulkan_result(int code, const char * call);

/// Leave a function of the driver's if a call fails.
#define VULKAN_TRY(vk, name, ...)                                                                    \
    do {                                                                                      \
        const enum gpu_status status_ = vulkan_result((vk)->name(__VA_ARGS__), #name);               \
        if (status_ != GPU_DONE) return status_;                                              \
    } while (0)
#define VULKAN_CHECK(status)                                                                         \
    do {                                                                                      \
        const enum gpu_status status_ = (status);                                             \
        if (status_ != GPU_DONE) return status_;                                              \
    } while (0)

static inline struct vulkan_head vulkan_made(enum vulkan_structure type, const void * next) {
    const struct vulkan_head made = {(int32_t) type, (void *) (uintptr_t) next};
    return made;
}

static inline enum gpu_status vulkan_no_memory(void) { return gpu_say("the host has no memory left"), GPU_FAILED; }

/// Memory of the device, or of the host for staging.
enum gpu_status vulkan_memory_new(struct vulkan_device * d, uint64_t size, bool staging, struct vulkan_memory ** made);
void vulkan_memory_free(struct vulkan_device * d, struct vulkan_memory * memory);

/// The command buffer to which the next command is added, behind a barrier.
enum gpu_status vulkan_commands(struct vulkan_device * d, struct vulkan_queue * queue, vulkan_object * commands);

/// Lanes of a warp, of those that kernels are written for; 0 if there is no such number.
uint32_t vulkan_lanes(const struct vulkan_subgroup * subgroup, const struct vulkan_subgroup_sizes * sizes);

/// Wait until the device has come so far.
enum gpu_status vulkan_wait_for(struct vulkan_device * d, uint64_t done);

// What the files have for `graphc_gpu_vulkan`: see driver.h.
enum gpu_status vulkan_free_memory(struct gpu_device *, size_t * free, size_t * total);
enum gpu_status vulkan_allocate(struct gpu_device *, size_t size, struct gpu_memory ** memory, void ** base);
void vulkan_release(struct gpu_device *, struct gpu_memory *);
enum gpu_status vulkan_queue_new(struct gpu_device *, struct gpu_queue ** queue);
void vulkan_queue_free(struct gpu_device *, struct gpu_queue *);
enum gpu_status vulkan_wait(struct gpu_device *, struct gpu_queue *);
enum gpu_status vulkan_upload(struct gpu_device *, struct gpu_queue *, struct gpu_place to, const void * from, size_t size);
enum gpu_status vulkan_download(struct gpu_device *, struct gpu_queue *, void * to, struct gpu_place from, size_t size);
enum gpu_status vulkan_copy(struct gpu_device *, struct gpu_queue *, struct gpu_place to, struct gpu_device * source,
                            struct gpu_place from, size_t size);
enum gpu_status vulkan_fill(struct gpu_device *, struct gpu_queue *, struct gpu_place to, uint8_t value, size_t size);
enum gpu_status vulkan_event_new(struct gpu_device *, bool timed, struct gpu_event ** event);
void vulkan_event_free(struct gpu_device *, struct gpu_event *);
enum gpu_status vulkan_event_record(struct gpu_device *, struct gpu_queue *, struct gpu_event *);
enum gpu_status vulkan_event_wait(struct gpu_device *, struct gpu_queue *, struct gpu_event *);
enum gpu_status vulkan_event_synchronize(struct gpu_device *, struct gpu_event *);
enum gpu_status vulkan_event_seconds(struct gpu_device *, struct gpu_event * begin, struct gpu_event * end, double * seconds);
enum gpu_status vulkan_module_load(struct gpu_device *, const void * image, size_t size, struct gpu_module ** module);
void vulkan_module_free(struct gpu_device *, struct gpu_module *);
enum gpu_status vulkan_kernel_find(struct gpu_device *, struct gpu_module *, const char * name, uint32_t shared,
                                   struct gpu_kernel ** kernel);
enum gpu_status vulkan_launch(struct gpu_device *, struct gpu_queue *, const struct gpu_work * work);
enum gpu_status vulkan_record_begin(struct gpu_device *, struct gpu_queue *);
enum gpu_status vulkan_record_end(struct gpu_device *, struct gpu_queue *, struct gpu_recording ** recording);
enum gpu_status vulkan_replay(struct gpu_device *, struct gpu_queue *, struct gpu_recording *);
void vulkan_recording_free(struct gpu_device *, struct gpu_recording *);
