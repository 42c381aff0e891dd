#pragma once

// Rotary embeddings of float32.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The settings of a rotary embedding: its userdata.
struct graphc_rotary_settings {
    int interleaved;  // pairs are neighbours; else the elements at one place of the two halves of a row
};

/// True if `graphc_rotary` computes x times `cos`, plus x with the elements of each pair exchanged times `sin`; and whether it can
/// have `rest` behind the rows of that.
GRAPHC_API bool graphc_takes_rotary(const struct ggml_tensor * x, const struct ggml_tensor * cos, const struct ggml_tensor * sin);
GRAPHC_API bool graphc_takes_rest(const struct ggml_tensor * rest, const struct ggml_tensor * x);

/// The rows of src[0], rotated by src[1] and src[2], and behind each a row of src[3] if it is there.
GRAPHC_API void graphc_rotary(struct ggml_tensor * dst, int ith, int nth, void * userdata);

#ifdef __cplusplus
}
#endif
