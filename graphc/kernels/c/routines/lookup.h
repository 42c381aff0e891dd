// A table of bytes for as many of them at once as a vector has: an instruction looks up their last bits in 16 numbers, or in 128, and the other bits
// say in which.
#pragma once

#include <stdint.h>

#if defined(__AVX512VBMI__)
#define GRAPHC_LOOKS_UP_VECTORS

enum { GRAPHC_LOOKED_UP = 64 };

typedef uint8_t graphc_looked_up __attribute__((vector_size(GRAPHC_LOOKED_UP), may_alias));
typedef graphc_looked_up graphc_loose_looked_up __attribute__((aligned(1)));

struct graphc_tables {
    graphc_looked_up parts[4];
};

static inline void graphc_tables_of(const uint8_t * table, struct graphc_tables * tables) {
    for (int i = 0; i < 4; i++) tables->parts[i] = ((const graphc_loose_looked_up *) table)[i];
}

// `turned` is what turns bits of x first.
static inline void graphc_look_up(const struct graphc_tables * tables, const uint8_t * x, uint8_t turned, uint8_t * y) {
    const graphc_looked_up bytes = *(const graphc_loose_looked_up *) x ^ turned, * const parts = tables->parts;
    graphc_looked_up first = bytes, second = bytes;
    uint64_t upper;
    __asm__("vpermi2b %2, %1, %0" : "+v"(first) : "v"(parts[0]), "v"(parts[1]));
    __asm__("vpermi2b %2, %1, %0" : "+v"(second) : "v"(parts[2]), "v"(parts[3]));
    __asm__("vpmovb2m %1, %0" : "=Yk"(upper) : "v"(bytes));
    __asm__("vpblendmb %2, %1, %0 %{%3%}" : "=v"(first) : "v"(first), "v"(second), "Yk"(upper));
    *(graphc_loose_looked_up *) y = first;
}
#elif defined(__AVX2__)
#define GRAPHC_LOOKS_UP_VECTORS

enum { GRAPHC_LOOKED_UP = 32 };

typedef uint8_t graphc_looked_up __attribute__((vector_size(GRAPHC_LOOKED_UP), may_alias));
typedef graphc_looked_up graphc_loose_looked_up __attribute__((aligned(1)));
typedef uint16_t graphc_looked_up_shorts __attribute__((vector_size(GRAPHC_LOOKED_UP), may_alias));

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
