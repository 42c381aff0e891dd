#pragma once

#include "graphc/choices.h"
#include "graphc/products.h"

#include "ggml.h"

#include <deque>

namespace graphc {

/// What custom operators are told, which must live as long as the graph.
struct ProductSettings {
    std::deque<graphc_mul_mat_settings> products;
    std::deque<graphc_conv_2d_settings> convolutions;
    std::deque<graphc_attention_settings> attentions;
    std::deque<graphc_group_norm_settings> group_norms;
    std::deque<graphc_norm_settings> norms;
    std::deque<graphc_gate_settings> gates;
    std::deque<graphc_rotary_settings> rotaries;
    std::deque<graphc_concat_settings> concats;
    std::deque<graphc_pad_settings> pads;
};

/// The call that has the arguments of the convolution that a tensor is the result of, if it is one: ggml makes several tensors
/// of `ggml_conv_2d`, the last of which is a copy.
const ggml_tensor * convolution_of(const ggml_tensor * tensor);

/// Has a tensor computed as another of the same size would be.
void compute_as(ggml_tensor * tensor, const ggml_tensor * other);

/// Has the products, convolutions, attention and the like among the tensors of a context computed by our own code where it is faster than
/// ggml on the CPU with this number of threads, in the ways that were chosen. Called before a graph of them is made; a convolution may need one tensor more.
void replace_products(ggml_context * context, ProductSettings & settings, int threads, const Choices & choices);

}  // namespace graphc
