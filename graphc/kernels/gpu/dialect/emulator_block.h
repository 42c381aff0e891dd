// The emulator's machine: a block of threads, each a fiber with a stack of its own. The lanes of a warp run one after the other, in
// an order that the seed draws, until all of them stand at an operation of the warp or at the block's barrier; then the operation
// is done for all lanes at once. Which warp goes on next is drawn too. An error ends the launch: its text is in the report.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator_entry.h"

namespace emulator {

constexpr int LANES = 32, MOST_WARPS = 32;
constexpr size_t STACK = 128 << 10;  // bytes of a thread's stack, and what its address is a multiple of; pages that nobody touches cost nothing
constexpr size_t STACK_LEFT = 8 << 10;

// ---- Changing from one fiber to another

#if defined(__x86_64__)
#define GRAPHC_SWITCH_ABI __attribute__((sysv_abi))
__asm__(R"(
.text
graphc_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");
constexpr int SAVED = 6;  // registers on the stack below the place to return to
#elif defined(__aarch64__)
#define GRAPHC_SWITCH_ABI
__asm__(R"(
.text
.balign 4
graphc_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
constexpr int SAVED = 20, SAVED_RETURN = 11;
#else
#error "the emulator runs on x86-64 and arm64"
#endif

// Stores where this fiber stands, and goes on where another stood.
extern "C" __attribute__((visibility("hidden"))) GRAPHC_SWITCH_ABI void graphc_switch(void **from, void *to) __asm__("graphc_switch");

struct Block;

// A stack of STACK bytes on which `start` begins. Its last word is the block's address: see block().
static inline void *fresh_fiber(unsigned char *stack, Block &block, void (*start)()) {
    void **top = (void **) (stack + STACK);
    top[-1] = &block;
    top -= 8;
#if defined(__x86_64__)
    *--top = nullptr;
    *--top = (void *) start;
    for (int i = 0; i < SAVED; i++) *--top = nullptr;
#else
    top -= SAVED;
    memset(top, 0, SAVED * sizeof(void *));
    top[SAVED_RETURN] = (void *) start;
#endif
    return top;
}

// ---- Blocks, warps, lanes

struct Warp;
using Operation = void (*)(Warp &);

// One access of a lane to memory, kept until the others' are known.
struct Access {
    uint64_t address;
    int line;
    uint8_t kind, bytes;
};

// A copy from global to shared memory that is under way.
struct Copy {
    const unsigned char *from;
    uint32_t offset, group;
    uint8_t bytes;
    bool valid;
};

// Bytes of shared memory that a lane has written since the block's last barrier.
struct Wrote {
    uint32_t offset, bytes;
};

// An array that grows.
template <class T> struct List {
    T *items = nullptr;
    size_t size = 0, room = 0;
    void add(const T &item) {
        if (size == room) {
            room = room ? 2 * room : 64;
            items = (T *) realloc(items, room * sizeof(T));
            if (!items) abort();
        }
        items[size++] = item;
    }
};

// Words of global memory that a thread has written at an epoch of the block.
struct Stored {
    uint32_t *marks;
    uint32_t count, thread, epoch;
};

// A product of wgmma that is under way: the sums of each lane, and its registers of the first operand if that is in some; what
// describes operands in shared memory; columns; and the number of its group.
struct Product {
    float *sums[LANES];
    const unsigned *held[LANES];
    uint64_t a, b;
    int columns, line;
    bool bfloat, adds;
    uint32_t group;
};

enum class At : uint8_t { RUNNING, OPERATION, BARRIER, END };

struct Lane {
    void *place;  // its stack pointer while others run
    At at;
    int line;
    Operation operation;
    const char *name;
    void *operands[4];
    uint32_t committed, thread;
    uint32_t fence;      // the block's epoch at its last device_fence
    size_t fenced;       // stores of the block until then
    bool came, sees;     // has done an atomic add, and a device_fence behind one
    List<Copy> copies;
    size_t first_copy;
    List<Access> accesses;
    List<Wrote> wrote;
    uint32_t wrote_at;  // the block's epoch
};

struct Warp {
    Lane *lanes;
    int number;
    At at;
    int line;
    uint32_t epoch;  // barriers of the warp so far
    uint32_t ended;  // groups of products
    List<Product> products;
};

struct Block {
    uint32_t index[3], grid[3];
    unsigned char *shared;
    uint64_t shared_bytes;
    uint32_t epoch;  // barriers so far
    uint64_t *written, *read;  // for each byte of shared memory, who touched it last: see emulator_memory.h
    Lane *lane;                // that runs
    Lane *lanes;
    Warp warps[MOST_WARPS];
    int warp_count;
    void (*kernel)(void *const *);
    const EmulatorLaunch *launch;
    const EmulatorBuffer *last_buffer;
    uint32_t **marks;  // for each buffer, who wrote its words in this launch, or null: see emulator_memory.h
    uint32_t mark;     // of this block
    uint32_t seen;     // the first epoch at which a lane saw what other blocks published
    List<Stored> stores;
    EmulatorCounters counters;
    uint64_t random;
    void *mapped;
    unsigned char *stacks;  // in it: one for each thread, and one for the schedule
    void *scheduler, *outside;
    Lane *order[LANES];  // of the lanes of the warp that runs
    int turn, turns;
    bool failed;
    char error[EMULATOR_MESSAGE];
};

// The block that runs, found from the stack that this is called on. A thread-local variable would be the obvious place, but a library
// can be loaded in thousands, and what a process has for those of libraries that come late is soon used up.
static inline Block &block() {
    unsigned char here;
    return *((Block **) (((uintptr_t) &here | (STACK - 1)) + 1))[-1];
}

static inline uint64_t draw(Block &b) {
    b.random ^= b.random << 13;
    b.random ^= b.random >> 7;
    b.random ^= b.random << 17;
    return b.random * 0x2545F4914F6CDD1Dull >> 16;
}

// Ends the launch. `lane` is null for what concerns a whole block.
[[noreturn]] __attribute__((format(printf, 3, 4), noinline, cold)) static void fault(const Lane *lane, int line, const char *format, ...) {
    Block &b = block();
    int used = snprintf(b.error, sizeof b.error, "line %d: ", line);
    va_list values;
    va_start(values, format);
    used += vsnprintf(b.error + used, sizeof b.error - used, format, values);
    va_end(values);
    if (used < (int) sizeof b.error) {
        const char *at = b.error + used;
        (void) at;
        used += snprintf(b.error + used, sizeof b.error - used, " (block %u, %u, %u", b.index[0], b.index[1], b.index[2]);
    }
    if (used < (int) sizeof b.error) {
        if (lane) snprintf(b.error + used, sizeof b.error - used, ", warp %u, lane %u)", lane->thread / LANES, lane->thread % LANES);
        else snprintf(b.error + used, sizeof b.error - used, ")");
    }
    b.failed = true;
    void *nowhere;
    graphc_switch(&nowhere, b.outside);
    abort();
}

// ---- What lanes do

// Let the next lane of the warp run; comes back when this lane's turn is there again.
static inline void yield(Block &b, Lane &lane) {
    b.turn++;
    void *next;
    if (b.turn < b.turns) {
        b.lane = b.order[b.turn];
        next = b.lane->place;
    } else next = b.scheduler;
    graphc_switch(&lane.place, next);
}

static inline void check_stack(Block &b, Lane &lane, int line) {
    unsigned char here, *bottom = b.stacks + (size_t) lane.thread * STACK;
    if (&here < bottom + STACK_LEFT || &here > bottom + STACK) fault(&lane, line, "the thread's registers need more than %zu bytes", STACK);
}

// Wait for the other lanes of the warp, and for the operation that is done when they are there. The operands are the lane's own.
static inline void meet(const char *name, Operation operation, int line, void *a = nullptr, void *b = nullptr, void *c = nullptr, void *d = nullptr) {
    Block &owner = block();
    Lane &lane = *owner.lane;
    check_stack(owner, lane, line);
    lane.at = At::OPERATION;
    lane.name = name, lane.operation = operation, lane.line = line;
    lane.operands[0] = a, lane.operands[1] = b, lane.operands[2] = c, lane.operands[3] = d;
    yield(owner, lane);
}

static inline void meet_block(int line) {
    Block &owner = block();
    Lane &lane = *owner.lane;
    check_stack(owner, lane, line);
    lane.at = At::BARRIER, lane.name = "barrier", lane.line = line, lane.operation = nullptr;
    yield(owner, lane);
}

static void run_thread() {
    Block &b = block();
    b.kernel(b.launch->arguments);
    Block &same = block();
    same.lane->at = At::END;
    same.lane->name = "the end", same.lane->operation = nullptr;
    yield(same, *same.lane);
    abort();
}

// ---- The order of things

void count_accesses(Block &, Warp &);  // emulator_memory.h
void forget_shared_memory(Block &);

// All lanes of a warp do the same, or there is a fault.
static inline void check_together(Warp &warp) {
    const Lane &first = warp.lanes[0];
    for (int i = 1; i < LANES; i++) {
        const Lane &lane = warp.lanes[i];
        if (lane.at == first.at && lane.operation == first.operation && (lane.line == first.line || lane.at == At::END)) continue;
        if (lane.at == At::END || first.at == At::END)
            fault(&(lane.at == At::END ? first : lane), (lane.at == At::END ? first : lane).line,
                  "%s is reached by some lanes of the warp, and others have ended: divergent", (lane.at == At::END ? first : lane).name);
        fault(&lane, lane.line, "%s is reached by this lane, and lane 0 is at %s of line %d: divergent", lane.name, first.name, first.line);
    }
}

// Run a warp until it stands at its next operation, and do that.
static inline void step(Block &b, Warp &warp) {
    const uint64_t number = draw(b);
    const unsigned odd = (unsigned) number | 1, start = (unsigned) (number >> 8);
    for (unsigned i = 0; i < LANES; i++) b.order[i] = &warp.lanes[(i * odd + start) % LANES];
    b.turn = 0, b.turns = LANES;
    b.lane = b.order[0];
    graphc_switch(&b.scheduler, b.lane->place);
    count_accesses(b, warp);
    check_together(warp);
    const Lane &first = warp.lanes[0];
    warp.at = first.at, warp.line = first.line;
    if (warp.at == At::OPERATION) {
        first.operation(warp);
        warp.at = At::RUNNING;
    }
}

// True if all warps stand at the block's barrier; they then go on.
static inline bool pass_barrier(Block &b) {
    const Warp *waiting = nullptr, *ended = nullptr;
    for (int i = 0; i < b.warp_count; i++) {
        const Warp &warp = b.warps[i];
        (warp.at == At::BARRIER ? waiting : ended) = &warp;
    }
    if (!waiting) return false;
    if (ended) fault(nullptr, waiting->line, "barrier is reached by warp %d, and warp %d has ended: divergent", waiting->number, ended->number);
    for (int i = 0; i < b.warp_count; i++) {
        Warp &warp = b.warps[i];
        if (warp.line != b.warps[0].line)
            fault(nullptr, warp.line, "barrier is reached by warp %d, and warp 0 is at that of line %d: divergent", warp.number, b.warps[0].line);
        warp.at = At::RUNNING;
    }
    b.epoch++, b.counters.barriers++;
    return true;
}

// Runs all threads of a block, on a fiber of its own: a fault leaves it wherever it happened.
static void run_schedule() {
    for (;;) {
        Block &b = block();
        Warp *ready[MOST_WARPS];
        int count = 0;
        for (int i = 0; i < b.warp_count; i++)
            if (b.warps[i].at == At::RUNNING) ready[count++] = &b.warps[i];
        if (count) {
            const uint64_t number = draw(b);
            Warp &warp = *ready[number % count];
            for (int steps = 1 + (int) (number >> 8) % 8; steps > 0 && warp.at == At::RUNNING; steps--) step(b, warp);
        } else if (!pass_barrier(b)) {
            b.counters.blocks++;
            void *nowhere;
            graphc_switch(&nowhere, b.outside);
        }
    }
}

// Runs one block; false after a fault.
static inline bool run_block(Block &b, uint64_t number) {
    const uint32_t *grid = b.grid;
    b.index[0] = (uint32_t) (number % grid[0]), b.index[1] = (uint32_t) (number / grid[0] % grid[1]), b.index[2] = (uint32_t) (number / grid[0] / grid[1]);
    b.random = (b.launch->seed + 1) * 0x9E3779B97F4A7C15ull ^ (number + 1) * 0xD1B54A32D192ED03ull;
    if (!b.random) b.random = 1;
    b.epoch = 1, b.mark = (uint32_t) (number + 1) << 1, b.seen = UINT32_MAX, b.stores.size = 0;
    forget_shared_memory(b);
    for (int w = 0; w < b.warp_count; w++) {
        const List<Product> products = {b.warps[w].products.items, 0, b.warps[w].products.room};
        b.warps[w] = {b.lanes + w * LANES, w, At::RUNNING, 0, 1, 0, products};
        for (int l = 0; l < LANES; l++) {
            Lane &lane = b.warps[w].lanes[l];
            lane.thread = (uint32_t) (w * LANES + l);
            lane.at = At::RUNNING, lane.committed = 0, lane.fenced = 0, lane.came = lane.sees = false, lane.copies.size = lane.first_copy = 0, lane.accesses.size = 0;
            lane.wrote.size = 0, lane.wrote_at = 0;
            lane.place = fresh_fiber(b.stacks + (size_t) lane.thread * STACK, b, run_thread);
        }
    }
    const size_t threads = (size_t) b.warp_count * LANES;
    void *schedule = fresh_fiber(b.stacks + threads * STACK, b, run_schedule);
    graphc_switch(&b.outside, schedule);
    return !b.failed;
}

}  // namespace emulator
