// Types and exact integer functions of the dialect, the same under every toolchain. DEVICE is defined before.
#pragma once

// 16-bit floating-point numbers as they lie in memory: to compute, convert them.
struct half_t {
    uint16_t bits;
};
struct bfloat16_t {
    uint16_t bits;
};

DEVICE unsigned bits_of(float number) {
    union {
        float number;
        unsigned bits;
    } same = {number};
    return same.bits;
}
DEVICE float float_of(unsigned bits) {
    union {
        unsigned bits;
        float number;
    } same = {bits};
    return same.number;
}
DEVICE unsigned pack(half_t low, half_t high) { return low.bits | (unsigned) high.bits << 16; }
DEVICE unsigned pack(bfloat16_t low, bfloat16_t high) { return low.bits | (unsigned) high.bits << 16; }
DEVICE float to_float(bfloat16_t number) { return float_of((unsigned) number.bits << 16); }
DEVICE float bfloat16_low(unsigned pair) { return float_of(pair << 16); }
DEVICE float bfloat16_high(unsigned pair) { return float_of(pair & 0xffff0000u); }

// The nearest bfloat16, of two the even one.
DEVICE bfloat16_t graphc_rounded_bfloat16(float number) {
    const unsigned bits = bits_of(number);
    return {(uint16_t) (number != number ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// The larger and the smaller of two numbers, NaN if either is.
DEVICE float graphc_maximum(float a, float b) { return a > b || a != a ? a : b; }
DEVICE float graphc_minimum(float a, float b) { return a < b || a != a ? a : b; }

// What wgmma is told of an operand from an address of shared memory on: rows of 128 bytes whose chunks are swizzled, and 1,024 bytes
// from 8 rows to the next 8. Addresses count 16 bytes.
// `panel` is bytes from 64 columns to the next, where rows are of the depth.
DEVICE uint64_t graphc_wgmma_operand(unsigned address, unsigned panel) {
    return (uint64_t) 1 << 62 | (uint64_t) (1024 / 16) << 32 | (uint64_t) (panel / 16) << 16 | (address & 0x3ffff) >> 4;
}

// What divides numbers below 2^31 by one that the host knows: `divisor` of graphc.kernels.gpu.dialect makes it.
struct Divisor {
    unsigned divisor, multiplier, shift;
};
DEVICE unsigned divide(unsigned number, Divisor by) { return (unsigned) ((uint64_t) (2 * number) * by.multiplier >> 32) >> by.shift; }
DEVICE unsigned remainder(unsigned number, Divisor by) { return number - divide(number, by) * by.divisor; }
