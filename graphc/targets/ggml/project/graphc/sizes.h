#pragma once

#include "graphc/array.h"

#include "ggml.h"

#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace graphc {

/// An input in the model's terms. `shape` is for messages ("[batch, 3, height, width]"). `type` is how ggml holds it; values
/// below `low` or from `high` on are refused, because the model numbers the rows of a table with them; with `from_end`, those
/// from -`high` to -1 count from the table's end.
struct InputInfo {
    std::string name;
    DType dtype;
    size_t rank;
    std::string shape;
    ggml_type type;
    bool bounded = false;
    int64_t low = 0;
    int64_t high = 0;
    bool from_end = false;
};

/// An output in the model's terms.
struct OutputInfo {
    std::string name;
    DType dtype;
    std::string shape;
};

/// A named size of a model: its name and the values that it may have.
struct Symbol {
    const char * name;
    int64_t low = 1;
    int64_t high = std::numeric_limits<int64_t>::max();
    int64_t multiple = 1;
};

/// The sizes of the inputs of one run, from which a model reads its named sizes.
class InputSizes {
  public:
    InputSizes(const std::vector<InputInfo> & inputs, const std::vector<const Array *> & arrays)
        : inputs_(inputs), arrays_(arrays) {}

    /// The value of `symbol` where an axis has the size `factor * symbol + offset`. Throws Error if it may not have it.
    int64_t symbol(const Symbol & symbol, size_t input, size_t axis, int64_t factor = 1, int64_t offset = 0) const;

    /// Throws Error, with every axis that differs, unless the input has exactly these sizes.
    void expect(size_t input, const Shape & sizes) const;

  private:
    std::string where(size_t input, size_t axis) const;

    const std::vector<InputInfo> & inputs_;
    const std::vector<const Array *> & arrays_;
};

/// Throws Error with the message unless the sizes are equal.
void require_equal(int64_t left, int64_t right, const char * message);

/// Throws Error unless a size that follows from those of the inputs is large enough; `text` says how it follows.
void require_at_least(int64_t size, int64_t least, const char * text);

/// A size, or a number that follows from sizes. Its arithmetic throws Error instead of overflowing.
class Size {
  public:
    /// The sum of two of these is still an int64_t.
    static constexpr int64_t largest = (int64_t{1} << 62) - 1;

    Size(int64_t value);
    operator int64_t() const { return value_; }

  private:
    int64_t value_;
};

/// The type of a sum or product in which there is a Size.
template <class A, class B>
using SizeResult = std::enable_if_t<std::is_same_v<A, Size> || std::is_same_v<B, Size>, Size>;

Size product(Size a, Size b);

template <class A, class B> SizeResult<A, B> operator+(A a, B b) { return int64_t{a} + int64_t{b}; }
template <class A, class B> SizeResult<A, B> operator-(A a, B b) { return int64_t{a} - int64_t{b}; }
template <class A, class B> SizeResult<A, B> operator*(A a, B b) { return product(a, b); }
template <class A, class B> SizeResult<A, B> operator/(A a, B b) { return int64_t{a} / int64_t{b}; }
template <class A, class B> SizeResult<A, B> operator%(A a, B b) { return int64_t{a} % int64_t{b}; }

/// The quotient rounded down, whatever the signs. Throws Error for a divisor of 0.
Size floor_div(Size a, Size b);

/// What `floor_div` leaves; it has the sign of `b`. Throws Error for a divisor of 0.
Size floor_mod(Size a, Size b);

}  // namespace graphc
