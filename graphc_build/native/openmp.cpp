// The part of OpenMP's run time that ggml's CPU code needs, as clang calls it: parallel regions of a given size, barriers, and
// what one thread does for all. zig has no OpenMP, and ggml's own threads spin in every barrier, which takes a processor's time
// from other programs, and from the thread that is waited for.
//
// Each thread that begins regions has a team of its own, which stays until that thread ends. Who waits spins for some ten
// microseconds and then sleeps. A process that was forked from one with a team makes a new one.

#include "omp.h"

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#ifndef _WIN32
#include <pthread.h>
#include <unistd.h>
#endif

namespace {

using Outlined = void (*)(int32_t *, int32_t *, ...);

constexpr int turns = 4000;
constexpr int most_arguments = 8;
constexpr int most_threads = 1024;

int process() {
#ifdef _WIN32
    return 0;
#else
    return getpid();
#endif
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/// Begins a thread that nobody waits for. Its stack is as large as operators want it: musl gives 128 KiB, macOS 512. Throws
/// std::system_error where the system gives no thread.
void begin_thread(std::function<void()> work) {
#ifdef _WIN32
    std::thread(std::move(work)).detach();
#else
    constexpr size_t stack = size_t{8} << 20;
    const auto start = [](void * given) -> void * {
        const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()> *>(given));
        (*own)();
        return nullptr;
    };
    auto own = std::make_unique<std::function<void()>>(std::move(work));
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error != 0) throw std::system_error(error, std::generic_category());
    pthread_attr_setstacksize(&attributes, stack);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, start, own.get());
    pthread_attr_destroy(&attributes);
    if (error != 0) throw std::system_error(error, std::generic_category());
    own.release();  // the thread has it
#endif
}

/// Which thread of how many this is in the region that it is in.
struct Place {
    int number = 0, of = 1;
    int singles = 0;  // that it has met
    class Team * team = nullptr;
};

thread_local Place place;

/// Threads that carry out regions, of which the one that begins them is the first.
class Team {
  public:
    const int owner = process();

    /// Have up to `wanted` threads, this one among them, carry out a region; fewer where the system gives no more.
    void run(std::shared_ptr<Team> self, int wanted, Outlined outlined, void ** given) {
        while (workers + 1 < wanted && start(self)) {}
        const int threads = wanted < workers + 1 ? wanted : workers + 1;
        region = outlined, arguments = given, singles = 0;
        // The size goes with the number of the region, so that a thread which wakes late knows whether it is of it.
        begun.store((begun.load(std::memory_order_relaxed) / most_threads + 1) * most_threads + threads - 1);
        wake();
        take_part(0, threads);
    }

    void barrier(int threads) {
        const uint64_t before = passed.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
            arrived.store(0, std::memory_order_relaxed);
            passed.store(before + 1);
            wake();
        } else {
            wait_for_change(passed, before);
        }
    }

    /// True for the first thread that comes to a place: each thread counts the places that it has come to.
    bool is_first(int count) { return singles.compare_exchange_strong(count, count + 1); }

    void end() {
        ended = true;
        begun.store(begun.load(std::memory_order_relaxed) + most_threads);
        wake();
    }

  private:
    std::atomic<uint64_t> begun{0}, passed{0};
    std::atomic<int> arrived{0}, singles{0}, asleep{0};
    std::atomic<bool> ended{false};
    std::mutex mutex;
    std::condition_variable changed;
    Outlined region = nullptr;
    void ** arguments = nullptr;
    int workers = 0;

    bool start(const std::shared_ptr<Team> & self) {
        const int number = workers + 1;
        const uint64_t seen = begun.load(std::memory_order_relaxed);
        try {
            begin_thread([self, number, seen] { self->work(number, seen); });
        } catch (const std::system_error &) {
            return false;
        }
        workers = number;
        return true;
    }

    void work(int number, uint64_t seen) {
        for (;;) {
            seen = wait_for_change(begun, seen);
            if (ended) return;
            const int threads = static_cast<int>(seen % most_threads) + 1;
            if (number < threads) take_part(number, threads);
        }
    }

    void take_part(int number, int threads) {
        const Place before = place;
        place = {number, threads, 0, this};
        int32_t global = number, bound = number;
        void ** a = arguments;
        region(&global, &bound, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
        barrier(threads);
        place = before;
    }

    uint64_t wait_for_change(const std::atomic<uint64_t> & value, uint64_t before) {
        for (int i = 0; i < turns; ++i) {
            const uint64_t now = value.load(std::memory_order_acquire);
            if (now != before) return now;
            relax();
        }
        std::unique_lock<std::mutex> lock(mutex);
        ++asleep;  // before the value is looked at again: who changes it looks for sleepers afterwards
        changed.wait(lock, [&] { return value.load() != before; });
        --asleep;
        return value.load();
    }

    void wake() {
        if (asleep.load() == 0) return;
        const std::lock_guard<std::mutex> lock(mutex);
        changed.notify_all();
    }
};

/// The team of a thread. Nobody waits for its threads: at the end of a process they may be gone already.
struct Own {
    std::shared_ptr<Team> team;
    int wanted = 1;

    ~Own() {
        if (team && team->owner == process()) team->end();
    }

    const std::shared_ptr<Team> & get() {
        if (!team || team->owner != process()) {
            if (team) new std::shared_ptr<Team>(team);  // what a forked process has of it is never touched again
            team = std::make_shared<Team>();
        }
        return team;
    }
};

thread_local Own own;

}  // namespace

extern "C" {

int omp_get_num_threads(void) { return place.of; }

int omp_get_thread_num(void) { return place.number; }

int32_t __kmpc_global_thread_num(void *) { return place.number; }

void __kmpc_push_num_threads(void *, int32_t, int32_t threads) { own.wanted = threads; }

void __kmpc_fork_call(void *, int32_t count, Outlined outlined, ...) {
    void * arguments[most_arguments] = {};
    if (count > most_arguments) __builtin_trap();
    va_list list;
    va_start(list, outlined);
    for (int i = 0; i < count; ++i) arguments[i] = va_arg(list, void *);
    va_end(list);
    const int wanted = own.wanted < 1 ? 1 : own.wanted > most_threads ? most_threads : own.wanted;
    const std::shared_ptr<Team> team = own.get();
    team->run(team, wanted, outlined, arguments);
}

void __kmpc_barrier(void *, int32_t) {
    if (place.of > 1) place.team->barrier(place.of);
}

int32_t __kmpc_single(void *, int32_t) { return place.of == 1 || place.team->is_first(place.singles++); }

void __kmpc_end_single(void *, int32_t) {}
}
