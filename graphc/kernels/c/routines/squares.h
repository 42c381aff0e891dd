// Turns squares of vectors: what was a row becomes a column.
#pragma once

#if !defined(__clang__) && __GNUC__ < 12
#define GRAPHC_MIX(vector, a, b, ...) __builtin_shuffle(a, b, (vector) {__VA_ARGS__})
#else
#define GRAPHC_MIX(vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

// Turns an array of as many vectors as each has elements; `first` and `last` are the elements of the first and of the last halves of
// two vectors by turns.
#define GRAPHC_TURN(vector, count, rows, first, last) \
    do { \
        vector mixed[count]; \
        _Pragma("GCC unroll 4") \
        for (int turn = 1; turn < count; turn *= 2) { \
            _Pragma("GCC unroll 8") \
            for (int i = 0; i < count / 2; i++) { \
                mixed[2 * i] = first(rows[i], rows[i + count / 2]); \
                mixed[2 * i + 1] = last(rows[i], rows[i + count / 2]); \
            } \
            _Pragma("GCC unroll 16") \
            for (int i = 0; i < count; i++) rows[i] = mixed[i]; \
        } \
    } while (0)
