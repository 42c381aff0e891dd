// Computes with the libraries of a wheel, as Python does: products, attention and a convolution of our own code, in a graph of ggml's.
// It prints the bits of some results and a checksum of all, so that one system's answers can be compared with another's.
//
//     wheel_library FOLDER VARIANT      the folder of the libraries; the kind of processor, as in a library's name

#include "build.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#ifdef _WIN32
#include <windows.h>
#define PREFIX ""
#define ENDING ".dll"
static void * opened(const std::string & path) {
    char whole[MAX_PATH];
    if (GetFullPathNameA(path.c_str(), sizeof whole, whole, nullptr) == 0) return nullptr;
    return (void *) LoadLibraryExA(whole, nullptr, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);  // as Python
}
static void * symbol(void * library, const char * name) { return (void *) GetProcAddress((HMODULE) library, name); }
#else
#include <dlfcn.h>
#define PREFIX "lib"
#define ENDING ".so"
static void * opened(const std::string & path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL); }
static void * symbol(void * library, const char * name) { return dlsym(library, name); }
#endif

static void * base, * cpu;

/// A function of either library. Ends the process where there is none.
template <typename Function> static Function * found(const char * name) {
    void * place = symbol(cpu, name);
    if (place == nullptr) place = symbol(base, name);
    if (place == nullptr) printf("no %s\n", name), exit(1);
    return (Function *) place;
}

#define FOUND(name) found<decltype(name)>(#name)

using Linear = ggml_tensor * (graphc_builder *, ggml_tensor *, ggml_tensor *, const void *, ggml_tensor **, int);
using Attention = ggml_tensor * (graphc_builder *, ggml_tensor *, ggml_tensor *, ggml_tensor *, ggml_tensor *, float);
using Convolution = ggml_tensor * (graphc_builder *, ggml_tensor *, ggml_tensor *, ggml_tensor *, int, int, int, int, int, int, bool,
                                   const void *, ggml_tensor **, int);

/// A tensor with numbers that are drawn, the same on every system.
static ggml_tensor * drawn(ggml_context * context, int64_t a, int64_t b, int64_t c, int64_t d) {
    static uint32_t state = 1;
    ggml_tensor * tensor = FOUND(ggml_new_tensor_4d)(context, GGML_TYPE_F32, a, b, c, d);
    for (int64_t i = 0; i < a * b * c * d; ++i) {
        state = state * 1664525u + 1013904223u;
        ((float *) tensor->data)[i] = (float) (state >> 8) / (1 << 24) - 0.5f;
    }
    return tensor;
}

int main(int count, char ** words) {
    if (count != 3) return puts("wheel_library FOLDER VARIANT"), 2;
    const std::string begin = std::string(words[1]) + "/" PREFIX, variant = words[2];
    base = opened(begin + "ggml-base" ENDING), cpu = opened(begin + "ggml-cpu-" + variant + ENDING);
    if (base == nullptr || cpu == nullptr) return puts("the libraries cannot be loaded"), 1;
    const int score = found<int()>("ggml_backend_score")();
    if (score == 0) return puts("not for this processor"), 1;
    const auto * own = (const graphc_functions *) symbol(cpu, "graphc_own");
#define NAMED(name) FOUND(ggml_##name),
    const graphc_ggml functions = {GRAPHC_GGML(NAMED)};
    const int threads = 2;
    ggml_context * context = FOUND(ggml_init)({64 << 20, nullptr, false});
    ggml_backend_t backend = found<ggml_backend_t()>("ggml_backend_cpu_init")();
    found<void(ggml_backend_t, int)>("ggml_backend_cpu_set_n_threads")(backend, threads);
    graphc_builder * builder = FOUND(graphc_builder_new)(context, &functions, own, threads, false);
    auto * linear = found<Linear>("graphc_build_linear");
    ggml_tensor * image = drawn(context, 17, 13, 8, 2), * kernel = drawn(context, 3, 3, 8, 24), * x = drawn(context, 64, 96, 4, 1);
    ggml_tensor * key = drawn(context, 64, 64, 1, 1), * value = drawn(context, 80, 96, 4, 1);
    ggml_tensor * results[] = {
        linear(builder, key, x, nullptr, nullptr, 0),
        found<Attention>("graphc_build_attention")(builder, x, linear(builder, key, x, nullptr, nullptr, 0), value, nullptr, 0.125f),
        found<Convolution>("graphc_build_conv_2d")(builder, kernel, image, nullptr, 1, 1, 1, 1, 1, 1, false, nullptr, nullptr, 0),
        FOUND(ggml_soft_max)(context, x),
    };
    ggml_cgraph * graph = FOUND(ggml_new_graph)(context);
    for (ggml_tensor * each : results) FOUND(ggml_build_forward_expand)(graph, each);
    if (FOUND(ggml_backend_graph_compute)(backend, graph) != GGML_STATUS_SUCCESS) return puts("it was not computed"), 1;
    printf("%s, score %d\n", variant.c_str(), score);
    for (ggml_tensor * each : results) {
        uint64_t sum = 14695981039346656037u;  // FNV-1a
        const auto * bytes = (const unsigned char *) each->data;
        for (size_t i = 0; i < FOUND(ggml_nbytes)(each); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
        const auto * first = (const float *) each->data;
        printf("%s [%d, %d, %d, %d] %.9g %.9g %016llx\n", FOUND(ggml_op_name)(each->op), (int) each->ne[0], (int) each->ne[1],
               (int) each->ne[2], (int) each->ne[3], first[0], first[1], (unsigned long long) sum);
    }
    return 0;
}
