#pragma once

#include "graphc/device.h"

namespace graphc {

/// Has the tensors of a context computed as the devices want them: products of operands that lie together, attention and
/// convolutions without large matrices between. Called before a graph of them is made; each product and convolution may need
/// some tensors more.
void adapt(ggml_context * context, const Backends & backends);

}  // namespace graphc
