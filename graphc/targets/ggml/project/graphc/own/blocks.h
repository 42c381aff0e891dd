#pragma once

// Products by blocks: columns of the result are packed into panels that stay in the cache while all rows pass by them, and a
// tile of rows and a panel's columns is summed up in registers. Sums are made of partial sums over `DEPTH` elements, so they
// are as exact as the pairwise sums of other libraries. Weights of narrower types are read as float32, a part at a time.
// Weights are packed in every run, while the loop of the tiles fetches what is packed next; but with few rows they stay packed (`panels.h`).

#include "panels.h"
#include "products.h"

#include "activate.h"
#include "parts.h"
#include "readers.h"
#include "tiles.h"

#include <string.h>

enum { MOST_ADDED = 1 << 20 };  // elements of what tiles add: more would come from memory, which wants whole lines

enum { MOST_FEW = 8 };  // rows that are multiplied without panels
enum { MOST_ROWS = 1024 };  // for which panels stay: with more, packing is a small part of a product

enum { SOME = 128 };  // elements of columns that are read as float32 before they become pairs or parts

enum { COLUMNS_OF_PARTS = 256, COLUMNS = 128, BLOCK = 8, SPLIT = 8, LEAST_ROWS = 192, LEAST_PACKED = 8 * ROWS, LEAST_CUT = 4 * ROWS, MOST_WHOLE = 24 * ROWS };  // rows

/// What the windows of a convolution meet at its result's pixels, of all images, from `first` on: of each of the places of a window some
/// `channels` of an image that has `all` of them last, the first of which is where the matrix's data begins.
struct windows_last {
    int64_t all, channels, width, height, across, down, kw, kh;
    int64_t s0, s1, p0, p1, d0, d1, first;
};

/// Rows of a matrix of any type that can be read as float32; `step` bytes from one to the next. NULL stands for float32's traits.
/// With `scales`, an element is (what is stored + shift) * scale; of both, which may be NULL, a row has `groups`, each for `size` elements.
/// With `windows`, rows are what those meet.
struct matrix {
    const char * data;
    int64_t step;
    enum ggml_type type;
    const struct ggml_type_traits * types;
    const float * scales, * shifts;
    int64_t groups, size;
    const struct windows_last * windows;
};

/// Elements that a unit's packed columns take, in parts too.
enum { PACKED_COLUMNS = MAY_HAVE_TILES ? COLUMNS_OF_PARTS * DEPTH_OF_PARTS * ALL_PARTS / 2 : COLUMNS * DEPTH };

/// The parts of what a product of so many rows and columns of float32 multiplies: it takes longer to split what few of them meet, and what sums
/// are filled up with to whole steps is multiplied too.
static inline int parts_of_product(bool rounded, int64_t rows, int64_t columns, int64_t depth) {
    enum { FEWEST = 96 };
    const bool pays = rows >= FEWEST && columns >= FEWEST && steps_in(depth) * STEP * 8 <= depth * 9;
    return rounded || pays ? parts_for(rounded) : NO_PARTS;
}

/// Columns of a unit, at most: rows are split anew for each.
static inline int64_t columns_of_unit(int parts) { return parts == NO_PARTS ? COLUMNS : COLUMNS_OF_PARTS; }

/// The same of so many columns that stay rounded: as many as may be, so that rows are split once, while they fit the second cache.
static inline int64_t columns_of_kept(int64_t columns, int64_t depth) {
    enum { BYTES = 1 << 20 };
    const int64_t most = BYTES / (part_rows(ONE_PART, depth_of_parts(ONE_PART, depth)) * (int64_t) sizeof(word)) / PANEL * PANEL;
    return most <= COLUMNS_OF_PARTS ? COLUMNS_OF_PARTS : parts_of(even_split(columns, most), PANEL) * PANEL;
}

/// Bytes of so many elements of a row.
static inline int64_t bytes_of(const struct matrix * m, int64_t count) {
    return m->type == GGML_TYPE_F32 ? count * (int64_t) sizeof(float) : count / m->types->blck_size * (int64_t) m->types->type_size;
}

static inline const char * element(const struct matrix * m, int64_t row, int64_t column) { return m->data + row * m->step + bytes_of(m, column); }

/// The scales and shifts from an element on, where the matrix has any.
static inline struct scaling scaling_at(const struct matrix * m, int64_t row, int64_t column) {
    const int64_t place = row * m->groups + column / m->size;
    return (struct scaling){m->scales + place, m->shifts == NULL ? NULL : m->shifts + place, m->size, m->size - column % m->size};
}

/// True if there are scales that whole numbers are read by in one step.
static inline bool reads_scaled(const struct matrix * m) {
    return m->scales != NULL && readers[m->type].scaled_widen != NULL && m->size % CODED == 0;
}

/// Elements of a row of a matrix, as float32.
static inline void read_row(const struct matrix * m, int64_t row, int64_t column, int64_t count, float * restrict to) {
    const char * from = element(m, row, column);
    if (m->scales == NULL) return widen(m->type, m->types, from, count, to);
    struct scaling s = scaling_at(m, row, column);
    if (reads_scaled(m)) return readers[m->type].scaled_widen(from, s, count, to);
    widen(m->type, m->types, from, count, to);
    for (int64_t i = 0; i < count; ++s.scales, s.left += s.size) {
        const float scale = *s.scales, shift = s.shifts == NULL ? 0 : *s.shifts++;
        const int64_t stop = min_of(count, s.left);
        for (; i < stop; ++i) to[i] = (to[i] + shift) * scale;
    }
}

/// `depth` elements of at most WIDTH rows, `step` elements apart, as columns: [depth][WIDTH]. Rows that are not there are 0.
static inline void turn_rows(const float * rows, int64_t step, int64_t there, int64_t depth, float * to) {
    int64_t k = 0;
    for (; there == WIDTH && k + WIDTH <= depth; k += WIDTH) transpose_square(rows + k, step, to + k * WIDTH, WIDTH);
    for (; k < depth; ++k) {
        for (int x = 0; x < WIDTH; ++x) to[k * WIDTH + x] = x < there ? rows[x * step + k] : 0;
    }
}

/// What windows meet at so many pixels, `apart` elements from one to the next.
static inline void read_windows(const struct windows_last * w, const float * data, int64_t pixel, int64_t count, int64_t apart, float * to) {
    for (pixel += w->first; count > 0; --count, ++pixel, to += apart) {
        const int64_t x = pixel % w->across * w->s0 - w->p0, y = pixel / w->across % w->down * w->s1 - w->p1;
        const float * image = data + pixel / w->across / w->down * w->height * w->width * w->all;
        float * at = to;
        for (int64_t ky = 0; ky < w->kh; ++ky) {
            const int64_t iy = y + ky * w->d1;
            for (int64_t kx = 0; kx < w->kw; ++kx, at += w->channels) {
                const int64_t ix = x + kx * w->d0;
                if (iy >= 0 && iy < w->height && ix >= 0 && ix < w->width) copy(image + (iy * w->width + ix) * w->all, 1, w->channels, at);
                else memset(at, 0, w->channels * sizeof *at);
            }
        }
    }
}

/// Rows from `row` on, their elements from `column` on: where they lie, or as float32 in `workspace`, so many elements apart. `lda` becomes
/// the elements from one to the next.
static inline const float * read_rows_to(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, int64_t apart, float * workspace, int64_t * lda) {
    *lda = apart;
    if (m->windows != NULL) {
        read_windows(m->windows, (const float *) m->data, row, count, apart, workspace);
        return workspace;
    }
    if (m->type == GGML_TYPE_F32) {
        *lda = m->step / (int64_t) sizeof(float);
        return (const float *) element(m, row, column);
    }
    for (int64_t i = 0; i < count; ++i) read_row(m, row + i, column, depth, workspace + i * apart);
    return workspace;
}

/// The same, DEPTH elements apart.
static inline const float * read_rows(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, float * workspace, int64_t * lda) {
    return read_rows_to(m, row, count, column, depth, DEPTH, workspace, lda);
}

/// The same, but never rows that would drive one another from the cache.
static inline const float * read_apart(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, float * workspace, int64_t * lda) {
    if (m->windows != NULL || m->step % SPREAD != 0) return read_rows(m, row, count, column, depth, workspace, lda);
    for (int64_t i = 0; i < count; ++i) read_row(m, row + i, column, depth, workspace + i * DEPTH);
    *lda = DEPTH;
    return workspace;
}

/// Elements of a partial sum: where they are rounded, they are as many words.
static inline int64_t depth_of(bool rounded) { return rounded ? 2 * DEPTH : DEPTH; }

/// The same rows as pairs, of twice as many elements at most.
static inline const float * read_pairs(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, float * workspace, int64_t * lda) {
    float wide[2 * DEPTH];
    *lda = DEPTH;
    for (int64_t i = 0, unused; i < count; ++i) pair_row(read_rows(m, row + i, 1, column, depth, wide, &unused), depth, workspace + i * *lda);
    return workspace;
}

/// Multiplies rows of a panel, which the elements of a sum meet, with a gate.
static inline void gate_panel(const float * gate, int64_t depth, float * panel) {
    for (int64_t k = 0; k < depth; ++k) {
        for (int j = 0; j < PANEL; j += WIDTH) *(vector *) (panel + k * PANEL + j) *= all(gate[k]);
    }
}

/// True if rows can be read from any element on, so that they need not be read by blocks.
static inline bool takes_anywhere(const struct matrix * m) { return m->type == GGML_TYPE_F32 || m->types->blck_size == 1; }

/// Rows of a matrix from `row` on, their elements from `column` on, as the columns of panels, or as columns of pairs; columns without a
/// row are 0.
static __attribute__((unused)) void pack_rows(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, bool pairs, float * packed) {
    const int deep = pairs ? (int) pairs_in(depth) : depth;
    float workspace[WIDTH * DEPTH] __attribute__((aligned(64)));
    for (int64_t j = 0; j < parts_of(count, PANEL) * PANEL; j += WIDTH) {
        float * panel = packed + j / PANEL * PANEL * DEPTH + j % PANEL;
        const int64_t there = min_of(count - j, WIDTH);
        int64_t ldb;
        const float * rows = (pairs ? read_pairs : read_rows)(m, row + j, there, column, depth, workspace, &ldb);
        int k = 0;
        for (; there == WIDTH && k + WIDTH <= deep; k += WIDTH) transpose(rows + k, ldb, panel + k * PANEL);
        for (int x = 0; x < WIDTH; ++x) {
            for (int rest = k; rest < deep; ++rest) {
                *(word *) (panel + rest * PANEL + x) = x < there ? *(const word *) (rows + x * ldb + rest) : 0;
            }
        }
    }
}

/// The same as panels of parts, one after the other. `gate`, if there is one, multiplies the rows of panels.
static __attribute__((unused)) void pack_parts(const struct matrix * m, int64_t row, int64_t count, int64_t column, int64_t depth, const float * gate, int parts,
                                               float * packed) {
    const int64_t most = takes_anywhere(m) ? SOME : DEPTH;
    float wide[DEPTH * PANEL] __attribute__((aligned(64)));
    for (int64_t j = 0; j < count; j += PANEL, packed += part_rows(parts, depth) * PANEL) {
        for (int64_t k = 0; k < depth; k += most) {
            const int some = (int) min_of(depth - k, most);
            pack_rows(m, row + j, min_of(count - j, PANEL), column + k, some, false, wide);
            if (gate != NULL) gate_panel(gate + k, some, wide);
            split_panel(parts, wide, some, (word *) packed + part_rows(parts, k) * PANEL);
        }
    }
}

/// Some channels of kernels [rows][channels][places], from the row `row` on, as the columns of panels, or as columns of pairs: what belongs
/// to a place lies together, as in rows of windows, `apart` rows from one place to the next. Panels are `deep` rows apart.
static __attribute__((unused)) void pack_places(const struct matrix * m, int64_t row, int64_t count, int64_t channels, int64_t places, bool pairs,
                                                int64_t apart, int64_t deep, float * packed) {
    float workspace[WIDTH * DEPTH] __attribute__((aligned(64))), turned[DEPTH * WIDTH] __attribute__((aligned(64)));
    const int64_t depth = channels * places;
    for (int64_t j = 0; j < parts_of(count, PANEL) * PANEL; j += WIDTH) {
        const int64_t there = min_of(count - j, WIDTH);
        int64_t ldb;
        const float * rows = read_rows(m, row + j, there, 0, (int) depth, workspace, &ldb);
        turn_rows(rows, ldb, there, depth, turned);
        vector even = all(0);
        float * to = packed + j / PANEL * PANEL * deep + j % PANEL;
        for (int64_t place = 0; place < places; ++place) {
            for (int64_t channel = 0; channel < channels; ++channel) {
                const int64_t number = place * apart + channel;
                const vector found = *(const vector *) (turned + (channel * places + place) * WIDTH);
                if (!pairs) *(vector *) (to + number * PANEL) = found;
                else if (number % 2 != 0) *(words_of *) (to + number / 2 * PANEL) = paired(even, found);
                even = found;
            }
        }
        if (pairs && depth % 2 != 0) *(words_of *) (to + depth / 2 * PANEL) = paired(even, all(0));
    }
}

/// The same of one panel, for any number of channels.
static __attribute__((unused)) void pack_panel_of_places(const struct matrix * m, int64_t row, int64_t count, int64_t channels, int64_t places, int64_t apart,
                                                         float * panel) {
    const int64_t some = even_split(channels, DEPTH / places);
    for (int64_t channel = 0; channel < channels; channel += some) {
        struct matrix kernels = *m;
        kernels.data = element(m, 0, channel * places);
        pack_places(&kernels, row, count, min_of(channels - channel, some), places, false, apart, 0, panel + channel * PANEL);
    }
}

/// The same as panels of parts, one after the other.
static __attribute__((unused)) void pack_parts_of_places(const struct matrix * m, int64_t row, int64_t count, int64_t channels, int64_t places, int parts,
                                                         float * packed) {
    const int64_t depth = channels * places;
    float wide[2 * DEPTH_OF_PARTS * PANEL] __attribute__((aligned(64)));
    for (int64_t j = 0; j < count; j += PANEL, packed += part_rows(parts, depth) * PANEL) {
        pack_panel_of_places(m, row + j, min_of(count - j, PANEL), channels, places, channels, wide);
        split_panel(parts, wide, depth, (word *) packed);
    }
}

/// Channels of a kernel that are summed up at once, of all its places.
static inline int64_t channels_of_part(int64_t channels, int64_t places, int parts) {
    return even_split(channels, (parts == NO_PARTS ? DEPTH : depth_of_parts(parts, channels * places)) / places);
}

/// Rows of panels before those of a part of the rows' elements, or of all of them; and the rows of the part.
static inline int64_t rows_of(const struct graphc_panels * p, int64_t depth) { return p->parts == NO_PARTS ? depth : part_rows(p->parts, depth); }
static inline int64_t rows_before(const struct graphc_panels * p, int64_t k) { return k / p->part * rows_of(p, p->part) + rows_of(p, k % p->part); }
static inline int64_t rows_of_part(const struct graphc_panels * p, int64_t k) { return rows_of(p, min_of(p->depth - k, p->part)); }

/// The panels from a column on, a multiple of PANEL, of a part of the rows' elements.
static inline float * panels_at(const struct graphc_panels * p, int64_t column, int64_t k) {
    return p->values + rows_before(p, k) * parts_of(p->columns, PANEL) * PANEL + column * rows_of_part(p, k);
}

/// The matrix that panels are packed of.
static inline struct matrix packed_matrix(const struct graphc_panels * p) {
    struct matrix m = {.data = (const char *) p->data, .type = p->type, .types = p->types};
    m.step = bytes_of(&m, p->depth);
    return m;
}

enum { NOT_PACKED, BEING_PACKED, PACKED };  // states of a panel that stays

/// True if all panels of so many columns from one on stay packed, some of them perhaps from now on. Another thread may be about to pack one.
static inline bool stays_packed(struct graphc_panels * p, int64_t column, int64_t count) {
    for (int64_t j = column; j < column + count; j += PANEL) {
        int * state = &p->states[j / PANEL], before = NOT_PACKED;
        if (__atomic_load_n(state, __ATOMIC_ACQUIRE) == PACKED) continue;
        if (!__atomic_compare_exchange_n(state, &before, BEING_PACKED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return false;
        p->pack(p, j);
        __atomic_store_n(state, PACKED, __ATOMIC_RELEASE);
    }
    return true;
}

/// Splits panels that stay, of so many columns from one on and a part of the rows' elements; `packed` has them one after the other.
static inline void split_panels(const struct graphc_panels * p, int64_t column, int64_t count, int64_t k, int parts, float * packed) {
    const int64_t depth = min_of(p->depth - k, p->part);
    for (int64_t j = 0; j < count; j += PANEL, packed += part_rows(parts, depth) * PANEL) {
        split_panel(parts, panels_at(p, column + j, k), depth, (word *) packed);
    }
}

/// Where a block begins in the result's axes.
struct place {
    int64_t axis[4];
};

/// The rows of src[0] that are the result's columns there.
static inline struct matrix columns_at(const struct ggml_tensor * dst, const struct graphc_mul_mat_settings * s, struct place at) {
    const struct ggml_tensor * a = dst->src[0], * scales = dst->src[2], * shifts = dst->src[3];
    const int64_t i2 = at.axis[2] / (dst->ne[2] / a->ne[2]), i3 = at.axis[3] / (dst->ne[3] / a->ne[3]);
    struct matrix found = {.step = a->nb[1], .type = a->type, .types = s->types};
    found.data = (const char *) a->data + at.axis[0] * a->nb[1] + i2 * a->nb[2] + i3 * a->nb[3];
    if (s->scaled > 0) {
        found.groups = scales->ne[0], found.size = a->ne[0] / found.groups;
        found.scales = (const float *) scales->data + at.axis[0] * found.groups;
        if (s->scaled > 1) found.shifts = (const float *) shifts->data + at.axis[0] * found.groups;
    }
    return found;
}

/// A block of a result, and where the operands of one of its products lie: rows of `c` are `ldc` elements apart.
/// Behind it come rows that are packed next.
struct block {
    const struct ggml_tensor * dst;
    struct place at;
    int axis;  // of its rows; those before it, in order, are its columns
    struct matrix a;
    const float * packed;
    int64_t deep;  // rows from one panel to the next
    float * c;
    int64_t ldc, rows, columns;
    const char * coming;
    int64_t coming_step, coming_rows;
    int depth;
    int lines;     // of the rows of `a`, each of so many elements; none: one
    int64_t leap;  // elements from the end of one to where the next begins
    bool first;    // else the products are added to what `c` holds
    bool last;     // then comes what is added to the result
    int taken;     // of what is added, by the tiles
    bool activated;  // by the tiles, too
    const struct graphc_activation * activation;
    bool pairs;  // `packed` has them, and `a` is read so
    int parts;   // the same of parts
    bool from_memory;  // are the panels, rather than from a cache
    bool coming_together;  // are all bytes of the rows behind
    int between;  // sources between the operands and what is added
};

/// What is added to a result, by its number, from a block's first element on.
static inline const float * added(const struct block * b, int number, const struct ggml_tensor ** tensor) {
    const int source = 2 + b->between + number;
    const struct ggml_tensor * t = *tensor = source < GGML_MAX_SRC ? b->dst->src[source] : NULL;
    if (t == NULL) return NULL;
    const float * from = (const float *) t->data + b->at.axis[0] * step_before(t, b->axis);
    for (int each = b->axis; each < 4; ++each) from += b->at.axis[each] * step(t, each);
    return from;
}

/// Adds to rows of the result what is added to it, and takes an activation of that, but for what the tiles did.
static inline void finish(const struct block * b, int64_t top, int64_t bottom) {
    const struct ggml_tensor * t;
    for (int number = b->taken; added(b, number, &t) != NULL; ++number) {
        for (int64_t i = top; i < bottom; ++i) {
            add_row(added(b, number, &t) + i * step(t, b->axis), step_before(t, b->axis), b->columns, b->c + i * b->ldc);
        }
    }
    if (b->activation->function == GRAPHC_NO_ACTIVATION || b->activated) return;
    for (int64_t i = top; i < bottom; ++i) activate(b->activation, b->c + i * b->ldc, NULL, b->columns, b->c + i * b->ldc);
}

/// Has tiles take an activation.
static inline void end_by(struct ends * ends, const struct graphc_activation * activation) {
    ends->simple = simple_of(activation), ends->activate = is_simple(activation) ? NULL : activate, ends->activation = activation;
}

/// What tiles do with the sums of a block's first element and those after it; the block is told what is left to be done.
static inline struct ends ends_of(struct block * b) {
    struct ends ends = {.added = !b->first};
    if (!b->last) return ends;
    const struct ggml_tensor * t;
    for (b->taken = 0; b->taken < ADDENDS; ++b->taken) {
        const float * from = added(b, b->taken, &t);
        if (from == NULL || elements(t) > MOST_ADDED) break;
        ends.others[b->taken] = (struct addend){from, step(t, b->axis), step_before(t, b->axis)};
    }
    b->activated = added(b, b->taken, &t) == NULL;
    if (b->activated) end_by(&ends, b->activation);
    return ends;
}

/// Rows of numbers, `from_step` and `to_step` apart.
static inline void copy_rows(const float * from, int64_t from_step, int64_t rows, int64_t count, float * to, int64_t to_step) {
    for (int64_t i = 0; i < rows; ++i) copy(from + i * from_step, 1, count, to + i * to_step);
}

/// Memory for tiles at the right edge, which have fewer columns than a panel: they are computed beside the result, what they meet
/// there too.
struct edge {
    float sums[MOST_TILE_ROWS * PANEL], beside[ADDENDS][MOST_TILE_ROWS * PANEL];
    struct ends ends;
};

static inline void prepare_edge(struct edge * edge, const struct ends * ends) {
    edge->ends = *ends;
    for (int each = 0; each < ADDENDS; ++each) {
        struct addend * other = &edge->ends.others[each];
        if (other->from != NULL && other->along) other->from = edge->beside[each], other->down = other->down == 0 ? 0 : PANEL;
    }
}

static __attribute__((noinline)) void multiply_edge(struct edge * edge, tile_function function, const float * a, int64_t lda,
                                                    const float * panel, float * c, int64_t ldc, int64_t rows, int64_t wide, struct terms terms,
                                                    const struct ends * ends, struct ahead ahead) {
    if (ends->added) copy_rows(c, ldc, rows, wide, edge->sums, PANEL);
    for (int each = 0; each < ADDENDS && ends->others[each].from != NULL; ++each) {
        const struct addend * other = &ends->others[each];
        if (other->along) copy_rows(other->from, other->down, other->down == 0 ? 1 : rows, wide, edge->beside[each], PANEL);
        else edge->ends.others[each].from = other->from;
    }
    function(a, lda, panel, edge->sums, PANEL, terms, &edge->ends, ahead);
    copy_rows(edge->sums, PANEL, rows, wide, c, ldc);
}

/// Has what the tile below another meets come to the cache: where it is written, and what of the other's rows is added to it.
static inline void fetch_below(const struct ends * ends, const float * c, int64_t ldc, int64_t rows) {
    for (int64_t i = rows; i < 2 * rows; ++i) {
        for (int j = 0; j < PANEL; j += WIDTH) __builtin_prefetch(c + i * ldc + j, 1, 3);
        for (int each = 0; each < ADDENDS && ends->others[each].from != NULL; ++each) {
            const struct addend * other = &ends->others[each];
            if (other->down == 0 || !other->along) continue;
            for (int j = 0; j < PANEL; j += WIDTH) __builtin_prefetch(other->from + i * other->down + j, 0, 3);
        }
    }
}

/// What is summed up already, `depth` rows of it, as the tile of a function like others: what comes then is done.
static void summed_up(const float * sums, int64_t step, const float * unused, float * c, int64_t ldc, struct terms rows, const struct ends * ends, struct ahead ahead) {
    (void) unused, (void) ahead;
    end_tile((float *) sums, rows.depth, (int) (step / WIDTH), ends, c, ldc);
}

/// What is fetched while some rows meet the panel at a column, if panels come from memory: the next one, or what comes behind the block. A
/// panel that other rows met before is in a cache.
static inline struct soon next_panel(const struct block * b, int64_t column, int64_t top, int64_t blocks, int64_t steps) {
    const bool last = column + PANEL >= b->columns;
    const int64_t lines = b->deep * PANEL * (int64_t) sizeof(float) / LINE;
    if (top > 0 || (last && b->coming_rows == 0)) return nothing_soon;
    return (struct soon){last ? b->coming : (const char *) (b->packed + (column + PANEL) * b->deep), (int) parts_of(lines, blocks * steps)};
}

/// The same if they do not: what comes behind the block, a share for each of so many products of all rows and panels.
static inline struct soon next_block(const struct block * b, int64_t products, int64_t steps) {
    if (!b->coming_together || b->coming_rows == 0) return nothing_soon;
    return (struct soon){b->coming, (int) parts_of(b->coming_rows * b->coming_step / LINE, products * steps)};
}

/// The same while rows meet panels that others met before: the rows that are split next, a share for each of so many products.
static inline struct soon next_rows(const struct block * b, int64_t row, int64_t rows, int64_t products, int64_t steps) {
    const int64_t bytes = b->a.step, count = min_of(b->rows - row, rows);
    if (b->a.windows != NULL || bytes > b->depth * (int64_t) sizeof(float) + LINE || count <= 0) return nothing_soon;
    return (struct soon){element(&b->a, row, 0), (int) parts_of(count * bytes / LINE, products * steps)};
}

/// All tiles of a block of parts, by a matrix unit.
static __attribute__((noinline, unused)) BY_MATRIX_UNIT void multiply_parts(struct block * b) {
    enum { MOST_ROWS_AT_ONCE = 64 };
    word left[MOST_ROWS_AT_ONCE * DEPTH_OF_PARTS * ALL_PARTS / 2] __attribute__((aligned(64)));
    float sums[MOST_TILE_ROWS * PANEL] __attribute__((aligned(64))), wide[TILE_ROWS * 2 * DEPTH_OF_PARTS] __attribute__((aligned(64)));
    const int64_t high = even_split(b->rows, MOST_TILE_ROWS), tall = MOST_ROWS_AT_ONCE / MOST_TILE_ROWS * high;
    const int64_t steps = steps_in(b->depth), tile = steps * b->parts * TILE_WORDS;
    const struct ends first = ends_of(b);
    struct ends ends = first;
    struct edge edge;
    if (b->columns % TILE_ROWS != 0) prepare_edge(&edge, &ends);
    const bool ends_here = first.others->from == NULL && first.simple.function == IDENTITY && first.activate == NULL;
    const bool plain = b->parts == ONE_PART && ends_here && !first.added;  // all sums are added to others in the same order
    struct soon soon = next_block(b, parts_of(b->rows, high) * parts_of(b->columns, PANEL), steps);
    begin_tiles(high);
    for (int64_t top = 0; top < b->rows; top += tall) {
        const int64_t bottom = min_of(top + tall, b->rows);
        for (int64_t i = top, count; i < bottom; i += count) {
            const int64_t place = (i - top) % high;
            int64_t lda;
            count = min_of(min_of(TILE_ROWS, high - place), bottom - i);
            const float * rows = read_rows_to(&b->a, i, count, 0, b->depth, 2 * DEPTH_OF_PARTS, wide, &lda);
            split_rows(b->parts, rows, lda, count, b->depth, left + ((i - top) / high * 2 + place / TILE_ROWS) * tile);
        }
        if (b->from_memory) soon = next_rows(b, bottom, tall, parts_of(bottom - top, high) * parts_of(b->columns, PANEL), steps);
        for (int64_t j = 0; j < b->columns; j += PANEL) {
            const word * panel = (const word *) (b->packed + j * b->deep);
            const int64_t across = min_of(b->columns - j, PANEL), step = across > TILE_ROWS ? PANEL : TILE_ROWS;
            if (b->from_memory && top == 0) soon = next_panel(b, j, top, parts_of(bottom - top, high), steps);
            for (int64_t i = top; i < bottom; i += high, soon.at += soon.lines * steps * LINE) {
                const int64_t count = min_of(bottom - i, high);
                const word * a = left + (i - top) / high * 2 * tile;
                float * c = b->c + i * b->ldc + j;
                const multiplier multiply_by = multiplier_for(b->parts, count, across);
                if (plain && across == step && count == high) {
                    multiply_by(a, tile, panel, steps, false, c, b->ldc, soon);
                    continue;
                }
                multiply_by(a, tile, panel, steps, false, sums, step, soon);
                if (b->parts == ALL_PARTS && not_all_finite(sums, count * step)) mend_sums(a, tile, panel, steps, count, across, sums, step);
                move_ends(&ends, &first, i, j);
                const struct terms rows = {(int) count, 1, 0};
                const struct ahead nothing = {NULL, 0};
                if (across == step) summed_up(sums, step, NULL, c, b->ldc, rows, &ends, nothing);
                else multiply_edge(&edge, summed_up, sums, step, NULL, c, b->ldc, count, across, rows, &ends, nothing);
            }
        }
        if (b->last) finish(b, top, bottom);
    }
    end_tiles();
}

/// All tiles of a block: some rows pass all panels before the next. Of the last panel, tiles have one vector if that has all its columns.
static inline void multiply(struct block * b) {
    if (MAY_HAVE_TILES && b->parts != NO_PARTS) return multiply_parts(b);
    float workspace[BLOCK * ROWS * DEPTH] __attribute__((aligned(64)));
    const int64_t high = tile_rows(b->rows), tall = even_split(parts_of(b->rows, high), BLOCK) * high;
    const struct terms terms = {b->pairs ? (int) pairs_in(b->depth) : b->depth, b->lines > 1 ? b->lines : 1, b->leap};
    const struct ends first = ends_of(b);
    struct ends ends = first;
    struct edge edge;
    if (b->columns % PANEL != 0) prepare_edge(&edge, &ends);
    int64_t coming = 0, lda;
    for (int64_t top = 0; top < b->rows; top += tall) {
        const int64_t bottom = min_of(top + tall, b->rows);
        const float * rows = (b->pairs ? read_pairs : read_apart)(&b->a, top, bottom - top, 0, b->depth, workspace, &lda);
        int64_t next = rows == workspace ? bottom : b->rows;  // of the rows that are copied next, the first that was not fetched yet
        for (int64_t j = 0; j < b->columns; j += PANEL) {
            const float * panel = b->packed + j * b->deep;
            const int64_t wide = min_of(b->columns - j, PANEL);
            const tile_function * with = tiles_for(b->pairs, wide);
            for (int64_t i = top; i < bottom; i += high, coming += LINES) {
                const int64_t count = min_of(bottom - i, high);
                const float * a = rows + (i - top) * lda;
                float * c = b->c + i * b->ldc + j;
                move_ends(&ends, &first, i, j);
                if (b->axis == 1) fetch_below(&ends, c, b->ldc, count);  // lines of images would often drive one another out
                struct ahead ahead = {a, 0};
                if (j == 0 && rows != workspace) ahead = rows_ahead(a + high * lda, lda * (int64_t) sizeof(float));
                if (next < min_of(bottom + tall, b->rows)) ahead = (struct ahead){element(&b->a, next, 0), b->a.step}, next += LINES;
                if (coming < b->coming_rows) ahead = (struct ahead){b->coming + coming * b->coming_step, b->coming_step};
                if (wide == PANEL || wide == WIDTH) with[count](a, lda, panel, c, b->ldc, terms, &ends, ahead);
                else multiply_edge(&edge, with[count], a, lda, panel, c, b->ldc, count, wide, terms, &ends, ahead);
            }
        }
        if (b->last) finish(b, top, bottom);
    }
}

/// A thread's share of a result: rows and columns are cut into so many units that no thread waits long for another.
struct units {
    int64_t columns, wide, rows, parts, count;
};

/// Columns of a unit: as many as there may be, or fewer panels, if no thread has nearly as many columns then.
static inline int64_t even_columns(int64_t columns, int64_t batches, int nth, int64_t most_columns) {
    int64_t best = most_columns, least = INT64_MAX;
    for (int64_t wide = most_columns; wide >= PANEL; wide -= PANEL) {
        const int64_t most = parts_of(parts_of(columns, wide) * batches, nth) * min_of(wide, columns);
        if (least == INT64_MAX || most * 18 <= least * 17) best = wide, least = most;
    }
    return best;
}

static inline struct units cut(int64_t rows, int64_t columns, int64_t batches, int nth, int64_t most_columns) {
    const int64_t wide = rows < MOST_WHOLE && columns > most_columns ? even_columns(columns, batches, nth, most_columns) : most_columns;
    struct units u = {parts_of(columns, wide), wide, rows, 1, 0};
    while (u.columns * batches * u.parts < SPLIT * nth && rows / (2 * u.parts) >= LEAST_ROWS) u.parts *= 2;
    const int64_t fewest = wide == most_columns && columns > most_columns && columns % most_columns != 0 ? 4 * nth : nth;  // units that differ must be more
    while (u.columns * batches * u.parts < fewest && rows / u.parts >= 2 * ROWS) u.parts *= 2;
    while (parts_of(u.columns * batches * u.parts, nth) * nth * 8 > u.columns * batches * u.parts * 9 && rows / u.parts >= LEAST_CUT) u.parts *= 2;
    u.rows = parts_of(rows, u.parts);
    u.parts = parts_of(rows, u.rows);
    u.count = u.columns * u.parts * batches;
    return u;
}
