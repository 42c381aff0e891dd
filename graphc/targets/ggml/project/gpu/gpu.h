// Generated kernels as nodes of ggml's graphs. A node is a GGML_OP_CUSTOM whose function is `graphc_gpu_node` and whose userdata is a
// `struct graphc_launches`; the devices of our backend compute such nodes and nothing else. ggml's scheduler believes that the CPU can
// compute every GGML_OP_CUSTOM: have it know better by `ggml_backend_sched_set_tensor_backend`.
//
// Errors: ggml's functions give a status or nothing at all. `graphc_gpu_error` is the first error since it was last asked in this
// thread; ask after every use of ggml that touches such a device (a run, a copy, an allocation that failed).
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_buffer_functions;

/// The functions of ggml that the backend calls.
struct graphc_gpu_ggml {
    ggml_backend_buffer_t (*backend_buffer_init)(ggml_backend_buffer_type_t, struct ggml_buffer_functions, void *, size_t);
    size_t (*nbytes)(const struct ggml_tensor *);
    int (*graph_n_nodes)(struct ggml_cgraph *);
    struct ggml_tensor * (*graph_node)(struct ggml_cgraph *, int);
    void (*backend_register)(ggml_backend_reg_t);
    size_t (*backend_reg_count)(void);
    ggml_backend_reg_t (*backend_reg_get)(size_t);
};

/// Make the devices of a driver ("cuda") known to ggml, as `prefix` and a number: "cuda0". `library` is the driver's file, NULL for that
/// of the system. Returns NULL, or why there are none; the text is static. Call it from one thread, once for each prefix.
const char * graphc_gpu_register(const struct graphc_gpu_ggml * ggml, const char * driver, const char * library, const char * prefix);

/// True for the devices that it makes known.
bool graphc_gpu_is(ggml_backend_dev_t device);

/// What is known of such a device: names and values (`ARCHITECTURE`, `LANES`, …), which a null name ends.
struct gpu_feature;
const struct gpu_feature * graphc_gpu_features(ggml_backend_dev_t device);

/// The first error of this thread since it was asked before, or NULL. The text stays until the next error of the thread.
const char * graphc_gpu_error(void);

struct graphc_module;
struct graphc_kernel;

/// Code for a device: what its driver takes (for CUDA: PTX, a cubin). NULL: see the error. Give modules back when no graph that
/// launches their kernels will run any more; in any order with all else.
struct graphc_module * graphc_gpu_module(ggml_backend_dev_t device, const void * image, size_t size);
void graphc_gpu_module_free(struct graphc_module * module);

/// A kernel of a module, of which a block is given at most so many bytes of shared memory. It lives as long as the module. NULL: see the
/// error.
struct graphc_kernel * graphc_gpu_kernel(struct graphc_module * module, const char * name, uint32_t shared);

enum graphc_argument_kind {
    GRAPHC_TENSOR,    // the address of a tensor, plus `offset` bytes: `number` is -1 for the node, or that of its source
    GRAPHC_SCRATCH,   // the address of the node's scratch memory, plus `offset` bytes
    GRAPHC_COUNTERS,  // the address of memory that is 0 when the launch begins, and that it leaves so
    GRAPHC_VALUE,     // `number` bytes: a number of 4 or 8, or the 12 of a divisor
};

struct graphc_argument {
    int32_t kind, number;
    union {
        int64_t offset;
        uint8_t bytes[16];
    };
};

/// One launch. Where a number of `grid` is 0, there is nothing to do. `scratch` is how many bytes of the node's scratch memory, which all
/// its launches see and no other node needs, it reads or writes. It is not cleared. `counters` is how many bytes of them it has.
struct graphc_launch {
    struct graphc_kernel * kernel;
    uint32_t grid[3], threads[3], shared;
    int32_t count;
    const struct graphc_argument * arguments;
    size_t scratch, counters;
};

/// What a node does, in this order. It lives as long as the node.
struct graphc_launches {
    int32_t count;
    const struct graphc_launch * each;
};

/// The function of such nodes. Where ggml has the CPU call it, the run has an error.
void graphc_gpu_node(struct ggml_tensor * node, int thread, int threads, void * userdata);

enum graphc_gpu_mode {
    GRAPHC_GPU_RECORD,  // a graph that comes again as it was is recorded, and replayed from then on
    GRAPHC_GPU_LAUNCH,  // each kernel is launched
    GRAPHC_GPU_STEP,    // the same, and waited for: a kernel that goes astray is named
};

/// How a backend of such a device computes. GRAPHC_GPU=record, launch or step in the environment says it for those that say nothing.
void graphc_gpu_set_mode(ggml_backend_t backend, enum graphc_gpu_mode mode);

/// Have each node timed by events of the device: `timer` is told before a run ends. No graph is recorded meanwhile. NULL ends it.
void graphc_gpu_set_timer(ggml_backend_t backend, void (*timer)(void * data, const struct ggml_tensor * node, double seconds),
                          void * data);

/// How many graphs the backend has recorded, and how often it has replayed one.
void graphc_gpu_recordings(ggml_backend_t backend, int64_t * recorded, int64_t * replayed);

#ifdef __cplusplus
}
#endif
