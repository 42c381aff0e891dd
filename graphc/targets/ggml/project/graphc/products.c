// Products by blocks: columns of the result are packed into panels that stay in the cache while all rows pass by them, and a
// tile of rows and a panel's columns is summed up in registers. Sums are made of partial sums over `DEPTH` elements, so they
// are as exact as the pairwise sums of other libraries. The result does not depend on the number of threads. Weights of narrower
// types are read as float32, a part at a time. What is packed next comes to the cache meanwhile: with few rows, memory is the limit.

#include "products.h"

#include "tiles.h"

enum { DEPTH = 256, COLUMNS = 128, BLOCK = 8, SPLIT = 8, LEAST_ROWS = 192, FEWEST_ROWS = 32 };

/// Rows of a matrix of any type that can be read as float32; `step` bytes from one to the next. NULL stands for float32's traits.
struct matrix {
    const char * data;
    int64_t step;
    enum ggml_type type;
    const struct ggml_type_traits * types;
};

static const char * element(const struct matrix * m, int64_t row, int64_t column) {
    const int64_t bytes = m->type == GGML_TYPE_F32 ? column * (int64_t) sizeof(float) : column / m->types->blck_size * (int64_t) m->types->type_size;
    return m->data + row * m->step + bytes;
}

/// Where the operands of one product of a block lie: rows of `c` are `ldc` elements apart. Behind it come rows that are packed next.
struct block {
    struct matrix a;
    const float * packed;
    float * c;
    int64_t ldc, rows, columns;
    const char * coming;
    int64_t coming_step, coming_rows;
    int depth;
    bool first;  // else the products are added to what `c` holds
};

/// Rows from `row` on, their elements from `column` on: where they lie, or as float32 in `room`, DEPTH elements apart. `lda` becomes
/// the elements from one to the next.
static const float * read_rows(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, float * room, int64_t * lda) {
    if (m->type == GGML_TYPE_F32) {
        *lda = m->step / (int64_t) sizeof(float);
        return (const float *) element(m, row, column);
    }
    for (int64_t i = 0; i < count; ++i) widen(m->type, m->types, element(m, row + i, column), depth, room + i * DEPTH);
    *lda = DEPTH;
    return room;
}

/// All tiles of a block: some rows pass all panels before the next. At the right edge a tile is computed beside the result and the
/// columns that exist are copied.
static void multiply(const struct block * b) {
    float room[BLOCK * ROWS * DEPTH] __attribute__((aligned(64)));
    const int64_t high = tile_rows(b->rows), tall = alike((b->rows + high - 1) / high, BLOCK) * high;
    int64_t coming = 0, lda;
    for (int64_t top = 0; top < b->rows; top += tall) {
        const int64_t bottom = least(top + tall, b->rows);
        const float * rows = read_rows(&b->a, top, bottom - top, 0, b->depth, room, &lda);
        for (int64_t j = 0; j < b->columns; j += PANEL) {
            const float * panel = b->packed + j * DEPTH;
            const int64_t wide = least(b->columns - j, PANEL);
            for (int64_t i = top; i < bottom; i += high, coming += LINES) {
                const int64_t count = least(bottom - i, high);
                const float * a = rows + (i - top) * lda;
                float * c = b->c + i * b->ldc + j;
                struct ahead ahead = rows_ahead(a + high * lda, lda * (int64_t) sizeof(float));
                if (coming < b->coming_rows) ahead = (struct ahead){b->coming + coming * b->coming_step, b->coming_step};
                if (wide == PANEL) {
                    tiles[count](a, lda, panel, c, b->ldc, b->depth, b->first, ahead);
                    continue;
                }
                float edge[ROWS * PANEL];
                tiles[count](a, lda, panel, edge, PANEL, b->depth, true, ahead);
                for (int row = 0; row < count; ++row) {
                    for (int64_t x = 0; x < wide; ++x) {
                        float * target = c + row * b->ldc + x;
                        *target = b->first ? edge[row * PANEL + x] : edge[row * PANEL + x] + *target;
                    }
                }
            }
        }
    }
}

/// A thread's share of a result: rows and columns are cut into so many units that no thread waits long for another.
struct units {
    int64_t columns, rows, parts, count;
};

static struct units cut(int64_t rows, int64_t columns, int64_t batches, int nth) {
    struct units u = {(columns + COLUMNS - 1) / COLUMNS, rows, 1, 0};
    while (u.columns * batches * u.parts < SPLIT * nth && rows / (2 * u.parts) >= LEAST_ROWS) u.parts *= 2;
    const int64_t fewest = columns > COLUMNS && columns % COLUMNS != 0 ? 2 * nth : nth;  // units that differ must be more
    while (u.columns * batches * u.parts < fewest && rows / u.parts >= 2 * ROWS) u.parts *= 2;
    u.rows = ((rows + u.parts - 1) / u.parts + ROWS - 1) / ROWS * ROWS;
    u.parts = (rows + u.rows - 1) / u.rows;
    u.count = u.columns * u.parts * batches;
    return u;
}

/// Rows of a matrix from `row` on, their elements from `column` on, as the columns of panels; columns without a row are 0.
static void pack_rows(const struct matrix * m, int64_t row, int64_t count, int64_t column, int depth, float * packed) {
    float room[WIDTH * DEPTH] __attribute__((aligned(64)));
    for (int64_t j = 0; j < (count + PANEL - 1) / PANEL * PANEL; j += WIDTH) {
        float * panel = packed + j / PANEL * PANEL * DEPTH + j % PANEL;
        const int64_t there = least(count - j, WIDTH);
        int64_t ldb;
        const float * rows = read_rows(m, row + j, there, column, depth, room, &ldb);
        int k = 0;
        for (; there == WIDTH && k + WIDTH <= depth; k += WIDTH) transpose(rows + k, ldb, panel + k * PANEL);
        for (int x = 0; x < WIDTH; ++x) {
            for (int rest = k; rest < depth; ++rest) panel[rest * PANEL + x] = x < there ? rows[x * ldb + rest] : 0;
        }
    }
}

/// Where a block begins in the result's axes.
struct place {
    int64_t axis[4];
};

/// Begins a block with the sum of what is added to the products, if there is any. `axis` is the one of its rows.
static bool begin(const struct block * b, const struct ggml_tensor * dst, struct place at, int axis) {
    if (dst->src[2] == NULL) return false;
    for (int64_t i = 0; i < b->rows; ++i) {
        float * row = b->c + i * b->ldc;
        for (int64_t j = 0; j < b->columns; ++j) row[j] = 0;
        for (int source = 2; source < GGML_MAX_SRC && dst->src[source] != NULL; ++source) {
            const struct ggml_tensor * t = dst->src[source];
            const float * from = (const float *) t->data + i * step(t, axis);
            for (int each = 0; each < 4; ++each) from += at.axis[each] * step(t, each);
            add_row(t, from, b->columns, row);
        }
    }
    return true;
}

static void finish(const struct block * b) {
    for (int64_t i = 0; i < b->rows; ++i) rectify(b->c + i * b->ldc, b->columns);
}

bool graphc_takes_mul_mat(const struct ggml_tensor * a, const struct ggml_tensor * b, const struct graphc_mul_mat_settings * s) {
    if (a->type == GGML_TYPE_F32) return is_float_rows(a) && is_float_rows(b) && b->ne[1] >= FEWEST_ROWS;
    return is_weight(a, s->types) && is_float_rows(b);
}

bool graphc_takes_sum(const struct ggml_tensor * sum, const struct ggml_tensor * result, bool image) {
    for (int i = 0; i < 4; ++i) {
        if (sum->ne[i] != 1 && sum->ne[i] != result->ne[i]) return false;
    }
    const bool one = sum->ne[0] == 1 && sum->ne[1] == 1;
    const bool plane = sum->ne[0] == result->ne[0] && sum->ne[1] == result->ne[1] && sum->nb[1] == sum->ne[0] * sizeof(float);
    return is_float_rows(sum) && (!image || one || plane);
}

static struct place find(const struct units * u, const struct ggml_tensor * dst, int64_t unit) {
    const int64_t batch = unit / u->parts / u->columns;
    return (struct place){{unit / u->parts % u->columns * COLUMNS, unit % u->parts * u->rows, batch % dst->ne[2], batch / dst->ne[2]}};
}

/// The rows of src[0] that are the result's columns there.
static struct matrix columns_at(const struct ggml_tensor * dst, const struct graphc_mul_mat_settings * s, struct place at) {
    const struct ggml_tensor * a = dst->src[0];
    const int64_t i2 = at.axis[2] / (dst->ne[2] / a->ne[2]), i3 = at.axis[3] / (dst->ne[3] / a->ne[3]);
    return (struct matrix){(const char *) a->data + at.axis[0] * a->nb[1] + i2 * a->nb[2] + i3 * a->nb[3], a->nb[1], a->type, s->types};
}

void graphc_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) ith;
    struct graphc_mul_mat_settings * s = userdata;
    const struct ggml_tensor * b = dst->src[1];
    const int64_t depth = b->ne[0], columns = dst->ne[0], rows = dst->ne[1];
    float packed[COLUMNS * DEPTH] __attribute__((aligned(64)));
    const struct units u = cut(rows, columns, dst->ne[2] * dst->ne[3], nth);
    for (int64_t unit; (unit = take(&s->turns, u.count, nth)) < u.count;) {
        const struct place at = find(&u, dst, unit), then = find(&u, dst, least(unit + nth, u.count - 1));
        const struct matrix weights = columns_at(dst, s, at), later = columns_at(dst, s, then);
        const char * left = (const char *) b->data + at.axis[1] * b->nb[1] + at.axis[2] * b->nb[2] + at.axis[3] * b->nb[3];
        char * c = (char *) dst->data;
        for (int each = 0; each < 4; ++each) c += at.axis[each] * dst->nb[each];
        struct block part = {.c = (float *) c, .ldc = dst->nb[1] / sizeof(float), .packed = packed, .coming_step = weights.step};
        part.rows = least(rows - at.axis[1], u.rows);
        part.columns = least(columns - at.axis[0], COLUMNS);
        for (int64_t k = 0; k < depth; k += DEPTH) {
            const bool last = k + DEPTH >= depth;
            part.depth = (int) least(depth - k, DEPTH);
            part.a = (struct matrix){left + k * sizeof(float), b->nb[1], GGML_TYPE_F32, NULL};
            part.coming = last ? element(&later, 0, 0) : element(&weights, 0, k + DEPTH);
            part.coming_rows = least(columns - (last ? then : at).axis[0], COLUMNS);
            pack_rows(&weights, 0, part.columns, k, part.depth, packed);
            part.first = k == 0 && !begin(&part, dst, at, 1);
            multiply(&part);
            if (s->relu && last) finish(&part);
        }
    }
}

/// Which elements of an image [channels][height][width] a kernel [channels][kh][kw] meets at the pixels of a result, in lines of `across`.
struct windows {
    int64_t width, height, across, kw, kh;
    struct graphc_conv_2d_settings s;
};

/// Pixels of a panel that lie beside one another in the image: `count` from the panel's pixel `to` on, which read a plane from `from` on.
struct piece {
    int64_t from, to, count;
};

/// The pieces of the `count` pixels from (x, y) of the result on that a place of the kernel meets in the image; how many there are.
static int cut_panel(const struct windows * w, int64_t x, int64_t y, int64_t count, int64_t kx, int64_t ky, struct piece pieces[PANEL]) {
    const struct graphc_conv_2d_settings * s = &w->s;
    const int64_t left = kx * s->d0 - s->p0, rest = w->width - left;
    const int64_t first = left < 0 ? (s->s0 - 1 - left) / s->s0 : 0, end = rest < 0 ? 0 : (rest + s->s0 - 1) / s->s0;  // in the image
    int found = 0;
    for (int64_t done = 0, run; done < count; done += run, x = 0, ++y) {
        run = least(w->across - x, count - done);
        const int64_t iy = y * s->s1 - s->p1 + ky * s->d1, begin = x < first ? first : x, stop = least(x + run, end);
        if (iy < 0 || iy >= w->height || begin >= stop) continue;
        pieces[found++] = (struct piece){iy * w->width + begin * s->s0 + left, done + begin - x, stop - begin};
    }
    return found;
}

static inline void copy(const float * from, int64_t stride, int64_t count, float * to) {
    if (stride == 1 && count >= WIDTH) {
        for (int64_t i = 0; i < count - WIDTH; i += WIDTH) *(anywhere *) (to + i) = *(const anywhere *) (from + i);
        *(anywhere *) (to + count - WIDTH) = *(const anywhere *) (from + count - WIDTH);
    } else if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    } else if (stride == 2) {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i * 2];
    } else {
        for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
    }
}

/// What the kernel's elements `from`... meet at the pixels from `start` on, as the columns of panels. A place of the kernel meets the
/// same pixels in each channel.
static void pack_windows(const struct windows * w, const float * data, int64_t start, int64_t count, int64_t from, int depth, float * packed) {
    const int64_t places = w->kw * w->kh, plane = w->width * w->height;
    struct piece pieces[PANEL];
    for (int64_t j = 0; j < count; j += PANEL) {
        const int64_t wide = least(count - j, PANEL), x = (start + j) % w->across, y = (start + j) / w->across;
        int64_t kx = from % w->kw, ky = from / w->kw % w->kh;
        const float * begin = data + from / places * plane;
        for (int64_t first = 0; first < least(places, depth); ++first) {
            const int found = cut_panel(w, x, y, wide, kx, ky, pieces);
            const bool full = found == 1 && pieces[0].count == PANEL;
            const float * channel = begin;
            for (int64_t k = first; k < depth; k += places, channel += plane) {
                float * row = packed + j * DEPTH + k * PANEL;
                if (full && w->s.s0 == 1) {
                    copy(channel + pieces[0].from, 1, PANEL, row);
                    continue;
                }
                for (int v = 0; v < VECTORS && !full; ++v) *(vector *) (row + v * WIDTH) = all(0);
                for (int p = 0; p < found; ++p) copy(channel + pieces[p].from, w->s.s0, pieces[p].count, row + pieces[p].to);
            }
            if (++kx < w->kw) continue;
            kx = 0;
            if (++ky < w->kh) continue;
            ky = 0;
            begin += plane;
        }
    }
}

bool graphc_takes_conv_2d(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return is_weight(kernel, s->types) && is_dense(image);
}

void graphc_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t depth = kernel->ne[0] * kernel->ne[1] * kernel->ne[2], channels = kernel->ne[3];
    const int64_t pixels = dst->ne[0] * dst->ne[1];
    (void) ith;
    struct graphc_conv_2d_settings * s = userdata;
    struct windows w = {image->ne[0], image->ne[1], dst->ne[0], kernel->ne[0], kernel->ne[1], *s};
    if (w.kw == 1 && w.kh == 1 && s->s0 == 1 && s->s1 == 1 && s->p0 == 0 && s->p1 == 0) w.width = w.across = pixels, w.height = 1;
    float packed[COLUMNS * DEPTH] __attribute__((aligned(64)));
    const struct units u = cut(channels, pixels, dst->ne[3], nth);
    for (int64_t unit; (unit = take(&s->turns, u.count, nth)) < u.count;) {
        const int64_t i = unit % u.parts * u.rows, j = unit / u.parts % u.columns * COLUMNS, batch = unit / u.parts / u.columns;
        const float * data = (const float *) ((const char *) image->data + batch * image->nb[3]);
        const struct matrix weights = {(const char *) kernel->data + i * kernel->nb[3], kernel->nb[3], kernel->type, s->types};
        struct block part = {.c = (float *) ((char *) dst->data + batch * dst->nb[3]) + i * pixels + j, .ldc = pixels, .packed = packed};
        part.rows = least(channels - i, u.rows);
        part.columns = least(pixels - j, COLUMNS);
        for (int64_t k = 0; k < depth; k += DEPTH) {
            part.depth = (int) least(depth - k, DEPTH);
            part.a = weights;
            part.a.data = element(&weights, 0, k);
            pack_windows(&w, data, j, part.columns, k, part.depth, packed);
            part.first = k == 0 && !begin(&part, dst, (struct place){{j, 0, i, batch}}, 2);
            multiply(&part);
            if (s->relu && k + DEPTH >= depth) finish(&part);
        }
    }
}
