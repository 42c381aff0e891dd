#pragma once

// Makes the calls of a section in a graph: functions of ggml's and of ours, with arguments from a list. Python would take ten times as long,
// which matters where each run has sizes of its own. What this is given is made in `run/native_calls.py`.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// What calls may be given: addresses, whole numbers, and numbers.
union graphc_argument {
    void * address;
    int64_t integer;
    double number;
};

/// A call: its function, of which kind that is, what of `places` has the places of its arguments, and the place of its result.
struct graphc_call {
    void * function;
    int kind, first, count, result;
};

/// Makes calls whose arguments are in the list at these places, and puts their results there. After each, `told` gets what `decided` is then.
/// Returns how many were made: not all if one gave nothing.
GRAPHC_API int graphc_make_calls(union graphc_argument * list, const struct graphc_call * calls, int count, const int * places, const int * decided,
                                 int * told);
