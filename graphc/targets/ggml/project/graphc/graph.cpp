#include "graphc/graph.h"

#include "graphc/assign.h"
#include "graphc/generated.h"
#include "graphc/placement.h"

#include <algorithm>
#include <limits>

namespace graphc {

namespace {

/// ggml's sizes for a shape: reversed; the leading axes of more than four are merged.
Sizes4 storage_sizes(const Shape & shape) {
    Sizes4 ne = {1, 1, 1, 1};
    for (size_t i = 0; i < shape.size(); ++i) ne[std::min<size_t>(i, 3)] *= shape[shape.size() - 1 - i];
    return ne;
}

template <class T> std::vector<int64_t> widen(const Array & array) {
    const T * values = array.data<T>();
    return std::vector<int64_t>(values, values + array.size());
}

/// The values of an integer array. Throws Error for other element types.
std::vector<int64_t> integers(const Array & array) {
    switch (array.dtype()) {
        case DType::int8: return widen<int8_t>(array);
        case DType::uint8: return widen<uint8_t>(array);
        case DType::int16: return widen<int16_t>(array);
        case DType::uint16: return widen<uint16_t>(array);
        case DType::int32: return widen<int32_t>(array);
        case DType::uint32: return widen<uint32_t>(array);
        case DType::int64: return widen<int64_t>(array);
        default: throw Error(std::string("an array of ") + dtype_name(array.dtype()) + " holds no integers");
    }
}

std::string position(size_t index, const Shape & shape) {
    Shape where(shape.size());
    for (size_t axis = shape.size(); axis-- > 0;) {
        where[axis] = static_cast<int64_t>(index % static_cast<size_t>(shape[axis]));
        index /= static_cast<size_t>(shape[axis]);
    }
    return to_string(where);
}

/// Throws Error if a value is outside of the range that the input, or the tensor that holds it, has.
void check_range(const InputInfo & info, const Array & array, const std::vector<int64_t> & values) {
    const int64_t low = info.bounded ? info.low : std::numeric_limits<int32_t>::min();
    const int64_t high = info.bounded ? info.high : int64_t{std::numeric_limits<int32_t>::max()} + 1;
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] < low || values[i] >= high) {
            throw Error(info.name + ": " + std::to_string(values[i]) + " at " + position(i, array.shape()) + " is not in " +
                        std::to_string(low) + ".." + std::to_string(high - 1));
        }
    }
}

bool narrowed(const InputInfo & info) { return info.type == GGML_TYPE_I32 && dtype_size(info.dtype) != sizeof(int32_t); }

/// True if an input's numbers are looked at, or changed, before they are used.
bool looked_at(const InputInfo & info) { return info.bounded || narrowed(info); }

void upload(ggml_tensor * tensor, const InputInfo & info, const Array & array) {
    std::vector<int32_t> narrow;
    const void * data = array.bytes().data();
    if (looked_at(info)) {
        std::vector<int64_t> values = integers(array);
        if (info.from_end) {
            for (int64_t & value : values) value += value < 0 && value >= -info.high ? info.high : 0;
        }
        check_range(info, array, values);
        if (narrowed(info) || info.from_end) {
            narrow.assign(values.begin(), values.end());
            data = narrow.data();
        }
    }
    if (array.size() != 0) ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

/// Have an array hold as many elements as an output has. Throws Error if that is not what its tensor has.
void make_room(Array & array, const GraphOutput & output, const OutputInfo & info) {
    array.become(info.dtype, output.shape);
    if (array.bytes().size() != (array.size() == 0 ? 0 : ggml_nbytes(output.tensor))) {
        throw Error("output " + info.name + " does not have the size that the code gives");
    }
}

/// Keep a tensor's memory until the graph has run, and between runs. What a view reads is its source's memory.
void keep(ggml_tensor * tensor) {
    ggml_set_output(tensor);
    if (tensor->view_src != nullptr) ggml_set_output(tensor->view_src);
}

/// Throws Error unless the bytes of every tensor can be counted.
void check_sizes(ggml_context * context) {
    Shape shape(GGML_MAX_DIMS);
    for (ggml_tensor * each = ggml_get_first_tensor(context); each; each = ggml_get_next_tensor(context, each)) {
        std::reverse_copy(each->ne, each->ne + GGML_MAX_DIMS, shape.begin());
        element_count(shape, ggml_type_size(each->type));
    }
}

}  // namespace

Graph::Graph(Memory & memory, const Backends & backends, Results & results, const std::vector<InputInfo> & infos,
             const std::vector<const Array *> & inputs, Kernels kernels, size_t tensor_count, const BuildGraph & build)
    : memory_(memory), kernels_(std::move(kernels)) {
    const size_t count = (memory.weights().factors().empty() ? 1 : 3) * tensor_count + 2 * infos.size() + 64;
    const size_t bytes = count * ggml_tensor_overhead() + ggml_graph_overhead_custom(count, false);
    context_.reset(ggml_init({bytes, nullptr, true}));
    for (size_t i = 0; i < infos.size(); ++i) {
        const Sizes4 ne = storage_sizes(inputs[i]->shape());
        inputs_.push_back(ggml_new_tensor_4d(context_.get(), infos[i].type, ne[0], ne[1], ne[2], ne[3]));
        ggml_set_name(inputs_.back(), infos[i].name.c_str());
        ggml_set_input(inputs_.back());
        keep(inputs_.back());
    }
    builder_ = std::make_unique<Builder>(context_.get(), backends, memory.weights());
    outputs_ = build(*builder_, kernels_, inputs_);
    check_sizes(context_.get());
    for (const GraphOutput & output : outputs_) keep(output.tensor);
    graph_ = ggml_new_graph_custom(context_.get(), count, false);
    for (const GraphOutput & output : outputs_) ggml_build_forward_expand(graph_, output.tensor);
    for (ggml_tensor * input : inputs_) ggml_build_forward_expand(graph_, input);
    ggml_tensor * byte = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I8, 1);  // ggml cannot place a graph without bytes
    ggml_set_input(byte);
    ggml_build_forward_expand(graph_, byte);
    if (backends.servers() > 1) order_views(graph_);
    std::vector<ggml_tensor *> lent = lend(infos, !backends.accelerated());
    placement_ = std::make_unique<Placement>(backends, results, context_.get(), graph_, count, std::move(lent));
}

std::vector<ggml_tensor *> Graph::lend(const std::vector<InputInfo> & infos, bool on_the_cpu) {
    std::vector<ggml_tensor *> lent;
    for (size_t i = 0; i < infos.size(); ++i) {
        inputs_lent_.push_back(on_the_cpu && !looked_at(infos[i]) && ggml_nelements(inputs_[i]) != 0);
        if (inputs_lent_.back()) lent.push_back(inputs_[i]);
    }
    for (const GraphOutput & output : outputs_) {
        ggml_tensor * owner = output.tensor->view_src == nullptr ? output.tensor : output.tensor->view_src;
        const bool whole = output.tensor->view_offs == 0 && ggml_nbytes(owner) == ggml_nbytes(output.tensor);
        const bool made = ggml_nelements(owner) != 0 && !graphc_is_view(owner), first = std::find(lent.begin(), lent.end(), owner) == lent.end();
        outputs_lent_.push_back(on_the_cpu && whole && made && first);  // else it is a part of something, or of another's array
        if (outputs_lent_.back()) lent.push_back(owner);
    }
    return lent;
}

Graph::~Graph() { memory_.forget(*placement_); }

void Graph::run(const std::vector<InputInfo> & infos, const std::vector<const Array *> & inputs,
                const std::vector<OutputInfo> & declared, const std::vector<Array *> & outputs) {
    std::vector<void *> places;
    for (size_t i = 0; i < outputs.size(); ++i) make_room(*outputs[i], outputs_[i], declared[i]);
    for (size_t i = 0; i < infos.size(); ++i) {
        if (inputs_lent_[i]) places.push_back(const_cast<std::byte *>(inputs[i]->bytes().data()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs_lent_[i]) places.push_back(outputs[i]->bytes().data());
    }
    memory_.place(*placement_, places);
    for (size_t i = 0; i < infos.size(); ++i) {
        if (!inputs_lent_[i]) upload(inputs_[i], infos[i], *inputs[i]);
    }
    check_devices();
    kernels_.reset();
    const ggml_status status = placement_->compute();
    check_devices();
    if (status != GGML_STATUS_SUCCESS) throw Error(std::string("ggml could not compute: ") + ggml_status_to_string(status));
    kernels_.check();
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs_lent_[i] || outputs[i]->size() == 0) continue;
        ggml_backend_tensor_get(outputs_[i].tensor, outputs[i]->bytes().data(), 0, outputs[i]->bytes().size());
    }
    check_devices();
}

}  // namespace graphc
