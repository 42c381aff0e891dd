#pragma once

// Matrices that stay packed into panels: for products of so few rows that packing takes much of their time, and of rounded numbers, of which
// panels take half the memory's time. Whoever multiplies with a matrix holds its panels, and all share them: graphs of other sizes, and of
// runs at once. Each panel is packed by the first product that comes to it. Their memory is bounded; a matrix for which there is none is
// packed in every run, with the same results.

#include "turns.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A matrix [columns][depth] as panels: those of each `part` elements of its rows lie together, [part][PANEL] for each, or of rows of parts (`parts.h`). A row of a kernel has
/// all `places` of a channel beside one another; in panels, a place has all channels of a part. A panel has a state, and so many rows, which
/// `pack` makes of those at a column.
struct graphc_panels {
    struct graphc_panels * next;
    int holders;
    const void * data;  // of the matrix
    enum ggml_type type;
    const struct ggml_type_traits * types;  // that read it as float32
    int64_t depth, columns, places, part, rows;
    int parts;  // of each number, or none
    void (*pack)(const struct graphc_panels * panels, int64_t column);
    size_t bytes;
    void * memory;
    float * values;
    int * states;
};

/// The panels of a matrix which `x` meets in a run, and which stays where it is, as it is, while they are held; `pairs`: rounded to bfloat16.
/// `types` reads its numbers. NULL where there are none: for blocks of numbers and what has gaps, for many rows of what is not rounded, for
/// very few, and without memory.
GRAPHC_API struct graphc_panels * graphc_hold_panels(const struct ggml_tensor * matrix, const struct ggml_tensor * x, bool pairs,
                                                     const struct ggml_type_traits * types);

/// The same of a kernel that meets windows of an image with channels last, at so many pixels, as so many parts (`graphc_parts_of_windows`).
GRAPHC_API struct graphc_panels * graphc_hold_panels_of_kernel(const struct ggml_tensor * kernel, const struct ggml_tensor * image, int64_t pixels, int parts,
                                                               const struct ggml_type_traits * types);

/// The same of a kernel of float32 whose groups meet so many pixels (`groups.h`).
GRAPHC_API struct graphc_panels * graphc_hold_panels_of_groups(const struct ggml_tensor * kernel, int64_t pixels);

/// Panels like these, as far as they say what is packed and how; one more holds them. NULL without memory.
GRAPHC_API struct graphc_panels * graphc_hold_panels_like(const struct graphc_panels * like);

/// Ends holding them; nothing computes with them any more.
GRAPHC_API void graphc_leave_panels(struct graphc_panels * panels);

/// Has rounded panels of so many bytes be held at most, from now on.
GRAPHC_API void graphc_limit_rounded_panels(size_t bytes);

/// The bytes of all panels that somebody holds.
GRAPHC_API size_t graphc_bytes_of_panels(void);

#ifdef __cplusplus
}
#endif
