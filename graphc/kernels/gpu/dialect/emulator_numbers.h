// Conversions and fast functions as the emulator computes them: conversions to the bit, fast functions more exactly than a GPU.
#pragma once

DEVICE float to_float(half_t number) {
    // Exponent and mantissa move to where float has them; the exponents' biases differ by 112.
    const float size = float_of((unsigned) (number.bits & 0x7fff) << 13) * 0x1p112f;
    const unsigned infinite = (number.bits & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    return float_of(bits_of(size) | infinite | (unsigned) (number.bits & 0x8000) << 16);
}
DEVICE half_t to_half(float number) {
    const unsigned size = bits_of(number) & 0x7fffffff, sign = bits_of(number) >> 16 & 0x8000;
    const unsigned normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
    const unsigned tiny = bits_of(float_of(size) + 0.5f) - 0x3f000000;  // floats at 0.5 have the steps of the smallest halves
    const unsigned huge = size > 0x7f800000 ? 0x7fff : 0x7c00;
    return {(uint16_t) (size > 0x7f800000 ? 0x7fff : sign | (size < 0x38800000 ? tiny : size < 0x477ff000 ? normal : huge))};
}
DEVICE bfloat16_t to_bfloat16(float number) { return graphc_rounded_bfloat16(number); }
DEVICE unsigned pack_half(float low, float high) { return pack(to_half(low), to_half(high)); }
DEVICE unsigned pack_bfloat16(float low, float high) { return pack(to_bfloat16(low), to_bfloat16(high)); }
DEVICE float half_low(unsigned pair) { return to_float(half_t{(uint16_t) pair}); }
DEVICE float half_high(unsigned pair) { return to_float(half_t{(uint16_t) (pair >> 16)}); }

// To nearest, ties away from zero.
DEVICE unsigned to_tf32(float number) {
    const unsigned bits = bits_of(number);
    return number != number ? 0x7fffffff : (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}

DEVICE int dot_bytes(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int8_t) (a >> 8 * i) * (int8_t) (b >> 8 * i);
    return c;
}

DEVICE float maximum(float a, float b) { return graphc_maximum(a, b); }
DEVICE float minimum(float a, float b) { return graphc_minimum(a, b); }

// C's own say NaN where one of the numbers is a signalling NaN; a GPU does not.
DEVICE float graphc_fmaxf(float a, float b) { return a > b || b != b ? a : b; }
DEVICE float graphc_fminf(float a, float b) { return a < b || b != b ? a : b; }
#define fmaxf graphc_fmaxf
#define fminf graphc_fminf

DEVICE float fast_exp2(float x) { return exp2f(x); }
DEVICE float fast_exp(float x) { return exp2f(x * 1.4426950408889634f); }
DEVICE float fast_log2(float x) { return log2f(x); }
DEVICE float fast_tanh(float x) { return tanhf(x); }
DEVICE float fast_reciprocal(float x) { return 1 / x; }
DEVICE float fast_reciprocal_sqrt(float x) { return 1 / sqrtf(x); }
