// Convolutions of channels by themselves. What a part of a plane of the result reads is copied, with zeros beside the image, such that
// pixels that are a stride apart lie beside one another: one plane for each phase of the strides. An element of the kernel then meets,
// for all pixels of the part, what lies in a row, and so the vectors are full however narrow the image is: between lines, they hold sums
// that nobody reads.

#include "depthwise.h"

#include "blocks.h"
#include "tiles.h"

enum {
    MOST_READ = 16384,    // elements that are read for a part of the result
    MOST_SUMS = 4096,     // elements of a part, with those between its lines
    MOST_TAPS = 1024,     // elements of a kernel
    AT_A_TIME = 8,         // vectors of sums that are computed together
};

/// A part of a plane of the result: so many lines and columns, and what lies where in what is read for it.
struct part {
    int64_t columns, lines;
    int64_t pitch, plane;  // elements from line to line, and from phase to phase
};

static struct part part_of(const struct graphc_conv_2d_settings * s, const int64_t * kernel, int64_t columns, int64_t lines) {
    const int64_t pitch = columns + (kernel[0] - 1) * s->d0 / s->s0;
    return (struct part){columns, lines, pitch, pitch * (lines + (kernel[1] - 1) * s->d1 / s->s1)};
}

static bool fits_part(const struct graphc_conv_2d_settings * s, const struct part * p) {
    return s->s0 * s->s1 * p->plane <= MOST_READ && p->lines * p->pitch <= MOST_SUMS;
}

/// The parts into which a plane of the result is cut: whole lines, if they fit.
static struct part cut_plane(const struct graphc_conv_2d_settings * s, const int64_t * kernel, int64_t columns, int64_t lines) {
    for (int64_t across = 1, down = 1;;) {
        const struct part found = part_of(s, kernel, parts_of(columns, across), parts_of(lines, down));
        if (fits_part(s, &found)) return found;
        if (down < lines) ++down;
        else ++across, down = 1;
    }
}

bool graphc_takes_conv_2d_dw(const struct ggml_tensor * kernel, const struct ggml_tensor * image, const struct graphc_conv_2d_settings * s) {
    const struct part least = part_of(s, kernel->ne, 1, 1);
    return is_dense(kernel) && is_dense(image) && kernel->ne[3] == image->ne[2] && (int64_t) s->s0 * s->s1 <= MOST_READ &&
           kernel->ne[0] * kernel->ne[1] <= MOST_TAPS && fits_part(s, &least);
}

/// As `copy`, but whole vectors where so many elements, and those behind them, may be read and written.
static inline void copy_over(const float * from, int64_t stride, int64_t count, int64_t readable, int64_t writable, float * to) {
    if (count + WIDTH > writable) {
        copy(from, stride, count, to);
    } else if (stride == 1 && count + WIDTH <= readable) {
        for (int64_t i = 0; i < count; i += WIDTH) *(unaligned *) (to + i) = *(const unaligned *) (from + i);
    } else if (stride == 2 && 2 * (count + WIDTH) <= readable) {
        for (int64_t i = 0; i < count; i += WIDTH) *(unaligned *) (to + i) = every_second(from + 2 * i);
    } else {
        copy(from, stride, count, to);
    }
}

/// Copies what a part reads of an image's plane, for the part's first pixel at (x, y) of the result. Up to a vector more is written.
static void read_part(const struct graphc_conv_2d_settings * s, const struct part * p, const struct ggml_tensor * image, const float * plane,
                      int64_t x, int64_t y, float * to) {
    const int64_t width = image->ne[0], height = image->ne[1], lines = p->plane / p->pitch;
    const float * behind = (const float *) image->data + elements(image);
    for (int64_t phase = 0; phase < s->s0 * s->s1; ++phase) {
        const int64_t left = x * s->s0 - s->p0 + phase % s->s0, top = y * s->s1 - s->p1 + phase / s->s0;
        const int64_t first = left < 0 ? min_of(parts_of(-left, s->s0), p->pitch) : 0;
        const int64_t end = left < width ? min_of(parts_of(width - left, s->s0), p->pitch) : 0;
        for (int64_t line = 0; line < lines; ++line, to += p->pitch) {
            const int64_t row = top + line * s->s1;
            if (row < 0 || row >= height || first >= end) {
                for (int64_t i = 0; i < p->pitch; i += WIDTH) *(unaligned *) (to + i) = all(0);
                continue;
            }
            for (int64_t i = 0; i < first; i += WIDTH) *(unaligned *) (to + i) = all(0);
            const float * from = plane + row * width + left + first * s->s0;
            copy_over(from, s->s0, end - first, behind - from, MOST_READ, to + first);
            for (int64_t i = end; i < p->pitch; i += WIDTH) *(unaligned *) (to + i) = all(0);
        }
    }
}

/// So many vectors of sums, which begin with a number. How many is a constant where this is called.
static inline __attribute__((always_inline)) void add_taps(int vectors, float first, const float * kernel, const int64_t * offsets, int taps,
                                                           const float * from, float * to) {
    vector sums[AT_A_TIME];
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) sums[i] = all(first);
    for (int t = 0; t < taps; ++t) {
        const float * row = from + offsets[t];
        const vector weight = all(kernel[t]);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; ++i) sums[i] += weight * *(const unaligned *) (row + i * WIDTH);
    }
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) *(unaligned *) (to + i * WIDTH) = sums[i];
}

/// The sums of a part, and those between its lines.
static void add_all_taps(float first, const float * kernel, const int64_t * offsets, int taps, const float * from, int64_t count, float * to) {
    enum { MOST = AT_A_TIME * WIDTH, SOME = MOST / 2, FEW = MOST / 4 };
    int64_t i = 0;
    for (; i + SOME < count; i += MOST) add_taps(AT_A_TIME, first, kernel, offsets, taps, from + i, to + i);
    for (; i + FEW < count; i += SOME) add_taps(AT_A_TIME / 2, first, kernel, offsets, taps, from + i, to + i);
    for (; i < count; i += FEW) add_taps(AT_A_TIME / 4, first, kernel, offsets, taps, from + i, to + i);
}

void graphc_conv_2d_dw(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct graphc_conv_2d_settings * s = userdata;
    const struct ggml_tensor * kernel = dst->src[0], * image = dst->src[1];
    const int64_t width = dst->ne[0], height = dst->ne[1], channels = dst->ne[2], planes = channels * dst->ne[3];
    const struct part whole = cut_plane(s, kernel->ne, width, height);
    const int64_t across = parts_of(width, whole.columns), parts = across * parts_of(height, whole.lines);
    const int taps = (int) (kernel->ne[0] * kernel->ne[1]);
    float read[MOST_READ + AT_A_TIME * WIDTH] __attribute__((aligned(64))), sums[MOST_SUMS + AT_A_TIME * WIDTH] __attribute__((aligned(64)));
    int64_t offsets[MOST_TAPS];
    for (int t = 0; t < taps; ++t) {
        const int64_t x = t % kernel->ne[0] * s->d0, y = t / kernel->ne[0] * s->d1;
        offsets[t] = (y % s->s1 * s->s0 + x % s->s0) * whole.plane + y / s->s1 * whole.pitch + x / s->s0;
    }
    const struct ggml_tensor * bias = dst->src[2];
    const bool begins = bias != NULL && bias->ne[0] == 1 && bias->ne[1] == 1;  // with a number for all pixels
    const bool plain = dst->src[2 + begins] == NULL;  // then comes nothing but the activation
    const int64_t together = min_of(parts_of(MOST_SUMS, whole.lines * whole.pitch), parts_of(planes * parts, 4 * nth));  // of a unit
    const int64_t units = parts_of(planes * parts, together);
    memset(read + s->s0 * s->s1 * whole.plane, 0, sizeof(float) * AT_A_TIME * WIDTH);
    for (int64_t unit; (unit = take(&s->turns, units, ith, nth)) < units;) {
        for (int64_t each = unit * together; each < min_of((unit + 1) * together, planes * parts); ++each) {
            const int64_t plane = each / parts, channel = plane % channels, batch = plane / channels;
            const int64_t x = each % parts % across * whole.columns, y = each % parts / across * whole.lines;
            const int64_t columns = min_of(whole.columns, width - x), lines = min_of(whole.lines, height - y);
            const int64_t count = (lines - 1) * whole.pitch + columns;
            const float * first = begins ? (const float *) bias->data + channel * step(bias, 2) + batch * step(bias, 3) : NULL;
            read_part(s, &whole, image, (const float *) image->data + plane * image->ne[0] * image->ne[1], x, y, read);
            add_all_taps(begins ? *first : 0, (const float *) kernel->data + channel * taps, offsets, taps, read, count, sums);
            if (plain) activate(&s->activation, sums, NULL, count, sums);
            float * result = (float *) dst->data + plane * width * height + y * width + x;
            for (int64_t line = 0; line < lines; ++line) {  // with its next lines, which are written then
                copy_over(sums + line * whole.pitch, 1, columns, MOST_SUMS, columns == width ? (lines - line) * width : 0, result + line * width);
            }
            if (plain) continue;
            struct block done = {.dst = dst, .at = {{y * width + x, 0, channel, batch}}, .axis = 2, .taken = begins, .activation = &s->activation};
            done.rows = 1, done.columns = columns;
            for (int64_t line = 0; line < lines; ++line, done.at.axis[0] += width) {
                done.c = result + line * width;
                finish(&done, 0, 1);
            }
        }
    }
}
