// Random graphs of operators like our own, computed again and again by `runner.c`, several at once, with delays in all places and runs that
// are stopped, and compared with what one thread makes of them. Behind `own/tiles.h` and `runner.c` in one file, where `runner_held_up.h` is before
// them; `test_runner.py` compiles it.
//
//   runner_fuzz SEED RUNNERS GRAPHS RUNS

#include "ggml-alloc.h"

#include <stdio.h>

#define ENTRY(name) ggml_##name,
static const struct graphc_ggml functions = {GRAPHC_GGML(ENTRY)};

enum { MOST_NODES = 120, MOST_INPUTS = 4, MOST_SIZE = 300, MOST_FUZZ_THREADS = 9 };

struct draws {
    uint64_t state;
};

static uint32_t draw(struct draws * d, uint32_t below) {
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (d->state >> 33) % below;
}

/// Does nothing for a while; now and then for so long that other threads do all the rest.
static void delay(uint32_t seed) {
    const uint32_t kind = seed * 2654435761u >> 24;
    const int turns = kind < 4 ? 20000 : kind < 40 ? 300 : 0;
    for (volatile int i = 0; i < turns; ++i) pause_thread();
    if (kind % 16 == 5) let_others_run();
}

struct node_settings {
    struct graphc_turns turns;
    bool by_turns;
    uint32_t seed;
};

static float mixed(const struct ggml_tensor * dst, int64_t i) {
    uint32_t sum = (uint32_t) i;
    for (int k = 0; k < GGML_MAX_SRC && dst->src[k] != NULL; ++k) {
        const int64_t count = ggml_nelements(dst->src[k]);
        for (int64_t j = 0; j < 3; ++j) sum = sum * 31 + (uint32_t) ((const float *) dst->src[k]->data)[(i * 7 + j * 13) % count];
    }
    return (float) (sum % 65521);
}

static void node_function(struct ggml_tensor * dst, int ith, int nth, void * settings) {
    struct node_settings * s = settings;
    const int64_t count = ggml_nelements(dst), units = s->by_turns ? 1 + count / 16 : nth;
    float * to = dst->data;
    for (int64_t unit = ith; s->by_turns ? (unit = take(&s->turns, units, ith, nth)) < units : unit == ith; unit += nth) {
        delay(s->seed + (uint32_t) unit + (uint32_t) ith);
        for (int64_t i = count * unit / units; i < count * (unit + 1) / units; ++i) to[i] = mixed(dst, i);
    }
}

struct fuzzed {
    struct ggml_context * context;
    struct ggml_cgraph * graph;
    ggml_gallocr_t allocator;
    struct ggml_tensor * inputs[MOST_INPUTS], * outputs[MOST_NODES];
    int inputs_count, outputs_count;
    struct node_settings settings[MOST_NODES];
};

static void build(struct fuzzed * f, ggml_backend_t cpu, struct draws * d) {
    memset(f, 0, sizeof *f);
    f->context = ggml_init((struct ggml_init_params){1 << 20, NULL, true});
    f->graph = ggml_new_graph_custom(f->context, 4 * MOST_NODES, false);
    struct ggml_tensor * made[MOST_INPUTS + MOST_NODES];
    int count = 0;
    f->inputs_count = 1 + (int) draw(d, MOST_INPUTS);
    for (int i = 0; i < f->inputs_count; ++i) {
        made[count++] = f->inputs[i] = ggml_new_tensor_1d(f->context, GGML_TYPE_F32, 1 + draw(d, MOST_SIZE));
        ggml_set_input(f->inputs[i]);
        ggml_set_output(f->inputs[i]);
    }
    const int nodes = (int) draw(d, MOST_NODES);
    const uint32_t far_reads = draw(d, 2) == 0 ? 3 : 1;  // one of so many is of any node, others of the last few
    for (int n = 0; n < nodes; ++n) {
        struct ggml_tensor * read[3];
        const int reads = 1 + (int) draw(d, 3);
        for (int k = 0; k < reads; ++k) read[k] = made[draw(d, far_reads) == 0 ? draw(d, count) : count - 1 - draw(d, count < 4 ? count : 4)];
        struct ggml_tensor * node;
        if (draw(d, 6) == 0) {
            node = ggml_scale(f->context, ggml_cont(f->context, read[0]), 0.5f);  // by ggml, the second in place of the first
        } else {
            f->settings[n].by_turns = draw(d, 3) != 0, f->settings[n].seed = draw(d, 1 << 20);
            const int64_t size = draw(d, 12) == 0 ? 1 : 1 + draw(d, MOST_SIZE);
            node = ggml_custom_4d(f->context, GGML_TYPE_F32, size, 1, 1, 1, read, reads, node_function, GGML_N_TASKS_MAX, &f->settings[n]);
        }
        if (draw(d, 8) == 0) node = ggml_view_1d(f->context, node, 1 + (ggml_nelements(node) - 1) / 2, 0);
        made[count++] = node;
        if (n == nodes - 1 || draw(d, 5) == 0) {
            ggml_set_output(node->view_src == NULL ? node : node->view_src);
            f->outputs[f->outputs_count++] = node;
        }
    }
    for (int i = 0; i < f->outputs_count; ++i) ggml_build_forward_expand(f->graph, f->outputs[i]);
    for (int i = 0; i < f->inputs_count; ++i) ggml_build_forward_expand(f->graph, f->inputs[i]);
    f->allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(cpu));
    if (!ggml_gallocr_alloc_graph(f->allocator, f->graph)) exit(3);
}

static void fill(struct fuzzed * f, uint32_t seed) {
    for (int i = 0; i < f->inputs_count; ++i) {
        for (int64_t j = 0; j < ggml_nelements(f->inputs[i]); ++j) ((float *) f->inputs[i]->data)[j] = (float) ((seed + (uint32_t) j * 7919) % 9973);
    }
}

static uint32_t results_of(const struct fuzzed * f) {
    uint32_t sum = 0;
    for (int i = 0; i < f->outputs_count; ++i) {
        for (int64_t j = 0; j < ggml_nelements(f->outputs[i]); ++j) sum = sum * 31 + (uint32_t) ((const float *) f->outputs[i]->data)[j];
    }
    return sum;
}

static bool stops_soon(void * left) { return --*(int *) left < 0; }

static int failures, graphs, runs, seed;

static void * fuzz(void * number) {
    struct draws d = {(uint64_t) (seed + (int) (intptr_t) number) * 7919 + 1};
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    struct fuzzed * f = malloc(sizeof *f);
    for (int g = 0; g < graphs; ++g) {
        build(f, cpu, &d);
        struct graphc_runner * runner = graphc_runner_new(&functions, cpu, f->graph);
        for (int run = 0; run < runs; ++run) {
            const uint32_t input = draw(&d, 1000);
            fill(f, input);
            if (graphc_runner_run(runner, 1, NULL, NULL) != GGML_STATUS_SUCCESS) exit(4);
            const uint32_t expected = results_of(f);
            fill(f, input);
            int left = (int) draw(&d, 40);
            const int threads = 1 + (int) draw(&d, MOST_FUZZ_THREADS);
            const bool stopped = draw(&d, 6) == 0;
            const int status = graphc_runner_run(runner, threads, stopped ? stops_soon : NULL, &left);
            if (status == GGML_STATUS_ABORTED && stopped) continue;
            if (status == GGML_STATUS_SUCCESS && results_of(f) == expected) continue;
            fprintf(stderr, "runner %d, graph %d, run %d: status %d\n", (int) (intptr_t) number, g, run, status);
            __atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
        }
        graphc_runner_free(runner);
        ggml_gallocr_free(f->allocator);
        ggml_free(f->context);
    }
    free(f);
    ggml_backend_free(cpu);
    return NULL;
}

int main(int count, char ** arguments) {
    if (count != 5) return 2;
    const int runners = atoi(arguments[2]);
    seed = atoi(arguments[1]), graphs = atoi(arguments[3]), runs = atoi(arguments[4]);
    pthread_t threads[16];
    for (int i = 0; i < runners; ++i) pthread_create(&threads[i], NULL, fuzz, (void *) (intptr_t) i);
    for (int i = 0; i < runners; ++i) pthread_join(threads[i], NULL);
    printf("%d failures\n", failures);
    return failures != 0;
}
