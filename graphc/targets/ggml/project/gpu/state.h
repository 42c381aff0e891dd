// What the files of the backend share: devices, their users and queues, and what went wrong on them.
//
// A device is opened for its first user and closed with its last; users are backends, buffers, events, modules and every question that
// is asked. So things may be freed in any order, and a device that was lost can be opened again once nothing of it is left.
#pragma once

#include "driver.h"
#include "gpu.h"
#include "interface.h"
#include "lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GPU_ALIGNMENT = 256,  // bytes: of tensors, and of scratch memory
    GPU_NAME = 64,
    GPU_MOST_QUEUES = 8,  // that are kept for copies
    GPU_FEATURES = 10,
    GPU_FEATURE_TEXT = 24,
};

/// What ggml calls the features of a backend: names and values, which a null name ends.
struct gpu_feature {
    const char *name, *value;
};

struct gpu_host;

/// A device as ggml knows it. `ggml` is the first member: a handle of ggml's is the address of this.
struct gpu_unit {
    struct ggml_backend_device ggml;
    struct ggml_backend_buffer_type buffers;
    struct gpu_host * host;
    int index;
    char name[GPU_NAME];
    struct gpu_facts facts;
    struct gpu_feature features[GPU_FEATURES + 1];
    char feature_texts[GPU_FEATURES][GPU_FEATURE_TEXT];

    gpu_lock lock;
    int users;
    struct gpu_device * open;  // while it has users
    bool lost;
    char why[GPU_TEXT];
    int idle_count;
    struct gpu_queue * idle[GPU_MOST_QUEUES];
};

/// The devices of one driver, which ggml knows as a backend. It lives as long as the process.
struct gpu_host {
    struct ggml_backend_reg ggml;
    const struct graphc_gpu_ggml * functions;
    const struct gpu_calls * calls;
    struct gpu_driver * driver;
    int count;
    struct gpu_unit * units;
};

/// Memory of a device: of a buffer of ggml's, or scratch memory. No two have the same number.
struct gpu_buffer {
    struct gpu_unit * unit;
    int64_t number;
    struct gpu_memory * memory;
    void * base;
};

/// A kernel. No two have the same number, also if one takes the place of another that was given back.
struct graphc_kernel {
    struct gpu_unit * unit;
    struct gpu_kernel * kernel;
    int64_t number;
    struct graphc_kernel * next;
    char name[];
};

/// One more user of a device. Fails, and says so, if it cannot be opened or is lost.
bool gpu_hold(struct gpu_unit * unit);
void gpu_drop(struct gpu_unit * unit);

/// True if all is well. Otherwise it is remembered for `graphc_gpu_error`, with what the driver said and what was being done; and if the
/// device is lost, for all that comes.
bool gpu_check(struct gpu_unit * unit, enum gpu_status status, const char * format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/// The same without a driver: an error of what was asked.
void gpu_fail(const struct gpu_unit * unit, const char * format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/// True, and an error, if the device is lost.
bool gpu_is_lost(struct gpu_unit * unit);

/// True if this thread has an error that nobody asked for yet.
bool gpu_has_failed(void);

/// Have what was queued done. A queue that cannot be waited for even once more is lost with its device: what it copies from the host's
/// memory, it may still be about to read.
enum gpu_status gpu_settle(struct gpu_unit * unit, struct gpu_queue * queue);

/// Memory; NULL, and an error, if there is none.
struct gpu_buffer * gpu_buffer_new(struct gpu_unit * unit, size_t size);
void gpu_buffer_free(struct gpu_buffer * buffer);

/// The memory in which a tensor lies, and where in it; NULL if that is none of ours.
const struct gpu_buffer * gpu_buffer_of(const struct ggml_tensor * tensor, size_t * offset);

/// A number that nothing else of this process has got, from 1.
int64_t gpu_number(void);

/// True if a tensor is a node of ours whose kernels are this device's.
bool gpu_computes(const struct gpu_unit * unit, const struct ggml_tensor * tensor);

void gpu_buffer_type_new(struct gpu_unit * unit);
ggml_backend_t gpu_backend_new(struct gpu_unit * unit);
bool gpu_is_backend(ggml_backend_t backend);

static inline struct gpu_unit * gpu_unit_of(ggml_backend_dev_t device) { return (struct gpu_unit *) device; }
