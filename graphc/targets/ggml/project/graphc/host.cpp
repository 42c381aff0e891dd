#include "graphc/host.h"

#include <algorithm>

namespace graphc {

namespace {

/// What a number would have to be to be a value of the size; nothing if it is one.
std::string misfit(int64_t number, const Symbol & size) {
    if (number < size.low) return "at least " + std::to_string(size.low);
    if (number > size.high) return "at most " + std::to_string(size.high);
    return number % size.multiple != 0 ? "a multiple of " + std::to_string(size.multiple) : "";
}

[[noreturn]] void refuse(const char * what, int64_t number, const std::string & wanted) {
    throw Error(std::string(what) + " is " + std::to_string(number) + ", must be " + wanted);
}

}  // namespace

Array reinterpreted(const Array & array, DType dtype, Shape shape) {
    Array result;
    result.become(dtype, std::move(shape));
    if (result.bytes().size() != array.bytes().size()) {
        throw Error("the bytes of an array of " + to_string(array.shape()) + " do not fill " + to_string(result.shape()));
    }
    std::copy(array.bytes().begin(), array.bytes().end(), result.bytes().begin());
    return result;
}

Array stacked(const std::vector<Array> & rounds, DType dtype, const Shape & none) {
    if (rounds.empty()) return Array(dtype, none);
    Shape shape = rounds.front().shape();
    for (const Array & each : rounds) {
        if (each.shape() != shape) throw Error("a loop collects tensors of different shapes");
    }
    shape.insert(shape.begin(), static_cast<int64_t>(rounds.size()));
    Array result;
    result.become(dtype, shape);
    auto target = result.bytes().begin();
    for (const Array & each : rounds) target = std::copy(each.bytes().begin(), each.bytes().end(), target);
    return result;
}

int64_t measured(const Array & number, const char * what, const Symbol & size) {
    const int64_t value = element<int64_t>(number);
    const std::string wanted = misfit(value, size);
    if (!wanted.empty()) refuse(what, value, wanted);
    return std::clamp(value, -Size::largest, Size::largest);
}

void require_measured(const Array & number, const char * what, int64_t size, const char * text) {
    const int64_t value = element<int64_t>(number);
    if (value == size) return;
    const std::string because = text;
    refuse(what, value, std::to_string(size) + (because.empty() ? "" : " (" + because + ")"));
}

void require_shape(const Array & array, const Shape & shape, const char * what) {
    if (array.shape() == shape) return;
    throw Error(std::string(what) + " has the shape " + to_string(array.shape()) + ", must have " + to_string(shape));
}

}  // namespace graphc
