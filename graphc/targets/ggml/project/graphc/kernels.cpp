#include "graphc/kernels.h"

#include "graphc/error.h"

namespace graphc {

ggml_tensor * empty_tensor(ggml_context * ctx, ggml_type type, const Sizes4 & ne) {
    ggml_tensor * tensor = ggml_new_tensor_4d(ctx, type, ne[0], ne[1], ne[2], ne[3]);
    ggml_set_input(tensor);  // the scheduler looks for who computes it otherwise
    return tensor;
}

Kernels::Kernels(const std::vector<int64_t> & sizes, std::vector<const char *> faults, const DeviceKernels * device)
    : data_(1, {0}), faults_(std::move(faults)), device_(device) {
    data_.front().insert(data_.front().end(), sizes.begin(), sizes.end());
}

ggml_tensor * Kernels::call(ggml_context * ctx, ggml_custom_op_t kernel, ggml_type type, const Sizes4 & ne,
                            std::vector<ggml_tensor *> inputs, std::initializer_list<KernelArgument> arguments) {
    if (has_no_elements(ne)) return empty_tensor(ctx, type, ne);
    std::vector<int64_t> * data = &data_.front();
    if (arguments.size() != 0) {
        data = &data_.emplace_back(*data);
        for (const KernelArgument & each : arguments) data->push_back(each.bits);
    }
    return ggml_custom_4d(ctx, type, ne[0], ne[1], ne[2], ne[3], inputs.data(), static_cast<int>(inputs.size()), kernel,
                          GGML_N_TASKS_MAX, data->data());
}

ggml_tensor * Kernels::launch(ggml_context * ctx, const Launched & launched, ggml_type type, const Sizes4 & ne,
                              std::vector<ggml_tensor *> inputs, std::initializer_list<int64_t> numbers) {
    if (has_no_elements(ne)) return empty_tensor(ctx, type, ne);
    for (const ggml_tensor * each : inputs) require_countable(Shape(each->ne, each->ne + GGML_MAX_DIMS));
    require_countable(Shape(ne.begin(), ne.end()));
    graphc_launches * launches = work_.emplace_back(launched, *device_, numbers).launches();
    return ggml_custom_4d(ctx, type, ne[0], ne[1], ne[2], ne[3], inputs.data(), static_cast<int>(inputs.size()), graphc_gpu_node, 1,
                          launches);
}

void Kernels::reset() {
    for (std::vector<int64_t> & each : data_) each[0] = 0;
}

void Kernels::check() const {
    for (const std::vector<int64_t> & each : data_) {
        const size_t fault = static_cast<size_t>(each[0]);
        if (fault != 0) throw Error(fault <= faults_.size() ? faults_[fault - 1] : "a kernel failed");
    }
}

}  // namespace graphc
