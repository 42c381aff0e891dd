// Products of four warps that go on while threads do something else: each warp does its 16 rows, as late as may be, when it waits. They
// may be done at once, too: so what they read must be there when they begin.
#pragma once

#include "emulator_warp.h"

namespace emulator {

constexpr int WGMMA_DEPTH = 16, WGMMA_CHUNK = 16, WGMMA_NUMBERS = WGMMA_CHUNK / 2;

// The numbers of a chunk of shared memory, which is at another place of its row: addresses are swizzled.
static void wgmma_chunk(Block &b, Warp &warp, const Product &product, uint64_t operand, uint64_t offset, float *numbers) {
    const uint64_t start = (operand & 0x3fff) << 4, line = CACHE_LINE;
    if (operand >> 62 != 1 || start % line % 32 || (start / line) % 8)
        fault(warp.lanes, product.line, "wgmma reads rows of 128 bytes, 8 of them from a multiple of 1,024; this operand begins at byte %llu", (unsigned long long) start);
    uint64_t at = start + offset;
    at ^= (at / line % 8) * WGMMA_CHUNK;
    shared_offset(b, warp.lanes[0], b.shared + at, WGMMA_CHUNK, product.line, "multiplies");
    shared_read(b, warp.lanes[0], at, WGMMA_CHUNK, stamp(b, warp, warp.lanes[0].thread) | ANY_LANE, product.line);
    uint16_t halves[WGMMA_NUMBERS];
    memcpy(halves, b.shared + at, WGMMA_CHUNK);
    for (int i = 0; i < WGMMA_NUMBERS; i++) {
        if (b.written[at + 2 * i] & UNPUBLISHED)
            fault(warp.lanes, product.line, "wgmma reads shared byte %llu, which was written with no wgmma_publish before the barrier", (unsigned long long) at);
        numbers[i] = product.bfloat ? Bfloat16Pair::element(halves[i], 0) : HalfPair::element(halves[i], 0);
    }
}

// Eight rows of an operand, from one on, as an instruction reads them.
typedef float WgmmaRows[8][WGMMA_DEPTH];
static void wgmma_rows(Block &b, Warp &warp, const Product &product, uint64_t operand, int first, WgmmaRows &rows) {
    const uint64_t between = (operand >> 32 & 0x3fff) << 4;
    for (int row = 0; row < 8; row++)
        for (int chunk = 0; chunk < WGMMA_DEPTH / WGMMA_NUMBERS; chunk++)
            wgmma_chunk(b, warp, product, operand, (first + row) / 8 * between + (first + row) % 8 * CACHE_LINE + chunk * WGMMA_CHUNK, rows[row] + chunk * WGMMA_NUMBERS);
}

// The same where a row of shared memory is a place of the depth, in panels of 64.
static void wgmma_columns_of(Block &b, Warp &warp, const Product &product, uint64_t operand, int first, WgmmaRows &rows) {
    const uint64_t between = (operand >> 32 & 0x3fff) << 4, panel = (operand >> 16 & 0x3fff) << 4;
    for (int k = 0; k < WGMMA_DEPTH; k++) {
        float numbers[WGMMA_NUMBERS];
        wgmma_chunk(b, warp, product, operand, first / 64 * panel + first % 64 * 2 + k / 8 * between + k % 8 * CACHE_LINE, numbers);
        for (int row = 0; row < 8; row++) rows[row][k] = numbers[row];
    }
}

// Multiplies, or only reads what is in shared memory.
static void multiply_product(Block &b, Warp &warp, const Product &product, bool only_reads) {
    WgmmaRows a[2], column;
    for (int half = 0; half < 2; half++) {
        if (!product.held[0]) wgmma_rows(b, warp, product, product.a, warp.number % 4 * 16 + half * 8, a[half]);
        for (int l = 0; product.held[0] && l < LANES; l++)
            for (int i = 0; i < 4; i++) {
                const unsigned pair = product.held[l][i / 2 * 2 + half];
                a[half][l / 4][i / 2 * 8 + l % 4 * 2 + i % 2] = product.bfloat ? Bfloat16Pair::element(pair, i % 2) : HalfPair::element(pair, i % 2);
            }
    }
    for (int first = 0; first < product.columns; first += 8) {
        (product.held[0] ? wgmma_columns_of : wgmma_rows)(b, warp, product, product.b, first, column);
        for (int l = 0; l < LANES && !only_reads; l++)
            for (int i = 0; i < 4; i++) {
                float &sum = product.sums[l][first / 8 * 4 + i];
                if (!product.adds) sum = 0;
                for (int k = 0; k < WGMMA_DEPTH; k++) sum += a[i / 2][l / 4][k] * column[l % 4 * 2 + i % 2][k];
            }
    }
}

// Operands: c, a, b, whether it adds. All lanes name the same matrices, but for those in registers.
template <int columns, bool bfloat, bool held> static void begin_products(Warp &warp) {
    Product product = {{}, {}, 0, operand<uint64_t>(warp, 0, 2), columns, warp.lanes[0].line, bfloat, operand<bool>(warp, 0, 3), warp.ended};
    if (!held) product.a = operand<uint64_t>(warp, 0, 1);
    for (int l = 0; l < LANES; l++) {
        if ((!held && operand<uint64_t>(warp, l, 1) != product.a) || operand<uint64_t>(warp, l, 2) != product.b)
            fault(&warp.lanes[l], product.line, "wgmma is given other operands by this lane than by lane 0");
        product.sums[l] = &operand<float>(warp, l, 0);
        product.held[l] = held ? &operand<unsigned>(warp, l, 1) : nullptr;
    }
    multiply_product(block(), warp, product, true);
    warp.products.add(product);
    block().counters.mma += columns / 8;  // as if it were so many of mma.sync
}

template <int pending> static void finish_products(Warp &warp) {
    Block &b = block();
    size_t done = 0;
    while (done < warp.products.size && warp.products.items[done].group + pending < warp.ended) multiply_product(b, warp, warp.products.items[done++], false);
    warp.products.size -= done;
    memmove(warp.products.items, warp.products.items + done, warp.products.size * sizeof(Product));
}

// What this lane wrote since the last barrier is seen by wgmma from the next on.
static void publish_shared() {
    Block &b = block();
    Lane &lane = *b.lane;
    for (size_t i = 0; i < lane.wrote.size; i++)
        for (uint32_t at = lane.wrote.items[i].offset; at < lane.wrote.items[i].offset + lane.wrote.items[i].bytes; at++)
            if ((b.written[at] & THREAD) == lane.thread) b.written[at] &= ~UNPUBLISHED;
    lane.wrote.size = 0;
}

}  // namespace emulator

DEVICE void wgmma_publish() { emulator::publish_shared(); }
DEVICE uint64_t wgmma_operand(const shared_byte *start) { return graphc_wgmma_operand((unsigned) (start - emulator::block().shared), 16); }
DEVICE uint64_t wgmma_columns(const shared_byte *start, unsigned panel) { return graphc_wgmma_operand((unsigned) (start - emulator::block().shared), panel); }
static inline void wgmma_begin(GRAPHC_LINE) { emulator::meet("wgmma_begin", [](emulator::Warp &) {}, line); }
static inline void wgmma_commit(GRAPHC_LINE) { emulator::meet("wgmma_commit", [](emulator::Warp &warp) { warp.ended++; }, line); }
template <int groups> static inline void wgmma_wait(GRAPHC_LINE) { emulator::meet("wgmma_wait", emulator::finish_products<groups>, line); }
template <int count> static inline void wgmma_arrived(float *) {}

#define GRAPHC_WGMMA_OF(columns, name, bfloat)                                                                                           \
    static inline void wgmma_m64n##columns##k16_##name(float *c, uint64_t a, uint64_t b, bool adds, GRAPHC_LINE) {                       \
        emulator::meet("wgmma_m64n" #columns, emulator::begin_products<columns, bfloat, false>, line, c, &a, &b, &adds);                 \
    }                                                                                                                                    \
    static inline void wgmma_m64n##columns##k16_##name##_columns(float *c, const unsigned *a, uint64_t b, bool adds, GRAPHC_LINE) {      \
        emulator::meet("wgmma_m64n" #columns, emulator::begin_products<columns, bfloat, true>, line, c, (void *) a, &b, &adds);          \
    }
#define GRAPHC_WGMMA(columns) GRAPHC_WGMMA_OF(columns, half, false) GRAPHC_WGMMA_OF(columns, bfloat16, true)
GRAPHC_WGMMA(32)
GRAPHC_WGMMA(40)
GRAPHC_WGMMA(64)
GRAPHC_WGMMA(80)
GRAPHC_WGMMA(96)
GRAPHC_WGMMA(128)
GRAPHC_WGMMA(160)
GRAPHC_WGMMA(192)
GRAPHC_WGMMA(256)
#undef GRAPHC_WGMMA
#undef GRAPHC_WGMMA_OF
