#pragma once

// What reads each type of weights.

#include "widen.h"
#include "words.h"

/// What reads a type as float32 and multiplies it with a row, which is to lie in the `order` of words if that has bytes.
struct reader {
    ggml_to_float_t widen;
    void (*dot)(const void *, const float *, int64_t, int64_t, vector *);
    void (*scaled_widen)(const void *, struct scaling, int64_t, float *);
    void (*scaled_dot)(const void *, struct scaling, const float *, int64_t, int64_t, vector *);
    struct halves order;
};

static const struct reader readers[GGML_TYPE_COUNT] = {
    [GGML_TYPE_F32] = {widen_f32, dot_f32},
    [GGML_TYPE_F16] = {widen_f16, dot_f16},
    [GGML_TYPE_BF16] = {widen_bf16, dot_bf16},
    [GGML_TYPE_Q8_0] = {widen_q8_0, dot_q8_0, scaled_widen_q8_0, scaled_dot_q8_0},
    [GGML_TYPE_Q4_0] = {widen_q4_0, dot_q4_0, scaled_widen_q4_0, scaled_dot_q4_0},
    [GGML_TYPE_Q4_1] = {widen_q4_1, dot_q4_1},
    [GGML_TYPE_Q5_0] = {widen_q5_0, dot_q5_0},
    [GGML_TYPE_Q5_1] = {widen_q5_1, dot_q5_1},
    [GGML_TYPE_Q4_K] = {widen_q4_k, dot_by_words_q4_k, .order = {32, 32}},
    [GGML_TYPE_Q5_K] = {widen_q5_k, dot_by_words_q5_k, .order = {32, 32}},
    [GGML_TYPE_Q6_K] = {widen_q6_k, dot_by_words_q6_k, .order = {64, 16}},
};

/// Elements of a type as float32.
static inline void widen(enum ggml_type type, const struct ggml_type_traits * types, const void * from, int64_t count, float * restrict to) {
    if (type == GGML_TYPE_F32) {
        for (int64_t i = 0; i < count; ++i) to[i] = ((const float *) from)[i];
        return;
    }
    const bool pairs = type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    const int64_t whole = pairs ? count / EVEN * EVEN : count;
    (readers[type].widen == NULL ? types->to_float : readers[type].widen)(from, to, whole);
    for (int64_t i = whole; i < count; ++i) {
        const uint16_t x = ((const uint16_t *) from)[i];
        to[i] = type == GGML_TYPE_F16 ? float16(x) : ((union { uint32_t bits; float value; }){(uint32_t) x << 16}).value;
    }
}
