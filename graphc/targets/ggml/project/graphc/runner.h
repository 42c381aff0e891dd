#pragma once

// Computes graphs on the CPU by threads of its own. ggml's threads meet after every step, and where one of them has to be woken, or other
// programs compute too, all wait for it. Here a thread that is free takes part in whatever is ready, and nobody waits for one that does
// nothing. Valid as C and as C++; what is in it is C of GNU's kind.

#include "build.h"

#include "ggml-cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What it takes to compute a graph that has its places: its steps, and which of them have to wait for which.
struct graphc_runner;

/// Steps for a graph that lives longer. Our own functions are computed by our threads, and what ggml has to compute by this backend. NULL
/// without memory.
GRAPHC_API struct graphc_runner * graphc_runner_new(const struct graphc_ggml * ggml, ggml_backend_t cpu, struct ggml_cgraph * graph);
GRAPHC_API void graphc_runner_free(struct graphc_runner * runner);

/// Computes the graph with at most so many threads, of which the calling one is the first, and gives ggml's status. `stops`, unless it is
/// NULL, is asked by the calling thread after each step that it had a part in or waited for, and ends the run where it is true. A graph is computed by one
/// run at a time; several graphs may be computed at once.
GRAPHC_API int graphc_runner_run(struct graphc_runner * runner, int threads, ggml_abort_callback stops, void * data);

#ifdef __cplusplus
}
#endif
