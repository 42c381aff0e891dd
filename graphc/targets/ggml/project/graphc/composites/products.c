// Products and convolutions, with what is added to them on the way.

#include "../composite.h"

/// Bytes of a matrix of columns from which a device is better off without it: some devices' largest buffer is 128 MiB.
#define LARGE_COLUMNS ((size_t) 1 << 26)

/// What ggml's direct convolution reserves: one column and its result must fit. ggml's GGML_IM2COL_WORK_SIZE.
#define DIRECT_WORKSPACE ((int64_t) 16 << 20)

/// Bytes: what devices want at most; Vulkan's limit minStorageBufferOffsetAlignment.
#define ALIGNMENT 256

/// The tensor, or a copy of it if it has gaps, or its only row an odd stride, or it is a view that begins at an odd place.
static struct ggml_tensor * lying_together(struct graphc_builder * b, struct ggml_tensor * x) {
    const bool odd = x->nb[1] != b->ggml->row_size(x->type, x->ne[0]) || x->view_offs % ALIGNMENT != 0;
    return odd || !b->ggml->is_contiguous(x) ? graphc_build_copy(b, x) : x;
}

/// What is left to be added to a product or a convolution, if there is one, and its activation.
static struct ggml_tensor * with_rest(struct graphc_builder * b, struct ggml_tensor * found, struct ggml_tensor ** sums, int count,
                                      const struct graphc_activation * activation) {
    for (int i = 0; i < count; ++i) found = plus(b, found, sums[i]);
    return with_activation(b, found, activation);
}

/// These tensors behind another one; NULL without memory.
static struct ggml_tensor ** with_first(struct graphc_builder * b, struct ggml_tensor * first, struct ggml_tensor ** rest, int count) {
    struct ggml_tensor ** made = (struct ggml_tensor **) keep(b, sizeof *made * (size_t) (count + 1));
    if (made == NULL) return NULL;
    made[0] = first;
    for (int i = 0; i < count; ++i) made[i + 1] = rest[i];
    return made;
}

/// How many of these, at most so many, our code adds to a result of such sizes on the way.
static int taken_sums(const struct graphc_builder * b, const int64_t * ne, struct ggml_tensor ** sums, int count, bool image, int most) {
    struct ggml_tensor result;
    memset(&result, 0, sizeof result);
    memcpy(result.ne, ne, sizeof result.ne);
    int taken = 0;
    while (taken < count && taken < most && b->own->takes_sum(sums[taken], &result, image)) ++taken;
    return taken;
}

/// The product by our code, with the weight's scales and shifts if it has them; NULL where that does not take it, or without memory.
static struct ggml_tensor * own_product(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x, struct ggml_tensor ** scaling,
                                        int scaled, const struct graphc_activation * activation, struct ggml_tensor ** sums, int count) {
    struct graphc_mul_mat_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.types = b->ggml->get_type_traits(weight->type), settings.scaled = scaled;
    if (b->own == NULL || !b->own->takes_mul_mat(weight, x, &settings)) return NULL;
    settings.pairs = rounds(b, weight);
    const int64_t ne[] = {weight->ne[1], x->ne[1], x->ne[2], x->ne[3]};
    struct ggml_tensor * sources[MOST_SOURCES] = {weight, x};
    int read = 2;
    for (int i = 0; i < scaled; ++i) sources[read++] = scaling[i];
    const int taken = taken_sums(b, ne, sums, count, false, MOST_SOURCES - read);
    for (int i = 0; i < taken; ++i) sources[read++] = sums[i];
    if (activation != NULL && taken == count) settings.activation = *activation;
    struct ggml_tensor * found = computed(b, b->own->mul_mat, &settings, sizeof settings, ne, sources, read);
    return with_rest(b, found, sums + taken, count - taken, taken < count ? activation : NULL);
}

static struct ggml_tensor * product(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x, const struct graphc_activation * activation,
                                    struct ggml_tensor ** sums, int count) {
    struct ggml_tensor * found = own_product(b, weight, x, NULL, 0, activation, sums, count);
    if (found != NULL) return found;
    if (b->vulkan) weight = lying_together(b, weight), x = lying_together(b, x);
    return with_rest(b, b->ggml->mul_mat(b->context, weight, x), sums, count, activation);
}

struct ggml_tensor * graphc_build_linear(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x, const struct graphc_activation * activation,
                                         struct ggml_tensor ** sums, int count) {
    for (const struct factors * each = b->factors; each != NULL; each = each->next) {
        if (each->weight != weight) continue;
        struct ggml_tensor * change = product(b, each->up, product(b, each->down, x, NULL, NULL, 0), NULL, NULL, 0);
        struct ggml_tensor ** more = with_first(b, change, sums, count);
        return more == NULL ? NULL : product(b, weight, x, activation, more, count + 1);
    }
    return product(b, weight, x, activation, sums, count);
}

struct ggml_tensor * graphc_build_scaled_linear(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x,
                                                struct ggml_tensor * scales, struct ggml_tensor * shifts,
                                                const struct graphc_activation * activation, struct ggml_tensor ** sums, int count) {
    struct ggml_tensor * scaling[] = {scales, shifts};
    const bool dense = b->ggml->is_contiguous(scales) && (shifts == NULL || b->ggml->is_contiguous(shifts));
    struct ggml_tensor * found = dense ? own_product(b, weight, x, scaling, shifts == NULL ? 1 : 2, activation, sums, count) : NULL;
    if (found != NULL) return found;
    const int64_t columns = weight->ne[0], blocks = scales->ne[0], rows = weight->ne[1];
    struct ggml_tensor * wide = b->ggml->cast(b->context, weight, GGML_TYPE_F32);
    wide = b->ggml->reshape_4d(b->context, wide, columns / blocks, blocks, rows, 1);
    if (shifts != NULL) wide = b->ggml->add(b->context, wide, b->ggml->reshape_4d(b->context, shifts, 1, blocks, rows, 1));
    wide = b->ggml->mul(b->context, wide, b->ggml->reshape_4d(b->context, scales, 1, blocks, rows, 1));
    return product(b, b->ggml->reshape_4d(b->context, wide, columns, rows, 1, 1), x, activation, sums, count);
}

/// One of our convolutions; NULL where they do not take it, or without memory.
static struct ggml_tensor * own_convolution(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image, const int64_t * ne,
                                            struct graphc_conv_2d_settings * settings, const struct graphc_activation * activation,
                                            const char * way, struct ggml_tensor ** sums, int count) {
    const bool preferred = same(way, "winograd") || (!same(way, "tiles") && b->own->prefers_winograd(kernel, image, settings));
    const bool winograd = preferred && b->own->takes_winograd(kernel, image, settings);
    if (!winograd && !b->own->takes_conv_2d(kernel, image, settings)) return NULL;
    const int taken = taken_sums(b, ne, sums, count, true, MOST_SOURCES - 2);
    struct ggml_tensor * sources[MOST_SOURCES + 1] = {kernel, image};
    int first = 2;
    if (winograd) {
        const int64_t size[] = {b->own->winograd_size(kernel, image, settings, b->threads), 1, 1, 1};
        sources[1] = computed(b, b->own->winograd_operands, settings, sizeof *settings, size, sources, 2);
        if (sources[1] == NULL) return NULL;
        sources[0] = image, sources[2] = kernel, first = 3;
    }
    for (int i = 0; i < taken; ++i) sources[first + i] = sums[i];
    if (activation != NULL && taken == count) settings->activation = *activation;
    ggml_custom_op_t function = winograd ? b->own->winograd : b->own->conv_2d;
    struct ggml_tensor * found = computed(b, function, settings, sizeof *settings, ne, sources, first + taken);
    found = with_rest(b, found, sums + taken, count - taken, taken < count ? activation : NULL);
    b->way = winograd ? "winograd" : "tiles";
    return found;
}

static int64_t conv_size(int64_t size, int64_t kernel, int stride, int pad, int dilation) {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

/// The settings of a convolution, and what its result's planes become: pads differ before and behind.
static struct graphc_conv_2d_settings settings_of(const int64_t * k, const int64_t * image, int s0, int s1, int p0, int p1, int q0, int q1, int d0,
                                                  int d1, const struct graphc_activation * activation, int64_t * size) {
    struct graphc_conv_2d_settings settings;
    memset(&settings, 0, sizeof settings);
    settings.s0 = s0, settings.s1 = s1, settings.p0 = p0, settings.p1 = p1, settings.d0 = d0, settings.d1 = d1;
    if (activation != NULL) settings.activation = *activation;
    settings.width = size[0] = conv_size(image[0] + q0 - p0, k[0], s0, p0, d0);
    settings.height = size[1] = conv_size(image[1] + q1 - p1, k[1], s1, p1, d1);
    return settings;
}

struct ggml_tensor * graphc_build_conv_2d(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image,
                                          struct ggml_tensor * bias, int s0, int s1, int p0, int p1, int d0, int d1, bool direct,
                                          const struct graphc_activation * activation, struct ggml_tensor ** sums, int count) {
    if (bias != NULL && (sums = with_first(b, along_channels(b, bias), sums, count++)) == NULL) return NULL;
    const int64_t * k = kernel->ne;
    char of_kernel[SIZES_SIZE], of_image[SIZES_SIZE];
    snprintf(b->key, sizeof b->key, "conv_2d %s %s %s stride %dx%d pad %dx%d dilation %dx%d", b->ggml->type_name(kernel->type),
             sizes_of(kernel, of_kernel), sizes_of(image, of_image), s0, s1, p0, p1, d0, d1);
    const char * chosen_way = chosen(b), * way = NULL;
    int64_t ne[] = {0, 0, k[3], image->ne[3]};
    struct graphc_conv_2d_settings settings = settings_of(k, image->ne, s0, s1, p0, p1, p0, p1, d0, d1, NULL, ne);
    const size_t columns = sizeof(float) * (size_t) (ne[0] * ne[1] * ne[3] * k[0] * k[1] * k[2]);
    const bool fits = (int64_t) sizeof(float) * (k[0] * k[1] * k[2] + k[3]) <= DIRECT_WORKSPACE;
    bool wanted = direct;
    if (b->own != NULL && same(chosen_way, "direct") && kernel->type == GGML_TYPE_F32 && fits) {
        wanted = true, way = "direct";
    } else if (b->own != NULL) {
        settings.types = b->ggml->get_type_traits(kernel->type), settings.pairs = rounds(b, kernel);
        struct ggml_tensor * found = own_convolution(b, kernel, image, ne, &settings, activation, chosen_way, sums, count);
        if (found != NULL) return found;
    } else if (b->devices > 0) {
        const bool by_columns = same(chosen_way, "columns") && (!direct || columns <= MOST_BYTES);
        wanted = fits && !by_columns && (direct || same(chosen_way, "direct") || (b->vulkan && columns > LARGE_COLUMNS));
    }
    struct ggml_tensor * found = NULL;
    if (wanted) {
        found = b->ggml->conv_2d_direct(b->context, kernel, image, s0, s1, p0, p1, d0, d1);
        if (!direct && !is_supported(b, found)) found = NULL;
    }
    if (b->devices > 0) way = found != NULL ? "direct" : "columns";
    if (found == NULL) found = b->ggml->conv_2d(b->context, kernel, image, s0, s1, p0, p1, d0, d1);
    found = with_rest(b, found, sums, count, activation);
    b->way = way;
    return found;
}

struct ggml_tensor * graphc_build_conv_2d_dw(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image,
                                             struct ggml_tensor * bias, int s0, int s1, int p0, int p1, int d0, int d1,
                                             const struct graphc_activation * activation, struct ggml_tensor ** sums, int count) {
    if (bias != NULL && (sums = with_first(b, along_channels(b, bias), sums, count++)) == NULL) return NULL;
    int64_t ne[] = {0, 0, image->ne[2], image->ne[3]};
    struct graphc_conv_2d_settings settings = settings_of(kernel->ne, image->ne, s0, s1, p0, p1, p0, p1, d0, d1, NULL, ne);
    if (b->own == NULL || !b->own->takes_conv_2d_dw(kernel, image, &settings)) {
        return with_rest(b, b->ggml->conv_2d_dw_direct(b->context, kernel, image, s0, s1, p0, p1, d0, d1), sums, count, activation);
    }
    struct ggml_tensor * sources[MOST_SOURCES] = {kernel, image};
    const int taken = taken_sums(b, ne, sums, count, true, MOST_SOURCES - 2);
    for (int i = 0; i < taken; ++i) sources[2 + i] = sums[i];
    if (activation != NULL && taken == count) settings.activation = *activation;
    struct ggml_tensor * found = computed(b, b->own->conv_2d_dw, &settings, sizeof settings, ne, sources, 2 + taken);
    return with_rest(b, found, sums + taken, count - taken, taken < count ? activation : NULL);
}

/// An image whose channels lie one after the other as ggml wants it, or the other way round.
static struct ggml_tensor * reordered(struct graphc_builder * b, struct ggml_tensor * x, int axis0, int axis1, int axis2) {
    return b->ggml->cont(b->context, b->ggml->permute(b->context, x, axis0, axis1, axis2, 3));
}

struct ggml_tensor * graphc_build_conv_2d_last(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image,
                                               struct ggml_tensor * bias, int s0, int s1, int p0, int p1, int q0, int q1, int d0, int d1, bool direct,
                                               const struct graphc_activation * activation) {
    int64_t size[2];
    struct graphc_conv_2d_settings settings = settings_of(kernel->ne, image->ne, s0, s1, p0, p1, q0, q1, d0, d1, activation, size);
    settings.types = b->ggml->get_type_traits(kernel->type);
    if (b->own != NULL && b->own->takes_conv_2d_last(kernel, image, &settings)) {
        settings.pairs = !b->ggml->is_contiguous(image) && rounds(b, kernel);
        const int64_t ne[] = {kernel->ne[3], size[0], size[1], image->ne[3]};
        struct ggml_tensor * sources[] = {kernel, image, bias, NULL};
        if (!b->own->takes_winograd_last(kernel, image, &settings)) {
            return computed(b, b->own->conv_2d_last, &settings, sizeof settings, ne, sources, bias == NULL ? 2 : 3);
        }
        const int64_t workspace[] = {b->own->winograd_last_size(kernel, image, &settings, b->threads), 1, 1, 1};
        sources[1] = computed(b, b->own->winograd_last_operands, &settings, sizeof settings, workspace, sources, 2);
        sources[0] = image, sources[2] = kernel, sources[3] = bias;
        return sources[1] == NULL ? NULL : computed(b, b->own->winograd_last, &settings, sizeof settings, ne, sources, bias == NULL ? 3 : 4);
    }
    if (!b->ggml->is_contiguous(image)) image = b->ggml->cont(b->context, image);
    if (p0 != q0 || p1 != q1) image = b->ggml->pad_ext(b->context, image, p0, q0, p1, q1, 0, 0, 0, 0), p0 = p1 = 0;
    struct ggml_tensor * found = (direct ? b->ggml->conv_2d_direct : b->ggml->conv_2d)(b->context, kernel, image, s0, s1, p0, p1, d0, d1);
    return with_activation(b, plus(b, reordered(b, found, 1, 2, 0), bias), activation);
}

struct ggml_tensor * graphc_build_conv_2d_dw_last(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image,
                                                  struct ggml_tensor * bias, int s0, int s1, int p0, int p1, int q0, int q1, int d0, int d1,
                                                  const struct graphc_activation * activation) {
    if (b->own == NULL || !b->own->takes_conv_2d_dw_last(kernel, image)) {
        struct ggml_tensor * found = reordered(b, image, 2, 0, 1);
        if (p0 != q0 || p1 != q1) found = b->ggml->pad_ext(b->context, found, p0, q0, p1, q1, 0, 0, 0, 0), p0 = p1 = 0;
        found = b->ggml->conv_2d_dw_direct(b->context, kernel, found, s0, s1, p0, p1, d0, d1);
        return with_activation(b, plus(b, reordered(b, found, 1, 2, 0), bias), activation);
    }
    int64_t size[2];
    const struct graphc_conv_2d_settings settings = settings_of(kernel->ne, image->ne + 1, s0, s1, p0, p1, q0, q1, d0, d1, activation, size);
    const int64_t ne[] = {image->ne[0], size[0], size[1], image->ne[3]};
    struct ggml_tensor * sources[] = {kernel, image, bias};
    return computed(b, b->own->conv_2d_dw_last, &settings, sizeof settings, ne, sources, bias == NULL ? 2 : 3);
}
