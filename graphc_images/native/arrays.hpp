// Arrays of float32, which are added and scaled as a whole: what is written with them reads like the formulas of a paper.
//
// A factor is a double; it is rounded to float32 before it is multiplied, as NumPy does with Python's numbers. The order of
// the operations is the order of their roundings.
#ifndef GRAPHC_IMAGES_ARRAYS_HPP
#define GRAPHC_IMAGES_ARRAYS_HPP

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rounding.hpp"

namespace graphc::images {

/// Numbers of any shape, in C order.
using Array = std::vector<float>;

/// A setting that cannot be: the message says which, and what could be.
struct SettingError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

GRAPHC_ROUNDED

/// `combine` of each two elements.
template <typename Combine>
Array each_two(Array left, const Array & right, Combine combine) {
    if (left.size() != right.size()) {
        throw SettingError("arrays of " + std::to_string(left.size()) + " and of " + std::to_string(right.size()) +
                           " elements do not belong together");
    }
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = combine(left[i], right[i]);
    return left;
}

inline Array operator+(Array left, const Array & right) {
    return each_two(std::move(left), right, [](float a, float b) { return a + b; });
}

inline Array operator-(Array left, const Array & right) {
    return each_two(std::move(left), right, [](float a, float b) { return a - b; });
}

inline Array operator*(Array array, double factor) {
    for (float & element : array) element *= static_cast<float>(factor);
    return array;
}

inline Array operator/(Array array, double divisor) {
    for (float & element : array) element /= static_cast<float>(divisor);
    return array;
}

GRAPHC_ROUNDED_END

}  // namespace graphc::images

#endif
