// Small systems of linear equations, and sums in NumPy's order: for the factors of samplers of higher order.
#ifndef GRAPHC_IMAGES_SAMPLERS_LINEAR_ALGEBRA_HPP
#define GRAPHC_IMAGES_SAMPLERS_LINEAR_ALGEBRA_HPP

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "../rounding.hpp"

namespace graphc::images::samplers {

GRAPHC_ROUNDED

using Matrix = std::vector<std::vector<double>>;

/// The y for which matrix * y is `wanted`; Gauss' elimination, rows exchanged for the largest pivot, as LAPACK's.
inline std::vector<double> solved(Matrix matrix, std::vector<double> wanted) {
    const std::size_t count = wanted.size();
    for (std::size_t k = 0; k < count; ++k) {
        std::size_t pivot = k;
        for (std::size_t row = k + 1; row < count; ++row) {
            if (std::abs(matrix[row][k]) > std::abs(matrix[pivot][k])) pivot = row;
        }
        std::swap(matrix[k], matrix[pivot]);
        std::swap(wanted[k], wanted[pivot]);
        for (std::size_t row = k + 1; row < count; ++row) {
            const double factor = matrix[row][k] / matrix[k][k];
            for (std::size_t column = k + 1; column < count; ++column) matrix[row][column] -= factor * matrix[k][column];
            wanted[row] -= factor * wanted[k];
        }
    }
    for (std::size_t k = count; k-- > 0;) {
        for (std::size_t column = k + 1; column < count; ++column) wanted[k] -= matrix[k][column] * wanted[column];
        wanted[k] /= matrix[k][k];
    }
    return wanted;
}

/// The sum in NumPy's order: pairs of halves, of which each of at most 128 numbers is added up in eight sums.
inline double total(const double * numbers, std::size_t count) {
    if (count > 128) {
        const std::size_t half = count / 2 - count / 2 % 8;
        return total(numbers, half) + total(numbers + half, count - half);
    }
    double sums[8] = {};
    const std::size_t whole = count < 8 ? 0 : count - count % 8;
    for (std::size_t i = 0; i < whole; ++i) sums[i % 8] = i < 8 ? numbers[i] : sums[i % 8] + numbers[i];
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (std::size_t i = whole; i < count; ++i) sum += numbers[i];
    return sum;
}

inline double total(const std::vector<double> & numbers) { return total(numbers.data(), numbers.size()); }

GRAPHC_ROUNDED_END

}  // namespace graphc::images::samplers

#endif
