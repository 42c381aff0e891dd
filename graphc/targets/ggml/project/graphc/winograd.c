// Convolutions with kernels of 3 x 3 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, 2015): two by two pixels of
// the result are sums over the channels of 16 products instead of 36. Panels of such tiles are transformed, multiplied with the
// transformed kernel, and transformed back. A large image's kernel is transformed once, by an operator before; where there are few
// tiles, that would take more memory and time than the products, and each part of the kernel is transformed when it is needed.

#include "products.h"

#include "tiles.h"

enum {
    PLACES = 16,            // of a tile
    GROUP = 2,              // panels that are multiplied together
    FEW = 4,                // panels that a small image has at most
    CHANNELS = 8 * ROWS,    // of the result that are computed together
    FEW_CHANNELS = 2 * ROWS,
    DEEP = 256,             // channels of a partial sum
    LEAST_TILES = 40,
    LEAST_CHANNELS = 32,
    MOST_WEIGHTS = 2 << 20  // transformed, 128 MiB
};

/// A convolution: sizes, and a thread's room to work.
struct work {
    const struct graphc_conv_2d_settings * s;
    const struct ggml_tensor * image;
    struct ggml_tensor * dst;
    int64_t channels, rows, width, height, across, tiles;
    int64_t panels, together;  // that are computed together: panels of tiles and channels of the result
    float * panel;             // [panels][PLACES][channels][PANEL]
    float * products;          // [panels][PLACES][together][PANEL]
    float * part;              // of the kernel, where there are few tiles: [PLACES][together][channels]
};

static int64_t tile_count(const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const int64_t width = image->ne[0] + 2 * s->p0 - 2, height = image->ne[1] + 2 * s->p1 - 2;
    return ((width + 1) / 2) * ((height + 1) / 2);
}

static bool has_few_tiles(const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return tile_count(image, s) <= FEW * PANEL;
}

bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const int64_t channels = kernel->ne[2], rows = kernel->ne[3];
    return is_weight(kernel, s->types) && is_dense(image) && kernel->ne[0] == 3 && kernel->ne[1] == 3 && s->s0 == 1 && s->s1 == 1 && s->d0 == 1 &&
           s->d1 == 1 && (has_few_tiles(image, s) || channels * rows <= MOST_WEIGHTS);
}

bool graphc_prefers_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return kernel->ne[2] >= LEAST_CHANNELS && kernel->ne[3] >= LEAST_CHANNELS && tile_count(image, s) >= LEAST_TILES;
}

/// Elements that a thread needs.
static int64_t workspace(const struct ggml_tensor * image, bool few) {
    const int64_t channels = image->ne[2];
    if (few) return PLACES * (FEW * PANEL * (channels + FEW_CHANNELS) + FEW_CHANNELS * channels);
    return PLACES * GROUP * PANEL * (channels + CHANNELS);
}

int64_t graphc_winograd_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                             const struct graphc_conv_2d_settings * s, int threads) {
    const bool few = has_few_tiles(image, s);
    return (few ? 0 : PLACES * kernel->ne[2] * kernel->ne[3]) + WIDTH + threads * workspace(image, few);
}

/// Three numbers to four: [g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2].
static inline void filter(vector g0, vector g1, vector g2, vector * to) {
    const vector outer = (g0 + g2) * 0.5f, inner = g1 * 0.5f;
    to[0] = g0, to[1] = outer + inner, to[2] = outer - inner, to[3] = g2;
}

/// A row of the kernel, [channels][9], as [PLACES][channels], `plane` elements from place to place.
static void transform_row(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s, int64_t row, float * to, int64_t plane) {
    const int64_t channels = kernel->ne[2];
    float room[WIDTH * 10] = {0}, turned[16 * PANEL] __attribute__((aligned(64)));
    for (int64_t c = 0; c < channels; c += WIDTH) {
        const int64_t count = least(channels - c, WIDTH);
        const char * data = (const char *) kernel->data + row * kernel->nb[3] + c * kernel->nb[2];
        const float * from = (const float *) data;
        if (kernel->type != GGML_TYPE_F32 || c + WIDTH >= channels) {  // `transpose` reads more than 9 elements
            widen(kernel->type, s->types, data, count * 9, room);
            from = room;
        }
        vector columns[3][4], places[4];
        for (int x = 0; x < 9; x += WIDTH) transpose(from + x, 9, turned + x * PANEL);
        for (int x = 0; x < 3; ++x) {
            const vector * g = (const vector *) (turned + x * PANEL);
            filter(g[0], g[3 * VECTORS], g[6 * VECTORS], columns[x]);
        }
        for (int y = 0; y < 4; ++y) {
            filter(columns[0][y], columns[1][y], columns[2][y], places);
            for (int x = 0; x < 4; ++x) {
                float * place = to + (y * 4 + x) * plane + c;
                if (count == WIDTH) *(anywhere *) place = places[x];
                for (int64_t lane = 0; count < WIDTH && lane < count; ++lane) place[lane] = places[x][lane];
            }
        }
    }
}

void graphc_winograd_kernel(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t channels = kernel->ne[2], rows = kernel->ne[3];
    if (has_few_tiles(image, userdata)) return;  // only room to work is wanted
    for (int64_t row = ith; row < rows; row += nth) {
        transform_row(kernel, userdata, row, (float *) dst->data + row * channels, rows * channels);
    }
}

/// `count` elements of a line of the image from `x` on, with zeros beside it.
static void read_line(const struct ggml_tensor * image, const float * plane, int64_t x, int64_t y, int64_t count, float * restrict to) {
    const int64_t width = image->ne[0];
    const bool outside = y < 0 || y >= image->ne[1];
    const int64_t left = outside ? count : least(x < 0 ? -x : 0, count), right = outside ? count : least(width - x, count);
    const float * line = plane + y * width + x;
    for (int64_t i = 0; i < left; ++i) to[i] = 0;
    for (int64_t i = left; i < right; ++i) to[i] = line[i];
    for (int64_t i = left > right ? left : right; i < count; ++i) to[i] = 0;
}

/// Tiles beside one another, the first at (x, y): their 4 x 4 pixels, transformed, as [PLACES] rows that are `stride` apart.
static void transform(const struct ggml_tensor * image, const float * plane, const struct graphc_conv_2d_settings * s, int64_t x,
                      int64_t y, int64_t count, float * restrict to, int64_t stride) {
    enum { LINE = 2 * PANEL + 2 };
    float lines[4][LINE], mixed[4][LINE];
    const int64_t pixels = 2 * count + 2;
    for (int i = 0; i < 4; ++i) read_line(image, plane, 2 * x - s->p0, 2 * y - s->p1 + i, pixels, lines[i]);
    for (int64_t i = 0; i < pixels; ++i) {
        mixed[0][i] = lines[0][i] - lines[2][i];
        mixed[1][i] = lines[1][i] + lines[2][i];
        mixed[2][i] = lines[2][i] - lines[1][i];
        mixed[3][i] = lines[1][i] - lines[3][i];
    }
    for (int i = 0; i < 4; ++i) {
        float * restrict row = to + 4 * i * stride;
        const float * line = mixed[i];
        for (int64_t t = 0; t < count; ++t) {
            const float a = line[2 * t], b = line[2 * t + 1], c = line[2 * t + 2], d = line[2 * t + 3];
            row[t] = a - c;
            row[stride + t] = b + c;
            row[2 * stride + t] = c - b;
            row[3 * stride + t] = b - d;
        }
    }
}

/// The products of one channel of tiles beside one another, [PLACES] rows that are `stride` apart, as two lines of pixels.
static void transform_back(const float * restrict from, int64_t stride, int64_t count, float lines[2][2 * PANEL]) {
    float mixed[2][4][PANEL];
    for (int x = 0; x < 4; ++x) {
        const float * place = from + x * stride;
        for (int64_t t = 0; t < count; ++t) {
            const float a = place[t], b = place[4 * stride + t], c = place[8 * stride + t], d = place[12 * stride + t];
            mixed[0][x][t] = a + b + c;
            mixed[1][x][t] = b - c - d;
        }
    }
    for (int y = 0; y < 2; ++y) {
        for (int64_t t = 0; t < count; ++t) {
            const float a = mixed[y][0][t], b = mixed[y][1][t], c = mixed[y][2][t], d = mixed[y][3][t];
            lines[y][2 * t] = a + b + c;
            lines[y][2 * t + 1] = b - c - d;
        }
    }
}

/// Adds what is added to the products, at `count` pixels of a channel from the place `pixel` of its plane on.
static void add_sums(const struct ggml_tensor * dst, int64_t channel, int64_t pixel, int64_t batch, int64_t count, float * line) {
    for (int source = 2; source < GGML_MAX_SRC && dst->src[source] != NULL; ++source) {
        const struct ggml_tensor * t = dst->src[source];
        add_row(t, (const float *) t->data + pixel * step(t, 0) + channel * step(t, 2) + batch * step(t, 3), count, line);
    }
}

/// Transforms the panels of tiles from `origin` on.
static void read_panels(const struct work * w, int64_t batch, int64_t origin, int64_t panels) {
    const int64_t plane = w->image->ne[0] * w->image->ne[1], stride = w->channels * PANEL;
    const float * pixels = (const float *) w->image->data + batch * w->channels * plane;
    for (int64_t p = 0; p < panels; ++p) {
        const int64_t first = origin + p * PANEL, end = least(first + PANEL, w->tiles);
        for (int64_t c = 0; c < w->channels; ++c) {
            for (int64_t t = first, count; t < end; t += count) {
                count = least(w->across - t % w->across, end - t);
                float * to = w->panel + p * PLACES * stride + c * PANEL + t - first;
                transform(w->image, pixels + c * plane, w->s, t % w->across, t / w->across, count, to, stride);
            }
        }
    }
}

/// The products of `count` rows of the transformed kernel with the panels.
static void multiply_panels(const struct work * w, const float * kernel, int64_t plane, int64_t count, int64_t panels) {
    const int64_t stride = w->channels * PANEL, high = tile_rows(count);
    for (int64_t place = 0; place < PLACES; ++place) {
        for (int64_t k = 0; k < w->channels; k += DEEP) {
            for (int64_t i = 0; i < count; i += high) {
                const float * a = kernel + place * plane + i * w->channels + k;
                for (int64_t p = 0; p < panels; ++p) {
                    const float * panel = w->panel + (p * PLACES + place) * stride + k * PANEL;
                    float * c = w->products + ((p * PLACES + place) * w->together + i) * PANEL;
                    const struct ahead ahead = rows_ahead(a + high * w->channels, w->channels * (int64_t) sizeof(float));
                    tiles[least(count - i, high)](a, w->channels, panel, c, PANEL, (int) least(w->channels - k, DEEP), k == 0, ahead);
                }
            }
        }
    }
}

/// Transforms the products back to `count` channels of the result.
static void write_panels(const struct work * w, int64_t batch, int64_t origin, int64_t panels, int64_t channel, int64_t count) {
    float * result = (float *) w->dst->data + (batch * w->rows + channel) * w->width * w->height;
    for (int64_t p = 0; p < panels; ++p) {
        const int64_t first = origin + p * PANEL, end = least(first + PANEL, w->tiles);
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t t = first, along; t < end; t += along) {
                float lines[2][2 * PANEL];
                const int64_t x = t % w->across * 2, y = t / w->across * 2;
                along = least(w->across - t % w->across, end - t);
                transform_back(w->products + (p * PLACES * w->together + i) * PANEL + t - first, w->together * PANEL, along, lines);
                const int64_t pixels = least(2 * along, w->width - x);
                for (int64_t row = 0; row < least(2, w->height - y); ++row) {
                    const int64_t at = (y + row) * w->width + x;
                    add_sums(w->dst, channel + i, at, batch, pixels, lines[row]);
                    if (w->s->relu) rectify(lines[row], pixels);
                    for (int64_t j = 0; j < pixels; ++j) result[i * w->width * w->height + at + j] = lines[row][j];
                }
            }
        }
    }
}

/// A unit is some channels of an image; a thread reads an image once.
static void compute_few(const struct work * w, const struct ggml_tensor * kernel, struct graphc_turns * turns, int nth) {
    const int64_t panels = (w->tiles + PANEL - 1) / PANEL, parts = (w->rows + w->together - 1) / w->together;
    const int64_t units = parts * w->dst->ne[3], plane = w->together * w->channels;
    int64_t read = -1;
    for (int64_t unit; (unit = take(turns, units, nth)) < units;) {
        const int64_t batch = unit / parts, first = unit % parts * w->together, count = least(w->rows - first, w->together);
        if (batch != read) read_panels(w, batch, 0, panels);
        read = batch;
        for (int64_t i = 0; i < count; ++i) {
            transform_row(kernel, w->s, first + i, w->part + i * w->channels, plane);
        }
        multiply_panels(w, w->part, plane, count, panels);
        write_panels(w, batch, 0, panels, first, count);
    }
}

/// A unit is a group of panels; where they are too few for all threads, also a part of the channels.
static void compute_many(const struct work * w, const float * kernel, struct graphc_turns * turns, int nth) {
    const int64_t group = GROUP * PANEL, groups = (w->tiles + group - 1) / group;
    int64_t parts = 1;
    while (groups * w->dst->ne[3] * parts < 2 * nth && w->rows / (2 * parts) >= CHANNELS) parts *= 2;
    const int64_t part = (w->rows / parts + ROWS - 1) / ROWS * ROWS, units = groups * parts * w->dst->ne[3];
    for (int64_t unit; (unit = take(turns, units, nth)) < units;) {
        const int64_t batch = unit / parts / groups, origin = unit / parts % groups * group;
        const int64_t panels = (least(group, w->tiles - origin) + PANEL - 1) / PANEL;
        const int64_t until = least((unit % parts + 1) * part, w->rows);
        read_panels(w, batch, origin, panels);
        for (int64_t first = unit % parts * part; first < until; first += w->together) {
            const int64_t count = least(until - first, w->together);
            multiply_panels(w, kernel + first * w->channels, w->rows * w->channels, count, panels);
            write_panels(w, batch, origin, panels, first, count);
        }
    }
}

void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * image = dst->src[0], * room = dst->src[1], * kernel = room->src[0];
    const bool few = has_few_tiles(image, s);
    struct work w = {s, image, dst, image->ne[2], dst->ne[2], dst->ne[0], dst->ne[1], (dst->ne[0] + 1) / 2, tile_count(image, s),
                     few ? FEW : GROUP, few ? FEW_CHANNELS : CHANNELS, NULL, NULL, NULL};
    const uintptr_t free = (uintptr_t) ((float *) room->data + (few ? 0 : PLACES * w.channels * w.rows)), line = sizeof(vector);
    w.panel = (float *) ((free + line - 1) / line * line) + ith * workspace(image, few);
    w.products = w.panel + w.panels * PLACES * w.channels * PANEL;
    w.part = w.products + w.panels * PLACES * w.together * PANEL;
    if (few) {
        compute_few(&w, kernel, &s->turns, nth);
    } else {
        compute_many(&w, room->data, &s->turns, nth);
    }
}
