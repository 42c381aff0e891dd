// What the emulator knows of memory: which accesses are allowed, which race, and what they cost.
#pragma once

#include "emulator_block.h"

namespace emulator {

enum Kind : uint8_t { SHARED_LOAD, SHARED_STORE, GLOBAL_LOAD, GLOBAL_STORE };
constexpr uint64_t CACHE_LINE = 128, SECTOR = 32, BANKS = 32, BANK = 4;

// ---- Shared memory: who touched a byte last
//
// A stamp says when and by whom: the block's epoch (barriers so far), the warp's (its barriers so far), and the thread. Touches of
// one epoch of the block by different warps are not in order, nor are those of one epoch of the warp by different lanes of it.

constexpr int WARP_EPOCH = 16, BLOCK_EPOCH = 40;
constexpr uint64_t THREAD = 0x3ff, ANY_LANE = 0x400, ANY_WARP = 0x800, SOMEBODY = 0x1000;
constexpr uint64_t UNDER_WAY = 1ull << 63;  // an asynchronous copy writes it, and has not been waited for
constexpr uint64_t UNPUBLISHED = 0x2000;     // wgmma does not see it
constexpr uint64_t EPOCHS = (1ull << 24) - 1, BLOCK_EPOCHS = (1ull << 23) - 1;

static inline uint64_t stamp(const Block &b, const Warp &warp, uint64_t thread) {
    return (b.epoch & BLOCK_EPOCHS) << BLOCK_EPOCH | (warp.epoch & EPOCHS) << WARP_EPOCH | SOMEBODY | thread;
}

static inline Warp &warp_of(Block &b, const Lane &lane) { return b.warps[lane.thread / LANES]; }

// True if what `before` says happened before what `now` says, whoever waits for whom.
static inline bool in_order(uint64_t before, uint64_t now) {
    if ((before & ~UNDER_WAY) >> BLOCK_EPOCH != now >> BLOCK_EPOCH || before == 0) return true;
    if (before & ANY_WARP) return false;
    if ((before & THREAD) / LANES != (now & THREAD) / LANES) return false;
    if ((before >> WARP_EPOCH & EPOCHS) != (now >> WARP_EPOCH & EPOCHS)) return true;
    return !((before | now) & ANY_LANE) && (before & THREAD) == (now & THREAD);
}

// The stamp of everybody who read: `before`, and `now` too.
static inline uint64_t joined(uint64_t before, uint64_t now) {
    if (before >> BLOCK_EPOCH != now >> BLOCK_EPOCH) return now;
    if ((before & ANY_WARP) || (before & THREAD) / LANES != (now & THREAD) / LANES) return now | ANY_WARP;
    if ((before ^ now) >> WARP_EPOCH) return now;
    return now | ((before ^ now) & THREAD ? ANY_LANE : before & ANY_LANE);
}

[[noreturn]] __attribute__((noinline, cold)) static void race(const Lane &lane, int line, const char *does, uint64_t offset, const char *done, uint64_t before, uint64_t now) {
    const uint64_t warp = (before & THREAD) / LANES, mine = (now & THREAD) / LANES;
    if (before & ANY_WARP) fault(&lane, line, "%s shared byte %llu, which several warps %s with no barrier between: a race", does, (unsigned long long) offset, done);
    if (warp != mine) fault(&lane, line, "%s shared byte %llu, which warp %llu %s with no barrier between: a race", does, (unsigned long long) offset, (unsigned long long) warp, done);
    fault(&lane, line, "%s shared byte %llu, which another lane of the warp %s with no warp_barrier between: a race", does, (unsigned long long) offset, done);
}

// Where in shared memory an address is. Faults for what is outside or not aligned.
static inline uint64_t shared_offset(Block &b, const Lane &lane, const unsigned char *address, uint64_t bytes, int line, const char *does) {
    const uint64_t offset = (uint64_t) (address - b.shared);
    if (offset > b.shared_bytes || bytes > b.shared_bytes - offset)
        fault(&lane, line, "%s %llu bytes at byte %lld of shared memory, which has %llu", does, (unsigned long long) bytes, (long long) offset, (unsigned long long) b.shared_bytes);
    if (offset % bytes) fault(&lane, line, "%s %llu bytes at byte %llu of shared memory, which is not aligned", does, (unsigned long long) bytes, (unsigned long long) offset);
    return offset;
}

[[noreturn]] __attribute__((noinline, cold)) static void unreadable(const Lane &lane, int line, uint64_t offset, uint64_t before, uint64_t now) {
    if (before & UNDER_WAY) fault(&lane, line, "reads shared byte %llu, to which an asynchronous copy of warp %llu, lane %llu is under way: it was not waited for", (unsigned long long) offset, (unsigned long long) (before & THREAD) / LANES, (unsigned long long) (before & THREAD) % LANES);
    if (!before) fault(&lane, line, "reads shared byte %llu, which nothing has written", (unsigned long long) offset);
    race(lane, line, "reads", offset, "wrote", before, now);
}

// A read of shared memory; `now` is the reader's stamp.
static inline void shared_read(Block &b, const Lane &lane, uint64_t offset, uint64_t bytes, uint64_t now, int line) {
    for (uint64_t i = offset; i < offset + bytes; i++) {
        const uint64_t before = b.written[i];
        if (!before || (before & UNDER_WAY) || !in_order(before, now)) unreadable(lane, line, i, before, now);
        if (b.read[i] != now) b.read[i] = joined(b.read[i], now);
    }
}

// Remember what a lane writes, for the case that it publishes it before the next barrier.
static inline void wrote(const Block &b, Lane &lane, uint64_t offset, uint64_t bytes) {
    if (lane.wrote_at != b.epoch) lane.wrote_at = b.epoch, lane.wrote.size = 0;
    lane.wrote.add({(uint32_t) offset, (uint32_t) bytes});
}

// A write to shared memory; of unknown numbers (an asynchronous copy) without `from`. What changes nothing races with nothing: nobody
// can tell when it was.
static inline void shared_write(Block &b, const Lane &lane, uint64_t offset, const void *from, uint64_t bytes, uint64_t now, int line) {
    const bool changes = !from || memcmp(b.shared + offset, from, bytes) != 0;
    for (uint64_t i = offset; i < offset + bytes; i++) {
        const uint64_t before = b.written[i], read = b.read[i];
        if (before & UNDER_WAY) fault(&lane, line, "writes shared byte %llu, to which an asynchronous copy is under way", (unsigned long long) i);
        if (!changes && before) continue;
        if (!in_order(before, now)) race(lane, line, "writes", i, "wrote", before, now);
        if (!in_order(read, now)) race(lane, line, "writes", i, "read", read, now);
        b.written[i] = (from ? now : now | UNDER_WAY) | UNPUBLISHED;
    }
    if (from) memcpy(b.shared + offset, from, bytes);
    else memset(b.shared + offset, 0xff, bytes);
}

inline void forget_shared_memory(Block &b) {
    memset(b.shared, 0xff, b.shared_bytes);
    memset(b.written, 0, b.shared_bytes * sizeof *b.written);
    memset(b.read, 0, b.shared_bytes * sizeof *b.read);
}

// ---- Global memory

// True if an access is within a buffer. Faults if not, or if it is not aligned.
static inline void check_global(Block &b, const Lane &lane, const void *address, uint64_t bytes, int line, const char *does) {
    const uint64_t at = (uint64_t) address;
    const EmulatorBuffer *buffer = b.last_buffer;
    if (!buffer || at - (uint64_t) buffer->start >= buffer->bytes) {
        const EmulatorBuffer *nearest = nullptr;
        uint64_t least = UINT64_MAX;
        buffer = nullptr;
        for (uint64_t i = 0; i < b.launch->buffer_count; i++) {
            const EmulatorBuffer &each = b.launch->buffers[i];
            const uint64_t start = (uint64_t) each.start, end = start + each.bytes;
            if (at - start < each.bytes) buffer = &each;
            const uint64_t away = at < start ? start - at : at - end;
            if (away < least) least = away, nearest = &each;
        }
        if (!buffer) {
            if (!nearest) fault(&lane, line, "%s %llu bytes of global memory, and the launch has no buffers", does, (unsigned long long) bytes);
            const bool under = at < (uint64_t) nearest->start;
            fault(&lane, line, "%s %llu bytes of global memory %llu bytes %s buffer %s of %llu bytes", does, (unsigned long long) bytes, (unsigned long long) least,
                  under ? "before" : "behind the end of", nearest->name ? nearest->name : "?", (unsigned long long) nearest->bytes);
        }
        b.last_buffer = buffer;
    }
    const uint64_t offset = at - (uint64_t) buffer->start;
    if (bytes > buffer->bytes - offset)
        fault(&lane, line, "%s %llu bytes of global memory at byte %llu of buffer %s, which has %llu", does, (unsigned long long) bytes, (unsigned long long) offset, buffer->name ? buffer->name : "?", (unsigned long long) buffer->bytes);
    if (at % bytes) fault(&lane, line, "%s %llu bytes of global memory at byte %llu of buffer %s, which is not aligned", does, (unsigned long long) bytes, (unsigned long long) offset, buffer->name ? buffer->name : "?");
}

// ---- Global memory: which blocks see what others write
//
// A word that a block has written in this launch has that block's mark, whose lowest bit says that it is published. A lane's atomic add
// publishes what was written before its last device_fence: by itself, or by others of the block before a barrier. A block sees what is
// published behind an atomic add and a device_fence of a lane; its other lanes do so behind a barrier.

constexpr uint64_t WORD = 4;
constexpr uint32_t PUBLISHED = 1;

// The marks of a buffer's words, from that of an address in it; null if nothing of it was written and it is not to be.
static inline uint32_t *marks_at(Block &b, const void *address, bool writes) {
    const EmulatorBuffer *buffer = b.last_buffer;
    uint32_t **place = &b.marks[buffer - b.launch->buffers], *marks = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (!marks && !writes) return nullptr;
    if (!marks) {
        uint32_t *made = (uint32_t *) calloc(buffer->bytes / WORD + 2, sizeof *made);
        if (!made) abort();
        if (__atomic_compare_exchange_n(place, &marks, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) marks = made;
        else free(made);
    }
    return marks + ((uint64_t) address - (uint64_t) buffer->start) / WORD;
}

static inline uint32_t words_of(uint64_t bytes) { return (uint32_t) (bytes < WORD ? 1 : bytes / WORD); }

static inline void mark(Block &b, const Lane &lane, const void *address, uint64_t bytes) {
    const Stored stored = {marks_at(b, address, true), words_of(bytes), lane.thread, b.epoch};
    for (uint32_t i = 0; i < stored.count; i++) __atomic_store_n(stored.marks + i, b.mark, __ATOMIC_RELAXED);
    b.stores.add(stored);
}

// Faults where an address has what another block wrote, which this lane need not see, or, read through a cache that is for what
// nobody writes, what any block wrote.
static inline void check_seen(Block &b, const Lane &lane, const void *address, uint64_t bytes, int line, bool readonly) {
    const uint32_t *marks = marks_at(b, address, false);
    for (uint32_t i = 0; marks && i < words_of(bytes); i++) {
        const uint32_t found = __atomic_load_n(marks + i, __ATOMIC_RELAXED);
        if (!found) continue;
        const char *name = b.last_buffer->name ? b.last_buffer->name : "?";
        const unsigned other = (found >> 1) - 1;
        if (readonly) fault(&lane, line, "reads of global memory, buffer %s, as what nobody writes what block %u wrote", name, other);
        if (found >> 1 == b.mark >> 1) continue;
        if (!(found & PUBLISHED)) fault(&lane, line, "reads of global memory, buffer %s, what block %u wrote with no device_fence and atomic add behind it", name, other);
        if (!lane.sees && b.seen >= b.epoch) fault(&lane, line, "reads of global memory, buffer %s, what block %u wrote with no atomic add and device_fence before", name, other);
    }
}

static inline void publish(Block &b, Lane &lane) {
    for (size_t i = 0; i < lane.fenced; i++) {
        const Stored &each = b.stores.items[i];
        if (each.thread != lane.thread && each.epoch >= lane.fence) continue;
        for (uint32_t k = 0; k < each.count; k++) {
            uint32_t own = b.mark;
            __atomic_compare_exchange_n(each.marks + k, &own, b.mark | PUBLISHED, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        }
    }
    lane.came = true;
}

static inline void device_fence() {
    Block &b = block();
    Lane &lane = *b.lane;
    lane.fence = b.epoch, lane.fenced = b.stores.size;
    lane.sees = lane.came;
    if (lane.sees && b.epoch < b.seen) b.seen = b.epoch;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// ---- What accesses cost

// How often shared memory is asked to serve these addresses of up to 32 lanes: in a bank, different words come one after the other.
static inline unsigned wavefronts(const uint64_t *words, int count) {
    uint64_t seen[BANKS][LANES];
    uint8_t used[BANKS] = {};
    unsigned most = 0;
    for (int i = 0; i < count; i++) {
        const unsigned bank = (unsigned) (words[i] % BANKS);
        bool known = false;
        for (unsigned k = 0; k < used[bank] && !known; k++) known = seen[bank][k] == words[i];
        if (known) continue;
        seen[bank][used[bank]++] = words[i];
        if (used[bank] > most) most = used[bank];
    }
    return most;
}

// The same for accesses of `bytes` each: of 8 bytes, half a warp is served at once, of 16 a quarter. `needed` is what is least.
static inline unsigned shared_cost(const uint64_t *addresses, const bool *takes_part, unsigned bytes, unsigned *needed) {
    const unsigned words_each = bytes > BANK ? bytes / BANK : 1, lanes_at_once = LANES / words_each;
    unsigned total = 0;
    *needed = 0;
    for (unsigned first = 0; first < LANES; first += lanes_at_once) {
        uint64_t words[LANES];
        int count = 0;
        for (unsigned l = first; l < first + lanes_at_once; l++)
            for (unsigned w = 0; takes_part[l] && w < words_each; w++) words[count++] = addresses[l] / BANK + w;
        total += wavefronts(words, count);
        *needed += count != 0;
    }
    return total;
}

static inline unsigned sectors(const uint64_t *addresses, const bool *takes_part) {
    uint64_t seen[LANES];
    unsigned count = 0;
    for (int l = 0; l < LANES; l++) {
        if (!takes_part[l]) continue;
        const uint64_t sector = addresses[l] / SECTOR;
        bool known = false;
        for (unsigned k = count; k-- > 0 && !known;) known = seen[k] == sector;
        if (!known) seen[count++] = sector;
    }
    return count;
}

static inline void count_request(EmulatorCounters &c, const Access &like, const uint64_t *addresses, const bool *takes_part) {
    if (like.kind <= SHARED_STORE) {
        unsigned needed, total = shared_cost(addresses, takes_part, like.bytes, &needed);
        c.shared_requests++, c.shared_wavefronts += total, c.shared_conflicts += total - needed;
        return;
    }
    uint64_t bytes = 0;
    for (int l = 0; l < LANES; l++) bytes += takes_part[l] ? like.bytes : 0;
    const unsigned touched = sectors(addresses, takes_part);
    if (like.bytes == 16) c.global_wide_bytes += bytes;
    if (like.kind == GLOBAL_LOAD) c.global_load_requests++, c.global_load_sectors += touched, c.global_load_bytes += bytes;
    else c.global_store_requests++, c.global_store_sectors += touched, c.global_store_bytes += bytes;
}

// Lanes run one after the other: what they did since the warp's last operation is put together here, instruction by instruction. Where
// lanes leave out different turns of one loop, the requests may be put together from different turns.
inline void count_accesses(Block &b, Warp &warp) {
    size_t next[LANES] = {};
    for (int first = 0; first < LANES;) {
        if (next[first] == warp.lanes[first].accesses.size) {
            warp.lanes[first].accesses.size = 0;
            first++;
            continue;
        }
        const Access like = warp.lanes[first].accesses.items[next[first]];
        uint64_t addresses[LANES];
        bool takes_part[LANES] = {};
        for (int l = first; l < LANES; l++) {
            const List<Access> &mine = warp.lanes[l].accesses;
            if (next[l] == mine.size) continue;
            const Access &access = mine.items[next[l]];
            if (access.line != like.line || access.kind != like.kind || access.bytes != like.bytes) continue;
            takes_part[l] = true, addresses[l] = access.address;
            next[l]++;
        }
        count_request(b.counters, like, addresses, takes_part);
    }
}

static inline void note(Lane &lane, const void *address, uint64_t bytes, Kind kind, int line) {
    lane.accesses.add({(uint64_t) address, line, kind, (uint8_t) bytes});
}

// ---- What the dialect's functions call

static inline void load_shared(void *to, const unsigned char *address, uint64_t bytes, int line) {
    Block &b = block();
    Lane &lane = *b.lane;
    const uint64_t offset = shared_offset(b, lane, address, bytes, line, "reads");
    shared_read(b, lane, offset, bytes, stamp(b, warp_of(b, lane), lane.thread), line);
    note(lane, (const void *) offset, bytes, SHARED_LOAD, line);
    memcpy(to, address, bytes);
}

static inline void store_shared(unsigned char *address, const void *from, uint64_t bytes, int line) {
    Block &b = block();
    Lane &lane = *b.lane;
    const uint64_t offset = shared_offset(b, lane, address, bytes, line, "writes");
    shared_write(b, lane, offset, from, bytes, stamp(b, warp_of(b, lane), lane.thread), line);
    wrote(b, lane, offset, bytes);
    note(lane, (const void *) offset, bytes, SHARED_STORE, line);
}

static inline void load_global(void *to, const void *address, uint64_t bytes, int line, bool readonly = false) {
    Block &b = block();
    check_global(b, *b.lane, address, bytes, line, "reads");
    check_seen(b, *b.lane, address, bytes, line, readonly);
    note(*b.lane, address, bytes, GLOBAL_LOAD, line);
    memcpy(to, address, bytes);
}

static inline void store_global(void *address, const void *from, uint64_t bytes, int line) {
    Block &b = block();
    check_global(b, *b.lane, address, bytes, line, "writes");
    mark(b, *b.lane, address, bytes);
    note(*b.lane, address, bytes, GLOBAL_STORE, line);
    memcpy(address, from, bytes);
}

// A line of caches that has no value any more: NaN for whoever reads it before it is written.
static inline void discard_global(void *address, int line) {
    Block &b = block();
    check_global(b, *b.lane, address, 1, line, "discards");
    const EmulatorBuffer &buffer = *b.last_buffer;
    const uint64_t offset = (uint64_t) address - (uint64_t) buffer.start;
    if (offset % CACHE_LINE || buffer.bytes - offset < CACHE_LINE)
        fault(b.lane, line, "discards no whole line of %llu bytes at byte %llu of buffer %s, which has %llu", (unsigned long long) CACHE_LINE, (unsigned long long) offset, buffer.name ? buffer.name : "?", (unsigned long long) buffer.bytes);
    check_seen(b, *b.lane, address, CACHE_LINE, line, false);
    memset(address, 0xff, CACHE_LINE);
}

static inline void copy_async(unsigned char *to, const void *from, uint64_t bytes, bool valid, int line) {
    Block &b = block();
    Lane &lane = *b.lane;
    const uint64_t offset = shared_offset(b, lane, to, bytes, line, "copies to");
    if (valid) {
        check_global(b, lane, from, bytes, line, "copies from");
        check_seen(b, lane, from, bytes, line, false);
        note(lane, from, bytes, GLOBAL_LOAD, line);
    }
    shared_write(b, lane, offset, nullptr, bytes, stamp(b, warp_of(b, lane), lane.thread), line);
    note(lane, (const void *) offset, bytes, SHARED_STORE, line);
    lane.copies.add({(const unsigned char *) from, (uint32_t) offset, lane.committed, (uint8_t) bytes, valid});
}

// Let this lane's copies arrive, but for the last `pending` groups.
static inline void copy_wait(uint32_t pending) {
    Block &b = block();
    Lane &lane = *b.lane;
    const uint64_t now = stamp(b, warp_of(b, lane), lane.thread);
    List<Copy> &copies = lane.copies;
    for (; lane.first_copy < copies.size && copies.items[lane.first_copy].group + pending < lane.committed; lane.first_copy++) {
        const Copy &copy = copies.items[lane.first_copy];
        if (copy.valid) memcpy(b.shared + copy.offset, copy.from, copy.bytes);
        else memset(b.shared + copy.offset, 0, copy.bytes);
        for (uint64_t i = copy.offset; i < copy.offset + (uint64_t) copy.bytes; i++) b.written[i] = now | UNPUBLISHED;
        wrote(b, lane, copy.offset, copy.bytes);
    }
    if (2 * lane.first_copy < copies.size) return;
    copies.size -= lane.first_copy;
    memmove(copies.items, copies.items + lane.first_copy, copies.size * sizeof(Copy));
    lane.first_copy = 0;
}

}  // namespace emulator
