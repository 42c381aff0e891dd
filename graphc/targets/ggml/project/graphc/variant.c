// All of our own code, compiled for one kind of processor: a table with the name GRAPHC_VARIANT.

#ifndef GRAPHC_API
#define GRAPHC_API static
#endif

#if defined(__GNUC__) && !defined(__clang__)
// It would read cells that another thread writes, and write them back.
#pragma GCC optimize("no-predictive-commoning", "no-tree-loop-distribute-patterns")
#endif

#include "variants.h"

#include "own.c"

#define GRAPHC_ENTRY(name) graphc_##name,

extern const struct graphc_functions GRAPHC_VARIANT;
const struct graphc_functions GRAPHC_VARIANT = {GRAPHC_FUNCTIONS(GRAPHC_ENTRY)};
