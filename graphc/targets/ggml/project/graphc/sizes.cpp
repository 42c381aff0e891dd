#include "graphc/sizes.h"

#include <cstdlib>

namespace graphc {

namespace {

constexpr const char * too_large = "the sizes are too large: 64 bits do not hold what follows from them";

}  // namespace

std::string InputSizes::where(size_t input, size_t axis) const {
    return inputs_[input].name + ": axis " + std::to_string(axis) + " has size " +
           std::to_string(arrays_[input]->shape()[axis]);
}

int64_t InputSizes::symbol(const Symbol & symbol, size_t input, size_t axis, int64_t factor, int64_t offset) const {
    const int64_t given = arrays_[input]->shape()[axis] - offset;
    const int64_t value = floor_div(given, factor);
    const std::string name = symbol.name;
    if (value * factor != given) throw Error(where(input, axis) + ", which no value of " + name + " gives");
    if (value < symbol.low || value > symbol.high) {
        const bool open = symbol.high == std::numeric_limits<int64_t>::max();
        throw Error(where(input, axis) + "; " + name + " must be " + std::to_string(symbol.low) +
                    (open ? " or more" : ".." + std::to_string(symbol.high)));
    }
    if (value % symbol.multiple != 0) {
        throw Error(where(input, axis) + "; " + name + " must be a multiple of " + std::to_string(symbol.multiple));
    }
    return value;
}

void InputSizes::expect(size_t input, const Shape & sizes) const {
    std::string problems;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
        if (arrays_[input]->shape()[axis] != sizes[axis]) {
            problems += (problems.empty() ? "" : "\n  ") + where(input, axis) + ", must be " + std::to_string(sizes[axis]);
        }
    }
    if (!problems.empty()) throw Error(problems + " (the shape is " + inputs_[input].shape + ")");
}

void require_equal(int64_t left, int64_t right, const char * message) {
    if (left != right) throw Error(message);
}

void require_at_least(int64_t size, int64_t least, const char * text) {
    if (size < least) throw Error(std::string("the sizes are too small: ") + text + " would be " + std::to_string(size));
}

Size::Size(int64_t value) : value_(value) {
    if (value > largest || value < -largest) throw Error(too_large);
}

Size product(Size a, Size b) {
    if (b != 0 && std::abs(a) > Size::largest / std::abs(b)) throw Error(too_large);
    return int64_t{a} * int64_t{b};
}

Size floor_div(Size a, Size b) {
    if (b == 0) throw Error("a size is divided by 0");
    const int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Size floor_mod(Size a, Size b) { return a - floor_div(a, b) * b; }

}  // namespace graphc
