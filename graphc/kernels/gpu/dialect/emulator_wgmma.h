// Products of four warps that go on while threads do something else: each warp does its 16 rows, as late as may be, when it waits. They
// may be done at once, too: so what they read must be there when they begin.
#pragma once

#include "emulator_warp.h"

namespace emulator {

// Elements of a row of an operand that an instruction reads: where its description says, with the chunks of 8 rows of 128 bytes swizzled.
constexpr int WGMMA_DEPTH = 16, WGMMA_CHUNK = 16;
static void wgmma_row(Block &b, Warp &warp, const Product &product, uint64_t operand, int row, float *numbers) {
    const uint64_t start = (operand & 0x3fff) << 4, between = (operand >> 32 & 0x3fff) << 4, line = CACHE_LINE;
    if (operand >> 62 != 1 || start % line % 32 || (start / line) % 8)
        fault(warp.lanes, product.line, "wgmma reads rows of 128 bytes, 8 of them from a multiple of 1,024; this operand begins at byte %llu", (unsigned long long) start);
    for (int chunk = 0; chunk < WGMMA_DEPTH * 2 / WGMMA_CHUNK; chunk++) {
        uint64_t at = start + row / 8 * between + row % 8 * line + chunk * WGMMA_CHUNK;
        at ^= (at / line % 8) * WGMMA_CHUNK;
        shared_offset(b, warp.lanes[0], b.shared + at, WGMMA_CHUNK, product.line, "multiplies");
        shared_read(b, warp.lanes[0], at, WGMMA_CHUNK, stamp(b, warp, warp.lanes[0].thread) | ANY_LANE, product.line);
        uint16_t halves[WGMMA_CHUNK / 2];
        memcpy(halves, b.shared + at, WGMMA_CHUNK);
        for (int i = 0; i < WGMMA_CHUNK / 2; i++) {
            if (b.written[at + 2 * i] & UNPUBLISHED)
                fault(warp.lanes, product.line, "wgmma reads shared byte %llu, which was written with no wgmma_publish before the barrier", (unsigned long long) at);
            numbers[chunk * WGMMA_CHUNK / 2 + i] = product.bfloat ? Bfloat16Pair::element(halves[i], 0) : HalfPair::element(halves[i], 0);
        }
    }
}

// Reads all operands of a warp, and does not multiply.
static void read_operands(Block &b, Warp &warp, const Product &product) {
    float numbers[WGMMA_DEPTH];
    for (int row = 0; row < 16; row++) wgmma_row(b, warp, product, product.a, warp.number % 4 * 16 + row, numbers);
    for (int n = 0; n < product.columns; n++) wgmma_row(b, warp, product, product.b, n, numbers);
}

// Operands: c, a, b. All lanes name the same matrices.
template <int columns, bool bfloat> static void begin_products(Warp &warp) {
    Product product = {{}, operand<uint64_t>(warp, 0, 1), operand<uint64_t>(warp, 0, 2), columns, warp.lanes[0].line, bfloat, warp.ended};
    for (int l = 0; l < LANES; l++) {
        if (operand<uint64_t>(warp, l, 1) != product.a || operand<uint64_t>(warp, l, 2) != product.b)
            fault(&warp.lanes[l], product.line, "wgmma is given other operands by this lane than by lane 0");
        product.sums[l] = &operand<float>(warp, l, 0);
    }
    read_operands(block(), warp, product);
    warp.products.add(product);
    block().counters.mma += columns / 8;  // as if it were so many of mma.sync
}

static void multiply_product(Block &b, Warp &warp, const Product &product) {
    float a[16][WGMMA_DEPTH], column[8][WGMMA_DEPTH];
    for (int row = 0; row < 16; row++) wgmma_row(b, warp, product, product.a, warp.number % 4 * 16 + row, a[row]);
    for (int first = 0; first < product.columns; first += 8) {
        for (int n = 0; n < 8; n++) wgmma_row(b, warp, product, product.b, first + n, column[n]);
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < 4; i++) {
                float &sum = product.sums[l][first / 8 * 4 + i];
                for (int k = 0; k < WGMMA_DEPTH; k++) sum += a[l / 4 + i / 2 * 8][k] * column[l % 4 * 2 + i % 2][k];
            }
    }
}

template <int pending> static void finish_products(Warp &warp) {
    Block &b = block();
    size_t done = 0;
    while (done < warp.products.size && warp.products.items[done].group + pending < warp.ended) multiply_product(b, warp, warp.products.items[done++]);
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
DEVICE uint64_t wgmma_operand(const shared_byte *start) { return graphc_wgmma_operand((unsigned) (start - emulator::block().shared)); }
static inline void wgmma_begin(GRAPHC_LINE) { emulator::meet("wgmma_begin", [](emulator::Warp &) {}, line); }
static inline void wgmma_commit(GRAPHC_LINE) { emulator::meet("wgmma_commit", [](emulator::Warp &warp) { warp.ended++; }, line); }
template <int groups> static inline void wgmma_wait(GRAPHC_LINE) { emulator::meet("wgmma_wait", emulator::finish_products<groups>, line); }
template <int count> static inline void wgmma_arrived(float *) {}

#define GRAPHC_WGMMA_OF(columns, name, bfloat)                                                                              \
    static inline void wgmma_m64n##columns##k16_##name(float *c, uint64_t a, uint64_t b, GRAPHC_LINE) {                     \
        emulator::meet("wgmma_m64n" #columns "k16_" #name, emulator::begin_products<columns, bfloat>, line, c, &a, &b);     \
    }
#define GRAPHC_WGMMA(columns) GRAPHC_WGMMA_OF(columns, half, false) GRAPHC_WGMMA_OF(columns, bfloat16, true)
GRAPHC_WGMMA(32)
GRAPHC_WGMMA(64)
GRAPHC_WGMMA(96)
GRAPHC_WGMMA(128)
GRAPHC_WGMMA(160)
GRAPHC_WGMMA(192)
GRAPHC_WGMMA(256)
#undef GRAPHC_WGMMA
#undef GRAPHC_WGMMA_OF
