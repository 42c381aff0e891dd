#pragma once

#include <stdexcept>

namespace graphc {

/// What a model throws: one clear message for the person who gave the input.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace graphc
