// Convolutions with kernels of 3 x 3 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, 2015): two by two pixels of
// the result are sums over the channels of 16 products instead of 36. The kernel is transformed first, by an operator of its
// own; then a panel of such tiles at a time is transformed, multiplied, and transformed back.

#include "products.h"

#include "tiles.h"

#if defined(__GNUC__)

enum { PLACES = 16, PANELS = 2, CHANNELS = 8 * ROWS, DEEP = 256, LEAST_TILES = 40, LEAST_CHANNELS = 32, MOST_WEIGHTS = 2 << 20 };

/// Elements of the workspace of one thread: panels of tiles of all channels, and their products for `CHANNELS` of the result.

static int64_t workspace(int64_t channels) { return PANELS * PLACES * PANEL * (channels + CHANNELS); }

bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const int64_t width = image->ne[0] + 2 * s->p0 - 2, height = image->ne[1] + 2 * s->p1 - 2;
    return is_dense(kernel) && is_dense(image) && kernel->ne[0] == 3 && kernel->ne[1] == 3 && s->s0 == 1 && s->s1 == 1 && s->d0 == 1 &&
           s->d1 == 1 && kernel->ne[2] >= LEAST_CHANNELS && kernel->ne[3] >= LEAST_CHANNELS && kernel->ne[2] * kernel->ne[3] <= MOST_WEIGHTS &&
           ((width + 1) / 2) * ((height + 1) / 2) * image->ne[3] >= LEAST_TILES;
}

int64_t graphc_winograd_size(const struct ggml_tensor * kernel, int threads) {
    return PLACES * kernel->ne[2] * kernel->ne[3] + WIDTH + threads * workspace(kernel->ne[2]);
}

/// Three numbers to four: [g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2].
static inline void filter(vector g0, vector g1, vector g2, vector * to) {
    const vector outer = (g0 + g2) * 0.5f, inner = g1 * 0.5f;
    to[0] = g0, to[1] = outer + inner, to[2] = outer - inner, to[3] = g2;
}

/// The kernel [channels of the result][channels][9] as [PLACES][channels of the result][channels].
void graphc_winograd_kernel(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * kernel = dst->src[0];
    const int64_t channels = kernel->ne[2], rows = kernel->ne[3];
    for (int64_t row = ith; row < rows; row += nth) {
        const float * from = (const float *) kernel->data + row * channels * 9;
        float * to = (float *) dst->data + row * channels;
        for (int64_t c = 0; c < channels; c += WIDTH) {
            const int64_t count = least(channels - c, WIDTH);
            vector g[9], columns[3][4], places[4];
            for (int64_t lane = 0; lane < count; ++lane) {
                for (int i = 0; i < 9; ++i) g[i][lane] = from[(c + lane) * 9 + i];
            }
            for (int x = 0; x < 3; ++x) filter(g[x], g[3 + x], g[6 + x], columns[x]);
            for (int y = 0; y < 4; ++y) {
                filter(columns[0][y], columns[1][y], columns[2][y], places);
                for (int x = 0; x < 4; ++x) {
                    float * place = to + (y * 4 + x) * rows * channels + c;
                    if (count == WIDTH) *(anywhere *) place = places[x];
                    for (int64_t lane = 0; count < WIDTH && lane < count; ++lane) place[lane] = places[x][lane];
                }
            }
        }
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

void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * image = dst->src[0], * kernel = dst->src[1];
    const int64_t channels = image->ne[2], rows = dst->ne[2], width = dst->ne[0], height = dst->ne[1];
    const int64_t across = (width + 1) / 2, tiles_of_image = across * ((height + 1) / 2);
    const int64_t group = PANELS * PANEL, groups = (tiles_of_image + group - 1) / group, stride = PANEL * channels;
    const uintptr_t behind = (uintptr_t) ((float *) kernel->data + PLACES * channels * rows), line = sizeof(vector);
    float * panel = (float *) ((behind + line - 1) / line * line) + ith * workspace(channels);
    float * products = panel + PANELS * PLACES * stride;
    int64_t parts = 1;  // of the channels, where there are too few groups of tiles for all threads
    while (groups * dst->ne[3] * parts < 2 * nth && rows / (2 * parts) >= CHANNELS) parts *= 2;
    const int64_t part = (rows / parts + ROWS - 1) / ROWS * ROWS;
    const int64_t units = groups * parts * dst->ne[3];
    for (int64_t unit; (unit = take(&s->turns, units, nth)) < units;) {
        const int64_t batch = unit / parts / groups, origin = unit / parts % groups * group;
        const int64_t until = least((unit % parts + 1) * part, rows);
        const float * pixels = (const float *) image->data + batch * channels * image->ne[0] * image->ne[1];
        float * result = (float *) dst->data + batch * rows * width * height;
        const int count_panels = (int) ((least(group, tiles_of_image - origin) + PANEL - 1) / PANEL);
        for (int p = 0; p < count_panels; ++p) {
            const int64_t first = origin + p * PANEL, end = least(first + PANEL, tiles_of_image);
            for (int64_t c = 0; c < channels; ++c) {
                const float * plane = pixels + c * image->ne[0] * image->ne[1];
                for (int64_t t = first, count; t < end; t += count) {
                    count = least(across - t % across, end - t);
                    transform(image, plane, s, t % across, t / across, count, panel + p * PLACES * stride + c * PANEL + t - first, stride);
                }
            }
        }
        for (int64_t start = unit % parts * part; start < until; start += CHANNELS) {
            const int64_t here = least(until - start, CHANNELS);
            for (int place = 0; place < PLACES; ++place) {
                for (int64_t k = 0; k < channels; k += DEEP) {
                    for (int64_t i = 0; i < here; i += ROWS) {
                        const float * a = (const float *) kernel->data + (place * rows + start + i) * channels + k;
                        for (int p = 0; p < count_panels; ++p) {
                            tiles[least(here - i, ROWS)](a, channels, panel + (p * PLACES + place) * stride + k * PANEL,
                                                         products + ((p * PLACES + place) * CHANNELS + i) * PANEL, PANEL,
                                                         (int) least(channels - k, DEEP), k == 0);
                        }
                    }
                }
            }
            for (int p = 0; p < count_panels; ++p) {
                const int64_t first = origin + p * PANEL, end = least(first + PANEL, tiles_of_image);
                for (int64_t i = 0; i < here; ++i) {
                    for (int64_t t = first, count; t < end; t += count) {
                        float lines[2][2 * PANEL];
                        const int64_t x = t % across * 2, y = t / across * 2;
                        count = least(across - t % across, end - t);
                        transform_back(products + (p * PLACES * CHANNELS + i) * PANEL + t - first, CHANNELS * PANEL, count, lines);
                        for (int64_t row = 0; row < least(2, height - y); ++row) {
                            float * to = result + ((start + i) * height + y + row) * width + x;
                            add_sums(dst, start + i, (y + row) * width + x, batch, least(2 * count, width - x), lines[row]);
                            if (s->relu) rectify(lines[row], 2 * count);
                            for (int64_t j = 0; j < least(2 * count, width - x); ++j) to[j] = lines[row][j];
                        }
                    }
                }
            }
        }
    }
}

#else

bool graphc_takes_winograd(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    return false;
}
int64_t graphc_winograd_size(const struct ggml_tensor * kernel, int threads) { return 0; }
void graphc_winograd_kernel(struct ggml_tensor * dst, int ith, int nth, void * userdata) {}
void graphc_winograd(struct ggml_tensor * dst, int ith, int nth, void * userdata) {}

#endif
