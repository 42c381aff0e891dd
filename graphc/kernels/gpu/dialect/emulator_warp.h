// What the lanes of a warp do together: each brings its registers, the last that comes does it for all.
#pragma once

namespace emulator {

template <class T> static inline T &operand(Warp &warp, int lane, int number) { return *(T *) warp.lanes[lane].operands[number]; }

// Operands: where the value is and the result goes; which lane it comes from (an int; outside of the warp: the lane's own).
template <class T> static void exchange(Warp &warp) {
    T values[LANES];
    for (int l = 0; l < LANES; l++) values[l] = operand<T>(warp, l, 0);
    for (int l = 0; l < LANES; l++) {
        const int from = operand<int>(warp, l, 1);
        operand<T>(warp, l, 0) = values[from >= 0 && from < LANES ? from : l];
    }
}

static void gather_votes(Warp &warp) {
    unsigned votes = 0;
    for (int l = 0; l < LANES; l++) votes |= (operand<unsigned>(warp, l, 0) != 0 ? 1u : 0u) << l;
    for (int l = 0; l < LANES; l++) operand<unsigned>(warp, l, 0) = votes;
}

// Operands: registers; the address of a row of 8 elements of 16 bits. Matrix i has its rows from lanes 8 i to 8 i + 7.
template <int matrices, bool transposed> static void load_matrices(Warp &warp) {
    Block &b = block();
    uint16_t rows[matrices * 8][8];
    for (int m = 0; m < matrices; m++) {
        uint64_t words[8 * 4];
        for (int r = 0; r < 8; r++) {
            const Lane &lane = warp.lanes[m * 8 + r];
            const unsigned char *address = (const unsigned char *) lane.operands[1];
            const uint64_t offset = shared_offset(b, lane, address, 16, lane.line, "reads");
            shared_read(b, lane, offset, 16, stamp(b, warp, lane.thread) | ANY_LANE, lane.line);
            memcpy(rows[m * 8 + r], address, 16);
            for (int w = 0; w < 4; w++) words[r * 4 + w] = offset / BANK + (uint64_t) w;
        }
        const unsigned total = wavefronts(words, 8 * 4);
        b.counters.load_matrix_wavefronts += total, b.counters.load_matrix_conflicts += total - 1;
    }
    for (int l = 0; l < LANES; l++) {
        unsigned *registers = &operand<unsigned>(warp, l, 0);
        for (int m = 0; m < matrices; m++) {
            const int major = l / 4, minor = l % 4 * 2;
            const uint16_t low = transposed ? rows[m * 8 + minor][major] : rows[m * 8 + major][minor];
            const uint16_t high = transposed ? rows[m * 8 + minor + 1][major] : rows[m * 8 + major][minor + 1];
            registers[m] = low | (unsigned) high << 16;
        }
    }
}

// How an operand's elements lie in 32-bit registers.
struct HalfPair {
    typedef float Number;
    static constexpr int COUNT = 2;
    static Number element(unsigned bits, int i) { return to_float(half_t{(uint16_t) (bits >> 16 * i)}); }
};
struct Bfloat16Pair {
    typedef float Number;
    static constexpr int COUNT = 2;
    static Number element(unsigned bits, int i) { return float_of(bits >> 16 * i << 16); }
};
struct Tf32 {
    typedef float Number;
    static constexpr int COUNT = 1;
    static Number element(unsigned bits, int) { return float_of(bits & ~0x1fffu); }  // tensor cores do not read the lowest bits
};
struct Bytes {
    typedef int Number;
    static constexpr int COUNT = 4;
    static Number element(unsigned bits, int i) { return (int8_t) (bits >> 8 * i); }
};

// How accumulators lie in a lane's registers: rows lane / 4 and lane / 4 + 8, columns lane % 4 * 2 and the next.
template <class T> struct Whole {
    static T get(const T *registers, int i) { return registers[i]; }
    static void set(T *registers, const T *values) { memcpy(registers, values, 4 * sizeof(T)); }
    typedef T Register;
};
struct Halves {
    static float get(const unsigned *registers, int i) { return HalfPair::element(registers[i / 2], i % 2); }
    static void set(unsigned *registers, const float *values) { registers[0] = pack_half(values[0], values[1]), registers[1] = pack_half(values[2], values[3]); }
    typedef unsigned Register;
};

// c += a b for a of 16 x depth, b of depth x 8; operands: c, a, b. Each sum starts with c and goes along the depth.
template <class Pair, class Accumulators, int depth> static void multiply_matrices(Warp &warp) {
    typedef typename Pair::Number Number;
    typedef typename Accumulators::Register Register;
    constexpr int EACH = Pair::COUNT, CHUNK = 4 * EACH;  // of depth, in one register of the four lanes of a row
    constexpr int COLUMNS = depth / CHUNK;
    static_assert(depth == CHUNK * COLUMNS, "a row is whole registers of four lanes");
    Number a[16][depth], b[depth][8], c[16][8];
    for (int l = 0; l < LANES; l++) {
        const unsigned *mine = &operand<unsigned>(warp, l, 1), *yours = &operand<unsigned>(warp, l, 2);
        const Register *sums = &operand<Register>(warp, l, 0);
        const int row = l / 4, place = l % 4;
        for (int k = 0; k < COLUMNS; k++)
            for (int e = 0; e < EACH; e++) {
                const int at = k * CHUNK + place * EACH + e;
                a[row][at] = Pair::element(mine[2 * k], e);
                a[row + 8][at] = Pair::element(mine[2 * k + 1], e);
                b[at][row] = Pair::element(yours[k], e);
            }
        for (int i = 0; i < 4; i++) c[row + i / 2 * 8][place * 2 + i % 2] = Accumulators::get(sums, i);
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < depth; k++)
            for (int column = 0; column < 8; column++) c[row][column] += a[row][k] * b[k][column];
    for (int l = 0; l < LANES; l++) {
        Number values[4];
        for (int i = 0; i < 4; i++) values[i] = c[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
        Accumulators::set(&operand<Register>(warp, l, 0), values);
    }
    block().counters.mma++;
}

}  // namespace emulator

// ---- Shuffles and votes

template <class T> static inline T graphc_shuffle(const char *name, T value, int from, int line) {
    emulator::meet(name, emulator::exchange<T>, line, &value, &from);
    return value;
}
template <class T> static inline T shuffle_xor(T value, int mask, GRAPHC_LINE) { return graphc_shuffle("shuffle_xor", value, lane_index() ^ mask, line); }
template <class T> static inline T shuffle_down(T value, int by, GRAPHC_LINE) { return graphc_shuffle("shuffle_down", value, lane_index() + by, line); }
template <class T> static inline T shuffle_up(T value, int by, GRAPHC_LINE) { return graphc_shuffle("shuffle_up", value, lane_index() - by, line); }
template <class T> static inline T shuffle(T value, int lane, GRAPHC_LINE) { return graphc_shuffle("shuffle", value, lane & 31, line); }
static inline unsigned ballot(bool vote, GRAPHC_LINE) {
    unsigned votes = vote;
    emulator::meet("ballot", emulator::gather_votes, line, &votes);
    return votes;
}
static inline bool vote_any(bool vote, GRAPHC_LINE) { return ballot(vote, line) != 0; }
static inline bool vote_all(bool vote, GRAPHC_LINE) { return ballot(vote, line) == 0xffffffffu; }

// ---- Matrices

#define GRAPHC_LOAD_MATRIX(count)                                                                                                          \
    static inline void load_matrix_x##count(unsigned *registers, const shared_byte *row, GRAPHC_LINE) {                                    \
        emulator::meet("load_matrix", emulator::load_matrices<count, false>, line, registers, (void *) row);                               \
    }                                                                                                                                      \
    static inline void load_matrix_transposed_x##count(unsigned *registers, const shared_byte *row, GRAPHC_LINE) {                         \
        emulator::meet("load_matrix_transposed", emulator::load_matrices<count, true>, line, registers, (void *) row);                     \
    }
GRAPHC_LOAD_MATRIX(1)
GRAPHC_LOAD_MATRIX(2)
GRAPHC_LOAD_MATRIX(4)
#undef GRAPHC_LOAD_MATRIX

#define GRAPHC_MMA(name, accumulator, pair, accumulators, depth)                                                                           \
    static inline void name(accumulator *c, const unsigned *a, const unsigned *b, GRAPHC_LINE) {                                           \
        emulator::meet(#name, emulator::multiply_matrices<emulator::pair, emulator::accumulators, depth>, line, c, (void *) a, (void *) b); \
    }
GRAPHC_MMA(mma_m16n8k16_half, float, HalfPair, Whole<float>, 16)
GRAPHC_MMA(mma_m16n8k16_half_half, unsigned, HalfPair, Halves, 16)
GRAPHC_MMA(mma_m16n8k16_bfloat16, float, Bfloat16Pair, Whole<float>, 16)
GRAPHC_MMA(mma_m16n8k8_half, float, HalfPair, Whole<float>, 8)
GRAPHC_MMA(mma_m16n8k8_tf32, float, Tf32, Whole<float>, 8)
GRAPHC_MMA(mma_m16n8k32_int8, int, Bytes, Whole<int>, 32)
#undef GRAPHC_MMA
