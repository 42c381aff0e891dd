#include "graphc/replace.h"

#include "ggml-cpp.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

namespace graphc {

namespace {

/// Has a tensor computed by a custom operator that reads these.
void become(ggml_tensor * tensor, ggml_custom_op_t function, void * userdata, const std::vector<ggml_tensor *> & sources) {
    const ggml_context_ptr context(ggml_init({2 * ggml_tensor_overhead(), nullptr, true}));
    const ggml_tensor * model = ggml_custom_4d(context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, function, GGML_N_TASKS_MAX, userdata);
    tensor->op = model->op;
    std::memcpy(tensor->op_params, model->op_params, sizeof tensor->op_params);
    std::fill(tensor->src, tensor->src + GGML_MAX_SRC, nullptr);
    std::copy(sources.begin(), sources.end(), tensor->src);
}

const ggml_tensor * made_by(const ggml_tensor * tensor, ggml_op op) {
    return tensor != nullptr && tensor->op == op ? tensor : nullptr;
}

const ggml_tensor * source(const ggml_tensor * tensor, int index) { return tensor == nullptr ? nullptr : tensor->src[index]; }

/// The call that has the arguments of the convolution that a tensor is the result of, if it is one: ggml makes several tensors
/// of `ggml_conv_2d`, the last of which is a copy.
const ggml_tensor * convolution(const ggml_tensor * tensor) {
    if (tensor->op == GGML_OP_CONV_2D) return tensor;
    const ggml_tensor * product = made_by(tensor, GGML_OP_CONT);
    for (const ggml_op op : {GGML_OP_PERMUTE, GGML_OP_RESHAPE, GGML_OP_MUL_MAT}) product = made_by(source(product, 0), op);
    const ggml_tensor * columns = made_by(source(made_by(source(product, 0), GGML_OP_RESHAPE), 0), GGML_OP_IM2COL);
    const ggml_tensor * kernel = made_by(source(product, 1), GGML_OP_RESHAPE);
    const bool whole = columns != nullptr && kernel != nullptr && kernel->src[0] == columns->src[0] && columns->op_params[6] == 1;
    return whole ? columns : nullptr;
}

/// The product of queries and keys that a tensor is the attention of, with its softmax between, or null.
const ggml_tensor * attended(const ggml_tensor * tensor) {
    const ggml_tensor * weights = made_by(source(made_by(tensor, GGML_OP_MUL_MAT), 1), GGML_OP_SOFT_MAX);
    float bias = 0;
    if (weights != nullptr) std::memcpy(&bias, weights->op_params + 1, sizeof bias);
    const bool plain = weights != nullptr && weights->src[2] == nullptr && bias == 0;
    return plain ? made_by(weights->src[0], GGML_OP_MUL_MAT) : nullptr;
}

/// A product or convolution of ours that nothing but a sum reads takes over the sum, if it is one with a bias.
void add_bias(ggml_tensor * tensor, const std::unordered_map<const ggml_tensor *, int> & uses) {
    if (tensor->op != GGML_OP_ADD || tensor->src[0]->op != GGML_OP_CUSTOM || uses.at(tensor->src[0]) != 1) return;
    const ggml_tensor * product = tensor->src[0];
    for (const auto & [function, axis] : {std::pair{graphc_mul_mat, 0}, std::pair{graphc_conv_2d, 2}}) {
        ggml_custom_op_t made_by = nullptr;
        std::memcpy(&made_by, product->op_params, sizeof made_by);
        if (made_by != function || !graphc_takes_bias(tensor->src[1], product, axis)) continue;
        ggml_tensor * bias = tensor->src[1];
        std::memcpy(tensor->op_params, product->op_params, sizeof tensor->op_params);
        tensor->op = GGML_OP_CUSTOM;
        tensor->src[0] = product->src[0];
        tensor->src[1] = product->src[1];
        tensor->src[2] = bias;
        return;
    }
}

/// How often each tensor is read: by others, and as an output.
std::unordered_map<const ggml_tensor *, int> count_uses(ggml_context * context) {
    std::unordered_map<const ggml_tensor *, int> uses;
    for (ggml_tensor * each = ggml_get_first_tensor(context); each != nullptr; each = ggml_get_next_tensor(context, each)) {
        uses[each] += (each->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
        for (const ggml_tensor * read : each->src) uses[read] += 1;
    }
    return uses;
}

void replace_attention(ggml_tensor * tensor, std::deque<float> & factors) {
    const ggml_tensor * scores = attended(tensor);
    if (scores == nullptr) return;
    const ggml_tensor * weights = tensor->src[1];
    if (!graphc_takes_attention(scores->src[0], scores->src[1], tensor->src[0], weights->src[1])) return;
    std::vector<ggml_tensor *> sources = {scores->src[0], scores->src[1], tensor->src[0]};
    if (weights->src[1] != nullptr) sources.push_back(weights->src[1]);
    float factor;
    std::memcpy(&factor, weights->op_params, sizeof factor);
    factors.push_back(factor);
    become(tensor, graphc_attention, &factors.back(), sources);
}

}  // namespace

void replace_products(ggml_context * context, ProductSettings & settings) {
    const std::unordered_map<const ggml_tensor *, int> uses = count_uses(context);
    for (ggml_tensor * each = ggml_get_first_tensor(context); each != nullptr; each = ggml_get_next_tensor(context, each)) {
        replace_attention(each, settings.factors);
    }
    for (ggml_tensor * each = ggml_get_first_tensor(context); each != nullptr; each = ggml_get_next_tensor(context, each)) {
        const ggml_tensor * call = convolution(each);
        if (call == nullptr || !graphc_takes_conv_2d(call->src[0], call->src[1])) continue;
        const int32_t * given = call->op_params;
        settings.convolutions.push_back({given[0], given[1], given[2], given[3], given[4], given[5]});
        become(each, graphc_conv_2d, &settings.convolutions.back(), {call->src[0], call->src[1]});
    }
    for (ggml_tensor * each = ggml_get_first_tensor(context); each != nullptr; each = ggml_get_next_tensor(context, each)) {
        if (each->op == GGML_OP_UNARY && ggml_get_unary_op(each) == GGML_UNARY_OP_GELU_ERF && graphc_takes_gelu(each->src[0])) {
            become(each, graphc_gelu, nullptr, {each->src[0]});
        }
        if (each->op == GGML_OP_MUL_MAT && graphc_takes_mul_mat(each->src[0], each->src[1])) {
            become(each, graphc_mul_mat, nullptr, {each->src[0], each->src[1]});
        }
    }
    for (ggml_tensor * each = ggml_get_first_tensor(context); each != nullptr; each = ggml_get_next_tensor(context, each)) {
        add_bias(each, uses);
    }
}

}  // namespace graphc
