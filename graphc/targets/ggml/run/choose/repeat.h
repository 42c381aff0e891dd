#pragma once

// Makes the steps of a loop whose body is one graph, without Python between two of them. What this is given is made in `run/repeated.py`.

#include "runner.h"

#include <stddef.h>
#include <stdint.h>

/// Where a tensor of so many bytes lies from step to step: at two places by turns, and in each step so many bytes further.
struct graphc_lying {
    struct ggml_tensor * tensor;
    char * even, * odd;
    size_t further, nbytes;
};

/// What changes from step to step: the tensors that lie in arrays, which views of them follow, those that are copied to arrays when a step is
/// done, and the step's `number`. Up to `most` steps are made, the last of which is one that sets a fault, or after which `going` is false;
/// then `made` says how many. The first has everything at its even places, as has the graph afterwards.
struct graphc_steps {
    const struct graphc_lying * lent, * copied;
    struct ggml_tensor ** views;
    const int64_t ** faults;
    int64_t * number;
    const int8_t * going;
    size_t lent_count, copied_count, view_count, fault_count, most, made;
};

/// Computes a graph that has its places for each of these steps. Gives ggml's status; threads and `stops` are those of `graphc_runner_run`.
GRAPHC_API int graphc_runner_repeat(struct graphc_runner * runner, struct graphc_steps * steps, int threads, ggml_abort_callback stops, void * data);
