#pragma once

// Which weights lie in the memory of which device, and which stay on the host, to be copied when their turn comes: arithmetic over bytes.
// Weights are taken in the order in which a run reads them, so that each device computes a stretch of the model and activations cross
// from one to the next once. Valid as C and as C++.

#include "build.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// In place of a device: a weight stays on the host, and what reads it runs there. Places on a device for weights that are streamed: one
/// is read while the other is filled.
enum { GRAPHC_ON_HOST = -1, GRAPHC_SLOTS = 2 };

struct graphc_residence;

/// So many weights. With `spill` the CPU computes what devices have no room for, else its weights are streamed. NULL without memory.
GRAPHC_API struct graphc_residence * graphc_residence_new(size_t weights, bool spill);
GRAPHC_API void graphc_residence_free(struct graphc_residence * r);

/// The next of GRAPHC_MOST_DEVICES at most: its name in messages, and the bytes that it may use; if 0, as many as it says are free, but
/// for some.
GRAPHC_API void graphc_residence_device(struct graphc_residence * r, const char * name, size_t limit, size_t free);

/// The next weight that a run reads, by the bytes that it takes on a device: one of which only rows are read (`rows`) stays on the host
/// where there is not room for everything, one that only the CPU can read always. And weights that one call reads. False without memory.
GRAPHC_API bool graphc_residence_weight(struct graphc_residence * r, size_t index, size_t size, bool rows, bool stays);
GRAPHC_API bool graphc_residence_together(struct graphc_residence * r, const size_t * indices, size_t count);

/// Thinks where weights lie, once all of that is told. False if they fit easily, so that no graph need be measured.
GRAPHC_API bool graphc_residence_bounded(struct graphc_residence * r);

/// Takes what a graph needs while weights lie where they are thought to: bytes of results on each device, and the weights that are read
/// by a device where they do not lie. False if they are thought to lie elsewhere now, or there is a problem.
GRAPHC_API bool graphc_residence_fits(struct graphc_residence * r, const size_t * results, const size_t * displaced, size_t count);

/// What a device that is too small would need; NULL if none was at the last measurement.
GRAPHC_API const char * graphc_residence_problem(struct graphc_residence * r);

/// What of a device's memory, or of the host's, holds what; "" if nothing of the host's does. The text stays until the next.
GRAPHC_API const char * graphc_residence_text(struct graphc_residence * r, int device);

/// The device of a weight, or GRAPHC_ON_HOST; whether it is streamed; the bytes of a device's slots.
GRAPHC_API int graphc_residence_of(const struct graphc_residence * r, size_t index);
GRAPHC_API bool graphc_residence_streamed(const struct graphc_residence * r, size_t index);
GRAPHC_API size_t graphc_residence_slot(const struct graphc_residence * r, int device);

#ifdef __cplusplus
}
#endif
