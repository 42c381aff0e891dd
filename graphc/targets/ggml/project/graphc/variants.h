#pragma once

// The functions of our own code (`own/`) as one table, of which a program may have several: the same code, compiled for several kinds of
// processors. The best that the processor can run is chosen when the program runs.

#include "own.h"

#ifdef __cplusplus
#define GRAPHC_POINTER(function) decltype(function) *
#else
#define GRAPHC_POINTER(function) __typeof__(function) *
#endif

#define GRAPHC_FIELD(name) GRAPHC_POINTER(graphc_##name) name;

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
