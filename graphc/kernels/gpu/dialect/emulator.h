// The dialect on the CPU, lane by lane: see README.md for what each function does. Compile with a C++17 compiler, without contraction.
#pragma once

#include <math.h>

#include "emulator_launch.h"

// The line in the kernel's text of whoever calls, for messages and to know which lanes are at the same instruction.
#define GRAPHC_LINE int line = __builtin_LINE()

#define KERNEL(name, threads, blocks_per_multiprocessor, ...)                                                                     \
    static void name(__VA_ARGS__);                                                                                                \
    static_assert((threads) % 32 == 0 && (threads) >= 32 && (threads) <= 1024, "threads are whole warps, at most 32");            \
    extern "C" __attribute__((visibility("default"))) const EmulatorKernel graphc_kernel_##name;                                  \
    const EmulatorKernel graphc_kernel_##name = emulator::described(#name, threads, blocks_per_multiprocessor, name);             \
    extern "C" __attribute__((visibility("default"))) int graphc_emulate_##name(const EmulatorLaunch *launch, EmulatorReport *report) { \
        return emulator::launch(graphc_kernel_##name, [](void *const *arguments) { emulator::invoke(name, arguments); }, launch, report); \
    }                                                                                                                             \
    static void name(__VA_ARGS__)
#define DEVICE static inline
#define UNROLL
#define NO_UNROLL

typedef unsigned char shared_byte;

#include "types.h"
#include "functions.h"
#include "functions_double.h"
#include "emulator_numbers.h"

// ---- Places

DEVICE int thread_index() { return (int) emulator::block().lane->thread; }
DEVICE int lane_index() { return thread_index() % 32; }
DEVICE int warp_index() { return thread_index() / 32; }
DEVICE unsigned block_index_x() { return emulator::block().index[0]; }
DEVICE unsigned block_index_y() { return emulator::block().index[1]; }
DEVICE unsigned block_index_z() { return emulator::block().index[2]; }
DEVICE unsigned grid_size_x() { return emulator::block().grid[0]; }
DEVICE unsigned grid_size_y() { return emulator::block().grid[1]; }
DEVICE unsigned grid_size_z() { return emulator::block().grid[2]; }
DEVICE shared_byte *shared_memory() { return emulator::block().shared; }

// ---- Memory

template <class T> static inline T load_global(const T *address, GRAPHC_LINE) {
    T value;
    emulator::load_global(&value, address, sizeof(T), line);
    return value;
}
template <class T> struct graphc_same { typedef T type; };
template <class T> static inline void store_global(T *address, typename graphc_same<T>::type value, GRAPHC_LINE) { emulator::store_global(address, &value, sizeof(T), line); }
template <class T> static inline T load_shared(const shared_byte *address, GRAPHC_LINE) {
    T value;
    emulator::load_shared(&value, address, sizeof(T), line);
    return value;
}
template <class T> static inline void store_shared(shared_byte *address, T value, GRAPHC_LINE) { emulator::store_shared(address, &value, sizeof(T), line); }

#define GRAPHC_BYTES(bytes)                                                                                                                                      \
    template <class R> static inline void load_global_##bytes(R *registers, const void *address, GRAPHC_LINE) { emulator::load_global(registers, address, bytes, line); }    \
    template <class R> static inline void load_readonly_##bytes(R *registers, const void *address, GRAPHC_LINE) { emulator::load_global(registers, address, bytes, line, true); }  \
    template <class R> static inline void load_streaming_##bytes(R *registers, const void *address, GRAPHC_LINE) { emulator::load_global(registers, address, bytes, line, true); } \
    template <class R> static inline void store_global_##bytes(void *address, const R *registers, GRAPHC_LINE) { emulator::store_global(address, registers, bytes, line); }    \
    template <class R> static inline void store_streaming_##bytes(void *address, const R *registers, GRAPHC_LINE) { emulator::store_global(address, registers, bytes, line); } \
    template <class R> static inline void load_shared_##bytes(R *registers, const shared_byte *address, GRAPHC_LINE) { emulator::load_shared(registers, address, bytes, line); } \
    template <class R> static inline void store_shared_##bytes(shared_byte *address, const R *registers, GRAPHC_LINE) { emulator::store_shared(address, registers, bytes, line); }
GRAPHC_BYTES(1)
GRAPHC_BYTES(2)
GRAPHC_BYTES(4)
GRAPHC_BYTES(8)
GRAPHC_BYTES(16)
#undef GRAPHC_BYTES

static inline void atomic_add_global(float *address, float value, GRAPHC_LINE) {
    emulator::Block &b = emulator::block();
    emulator::check_global(b, *b.lane, address, sizeof(float), line, "adds to");
    b.counters.atomics++;
    emulator::publish(b, *b.lane);
    uint32_t before = __atomic_load_n((uint32_t *) address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((uint32_t *) address, &before, bits_of(float_of(before) + value), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}
static inline unsigned atomic_add_global(unsigned *address, unsigned value, GRAPHC_LINE) {
    emulator::Block &b = emulator::block();
    emulator::check_global(b, *b.lane, address, sizeof(unsigned), line, "adds to");
    b.counters.atomics++;
    emulator::publish(b, *b.lane);
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
static inline void discard_global(void *address, GRAPHC_LINE) { emulator::discard_global(address, line); }
DEVICE void await_kernels_before() {}
DEVICE void device_fence() { emulator::device_fence(); }

// ---- Barriers and copies

static inline void barrier(GRAPHC_LINE) { emulator::meet_block(line); }
static inline void warp_barrier(GRAPHC_LINE) {
    emulator::meet("warp_barrier", [](emulator::Warp &warp) { warp.epoch++; }, line);
}
static inline void copy_async_16(shared_byte *to, const void *from, bool valid, GRAPHC_LINE) { emulator::copy_async(to, from, 16, valid, line); }
static inline void copy_async_8(shared_byte *to, const void *from, bool valid, GRAPHC_LINE) { emulator::copy_async(to, from, 8, valid, line); }
static inline void copy_async_4(shared_byte *to, const void *from, bool valid, GRAPHC_LINE) { emulator::copy_async(to, from, 4, valid, line); }
DEVICE void copy_commit() { emulator::block().lane->committed++; }
template <int groups> static inline void copy_wait() { emulator::copy_wait(groups); }

#include "emulator_warp.h"
#include "emulator_wgmma.h"
#include "tf32.h"
