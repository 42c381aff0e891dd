#pragma once

// What all of our own code for the CPU has: custom operators for ggml's graphs, in place of ggml's own.

#include "ggml.h"

#include <stdbool.h>

/// How functions are seen from outside. Not at all (`static`) where a file has all of the code and gives a table of it: `variant.c`.
#ifndef GRAPHC_API
#define GRAPHC_API
#endif

enum { GRAPHC_RANGES = 16 };

/// How the threads share the work of an operator: each takes the next unit of a range of its own, so that it finds what it made itself in
/// the operator before; then of others, so that nobody waits for a thread that other programs hold up. 0 before and after a run. Every
/// operator in a graph has one of its own.
struct graphc_turns {
    struct {
        int next, apart[15];  // lines of the cache
    } ranges[GRAPHC_RANGES];
    int finished;
};
