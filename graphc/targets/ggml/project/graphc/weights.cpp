#include "graphc/weights.h"

#include "graphc/array.h"
#include "graphc/generated.h"

#include <algorithm>
#include <cstring>

namespace graphc {

namespace {

/// An address for tensors that have no place yet; nothing reads it.
void * const somewhere = reinterpret_cast<void *>(size_t{1} << 12);

/// A buffer around bytes that somebody else owns, at a multiple of `Mapping::alignment`. No operator of a program writes to a weight.
std::shared_ptr<ggml_backend_buffer> buffer_around(const std::byte * data, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte *>(data), size);
    if (buffer == nullptr) throw Error("not enough memory for weights");
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return {buffer, ggml_backend_buffer_free};
}

/// True if every element is one of `rows` rows. ggml would end the process for another.
bool numbers_rows(const StoredTensor & tensor, int64_t rows) {
    for (size_t at = 0; at + sizeof(int32_t) <= tensor.nbytes; at += sizeof(int32_t)) {
        int32_t row = 0;
        std::memcpy(&row, tensor.data + at, sizeof row);
        if (row < 0 || row >= rows) return false;
    }
    return true;
}

/// The order of five axes of which the first stays there.
std::vector<int64_t> behind_first(const std::array<int64_t, 4> & order) {
    std::vector<int64_t> found{0};
    for (const int64_t axis : order) found.push_back(axis + 1);
    return found;
}

/// The engine's tensor for a slot; a weight without elements is stored as an empty row.
const StoredTensor * find(const Engine & engine, const WeightSlot & slot, size_t index) {
    const StoredTensor * found = engine.find("w" + std::to_string(index));
    if (found == nullptr) throw Error(engine.path() + " lacks the weight '" + slot.name + "'; give a checkpoint that has it (--weights)");
    const bool fits = has_no_elements(slot.ne) ? found->nbytes == 0 : found->ne == slot.ne;
    if (!fits || found->type != slot.type) {
        throw Error(engine.path() + " has a weight '" + slot.name + "' of another type or shape than the code");
    }
    if (slot.rows > 0 && !numbers_rows(*found, slot.rows)) {
        throw Error(engine.path() + " has a weight '" + slot.name + "' that numbers rows which do not exist");
    }
    return found;
}

}  // namespace

Weights::Weights(const Engine & engine, const std::vector<WeightSlot> & slots, const Backends & backends,
                 const std::vector<std::optional<Values>> & given)
    : backends_(backends), own_(slots.size()) {
    context_.reset(ggml_init({(slots.size() + 1) * ggml_tensor_overhead(), nullptr, true}));
    const auto mapped = buffer_around(engine.mapping().data(), engine.mapping().size());
    for (size_t i = 0; i < slots.size(); ++i) {
        const WeightSlot & slot = slots[i];
        if (given[i] && given[i]->nbytes() != 0) {
            held_.stored.push_back({*given[i], buffer_around(given[i]->data, given[i]->nbytes())});
        } else {
            const StoredTensor & found = *find(engine, slot, i);
            held_.stored.push_back({{found.type, Shape(slot.ne.rbegin(), slot.ne.rend()), found.data, nullptr}, mapped});
        }
        packings_.push_back(slot.packing);
        if (slot.packing) {
            const int64_t outermost = slot.ne[2] * slot.ne[3];
            const int64_t count = slot.packing->of_doubled ? 4 * outermost * 2 * 2 : outermost * slot.ne[1] * slot.ne[0];
            *slot.tensor = ggml_new_tensor_1d(context_.get(), slot.packing->type, count);
        } else {
            *slot.tensor = ggml_new_tensor_4d(context_.get(), slot.type, slot.ne[0], slot.ne[1], slot.ne[2], slot.ne[3]);
        }
        ggml_set_name(*slot.tensor, slot.name);
        held_.tensors.push_back(*slot.tensor);
    }
}

Values Weights::placed(size_t index) const {
    const Values & found = stored(index);
    if (index >= own_ || !packings_[index]) return found;
    const Packing & packing = *packings_[index];
    Shape shape(4 - std::min<size_t>(found.shape.size(), 4), 1);
    shape.insert(shape.end(), found.shape.begin(), found.shape.end());
    const Values moved = packing.of_doubled ? transposed(undoubled(reshaped(found, shape)), behind_first(packing.order))
                                            : transposed(reshaped(found, shape), {packing.order.begin(), packing.order.end()});
    if (moved.type == packing.type) return moved;
    return packing.type == GGML_TYPE_F32 ? float32(moved) : narrowed(float32(moved), packing.type);
}

std::vector<Factors> Weights::factors() const {
    std::vector<Factors> found;
    for (const size_t weight : held_.beside) {
        const size_t down = own_ + 2 * found.size();
        found.push_back({weight, down, down + 1});
    }
    return found;
}

/// The model's own weights, with other factors beside them.
Weights::Held Weights::with(const std::vector<Beside> & beside) const {
    Held next = held_;
    next.stored.resize(own_);
    next.beside.clear();
    std::vector<Values> values;
    for (const Beside & each : beside) {
        next.beside.push_back(each.weight);
        values.insert(values.end(), {each.down, each.up});
    }
    bool same = next.beside == held_.beside;
    for (size_t i = 0; i < values.size(); ++i) {
        next.stored.push_back({values[i], buffer_around(values[i].data, values[i].nbytes())});
        same = same && values[i].shape == stored(own_ + i).shape;
    }
    if (same) return next;
    next.factors.reset(ggml_init({(values.size() + 1) * ggml_tensor_overhead(), nullptr, true}), ggml_free);
    next.tensors.resize(own_);
    for (const Values & each : values) {
        next.tensors.push_back(ggml_new_tensor_2d(next.factors.get(), each.type, each.shape[1], each.shape[0]));
        ggml_set_name(next.tensors.back(), "factor");  // building a graph names what has no name, and several are built at once
    }
    return next;
}

void Weights::replace(const std::vector<std::optional<Values>> & values, const std::vector<Beside> & beside,
                      const std::function<void()> & renew) {
    Held next = with(beside);
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] && values[i]->nbytes() != 0) next.stored[i] = {*values[i], buffer_around(values[i]->data, values[i]->nbytes())};
    }
    const graphc_residence * residence = residence_;
    const bool same = next.tensors == held_.tensors;
    const auto settle = [&] {
        if (same) {
            if (residence != nullptr) place(*residence);
        } else {
            clear();
            renew();
        }
    };
    std::swap(held_, next);
    try {
        settle();
    } catch (...) {
        std::swap(held_, next);
        settle();
        throw;
    }
}

std::vector<size_t> Weights::sizes() const {
    std::vector<size_t> found(held_.tensors.size(), 0);
    for (ggml_backend_t device : backends_.devices()) {
        ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(device);
        for (size_t i = 0; i < found.size(); ++i) found[i] = std::max(found[i], room_of(kind, held_.tensors[i]));
    }
    return found;
}

Indices Weights::refused() const {
    Indices found;
    for (ggml_backend_t device : backends_.devices()) {
        for (size_t i = 0; i < held_.tensors.size(); ++i) {
            if (!ggml_backend_supports_op(device, held_.tensors[i])) found.insert(i);
        }
    }
    return found;
}

void Weights::place(const graphc_residence & residence) {
    clear();
    std::vector<std::vector<size_t>> own(backends_.devices().size());
    for (size_t device = 0; device < own.size(); ++device) {
        const size_t size = graphc_residence_slot(&residence, static_cast<int>(device));
        if (size == 0) continue;
        for (ggml_backend_buffer_t & slot : slots_[device]) slot = new_buffer(device, size);
    }
    for (size_t i = 0; i < held_.tensors.size(); ++i) {
        const int device = graphc_residence_of(&residence, i);
        if (device == GRAPHC_ON_HOST) {
            map(i);
        } else if (graphc_residence_streamed(&residence, i)) {
            ggml_backend_buffer_t first = slot(static_cast<size_t>(device), 0);
            move_tensor(held_.tensors[i], first, ggml_backend_buffer_get_base(first));
        } else {
            own[static_cast<size_t>(device)].push_back(i);
        }
    }
    for (size_t device = 0; device < own.size(); ++device) copy(device, own[device]);
    residence_ = &residence;
}

void Weights::pretend(const graphc_residence & residence) {
    clear();
    std::vector<ggml_backend_buffer_t> empty;
    for (size_t number = 0; number < backends_.devices().size(); ++number) empty.push_back(new_buffer(number, 0));
    for (size_t i = 0; i < held_.tensors.size(); ++i) {
        const int device = graphc_residence_of(&residence, i);
        if (device == GRAPHC_ON_HOST) {
            map(i);
        } else {
            move_tensor(held_.tensors[i], empty[static_cast<size_t>(device)], somewhere);
        }
    }
}

size_t Weights::allocated(size_t device) const {
    size_t sum = 0;
    for (const ggml_backend_buffer_ptr & buffer : buffers_[device]) sum += ggml_backend_buffer_get_size(buffer.get());
    return sum;
}

/// Give back the memory on all devices.
void Weights::clear() {
    for (ggml_tensor * tensor : held_.tensors) move_tensor(tensor, nullptr, nullptr);
    residence_ = nullptr;
    slots_.assign(backends_.devices().size(), {});
    packed_.clear();
    buffers_.clear();
    buffers_.resize(backends_.devices().size());
}

/// Use a weight where it lies in the file, or a packed one in memory.
void Weights::map(size_t index) {
    const Stored * here = &held_.stored[index];
    if (index < own_ && packings_[index] && here->values.nbytes() != 0) {
        const Values values = placed(index);
        here = &packed_.emplace_back(Stored{values, buffer_around(values.data, values.nbytes())});
    }
    ggml_backend_tensor_alloc(here->buffer.get(), held_.tensors[index], const_cast<std::byte *>(here->values.data));
}

/// Copy weights to a device, into as many buffers as it takes. Throws Error.
void Weights::copy(size_t device, const std::vector<size_t> & own) {
    ggml_backend_buffer_type_t kind = ggml_backend_get_default_buffer_type(backends_.devices()[device]);
    const size_t most = ggml_backend_buft_get_max_size(kind);
    for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
        std::vector<size_t> offsets;
        size_t filled = 0;
        for (; end < own.size(); ++end) {
            const size_t room = room_of(kind, held_.tensors[own[end]]);
            if (end > begin && (filled > most || room > most - filled)) break;  // what is too large is tried by itself
            offsets.push_back(filled);
            filled += room;
        }
        ggml_backend_buffer_t buffer = new_buffer(device, filled);
        std::byte * base = static_cast<std::byte *>(ggml_backend_buffer_get_base(buffer));
        for (size_t i = begin; i < end; ++i) {
            const Values values = placed(own[i]);
            ggml_backend_tensor_alloc(buffer, held_.tensors[own[i]], base + offsets[i - begin]);
            ggml_backend_tensor_set(held_.tensors[own[i]], values.data, 0, values.nbytes());
            check_devices();
        }
    }
}

/// A new buffer for weights. Throws Error.
ggml_backend_buffer_t Weights::new_buffer(size_t device, size_t nbytes) {
    ggml_backend_t backend = backends_.devices()[device];
    ggml_backend_buffer_ptr buffer(ggml_backend_buft_alloc_buffer(ggml_backend_get_default_buffer_type(backend), nbytes));
    if (buffer == nullptr) {
        const std::string said = device_error();
        throw Error(device_name(backend) + " does not have the " + std::to_string((nbytes + (size_t{1} << 19)) >> 20) +
                    " MiB that the weights need; with a limit (--memory) they are streamed" + (said.empty() ? "" : " (" + said + ")"));
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    buffers_[device].push_back(std::move(buffer));
    return buffers_[device].back().get();
}

void move_tensor(ggml_tensor * tensor, ggml_backend_buffer_t buffer, void * address) {
    tensor->buffer = buffer;
    tensor->data = address;
}

size_t room_of(ggml_backend_buffer_type_t kind, const ggml_tensor * tensor) {
    const size_t align = ggml_backend_buft_get_alignment(kind);
    return (ggml_backend_buft_get_alloc_size(kind, tensor) + align - 1) / align * align;
}

}  // namespace graphc
