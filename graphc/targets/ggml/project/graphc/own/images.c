// Images of another size, and the means of their windows, by vectors: of what lies in a row, or of channels. ggml computes all of them
// element by element.

#include "images.h"

#include "tiles.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = 1024 };  // of a row, which are found at once

bool graphc_takes_upscale(const struct ggml_tensor * x) { return is_float_rows(x); }

void graphc_upscale(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    (void) userdata;
    const struct ggml_tensor * x = dst->src[0];
    float scale[4];
    for (int i = 0; i < 4; ++i) scale[i] = (float) dst->ne[i] / (float) x->ne[i];
    const int64_t count = dst->ne[0], rows = dst->ne[1] * dst->ne[2] * dst->ne[3];
    const float * before = NULL;
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const int64_t at[] = {row % dst->ne[1], row / dst->ne[1] % dst->ne[2], row / dst->ne[1] / dst->ne[2]};
        const float * from = x->data;
        for (int i = 0; i < 3; ++i) from += (int64_t) ((float) at[i] / scale[i + 1]) * step(x, i + 1);
        float * to = (float *) dst->data + row * count;
        if (from == before) memcpy(to, to - count, count * sizeof(float));
        else if (count == x->ne[0]) memcpy(to, from, count * sizeof(float));
        else for (int i = 0; i < count; ++i) to[i] = from[(int) ((float) i / scale[0])];
        before = from;
    }
}

/// Where an element of an image lies along an axis of another one: between two elements, and how far from the first.
struct neighbours {
    int64_t first, second;
    float far;
};

static struct neighbours neighbours_of(int64_t at, int64_t size, int64_t resized) {
    const float exact = ((float) at + 0.5f) / ((float) resized / (float) size) - 0.5f;
    const int64_t below = (int64_t) floorf(exact), first = below < 0 ? 0 : min_of(below, size - 1), second = below < -1 ? 0 : min_of(below + 1, size - 1);
    const float far = exact - (float) first;
    return (struct neighbours){first, second, far < 0 ? 0 : far > 1 ? 1 : far};
}

bool graphc_takes_interpolate(const struct ggml_tensor * x, const int64_t * sizes, bool last) {
    return is_dense(x) && x->ne[3] == sizes[3] && (last ? x->ne[0] == sizes[0] : x->ne[2] == sizes[2]);
}

/// Images of channels: lines of the result, with a vector of channels at a time.
static void interpolate_channels(const struct ggml_tensor * x, struct ggml_tensor * dst, int ith, int nth) {
    const int64_t channels = x->ne[0], width = x->ne[1], height = x->ne[2], lines = dst->ne[2] * dst->ne[3];
    for (int64_t line = lines * ith / nth; line < lines * (ith + 1) / nth; ++line) {
        const struct neighbours down = neighbours_of(line % dst->ne[2], height, dst->ne[2]);
        const float * image = (const float *) x->data + line / dst->ne[2] * height * width * channels;
        const float * above = image + down.first * width * channels, * below = image + down.second * width * channels;
        for (int64_t column = 0; column < dst->ne[1]; ++column) {
            const struct neighbours across = neighbours_of(column, width, dst->ne[1]);
            const float * restrict a = above + across.first * channels, * restrict b = above + across.second * channels;
            const float * restrict c = below + across.first * channels, * restrict d = below + across.second * channels;
            float * restrict to = (float *) dst->data + (line * dst->ne[1] + column) * channels;
            const float right = across.far, left = 1 - right, bottom = down.far, top = 1 - bottom;
            for (int64_t i = 0; i < channels; ++i) to[i] = (a[i] * left + b[i] * right) * top + (c[i] * left + d[i] * right) * bottom;
        }
    }
}

/// Planes: rows of the result, a part of them at a time. A row of the image is interpolated once for all that lie beside it.
static void interpolate_planes(const struct ggml_tensor * x, struct ggml_tensor * dst, int ith, int nth) {
    const int64_t width = x->ne[0], height = x->ne[1], down = dst->ne[1], rows = down * dst->ne[2] * dst->ne[3];
    int32_t first[MOST_COLUMNS], second[MOST_COLUMNS];
    float far[MOST_COLUMNS], wide[2][MOST_COLUMNS];
    for (int64_t left = 0; left < dst->ne[0]; left += MOST_COLUMNS) {
        const int count = (int) min_of(dst->ne[0] - left, MOST_COLUMNS);
        for (int i = 0; i < count; ++i) {
            const struct neighbours found = neighbours_of(left + i, width, dst->ne[0]);
            first[i] = (int32_t) found.first, second[i] = (int32_t) found.second, far[i] = found.far;
        }
        const float * held[2] = {NULL, NULL};
        for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
            const struct neighbours found = neighbours_of(row % down, height, down);
            const float * plane = (const float *) x->data + row / down * height * width;
            const int64_t lines[] = {found.first, found.second};
            for (int k = 0; k < 2; ++k) {
                const float * from = plane + lines[k] * width;
                float * to = wide[lines[k] & 1];
                if (held[lines[k] & 1] == from) continue;
                for (int i = 0; i < count; ++i) to[i] = from[first[i]] * (1 - far[i]) + from[second[i]] * far[i];
                held[lines[k] & 1] = from;
            }
            const float * above = wide[lines[0] & 1], * below = wide[lines[1] & 1];
            float * to = (float *) dst->data + row * dst->ne[0] + left;
            for (int i = 0; i < count; ++i) to[i] = above[i] * (1 - found.far) + below[i] * found.far;
        }
    }
}

void graphc_interpolate(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const bool last = ((const struct graphc_interpolate_settings *) userdata)->last;
    (last ? interpolate_channels : interpolate_planes)(dst->src[0], dst, ith, nth);
}

bool graphc_takes_average_pool(const struct ggml_tensor * x) { return is_dense(x); }

/// The elements of an axis that a window meets, of those that it has: from the first to the end.
struct met {
    int64_t first, end;
};

static struct met met_by(int64_t at, int window, int stride, int pad, int64_t size) {
    const int64_t begin = at * stride - pad, end = begin + window;
    return (struct met){begin < 0 ? 0 : begin, min_of(end, size)};
}

/// Adds to a row of sums of windows what they meet of a line of a plane.
static void add_line(const struct graphc_average_pool_settings * s, const float * line, int64_t width, int64_t across, float * restrict to) {
    for (int tap = 0; tap < s->window[0]; ++tap) {
        const int64_t stride = s->strides[0], left = tap - s->pads[0];
        const int64_t first = first_inside(left, stride, across), end = behind_inside(left, stride, across, width);
        if (stride == 1) for (int64_t i = first; i < end; ++i) to[i] += line[left + i];
        else if (stride == 2) for (int64_t i = first; i < end; ++i) to[i] += line[left + i * 2];
        else for (int64_t i = first; i < end; ++i) to[i] += line[left + i * stride];
    }
}

/// The same for several lines, which are added up before if there is room for that.
static void add_lines(const struct graphc_average_pool_settings * s, const float * line, int64_t count, int64_t width, int64_t across,
                      float * restrict to) {
    enum { MOST_WIDTH = 2048 };
    float added[MOST_WIDTH];
    if (width > MOST_WIDTH || count < 2) {
        for (int64_t y = 0; y < count; ++y) add_line(s, line + y * width, width, across, to);
        return;
    }
    for (int64_t i = 0; i < width; ++i) added[i] = line[i] + line[width + i];
    for (int64_t y = 2; y < count; ++y) for (int64_t i = 0; i < width; ++i) added[i] += line[y * width + i];
    add_line(s, added, width, across, to);
}

/// The same where channels are the innermost axis.
static void add_lines_last(const struct graphc_average_pool_settings * s, const float * line, int64_t count, int64_t width, int64_t across,
                           int64_t inner, float * restrict to) {
    for (int64_t y = 0; y < count; ++y, line += width * inner) {
        for (int64_t column = 0; column < across; ++column) {
            const struct met wide = met_by(column, s->window[0], s->strides[0], s->pads[0], width);
            for (int64_t at = wide.first; at < wide.end; ++at) {
                for (int64_t i = 0; i < inner; ++i) to[column * inner + i] += line[at * inner + i];
            }
        }
    }
}

void graphc_average_pool(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_average_pool_settings * s = userdata;
    const struct ggml_tensor * x = dst->src[0];
    const int64_t inner = s->last ? x->ne[0] : 1, width = x->ne[s->last], height = x->ne[1 + s->last];
    const int64_t across = dst->ne[s->last], down = dst->ne[1 + s->last], rows = elements(dst) / (across * inner);
    const float all = (float) s->window[0] * (float) s->window[1];
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
        const struct met high = met_by(row % down, s->window[1], s->strides[1], s->pads[1], height);
        const float * lines = (const float *) x->data + (row / down * height + high.first) * width * inner;
        const int64_t count = high.end - high.first;
        float * restrict to = (float *) dst->data + row * across * inner;
        for (int64_t i = 0; i < across * inner; ++i) to[i] = 0;
        if (s->last) add_lines_last(s, lines, count, width, across, inner, to);
        else add_lines(s, lines, count, width, across, to);
        for (int64_t i = 0; i < across * inner; ++i) to[i] /= all;
    }
}
