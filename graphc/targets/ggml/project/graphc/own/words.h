#pragma once

// Blocks of parts that meet one row. What is stored is read as words: each has four codes, a byte apart, so a vector of codes takes a shift
// and is not widened. The row lies in the order in which it meets them. An element is code * scale - least; what is least meets the sums of
// the row's parts, which lie behind every DEPTH of its elements.

#include "widen.h"

enum { SUMS = 16, ORDERED = DEPTH + SUMS };

/// How elements lie in a block: those of the lower halves of so many bytes, and behind them those of the upper halves. A part has a scale.
struct halves {
    int bytes, part;
};

/// The sums of the parts of DEPTH elements, in the last of SUMS places.
static inline void sum_parts(const float * from, int part, float * to) {
    for (int i = 0; i < SUMS; i += WIDTH) {
        vector totals[WIDTH];
        for (int j = 0; j < WIDTH; ++j) {
            const int first = (i + j - SUMS) * part + DEPTH;
            totals[j] = (vector){0};
            for (int k = 0; first >= 0 && k < part; k += WIDTH) totals[j] += *(const unaligned *) (from + first + k);
        }
        *(vector *) (to + i) = sums_of(totals);
    }
}

/// A row in the order of words, ORDERED elements for each DEPTH of it.
static void order_row(const float * from, int64_t count, struct halves in, float * to) {
    for (; count > 0; count -= DEPTH, from += DEPTH, to += SUMS) {
        for (int each = 0; each < DEPTH; each += 4 * WIDTH, to += 4 * WIDTH) {
            vector x[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const int byte = each / 8 / WIDTH * 4 * WIDTH + i * WIDTH, upper = each / 4 / WIDTH % 2;
                x[i] = *(const unaligned *) (from + (byte / in.bytes * 2 + upper) * in.bytes + byte % in.bytes);
            }
            const vector even = even_elements(x[0], x[1]), odd = odd_elements(x[0], x[1]);
            const vector other_even = even_elements(x[2], x[3]), other_odd = odd_elements(x[2], x[3]);
            vector * by_place = (vector *) to;
            by_place[0] = even_elements(even, other_even), by_place[1] = even_elements(odd, other_odd);
            by_place[2] = odd_elements(even, other_even), by_place[3] = odd_elements(odd, other_odd);
        }
        sum_parts(from, in.part, to);
    }
}

static inline bits words_at(const uint8_t * from) {
    bits x = *(const bits_anywhere *) from;
#if defined(__AVX__)
    __asm__("" : "+v"(x));  // read once: compilers would do so again for each of the shifts
#endif
    return x;
}

#if defined(__AVX512F__)
/// Codes in the last bits of words, above which anything may be, as numbers.
static inline vector codes_of(bits words, int size) {
    static const vector last_half = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    vector found = (vector) words;
    if (size == 4) return looked_up(four_bits, (integers) words);
    if (size > 5) return __builtin_convertvector((integers) (words & ((1 << size) - 1)), vector);
    __asm__("vpermi2ps %2, %1, %0" : "+v"(found) : "v"(four_bits), "v"(last_half));
    return found;
}

/// 32 bytes beside those of two parts: their bits from `place` on, and for the second part those two places on.
static inline bits beside(const uint8_t * from, int place) {
    static const bits second = {0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2};
    bits found;
    __asm__("vbroadcasti64x4 %1, %0" : "=v"(found) : "m"(*(const uint8_t (*)[32]) from));
    return found >> (second + place);
}

/// Of scales, the one from `first` on for the first lanes, `each` in number, for the next the one `step` on.
static inline vector by_lanes(const float * scales, int first, int step, int each) {
    static const integers lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return looked_up(*(const vector *) scales, first + lanes / each * step);
}
#else
static inline vector codes_of(bits words, int size) { return __builtin_convertvector((integers) (words & ((1 << size) - 1)), vector); }

static inline bits beside(const uint8_t * from, int place) { return *(const bits_anywhere *) from >> place; }

static inline vector by_lanes(const float * scales, int first, int step, int each) {
    static const int32_t lanes[8] __attribute__((aligned(32))) = {0, 0, 0, 0, -1, -1, -1, -1};
    if (each >= WIDTH) return all(scales[first]);
    return choose(*(const integers *) lanes, all(scales[first + step]), all(scales[first]));
}
#endif

/// The sums by lanes of codes times elements of a row.
static inline vector multiply_words(bits codes, int size, const float * row) {
    vector sum = {0};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum += codes_of(codes >> 8 * i, size) * ((const vector *) row)[i];
    return sum;
}

static inline struct shares shares_of_parts(const int8_t parts[16], float scale) {
    struct shares s;
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += WIDTH) *(vector *) (s.scale + i) = scaled(numbers(load((const uint8_t *) parts + i) ^ 128) - 128, scale);
    return s;
}

/// A function that multiplies blocks of a type with an ordered row and adds the products to `total`. `made` are a block's scales, and what
/// is least for each, `least` times as much; what is behind adds the products of the words at a byte to `sum`.
#define BY_WORDS(type, made, least, ...) \
    static void dot_by_words_##type(const void * from, const float * row, int64_t count, int64_t ahead, vector * total) { \
        const struct type * block = from; \
        for (; count > 0; count -= DEPTH, ++block, row += SUMS) { \
            fetch((const char *) block + ahead, sizeof *block); \
            const struct shares s = made; \
            vector sum = {0}; \
            _Pragma("GCC unroll 8") \
            for (int byte = 0; byte < DEPTH / 2; byte += 4 * WIDTH, row += 8 * WIDTH) __VA_ARGS__ \
            _Pragma("GCC unroll 4") \
            for (int i = 0; i < SUMS; i += WIDTH) sum -= *(const vector *) (s.scale + i) * *(const vector *) (row + i) * least; \
            *total += sum; \
        } \
    }

BY_WORDS(q4_k, shares_of(&block->parts), 1.0f, {
    const int part = byte / 32 * 2;
    const bits x = words_at(block->q + byte);
    sum += multiply_words(x, 4, row) * by_lanes(s.scale, part, 2, 8);
    sum += multiply_words(x >> 4, 4, row + 4 * WIDTH) * by_lanes(s.scale, part + 1, 2, 8);
})

BY_WORDS(q5_k, shares_of(&block->parts), 1.0f, {
    const int part = byte / 32 * 2;
    const bits x = words_at(block->q + byte), fifths = beside(block->fifths + byte % 32, part);
    sum += multiply_words((x & 0x0f0f0f0f) | (fifths << 4 & 0x10101010), 5, row) * by_lanes(s.scale, part, 2, 8);
    sum += multiply_words((x >> 4 & 0x0f0f0f0f) | (fifths << 3 & 0x10101010), 5, row + 4 * WIDTH) * by_lanes(s.scale, part + 1, 2, 8);
})

BY_WORDS(q6_k, shares_of_parts(block->parts, float16(block->scale)), 32.0f, {
    const int part = byte / 64 * 8 + byte % 64 / 16;
    const bits x = words_at(block->q + byte), high = beside(block->high + byte / 64 * 32 + byte % 32, byte % 64 / 32 * 2);
    sum += multiply_words((x & 0x0f0f0f0f) | (high << 4 & 0x30303030), 6, row) * by_lanes(s.scale, part, 1, 4);
    sum += multiply_words((x >> 4 & 0x0f0f0f0f) | (high & 0x30303030), 6, row + 4 * WIDTH) * by_lanes(s.scale, part + 4, 1, 4);
})
