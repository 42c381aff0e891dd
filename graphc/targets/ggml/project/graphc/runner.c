// Computes graphs on the CPU by threads of its own.
//
// Each node is a step. One of ours has a part for each thread: its function, called with the part's number. These functions share what is
// left to do among the parts that are being computed (`own/turns.h`), so a part that is begun late, or by a thread that has done another
// one before, finds nothing left and is done at once. A step can be begun as soon as those are done whose results it reads, or whose
// memory it writes. The first thread has ggml compute what is ggml's.
//
// A thread may be held up by other programs at any place, also while it looks for something to do, and nobody waits for it then: a run
// ends when all steps are done, and the next may begin before that thread goes on. So whatever it decides upon has the number of the run,
// and a part is taken by a single step that fails where the number is another.

#include "runner.h"

#include "assign.h"
#include "threads.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PARTS = 48,             // of a step, a bit each
    STEPS_AHEAD = 32,            // that may be begun before the first is done which is not, a bit each
    MOST_SMALL = 1 << 16,        // elements of what ggml computes with one thread: waking others takes as long
    LOOKS = 2000, YIELDS = 300,  // in vain, before a thread sleeps: some tens of microseconds each, where nothing else runs
};

#define STACK_BYTES ((size_t) 8 << 20)

#define read_now(place) __atomic_load_n(place, __ATOMIC_SEQ_CST)
#define write_now(place, value) __atomic_store_n(place, value, __ATOMIC_SEQ_CST)
#define write_if(place, before, after) __atomic_compare_exchange_n(place, before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/// How ggml's custom operators have their function in `op_params`.
struct custom {
    ggml_custom_op_t function;
    int tasks;
    void * settings;
};

struct step {
    struct ggml_tensor * node;
    struct custom work;
    struct ggml_cgraph * alone;  // a graph of the node alone, which ggml computes instead
    bool small;                  // with one thread
    uint32_t needs;              // a bit for each step before that has to be done, the nearest first
    int parts;
    int left;        // parts that are not done
    uint64_t taken;  // the number of the run, and a bit for each part
    char apart[64];  // a line of the cache
};

struct graphc_runner {
    const struct graphc_ggml * ggml;
    ggml_backend_t cpu;
    ggml_backend_set_n_threads_t set_threads;
    struct ggml_context * context;  // of graphs of single nodes
    struct step * steps;
    uint32_t count;

    int threads;
    uint64_t first;   // the run's number, and the first step that is not done
    bool stopped;
    int status;
    bool others;      // ggml's own threads compute
    uint32_t done;    // steps: changes when there is something new to look for
    int asleep;
    graphc_signal changed;

    uint64_t helpers;  // a bit for each number that a thread has
    unsigned process;  // whose threads they are
    struct graphc_runner * next;
};

static struct {
    graphc_lock lock;
    graphc_signal begun;
    uint32_t runs;  // that were begun
    int threads, asleep;
    unsigned process;  // how often the process was forked
    struct graphc_runner * open;
} pool = {.lock = GRAPHC_LOCK, .begun = GRAPHC_SIGNAL};

static void leave_alone(struct graphc_runner * r);

static inline uint64_t numbered(uint32_t run, uint64_t rest) { return (uint64_t) run << MOST_PARTS | rest; }
static inline uint32_t number_of(uint64_t word) { return (uint32_t) (word >> MOST_PARTS); }
static inline uint64_t rest_of(uint64_t word) { return word & (((uint64_t) 1 << MOST_PARTS) - 1); }

/// The bits of parts as they are before any is taken: those that a step does not have are set.
static inline uint64_t none_taken(const struct step * step) { return rest_of(~(uint64_t) 0 << step->parts); }

// A graph's steps

/// What a step reads or writes.
struct range {
    const char * begin, * end;
    uint32_t step;
};

struct ranges {
    struct range * all;
    size_t count, room;
};

/// False without memory.
static bool add_range(struct ranges * r, const struct graphc_ggml * ggml, const struct ggml_tensor * t, uint32_t step) {
    if (t == NULL || t->data == NULL) return true;
    if (r->count == r->room) {
        const size_t room = 2 * r->room + 64;
        struct range * all = (struct range *) realloc(r->all, room * sizeof *all);
        if (all == NULL) return false;
        r->all = all, r->room = room;
    }
    const char * begin = (const char *) t->data;
    r->all[r->count++] = (struct range){begin, begin + ggml->nbytes(t), step};
    return true;
}

/// Says of each step which of those before it has to be done: where a range of its own, behind, meets one of theirs, before.
static void find_needs(struct graphc_runner * r, const struct ranges * before, const struct ranges * behind) {
    size_t window = 0;
    for (size_t i = 0; i < behind->count; ++i) {
        const struct range * a = &behind->all[i];
        while (window < before->count && before->all[window].step + STEPS_AHEAD < a->step) ++window;
        for (size_t k = window; k < before->count && before->all[k].step < a->step; ++k) {
            const struct range * b = &before->all[k];
            if (a->begin < b->end && b->begin < a->end) r->steps[a->step].needs |= (uint32_t) 1 << (a->step - b->step - 1);
        }
    }
}

static int64_t count_elements(const struct ggml_tensor * t) { return t == NULL ? 0 : t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

/// True if ggml is to compute a node with one thread. Of a table it reads a few rows alone.
static bool is_small(const struct ggml_tensor * node) {
    int64_t most = count_elements(node);
    for (int i = node->op == GGML_OP_GET_ROWS; i < GGML_MAX_SRC; ++i) {
        if (count_elements(node->src[i]) > most) most = count_elements(node->src[i]);
    }
    return most <= MOST_SMALL;
}

static inline bool computes(const struct ggml_tensor * node) { return !graphc_is_view(node) && count_elements(node) != 0; }

/// Makes the steps, for which there is room; false without memory.
static bool make_steps(struct graphc_runner * r, struct ggml_cgraph * graph) {
    struct ranges read = {NULL, 0, 0}, written = {NULL, 0, 0};
    const int nodes = r->ggml->graph_n_nodes(graph);
    bool enough = true;
    for (int i = 0; i < nodes && enough; ++i) {
        struct ggml_tensor * node = r->ggml->graph_node(graph, i);
        if (!computes(node)) continue;
        struct step * step = &r->steps[r->count];
        step->node = node;
        if (node->op == GGML_OP_CUSTOM) {
            memcpy(&step->work, node->op_params, sizeof step->work);
        } else {
            step->alone = r->ggml->new_graph_custom(r->context, 1, false), step->small = is_small(node);
            r->ggml->graph_add_node(step->alone, node);
        }
        enough = add_range(&written, r->ggml, node, r->count);
        for (int k = 0; k < GGML_MAX_SRC; ++k) enough = enough && add_range(&read, r->ggml, node->src[k], r->count);
        ++r->count;
    }
    find_needs(r, &written, &read);
    find_needs(r, &written, &written);
    find_needs(r, &read, &written);
    free(read.all);
    free(written.all);
    return enough;
}

struct graphc_runner * graphc_runner_new(const struct graphc_ggml * ggml, ggml_backend_t cpu, struct ggml_cgraph * graph) {
    struct graphc_runner * r = (struct graphc_runner *) calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->ggml = ggml, r->cpu = cpu, r->process = pool.process, r->changed = (graphc_signal) GRAPHC_SIGNAL;
    ggml_backend_reg_t registry = ggml->backend_dev_backend_reg(ggml->backend_get_device(cpu));
    r->set_threads = (ggml_backend_set_n_threads_t) ggml->backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
    size_t steps = 0, of_ggml = 0;
    for (int i = 0; i < ggml->graph_n_nodes(graph); ++i) {
        const struct ggml_tensor * node = ggml->graph_node(graph, i);
        steps += computes(node), of_ggml += computes(node) && node->op != GGML_OP_CUSTOM;
    }
    const size_t bytes = of_ggml * (ggml->graph_overhead_custom(1, false) + 64) + 64;
    r->context = ggml->init((struct ggml_init_params){bytes, NULL, true});
    r->steps = (struct step *) calloc(steps + 1, sizeof *r->steps);
    if (r->context != NULL && r->steps != NULL && make_steps(r, graph)) return r;
    graphc_runner_free(r);
    return NULL;
}

void graphc_runner_free(struct graphc_runner * r) {
    if (r == NULL) return;
    leave_alone(r);
    if (r->context != NULL) r->ggml->free(r->context);
    free(r->steps);
    free(r);
}

// A run

static inline bool has_ended(const struct graphc_runner * r) { return rest_of(read_now(&r->first)) == r->count || read_now(&r->stopped); }

/// Makes it known that there may be something new to do.
static void tell(struct graphc_runner * r) {
    __atomic_add_fetch(&r->done, 1, __ATOMIC_SEQ_CST);
    if (read_now(&r->asleep) == 0) return;
    lock(&pool.lock);
    wake_all(&r->changed);
    unlock(&pool.lock);
}

/// True if all steps before the one that this one has to wait for are done.
static bool is_ready(const struct graphc_runner * r, uint64_t number) {
    const struct step * step = &r->steps[number];
    for (uint32_t needs = step->needs; needs != 0; needs &= needs - 1) {
        if (read_now(&(step - 1 - __builtin_ctz(needs))->left) != 0) return false;
    }
    return true;
}

/// Has ggml compute a step.
static void compute_by_ggml(struct graphc_runner * r, struct step * step) {
    const int threads = step->small ? 1 : r->threads;
    r->set_threads(r->cpu, threads);
    write_now(&r->others, threads > 1);
    const enum ggml_status status = r->ggml->backend_graph_compute(r->cpu, step->alone);
    write_now(&r->others, false);
    if (status == GGML_STATUS_SUCCESS) return;
    r->status = status;
    write_now(&r->stopped, true);
}

/// Computes a part of a step that may be begun, as the thread with this number, or gives false. The parts of ggml's steps are the first
/// thread's.
static bool compute_part(struct graphc_runner * r, int thread) {
    uint64_t first = read_now(&r->first);
    const uint32_t run = number_of(first);
    const uint64_t end = rest_of(first) + STEPS_AHEAD < r->count ? rest_of(first) + STEPS_AHEAD : r->count;
    for (uint64_t i = rest_of(first); i < end; ++i) {
        struct step * step = &r->steps[i];
        uint64_t taken = read_now(&step->taken);
        if (number_of(taken) != run) return false;
        const uint64_t free_parts = rest_of(~taken);
        if (free_parts == 0 || (step->alone != NULL && thread != 0) || !is_ready(r, i)) continue;
        const int part = free_parts >> thread & 1 ? thread : __builtin_ctzll(free_parts);
        if (!write_if(&step->taken, &taken, taken | (uint64_t) 1 << part)) return true;  // somebody else took one: look again
        if (step->alone != NULL) compute_by_ggml(r, step);
        else step->work.function(step->node, part, step->parts, step->work.settings);
        if (__atomic_sub_fetch(&step->left, 1, __ATOMIC_SEQ_CST) != 0) return true;
        for (first = read_now(&r->first); number_of(first) == run && rest_of(first) < r->count && read_now(&r->steps[rest_of(first)].left) == 0;) {
            if (write_if(&r->first, &first, first + 1)) ++first;
        }
        tell(r);
        return true;
    }
    return false;
}

/// True once a count is not what it was, false if that takes longer than a thread should look, or others need the processor.
static bool changes_soon(const uint32_t * count, uint32_t seen, const bool * others) {
    for (int looks = 0; looks < LOOKS + YIELDS && (others == NULL || !read_now(others)); ++looks) {
        if (read_now(count) != seen) return true;
        if (looks < LOOKS) pause_thread();
        else let_others_run();
    }
    return false;
}

/// Waits until a step is done after the one that was seen last, or the run has ended.
static void wait_for_steps(struct graphc_runner * r, uint32_t seen) {
    if (changes_soon(&r->done, seen, &r->others)) return;
    lock(&pool.lock);
    __atomic_add_fetch(&r->asleep, 1, __ATOMIC_SEQ_CST);
    while (read_now(&r->done) == seen && !has_ended(r)) wait_for(&r->changed, &pool.lock);
    __atomic_sub_fetch(&r->asleep, 1, __ATOMIC_SEQ_CST);
    unlock(&pool.lock);
}

/// Takes part in a run until it ends.
static void take_part(struct graphc_runner * r, int thread, ggml_abort_callback stops, void * data) {
    for (;;) {
        const uint32_t seen = read_now(&r->done);
        if (has_ended(r)) return;
        if (!compute_part(r, thread)) wait_for_steps(r, seen);
        if (stops != NULL && stops(data)) {
            r->status = GGML_STATUS_ABORTED;
            write_now(&r->stopped, true);
            tell(r);
        }
    }
}

// Threads

/// A run that a thread may take part in, with the number that it has there; NULL if there is none.
static struct graphc_runner * join_run(int * thread) {
    lock(&pool.lock);
    struct graphc_runner * r = pool.open;
    while (r != NULL && (__builtin_popcountll(r->helpers) >= r->threads - 1 || has_ended(r))) r = r->next;
    if (r != NULL) *thread = __builtin_ctzll(~r->helpers & ~(uint64_t) 1), r->helpers |= (uint64_t) 1 << *thread;
    unlock(&pool.lock);
    return r;
}

static void leave_run(struct graphc_runner * r, int thread) {
    lock(&pool.lock);
    r->helpers &= ~((uint64_t) 1 << thread);
    wake_all(&r->changed);
    unlock(&pool.lock);
}

/// Waits until no thread looks at a run that has ended.
static void leave_alone(struct graphc_runner * r) {
    lock(&pool.lock);
    while (r->helpers != 0 && r->process == pool.process) wait_for(&r->changed, &pool.lock);
    unlock(&pool.lock);
}

/// What threads do: they take part in runs as these begin.
static thread_result GRAPHC_THREAD help(void * unused) {
    (void) unused;
    for (uint32_t seen = 0;;) {
        changes_soon(&pool.runs, seen, NULL);
        lock(&pool.lock);
        ++pool.asleep;
        while (pool.runs == seen) wait_for(&pool.begun, &pool.lock);
        --pool.asleep;
        seen = pool.runs;
        unlock(&pool.lock);
        int thread = 0;
        for (struct graphc_runner * r; (r = join_run(&thread)) != NULL; leave_run(r, thread)) take_part(r, thread, NULL, NULL);
    }
    return 0;
}

/// In a process that was forked, other threads are not there, and may have held the lock.
static void forget_threads(void) {
    pool.lock = (graphc_lock) GRAPHC_LOCK, pool.begun = (graphc_signal) GRAPHC_SIGNAL;
    pool.threads = pool.asleep = 0, pool.open = NULL;
    ++pool.process;
}

/// Does what is left of steps that were begun when a run was stopped: their functions begin anew in the next one.
static void finish_steps(struct graphc_runner * r) {
    for (uint32_t i = 0; i < r->count; ++i) {
        struct step * step = &r->steps[i];
        if (step->alone != NULL || step->left == 0 || rest_of(step->taken) == none_taken(step)) continue;
        for (int part = 0; part < step->parts; ++part) {
            if ((step->taken >> part & 1) == 0) step->work.function(step->node, part, step->parts, step->work.settings);
        }
    }
}

/// Lets threads take part in a run, and starts those that are missing. Where the system has no more, there are fewer.
static void open_run(struct graphc_runner * r) {
    lock(&pool.lock);
    if (pool.runs == 0) call_in_child(forget_threads);
    r->next = pool.open, pool.open = r;
    __atomic_add_fetch(&pool.runs, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < pool.asleep && i < r->threads - 1; ++i) wake_one(&pool.begun);
    while (pool.threads < r->threads - 1 && start_thread(help, STACK_BYTES)) ++pool.threads;
    unlock(&pool.lock);
}

static void close_run(struct graphc_runner * r) {
    lock(&pool.lock);
    struct graphc_runner ** place = &pool.open;
    while (*place != r) place = &(*place)->next;
    *place = r->next;
    unlock(&pool.lock);
}

int graphc_runner_run(struct graphc_runner * r, int threads, ggml_abort_callback stops, void * data) {
    if (r->process != pool.process) r->process = pool.process, r->helpers = 0, r->asleep = 0, r->changed = (graphc_signal) GRAPHC_SIGNAL;
    r->threads = threads < MOST_PARTS ? threads : MOST_PARTS;
    const uint64_t begin = numbered(number_of(read_now(&r->first)) + 1, 0);  // a thread of the run before may still look at it
    r->status = GGML_STATUS_SUCCESS;
    for (uint32_t i = 0; i < r->count; ++i) {
        struct step * step = &r->steps[i];
        step->parts = step->alone != NULL ? 1 : r->threads;
        write_now(&step->left, step->parts);
        write_now(&step->taken, begin | none_taken(step));
    }
    write_now(&r->stopped, false);
    write_now(&r->first, begin);
    if (r->threads > 1) open_run(r);
    take_part(r, 0, stops, data);
    if (r->threads > 1) close_run(r);
    if (r->stopped) leave_alone(r), finish_steps(r);
    r->set_threads(r->cpu, threads);
    return r->status;
}
