// A launch: the blocks of a grid, in an order that the seed draws, by one or several threads of the CPU.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include "emulator_memory.h"

namespace emulator {

// The values of a launch become a kernel's parameters.
template <class... Parameters> struct Signature {
    template <class... Values> static void call(void (*kernel)(Parameters...), void *const *arguments, Values... values) {
        if constexpr (sizeof...(Values) == sizeof...(Parameters)) kernel(values...);
        else next<sizeof...(Values), Parameters...>(kernel, arguments, values...);
    }
    template <size_t skip, class First, class... Rest, class... Values>
    static void next(void (*kernel)(Parameters...), void *const *arguments, Values... values) {
        if constexpr (skip == 0) call(kernel, arguments, values..., *(First *) arguments[sizeof...(Values)]);
        else next<skip - 1, Rest...>(kernel, arguments, values...);
    }
};

template <class... Parameters> constexpr EmulatorKernel described(const char *name, uint32_t threads, uint32_t blocks, void (*)(Parameters...)) {
    static_assert(sizeof...(Parameters) <= EMULATOR_MOST_PARAMETERS, "a kernel has too many parameters");
    return {name, threads, blocks, (uint32_t) sizeof...(Parameters), {(uint32_t) sizeof(Parameters)...}};
}

template <class... Parameters> static void invoke(void (*kernel)(Parameters...), void *const *arguments) {
    Signature<Parameters...>::call(kernel, arguments);
}

// What the workers of a launch share.
struct Work {
    const EmulatorLaunch *launch;
    EmulatorReport *report;
    void (*kernel)(void *const *);
    uint64_t total, step, start, taken;
    int warps;
    uint32_t **marks;
    bool failed;
    pthread_mutex_t lock;
};

static inline uint64_t greatest_common(uint64_t a, uint64_t b) {
    while (b) {
        const uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static inline bool prepare(Block &b, const Work &work) {
    const EmulatorLaunch &launch = *work.launch;
    const size_t threads = (size_t) work.warps * LANES, shared = launch.shared_bytes;
    memset(&b, 0, sizeof b);
    memcpy(b.grid, launch.grid, sizeof b.grid);
    b.launch = &launch, b.kernel = work.kernel, b.marks = work.marks, b.warp_count = work.warps, b.shared_bytes = shared;
    b.lanes = (Lane *) calloc(threads, sizeof(Lane));
    b.mapped = mmap(nullptr, (threads + 2) * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    b.stacks = (unsigned char *) (((uintptr_t) b.mapped + STACK - 1) & ~(uintptr_t) (STACK - 1));
    if (posix_memalign((void **) &b.shared, 1024, shared + 1024)) b.shared = nullptr;
    b.written = (uint64_t *) calloc(shared + 1, sizeof(uint64_t));
    b.read = (uint64_t *) calloc(shared + 1, sizeof(uint64_t));
    return b.lanes && b.mapped != MAP_FAILED && b.shared && b.written && b.read;
}

static inline void release(Block &b) {
    const size_t threads = (size_t) b.warp_count * LANES;
    for (size_t i = 0; b.lanes && i < threads; i++) free(b.lanes[i].copies.items), free(b.lanes[i].accesses.items), free(b.lanes[i].wrote.items);
    for (int w = 0; w < b.warp_count; w++) free(b.warps[w].products.items);
    if (b.mapped != MAP_FAILED) munmap(b.mapped, (threads + 2) * STACK);
    free(b.lanes), free(b.shared), free(b.written), free(b.read), free(b.stores.items);
}

static inline void refuse(Work &work, const char *message) {
    pthread_mutex_lock(&work.lock);
    if (!work.failed) snprintf(work.report->error, sizeof work.report->error, "%s", message);
    work.failed = true;
    pthread_mutex_unlock(&work.lock);
}

static void *run_blocks(void *shared_work) {
    Work &work = *(Work *) shared_work;
    Block *b = (Block *) malloc(sizeof(Block));
    if (!b) return refuse(work, "there is not enough memory for the emulator"), nullptr;
    if (!prepare(*b, work)) refuse(work, "there is not enough memory for the emulator");
    while (!__atomic_load_n(&work.failed, __ATOMIC_RELAXED)) {
        const uint64_t taken = __atomic_fetch_add(&work.taken, 1, __ATOMIC_RELAXED);
        if (taken >= work.total) break;
        if (!run_block(*b, (uint64_t) (((unsigned __int128) taken * work.step + work.start) % work.total))) refuse(work, b->error);
    }
    pthread_mutex_lock(&work.lock);
    uint64_t *sums = (uint64_t *) &work.report->counters;
    const uint64_t *counts = (const uint64_t *) &b->counters;
    for (size_t i = 0; i < sizeof(EmulatorCounters) / sizeof(uint64_t); i++) sums[i] += counts[i];
    pthread_mutex_unlock(&work.lock);
    release(*b);
    free(b);
    return nullptr;
}

static int launch(const EmulatorKernel &kernel, void (*code)(void *const *), const EmulatorLaunch *launch, EmulatorReport *report) {
    memset(report, 0, sizeof *report);
    const uint64_t total = (uint64_t) launch->grid[0] * launch->grid[1] * launch->grid[2];
    Work work = {launch, report, code, total, 1, 0, 0, (int) (kernel.threads / LANES), nullptr, false, PTHREAD_MUTEX_INITIALIZER};
    if (launch->argument_count != kernel.parameter_count) {
        snprintf(report->error, sizeof report->error, "%s has %u parameters, and the launch %u arguments", kernel.name, kernel.parameter_count, launch->argument_count);
        return 1;
    }
    if (launch->threads && launch->threads != kernel.threads) {
        snprintf(report->error, sizeof report->error, "%s has %u threads a block, and the launch %u", kernel.name, kernel.threads, launch->threads);
        return 1;
    }
    if (!total) return refuse(work, "the grid of a launch has no blocks"), 1;
    work.start = launch->seed % total;
    for (work.step = launch->seed * 2654435761u % total + 1; greatest_common(work.step, total) != 1;) work.step++;
    work.marks = (uint32_t **) calloc(launch->buffer_count + 1, sizeof *work.marks);
    if (!work.marks) return refuse(work, "there is not enough memory for the emulator"), 1;
    pthread_t others[64];
    uint32_t started = 0;
    for (; started < 64 && started + 1 < launch->workers && started + 1 < total; started++)
        if (pthread_create(&others[started], nullptr, run_blocks, &work)) break;
    run_blocks(&work);
    for (uint32_t i = 0; i < started; i++) pthread_join(others[i], nullptr);
    for (uint64_t i = 0; i < launch->buffer_count; i++) free(work.marks[i]);
    free(work.marks);
    return work.failed;
}

}  // namespace emulator
