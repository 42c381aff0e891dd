#include "graphc/sha256.h"

#include <array>
#include <cmath>
#include <cstdint>

namespace graphc {

namespace {

constexpr size_t block_bytes = 64;
using State = std::array<uint32_t, 8>;

uint32_t rotated(uint32_t x, int bits) { return (x >> bits) | (x << (32 - bits)); }

/// The first 32 bits of the fractions of the roots of the first primes: of square roots, or of cube roots.
template <size_t N> std::array<uint32_t, N> root_fractions(double (*root_of)(double)) {
    std::array<uint32_t, N> found{};
    size_t count = 0;
    for (uint32_t number = 2; count < N; ++number) {
        bool prime = true;
        for (uint32_t each = 2; each * each <= number; ++each) prime = prime && number % each != 0;
        if (!prime) continue;
        const double root = root_of(number);
        found[count++] = static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0);
    }
    return found;
}

void add_block(State & state, const unsigned char * block) {
    static const std::array<uint32_t, 64> constants = root_fractions<64>(std::cbrt);
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 16; ++i) {
        for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | block[4 * i + k];
    }
    for (size_t i = 16; i < 64; ++i) {
        const uint32_t a = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const uint32_t b = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
        const uint32_t sum1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25), choice = (e & f) ^ (~e & g);
        const uint32_t first = h + sum1 + choice + constants[i] + w[i];
        const uint32_t sum0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + first;
        d = c, c = b, b = a, a = first + sum0 + majority;
    }
    const State more = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i) state[i] += more[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
    State state = root_fractions<8>(std::sqrt);
    const auto * data = reinterpret_cast<const unsigned char *>(bytes.data());
    size_t at = 0;
    for (; bytes.size() - at >= block_bytes; at += block_bytes) add_block(state, data + at);
    std::string rest(bytes.substr(at));
    rest += static_cast<char>(0x80);
    while (rest.size() % block_bytes != block_bytes - 8) rest += '\0';
    const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
    for (int shift = 56; shift >= 0; shift -= 8) rest += static_cast<char>(bits >> shift & 0xff);
    for (size_t i = 0; i < rest.size(); i += block_bytes) add_block(state, reinterpret_cast<const unsigned char *>(rest.data()) + i);
    std::string text;
    for (uint32_t word : state) {
        for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 0xf];
    }
    return text;
}

}  // namespace graphc
