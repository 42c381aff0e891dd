// Products of float by tensor cores for TF32, numbers of which 11 binary digits count.
#pragma once

#if !defined(GRAPHC_ARCHITECTURE) || GRAPHC_ARCHITECTURE >= 80
DEVICE void mma_m16n8k8_float_once(float *c, const float *a, const float *b) {
    unsigned left[4], right[2];
    UNROLL for (int i = 0; i < 4; i++) left[i] = to_tf32(a[i]);
    UNROLL for (int i = 0; i < 2; i++) right[i] = to_tf32(b[i]);
    mma_m16n8k8_tf32(c, left, right);
}

// A number as the sum of two TF32, of which 22 digits count.
DEVICE void graphc_split_tf32(float number, unsigned *high, unsigned *low) {
    *high = to_tf32(number);
    const float whole = float_of(*high);
    *low = to_tf32(number - whole);
}

// Three products, of all parts but the two small ones, and their sum to c as float: within an mma tensor cores cut digits off, which
// would add up (arXiv 2203.03341). Infinity becomes NaN.
DEVICE void mma_m16n8k8_float_thrice(float *c, const float *a, const float *b) {
    unsigned a_high[4], a_low[4], b_high[2], b_low[2];
    UNROLL for (int i = 0; i < 4; i++) graphc_split_tf32(a[i], a_high + i, a_low + i);
    UNROLL for (int i = 0; i < 2; i++) graphc_split_tf32(b[i], b_high + i, b_low + i);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma_m16n8k8_tf32(sums, a_low, b_high);
    mma_m16n8k8_tf32(sums, a_high, b_low);
    mma_m16n8k8_tf32(sums, a_high, b_high);
    UNROLL for (int i = 0; i < 4; i++) c[i] += sums[i];
}
#endif
