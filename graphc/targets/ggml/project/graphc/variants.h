#pragma once

// The functions of products.h as one table, of which a program may have several: the same code, compiled for several kinds of
// processors. The best that the processor can run is chosen when the program runs.

#include "products.h"

/// Every function of products.h, without its prefix.
#define GRAPHC_FUNCTIONS(F) \
    F(takes_mul_mat) F(mul_mat) \
    F(takes_conv_2d) F(conv_2d) \
    F(takes_winograd) F(prefers_winograd) F(winograd_size) F(winograd_operands) F(winograd) \
    F(takes_sum) \
    F(takes_attention) F(prefers_attention) F(attention) \
    F(takes_activation) F(relu) F(gelu) F(gate) \
    F(takes_group_norm) F(group_norm) \
    F(takes_norm) F(takes_factor) F(norm) \
    F(takes_rotary) F(takes_rest) F(rotary) \
    F(takes_concat) F(concat) F(takes_pad) F(pad) \
    F(takes_permuted_copy) F(permuted_copy)

#ifdef __cplusplus
#define GRAPHC_FIELD(name) decltype(graphc_##name) * name;
#else
#define GRAPHC_FIELD(name) __typeof__(graphc_##name) * name;
#endif

struct graphc_functions {
    GRAPHC_FUNCTIONS(GRAPHC_FIELD)
};

#ifdef __cplusplus
namespace graphc {

/// Code for a kind of processor.
struct Variant {
    const char * name;                   // "x86-64-v3"; "single" where the program has one variant
    const graphc_functions * functions;  // nullptr where the compiler could not make them: ggml computes everything
};

/// What this program uses on this processor: the best, or the one that the environment variable GRAPHC_CPU_VARIANT names. The choice
/// is made once. Throws Error if there is no such variant or the processor cannot run it.
const Variant & cpu_variant();

}  // namespace graphc
#endif
