// Parts of stable-diffusion.cpp, each by itself: what its pipeline calls for a step, a decoding or a prompt.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "auto_encoder_kl.hpp"
#include "clip.hpp"
#include "model.h"
#include "stable-diffusion.h"
#include "unet.hpp"

namespace {

/// An array of a model's input or output: sizes with the innermost axis first, and elements in order.
struct Array {
    int64_t axes;
    const int64_t * sizes;
    void * data;
};

template <typename T> sd::Tensor<T> tensor(const Array & array) {
    const std::vector<int64_t> shape(array.sizes, array.sizes + array.axes);
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const T * data = static_cast<const T *>(array.data);
    return sd::Tensor<T>(shape, std::vector<T>(data, data + count));
}

struct Part {
    int threads = 1;
    virtual ~Part() = default;
    virtual sd::Tensor<float> run(const Array * inputs) = 0;
    virtual size_t bytes() = 0;
};

/// Give a runner its weights from a file, and how it computes convolutions.
template <typename Runner>
bool prepare(Runner & runner, ModelLoader & loader, const std::string & prefix, bool direct, int threads) {
    runner.set_conv2d_direct_enabled(direct);
    runner.alloc_params_buffer();
    std::map<std::string, ggml_tensor *> tensors;
    runner.get_param_tensors(tensors, prefix);
    const auto & stored = loader.get_tensor_storage_map();
    for (const auto & [name, each] : tensors) {
        if (!stored.count(name)) return false;
    }
    std::set<std::string> others;
    for (const auto & [name, each] : stored) {
        if (!tensors.count(name)) others.insert(name);
    }
    return loader.load_tensors(tensors, others, threads);
}

struct UNet : Part {
    UNetModelRunner runner;
    UNet(ggml_backend_t backend, ModelLoader & loader)
        : runner(backend, false, loader.get_tensor_storage_map(), "model.diffusion_model", VERSION_SD1) {}
    sd::Tensor<float> run(const Array * inputs) override {
        return runner.compute(threads, tensor<float>(inputs[0]), tensor<float>(inputs[1]), tensor<float>(inputs[2]));
    }
    size_t bytes() override { return runner.get_params_buffer_size(); }
};

struct ImageDecoder : Part {
    AutoEncoderKL runner;
    ImageDecoder(ggml_backend_t backend, ModelLoader & loader)
        : runner(backend, false, loader.get_tensor_storage_map(), "first_stage_model", true, false, VERSION_SD1) {}
    sd::Tensor<float> run(const Array * inputs) override { return runner._compute(threads, tensor<float>(inputs[0]), true); }
    size_t bytes() override { return runner.get_params_buffer_size(); }
};

struct Text : Part {
    CLIPTextModelRunner runner;
    Text(ggml_backend_t backend, ModelLoader & loader)
        : runner(backend, false, loader.get_tensor_storage_map(), "cond_stage_model.transformer.text_model") {}
    sd::Tensor<float> run(const Array * inputs) override {
        return runner.compute(threads, tensor<int32_t>(inputs[0]), 0, nullptr, 0, false, -1);
    }
    size_t bytes() override { return runner.get_params_buffer_size(); }
};

template <typename Kind> Part * opened(ModelLoader & loader, const std::string & prefix, bool direct, int threads) {
    auto part = std::make_unique<Kind>(ggml_backend_cpu_init(), loader);
    part->threads = threads;
    return prepare(part->runner, loader, prefix, direct, threads) ? part.release() : nullptr;
}

}  // namespace

extern "C" {

/// A part (unet, decoder or text) with its weights from a file in the original layout, as the file has them or in one of
/// ggml's types (-1 for none); null where something is missing.
void * parts_open(const char * file, const char * name, bool direct, int threads, int type) {
    sd_set_progress_callback([](int, int, float, void *) {}, nullptr);
    ModelLoader loader;
    if (!loader.init_from_file_and_convert_name(file, "", VERSION_SD1)) return nullptr;
    if (type >= 0) loader.set_wtype_override(static_cast<ggml_type>(type));
    const std::string which = name;
    if (which == "unet") return opened<UNet>(loader, "model.diffusion_model", direct, threads);
    if (which == "decoder") return opened<ImageDecoder>(loader, "first_stage_model", direct, threads);
    return opened<Text>(loader, "cond_stage_model.transformer.text_model", direct, threads);
}

/// Bytes of the weights.
int64_t parts_bytes(void * part) { return static_cast<int64_t>(static_cast<Part *>(part)->bytes()); }

/// One run; the result's elements, if it has as many as the output's sizes say.
bool parts_run(void * part, const Array * inputs, const Array * output) {
    const sd::Tensor<float> result = static_cast<Part *>(part)->run(inputs);
    int64_t count = 1;
    for (int64_t axis = 0; axis < output->axes; ++axis) count *= output->sizes[axis];
    if (static_cast<int64_t>(result.values().size()) != count) return false;
    std::copy(result.values().begin(), result.values().end(), static_cast<float *>(output->data));
    return true;
}
}
