#pragma once

#include "graphc/array.h"
#include "graphc/device.h"
#include "graphc/engine.h"
#include "graphc/host.h"
#include "graphc/memory.h"
#include "graphc/launches.h"
#include "graphc/lora.h"
#include "graphc/part.h"
#include "graphc/sizes.h"
#include "graphc/weights.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace graphc {

/// What a model runs on; see `Backends`.
struct Options {
    std::string device = {};           // one, or several with commas between; "gpu": the first graphics processor; empty: the CPU
    int threads = 0;                   // of the CPU, for all runs together; below 1: one for each processor that this process may use
    bool fast = false;                 // let float32 be multiplied as float16, TF32 or bfloat16 where the device is faster so
    std::filesystem::path ways = {};   // what `graphc tune --output` wrote for this device
    std::string memory = {};           // what each device may use ("4GiB", or "4GiB,2GiB" for two); empty, or "auto": what is free
    std::filesystem::path weights = {};  // a checkpoint to take the weights from, for an engine with or without its own
    int contexts = 0;                  // most runs at the same time, others wait; below 1: one for each thread on the CPU, else one
};

/// What the generated code knows about its model.
struct ModelInfo {
    const char * name = "";
    const char * program_sha256 = "";  // of the program that the engine must hold
    size_t tensor_count = 0;           // at least the number of tensors that `build` makes
    std::vector<const char *> faults;  // what a kernel's fault means, counted from 1
    std::vector<InputInfo> inputs;
    std::vector<OutputInfo> outputs;
    std::vector<Symbol> symbols;
    GpuCode gpu = {};
};

/// The base of every generated model. Any number of threads may call `run` at once: each run has a `Context` of its own, and they
/// share the weights.
class Model {
  public:
    virtual ~Model() = default;
    Model(const Model &) = delete;
    Model & operator=(const Model &) = delete;

    const ModelInfo & info() const { return info_; }
    const Backends & backends() const { return backends_; }

    /// What the model launches on a GPU; nullptr if it was not compiled for any.
    const DeviceKernels * device_kernels() const { return device_kernels_.get(); }

    /// Where weights and intermediate results lie.
    const Memory & memory() const { return memory_; }

    /// The shapes of the inputs for values of the model's symbols, in order.
    virtual std::vector<Shape> input_shapes(const std::vector<int64_t> & sizes) const = 0;

    /// Take the weights of another checkpoint of the same architecture, whose tensors have the names that PyTorch gave the model's
    /// parameters. Runs that are going on are waited for, and new ones wait. If not `strict`, tensors that
    /// the model does not have are passed over, and weights stay of which the checkpoint has no parameter.
    /// Throws Error with all that does not fit; the model is as before then.
    void load_weights(const Checkpoint & checkpoint, bool strict = true);

    /// Add a LoRA to the weights, under a name of the caller's; it stays when other weights are loaded. `read_lora` says which files it
    /// takes. Returns the modules of the file that the model does not have. Throws Error; the model is as before then.
    std::vector<std::string> load_lora(const std::string & name, const Checkpoint & file, float strength = 1);

    /// Change how strongly a LoRA counts; 0 leaves it out. Throws Error for a name that there is not.
    void set_lora(const std::string & name, float strength);

    /// Take a LoRA off: without any the weights are what they were, bit for bit. Throws Error for a name that there is not.
    void unload_lora(const std::string & name);

    /// The name of the device that computes, or the names of several.
    std::string device_name() const;

    /// Outputs by name, for inputs by name. Throws Error with everything that does not fit.
    std::map<std::string, Array> run(const std::map<std::string, Array> & inputs) const;

    /// Outputs in the model's order, for inputs in the model's order. Throws Error with everything that does not fit.
    std::vector<Array> run_in_order(const std::vector<const Array *> & inputs) const;

  protected:
    /// The same, into arrays: see `Graph::run`.
    void run_into(const std::vector<const Array *> & inputs, const std::vector<Array *> & outputs) const;

    /// Throws Error if the engine is missing, damaged or another program's, or there is no such device.
    Model(ModelInfo info, Engine engine, const Options & options);

    /// Fills the slots; called once, by the generated constructor. `together` are the weights that one call reads with others.
    void load(std::vector<WeightSlot> slots, const std::vector<std::vector<size_t>> & together = {});

    /// The values of the model's symbols, in order, that the inputs imply. Throws Error.
    virtual std::vector<int64_t> bind(const InputSizes & given) const = 0;

    /// Throws Error unless the model can be computed for those sizes.
    virtual void check(const std::vector<int64_t> & sizes) const = 0;

    /// The model's calls for those sizes, from its inputs to its outputs, where they are one graph.
    virtual std::vector<GraphOutput> build(const Builder & ctx, Kernels & kernels, const std::vector<int64_t> & sizes,
                                           const std::vector<ggml_tensor *> & inputs) const;

    /// Gives the outputs for inputs of those sizes. A model that acts itself between graphs has parts, and says here in which
    /// order.
    virtual void compute(Context & context, const std::vector<int64_t> & sizes, const std::vector<const Array *> & inputs,
                         const std::vector<Array *> & outputs) const;

  private:
    using Loras = std::map<std::string, Lora>;
    void change(const std::function<void(const Recipes & recipes, Base & base, Loras & loras)> & change);
    std::vector<int64_t> checked_sizes(const std::vector<const Array *> & inputs) const;

    ModelInfo info_;
    Engine engine_;
    Backends backends_;
    std::unique_ptr<const DeviceKernels> device_kernels_;
    Memory memory_;
    Part whole_;
    Options options_;
    std::vector<WeightSlot> slots_;
    std::mutex changing_;  // of what follows, and of the weights
    Base base_;
    Loras loras_;
    std::unique_ptr<Contexts> contexts_;
};

}  // namespace graphc
