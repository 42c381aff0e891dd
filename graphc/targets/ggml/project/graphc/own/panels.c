// Panels that stay. No lock is held: a process may be forked at any time, and its child computes too. Entries of the list stay, and those that
// nobody holds are used again.

#include "panels.h"

#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(_WIN32)
extern __declspec(dllimport) int __stdcall GetPhysicallyInstalledSystemMemory(unsigned long long * kilobytes);
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

enum { NOBODY = 0, CHANGING = -1 };  // in place of the number of those that hold panels

static struct graphc_panels * all_panels;
static size_t bytes_kept[2];  // of numbers as they are, and of rounded ones

size_t graphc_bytes_of_panels(void) { return __atomic_load_n(&bytes_kept[0], __ATOMIC_RELAXED) + __atomic_load_n(&bytes_kept[1], __ATOMIC_RELAXED); }

/// Bytes of memory that this process may have: the machine's, or what its container is limited to.
static unsigned long long bytes_of_memory(void) {
#if defined(_WIN32)
    unsigned long long kilobytes = 0;
    return GetPhysicallyInstalledSystemMemory(&kilobytes) ? kilobytes << 10 : 0;
#else
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    unsigned long long bytes = pages > 0 && size > 0 ? (unsigned long long) pages * (unsigned long long) size : 0;
    static const char * const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; ++i) {
        FILE * file = fopen(limits[i], "r");
        unsigned long long limit;
        if (file != NULL && fscanf(file, "%llu", &limit) == 1 && limit < bytes) bytes = limit;
        if (file != NULL) fclose(file);
    }
    return bytes;
#endif
}

static size_t most_rounded = SIZE_MAX;  // not known yet

void graphc_limit_rounded_panels(size_t bytes) { __atomic_store_n(&most_rounded, bytes, __ATOMIC_RELAXED); }

/// Bytes of all panels, at most: 128 MiB of numbers as they are. Where rounded ones stay, what they are made of is not read any more, and
/// unless somebody has set a limit, an eighth of all memory is theirs.
static size_t most_kept(bool rounded) {
    const size_t least = (size_t) 128 << 20;
    if (!rounded) return least;
    size_t most = __atomic_load_n(&most_rounded, __ATOMIC_RELAXED);
    if (most != SIZE_MAX) return most;
    const size_t eighth = (size_t) (bytes_of_memory() / 8);
    size_t unknown = SIZE_MAX;
    most = eighth < least ? least : eighth;
    return __atomic_compare_exchange_n(&most_rounded, &unknown, most, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ? most : unknown;
}

/// Zeros, which the system gives when they are written, on Linux in huge pages where there are many.
static void * memory_of(size_t bytes) {
    void * memory = calloc(1, bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const size_t page = 4096, huge = (size_t) 2 << 20;
    const uintptr_t start = ((uintptr_t) memory + page - 1) / page * page;
    if (memory != NULL && bytes >= 2 * huge) madvise((void *) start, (uintptr_t) memory + bytes - start, MADV_HUGEPAGE);
#endif
    return memory;
}

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
    __atomic_fetch_sub(&bytes_kept[p->parts == ONE_PART], p->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&p->holders, NOBODY, __ATOMIC_RELEASE);
}

/// Panels like these, if somebody holds them, who is not the only one any more.
static struct graphc_panels * found(const struct graphc_panels * like) {
    for (struct graphc_panels * p = __atomic_load_n(&all_panels, __ATOMIC_ACQUIRE); p != NULL; p = p->next) {
        if (!held(p)) continue;
        const bool same_matrix = p->data == like->data && p->type == like->type && p->depth == like->depth && p->columns == like->columns;
        if (same_matrix && p->places == like->places && p->part == like->part && p->parts == like->parts && p->pack == like->pack) return p;
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
    const size_t panels = (size_t) parts_of(like->columns, PANEL), values = panels * PANEL * (size_t) like->rows * sizeof(float);
    const size_t bytes = values + panels * sizeof(int) + LINE;
    const bool rounded = like->parts == ONE_PART, fits = __atomic_add_fetch(&bytes_kept[rounded], bytes, __ATOMIC_RELAXED) <= most_kept(rounded);
    struct graphc_panels * p = fits ? unused() : NULL;
    char * memory = p == NULL ? NULL : (char *) memory_of(bytes);
    if (memory == NULL) {
        __atomic_fetch_sub(&bytes_kept[rounded], bytes, __ATOMIC_RELAXED);
        if (p != NULL) __atomic_store_n(&p->holders, NOBODY, __ATOMIC_RELEASE);
        return NULL;
    }
    p->data = like->data, p->type = like->type, p->types = like->types;
    p->depth = like->depth, p->columns = like->columns, p->places = like->places, p->part = like->part, p->rows = like->rows;
    p->parts = like->parts, p->pack = like->pack;
    p->bytes = bytes, p->memory = memory;
    p->values = (float *) (((uintptr_t) memory + LINE - 1) / LINE * LINE), p->states = (int *) ((char *) p->values + values);
    __atomic_store_n(&p->holders, 1, __ATOMIC_RELEASE);
    return p;
}

struct graphc_panels * graphc_hold_panels_like(const struct graphc_panels * like) {
    struct graphc_panels * first = found(like), * own = first == NULL ? made(like) : NULL;
    if (own == NULL) return first;
    first = found(like);  // of two that were made at once, all take the one that comes first
    graphc_leave_panels(own);
    return first;
}

/// Packs a panel of a matrix, or of a kernel's windows.
static void pack_panel(const struct graphc_panels * p, int64_t column) {
    const struct matrix all_rows = packed_matrix(p);
    const int64_t there = min_of(p->columns - column, PANEL);
    for (int64_t k = 0, depth; k < p->depth; k += depth) {
        const int64_t channels = (depth = min_of(p->depth - k, p->part)) / p->places;
        struct matrix rows = all_rows;
        rows.data = element(&all_rows, 0, k);
        float * to = panels_at(p, column, k);
        if (p->places == 1 && p->parts != NO_PARTS) pack_parts(&rows, column, there, 0, depth, NULL, p->parts, to);
        else if (p->places == 1) pack_rows(&rows, column, there, 0, (int) depth, false, to);
        else if (p->parts != NO_PARTS) pack_parts_of_places(&rows, column, there, channels, p->places, p->parts, to);
        else pack_panel_of_places(&rows, column, there, channels, p->places, channels, to);
    }
}

/// Holds panels of a matrix of so many rows, which are the columns of products, as parts or as they are.
static struct graphc_panels * hold(const struct ggml_tensor * matrix, int64_t columns, int64_t places, int64_t part, int parts,
                                   const struct ggml_type_traits * types) {
    struct graphc_panels like = {.data = matrix->data, .type = matrix->type, .types = types, .columns = columns, .places = places, .part = part};
    like.depth = elements(matrix) / columns;
    like.parts = parts == ONE_PART ? parts : NO_PARTS;  // all parts take more memory than what they are made of
    like.rows = rows_before(&like, like.depth), like.pack = pack_panel;
    return graphc_hold_panels_like(&like);
}

/// True if panels of a matrix may stay for so many rows, as so many parts.
static bool may_stay(const struct ggml_tensor * matrix, int64_t rows, int parts, const struct ggml_type_traits * types) {
    if (parts == ONE_PART) return is_weight(matrix, types) && (matrix->type == GGML_TYPE_F32 || types->blck_size == 1);
    return is_dense(matrix) && rows <= MOST_ROWS;
}

struct graphc_panels * graphc_hold_panels(const struct ggml_tensor * matrix, const struct ggml_tensor * x, bool pairs, const struct ggml_type_traits * types) {
    const int parts = parts_of_product(pairs, x->ne[1], matrix->ne[1], matrix->ne[0]);
    if ((pairs && parts == NO_PARTS) || x->ne[1] <= MOST_FEW || matrix->ne[2] * matrix->ne[3] != 1) return NULL;
    if (!may_stay(matrix, x->ne[1] * x->ne[2] * x->ne[3], parts, types)) return NULL;
    return hold(matrix, matrix->ne[1], 1, parts == NO_PARTS ? DEPTH : depth_of_parts(parts, matrix->ne[0]), parts, types);
}

/// Holds panels of a kernel that meets so many pixels.
static struct graphc_panels * hold_kernel(const struct ggml_tensor * kernel, int64_t pixels, int parts, const struct ggml_type_traits * types) {
    const int64_t places = kernel->ne[0] * kernel->ne[1];
    if (!may_stay(kernel, pixels, parts, types)) return NULL;
    return hold(kernel, kernel->ne[3], places, places * channels_of_part(kernel->ne[2], places, parts), parts, types);
}

struct graphc_panels * graphc_hold_panels_of_kernel(const struct ggml_tensor * kernel, const struct ggml_tensor * image, int64_t pixels, int parts,
                                                    const struct ggml_type_traits * types) {
    return parts < 0 || kernel->ne[2] != image->ne[0] ? NULL : hold_kernel(kernel, pixels, parts, types);
}

struct graphc_panels * graphc_hold_panels_of_groups(const struct ggml_tensor * kernel, int64_t pixels) { return hold_kernel(kernel, pixels, NO_PARTS, NULL); }
