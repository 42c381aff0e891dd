// Convolutions with kernels of 3 x 3 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, 2015): two by two pixels of
// the result are sums over the channels of 16 products instead of 36. Panels of such tiles are transformed, multiplied with the
// transformed kernel, and transformed back. A large image's kernel is transformed once, by an operator before; where there are few
// tiles, that would take more memory and time than the products, and each part of the kernel is transformed when it is needed.

#include "winograd.h"

#include "tiles.h"
#include "widen.h"

enum {
    PLACES = 16,             // of a tile
    GROUP = 2,               // panels that are multiplied together
    FEW = 4,                 // panels that a small image has at most
    CHANNELS = 8 * ROWS,     // of the result that are computed together
    FEW_CHANNELS = 2 * ROWS,
    DEEP = 256,              // channels of a partial sum
    TRANSFORMED = 32,        // channels or rows of the kernel that a thread transforms before it takes others
    LEAST_TILES = 40,
    LEAST_CHANNELS = 16,     // of the image
    MOST_WEIGHTS = 2 << 20,  // transformed, 128 MiB
    MOST_PIXELS = 2 << 20    // of images, transformed, which all threads share
};

/// What is computed how: sizes, and where in the workspace to work everything lies.
struct plan {
    const struct graphc_conv_2d_settings * s;
    const struct ggml_tensor * kernel, * image;
    int64_t channels, rows, across, tiles, panels;
    int64_t depth;  // of a panel: channels, or pairs of them
    bool few;     // tiles: each part of the kernel is transformed when it is needed, else all of it before
    bool shared;  // the images are transformed before, else by each thread for itself
    int64_t group, together;  // panels and channels of the result that are computed together
    int64_t weights, images, each;  // elements: the kernel, the images, and what each thread needs for itself
};

static struct plan plan_of(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const int64_t width = image->ne[0] + 2 * s->p0 - 2, height = image->ne[1] + 2 * s->p1 - 2;
    struct plan p = {.s = s, .kernel = kernel, .image = image, .channels = kernel->ne[2], .rows = kernel->ne[3], .across = (width + 1) / 2};
    p.tiles = p.across * ((height + 1) / 2);
    p.panels = (p.tiles + PANEL - 1) / PANEL;
    p.depth = s->pairs ? pairs_in(p.channels) : p.channels;
    p.few = p.panels <= FEW;
    p.images = p.panels * PLACES * p.depth * PANEL * image->ne[3];
    p.shared = p.few || p.images <= MOST_PIXELS;
    p.group = p.few ? p.panels : GROUP;
    p.together = p.few ? FEW_CHANNELS : even_split(p.rows, CHANNELS);
    p.weights = p.few ? 0 : PLACES * p.depth * p.rows;
    p.each = PLACES * (p.group * PANEL * p.together + (p.few ? p.together * p.depth : 0) + (p.shared ? 0 : p.group * PANEL * p.depth));
    if (!p.shared) p.images = 0;
    return p;
}

/// A thread's workspace to work.
struct work {
    struct plan plan;
    struct ggml_tensor * dst;
    const float * panel;  // [panels][PLACES][depth][PANEL]
    float * workspace;         // for panels that are not shared
    float * products;     // [panels][PLACES][together][PANEL]
    float * part;         // of the kernel, where there are few tiles: [PLACES][together][depth]
};

static float * room_of(const struct ggml_tensor * t) {
    const uintptr_t line = sizeof(vector);
    return (float *) (((uintptr_t) t->data + line - 1) / line * line);
}

bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const bool small = kernel->ne[2] * kernel->ne[3] <= MOST_WEIGHTS;
    return is_weight(kernel, s->types) && is_dense(image) && kernel->ne[0] == 3 && kernel->ne[1] == 3 && s->s0 == 1 && s->s1 == 1 && s->d0 == 1 &&
           s->d1 == 1 && (small || plan_of(kernel, image, s).few);
}

bool graphc_prefers_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return kernel->ne[2] >= LEAST_CHANNELS && plan_of(kernel, image, s).tiles >= LEAST_TILES;
}

int64_t graphc_winograd_size(const struct ggml_tensor * kernel, const struct ggml_tensor * image,
                             const struct graphc_conv_2d_settings * s, int threads) {
    const struct plan p = plan_of(kernel, image, s);
    return p.weights + p.images + threads * p.each + WIDTH;
}

/// Three numbers to four: [g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2].
static inline void filter(vector g0, vector g1, vector g2, vector * to) {
    const vector outer = (g0 + g2) * 0.5f, inner = g1 * 0.5f;
    to[0] = g0, to[1] = outer + inner, to[2] = outer - inner, to[3] = g2;
}

/// `channels` of a row of the kernel, [channels][9], from one on, as [PLACES][channels], `plane` elements from place to place.
static void transform_channels(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s, int64_t row, int64_t channel,
                               int64_t channels, float * to, int64_t plane) {
    float workspace[WIDTH * 10] = {0}, transposed[16 * PANEL] __attribute__((aligned(64)));
    for (int64_t c = 0; c < channels; c += WIDTH) {
        const int64_t count = min_of(channels - c, WIDTH);
        const char * data = (const char *) kernel->data + row * kernel->nb[3] + (channel + c) * kernel->nb[2];
        const float * from = (const float *) data;
        if (kernel->type != GGML_TYPE_F32 || channel + c + WIDTH >= kernel->ne[2]) {  // `transpose` reads more than 9 elements
            widen(kernel->type, s->types, data, count * 9, workspace);
            from = workspace;
        }
        vector columns[3][4], places[4];
        for (int x = 0; x < 9; x += WIDTH) transpose(from + x, 9, transposed + x * PANEL);
        for (int x = 0; x < 3; ++x) {
            const vector * g = (const vector *) (transposed + x * PANEL);
            filter(g[0], g[3 * VECTORS], g[6 * VECTORS], columns[x]);
        }
        for (int y = 0; y < 4; ++y) {
            filter(columns[0][y], columns[1][y], columns[2][y], places);
            for (int x = 0; x < 4; ++x) {
                float * place = to + (y * 4 + x) * plane + c;
                if (count == WIDTH) *(unaligned *) place = places[x];
                for (int64_t lane = 0; count < WIDTH && lane < count; ++lane) place[lane] = places[x][lane];
            }
        }
    }
}

/// A row of the kernel as [PLACES][depth], `plane` elements from place to place.
static void transform_row(const struct ggml_tensor * kernel, const struct graphc_conv_2d_settings * s, int64_t row, float * to, int64_t plane) {
    enum { SOME = 2 * WIDTH };
    const int64_t channels = kernel->ne[2];
    if (!s->pairs) return transform_channels(kernel, s, row, 0, channels, to, plane);
    float wide[PLACES * SOME];
    for (int64_t c = 0; c < channels; c += SOME) {
        const int64_t count = min_of(channels - c, SOME);
        transform_channels(kernel, s, row, c, count, wide, SOME);
        for (int place = 0; place < PLACES; ++place) pair_row(wide + place * SOME, count, to + place * plane + c / 2);
    }
}

/// `count` elements of a line of the image from `x` on, with zeros beside it.
static inline __attribute__((always_inline)) void read_line(const struct ggml_tensor * image, const float * plane, int64_t x, int64_t y,
                                                            int64_t count, float * to) {
    const int64_t width = image->ne[0], left = min_of(x < 0 ? -x : 0, count), right = min_of(width - x, count);
    const bool whole = y >= 0 && y < image->ne[1] && left == 0 && right == count;
    for (int64_t i = 0; !whole && i < count; i += WIDTH) *(unaligned *) (to + i) = all(0);
    if (y >= 0 && y < image->ne[1] && left < right) copy(plane + y * width + x + left, 1, right - left, to + left);
}

/// Tiles beside one another, the first at (x, y): their 4 x 4 pixels, transformed, as [PLACES] rows that are `stride` apart. There may be
/// written as much as `free` elements of a row.
static void transform(const struct ggml_tensor * image, const float * plane, const struct graphc_conv_2d_settings * s, int64_t x,
                      int64_t y, int64_t count, float * to, int64_t stride, int64_t free) {
    enum { LINE = 2 * PANEL + 2 * WIDTH };
    float lines[4][LINE], mixed[4][LINE];
    const int64_t pixels = 2 * count + 2;
    for (int i = 0; i < 4; ++i) read_line(image, plane, 2 * x - s->p0, 2 * y - s->p1 + i, pixels, lines[i]);
    for (int64_t i = 0; i < pixels; i += WIDTH) {
        const vector a = *(const unaligned *) (lines[0] + i), b = *(const unaligned *) (lines[1] + i);
        const vector c = *(const unaligned *) (lines[2] + i), d = *(const unaligned *) (lines[3] + i);
        *(unaligned *) (mixed[0] + i) = a - c;
        *(unaligned *) (mixed[1] + i) = b + c;
        *(unaligned *) (mixed[2] + i) = c - b;
        *(unaligned *) (mixed[3] + i) = b - d;
    }
    for (int i = 0; i < 4; ++i) {
        for (int64_t t = 0; t < count; t += WIDTH) {
            const float * line = mixed[i] + 2 * t;
            const vector a = every_second(line), b = every_second(line + 1), c = every_second(line + 2), d = every_second(line + 3);
            const vector places[4] = {a - c, b + c, c - b, b - d};
            for (int j = 0; j < 4; ++j) {
                float * row = to + (4 * i + j) * stride + t;
                if (t + WIDTH <= free) *(unaligned *) row = places[j];
                else copy((const float *) &places[j], 1, count - t, row);
            }
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

/// True if some elements are infinite or no numbers.
static bool some_are_not_finite(const float * x, int64_t count) {
    const int32_t exponent = 0x7f800000;
    int32_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int32_t bits = (union { float value; int32_t bits; }){x[i]}.bits;
        found |= (bits & exponent) == exponent;
    }
    return found;
}

/// The transforms subtract pixels: of an infinity, or of numbers whose sum is none, they make what is not a number, in pixels too that meet
/// none of it. In such places of a line from (x, y) on there comes the sum of products itself.
static __attribute__((noinline)) void mend_line(const struct plan * p, int64_t batch, int64_t channel, int64_t x, int64_t y, int64_t count, float * line) {
    const int64_t plane = p->image->ne[0] * p->image->ne[1];
    float sums[2 * PANEL] = {0}, pixels[2 * PANEL + 2 * WIDTH], kernel[9];
    for (int64_t c = 0; c < p->channels; ++c) {
        widen(p->kernel->type, p->s->types, (const char *) p->kernel->data + channel * p->kernel->nb[3] + c * p->kernel->nb[2], 9, kernel);
        for (int ky = 0; ky < 3; ++ky) {
            const float * image = (const float *) p->image->data + (batch * p->channels + c) * plane;
            read_line(p->image, image, x - p->s->p0, y - p->s->p1 + ky, count + 2, pixels);
            for (int kx = 0; kx < 3; ++kx) {
                for (int64_t i = 0; i < count; ++i) sums[i] += kernel[3 * ky + kx] * pixels[i + kx];
            }
        }
    }
    for (int64_t i = 0; i < count; ++i) line[i] = some_are_not_finite(line + i, 1) ? sums[i] : line[i];
}

/// Adds what is added to the products, at `count` pixels of a channel from the place `pixel` of its plane on.
static void add_sums(const struct ggml_tensor * dst, int64_t channel, int64_t pixel, int64_t batch, int64_t count, float * line) {
    for (int source = 3; source < GGML_MAX_SRC && dst->src[source] != NULL; ++source) {
        const struct ggml_tensor * t = dst->src[source];
        const int64_t along = step_before(t, 2);
        add_row((const float *) t->data + pixel * along + channel * step(t, 2) + batch * step(t, 3), along, count, line);
    }
}

/// Transforms the tiles of a panel in a channel's plane, from the tile `first` on, as [PLACES] rows that are `stride` apart.
static void read_panel(const struct plan * p, const float * plane, int64_t first, float * to, int64_t stride) {
    const int64_t end = min_of(first + PANEL, p->tiles);
    for (int64_t t = first, along; t < end; t += along) {
        const int64_t lane = t - first;
        along = min_of(p->across - t % p->across, end - t);
        transform(p->image, plane, p->s, t % p->across, t / p->across, along, to + lane, stride, PANEL - lane);
    }
}

/// Transforms tiles of some channels, the panels from the tile `origin` on. `channel` is even.
static void read_panels(const struct plan * p, int64_t batch, int64_t origin, int64_t panels, int64_t channel, int64_t count, float * to) {
    const int64_t plane = p->image->ne[0] * p->image->ne[1], stride = p->depth * PANEL, end = channel + count;
    const float * pixels = (const float *) p->image->data + batch * p->channels * plane;
    float wide[PLACES * 2 * PANEL] __attribute__((aligned(64))) = {0};
    for (int64_t first = origin; panels > 0; --panels, first += PANEL, to += PLACES * stride) {
        for (int64_t c = channel; !p->s->pairs && c < end; ++c) read_panel(p, pixels + c * plane, first, to + c * PANEL, stride);
        for (int64_t c = channel; p->s->pairs && c < end; c += 2) {
            const int64_t both = min_of(end - c, 2);
            for (int64_t i = 0; i < both; ++i) read_panel(p, pixels + (c + i) * plane, first, wide + i * PANEL, 2 * PANEL);
            for (int place = 0; place < PLACES; ++place) pair_panel(wide + place * 2 * PANEL, both, to + place * stride + c / 2 * PANEL);
        }
    }
}

void graphc_winograd_operands(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct plan p = plan_of(dst->src[0], dst->src[1], s);
    float * kernel = room_of(dst), * images = kernel + p.weights;
    const int64_t rows = p.few ? 0 : (p.rows + TRANSFORMED - 1) / TRANSFORMED, parts = (p.channels + TRANSFORMED - 1) / TRANSFORMED;
    const int64_t pixels = p.shared ? parts * p.panels * p.image->ne[3] : 0;
    for (int64_t unit; (unit = take(&s->turns, rows + pixels, ith, nth)) < rows + pixels;) {
        for (int64_t row = unit * TRANSFORMED; unit < rows && row < min_of((unit + 1) * TRANSFORMED, p.rows); ++row) {
            transform_row(p.kernel, s, row, kernel + row * p.depth, p.rows * p.depth);
        }
        if (unit < rows) continue;
        const int64_t panel = (unit - rows) / parts, channel = (unit - rows) % parts * TRANSFORMED;
        float * to = images + panel * PLACES * p.depth * PANEL;
        read_panels(&p, panel / p.panels, panel % p.panels * PANEL, 1, channel, min_of(p.channels - channel, TRANSFORMED), to);
    }
}

/// The products of `count` rows of the transformed kernel with the panels.
static void multiply_panels(const struct work * w, const float * kernel, int64_t plane, int64_t count, int64_t panels) {
    const tile_function * with = w->plan.s->pairs ? paired_tiles : tiles;
    const int64_t stride = w->plan.depth * PANEL, high = tile_rows(count);
    for (int64_t place = 0; place < PLACES; ++place) {
        for (int64_t k = 0; k < w->plan.depth; k += DEEP) {
            for (int64_t i = 0; i < count; i += high) {
                const float * a = kernel + place * plane + i * w->plan.depth + k;
                for (int64_t p = 0; p < panels; ++p) {
                    const float * panel = w->panel + (p * PLACES + place) * stride + k * PANEL;
                    float * c = w->products + ((p * PLACES + place) * w->plan.together + i) * PANEL;
                    const struct ahead ahead = rows_ahead(a + high * w->plan.depth, w->plan.depth * (int64_t) sizeof(float));
                    with[min_of(count - i, high)](a, w->plan.depth, panel, c, PANEL, (int) min_of(w->plan.depth - k, DEEP), k == 0, ahead);
                }
            }
        }
    }
}

/// Transforms the products back to `count` channels of the result.
static void write_panels(const struct work * w, int64_t batch, int64_t origin, int64_t panels, int64_t channel, int64_t count) {
    float * result = (float *) w->dst->data + (batch * w->plan.rows + channel) * w->dst->ne[0] * w->dst->ne[1];
    for (int64_t p = 0; p < panels; ++p) {
        const int64_t first = origin + p * PANEL, end = min_of(first + PANEL, w->plan.tiles);
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t t = first, along; t < end; t += along) {
                float lines[2][2 * PANEL];
                const int64_t x = t % w->plan.across * 2, y = t / w->plan.across * 2;
                along = min_of(w->plan.across - t % w->plan.across, end - t);
                transform_back(w->products + (p * PLACES * w->plan.together + i) * PANEL + t - first, w->plan.together * PANEL, along, lines);
                const int64_t pixels = min_of(2 * along, w->dst->ne[0] - x);
                for (int64_t row = 0; row < min_of(2, w->dst->ne[1] - y); ++row) {
                    const int64_t at = (y + row) * w->dst->ne[0] + x;
                    if (some_are_not_finite(lines[row], pixels)) mend_line(&w->plan, batch, channel + i, x, y + row, pixels, lines[row]);
                    add_sums(w->dst, channel + i, at, batch, pixels, lines[row]);
                    if (w->plan.s->relu) rectify(lines[row], pixels);
                    for (int64_t j = 0; j < pixels; ++j) result[i * w->dst->ne[0] * w->dst->ne[1] + at + j] = lines[row][j];
                }
            }
        }
    }
}

void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * image = dst->src[0], * operands = dst->src[1];
    const struct plan p = plan_of(dst->src[2], image, s);
    const float * kernel = room_of(operands), * images = kernel + p.weights;
    struct work w = {.plan = p, .dst = dst, .products = room_of(operands) + p.weights + p.images + ith * p.each};
    w.part = w.products + PLACES * p.group * PANEL * p.together;
    w.workspace = w.part + (p.few ? PLACES * p.together * p.depth : 0);
    const int64_t groups = (p.panels + p.group - 1) / p.group, batches = image->ne[3], size = PLACES * p.depth * PANEL;
    int64_t rows = p.shared ? p.together : p.rows;  // of a unit: images that each thread transforms are cut as little as possible
    while (groups * batches * ((p.rows + rows - 1) / rows) < 2 * nth && rows >= 2 * CHANNELS) rows /= 2;
    const int64_t parts = (p.rows + rows - 1) / rows, units = groups * parts * batches;
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        const int64_t batch = unit / parts / groups, origin = unit / parts % groups * p.group;
        const int64_t panels = min_of(p.group, p.panels - origin), until = min_of((unit % parts + 1) * rows, p.rows);
        if (!p.shared) read_panels(&p, batch, origin * PANEL, panels, 0, p.channels, w.workspace);
        w.panel = p.shared ? images + (batch * p.panels + origin) * size : w.workspace;
        for (int64_t first = unit % parts * rows; first < until; first += p.together) {
            const int64_t count = min_of(until - first, p.together);
            for (int64_t i = 0; p.few && i < count; ++i) {
                transform_row(p.kernel, s, first + i, w.part + i * p.depth, p.together * p.depth);
            }
            const float * part = p.few ? w.part : kernel + first * p.depth;
            multiply_panels(&w, part, (p.few ? p.together : p.rows) * p.depth, count, panels);
            write_panels(&w, batch, origin * PANEL, panels, first, count);
        }
    }
}
