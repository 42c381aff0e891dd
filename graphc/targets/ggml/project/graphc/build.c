// Composite calls: which way each is computed, and by which tensors. Valid as C and as C++.

#include "build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_SIZE = 512,
    SIZES_SIZE = 84,
    MOST_DEVICES = 16,
    MOST_SOURCES = 6,  // tensors that a function of ours reads
    ALIGNMENT = 256,   // bytes: what devices want at most; Vulkan's limit minStorageBufferOffsetAlignment
};

/// Bytes of a matrix of scores, or of columns, above which it is not made by choice; and from which a device is better off without it:
/// small ones fit any, and some devices' largest buffer is 128 MiB.
#define MOST_BYTES ((size_t) 256 << 20)
#define LARGE_SCORES ((size_t) 1 << 22)
#define LARGE_COLUMNS ((size_t) 1 << 26)

/// What ggml's direct convolution reserves: one column and its result must fit. ggml's GGML_IM2COL_WORK_SIZE.
#define DIRECT_WORKSPACE ((int64_t) 16 << 20)

/// Memory that is kept as long as the builder.
struct kept {
    struct kept * next;
};

struct choice {
    const char * key, * way;
    struct choice * next;
};

struct factors {
    const struct ggml_tensor * weight;
    struct ggml_tensor * down, * up;
    struct factors * next;
};

struct graphc_builder {
    struct ggml_context * context;
    const struct graphc_ggml * ggml;
    const struct graphc_functions * own;  // none: ggml computes everything
    int threads, devices;
    ggml_backend_t device[MOST_DEVICES];
    bool vulkan;     // its products read their operands wrong, or rounded, unless those lie together; its direct convolutions are fast
    bool attention;  // the devices' own attention is as exact as products, or may be less so
    struct kept * kept;
    struct choice * choices;
    struct factors * factors;
    char key[KEY_SIZE];
    const char * way;
};

struct graphc_builder * graphc_builder_new(struct ggml_context * context, const struct graphc_ggml * ggml,
                                           const struct graphc_functions * own, int threads) {
    struct graphc_builder * b = (struct graphc_builder *) calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->context = context, b->ggml = ggml, b->own = own, b->threads = threads, b->attention = true;
    return b;
}

void graphc_builder_free(struct graphc_builder * b) {
    if (b == NULL) return;
    for (struct kept * each = b->kept; each != NULL;) {
        struct kept * next = each->next;
        free(each);
        each = next;
    }
    free(b);
}

/// So many bytes, all 0, that live as long as the builder; NULL without memory.
static void * keep(struct graphc_builder * b, size_t size) {
    const size_t head = 64;  // a line of the cache
    struct kept * made = (struct kept *) calloc(1, head + size);
    if (made == NULL) return NULL;
    made->next = b->kept, b->kept = made;
    return (char *) made + head;
}

void graphc_builder_device(struct graphc_builder * b, ggml_backend_t device, const char * name, bool fast) {
    const bool vulkan = strcmp(name, "Vulkan") == 0;  // its attention is as exact as products; of others, keys and values are rounded
    b->vulkan = b->vulkan || vulkan;
    b->attention = b->attention && (vulkan || fast);
    if (b->devices < MOST_DEVICES) b->device[b->devices++] = device;
}

void graphc_builder_beside(struct graphc_builder * b, const struct ggml_tensor * weight, struct ggml_tensor * down, struct ggml_tensor * up) {
    struct factors * made = (struct factors *) keep(b, sizeof *made);
    if (made == NULL) return;
    made->weight = weight, made->down = down, made->up = up, made->next = b->factors, b->factors = made;
}

bool graphc_builder_taken(struct graphc_builder * b, const char ** key, const char ** way) {
    *key = b->key, *way = b->way;
    b->way = NULL;
    return *way != NULL;
}

static bool same(const char * a, const char * b) { return strcmp(a, b) == 0; }

// Choices between ways

enum { KINDS = 2, MOST_WAYS = 4 };

static const char * const kinds[KINDS] = {"conv_2d", "attention"};
static const char * const ways[KINDS][MOST_WAYS] = {{"winograd", "tiles", "direct", "columns"}, {"flash", "scores", NULL, NULL}};

const char * graphc_way(const char * kind, int index) {
    for (int i = 0; i < KINDS; ++i) {
        if (same(kind, kinds[i])) return index < MOST_WAYS ? ways[i][index] : NULL;
    }
    return NULL;
}

/// The text from `begin` to `end` without blanks around it, ended by a 0 in its place.
static char * trimmed(char * begin, char * end) {
    while (begin < end && strchr(" \t\r", *begin) != NULL) ++begin;
    while (begin < end && strchr(" \t\r", end[-1]) != NULL) --end;
    *end = 0;
    return begin;
}

/// True if a kind of call, with which a key begins, has this way.
static bool is_choice(const char * key, const char * way) {
    for (int i = 0; i < KINDS; ++i) {
        const size_t length = strlen(kinds[i]);
        if (strncmp(key, kinds[i], length) != 0 || key[length] != ' ') continue;
        for (int k = 0; k < MOST_WAYS && ways[i][k] != NULL; ++k) {
            if (same(way, ways[i][k])) return true;
        }
    }
    return false;
}

/// Takes the choice of a line; false if it is none.
static bool take_line(struct graphc_builder * b, char * line, char * end) {
    char * text = trimmed(line, end);
    if (*text == 0 || *text == '#') return true;
    char * equals = strchr(text, '='), * remark = equals == NULL ? NULL : strchr(equals, '#');
    if (equals == NULL) return false;
    const char * way = trimmed(equals + 1, remark != NULL ? remark : equals + strlen(equals));
    const char * key = trimmed(text, equals);
    if (!is_choice(key, way)) return false;
    struct choice * made = b == NULL ? NULL : (struct choice *) keep(b, sizeof *made);
    if (made != NULL) made->key = key, made->way = way, made->next = b->choices, b->choices = made;
    return true;
}

int graphc_builder_choose(struct graphc_builder * b, const char * text, size_t size) {
    char * own = (char *) (b != NULL ? keep(b, size + 1) : calloc(size + 1, 1));
    if (own == NULL) return 0;
    memcpy(own, text, size);
    int number = 0, wrong = 0;
    for (char * line = own, * next; line < own + size; line = next + 1) {
        next = (char *) memchr(line, '\n', (size_t) (own + size - line));
        if (next == NULL) next = own + size;
        ++number;
        const bool whole = memchr(line, 0, (size_t) (next - line)) == NULL;
        if ((!whole || !take_line(b, line, next)) && wrong == 0) wrong = number;
    }
    if (b == NULL) free(own);
    return wrong;
}

/// The way that was chosen for the call whose key the builder has, or else for all calls of its kind; "" if none was.
static const char * chosen(const struct graphc_builder * b) {
    const char * of_all = "";
    for (const struct choice * each = b->choices; each != NULL; each = each->next) {
        if (same(each->key, b->key)) return each->way;
        const char * star = strstr(each->key, " *");
        if (star != NULL && strncmp(each->key, b->key, (size_t) (star + 1 - each->key)) == 0 && *of_all == 0) of_all = each->way;
    }
    return of_all;
}

/// A tensor's sizes as a part of a key.
static const char * sizes_of(const struct ggml_tensor * t, char * text) {
    snprintf(text, SIZES_SIZE, "%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    return text;
}

static bool is_supported(const struct graphc_builder * b, const struct ggml_tensor * tensor) {
    for (int i = 0; i < b->devices; ++i) {
        if (!b->ggml->backend_supports_op(b->device[i], tensor)) return false;
    }
    return true;
}

/// A tensor of float32 that a function of ours computes.
static struct ggml_tensor * computed(struct graphc_builder * b, ggml_custom_op_t function, void * settings, const int64_t * ne,
                                     struct ggml_tensor ** sources, int count) {
    return b->ggml->custom_4d(b->context, GGML_TYPE_F32, ne[0], ne[1], ne[2], ne[3], sources, count, function, GGML_N_TASKS_MAX, settings);
}

/// A tensor times another, if there is one; and plus another, if there is one.
static struct ggml_tensor * times(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    return other == NULL ? x : b->ggml->mul(b->context, x, other);
}
static struct ggml_tensor * plus(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    return other == NULL ? x : b->ggml->add(b->context, x, other);
}

// Copies

struct ggml_tensor * graphc_build_copy(struct graphc_builder * b, struct ggml_tensor * x) {
    if (b->own == NULL || !b->own->takes_permuted_copy(x)) return b->ggml->cont(b->context, x);
    return computed(b, b->own->permuted_copy, NULL, x->ne, &x, 1);
}

/// At most MOST_SOURCES tensors as one, or two.
static struct ggml_tensor * joined(struct graphc_builder * b, int axis, struct ggml_tensor ** parts, int count) {
    bool own = b->own != NULL;
    for (int i = 0; i < count; ++i) own = own && b->own->takes_concat(parts[i]);
    if (!own) {
        struct ggml_tensor * found = parts[0];
        for (int i = 1; i < count; ++i) found = b->ggml->concat(b->context, found, parts[i], axis);
        return found;
    }
    struct graphc_concat_settings * settings = (struct graphc_concat_settings *) keep(b, sizeof *settings);
    if (settings == NULL) return NULL;
    settings->axis = axis;
    int64_t ne[4];
    memcpy(ne, parts[0]->ne, sizeof ne);
    for (int i = 1; i < count; ++i) ne[axis] += parts[i]->ne[axis];
    return computed(b, b->own->concat, settings, ne, parts, count);
}

struct ggml_tensor * graphc_build_concat(struct graphc_builder * b, int axis, struct ggml_tensor ** parts, int count) {
    struct ggml_tensor * found = parts[0];
    for (int next = 1, more; next < count; next += more) {
        struct ggml_tensor * some[MOST_SOURCES] = {found};
        for (more = 0; more < MOST_SOURCES - 1 && next + more < count; ++more) some[1 + more] = parts[next + more];
        found = joined(b, axis, some, 1 + more);
    }
    return found;
}

struct ggml_tensor * graphc_build_pad(struct graphc_builder * b, struct ggml_tensor * x, int before0, int behind0, int before1, int behind1,
                                      int before2, int behind2, int before3, int behind3) {
    if (b->own == NULL || !b->own->takes_pad(x)) {
        return b->ggml->pad_ext(b->context, x, before0, behind0, before1, behind1, before2, behind2, before3, behind3);
    }
    struct graphc_pad_settings * settings = (struct graphc_pad_settings *) keep(b, sizeof *settings);
    if (settings == NULL) return NULL;
    const int before[] = {before0, before1, before2, before3}, behind[] = {behind0, behind1, behind2, behind3};
    int64_t ne[4];
    for (int i = 0; i < 4; ++i) settings->before[i] = before[i], ne[i] = x->ne[i] + before[i] + behind[i];
    return computed(b, b->own->pad, settings, ne, &x, 1);
}

// Activations

struct ggml_tensor * graphc_build_relu(struct graphc_builder * b, struct ggml_tensor * x) {
    if (b->own == NULL || !b->own->takes_activation(x)) return b->ggml->relu(b->context, x);
    return computed(b, b->own->relu, NULL, x->ne, &x, 1);
}

/// An activation of ours, and what it is multiplied with.
static struct ggml_tensor * activated(struct graphc_builder * b, ggml_custom_op_t function, void * settings, struct ggml_tensor * x,
                                      struct ggml_tensor * other) {
    struct ggml_tensor * sources[] = {x, other};
    const bool both = other != NULL && b->ggml->are_same_shape(x, other) && b->own->takes_activation(other);
    struct ggml_tensor * found = computed(b, function, settings, x->ne, sources, both ? 2 : 1);
    return times(b, found, both ? NULL : other);
}

/// An activation and what it is multiplied with in one step of a device; NULL where it has none.
static struct ggml_tensor * split(struct graphc_builder * b, graphc_of_two * function, struct ggml_tensor * x, struct ggml_tensor * other) {
    const struct graphc_ggml * ggml = b->ggml;
    if (b->devices == 0 || other == NULL || !ggml->are_same_shape(x, other) || !ggml->is_contiguous(x) || !ggml->is_contiguous(other)) return NULL;
    struct ggml_tensor * found = function(b->context, x, other);
    return is_supported(b, found) ? found : NULL;
}

struct ggml_tensor * graphc_build_gelu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (b->own != NULL && b->own->takes_activation(x)) return activated(b, b->own->gelu, NULL, x, other);
    struct ggml_tensor * found = split(b, b->ggml->geglu_erf_split, x, other);
    if (found != NULL) return found;
    return times(b, b->ggml->gelu_erf(b->context, x), other);
}

/// x sigmoid(linear x + cubic x^3) by our code, times another tensor.
static struct ggml_tensor * gated(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    struct graphc_gate_settings * settings = (struct graphc_gate_settings *) keep(b, sizeof *settings);
    if (settings == NULL) return NULL;
    settings->linear = linear, settings->cubic = cubic;
    return activated(b, b->own->gate, settings, x, other);
}

struct ggml_tensor * graphc_build_silu(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other) {
    if (b->own != NULL && b->own->takes_activation(x)) return gated(b, x, other, 1, 0);
    struct ggml_tensor * found = split(b, b->ggml->swiglu_split, x, other);
    if (found != NULL) return found;
    return times(b, b->ggml->silu(b->context, x), other);
}

struct ggml_tensor * graphc_build_gate(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * other, float linear, float cubic) {
    if (b->own != NULL && b->own->takes_activation(x)) return gated(b, x, other, linear, cubic);
    const struct graphc_ggml * ggml = b->ggml;
    struct ggml_tensor * bent = NULL;
    if (cubic == 0) {
        bent = ggml->scale(b->context, x, linear);
    } else {
        bent = ggml->mul(b->context, ggml->scale_bias(b->context, ggml->sqr(b->context, x), cubic, linear), x);
    }
    return times(b, ggml->mul(b->context, ggml->sigmoid(b->context, bent), x), other);
}

// Normalizations

/// A vector with the axes of an image, a number for each channel; what has them stays.
static struct ggml_tensor * along_channels(struct graphc_builder * b, struct ggml_tensor * x) {
    return x == NULL || x->ne[1] * x->ne[2] * x->ne[3] != 1 ? x : b->ggml->reshape_4d(b->context, x, 1, 1, x->ne[0], 1);
}

static struct ggml_tensor * norm_of_rows(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * scale, struct ggml_tensor * shift,
                                         float epsilon, bool centered) {
    struct ggml_tensor * found = NULL;
    if (b->own != NULL && b->own->takes_norm(x)) {
        struct graphc_norm_settings * settings = (struct graphc_norm_settings *) keep(b, sizeof *settings);
        if (settings == NULL) return NULL;
        settings->epsilon = epsilon, settings->centered = centered;
        struct ggml_tensor * sources[3] = {x};
        int count = 1;
        if (scale != NULL && b->own->takes_factor(scale, x)) {
            sources[count++] = scale, scale = NULL;
            if (shift != NULL && b->own->takes_factor(shift, x)) sources[count++] = shift, shift = NULL;
        }
        found = computed(b, b->own->norm, settings, x->ne, sources, count);
    } else {
        found = (centered ? b->ggml->norm : b->ggml->rms_norm)(b->context, x, epsilon);
    }
    return plus(b, times(b, found, scale), shift);
}

struct ggml_tensor * graphc_build_layer_norm(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * scale,
                                             struct ggml_tensor * shift, float epsilon) {
    return norm_of_rows(b, x, scale, shift, epsilon, true);
}

struct ggml_tensor * graphc_build_rms_norm(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * scale,
                                           struct ggml_tensor * shift, float epsilon) {
    return norm_of_rows(b, x, scale, shift, epsilon, false);
}

struct ggml_tensor * graphc_build_group_norm(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * scale,
                                             struct ggml_tensor * shift, int groups, float epsilon, bool silu) {
    scale = along_channels(b, scale), shift = along_channels(b, shift);
    if (b->own != NULL && scale != NULL && shift != NULL && b->own->takes_group_norm(x, scale, shift, groups)) {
        struct graphc_group_norm_settings * settings = (struct graphc_group_norm_settings *) keep(b, sizeof *settings);
        if (settings == NULL) return NULL;
        settings->groups = groups, settings->epsilon = epsilon, settings->silu = silu;
        struct ggml_tensor * sources[] = {x, scale, shift};
        return computed(b, b->own->group_norm, settings, x->ne, sources, 3);
    }
    struct ggml_tensor * found = plus(b, times(b, b->ggml->group_norm(b->context, x, groups, epsilon), scale), shift);
    return silu ? graphc_build_silu(b, found, NULL) : found;
}

// Products

/// The tensor, or a copy of it if it has gaps, or its only row an odd stride, or it is a view that begins at an odd place.
static struct ggml_tensor * lying_together(struct graphc_builder * b, struct ggml_tensor * x) {
    const bool odd = x->nb[1] != b->ggml->row_size(x->type, x->ne[0]) || x->view_offs % ALIGNMENT != 0;
    return odd || !b->ggml->is_contiguous(x) ? graphc_build_copy(b, x) : x;
}

/// What is left to be added to a product or a convolution, and its ReLU.
static struct ggml_tensor * with_rest(struct graphc_builder * b, struct ggml_tensor * found, struct ggml_tensor ** sums, int count, bool relu) {
    for (int i = 0; i < count; ++i) found = b->ggml->add(b->context, found, sums[i]);
    return relu ? graphc_build_relu(b, found) : found;
}

/// These tensors behind another one; NULL without memory.
static struct ggml_tensor ** with_first(struct graphc_builder * b, struct ggml_tensor * first, struct ggml_tensor ** rest, int count) {
    struct ggml_tensor ** made = (struct ggml_tensor **) keep(b, sizeof *made * (size_t) (count + 1));
    if (made == NULL) return NULL;
    made[0] = first;
    for (int i = 0; i < count; ++i) made[i + 1] = rest[i];
    return made;
}

/// How many of these our code adds to a result of such sizes on the way, besides what it reads anyway.
static int taken_sums(const struct graphc_builder * b, const int64_t * ne, struct ggml_tensor ** sums, int count, bool image) {
    struct ggml_tensor result;
    memset(&result, 0, sizeof result);
    memcpy(result.ne, ne, sizeof result.ne);
    int taken = 0;
    while (taken < count && taken < MOST_SOURCES - 2 && b->own->takes_sum(sums[taken], &result, image)) ++taken;
    return taken;
}

static struct ggml_tensor * product(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x, bool relu,
                                    struct ggml_tensor ** sums, int count) {
    if (b->own != NULL) {
        struct graphc_mul_mat_settings * settings = (struct graphc_mul_mat_settings *) keep(b, sizeof *settings);
        if (settings == NULL) return NULL;
        settings->types = b->ggml->get_type_traits(weight->type);
        if (b->own->takes_mul_mat(weight, x, settings)) {
            const int64_t ne[] = {weight->ne[1], x->ne[1], x->ne[2], x->ne[3]};
            const int taken = taken_sums(b, ne, sums, count, false);
            struct ggml_tensor * sources[MOST_SOURCES] = {weight, x};
            for (int i = 0; i < taken; ++i) sources[2 + i] = sums[i];
            settings->relu = relu && taken == count;
            struct ggml_tensor * found = computed(b, b->own->mul_mat, settings, ne, sources, 2 + taken);
            return taken == count ? found : with_rest(b, found, sums + taken, count - taken, relu);
        }
    }
    if (b->vulkan) weight = lying_together(b, weight), x = lying_together(b, x);
    return with_rest(b, b->ggml->mul_mat(b->context, weight, x), sums, count, relu);
}

struct ggml_tensor * graphc_build_linear(struct graphc_builder * b, struct ggml_tensor * weight, struct ggml_tensor * x, bool relu,
                                         struct ggml_tensor ** sums, int count) {
    for (const struct factors * each = b->factors; each != NULL; each = each->next) {
        if (each->weight != weight) continue;
        struct ggml_tensor * change = product(b, each->up, product(b, each->down, x, false, NULL, 0), false, NULL, 0);
        struct ggml_tensor ** more = with_first(b, change, sums, count);
        return more == NULL ? NULL : product(b, weight, x, relu, more, count + 1);
    }
    return product(b, weight, x, relu, sums, count);
}

/// One of our convolutions; NULL where they do not take it, or another way was chosen.
static struct ggml_tensor * own_convolution(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image, const int64_t * ne,
                                            struct graphc_conv_2d_settings * settings, const char * way, struct ggml_tensor ** sums, int count) {
    const bool preferred = same(way, "winograd") || (!same(way, "tiles") && b->own->prefers_winograd(kernel, image, settings));
    const bool winograd = preferred && b->own->takes_winograd(kernel, image, settings);
    if (!winograd && !b->own->takes_conv_2d(kernel, image, settings)) return NULL;
    const bool relu = settings->relu != 0;
    const int taken = taken_sums(b, ne, sums, count, true);
    struct ggml_tensor * sources[MOST_SOURCES + 1] = {kernel, image};
    int first = 2;
    if (winograd) {
        const int64_t size[] = {b->own->winograd_size(kernel, image, settings, b->threads), 1, 1, 1};
        sources[1] = computed(b, b->own->winograd_operands, settings, size, sources, 2);
        sources[0] = image, sources[2] = kernel, first = 3;
    }
    for (int i = 0; i < taken; ++i) sources[first + i] = sums[i];
    settings->relu = relu && taken == count;
    struct ggml_tensor * found = computed(b, winograd ? b->own->winograd : b->own->conv_2d, settings, ne, sources, first + taken);
    if (taken < count) found = with_rest(b, found, sums + taken, count - taken, relu);
    b->way = winograd ? "winograd" : "tiles";
    return found;
}

static int64_t conv_size(int64_t size, int64_t kernel, int stride, int pad, int dilation) {
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

struct ggml_tensor * graphc_build_conv_2d(struct graphc_builder * b, struct ggml_tensor * kernel, struct ggml_tensor * image,
                                          struct ggml_tensor * bias, int s0, int s1, int p0, int p1, int d0, int d1, bool direct, bool relu,
                                          struct ggml_tensor ** sums, int count) {
    if (bias != NULL && (sums = with_first(b, along_channels(b, bias), sums, count++)) == NULL) return NULL;
    const int64_t * k = kernel->ne;
    char of_kernel[SIZES_SIZE], of_image[SIZES_SIZE];
    snprintf(b->key, sizeof b->key, "conv_2d %s %s %s stride %dx%d pad %dx%d dilation %dx%d", b->ggml->type_name(kernel->type),
             sizes_of(kernel, of_kernel), sizes_of(image, of_image), s0, s1, p0, p1, d0, d1);
    const char * chosen_way = chosen(b), * way = NULL;
    const int64_t ne[] = {conv_size(image->ne[0], k[0], s0, p0, d0), conv_size(image->ne[1], k[1], s1, p1, d1), k[3], image->ne[3]};
    const size_t columns = sizeof(float) * (size_t) (ne[0] * ne[1] * ne[3] * k[0] * k[1] * k[2]);
    const bool fits = (int64_t) sizeof(float) * (k[0] * k[1] * k[2] + k[3]) <= DIRECT_WORKSPACE;
    bool wanted = direct;
    if (b->own != NULL && same(chosen_way, "direct") && kernel->type == GGML_TYPE_F32 && fits) {
        wanted = true, way = "direct";
    } else if (b->own != NULL) {
        struct graphc_conv_2d_settings * settings = (struct graphc_conv_2d_settings *) keep(b, sizeof *settings);
        if (settings == NULL) return NULL;
        settings->s0 = s0, settings->s1 = s1, settings->p0 = p0, settings->p1 = p1, settings->d0 = d0, settings->d1 = d1;
        settings->relu = relu, settings->types = b->ggml->get_type_traits(kernel->type);
        struct ggml_tensor * found = own_convolution(b, kernel, image, ne, settings, chosen_way, sums, count);
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
    found = with_rest(b, found, sums, count, relu);
    b->way = way;
    return found;
}

// Rotary embeddings

/// x with the elements of each pair exchanged: neighbours, or those at one place of the two halves of a row.
static struct ggml_tensor * exchanged(struct graphc_builder * b, struct ggml_tensor * x, bool interleaved) {
    const int64_t half = x->ne[0] / 2, rows = x->ne[1] * x->ne[2] * x->ne[3];
    struct ggml_tensor * pairs = x;
    if (interleaved) {
        struct ggml_tensor * together = b->ggml->is_contiguous(x) ? x : graphc_build_copy(b, x);
        pairs = b->ggml->reshape_4d(b->context, together, 2, half * rows, 1, 1);
    }
    const int64_t * ne = pairs->ne;
    const size_t * nb = pairs->nb;
    struct ggml_tensor * parts[2];
    for (int i = 0; i < 2; ++i) {
        const size_t offset = i == 0 ? (size_t) (ne[0] / 2) * nb[0] : 0;
        parts[i] = b->ggml->view_4d(b->context, pairs, ne[0] / 2, ne[1], ne[2], ne[3], nb[1], nb[2], nb[3], offset);
    }
    struct ggml_tensor * swapped = graphc_build_concat(b, 0, parts, 2);
    return interleaved ? b->ggml->reshape_4d(b->context, swapped, x->ne[0], x->ne[1], x->ne[2], x->ne[3]) : swapped;
}

struct ggml_tensor * graphc_build_rotary(struct graphc_builder * b, struct ggml_tensor * x, struct ggml_tensor * cos, struct ggml_tensor * sin,
                                         struct ggml_tensor * rest, bool interleaved) {
    struct ggml_tensor * found = NULL;
    if (b->own != NULL && b->own->takes_rotary(x, cos, sin)) {
        struct graphc_rotary_settings * settings = (struct graphc_rotary_settings *) keep(b, sizeof *settings);
        if (settings == NULL) return NULL;
        settings->interleaved = interleaved;
        const bool all = rest != NULL && b->own->takes_rest(rest, x);
        struct ggml_tensor * sources[] = {x, cos, sin, rest};
        const int64_t ne[] = {x->ne[0] + (all ? rest->ne[0] : 0), x->ne[1], x->ne[2], x->ne[3]};
        found = computed(b, b->own->rotary, settings, ne, sources, all ? 4 : 3);
        if (all || rest == NULL) return found;
    } else {
        const struct graphc_ggml * ggml = b->ggml;
        struct ggml_tensor * turned = ggml->mul(b->context, exchanged(b, x, interleaved), sin);
        found = ggml->add(b->context, ggml->mul(b->context, x, cos), turned);
        if (rest == NULL) return found;
    }
    struct ggml_tensor * parts[] = {found, rest};
    return graphc_build_concat(b, 0, parts, 2);
}

// Attention

/// Attention on the CPU without a matrix of scores; NULL where our code does not take it.
static struct ggml_tensor * own_attention(struct graphc_builder * b, struct ggml_tensor * q, struct ggml_tensor * k, struct ggml_tensor * v,
                                          struct ggml_tensor * mask, float scale) {
    if (b->own == NULL) return NULL;
    struct ggml_tensor * columns = b->ggml->permute(b->context, v, 1, 0, 2, 3);
    if (!b->own->takes_attention(k, q, columns, mask)) columns = graphc_build_copy(b, columns);
    if (!b->own->takes_attention(k, q, columns, mask)) return NULL;
    struct graphc_attention_settings * settings = (struct graphc_attention_settings *) keep(b, sizeof *settings);
    if (settings == NULL) return NULL;
    settings->factor = scale;
    const int64_t ne[] = {v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
    struct ggml_tensor * sources[] = {k, q, columns, mask};
    return computed(b, b->own->attention, settings, ne, sources, mask == NULL ? 3 : 4);
}

/// Attention of a device's own; NULL where it is not as exact as it has to be, or does not take it: ggml wants masks in float16.
static struct ggml_tensor * device_attention(struct graphc_builder * b, struct ggml_tensor * q, struct ggml_tensor * k,
                                             struct ggml_tensor * v, struct ggml_tensor * mask, float scale) {
    if (!b->attention || mask != NULL) return NULL;
    struct ggml_tensor * read[] = {q, k, v};
    for (int i = 0; i < 3; ++i) {
        if (read[i]->type != GGML_TYPE_F32) return NULL;
        if (read[i]->nb[0] != sizeof(float)) read[i] = graphc_build_copy(b, read[i]);
    }
    struct ggml_tensor * found = b->ggml->flash_attn_ext(b->context, read[0], read[1], read[2], NULL, scale, 0, 0);
    b->ggml->flash_attn_ext_set_prec(found, GGML_PREC_F32);
    return is_supported(b, found) ? found : NULL;
}

struct ggml_tensor * graphc_build_attention(struct graphc_builder * b, struct ggml_tensor * q, struct ggml_tensor * k, struct ggml_tensor * v,
                                            struct ggml_tensor * mask, float scale) {
    char of_k[SIZES_SIZE], of_q[SIZES_SIZE];
    snprintf(b->key, sizeof b->key, "attention %s %s %s values %" PRId64 " mask %d", b->ggml->type_name(k->type), sizes_of(k, of_k),
             sizes_of(q, of_q), v->ne[0], mask != NULL);
    const char * way = chosen(b);
    const size_t scores = sizeof(float) * (size_t) (k->ne[1] * q->ne[1] * q->ne[2] * q->ne[3]);
    const bool prefers = b->devices > 0 ? scores >= LARGE_SCORES : b->own != NULL && b->own->prefers_attention(q);
    const bool flash = same(way, "flash") || (prefers && !(same(way, "scores") && scores <= MOST_BYTES));
    struct ggml_tensor * found = NULL;
    if (flash) found = b->devices > 0 ? device_attention(b, q, k, v, mask, scale) : own_attention(b, q, k, v, mask, scale);
    if (found == NULL) {
        struct ggml_tensor * weights = b->ggml->soft_max_ext(b->context, product(b, k, q, false, NULL, 0), mask, scale, 0);
        struct ggml_tensor * columns = graphc_build_copy(b, b->ggml->permute(b->context, v, 1, 0, 2, 3));
        found = product(b, columns, weights, false, NULL, 0);
        found = graphc_build_copy(b, b->ggml->permute(b->context, found, 0, 2, 1, 3));
        b->way = scores <= MOST_BYTES && (b->own != NULL || b->devices > 0) ? "scores" : NULL;
    } else {
        b->way = "flash";
    }
    return found;
}
