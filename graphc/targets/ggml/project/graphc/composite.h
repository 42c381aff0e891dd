// What composites are built with: of `build.c`, for the files of `composites/`. Valid as C and as C++.

#pragma once

#include "build.h"
#include "composites.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ggml_tensor tensor;
typedef struct graphc_builder builder;

enum {
    KEY_SIZE = 512,
    SIZES_SIZE = 84,
    MOST_SOURCES = 8,  // tensors that a function of ours reads
};

/// Bytes of a matrix of scores, or of columns, above which it is not made by choice.
#define MOST_BYTES ((size_t) 256 << 20)

/// Memory that is kept as long as the builder.
struct kept {
    struct kept * next;
};

struct choice {
    char key[KEY_SIZE];
    const char * way;
    struct choice * next;
};

struct factors {
    const tensor * weight;
    tensor * down, * up;
    struct factors * next;
};

/// Panels that stay while the graph is there.
struct held {
    struct graphc_panels * panels;
    struct held * next;
};

/// An image that another one makes, which who reads it may make instead: each pixel is there twice along each line, and each line twice; or it is
/// normalized by terms (`norm.h`), and SiLU taken of that.
struct derived {
    const tensor * image;
    tensor * source, * terms;
    bool silu;
    struct derived * next;
};

struct graphc_builder {
    struct ggml_context * context;
    const struct graphc_ggml * ggml;
    const struct graphc_functions * own;  // none: ggml computes everything
    int threads, devices;
    ggml_backend_t device[GRAPHC_MOST_DEVICES];
    bool pairs;   // our code rounds what it multiplies to bfloat16
    bool vulkan;  // its products read their operands wrong, or rounded, unless those lie together; its direct convolutions are fast
    bool halves;  // the devices' functions may read float32 as float16: they are no less exact than products then, or may be
    struct kept * kept;
    struct choice * choices, * taken;  // what was measured; what was decided, in order
    int decided;                       // how many of these there are
    struct factors * factors;
    struct held * held;
    struct derived * doubled, * normalized;
};

/// So many bytes, all 0, that live as long as the builder; NULL without memory.
static inline void * keep(builder * b, size_t size) {
    const size_t head = 64;  // a line of the cache
    struct kept * made = (struct kept *) calloc(1, head + size);
    if (made == NULL) return NULL;
    made->next = b->kept, b->kept = made;
    return (char *) made + head;
}

/// Remembers how an image is derived, for those that read it; it stays what it is.
static inline tensor * derived_from(builder * b, struct derived ** list, tensor * image, tensor * source, tensor * terms, bool silu) {
    struct derived * made = image == NULL ? NULL : (struct derived *) keep(b, sizeof *made);
    if (made != NULL) made->image = image, made->source = source, made->terms = terms, made->silu = silu, made->next = *list, *list = made;
    return image;
}

/// How an image is derived, by a list; NULL if it is not.
static inline const struct derived * derivation(const struct derived * list, const tensor * image) {
    while (list != NULL && list->image != image) list = list->next;
    return list;
}

static inline bool same(const char * a, const char * b) { return strcmp(a, b) == 0; }

/// The way that was chosen for a key, or else for all calls of its kind; "" if none was.
static inline const char * chosen(const builder * b, const char * key) {
    const char * of_all = "";
    for (const struct choice * each = b->choices; each != NULL; each = each->next) {
        if (same(each->key, key)) return each->way;
        const char * star = strstr(each->key, " *");
        if (star != NULL && strncmp(each->key, key, (size_t) (star + 1 - each->key)) == 0 && *of_all == 0) of_all = each->way;
    }
    return of_all;
}

/// Tells the way that was taken for a key.
static inline void take_way(builder * b, const char * key, const char * way) {
    struct choice * made = (struct choice *) keep(b, sizeof *made), ** last = &b->taken;
    if (made == NULL) return;
    while (*last != NULL) last = &(*last)->next;
    *last = made, made->way = way, ++b->decided;
    snprintf(made->key, sizeof made->key, "%s", key);
}

/// A tensor's sizes as a part of a key.
static inline const char * sizes_of(const tensor * t, char * text) {
    snprintf(text, SIZES_SIZE, "%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    return text;
}

/// True if our code rounds the operands of the next product with this matrix or kernel: it may, and was not chosen to leave them as they are.
/// The key says which of those alike it is.
static inline bool rounds(builder * b, const tensor * with) {
    if (!b->pairs) return false;
    char sizes[SIZES_SIZE], key[KEY_SIZE];
    const int length = snprintf(key, sizeof key, "product %s %s number ", b->ggml->type_name(with->type), sizes_of(with, sizes));
    int number = 1;
    for (const struct choice * each = b->taken; each != NULL; each = each->next) number += strncmp(each->key, key, (size_t) length) == 0;
    snprintf(key + length, sizeof key - (size_t) length, "%d", number);
    const bool exact = same(chosen(b, key), "float32");
    take_way(b, key, exact ? "float32" : "bfloat16");
    return !exact;
}

static inline bool is_supported(const builder * b, const tensor * t) {
    for (int i = 0; i < b->devices; ++i) {
        if (!b->ggml->backend_supports_op(b->device[i], t)) return false;
    }
    return true;
}

/// A tensor of a type that a function of ours computes, with a copy of these settings (of so many bytes, or none); NULL without memory.
static inline tensor * computed_as(builder * b, enum ggml_type type, ggml_custom_op_t function, const void * settings, size_t size,
                                   const int64_t * ne, tensor ** sources, int count) {
    void * own = size > 0 ? keep(b, size) : NULL;
    if (size > 0 && own == NULL) return NULL;
    if (size > 0) memcpy(own, settings, size);
    return b->ggml->custom_4d(b->context, type, ne[0], ne[1], ne[2], ne[3], sources, count, function, GGML_N_TASKS_MAX, own);
}

/// The same, of float32.
static inline tensor * computed(builder * b, ggml_custom_op_t function, const void * settings, size_t size, const int64_t * ne, tensor ** sources,
                                int count) {
    return computed_as(b, GGML_TYPE_F32, function, settings, size, ne, sources, count);
}

/// A tensor times another, if there are both; and plus another, if there are both.
static inline tensor * times(builder * b, tensor * x, tensor * other) {
    return x == NULL || other == NULL ? x : graphc_build_mul(b, x, other);
}
static inline tensor * plus(builder * b, tensor * x, tensor * other) {
    return x == NULL || other == NULL ? x : graphc_build_add(b, x, other);
}

/// A vector with the axes of an image, a number for each channel; what has them stays.
static inline tensor * along_channels(builder * b, tensor * x) {
    return x == NULL || x->ne[1] * x->ne[2] * x->ne[3] != 1 ? x : b->ggml->reshape_4d(b->context, x, 1, 1, x->ne[0], 1);
}
