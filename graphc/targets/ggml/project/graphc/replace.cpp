#include "graphc/replace.h"

#include "graphc/variants.h"

#include "ggml-cpp.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace graphc {

namespace {

using Tensor = const ggml_tensor *;

Tensor made_by(Tensor tensor, ggml_op op) { return tensor != nullptr && tensor->op == op ? tensor : nullptr; }

Tensor source(Tensor tensor, int index) { return tensor == nullptr ? nullptr : tensor->src[index]; }

bool is_unary(Tensor tensor, ggml_unary_op op) { return made_by(tensor, GGML_OP_UNARY) != nullptr && ggml_get_unary_op(tensor) == op; }

float parameter(Tensor tensor, int index) {
    float value;
    std::memcpy(&value, tensor->op_params + index, sizeof value);
    return value;
}

bool is_permuted(Tensor tensor, const std::array<int32_t, 4> & axes) { return std::equal(axes.begin(), axes.end(), tensor->op_params); }

std::vector<ggml_tensor *> sources_of(Tensor tensor) {
    return std::vector<ggml_tensor *>(tensor->src, std::find(tensor->src, tensor->src + GGML_MAX_SRC, nullptr));
}

/// The tensors of one context, some of which become results of our own functions.
class Replacing {
  public:
    Replacing(const graphc_functions & code, ggml_context * context, ProductSettings & settings, int threads, const Choices & choices)
        : code_(code), context_(context), settings_(settings), threads_(threads), choices_(choices) {
        each([this](ggml_tensor * tensor) {
            uses_[tensor] += (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
            for (const Tensor read : tensor->src) uses_[read] += 1;
        });
    }

    /// Larger patterns first: they are made of what the later ones look for.
    void run() {
        each([this](ggml_tensor * tensor) { attention(tensor), group_norm(tensor), rotary(tensor), rest(tensor); });
        each([this](ggml_tensor * tensor) { conv_2d(tensor), concat(tensor); });
        each([this](ggml_tensor * tensor) { mul_mat(tensor), gelu(tensor), silu(tensor), gate(tensor), norm(tensor); });
        each([this](ggml_tensor * tensor) { sum(tensor), factor(tensor), relu(tensor), merged_attention(tensor), turned(tensor), pad(tensor), gated(tensor); });
    }

  private:
    static constexpr int most_sources = 6;
    static constexpr int64_t direct_workspace = 16 << 20;  // bytes; ggml's GGML_IM2COL_WORK_SIZE

    struct Own {
        ggml_custom_op_t function = nullptr;
        void * settings = nullptr;
    };

    template <class F> void each(const F & visit) const {
        for (ggml_tensor * t = ggml_get_first_tensor(context_); t != nullptr; t = ggml_get_next_tensor(context_, t)) visit(t);
    }

    /// Has a tensor computed by a custom operator that reads these.
    void become(ggml_tensor * tensor, ggml_custom_op_t function, void * settings, const std::vector<ggml_tensor *> & sources) {
        const ggml_context_ptr scratch(ggml_init({2 * ggml_tensor_overhead(), nullptr, true}));
        const Tensor model = ggml_custom_4d(scratch.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, function, GGML_N_TASKS_MAX, settings);
        compute_as(tensor, model);
        std::copy(sources.begin(), sources.end(), tensor->src);
        own_[tensor] = {function, settings};
    }

    /// Whether one other tensor alone reads it.
    bool inner(Tensor tensor) const { return tensor != nullptr && uses_.at(tensor) == 1; }

    /// The function of ours that computes what one other tensor alone reads, or none.
    Own inner_own(Tensor tensor) const {
        const auto found = own_.find(tensor);
        return found != own_.end() && inner(tensor) ? found->second : Own{};
    }

    void attention(ggml_tensor * tensor) {
        const Tensor weights = made_by(source(made_by(tensor, GGML_OP_MUL_MAT), 1), GGML_OP_SOFT_MAX);
        const Tensor scores = made_by(source(weights, 0), GGML_OP_MUL_MAT);
        if (scores == nullptr || weights->src[2] != nullptr || parameter(weights, 1) != 0) return;
        ggml_tensor * k = scores->src[0], * q = scores->src[1], * mask = weights->src[1];
        const std::string way = choices_.way(attention_key(k, q, tensor->src[0], mask));
        if (way == "scores" && ggml_nbytes(weights) <= column_limit) return;
        if (way != "flash" && !code_.prefers_attention(q)) return;
        const Tensor copied = made_by(tensor->src[0], GGML_OP_CONT);
        for (ggml_tensor * v : {copied == nullptr ? nullptr : copied->src[0], tensor->src[0]}) {  // a copy need not be made
            if (v == nullptr || !code_.takes_attention(k, q, v, mask)) continue;
            settings_.attentions.push_back({parameter(weights, 0), 0, {}});
            std::vector<ggml_tensor *> sources = {k, q, v};
            if (mask != nullptr) sources.push_back(mask);
            return become(tensor, code_.attention, &settings_.attentions.back(), sources);
        }
    }

    /// Attention writes its result as the copy of it does that has the heads beside one another.
    void merged_attention(ggml_tensor * tensor) {
        const Tensor turned = made_by(source(made_by(tensor, GGML_OP_CONT), 0), GGML_OP_PERMUTE);
        if (!inner(turned) || !is_permuted(turned, {0, 2, 1, 3})) return;
        const Own own = inner_own(turned->src[0]);
        if (own.function != code_.attention) return;
        settings_.attentions.push_back(*static_cast<const graphc_attention_settings *>(own.settings));
        settings_.attentions.back().merged = 1;
        become(tensor, code_.attention, &settings_.attentions.back(), sources_of(turned->src[0]));
    }

    /// A copy that has another axis first.
    void turned(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_CONT || !code_.takes_turned(tensor->src[0])) return;
        become(tensor, code_.turned, nullptr, {tensor->src[0]});
    }

    void group_norm(ggml_tensor * tensor) {
        const Tensor scaled = made_by(source(made_by(tensor, GGML_OP_ADD), 0), GGML_OP_MUL);
        const Tensor norm = made_by(source(scaled, 0), GGML_OP_GROUP_NORM);
        if (norm == nullptr || !inner(norm) || !inner(scaled)) return;
        const int groups = norm->op_params[0];
        if (!code_.takes_group_norm(norm->src[0], scaled->src[1], tensor->src[1], groups)) return;
        settings_.group_norms.push_back({groups, parameter(norm, 1), 0});
        become(tensor, code_.group_norm, &settings_.group_norms.back(), {norm->src[0], scaled->src[1], tensor->src[1]});
    }

    /// x times cosines, plus x with the elements of each pair exchanged times sines.
    void rotary(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_ADD) return;
        const Tensor straight = made_by(tensor->src[0], GGML_OP_MUL), turned = made_by(tensor->src[1], GGML_OP_MUL);
        if (!inner(straight) || !inner(turned)) return;
        const Tensor swapped = turned->src[0], reshaped = made_by(swapped, GGML_OP_RESHAPE);
        const Tensor joined = made_by(reshaped == nullptr ? swapped : reshaped->src[0], GGML_OP_CONCAT);
        if (joined == nullptr || joined->op_params[0] != 0 || !inner(swapped) || !inner(joined)) return;
        ggml_tensor * x = straight->src[0], * cos = straight->src[1], * sin = turned->src[1];
        if (!code_.takes_rotary(x, joined->src[0], joined->src[1], cos, sin)) return;
        settings_.rotaries.push_back({joined->src[0]->ne[0] == 1});
        become(tensor, code_.rotary, &settings_.rotaries.back(), {x, cos, sin});
    }

    /// What stays as it is behind elements that were turned.
    void rest(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_CONCAT || tensor->op_params[0] != 0) return;
        const Own own = inner_own(tensor->src[0]);
        if (own.function != code_.rotary || !code_.takes_rest(tensor->src[1], tensor->src[0]->src[0])) return;
        extend(tensor, tensor->src[0], own, tensor->src[1], 4);
    }

    /// A concatenation, and those along the same axis that it alone reads.
    void concat(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_CONCAT) return;
        std::vector<ggml_tensor *> sources;
        for (ggml_tensor * part : {tensor->src[0], tensor->src[1]}) {
            const Own own = inner_own(part);
            if (!code_.takes_concat(part)) return;
            const bool along = own.function == code_.concat && static_cast<const graphc_concat_settings *>(own.settings)->axis == tensor->op_params[0];
            const std::vector<ggml_tensor *> parts = along ? sources_of(part) : std::vector<ggml_tensor *>{part};
            sources.insert(sources.end(), parts.begin(), parts.end());
        }
        if (sources.size() > most_sources) sources = {tensor->src[0], tensor->src[1]};
        settings_.concats.push_back({tensor->op_params[0]});
        become(tensor, code_.concat, &settings_.concats.back(), sources);
    }

    void pad(ggml_tensor * tensor) {
        const int32_t * given = tensor->op_params;  // before and behind each axis; whether what is behind comes before
        if (tensor->op != GGML_OP_PAD || given[8] != 0 || !code_.takes_pad(tensor->src[0])) return;
        settings_.pads.push_back({{given[0], given[2], given[4], given[6]}});
        become(tensor, code_.pad, &settings_.pads.back(), {tensor->src[0]});
    }

    void conv_2d(ggml_tensor * tensor) {
        const Tensor call = convolution_of(tensor);
        if (call == nullptr) return;
        ggml_tensor * kernel = call->src[0], * image = call->src[1];
        const int32_t * given = call->op_params;
        const std::string way = choices_.way(convolution_key(kernel, image, given));
        if (way == "direct" && kernel->type == GGML_TYPE_F32 && fits_workspace(kernel)) {
            if (call != tensor) compute_as(tensor, ggml_conv_2d_direct(context_, kernel, image, given[0], given[1], given[2], given[3], given[4], given[5]));
            return;
        }
        settings_.convolutions.push_back({given[0], given[1], given[2], given[3], given[4], given[5], 0, ggml_get_type_traits(kernel->type), {}});
        graphc_conv_2d_settings * settings = &settings_.convolutions.back();
        const bool preferred = way == "winograd" || (way != "tiles" && code_.prefers_winograd(kernel, image, settings));
        if (preferred && code_.takes_winograd(kernel, image, settings)) {
            ggml_tensor * sources[] = {kernel, image};
            const int64_t size = code_.winograd_size(kernel, image, settings, threads_);
            ggml_tensor * made = ggml_custom_4d(context_, GGML_TYPE_F32, size, 1, 1, 1, sources, 2, code_.winograd_operands, GGML_N_TASKS_MAX, settings);
            become(tensor, code_.winograd, settings, {image, made, kernel});
        } else if (code_.takes_conv_2d(kernel, image, settings)) {
            become(tensor, code_.conv_2d, settings, {kernel, image});
        }
    }

    /// Whether ggml's direct convolution has room for one column and its result.
    static bool fits_workspace(Tensor kernel) {
        return 4 * (kernel->ne[0] * kernel->ne[1] * kernel->ne[2] + kernel->ne[3]) <= direct_workspace;
    }

    void mul_mat(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_MUL_MAT) return;
        settings_.products.push_back({0, ggml_get_type_traits(tensor->src[0]->type), {}});
        if (!code_.takes_mul_mat(tensor->src[0], tensor->src[1], &settings_.products.back())) return;
        become(tensor, code_.mul_mat, &settings_.products.back(), {tensor->src[0], tensor->src[1]});
    }

    void gelu(ggml_tensor * tensor) {
        if (!is_unary(tensor, GGML_UNARY_OP_GELU_ERF) || !code_.takes_activation(tensor->src[0])) return;
        become(tensor, code_.gelu, nullptr, {tensor->src[0]});
    }

    /// x times the sigmoid of x, of a multiple of x, or of a x^3 + b x; by a function of its own or by several.
    void gate(ggml_tensor * tensor) {
        if (is_unary(tensor, GGML_UNARY_OP_SILU)) return gate(tensor, tensor->src[0], {1, 0});
        if (tensor->op != GGML_OP_MUL) return;
        for (const int index : {0, 1}) {
            const Tensor sigmoid = tensor->src[index];
            ggml_tensor * x = tensor->src[1 - index];
            if (!is_unary(sigmoid, GGML_UNARY_OP_SIGMOID) || !inner(sigmoid)) continue;
            const Tensor inside = sigmoid->src[0];
            if (inside == x) return gate(tensor, x, {1, 0});
            if (!inner(inside)) continue;
            if (inside->op == GGML_OP_SCALE && inside->src[0] == x && parameter(inside, 1) == 0) {
                return gate(tensor, x, {parameter(inside, 0), 0});
            }
            const Tensor slope = made_by(source(made_by(inside, GGML_OP_MUL), 0), GGML_OP_SCALE);
            const Tensor square = made_by(source(slope, 0), GGML_OP_SQR);
            if (square == nullptr || square->src[0] != x || inside->src[1] != x || !inner(slope) || !inner(square)) continue;
            return gate(tensor, x, {parameter(slope, 1), parameter(slope, 0)});
        }
    }

    void gate(ggml_tensor * tensor, ggml_tensor * x, const graphc_gate_settings & settings) {
        if (!code_.takes_activation(x) || !ggml_are_same_shape(x, tensor)) return;
        settings_.gates.push_back(settings);
        become(tensor, code_.gate, &settings_.gates.back(), {x});
    }

    /// An activation times what it gates.
    void gated(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_MUL) return;
        for (const int index : {0, 1}) {
            ggml_tensor * other = tensor->src[1 - index];
            const Own own = inner_own(tensor->src[index]);
            if (own.function != code_.gelu && own.function != code_.gate) continue;
            if (own.function == nullptr || !code_.takes_activation(other) || !ggml_are_same_shape(other, tensor->src[index])) continue;
            if (extend(tensor, tensor->src[index], own, other, 2)) return;
        }
    }

    void norm(ggml_tensor * tensor) {
        const bool centered = tensor->op == GGML_OP_NORM;
        if ((!centered && tensor->op != GGML_OP_RMS_NORM) || !code_.takes_norm(tensor->src[0])) return;
        settings_.norms.push_back({parameter(tensor, 0), centered});
        become(tensor, code_.norm, &settings_.norms.back(), {tensor->src[0]});
    }

    /// Whether it is a product or convolution that can still be added to.
    bool sums(const Own & own) const {
        if (own.function == code_.mul_mat) return static_cast<const graphc_mul_mat_settings *>(own.settings)->relu == 0;
        const bool image = own.function == code_.conv_2d || own.function == code_.winograd;
        return image && static_cast<const graphc_conv_2d_settings *>(own.settings)->relu == 0;
    }

    /// ReLU, by the product or convolution that it alone reads or by itself.
    void relu(ggml_tensor * tensor) {
        if (!is_unary(tensor, GGML_UNARY_OP_RELU)) return;
        const Own own = inner_own(tensor->src[0]);
        if (!sums(own)) {
            if (code_.takes_activation(tensor->src[0])) become(tensor, code_.relu, nullptr, {tensor->src[0]});
        } else if (own.function == code_.mul_mat) {
            settings_.products.push_back(*static_cast<const graphc_mul_mat_settings *>(own.settings));
            settings_.products.back().relu = 1;
            become(tensor, own.function, &settings_.products.back(), sources_of(tensor->src[0]));
        } else {
            settings_.convolutions.push_back(*static_cast<const graphc_conv_2d_settings *>(own.settings));
            settings_.convolutions.back().relu = 1;
            become(tensor, own.function, &settings_.convolutions.back(), sources_of(tensor->src[0]));
        }
    }

    /// A product or convolution takes over the sum that alone reads it.
    void sum(ggml_tensor * tensor) {
        if (tensor->op != GGML_OP_ADD) return;
        for (const int index : {0, 1}) {
            const Tensor product = tensor->src[index];
            const Own own = inner_own(product);
            if (!sums(own) || !code_.takes_sum(tensor->src[1 - index], product, own.function != code_.mul_mat)) continue;
            if (extend(tensor, product, own, tensor->src[1 - index], most_sources + (own.function == code_.winograd))) return;
        }
    }

    /// A normalization takes over its scale, and then its shift.
    void factor(ggml_tensor * tensor) {
        const bool product = tensor->op == GGML_OP_MUL;
        if (!product && tensor->op != GGML_OP_ADD) return;
        const Tensor norm = tensor->src[0];
        const Own own = inner_own(norm);
        if (own.function != code_.norm || (norm->src[1] == nullptr) != product) return;
        if (code_.takes_factor(tensor->src[1], norm)) extend(tensor, norm, own, tensor->src[1], 3);
    }

    /// Has a tensor computed as one of ours is, with another source; false where there are as many as may be.
    bool extend(ggml_tensor * tensor, Tensor model, const Own & own, ggml_tensor * more, int most) {
        std::vector<ggml_tensor *> sources = sources_of(model);
        if (sources.size() == static_cast<size_t>(most)) return false;
        sources.push_back(more);
        become(tensor, own.function, own.settings, sources);
        return true;
    }

    void silu(ggml_tensor * tensor) {
        if (!is_unary(tensor, GGML_UNARY_OP_SILU)) return;
        const Tensor norm = tensor->src[0];
        const Own own = inner_own(norm);
        if (own.function != code_.group_norm) return;
        settings_.group_norms.push_back(*static_cast<const graphc_group_norm_settings *>(own.settings));
        settings_.group_norms.back().silu = 1;
        become(tensor, code_.group_norm, &settings_.group_norms.back(), {norm->src[0], norm->src[1], norm->src[2]});
    }

    const graphc_functions & code_;
    ggml_context * context_;
    ProductSettings & settings_;
    int threads_;
    const Choices & choices_;
    std::unordered_map<Tensor, int> uses_;
    std::unordered_map<Tensor, Own> own_;
};

}  // namespace

const ggml_tensor * convolution_of(const ggml_tensor * tensor) {
    if (tensor->op == GGML_OP_CONV_2D) return tensor;
    Tensor product = made_by(tensor, GGML_OP_CONT);
    for (const ggml_op op : {GGML_OP_PERMUTE, GGML_OP_RESHAPE, GGML_OP_MUL_MAT}) product = made_by(source(product, 0), op);
    const Tensor columns = made_by(source(made_by(source(product, 0), GGML_OP_RESHAPE), 0), GGML_OP_IM2COL);
    const Tensor kernel = made_by(source(product, 1), GGML_OP_RESHAPE);
    const bool whole = columns != nullptr && kernel != nullptr && kernel->src[0] == columns->src[0] && columns->op_params[6] == 1;
    return whole ? columns : nullptr;
}

void compute_as(ggml_tensor * tensor, const ggml_tensor * other) {
    tensor->op = other->op;
    std::memcpy(tensor->op_params, other->op_params, sizeof tensor->op_params);
    std::copy(std::begin(other->src), std::end(other->src), tensor->src);
}

void replace_products(ggml_context * context, ProductSettings & settings, int threads, const Choices & choices) {
    if (const graphc_functions * code = cpu_variant().functions) Replacing(*code, context, settings, threads, choices).run();
}

}  // namespace graphc
