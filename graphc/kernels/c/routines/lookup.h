// A table of bytes for 32 of them at once: an instruction looks up the low halves of bytes in 16 numbers, and the high halves say by their bits
// in which 16.
#pragma once

#include <stdint.h>

#if defined(__AVX2__)
#define GRAPHC_LOOKS_UP_VECTORS

typedef uint8_t graphc_looked_up __attribute__((vector_size(32), may_alias));
typedef graphc_looked_up graphc_loose_looked_up __attribute__((aligned(1)));
typedef uint16_t graphc_looked_up_shorts __attribute__((vector_size(32), may_alias));

// The parts of 16 numbers, each twice.
struct graphc_tables {
    graphc_looked_up parts[16];
};

static inline void graphc_tables_of(const uint8_t * table, struct graphc_tables * tables) {
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 32; k++) tables->parts[i][k] = table[16 * i + k % 16];
    }
}

// The second where a byte's highest bit is set.
static inline graphc_looked_up graphc_chosen(graphc_looked_up first, graphc_looked_up second, graphc_looked_up by) {
    graphc_looked_up found;
    __asm__("vpblendvb %3, %2, %1, %0" : "=x"(found) : "x"(first), "x"(second), "x"(by));
    return found;
}

// `turned` is what turns bits of x first.
static inline void graphc_look_up(const struct graphc_tables * tables, const uint8_t * x, uint8_t turned, uint8_t * y) {
    const graphc_looked_up bytes = *(const graphc_loose_looked_up *) x ^ turned, low = bytes & 15;
    const graphc_looked_up_shorts words = (graphc_looked_up_shorts) bytes;
    const graphc_looked_up by[4] = {(graphc_looked_up) (words << 3), (graphc_looked_up) (words << 2), (graphc_looked_up) (words << 1), bytes};
    graphc_looked_up waiting[4];  // of 16, 32, 64 and 128 numbers
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        graphc_looked_up found;
        __asm__("vpshufb %2, %1, %0" : "=x"(found) : "x"(tables->parts[i]), "x"(low));
        int level = 0;
#pragma GCC unroll 4
        for (; level < 4 && (i >> level & 1); level++) found = graphc_chosen(waiting[level], found, by[level]);
        if (level < 4) waiting[level] = found;
        else *(graphc_loose_looked_up *) y = found;
    }
}
#endif
