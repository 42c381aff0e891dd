// The launches of a graph as they are now: kernels, and the addresses and values that they are given. Graphs whose plans have the same
// key do the same, so what was recorded of one can be replayed for the other.
#pragma once

#include "state.h"

struct gpu_step {
    const struct ggml_tensor * node;
    const struct graphc_kernel * kernel;
    struct gpu_work work;
};

struct gpu_plan {
    int count;
    struct gpu_step * steps;
    struct gpu_argument * arguments;
    size_t key_size;
    uint8_t * key;

    size_t step_room, argument_room, key_room;  // bytes that there are of each
};

/// Memory of a backend that its launches have besides tensors, and how many bytes it has. Counters are 0 while nothing runs.
struct gpu_workspace {
    struct gpu_buffer *scratch, *counters;
    size_t scratch_size, counters_size;
};

/// How many bytes of it a graph wants.
struct gpu_workspace gpu_workspace_of(const struct graphc_gpu_ggml * ggml, struct ggml_cgraph * graph);

/// Find out what a graph launches. Returns false, with an error, if it cannot be launched on the device.
bool gpu_plan_graph(struct gpu_unit * unit, struct gpu_plan * plan, struct ggml_cgraph * graph,
                    const struct gpu_workspace * workspace);

void gpu_plan_free(struct gpu_plan * plan);
