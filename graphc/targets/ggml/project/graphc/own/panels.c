// Panels that stay. No lock is held: a process may be forked at any time, and its child computes too. Entries of the list stay, and those that
// nobody holds are used again.

#include "panels.h"

#include "blocks.h"

#include <stdlib.h>

static const size_t most_kept = (size_t) 128 << 20;  // bytes, of all matrices

enum { NOBODY = 0, CHANGING = -1 };  // in place of the number of those that hold panels

static struct graphc_panels * all_panels;
static size_t bytes_kept;

size_t graphc_bytes_of_panels(void) { return __atomic_load_n(&bytes_kept, __ATOMIC_RELAXED); }

/// One more that holds panels, if anybody does; else false.
static bool held(struct graphc_panels * p) {
    int holders = __atomic_load_n(&p->holders, __ATOMIC_ACQUIRE);
    while (holders > NOBODY && !__atomic_compare_exchange_n(&p->holders, &holders, holders + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
    return holders > NOBODY;
}

void graphc_leave_panels(struct graphc_panels * p) {
    int holders = __atomic_load_n(&p->holders, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&p->holders, &holders, holders == 1 ? CHANGING : holders - 1, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
    if (holders > 1) return;
    free(p->memory);
    __atomic_fetch_sub(&bytes_kept, p->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&p->holders, NOBODY, __ATOMIC_RELEASE);
}

/// Panels like these, if somebody holds them, who is not the only one any more.
static struct graphc_panels * found(const struct graphc_panels * like) {
    for (struct graphc_panels * p = __atomic_load_n(&all_panels, __ATOMIC_ACQUIRE); p != NULL; p = p->next) {
        if (!held(p)) continue;
        const bool same_matrix = p->data == like->data && p->depth == like->depth && p->columns == like->columns;
        if (same_matrix && p->places == like->places && p->part == like->part && p->parts == like->parts) return p;
        graphc_leave_panels(p);
    }
    return NULL;
}

/// An entry that nobody else has; NULL without memory.
static struct graphc_panels * unused(void) {
    struct graphc_panels * first = __atomic_load_n(&all_panels, __ATOMIC_ACQUIRE);
    for (struct graphc_panels * p = first; p != NULL; p = p->next) {
        int holders = NOBODY;
        if (__atomic_compare_exchange_n(&p->holders, &holders, CHANGING, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return p;
    }
    struct graphc_panels * made = (struct graphc_panels *) calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->holders = CHANGING, made->next = first;
    while (!__atomic_compare_exchange_n(&all_panels, &made->next, made, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
    return made;
}

/// New panels like these, of which nothing is packed; NULL without memory.
static struct graphc_panels * made(const struct graphc_panels * like) {
    const size_t panels = (size_t) parts_of(like->columns, PANEL), values = panels * PANEL * (size_t) rows_before(like, like->depth) * sizeof(float);
    const size_t bytes = values + panels * sizeof(int) + LINE;
    const bool fits = __atomic_add_fetch(&bytes_kept, bytes, __ATOMIC_RELAXED) <= most_kept;
    struct graphc_panels * p = fits ? unused() : NULL;
    char * memory = p == NULL ? NULL : (char *) calloc(1, bytes);  // the system gives what is written
    if (memory == NULL) {
        __atomic_fetch_sub(&bytes_kept, bytes, __ATOMIC_RELAXED);
        if (p != NULL) __atomic_store_n(&p->holders, NOBODY, __ATOMIC_RELEASE);
        return NULL;
    }
    p->data = like->data, p->depth = like->depth, p->columns = like->columns, p->places = like->places, p->part = like->part, p->parts = like->parts;
    p->bytes = bytes, p->memory = memory;
    p->values = (float *) (((uintptr_t) memory + LINE - 1) / LINE * LINE), p->states = (int *) ((char *) p->values + values);
    __atomic_store_n(&p->holders, 1, __ATOMIC_RELEASE);
    return p;
}

/// Panels like these, which one more holds.
static struct graphc_panels * hold(const struct graphc_panels * like) {
    struct graphc_panels * first = found(like), * own = first == NULL ? made(like) : NULL;
    if (own == NULL) return first;
    first = found(like);  // of two that were made at once, all take the one that comes first
    graphc_leave_panels(own);
    return first;
}

struct graphc_panels * graphc_hold_panels(const struct ggml_tensor * matrix, const struct ggml_tensor * x, bool pairs) {
    const int parts = parts_of_product(pairs, x->ne[1], matrix->ne[1], matrix->ne[0]);
    const int64_t rows = x->ne[1] * x->ne[2] * x->ne[3];
    if ((pairs && parts == NO_PARTS) || x->ne[1] <= MOST_FEW || rows > MOST_ROWS || !is_dense(matrix) || matrix->ne[2] * matrix->ne[3] != 1) return NULL;
    struct graphc_panels like = {.data = matrix->data, .depth = matrix->ne[0], .columns = matrix->ne[1], .places = 1};
    like.parts = pairs ? parts : NO_PARTS;  // all parts take more memory than what they are made of
    like.part = parts == NO_PARTS ? DEPTH : depth_of_parts(parts, like.depth);
    return hold(&like);
}

struct graphc_panels * graphc_hold_panels_of_kernel(const struct ggml_tensor * kernel, const struct ggml_tensor * image, int64_t pixels, int parts) {
    const int64_t places = kernel->ne[0] * kernel->ne[1], depth = places * kernel->ne[2];
    if (parts < 0 || pixels > MOST_ROWS || !is_dense(kernel) || kernel->ne[2] != image->ne[0]) return NULL;
    struct graphc_panels like = {.data = kernel->data, .depth = depth, .columns = kernel->ne[3], .places = places};
    like.parts = parts == ALL_PARTS ? NO_PARTS : parts;
    like.part = places * channels_of_part(kernel->ne[2], places, parts);
    return hold(&like);
}
