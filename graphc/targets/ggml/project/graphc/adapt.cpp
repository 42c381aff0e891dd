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

/// The tensors of one context on some devices.
class Adapting {
  public:
    Adapting(ggml_context * context, const Backends & backends)
        : context_(context), choices_(backends.choices()), devices_(backends.devices()) {
        const auto is_vulkan = [](ggml_backend_t device) { return backend_name(device) == "Vulkan"; };
        vulkan_ = std::any_of(devices_.begin(), devices_.end(), is_vulkan);
        attention_ = std::all_of(devices_.begin(), devices_.end(), is_vulkan) || backends.fast();
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
            convolution(tensor);
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
    bool is_supported(const ggml_tensor * tensor) const {
        return std::all_of(devices_.begin(), devices_.end(), [&](ggml_backend_t each) { return ggml_backend_supports_op(each, tensor); });
    }

    /// A product with the softmax of another product, without a mask: ggml wants masks in float16.
    void attention(ggml_tensor * product) {
        const ggml_tensor * weights = product->op == GGML_OP_MUL_MAT ? product->src[1] : nullptr;
        if (weights == nullptr || weights->op != GGML_OP_SOFT_MAX || weights->src[1] != nullptr) return;
        const ggml_tensor * scores = weights->src[0];
        if (scores->op != GGML_OP_MUL_MAT) return;
        const std::string way = choices_.way(attention_key(scores->src[0], scores->src[1], product->src[0], nullptr));
        if (way == "scores" && ggml_nbytes(weights) <= column_limit) return;
        if (way != "flash" && ggml_nbytes(weights) < large_scores) return;
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
        if (!is_supported(result)) return;
        compute_as(product, ggml_cont(context_, ggml_permute(context_, result, 0, 2, 1, 3)));
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
            if (is_supported(result)) compute_as(product, result);
            return;
        }
    }

    /// A convolution, directly or by a matrix of columns.
    void convolution(ggml_tensor * tensor) {
        const ggml_tensor * call = convolution_of(tensor);
        if (call == nullptr) return;
        ggml_tensor * kernel = call->src[0], * image = call->src[1];
        const bool is_direct = call->op == GGML_OP_CONV_2D;
        const int32_t * p = call->op_params;
        const std::string way = choices_.way(convolution_key(kernel, image, p));
        const auto columns = sizeof(float) * static_cast<size_t>(ggml_nelements(tensor) / kernel->ne[3] * ggml_nelements(kernel) / kernel->ne[3]);
        if (is_direct && way == "columns" && columns <= column_limit) {
            compute_as(tensor, ggml_conv_2d(context_, kernel, image, p[0], p[1], p[2], p[3], p[4], p[5]));
        } else if (!is_direct && (way == "direct" || (way != "columns" && vulkan_ && columns > large_columns))) {
            const ggml_tensor * direct = ggml_conv_2d_direct(context_, kernel, image, p[0], p[1], p[2], p[3], p[4], p[5]);
            if (is_supported(direct)) compute_as(tensor, direct);
        }
    }

    ggml_context * context_;
    const Choices & choices_;
    const std::vector<ggml_backend_t> & devices_;
    std::unordered_map<const ggml_tensor *, int> uses_;
    bool vulkan_;
    bool attention_;
};

}  // namespace

void adapt(ggml_context * context, const Backends & backends) { Adapting(context, backends).run(); }

}  // namespace graphc
