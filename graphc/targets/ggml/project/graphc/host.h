#pragma once

#include "graphc/array.h"
#include "graphc/sizes.h"

#include <utility>
#include <vector>

namespace graphc {

// What a model does itself between its parts: it reads a size, takes a branch, or repeats a part.

/// The only element of an array.
template <class T> T element(const Array & array) { return array.data<T>()[0]; }

/// An array of one element, without axes.
template <class T> Array scalar(T value) { return Array::of<T>({}, {value}); }

/// The same bytes as elements of another type, in another shape. Throws Error if they do not fill it.
Array reinterpreted(const Array & array, DType dtype, Shape shape);

/// What the rounds of a loop gave, along a new first axis; an array of the shape `none` if there was no round. Throws Error if
/// their shapes differ.
Array stacked(const std::vector<Array> & rounds, DType dtype, const Shape & none);

/// A number that becomes a size. `what` names it in the message of the Error if the size may not have that value. A number
/// that no size reaches, such as the end of a slice that ends nowhere, becomes the largest one.
int64_t measured(const Array & number, const char * what, const Symbol & size);

/// Throws Error unless the number is the size that is known already; `text` says how it follows from others ("" if it does not).
void require_measured(const Array & number, const char * what, int64_t size, const char * text);

/// Throws Error unless the array has the shape; `what` says what it is.
void require_shape(const Array & array, const Shape & shape, const char * what);

/// Give arrays as outputs, moved where they may be.
template <class... A> void give(const std::vector<Array *> & outputs, A &&... arrays) {
    auto output = outputs.begin();
    ((**output++ = std::forward<A>(arrays)), ...);
}

}  // namespace graphc
