// Stands before `graphc_runner_new` in the tests' programs (by the linker's --wrap), and writes each graph that is to be computed as text
// into the file that GRAPHC_TEST_NODES names, as `nodes.py` does.

#include "graphc/runner.h"
#include "graphc/variants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct graphc_runner * __real_graphc_runner_new(const struct graphc_ggml * ggml, ggml_backend_t cpu, struct ggml_cgraph * graph);
struct graphc_runner * __wrap_graphc_runner_new(const struct graphc_ggml * ggml, ggml_backend_t cpu, struct ggml_cgraph * graph);

extern const struct graphc_functions graphc_single;

/// What `ggml_custom_4d` keeps in a tensor.
struct custom {
    ggml_custom_op_t function;
    int tasks;
    void * userdata;
};

static const char * custom_name(ggml_custom_op_t function) {
#define NAME(name) \
    if ((void (*)(void)) graphc_single.name == (void (*)(void)) function) return #name;
    GRAPHC_FUNCTIONS(NAME)
    return "kernel";
}

static void write_layout(FILE * file, const struct ggml_tensor * t) {
    fprintf(file, "%s", ggml_type_name(t->type));
    for (int i = 0; i < 4; ++i) fprintf(file, " %" PRId64, t->ne[i]);
    for (int i = 0; i < 4; ++i) fprintf(file, " %zu", t->nb[i]);
}

static void write_node(FILE * file, struct ggml_cgraph * graph, const struct ggml_tensor * node) {
    fprintf(file, "%s ", ggml_op_desc(node));
    write_layout(file, node);
    if (node->op == GGML_OP_CUSTOM) {
        struct custom custom;
        memcpy(&custom, node->op_params, sizeof custom);
        fprintf(file, " %s tasks %d", custom_name(custom.function), custom.tasks);
    } else {
        for (size_t i = 0; i < GGML_MAX_OP_PARAMS / sizeof(int32_t); ++i) fprintf(file, " %x", (unsigned) node->op_params[i]);
    }
    for (int i = 0; i < GGML_MAX_SRC && node->src[i] != NULL; ++i) {
        int place = 0;
        while (place < ggml_graph_n_nodes(graph) && ggml_graph_node(graph, place) != node->src[i]) ++place;
        fprintf(file, " (");
        if (place < ggml_graph_n_nodes(graph)) fprintf(file, "%d", place);
        else write_layout(file, node->src[i]);
        fprintf(file, ")");
    }
    fprintf(file, "\n");
}

struct graphc_runner * __wrap_graphc_runner_new(const struct graphc_ggml * ggml, ggml_backend_t cpu, struct ggml_cgraph * graph) {
    const char * path = getenv("GRAPHC_TEST_NODES");
    FILE * file = path == NULL ? NULL : fopen(path, "a");
    if (file != NULL) {
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) write_node(file, graph, ggml_graph_node(graph, i));
        fprintf(file, "\n");
        fclose(file);
    }
    return __real_graphc_runner_new(ggml, cpu, graph);
}
