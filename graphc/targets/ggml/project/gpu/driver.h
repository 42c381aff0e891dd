// What a driver of GPUs does for our backend. `cuda.c` does it by libcuda; another driver is another table of these functions.
//
// Memory is named by a handle and an offset, never by a pointer that the host could read. What is queued is done in order, and perhaps
// not before `wait`: so a driver may put it into a command buffer. Every function may be called by any thread, but a queue is used by
// one at a time. A function that fails says why by `gpu_say` and returns what kind of failure it is. Those that give something back
// do not fail: what they cannot give back is lost with the device.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_status {
    GPU_DONE,
    GPU_FAILED,  // this call alone
    GPU_FULL,    // there is not so much memory
    GPU_LOST,    // the device computes nothing any more until all that is open on it was given back
};

enum {
    GPU_TEXT = 1024,          // bytes of a failure's text
    GPU_MOST_ARGUMENTS = 64,  // of a kernel
    GPU_VALUE = 16,           // bytes of a value that a kernel is given
};

struct gpu_driver;     // a library that was opened
struct gpu_device;     // a device that was opened, with one context for all that this process does there
struct gpu_queue;      // what is done in order: a stream, or a queue with its command buffers
struct gpu_memory;     // one allocation
struct gpu_module;     // code, of any number of kernels
struct gpu_kernel;     // a function of a module, or a pipeline; it lives as long as the module
struct gpu_event;      // a point in a queue
struct gpu_recording;  // launches that are queued as one: a captured graph, or a recorded command buffer

/// What is known of a device before it is opened.
struct gpu_facts {
    char description[256];   // "NVIDIA H200"
    char address[32];        // on the PCI bus, "0000:c1:00.0"; empty where there is none
    char architecture[32];   // what its code is compiled for: "sm_90"
    bool integrated;         // its memory is the host's
    size_t memory;           // bytes
    size_t largest;          // bytes of one allocation
    size_t shared, cache;    // bytes of shared memory for a block, of the second cache
    int multiprocessors, registers, threads;  // registers and threads are those of a multiprocessor, if the driver knows any
    int lanes;               // of a warp
    size_t arguments;        // bytes that a kernel is given directly
    char abilities[128];     // what not every device of the driver has, in words
    char matrices[128];      // shapes of matrices of float16 that instructions multiply, "8x8x8 16x16x16"
};

struct gpu_place {
    struct gpu_memory * memory;
    size_t offset;
};

/// An argument of a kernel: an address of the device, or `size` bytes, aligned as a number of that size (12 bytes as three of 4).
struct gpu_argument {
    bool is_place;
    uint8_t size;
    union {
        struct gpu_place place;
        uint8_t bytes[GPU_VALUE];
    };
};

struct gpu_work {
    struct gpu_kernel * kernel;
    uint32_t grid[3], threads[3], shared;  // shared: bytes of it that a block gets
    int count;
    const struct gpu_argument * arguments;
};

struct gpu_calls {
    /// `library` is its file, or NULL where the system has it. Returns how many devices there are, at least 1.
    enum gpu_status (*open)(const char * library, struct gpu_driver ** driver, int * count);
    void (*close)(struct gpu_driver *);
    enum gpu_status (*describe)(struct gpu_driver *, int index, struct gpu_facts * facts);

    enum gpu_status (*device_open)(struct gpu_driver *, int index, struct gpu_device ** device);
    void (*device_close)(struct gpu_device *);
    enum gpu_status (*free_memory)(struct gpu_device *, size_t * free, size_t * total);

    /// `base` is what tensors' addresses count from: any number that no other allocation has.
    enum gpu_status (*allocate)(struct gpu_device *, size_t size, struct gpu_memory ** memory, void ** base);
    void (*release)(struct gpu_device *, struct gpu_memory *);  // waits for what uses it

    enum gpu_status (*queue_new)(struct gpu_device *, struct gpu_queue ** queue);
    void (*queue_free)(struct gpu_device *, struct gpu_queue *);
    enum gpu_status (*wait)(struct gpu_device *, struct gpu_queue *);

    /// The host's memory stays as it is until `wait`. `copy` may come from a device of the same driver, and go to another.
    enum gpu_status (*upload)(struct gpu_device *, struct gpu_queue *, struct gpu_place to, const void * from, size_t size);
    enum gpu_status (*download)(struct gpu_device *, struct gpu_queue *, void * to, struct gpu_place from, size_t size);
    enum gpu_status (*copy)(struct gpu_device *, struct gpu_queue *, struct gpu_place to, struct gpu_device * source,
                            struct gpu_place from, size_t size);
    enum gpu_status (*fill)(struct gpu_device *, struct gpu_queue *, struct gpu_place to, uint8_t value, size_t size);

    /// Only events that are `timed` know seconds, once both were waited for. A queue waits for an event of the same driver.
    enum gpu_status (*event_new)(struct gpu_device *, bool timed, struct gpu_event ** event);
    void (*event_free)(struct gpu_device *, struct gpu_event *);
    enum gpu_status (*event_record)(struct gpu_device *, struct gpu_queue *, struct gpu_event *);
    enum gpu_status (*event_wait)(struct gpu_device *, struct gpu_queue *, struct gpu_event *);
    enum gpu_status (*event_synchronize)(struct gpu_device *, struct gpu_event *);
    enum gpu_status (*event_seconds)(struct gpu_device *, struct gpu_event * begin, struct gpu_event * end, double * seconds);

    enum gpu_status (*module_load)(struct gpu_device *, const void * image, size_t size, struct gpu_module ** module);
    void (*module_free)(struct gpu_device *, struct gpu_module *);  // waits for what uses it
    /// `shared` is the most that a block of it will be given.
    enum gpu_status (*kernel_find)(struct gpu_device *, struct gpu_module *, const char * name, uint32_t shared,
                                   struct gpu_kernel ** kernel);
    enum gpu_status (*launch)(struct gpu_device *, struct gpu_queue *, const struct gpu_work * work);

    /// What is launched between the two is not done, but recorded; `record_end` leaves `recording` NULL if it fails, and the queue as
    /// it was. A recording is replayed by the queue that recorded it.
    enum gpu_status (*record_begin)(struct gpu_device *, struct gpu_queue *);
    enum gpu_status (*record_end)(struct gpu_device *, struct gpu_queue *, struct gpu_recording ** recording);
    enum gpu_status (*replay)(struct gpu_device *, struct gpu_queue *, struct gpu_recording *);
    void (*recording_free)(struct gpu_device *, struct gpu_recording *);
};

/// By libcuda, and by libvulkan.
extern const struct gpu_calls graphc_gpu_cuda, graphc_gpu_vulkan;

/// What a call that fails says, for the thread: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
void gpu_say(const char * format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 1, 2)))
#endif
    ;
