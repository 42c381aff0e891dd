#pragma once

// Kernels without a compiler: a formula of a tensor's elements as instructions, each of which is done for a block of elements at a time.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The number of an operator, as `add_f32`; -1 if there is none of this name.
GRAPHC_API int graphc_vectors_operator(const char * name);

/// Carry out the instructions that `userdata`, a `struct vectors_data` of `vectors.c`, names.
GRAPHC_API void graphc_vectors(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
