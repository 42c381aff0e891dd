#include "graphc/weights.h"

#include "graphc/array.h"

#include <cstring>

namespace graphc {

namespace {

/// True if every element is one of `rows` rows. ggml would end the process for another.
bool numbers_rows(const StoredTensor & tensor, int64_t rows) {
    for (size_t at = 0; at + sizeof(int32_t) <= tensor.nbytes; at += sizeof(int32_t)) {
        int32_t row = 0;
        std::memcpy(&row, tensor.data + at, sizeof row);
        if (row < 0 || row >= rows) return false;
    }
    return true;
}

/// The engine's tensor for a slot; a weight without elements is stored as an empty row.
const StoredTensor * find(const Engine & engine, const WeightSlot & slot, size_t index) {
    const StoredTensor * found = engine.find("w" + std::to_string(index));
    if (found == nullptr) throw Error(engine.path() + " lacks the weight '" + slot.name + "'");
    const bool fits = has_no_elements(slot.ne) ? found->nbytes == 0 : found->ne == slot.ne;
    if (!fits || found->type != slot.type) {
        throw Error(engine.path() + " has a weight '" + slot.name + "' of another type or shape than the code");
    }
    if (slot.rows > 0 && !numbers_rows(*found, slot.rows)) {
        throw Error(engine.path() + " has a weight '" + slot.name + "' that numbers rows which do not exist");
    }
    return found;
}

using Placed = std::vector<std::pair<ggml_tensor *, const StoredTensor *>>;

/// A buffer over the mapped file, in which every tensor lies where the file has it.
ggml_backend_buffer_t map(const Placed & weights, const Mapping & mapping) {
    // The pages are read-only; no operator of a program writes to a weight.
    ggml_backend_buffer_t buffer =
        ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte *>(mapping.data()), mapping.size());
    for (const auto & [tensor, stored] : weights) {
        ggml_backend_tensor_alloc(buffer, tensor, const_cast<std::byte *>(stored->data));
    }
    return buffer;
}

ggml_backend_buffer_t copy(const Placed & weights, ggml_context * context, ggml_backend_t device) {
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, device);
    if (buffer == nullptr) throw Error("the device has not enough memory for the weights");
    for (const auto & [tensor, stored] : weights) {
        if (stored->nbytes != 0) ggml_backend_tensor_set(tensor, stored->data, 0, stored->nbytes);
    }
    return buffer;
}

}  // namespace

Weights::Weights(const Engine & engine, const std::vector<WeightSlot> & slots, const Backends & backends) {
    context_.reset(ggml_init({(slots.size() + 1) * ggml_tensor_overhead(), nullptr, true}));
    Placed weights;
    for (size_t i = 0; i < slots.size(); ++i) {
        const WeightSlot & slot = slots[i];
        const StoredTensor * stored = find(engine, slot, i);
        *slot.tensor = ggml_new_tensor_4d(context_.get(), slot.type, slot.ne[0], slot.ne[1], slot.ne[2], slot.ne[3]);
        ggml_set_name(*slot.tensor, slot.name);
        weights.emplace_back(*slot.tensor, stored);
    }
    if (weights.empty()) return;
    buffer_.reset(backends.accelerated() ? copy(weights, context_.get(), backends.device())
                                         : map(weights, engine.mapping()));
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

}  // namespace graphc
