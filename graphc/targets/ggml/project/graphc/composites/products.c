// Products and convolutions, with what is added to them on the way.

#include "../composite.h"

/// Bytes of a matrix of columns from which a device is better off without it: some devices' largest buffer is 128 MiB.
#define LARGE_COLUMNS ((size_t) 1 << 26)

/// What ggml's direct convolution reserves: one column and its result must fit. ggml's GGML_IM2COL_WORK_SIZE.
#define DIRECT_WORKSPACE ((int64_t) 16 << 20)

/// Bytes: what devices want at most; Vulkan's limit minStorageBufferOffsetAlignment.
#define ALIGNMENT 256

/// What is done with a product or a convolution on its way out: a tensor is added, if there is one, then others; the activation of that.
struct tail {
    tensor * first, ** sums;
    int count;
    const struct graphc_activation * activation;
};

static const struct tail nothing_behind = {NULL, NULL, 0, NULL};

/// The same in steps of its own.
static tensor * with_tail(builder * b, tensor * found, struct tail tail) {
    found = plus(b, found, tail.first);
    for (int i = 0; i < tail.count; ++i) found = plus(b, found, tail.sums[i]);
    return found == NULL || tail.activation == NULL ? found : with_activation(b, *tail.activation, found, NULL);
}

/// What a function of ours gives for so many sources, with as much of the tail as it takes on the way; the rest follows. The activation
/// has its place in the settings. `image`: sums broadcast as to planes of pixels.
static tensor * computed_with_tail(builder * b, ggml_custom_op_t function, const void * settings, size_t size, struct graphc_activation * activation,
                                   const int64_t * ne, tensor ** sources, int count, bool image, struct tail tail) {
    tensor result, * read[MOST_SOURCES];
    memset(&result, 0, sizeof result);
    memcpy(result.ne, ne, sizeof result.ne);
    memcpy(read, sources, sizeof *read * (size_t) count);
    if (tail.first != NULL && b->own->takes_sum(tail.first, &result, image)) read[count++] = tail.first, tail.first = NULL;
    while (tail.first == NULL && tail.count > 0 && count < MOST_SOURCES && b->own->takes_sum(*tail.sums, &result, image)) {
        read[count++] = *tail.sums++, --tail.count;
    }
    if (tail.first == NULL && tail.count == 0 && tail.activation != NULL) *activation = *tail.activation, tail.activation = NULL;
    return with_tail(b, computed(b, function, settings, size, ne, read, count), tail);
}

/// The tensor, or a copy of it if it has gaps, or its only row an odd stride, or it is a view that begins at an odd place.
static tensor * lying_together(builder * b, tensor * x) {
    const bool odd = x->nb[1] != b->ggml->row_size(x->type, x->ne[0]) || x->view_offs % ALIGNMENT != 0;
    return odd || !b->ggml->is_contiguous(x) ? graphc_build_copy(b, x) : x;
}

/// True for a weight that is there when a graph is built, and stays where it is.
static bool stays(const builder * b, const tensor * weight) {
    const tensor * stored = weight->view_src == NULL ? weight : weight->view_src;
    const bool is_weight = stored->buffer != NULL && b->ggml->backend_buffer_get_usage(stored->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    return is_weight && weight->data != NULL;
}

/// Panels, which the builder holds from now on as long as it is there; NULL where there are none.
static struct graphc_panels * held_panels(builder * b, struct graphc_panels * found) {
    struct held * holding = found == NULL ? NULL : (struct held *) keep(b, sizeof *holding);
    if (holding != NULL) {
        holding->panels = found, holding->next = b->held, b->held = holding;
    } else if (found != NULL) {
        b->own->leave_panels(found), found = NULL;
    }
    return found;
}

/// The product by our code, with the weight's scales and shifts or the rows' gate if they have them; NULL where that does not take it, or
/// without memory.
static tensor * own_product(builder * b, tensor * weight, tensor * x, tensor * scales, tensor * shifts, tensor * gate, struct tail tail) {
    struct graphc_mul_mat_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.types = b->ggml->get_type_traits(weight->type), settings.scaled = (scales != NULL) + (shifts != NULL);
    if (b->own == NULL || !b->own->takes_mul_mat(weight, x, &settings)) return NULL;
    settings.gated = gate != NULL;
    settings.pairs = rounds(b, weight);
    const bool plain = settings.scaled == 0 && gate == NULL;
    if (plain && stays(b, weight)) settings.panels = held_panels(b, b->own->hold_panels(weight, x, settings.pairs, settings.types));
    const int64_t ne[] = {weight->ne[1], x->ne[1], x->ne[2], x->ne[3]};
    tensor * sources[] = {weight, x, gate == NULL ? scales : gate, shifts};
    const int count = 2 + settings.scaled + settings.gated;
    return computed_with_tail(b, b->own->mul_mat, &settings, sizeof settings, &settings.activation, ne, sources, count, false, tail);
}

static tensor * product(builder * b, tensor * weight, tensor * x, struct tail tail) {
    tensor * found = own_product(b, weight, x, NULL, NULL, NULL, tail);
    if (found != NULL) return found;
    if (b->vulkan) weight = lying_together(b, weight), x = lying_together(b, x);
    return with_tail(b, b->ggml->mul_mat(b->context, weight, x), tail);
}

/// What is beside a weight; NULL if nothing is.
static const struct factors * factors_of(const builder * b, const tensor * weight) {
    const struct factors * beside = b->factors;
    while (beside != NULL && beside->weight != weight) beside = beside->next;
    return beside;
}

/// True if our code may multiply by a weight together with something else: in float32, with nothing beside the weight.
static bool is_alone(const builder * b, const tensor * weight) { return b->own != NULL && !b->pairs && factors_of(b, weight) == NULL; }

tensor * graphc_build_linear(builder * b, tensor * weight, tensor * x, const struct graphc_activation * activation, tensor ** sums, int count) {
    const struct factors * beside = factors_of(b, weight);
    tensor * change = NULL;
    if (beside != NULL) change = product(b, beside->up, product(b, beside->down, x, nothing_behind), nothing_behind);
    const struct tail tail = {change, sums, count, activation};
    return product(b, weight, x, tail);
}

tensor * graphc_build_gated_linear(builder * b, tensor * weight, tensor * x, tensor * gate, const struct graphc_activation * activation,
                                   tensor ** sums, int count) {
    const struct tail tail = {NULL, sums, count, activation};
    const bool own = is_alone(b, weight) && b->own->takes_gate(gate, x);
    tensor * found = own ? own_product(b, weight, x, NULL, NULL, gate, tail) : NULL;
    return found != NULL ? found : graphc_build_linear(b, weight, b->ggml->mul(b->context, x, gate), activation, sums, count);
}

tensor * graphc_build_scaled_linear(builder * b, tensor * weight, tensor * x, tensor * scales, tensor * shifts,
                                    const struct graphc_activation * activation, tensor ** sums, int count) {
    const struct tail tail = {NULL, sums, count, activation};
    const bool dense = b->ggml->is_contiguous(scales) && (shifts == NULL || b->ggml->is_contiguous(shifts));
    tensor * found = dense ? own_product(b, weight, x, scales, shifts, NULL, tail) : NULL;
    if (found != NULL) return found;
    const int64_t columns = weight->ne[0], blocks = scales->ne[0], rows = weight->ne[1];
    tensor * wide = b->ggml->cast(b->context, weight, GGML_TYPE_F32);
    wide = b->ggml->reshape_4d(b->context, wide, columns / blocks, blocks, rows, 1);
    if (shifts != NULL) wide = b->ggml->add(b->context, wide, b->ggml->reshape_4d(b->context, shifts, 1, blocks, rows, 1));
    wide = b->ggml->mul(b->context, wide, b->ggml->reshape_4d(b->context, scales, 1, blocks, rows, 1));
    return product(b, b->ggml->reshape_4d(b->context, wide, columns, rows, 1, 1), x, tail);
}

typedef tensor * convolution(struct ggml_context *, tensor *, tensor *, int, int, int, int, int, int);

/// How a kernel goes over an image: strides, pads before and behind, dilations, along lines and from line to line.
struct strides {
    int s0, s1, p0, p1, q0, q1, d0, d1;
};

static int64_t conv_size(int64_t size, int64_t kernel, int stride, int pads, int dilation) {
    return (size + pads - dilation * (kernel - 1) - 1) / stride + 1;
}

/// The settings of a convolution of our code, and what becomes of the image's planes.
static struct graphc_conv_2d_settings settings_of(const struct strides * s, const int64_t * k, const int64_t * planes, int64_t * size) {
    struct graphc_conv_2d_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.s0 = s->s0, settings.s1 = s->s1, settings.p0 = s->p0, settings.p1 = s->p1, settings.d0 = s->d0, settings.d1 = s->d1;
    settings.width = size[0] = conv_size(planes[0], k[0], s->s0, s->p0 + s->q0, s->d0);
    settings.height = size[1] = conv_size(planes[1], k[1], s->s1, s->p1 + s->q1, s->d1);
    return settings;
}

/// The products of each group's columns with its kernels, for each image.
static tensor * products_of_groups(builder * b, tensor * columns, tensor * kernel, int64_t pixels, int64_t groups, int64_t images) {
    const struct graphc_ggml * ggml = b->ggml;
    const int64_t * k = kernel->ne, depth = columns->ne[0], results = k[0] * k[1] * k[2] * k[3] / (depth * groups);
    tensor * kernels = ggml->reshape_4d(b->context, kernel, depth, results, groups, 1);
    if (images != 1) kernels = ggml->repeat_4d(b->context, kernels, depth, results, groups, images);
    return ggml->mul_mat(b->context, ggml->reshape_4d(b->context, columns, depth, pixels, groups, images), kernels);
}

/// A convolution in groups of channels, by ggml.
static tensor * in_groups(builder * b, tensor * kernel, tensor * image, struct strides s) {
    const struct graphc_ggml * ggml = b->ggml;
    const int64_t * k = kernel->ne, * size = image->ne, groups = size[2] / k[2];
    tensor * apart = ggml->reshape_4d(b->context, image, size[0], size[1], k[2], groups * size[3]);
    tensor * columns = ggml->im2col(b->context, kernel, apart, s.s0, s.s1, s.p0, s.p1, s.d0, s.d1, true, GGML_TYPE_F32);
    const int64_t across = columns->ne[1], down = columns->ne[2];
    return ggml->reshape_4d(b->context, products_of_groups(b, columns, kernel, across * down, groups, size[3]), across, down, k[3], size[3]);
}

/// A convolution of ggml's, whose pads are the same before and behind: by this function if it is of all channels together.
static tensor * by_ggml(builder * b, convolution * function, tensor * kernel, tensor * image, struct strides s) {
    if (s.p0 != s.q0 || s.p1 != s.q1) image = b->ggml->pad_ext(b->context, image, s.p0, s.q0, s.p1, s.q1, 0, 0, 0, 0), s.p0 = s.p1 = 0;
    const bool together = kernel->ne[2] == image->ne[2], each_alone = kernel->ne[2] == 1 && kernel->ne[3] == image->ne[2];
    if (!together && !each_alone) return in_groups(b, kernel, image, s);
    if (!together) function = b->ggml->conv_2d_dw_direct;
    return function(b->context, kernel, image, s.s0, s.s1, s.p0, s.p1, s.d0, s.d1);
}

/// Has what a way transforms before be a source of it, of so many elements: a kernel and an image, and what else is read before, become the
/// image, that and the kernel. False without memory.
static bool transformed_before(builder * b, ggml_custom_op_t operands, int64_t elements, const struct graphc_conv_2d_settings * settings,
                               tensor ** sources, int count) {
    const int64_t size[] = {elements, 1, 1, 1};
    tensor * kernel = sources[0], * made = computed(b, operands, settings, sizeof *settings, size, sources, count);
    sources[0] = sources[1], sources[1] = made, sources[2] = kernel;
    return made != NULL;
}

/// The same for a matrix unit: rounds an image, whose channels come last or not, or makes it of what it is derived from; and a kernel, unless
/// that stays rounded.
static bool rounded_before(builder * b, bool last, struct graphc_conv_2d_settings * settings, tensor ** sources) {
    tensor * kernel = sources[0];
    const struct derived * doubled = derivation(b->doubled, sources[1]), * normalized = last ? NULL : derivation(b->normalized, sources[1]);
    settings->doubled = true;
    if (doubled != NULL && b->own->takes_direct(kernel, doubled->source, last, settings)) sources[1] = doubled->source;
    else settings->doubled = false;
    int count = 2;
    if (normalized != NULL) sources[1] = normalized->source, sources[count++] = normalized->terms, settings->silu = normalized->silu;
    if (stays(b, kernel)) settings->panels = held_panels(b, b->own->hold_panels_of_direct(kernel, settings));
    ggml_custom_op_t operands = last ? b->own->direct_operands_last : b->own->direct_operands;
    return transformed_before(b, operands, b->own->direct_size(kernel, sources[1], last, settings), settings, sources, count);
}

/// One of our convolutions; NULL where they do not take it, or without memory.
static tensor * own_convolution(builder * b, tensor * kernel, tensor * image, const int64_t * ne, struct graphc_conv_2d_settings * settings,
                                const char * key, struct tail tail) {
    const char * way = chosen(b, key);
    const bool preferred = same(way, "winograd") || (!same(way, "tiles") && b->own->prefers_winograd(kernel, image, settings));
    const bool winograd = preferred && b->own->takes_winograd(kernel, image, settings);
    const bool direct = !winograd && b->own->takes_direct(kernel, image, false, settings);
    if (!winograd && !direct && !b->own->takes_conv_2d(kernel, image, settings)) return NULL;
    tensor * sources[] = {kernel, image, NULL};
    if (winograd) {
        const int64_t elements = b->own->winograd_size(kernel, image, settings, b->threads);
        if (!transformed_before(b, b->own->winograd_operands, elements, settings, sources, 2)) return NULL;
    } else if (direct && !rounded_before(b, false, settings, sources)) {
        return NULL;
    }
    ggml_custom_op_t function = winograd ? b->own->winograd : direct ? b->own->direct : b->own->conv_2d;
    const int count = winograd || direct ? 3 : 2;
    take_way(b, key, winograd ? "winograd" : "tiles");
    return computed_with_tail(b, function, settings, sizeof *settings, &settings->activation, ne, sources, count, true, tail);
}

tensor * graphc_build_conv_2d(builder * b, tensor * kernel, tensor * image, tensor * bias, int s0, int s1, int p0, int p1, int d0, int d1,
                              bool direct, const struct graphc_activation * activation, tensor ** sums, int count) {
    const struct tail tail = {along_channels(b, bias), sums, count, activation};
    const struct strides strides = {s0, s1, p0, p1, p0, p1, d0, d1};
    const int64_t * k = kernel->ne;
    char of_kernel[SIZES_SIZE], of_image[SIZES_SIZE], key[KEY_SIZE];
    snprintf(key, sizeof key, "conv_2d %s %s %s stride %dx%d pad %dx%d dilation %dx%d", b->ggml->type_name(kernel->type),
             sizes_of(kernel, of_kernel), sizes_of(image, of_image), s0, s1, p0, p1, d0, d1);
    const char * chosen_way = chosen(b, key), * way = NULL;
    int64_t ne[] = {0, 0, k[3], image->ne[3]};
    struct graphc_conv_2d_settings settings = settings_of(&strides, k, image->ne, ne);
    const size_t columns = sizeof(float) * (size_t) (ne[0] * ne[1] * ne[3] * k[0] * k[1] * k[2]);
    const bool whole = k[2] == image->ne[2];  // not in groups
    const bool fits = whole && (int64_t) sizeof(float) * (k[0] * k[1] * k[2] + k[3]) <= DIRECT_WORKSPACE;
    bool wanted = direct;
    if (b->own != NULL && same(chosen_way, "direct") && kernel->type == GGML_TYPE_F32 && fits) {
        wanted = true, way = "direct";
    } else if (b->own != NULL) {
        settings.types = b->ggml->get_type_traits(kernel->type), settings.pairs = rounds(b, kernel);
        tensor * found = own_convolution(b, kernel, image, ne, &settings, key, tail);
        if (found != NULL) return found;
    } else if (b->devices > 0) {
        const bool by_columns = same(chosen_way, "columns") && (!direct || columns <= MOST_BYTES);
        wanted = fits && !by_columns && (direct || same(chosen_way, "direct") || (b->vulkan && columns > LARGE_COLUMNS));
    }
    tensor * found = NULL;
    if (wanted) {
        found = by_ggml(b, b->ggml->conv_2d_direct, kernel, image, strides);
        if (!direct && !is_supported(b, found)) found = NULL;
    }
    if (b->devices > 0 && whole) way = found != NULL ? "direct" : "columns";
    if (found == NULL) found = by_ggml(b, b->ggml->conv_2d, kernel, image, strides);
    if (way != NULL) take_way(b, key, way);
    return with_tail(b, found, tail);
}

tensor * graphc_build_conv_3d(builder * b, tensor * kernel, tensor * volumes, tensor * bias, int s0, int s1, int s2, int p0, int p1, int p2,
                              int d0, int d1, int d2, int channels, int groups, const struct graphc_activation * activation, tensor ** sums,
                              int count) {
    const struct graphc_ggml * ggml = b->ggml;
    struct ggml_context * c = b->context;
    const int64_t * k = kernel->ne, * v = volumes->ne, inner = channels / groups, results = k[3] / inner, images = v[3] / channels;
    const struct strides strides = {s0, s1, p0, p1, p0, p1, d0, d1};
    const struct graphc_planes planes = {s2, p2, d2, k[2], v[2], conv_size(v[2], k[2], s2, 2 * p2, d2)};
    int64_t ne[] = {0, 0, results, images};  // of images whose planes lie one below the other
    struct graphc_conv_2d_settings settings = settings_of(&strides, k, v, ne);
    const int64_t pixels = ne[0] * ne[1] * planes.result, whole[] = {ne[0], ne[1], planes.result, results * images};
    settings.planes = planes, settings.types = ggml->get_type_traits(kernel->type);
    settings.height = ne[1] *= planes.result;
    bias = along_channels(b, bias);
    if (b->own != NULL && ggml->is_contiguous(kernel) && ggml->is_contiguous(volumes)) {
        char of_kernel[SIZES_SIZE], of_volumes[SIZES_SIZE], key[KEY_SIZE];
        snprintf(key, sizeof key, "conv_3d %s %s %s channels %d groups %d stride %dx%dx%d pad %dx%dx%d dilation %dx%dx%d",
                 ggml->type_name(kernel->type), sizes_of(kernel, of_kernel), sizes_of(volumes, of_volumes), channels, groups, s0, s1, s2, p0, p1,
                 p2, d0, d1, d2);
        tensor * image = ggml->reshape_4d(c, volumes, v[0], v[1] * v[2], channels, images), * added[MOST_SOURCES];
        tensor * matrices = ggml->reshape_4d(c, kernel, k[0], k[1] * k[2], inner, results);
        int taken = 0;
        for (; taken < count && taken < MOST_SOURCES && ggml->nbytes(sums[taken]) == sizeof(float) * (size_t) (pixels * results * images); ++taken) {
            if (!ggml->is_contiguous(sums[taken])) break;
            added[taken] = ggml->reshape_4d(c, sums[taken], ne[0], ne[1], ne[2], ne[3]);
        }
        const struct tail tail = {bias, added, taken, taken == count ? activation : NULL}, rest = {NULL, sums + taken, count - taken, activation};
        settings.pairs = rounds(b, kernel);
        tensor * found = own_convolution(b, matrices, image, ne, &settings, key, tail);
        if (found != NULL) {
            found = ggml->reshape_4d(c, found, whole[0], whole[1], whole[2], whole[3]);
            return taken == count ? found : with_tail(b, found, rest);
        }
    }
    tensor * found;
    if (groups == 1) {
        found = ggml->conv_3d_direct(c, kernel, volumes, s0, s1, s2, p0, p1, p2, d0, d1, d2, channels, (int) images, (int) results);
    } else {
        tensor * columns = ggml->im2col_3d(c, kernel, volumes, inner, s0, s1, s2, p0, p1, p2, d0, d1, d2, GGML_TYPE_F32);
        found = ggml->reshape_4d(c, products_of_groups(b, columns, kernel, pixels, groups, images), whole[0], whole[1], whole[2], whole[3]);
    }
    if (bias != NULL) {
        found = plus(b, ggml->reshape_4d(c, found, ne[0], ne[1], ne[2], ne[3]), bias);
        if (found != NULL) found = ggml->reshape_4d(c, found, whole[0], whole[1], whole[2], whole[3]);
    }
    const struct tail tail = {NULL, sums, count, activation};
    return with_tail(b, found, tail);
}

tensor * graphc_build_conv_2d_dw(builder * b, tensor * kernel, tensor * image, tensor * bias, int s0, int s1, int p0, int p1, int d0, int d1,
                                 const struct graphc_activation * activation, tensor ** sums, int count) {
    const struct tail tail = {along_channels(b, bias), sums, count, activation};
    const struct strides strides = {s0, s1, p0, p1, p0, p1, d0, d1};
    int64_t ne[] = {0, 0, image->ne[2], image->ne[3]};
    struct graphc_conv_2d_settings settings = settings_of(&strides, kernel->ne, image->ne, ne);
    if (b->own == NULL || !b->own->takes_conv_2d_dw(kernel, image, &settings)) {
        return with_tail(b, by_ggml(b, b->ggml->conv_2d, kernel, image, strides), tail);
    }
    tensor * sources[] = {kernel, image};
    return computed_with_tail(b, b->own->conv_2d_dw, &settings, sizeof settings, &settings.activation, ne, sources, 2, true, tail);
}

tensor * graphc_build_conv_2d_last(builder * b, tensor * kernel, tensor * image, tensor * bias, int s0, int s1, int p0, int p1, int q0, int q1,
                                   int d0, int d1, bool direct, const struct graphc_activation * activation, tensor ** sums, int count) {
    const struct tail tail = {bias, sums, count, activation};
    const struct strides strides = {s0, s1, p0, p1, q0, q1, d0, d1};
    int64_t ne[] = {kernel->ne[3], 0, 0, image->ne[3]};
    struct graphc_conv_2d_settings settings = settings_of(&strides, kernel->ne, image->ne + 1, ne + 1);
    settings.types = b->ggml->get_type_traits(kernel->type);
    const bool single = b->own != NULL && b->own->takes_conv_2d_dw_last(kernel, image);
    const bool small = b->own != NULL && !single && b->own->takes_conv_2d_groups_last(kernel, image, b->pairs), few = single || small;  // channels of a group
    const bool large = b->own != NULL && !few && p0 == q0 && p1 == q1 && !rounds(b, kernel) && has_few_results(kernel, image->ne[0], &settings);
    if (b->own == NULL || large || (!few && !b->own->takes_conv_2d_last(kernel, image, &settings))) {
        tensor * planes = b->ggml->permute(b->context, image, 2, 0, 1, 3), * found;
        if (!b->ggml->is_contiguous(planes)) planes = b->ggml->cont(b->context, planes);
        if (large) found = graphc_build_conv_2d(b, kernel, planes, NULL, s0, s1, p0, p1, d0, d1, direct, NULL, NULL, 0);
        else found = by_ggml(b, direct ? b->ggml->conv_2d_direct : b->ggml->conv_2d, kernel, planes, strides);
        return with_tail(b, b->ggml->cont(b->context, b->ggml->permute(b->context, found, 1, 2, 0, 3)), tail);
    }
    settings.pairs = !few && b->ggml->is_contiguous(image) && rounds(b, kernel);
    tensor * sources[] = {kernel, image, NULL};
    const bool winograd = b->own->takes_winograd_last(kernel, image, &settings);
    const int64_t elements = winograd ? b->own->winograd_last_size(kernel, image, &settings, b->threads) : 0;
    if (winograd && !transformed_before(b, b->own->winograd_last_operands, elements, &settings, sources, 2)) return NULL;
    const bool unit = !winograd && !few && b->own->takes_direct(kernel, image, true, &settings);  // by a matrix unit
    if (unit && !rounded_before(b, true, &settings, sources)) return NULL;
    if (small && stays(b, kernel)) settings.panels = held_panels(b, b->own->hold_panels_of_groups(kernel, ne[1] * ne[2] * ne[3]));
    if (!winograd && !few && !unit && stays(b, kernel)) {
        const int parts = b->own->parts_of_windows(kernel, image, &settings);
        settings.panels = held_panels(b, b->own->hold_panels_of_kernel(kernel, image, ne[1] * ne[2] * ne[3], parts, settings.types));
    }
    ggml_custom_op_t function = winograd ? b->own->winograd_last : unit ? b->own->direct_last : b->own->conv_2d_last;
    if (few) function = single ? b->own->conv_2d_dw_last : b->own->conv_2d_groups_last;
    const bool adds = !few && b->ggml->is_contiguous(image) && image->ne[0] > 1 && ne[1] > 1;  // whole images, whose pixels are rows then
    const size_t whole = sizeof(float) * (size_t) (ne[0] * ne[1] * ne[2] * ne[3]);
    int taken = 0;
    while (adds && taken < count && b->ggml->is_contiguous(sums[taken]) && b->ggml->nbytes(sums[taken]) == whole) ++taken;
    const struct tail first = {bias, sums, taken, taken == count ? activation : NULL}, rest = {NULL, sums + taken, count - taken, activation};
    tensor * found = computed_with_tail(b, function, &settings, sizeof settings, &settings.activation, ne, sources, winograd || unit ? 3 : 2, false, first);
    return taken == count ? found : with_tail(b, found, rest);
}

tensor * graphc_build_expanded_conv_2d(builder * b, tensor * weight, tensor * image, tensor * sum,
                                       const struct graphc_activation * inner, tensor * kernel, tensor * bias, int s0, int s1, int p0,
                                       int p1, int q0, int q1, int d0, int d1, const struct graphc_activation * activation) {
    const struct strides strides = {s0, s1, p0, p1, q0, q1, d0, d1};
    struct graphc_expanded_conv_2d_settings settings;
    memset(&settings, 0, sizeof settings);
    int64_t ne[] = {kernel->ne[3], 0, 0, image->ne[3]};
    settings.convolution = settings_of(&strides, kernel->ne, image->ne + 1, ne + 1);
    if (!is_alone(b, weight) || !b->own->takes_expanded_conv_2d(weight, image, kernel, &settings.convolution)) {
        tensor * pixels = image;  // rows of one matrix: few of them, as in each line of a small image, would stay apart
        const int64_t * size = image->ne;
        if (b->ggml->is_contiguous(image)) pixels = b->ggml->reshape_4d(b->context, image, size[0], size[1] * size[2], size[3], 1);
        tensor * wide = graphc_build_linear(b, weight, pixels, inner, &sum, sum != NULL);
        if (wide == NULL) return NULL;
        wide = b->ggml->reshape_4d(b->context, wide, wide->ne[0], size[1], size[2], size[3]);
        return graphc_build_conv_2d_last(b, kernel, wide, bias, s0, s1, p0, p1, q0, q1, d0, d1, false, activation, NULL, 0);
    }
    tensor * sources[] = {weight, image, kernel, sum, NULL};
    settings.added = sum != NULL;
    if (inner != NULL) settings.activation = *inner;
    const struct tail tail = {bias, NULL, 0, activation};
    const int count = 3 + settings.added;
    return computed_with_tail(b, b->own->expanded_conv_2d, &settings, sizeof settings, &settings.convolution.activation, ne, sources, count,
                              false, tail);
}
