#include "graphc/adapt.h"

#include "graphc/replace.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace graphc {

namespace {

/// Bytes of a matrix of scores, and of one of columns, that are not worth having.
constexpr size_t large_scores = size_t{1} << 22;
constexpr size_t large_columns = size_t{1} << 26;

/// What computes an activation of one tensor times another at once.
const std::unordered_map<int, ggml_tensor * (*)(ggml_context *, ggml_tensor *, ggml_tensor *)> gates = {
    {GGML_UNARY_OP_SILU, ggml_swiglu_split},
    {GGML_UNARY_OP_GELU, ggml_geglu_split},
    {GGML_UNARY_OP_GELU_ERF, ggml_geglu_erf_split},
};

/// Bytes to which devices want what they read to be aligned, at most.
constexpr size_t alignment = 256;

/// Whether a tensor has no gaps, nor its only row an odd stride, and begins where any device can read it.
bool lies_together(const ggml_tensor * tensor) {
    const bool odd = tensor->nb[1] != ggml_row_size(tensor->type, tensor->ne[0]) || tensor->view_offs % alignment != 0;
    return !odd && ggml_is_contiguous(tensor);
}

/// The tensors of one context on one device.
class Adapting {
  public:
    Adapting(ggml_context * context, const Backends & backends) : context_(context), device_(backends.device()) {
        const ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(device_));
        vulkan_ = ggml_backend_reg_name(registry) == std::string("Vulkan");
        attention_ = vulkan_ || backends.fast();
    }

    void run() {
        std::vector<ggml_tensor *> tensors;
        for (ggml_tensor * each = ggml_get_first_tensor(context_); each; each = ggml_get_next_tensor(context_, each)) {
            tensors.push_back(each);
        }
        for (const ggml_tensor * tensor : tensors) {
            uses_[tensor] += (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
            for (const ggml_tensor * read : tensor->src) uses_[read] += 1;
        }
        for (ggml_tensor * tensor : tensors) {
            if (vulkan_) direct_convolution(tensor);
            if (attention_) attention(tensor);
            gate(tensor);
        }
        for (ggml_tensor * tensor : tensors) {
            for (int i = 0; vulkan_ && tensor->op == GGML_OP_MUL_MAT && i < 2; ++i) {
                if (!lies_together(tensor->src[i])) tensor->src[i] = ggml_cont(context_, tensor->src[i]);
            }
        }
    }

  private:
    /// Compute a tensor as another of the same size would be.
    void become(ggml_tensor * tensor, const ggml_tensor * other) {
        tensor->op = other->op;
        std::memcpy(tensor->op_params, other->op_params, sizeof tensor->op_params);
        std::copy(std::begin(other->src), std::end(other->src), tensor->src);
    }

    /// A product with the softmax of another product, without a mask: ggml wants masks in float16.
    void attention(ggml_tensor * product) {
        const ggml_tensor * weights = product->op == GGML_OP_MUL_MAT ? product->src[1] : nullptr;
        if (weights == nullptr || weights->op != GGML_OP_SOFT_MAX || weights->src[1] != nullptr || ggml_nbytes(weights) < large_scores) return;
        const ggml_tensor * scores = weights->src[0];
        if (scores->op != GGML_OP_MUL_MAT) return;
        ggml_tensor * values = product->src[0]->op == GGML_OP_CONT ? product->src[0]->src[0] : product->src[0];
        ggml_tensor * parts[] = {scores->src[1], scores->src[0], ggml_transpose(context_, values)};
        for (ggml_tensor *& part : parts) {
            if (part->type != GGML_TYPE_F32) return;
            if (part->nb[0] != sizeof(float)) part = ggml_cont(context_, part);
        }
        float factor;
        std::memcpy(&factor, weights->op_params, sizeof factor);
        ggml_tensor * result = ggml_flash_attn_ext(context_, parts[0], parts[1], parts[2], nullptr, factor, 0.0f, 0.0f);
        ggml_flash_attn_ext_set_prec(result, GGML_PREC_F32);
        if (!ggml_backend_supports_op(device_, result)) return;
        become(product, ggml_cont(context_, ggml_permute(context_, result, 0, 2, 1, 3)));
    }

    /// A product with an activation that nothing else reads.
    void gate(ggml_tensor * product) {
        for (int i = 0; product->op == GGML_OP_MUL && i < 2; ++i) {
            const ggml_tensor * activation = product->src[i];
            if (activation->op != GGML_OP_UNARY || uses_[activation] != 1) continue;
            const auto split = gates.find(ggml_get_unary_op(activation));
            ggml_tensor * input = activation->src[0];
            ggml_tensor * other = product->src[1 - i];
            const bool contiguous = ggml_is_contiguous(input) && ggml_is_contiguous(other);
            if (split == gates.end() || !contiguous || !ggml_are_same_shape(input, other)) continue;
            const ggml_tensor * result = split->second(context_, input, other);
            if (ggml_backend_supports_op(device_, result)) become(product, result);
            return;
        }
    }

    /// A convolution by a matrix of columns.
    void direct_convolution(ggml_tensor * tensor) {
        const ggml_tensor * columns = convolution_of(tensor);
        if (columns == nullptr || columns->op != GGML_OP_IM2COL || ggml_nbytes(columns) <= large_columns) return;
        const int32_t * p = columns->op_params;
        become(tensor, ggml_conv_2d_direct(context_, columns->src[0], columns->src[1], p[0], p[1], p[2], p[3], p[4], p[5]));
    }

    ggml_context * context_;
    ggml_backend_t device_;
    std::unordered_map<const ggml_tensor *, int> uses_;
    bool vulkan_;
    bool attention_;
};

}  // namespace

void adapt(ggml_context * context, const Backends & backends) { Adapting(context, backends).run(); }

}  // namespace graphc
