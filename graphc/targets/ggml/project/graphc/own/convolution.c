// Convolutions by blocks: products of the kernel with what it meets in the image, of which panels are packed when they are multiplied.

#include "convolution.h"

#include "activate.h"
#include "blocks.h"
#include "few.h"
#include "tiles.h"

enum { MOST_PLACES_OF_ROWS = 64 };  // of a kernel whose windows are rows

/// Which elements of a volume [channels][deep][height][width] a kernel [channels][kd][kh][kw] meets at the pixels of a result, in lines of
/// `across`, `down` of which are a plane. An image is one plane deep.
struct windows {
    int64_t width, height, deep, across, down, kw, kh, kd;
    const struct graphc_conv_2d_settings * s;
    struct graphc_planes planes;
};

/// How a kernel goes over planes, from size to size: of images, or of volumes.
static struct windows windows_of(const struct ggml_tensor * kernel, int64_t width, int64_t height, int64_t across, int64_t down,
                                 const struct graphc_conv_2d_settings * s) {
    const struct graphc_planes p = planes_of(s);
    struct windows w = {width, height / p.volume, p.volume, across, down / p.result, kernel->ne[0], kernel->ne[1] / p.kernel, p.kernel, s, p};
    const bool along = w.kw == 1 && s->s0 == 1 && s->p0 == 0, below = w.kh == 1 && s->s1 == 1 && s->p1 == 0;
    if (!along || !below || w.kd != 1 || p.stride != 1 || p.pad != 0) return w;
    w.width = w.across = width * height, w.height = w.down = w.deep = 1;  // all pixels are a line
    return w;
}

/// Pixels of a panel that lie beside one another in the image: `count` from the panel's pixel `to` on, which read a plane from `from` on.
struct piece {
    int64_t from, to, count;
};

/// The pieces of the `count` pixels from (x, y, z) of the result on that a place of the kernel meets in the volume; how many there are.
static int cut_panel(const struct windows * w, int64_t x, int64_t y, int64_t z, int64_t count, int64_t kx, int64_t ky, int64_t kz,
                     struct piece pieces[PANEL]) {
    const struct graphc_conv_2d_settings * s = w->s;
    const int64_t left = kx * s->d0 - s->p0, first = first_inside(left, s->s0, w->across), end = behind_inside(left, s->s0, w->across, w->width);
    int found = 0;
    for (int64_t done = 0, run; done < count; done += run, x = 0, ++y) {
        if (y == w->down) y = 0, ++z;
        run = min_of(w->across - x, count - done);
        const int64_t iy = y * s->s1 - s->p1 + ky * s->d1, iz = z * w->planes.stride - w->planes.pad + kz * w->planes.dilation;
        const int64_t begin = x < first ? first : x, stop = min_of(x + run, end);
        if (iy < 0 || iy >= w->height || iz < 0 || iz >= w->deep || begin >= stop) continue;
        pieces[found++] = (struct piece){(iz * w->height + iy) * w->width + begin * s->s0 + left, done + begin - x, stop - begin};
    }
    return found;
}

/// What the kernel's elements `from`... meet at the pixels from `start` on, as the columns of panels. A place of the kernel meets the
/// same pixels in each channel.
static void pack_windows(const struct windows * w, const float * data, int64_t start, int64_t count, int64_t from, int depth, float * packed) {
    const int64_t places = w->kw * w->kh * w->kd, size = w->width * w->height * w->deep;
    struct piece pieces[PANEL];
    for (int64_t j = 0; j < count; j += PANEL) {
        const int64_t wide = min_of(count - j, PANEL), line = (start + j) / w->across;
        const int64_t x = (start + j) % w->across, y = line % w->down, z = line / w->down;
        int64_t kx = from % w->kw, ky = from / w->kw % w->kh, kz = from / w->kw / w->kh % w->kd;
        const float * begin = data + from / places * size;
        for (int64_t first = 0; first < min_of(places, depth); ++first) {
            const int found = cut_panel(w, x, y, z, wide, kx, ky, kz, pieces);
            const bool full = found == 1 && pieces[0].count == PANEL;
            const float * channel = begin;
            for (int64_t k = first; k < depth; k += places, channel += size) {
                float * row = packed + j * DEPTH + k * PANEL;
                if (full && w->s->s0 == 1) {
                    copy(channel + pieces[0].from, 1, PANEL, row);
                    continue;
                }
                for (int v = 0; v < VECTORS && !full; ++v) *(vector *) (row + v * WIDTH) = all(0);
                for (int p = 0; p < found; ++p) copy(channel + pieces[p].from, w->s->s0, pieces[p].count, row + pieces[p].to);
            }
            if (++kx < w->kw) continue;
            kx = 0;
            if (++ky < w->kh) continue;
            ky = 0;
            if (++kz < w->kd) continue;
            kz = 0;
            begin += size;
        }
    }
}

/// The same as panels of parts, one after the other.
static void pack_parts_of_windows(const struct windows * w, const float * data, int64_t start, int64_t count, int64_t from, int64_t depth, int parts,
                                  float * packed) {
    float wide[SOME * PANEL] __attribute__((aligned(64)));
    for (int64_t j = 0; j < count; j += PANEL, packed += part_rows(parts, depth) * PANEL) {
        for (int64_t k = 0; k < depth; k += SOME) {
            const int some = (int) min_of(depth - k, SOME);
            pack_windows(w, data, start + j, min_of(count - j, PANEL), from + k, some, wide);
            split_panel(parts, wide, some, (word *) packed + part_rows(parts, k) * PANEL);
        }
    }
}

/// The same as columns of pairs: some rows at a time, that stay in the cache as float32.
static void pack_paired_windows(const struct windows * w, const float * data, int64_t start, int64_t count, int64_t from, int depth, float * packed) {
    float wide[SOME * PANEL] __attribute__((aligned(64)));
    for (int64_t j = 0; j < count; j += PANEL) {
        float * panel = packed + j * DEPTH;
        for (int k = 0; k < depth; k += SOME) {
            const int some = (int) min_of(depth - k, SOME);
            pack_windows(w, data, start + j, min_of(count - j, PANEL), from + k, some, wide);
            pair_panel(wide, some, panel + k / 2 * PANEL);
        }
    }
}

bool graphc_takes_conv_2d(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return is_weight(kernel, s->types) && is_dense(image);
}

void graphc_conv_2d(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t depth = kernel->ne[0] * kernel->ne[1] * kernel->ne[2], pixels = dst->ne[0] * dst->ne[1];
    const int64_t groups = image->ne[2] / kernel->ne[2], channels = kernel->ne[3] / groups;  // of a group's result
    struct graphc_conv_2d_settings * s = userdata;
    if (has_few_results(kernel, image->ne[2], s)) return convolve_few(dst, ith, nth, s);
    const int parts = parts_of_product(s->pairs, channels, pixels, depth);
    const bool pairs = s->pairs && parts == NO_PARTS;
    const int64_t most = parts == NO_PARTS ? depth_of(pairs) : depth_of_parts(parts, depth);
    const struct windows w = windows_of(kernel, image->ne[0], image->ne[1], dst->ne[0], dst->ne[1], s);
    float packed[PACKED_COLUMNS] __attribute__((aligned(64)));
    const struct units u = cut(channels, pixels, groups * dst->ne[3], nth, columns_of_unit(parts));
    for (int64_t unit; (unit = take(&s->turns, u.count, ith, nth)) < u.count;) {
        const int64_t first = unit % u.parts * u.rows, j = unit / u.parts % u.columns * u.wide, number = unit / u.parts / u.columns;
        const int64_t group = number % groups, batch = number / groups, i = group * channels + first;
        const float * data = (const float *) ((const char *) image->data + batch * image->nb[3] + group * kernel->ne[2] * image->nb[2]);
        const char * kernels = (const char *) kernel->data + i * kernel->nb[3];
        const struct matrix weights = {.data = kernels, .step = kernel->nb[3], .type = kernel->type, .types = s->types};
        struct block part = {.dst = dst, .at = {{j, 0, i, batch}}, .axis = 2, .a = weights, .packed = packed, .deep = DEPTH, .ldc = pixels, .activation = &s->activation};
        part.c = (float *) ((char *) dst->data + batch * dst->nb[3]) + i * pixels + j;
        part.rows = min_of(channels - first, u.rows);
        part.columns = min_of(pixels - j, u.wide);
        part.pairs = pairs, part.parts = parts;
        for (int64_t k = 0; k < depth; k += most) {
            part.depth = (int) min_of(depth - k, most);
            part.first = k == 0, part.last = k + most >= depth;
            part.a.data = element(&weights, 0, k);
            if (parts != NO_PARTS) {
                part.deep = part_rows(parts, part.depth);
                pack_parts_of_windows(&w, data, j, part.columns, k, part.depth, parts, packed);
            } else {
                (pairs ? pack_paired_windows : pack_windows)(&w, data, j, part.columns, k, part.depth, packed);
            }
            multiply(&part);
        }
    }
}

/// Some columns of the products of a panel of pixels with what is packed of the kernel.
static void multiply_pixels(const float * windows, const float * kernels, int64_t pixels, int64_t columns, int depth, const struct ends * ends,
                            float * c, int64_t ldc) {
    const int64_t high = tile_rows(pixels);
    const struct ahead nothing = {windows, 0};
    struct ends here = *ends;
    struct edge edge;
    if (columns % PANEL != 0) prepare_edge(&edge, ends);
    for (int64_t j = 0; j < columns; j += PANEL) {
        move_ends(&here, ends, 0, j);
        for (int64_t i = 0; i < pixels; i += high) {
            const int64_t count = min_of(pixels - i, high), wide = min_of(columns - j, PANEL);
            const tile_function tile = transposed_tiles[count];
            float * to = c + i * ldc + j;
            if (wide == PANEL) tile(windows + i, PANEL, kernels + j * DEPTH, to, ldc, one_line(depth), &here, nothing);
            else multiply_edge(&edge, tile, windows + i, PANEL, kernels + j * DEPTH, to, ldc, count, wide, one_line(depth), &here, nothing);
        }
    }
}

bool graphc_takes_conv_2d_last(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const bool numbers = kernel->type == GGML_TYPE_F32 || s->types->blck_size == 1, small = kernel->ne[0] * kernel->ne[1] <= MOST_PLACES_OF_ROWS;
    const bool planes = has_planes(image) && image->ne[0] == kernel->ne[2];
    return is_weight(kernel, s->types) && (planes || (is_dense(image) && numbers && small));
}

/// Pixels of an axis of the result's at which a place of the kernel meets the image, and which pixel the first one meets.
struct meeting {
    int64_t first, end, offset;
};

static inline struct meeting met_across(const struct windows_last * w, int64_t kx) {
    const int64_t left = kx * w->d0 - w->p0;
    return (struct meeting){first_inside(left, w->s0, w->across), behind_inside(left, w->s0, w->across, w->width), left};
}

static inline struct meeting met_down(const struct windows_last * w, int64_t ky) {
    const int64_t top = ky * w->d1 - w->p1;
    return (struct meeting){first_inside(top, w->s1, w->down), behind_inside(top, w->s1, w->down, w->height), top};
}

/// True if a fourth of what windows meet, or more, is no pixel of the image.
static bool many_are_outside(const struct windows_last * w) {
    int64_t across = 0, down = 0;
    for (int64_t kx = 0; kx < w->kw; ++kx) across += met_across(w, kx).end - met_across(w, kx).first;
    for (int64_t ky = 0; ky < w->kh; ++ky) down += met_down(w, ky).end - met_down(w, ky).first;
    return 4 * across * down <= 3 * w->kw * w->across * w->kh * w->down;
}

/// A block whose rows are windows, by a product for each place of the kernel and line of the result, of the pixels that it meets there.
static void multiply_places(const struct block * whole, const struct windows_last * w) {
    struct block part = *whole;
    part.a = (struct matrix){.step = w->s0 * w->all * (int64_t) sizeof(float), .type = GGML_TYPE_F32};
    part.depth = (int) w->channels, part.first = part.last = false, part.coming_rows = 0;
    for (int64_t i = 0; i < whole->rows && whole->first; ++i) memset(whole->c + i * whole->ldc, 0, whole->columns * sizeof(float));
    for (int64_t place = 0; place < w->kw * w->kh; ++place) {
        const struct meeting across = met_across(w, place % w->kw), down = met_down(w, place / w->kw);
        part.packed = whole->packed + place * w->channels * PANEL;
        for (int64_t pixel = w->first, next; pixel < w->first + whole->rows; pixel = next) {
            const int64_t line = pixel / w->across, start = line * w->across, y = line % w->down;
            const int64_t first = pixel < start + across.first ? start + across.first : pixel;
            next = min_of(start + w->across, w->first + whole->rows);
            part.rows = min_of(next, start + across.end) - first;
            if (y < down.first || y >= down.end || part.rows <= 0) continue;
            const int64_t met = (line / w->down * w->height + y * w->s1 + down.offset) * w->width + (first - start) * w->s0 + across.offset;
            part.a.data = whole->a.data + met * w->all * (int64_t) sizeof(float);
            part.c = whole->c + (first - w->first) * whole->ldc;
            multiply(&part);
        }
    }
    if (whole->last) finish(whole, 0, whole->rows);
}

/// True if windows are read where they lie, a line of the kernel at a time: lines follow one another, each window meets pixels of the image, and the
/// kernels of a panel's channels fit into what is packed at once.
static bool reads_in_place(const struct windows_last * w, bool pairs) {
    const bool together = !pairs && w->across * w->down > MOST_ROWS && w->channels == w->all && w->d1 == 1 && w->kw * w->kh * w->channels * PANEL <= COLUMNS * DEPTH;
    const int64_t wide = (w->kw - 1) * w->d0;
    const bool begin = w->p0 <= wide && w->d0 <= w->width && w->p1 < w->kh, end = (w->across - 1) * w->s0 - w->p0 < w->width && (w->down - 1) * w->s1 - w->p1 < w->height;
    return together && begin && end;
}

/// What some pixels meet of a line of the kernel, or of several: pieces of `size` elements that lie together, `leap` elements from the end of
/// one to where the next begins.
struct pieces {
    int64_t count, size, leap;
};

/// A block whose rows are windows that are read in place: pixels of a line that meet the same places of the kernel are rows of a matrix.
static void multiply_lines(const struct block * whole, const struct windows_last * w) {
    struct block part = *whole;
    part.a = (struct matrix){.step = w->s0 * w->all * (int64_t) sizeof(float), .type = GGML_TYPE_F32};
    const struct meeting first = met_across(w, 0), last = met_across(w, w->kw - 1);
    const int64_t whole_line = w->kw * w->all;
    for (int64_t pixel = w->first, run; pixel < w->first + whole->rows; pixel += run) {
        const int64_t line = pixel / w->across, x = pixel % w->across, y = line % w->down;
        const int64_t left = x * w->s0 - w->p0, top = y * w->s1 - w->p1;
        const int64_t begin = first_inside(left, w->d0, w->kw), end = behind_inside(left, w->d0, w->kw, w->width);
        const int64_t upper = first_inside(top, 1, w->kh), lower = behind_inside(top, 1, w->kh, w->height);
        run = x >= first.first && x < last.end ? min_of(last.end - x, w->first + whole->rows - pixel) : 1;
        part.rows = run, part.at.axis[1] = whole->at.axis[1] + pixel - w->first, part.c = whole->c + (pixel - w->first) * whole->ldc;
        struct pieces p = {1, (end - begin) * w->all, 0};
        if (w->d0 > 1) p = (struct pieces){end - begin, w->all, (w->d0 - 1) * w->all};
        int64_t lines = 1;
        if (p.size == whole_line && whole_line <= DEPTH && part.a.step % SPREAD != 0) {  // whose kernels lie together
            lines = DEPTH / whole_line, p.leap = w->width * w->all - whole_line;
        }
        const int64_t together = w->d0 > 1 && p.size <= DEPTH && part.a.step % SPREAD != 0 ? DEPTH / p.size : 1, most = even_split(p.size, DEPTH);
        for (int64_t ky = upper; ky < lower; ky += lines) {
            for (int64_t piece = 0; piece < p.count; piece += together) {
                const int64_t place = begin + piece;
                const int64_t from = ((line / w->down * w->height + top + ky) * w->width + left + place * w->d0) * w->all;
                part.lines = (int) (lines > 1 ? min_of(lines, lower - ky) : min_of(together, p.count - piece)), part.leap = p.leap;
                for (int64_t k = 0; k < p.size; k += most) {
                    part.depth = (int) min_of(p.size - k, most);
                    part.a.data = whole->a.data + (from + k) * (int64_t) sizeof(float);
                    part.packed = whole->packed + (ky * whole_line + place * w->all + k) * PANEL;
                    part.first = ky == upper && piece == 0 && k == 0;
                    part.last = ky + lines >= lower && piece + together >= p.count && k + most >= p.size;
                    multiply(&part);
                }
            }
        }
    }
}

/// The same of some columns of the result, whose kernels are packed at once.
static void multiply_in_place(struct block * part, const struct windows_last * w, const struct matrix * kernels, int64_t row, float * packed) {
    const int64_t places = w->kw * w->kh, depth = places * w->all, some = even_split(w->all, DEPTH / places);
    const int64_t columns = part->columns, fit = COLUMNS * DEPTH / PANEL / depth * PANEL;
    part->deep = depth, part->coming_rows = 0;
    for (int64_t j = 0; j < columns; j += part->columns, part->at.axis[0] += part->columns, part->c += part->columns) {
        part->columns = min_of(columns - j, fit);
        for (int64_t channel = 0; channel < w->all; channel += some) {
            struct matrix weights = *kernels;
            weights.data = element(kernels, 0, channel * places);
            pack_places(&weights, row + j, part->columns, min_of(w->all - channel, some), places, false, w->all, depth, packed + channel * PANEL);
        }
        multiply_lines(part, w);
    }
}

static struct windows_last windows_last_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    struct windows_last w = {image->ne[0], kernel->ne[2], image->ne[1], image->ne[2], s->width, s->height, kernel->ne[0], kernel->ne[1]};
    w.s0 = s->s0, w.s1 = s->s1, w.p0 = s->p0, w.p1 = s->p1, w.d0 = s->d0, w.d1 = s->d1;
    return w;
}

/// The parts of what is multiplied: none where pixels are read where they lie.
static int parts_of_windows(const struct windows_last * w, int64_t columns, bool pairs) {
    if (!pairs && (many_are_outside(w) || reads_in_place(w, pairs))) return NO_PARTS;
    return parts_of_product(pairs, w->across * w->down, columns, w->kw * w->kh * w->channels);
}

int graphc_parts_of_windows(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const struct windows_last w = windows_last_of(kernel, image, s);
    const int parts = parts_of_windows(&w, kernel->ne[3] * kernel->ne[2] / image->ne[0], s->pairs);
    return s->pairs && parts == NO_PARTS ? -1 : parts;
}

/// The convolution of an image with channels last: a product with what its windows meet at all pixels, a part of a group's channels at a time.
static void multiply_windows(struct ggml_tensor * dst, int ith, int nth, struct graphc_conv_2d_settings * s) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t places = kernel->ne[0] * kernel->ne[1], channels = kernel->ne[2], rows = dst->ne[1] * dst->ne[2] * dst->ne[3];
    const int64_t groups = image->ne[0] / channels, columns = dst->ne[0] / groups;
    struct windows_last w = windows_last_of(kernel, image, s);
    const bool by_places = !s->pairs && many_are_outside(&w), in_place = !by_places && reads_in_place(&w, s->pairs);
    const int parts = parts_of_windows(&w, columns, s->pairs);
    const bool pairs = s->pairs && parts == NO_PARTS;
    const int64_t together = channels_of_part(channels, places, parts);
    float packed[PACKED_COLUMNS] __attribute__((aligned(64)));
    const struct units u = cut(rows, columns, groups, nth, columns_of_unit(parts));
    for (int64_t unit; (unit = take(&s->turns, u.count, ith, nth)) < u.count;) {
        const bool tall = rows > dst->ne[0];
        const int64_t across = u.columns * groups, part_of_rows = tall ? unit / across : unit % u.parts, number = tall ? unit % across : unit / u.parts;
        const int64_t group = number / u.columns, first = number % u.columns * u.wide, j = group * columns + first, i = part_of_rows * u.rows;
        struct block part = {.dst = dst, .at = {{j, i, 0, 0}}, .axis = 1, .packed = packed, .deep = DEPTH, .ldc = dst->ne[0], .activation = &s->activation, .pairs = pairs, .parts = parts};
        part.c = (float *) dst->data + i * dst->ne[0] + j, part.rows = min_of(rows - i, u.rows), part.columns = min_of(columns - first, u.wide);
        const struct matrix all_weights = {.data = kernel->data, .step = kernel->nb[3], .type = kernel->type, .types = s->types};
        const bool stays = s->panels != NULL && stays_packed(s->panels, j, part.columns);
        w.first = i;
        if (in_place) {
            part.a.data = image->data;
            multiply_in_place(&part, &w, &all_weights, j, packed);
            continue;
        }
        for (int64_t channel = 0; channel < channels; channel += together) {
            w.channels = min_of(channels - channel, together);
            struct matrix weights = all_weights;
            weights.data = element(&all_weights, 0, channel * places);
            part.depth = (int) (w.channels * places), part.first = channel == 0, part.last = channel + together >= channels;
            const float * from = (const float *) image->data + group * channels + channel;
            part.a = (struct matrix){.data = (const char *) from, .type = GGML_TYPE_F32, .windows = &w};
            part.coming_rows = part.last ? 0 : part.columns;
            part.coming_together = stays, part.from_memory = stays && parts == s->panels->parts;
            if (stays) {
                const int64_t k = channel * places, deep = rows_of_part(s->panels, k);
                part.packed = part.from_memory ? panels_at(s->panels, j, k) : packed, part.deep = part.from_memory ? deep : part_rows(parts, part.depth);
                part.coming = (const char *) panels_at(s->panels, j, part.last ? k : k + part.depth), part.coming_step = deep * (int64_t) sizeof(float);
                if (!part.from_memory) split_panels(s->panels, j, part.columns, k, parts, packed);
            } else {
                part.coming = element(&weights, j, part.last ? 0 : part.depth), part.coming_step = weights.step;
                if (parts == NO_PARTS) {
                    pack_places(&weights, j, part.columns, w.channels, places, pairs, w.channels, DEPTH, packed);
                } else {
                    part.deep = part_rows(parts, part.depth);
                    pack_parts_of_places(&weights, j, part.columns, w.channels, places, parts, packed);
                }
            }
            if (by_places) multiply_places(&part, &w);
            else multiply(&part);
        }
    }
}

void graphc_conv_2d_last(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    enum { MOST_PIXELS_OF_UNIT = 16 * PANEL };
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1], * bias = dst->src[2];
    if (!has_planes(image)) return multiply_windows(dst, ith, nth, s);
    const int64_t depth = kernel->ne[0] * kernel->ne[1] * kernel->ne[2], channels = kernel->ne[3], pixels = dst->ne[1] * dst->ne[2];
    const struct windows w = windows_of(kernel, image->ne[1], image->ne[2], dst->ne[1], dst->ne[2], s);
    const int64_t across = parts_of(channels, COLUMNS), panels = parts_of(pixels, PANEL);
    const int64_t together = PANEL * min_of(parts_of(panels, parts_of(4 * nth, across * dst->ne[3])), MOST_PIXELS_OF_UNIT / PANEL);
    const int64_t down = parts_of(pixels, together), units = across * down * dst->ne[3];
    float kernels[COLUMNS * DEPTH] __attribute__((aligned(64))), packed[PANEL * DEPTH] __attribute__((aligned(64)));
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t channel = unit % across * COLUMNS, start = unit / across % down * together, batch = unit / across / down;
        const int64_t columns = min_of(channels - channel, COLUMNS), end = min_of(start + together, pixels);
        const float * data = (const float *) ((const char *) image->data + batch * image->nb[3]);
        float * result = (float *) ((char *) dst->data + batch * dst->nb[3]) + channel;
        const struct matrix weights = {.data = kernel->data, .step = kernel->nb[3], .type = kernel->type, .types = s->types};
        for (int64_t k = 0; k < depth; k += DEPTH) {
            const int deep = (int) min_of(depth - k, DEPTH);
            struct ends ends = {.added = k > 0};
            if (k + deep == depth) {
                if (bias != NULL) *ends.others = (struct addend){(const float *) bias->data + channel, 0, true};
                end_by(&ends, &s->activation);
            }
            pack_rows(&weights, channel, columns, k, deep, false, kernels);
            for (int64_t i = start; i < end; i += PANEL) {
                const int64_t count = min_of(end - i, PANEL);
                float * c = result + i * channels;
                pack_windows(&w, data, i, count, k, deep, packed);
                multiply_pixels(packed, kernels, count, columns, deep, &ends, c, channels);
            }
        }
    }
}
