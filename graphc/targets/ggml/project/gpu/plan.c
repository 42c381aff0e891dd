// From a graph of ggml's to what is launched.

#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct ggml_custom_parameters custom_of(const struct ggml_tensor * node) {
    struct ggml_custom_parameters parameters;
    memcpy(&parameters, node->op_params, sizeof parameters);
    return parameters;
}

static const struct graphc_launches * launches_of(const struct ggml_tensor * node) {
    if (node->op != GGML_OP_CUSTOM) return NULL;
    const struct ggml_custom_parameters parameters = custom_of(node);
    return parameters.function == graphc_gpu_node ? (const struct graphc_launches *) parameters.userdata : NULL;
}

bool gpu_computes(const struct gpu_unit * unit, const struct ggml_tensor * node) {
    const struct graphc_launches * launches = launches_of(node);
    if (launches == NULL) return false;
    for (int i = 0; i < launches->count; i++) {
        if (launches->each[i].kernel == NULL || launches->each[i].kernel->unit != unit) return false;
    }
    return true;
}

void graphc_gpu_node(struct ggml_tensor * node, int thread, int threads, void * userdata) {
    (void) threads;
    if (thread != 0) return;
    const struct graphc_launches * launches = (const struct graphc_launches *) userdata;
    const struct graphc_kernel * kernel = launches != NULL && launches->count > 0 ? launches->each[0].kernel : NULL;
    gpu_fail(kernel == NULL ? NULL : kernel->unit, "ggml has the CPU compute %s, which is a kernel of the device (%s)",
             node->name[0] == 0 ? "a node" : node->name, kernel == NULL ? "none" : kernel->name);
}

struct gpu_workspace gpu_workspace_of(const struct graphc_gpu_ggml * ggml, struct ggml_cgraph * graph) {
    struct gpu_workspace most = {0};
    for (int i = 0; i < ggml->graph_n_nodes(graph); i++) {
        const struct graphc_launches * launches = launches_of(ggml->graph_node(graph, i));
        for (int j = 0; launches != NULL && j < launches->count; j++) {
            const struct graphc_launch * launch = &launches->each[j];
            if (launch->scratch > most.scratch_size) most.scratch_size = launch->scratch;
            if (launch->counters > most.counters_size) most.counters_size = launch->counters;
        }
    }
    return most;
}

/// Room for so many bytes, with what is in it already.
static bool reserve(struct gpu_unit * unit, void ** memory, size_t * capacity, size_t needed) {
    if (needed <= *capacity) return true;
    const size_t wanted = 2 * needed;
    void * moved = realloc(*memory, wanted);
    if (moved == NULL) {
        gpu_fail(unit, "the host has no memory left");
        return false;
    }
    *memory = moved, *capacity = wanted;
    return true;
}

/// Count, so that nothing moves while the plan is filled. A key has no more bytes than steps and arguments.
static bool make_room(struct gpu_unit * unit, struct gpu_plan * plan, struct ggml_cgraph * graph) {
    const struct graphc_gpu_ggml * ggml = unit->host->functions;
    size_t steps = 0, arguments = 0;
    for (int i = 0; i < ggml->graph_n_nodes(graph); i++) {
        const struct graphc_launches * launches = launches_of(ggml->graph_node(graph, i));
        for (int j = 0; launches != NULL && j < launches->count; j++) steps++, arguments += (size_t) launches->each[j].count;
    }
    const size_t key = steps * sizeof(struct gpu_step) + arguments * (sizeof(struct gpu_argument) + sizeof(int64_t));
    return reserve(unit, (void **) &plan->steps, &plan->step_room, steps * sizeof(struct gpu_step)) &&
           reserve(unit, (void **) &plan->arguments, &plan->argument_room, arguments * sizeof(struct gpu_argument)) &&
           reserve(unit, (void **) &plan->key, &plan->key_room, key);
}

static void put(struct gpu_plan * plan, const void * bytes, size_t size) {
    memcpy(plan->key + plan->key_size, bytes, size);
    plan->key_size += size;
}

/// The memory that an argument points to, and where in it; NULL if that is no memory of the device.
static const struct gpu_buffer * buffer_of(const struct gpu_unit * unit, const struct ggml_tensor * node,
                                           const struct graphc_argument * argument, const struct gpu_workspace * workspace,
                                           size_t * start) {
    if (argument->kind == GRAPHC_SCRATCH) return *start = 0, workspace->scratch;
    if (argument->kind == GRAPHC_COUNTERS) return *start = 0, workspace->counters;
    if (argument->number < -1 || argument->number >= GGML_MAX_SRC) return NULL;
    const struct ggml_tensor * tensor = argument->number < 0 ? node : node->src[argument->number];
    const struct gpu_buffer * found = tensor == NULL ? NULL : gpu_buffer_of(tensor, start);
    return found != NULL && found->unit == unit ? found : NULL;
}

static bool resolve(struct gpu_unit * unit, struct gpu_plan * plan, const struct ggml_tensor * node,
                    const struct graphc_argument * argument, const struct gpu_workspace * workspace, struct gpu_argument * to) {
    memset(to, 0, sizeof *to);
    if (argument->kind == GRAPHC_VALUE) {
        if (argument->number != 4 && argument->number != 8 && argument->number != 12) {
            gpu_fail(unit, "a value of %" PRId32 " bytes for a kernel of %s", argument->number, node->name);
            return false;
        }
        to->size = (uint8_t) argument->number;
        memcpy(to->bytes, argument->bytes, to->size);
        put(plan, to->bytes, GPU_VALUE);
        return true;
    }
    size_t start = 0;
    const struct gpu_buffer * buffer = buffer_of(unit, node, argument, workspace, &start);
    if (buffer == NULL) {
        gpu_fail(unit, "source %" PRId32 " of %s does not lie on the device", argument->number, node->name);
        return false;
    }
    to->is_place = true;
    to->place = (struct gpu_place) {buffer->memory, start + (size_t) argument->offset};
    put(plan, &buffer->number, sizeof buffer->number);
    put(plan, &to->place.offset, sizeof to->place.offset);
    return true;
}

static bool add(struct gpu_unit * unit, struct gpu_plan * plan, const struct ggml_tensor * node, const struct graphc_launch * launch,
                const struct gpu_workspace * workspace, struct gpu_argument * arguments) {
    if (launch->count < 0 || launch->count > GPU_MOST_ARGUMENTS) {
        gpu_fail(unit, "kernel %s: %" PRId32 " arguments; there may be %d", launch->kernel->name, launch->count, GPU_MOST_ARGUMENTS);
        return false;
    }
    struct gpu_step * step = &plan->steps[plan->count++];
    *step = (struct gpu_step) {.node = node, .kernel = launch->kernel};
    step->work.kernel = launch->kernel->kernel;
    memcpy(step->work.grid, launch->grid, sizeof launch->grid);
    memcpy(step->work.threads, launch->threads, sizeof launch->threads);
    step->work.shared = launch->shared, step->work.count = launch->count, step->work.arguments = arguments;
    put(plan, &launch->kernel->number, sizeof launch->kernel->number);
    put(plan, launch->grid, sizeof launch->grid);
    put(plan, launch->threads, sizeof launch->threads);
    put(plan, &launch->shared, sizeof launch->shared);
    for (int i = 0; i < launch->count; i++) {
        if (!resolve(unit, plan, node, &launch->arguments[i], workspace, &arguments[i])) return false;
    }
    return true;
}

static bool is_empty(const struct graphc_launch * launch) { return launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0; }

bool gpu_plan_graph(struct gpu_unit * unit, struct gpu_plan * plan, struct ggml_cgraph * graph,
                    const struct gpu_workspace * workspace) {
    const struct graphc_gpu_ggml * ggml = unit->host->functions;
    plan->count = 0, plan->key_size = 0;
    if (!make_room(unit, plan, graph)) return false;
    struct gpu_argument * arguments = plan->arguments;
    for (int i = 0; i < ggml->graph_n_nodes(graph); i++) {
        const struct ggml_tensor * node = ggml->graph_node(graph, i);
        if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
        const struct graphc_launches * launches = launches_of(node);
        for (int j = 0; launches != NULL && j < launches->count; j++) {
            const struct graphc_launch * launch = &launches->each[j];
            if (is_empty(launch)) continue;
            if (!add(unit, plan, node, launch, workspace, arguments)) return false;
            arguments += launch->count;
        }
    }
    return true;
}

void gpu_plan_free(struct gpu_plan * plan) {
    free(plan->steps);
    free(plan->arguments);
    free(plan->key);
}
