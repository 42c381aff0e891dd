#pragma once

// Kernels without a compiler: a formula of a tensor's elements as instructions, each of which is done for a block of elements at a time.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The number of an operator, as `add_f32`; -1 if there is none of this name.
GRAPHC_API int graphc_vectors_operator(const char * name);

/// Carry out the instructions that `userdata`, a `graphc_vectors_data`, names.
GRAPHC_API void graphc_vectors(struct ggml_tensor * dst, int ith, int nth, void * userdata);

struct graphc_vectors_data {
    int64_t fault;    // 0, or the number of the check that failed
    int64_t code;     // the address of a `struct vectors_code`
    int64_t numbers[];  // sizes and constants, each the bits of its type
};

#ifdef __cplusplus
}
#endif
