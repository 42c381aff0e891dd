#include "graphc/generated.h"

#include "graphc/error.h"

#include "gpu/gpu.h"

#include <cstdlib>

/// ggml has it, and declares it in no header that is installed.
extern "C" ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t, ggml_buffer_functions, void *, size_t);

namespace graphc {

void load_generated() {
    static const graphc_gpu_ggml functions{ggml_backend_buffer_init, ggml_nbytes,           ggml_graph_n_nodes,  ggml_graph_node,
                                           ggml_backend_register,    ggml_backend_reg_count, ggml_backend_reg_get};
    static const bool loaded = [] {
        graphc_gpu_register(&functions, "cuda", nullptr, "cuda");
        const char * stand_in = std::getenv("GRAPHC_EMULATED");
        if (stand_in != nullptr) graphc_gpu_register(&functions, "cuda", stand_in, "emulated");
        return true;
    }();
    static_cast<void>(loaded);
}

bool is_generated(ggml_backend_dev_t device) { return graphc_gpu_is(device); }

std::string device_error() {
    const char * said = graphc_gpu_error();
    return said == nullptr ? "" : said;
}

void check_devices() {
    const std::string said = device_error();
    if (!said.empty()) throw Error(said);
}

}  // namespace graphc
