// What composite calls are built with, and the choices between their ways. Valid as C and as C++.

#include "composite.h"

struct graphc_builder * graphc_builder_new(struct ggml_context * context, const struct graphc_ggml * ggml,
                                           const struct graphc_functions * own, int threads, bool fast) {
    struct graphc_builder * b = (struct graphc_builder *) calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->context = context, b->ggml = ggml, b->own = own, b->threads = threads, b->halves = true;
    b->pairs = fast && own != NULL && own->multiplies_pairs();
    return b;
}

void graphc_builder_free(struct graphc_builder * b) {
    if (b == NULL) return;
    for (struct held * each = b->held; each != NULL; each = each->next) b->own->leave_panels(each->panels);
    for (struct kept * each = b->kept; each != NULL;) {
        struct kept * next = each->next;
        free(each);
        each = next;
    }
    free(b);
}

void graphc_builder_device(struct graphc_builder * b, ggml_backend_t device, const char * name, bool fast) {
    const bool vulkan = strcmp(name, "Vulkan") == 0;  // its functions are as exact as products; others round what they read
    b->vulkan = b->vulkan || vulkan;
    b->halves = b->halves && (vulkan || fast);
    b->device[b->devices++] = device;
}

void graphc_builder_beside(struct graphc_builder * b, const struct ggml_tensor * weight, struct ggml_tensor * down, struct ggml_tensor * up) {
    struct factors * made = (struct factors *) keep(b, sizeof *made);
    if (made == NULL) return;
    made->weight = weight, made->down = down, made->up = up, made->next = b->factors, b->factors = made;
}

const struct graphc_activation * graphc_builder_activation(struct graphc_builder * b, const char * name, float first, float second) {
    static const char * const names[] = {"", "relu", "gelu", "silu", "gate", "sigmoid", "hard_swish", "clip", "leaky_relu",
                                         "tanh", "elu", "exp", "sin", "cos", "mish"};
    for (size_t i = 1; i < sizeof names / sizeof *names; ++i) {
        if (!same(name, names[i])) continue;
        struct graphc_activation * made = (struct graphc_activation *) keep(b, sizeof *made);
        if (made == NULL) return NULL;
        made->function = (enum graphc_activation_function) i, made->a = first, made->b = second;
        if (made->function == GRAPHC_SWISH) made->a = 1;
        if (made->function == GRAPHC_GATE && second == 0) made->function = GRAPHC_SWISH;
        return made;
    }
    return NULL;
}

const int * graphc_builder_decided(const struct graphc_builder * b) { return &b->decided; }

bool graphc_builder_taken(const struct graphc_builder * b, int index, const char ** key, const char ** way) {
    const struct choice * found = b->taken;
    for (; found != NULL && index > 0; --index) found = found->next;
    if (found != NULL) *key = found->key, *way = found->way;
    return found != NULL;
}

// Choices between ways

enum { MOST_WAYS = 8 };

/// The kinds of composites that have several ways, each with its ways.
static const char * const ways[][1 + MOST_WAYS] = {GRAPHC_WAYS};

/// A way of a kind of call, with which a key begins; NULL if that has none of this name.
static const char * known_way(const char * key, const char * way) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
        const size_t length = strlen(ways[i][0]);
        if (strncmp(key, ways[i][0], length) != 0 || key[length] != ' ') continue;
        for (int k = 1; k <= MOST_WAYS && ways[i][k] != NULL; ++k) {
            if (same(way, ways[i][k])) return ways[i][k];
        }
    }
    return NULL;
}

/// Takes the choice of a line; false if it is none.
static bool take_line(struct graphc_builder * b, const char * line) {
    struct choice found = {"", NULL, NULL};
    char way[KEY_SIZE], behind = '#', first = '#';
    if (sscanf(line, " %c", &first) < 1 || first == '#') return true;
    if (sscanf(line, " %511[^=]= %511[^# \t\r] %c", found.key, way, &behind) < 2 || behind != '#') return false;
    for (size_t length = strlen(found.key); length > 0 && strchr(" \t", found.key[length - 1]) != NULL;) found.key[--length] = 0;
    found.way = known_way(found.key, way);
    struct choice * made = b == NULL || found.way == NULL ? NULL : (struct choice *) keep(b, sizeof *made);
    if (made != NULL) *made = found, made->next = b->choices, b->choices = made;
    return found.way != NULL;
}

int graphc_builder_choose(struct graphc_builder * b, const char * text, size_t size) {
    int number = 0, wrong = 0;
    for (const char * line = text, * next; line < text + size; line = next + 1) {
        char copy[2 * KEY_SIZE] = "";
        next = (const char *) memchr(line, '\n', (size_t) (text + size - line));
        if (next == NULL) next = text + size;
        const size_t whole = (size_t) (next - line), length = whole < sizeof copy ? whole : sizeof copy - 1;
        memcpy(copy, line, length);
        ++number;
        if ((strlen(copy) != length || !take_line(b, copy)) && wrong == 0) wrong = number;
    }
    return wrong;
}

#include "composites.c"
