// Functions of float32 that compilers make vectors of. Those of math.h have neither branches nor calls, for the loops around them. Their errors are at
// most two units in the last place (five for erf); zeros keep their signs, and infinities and NaN give what they do in math.h. The results
// are the same bits wherever a processor fuses multiplication and addition, which is asked for and never left to the compiler.

/// a * b + c, rounded once if the processor can do that.
static inline float graphc_multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/// 2^power, for powers from -126 to 127.
static inline float graphc_two_to_the(int32_t power) {
    return graphc_float_of((uint32_t) (power + 127) << 23);
}

/// The whole number nearest to x / log(2), for x up to 2^20 in size.
static inline float graphc_halvings(float x) {
    const float shifter = 0x1.8p23f;  // sums with it are whole
    return graphc_multiply_add(x, 1.44269504f, shifter) - shifter;
}

/// exp(x - n * log(2)) - 1, where n is `graphc_halvings(x)`. Source of the coefficients: the Cephes library.
static inline float graphc_remainder_of_exp(float x, float n) {
    float r = graphc_multiply_add(n, -0.693359375f, x);
    r = graphc_multiply_add(n, 2.12194440e-4f, r);
    float sum = graphc_multiply_add(1.9875691e-4f, r, 1.3981999e-3f);
    sum = graphc_multiply_add(sum, r, 8.3334519e-3f);
    sum = graphc_multiply_add(sum, r, 4.1665796e-2f);
    sum = graphc_multiply_add(sum, r, 1.6666666e-1f);
    sum = graphc_multiply_add(sum, r, 0.5f);
    return graphc_multiply_add(sum * r, r, r);
}

static inline float graphc_expf(float x) {
    const float inside = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    const float n = graphc_halvings(inside), above = graphc_remainder_of_exp(inside, n);
    const int32_t power = (int32_t) (n == n ? n : 0.0f), half = power >> 1;  // of two powers neither is too large where x is
    return (above + 1.0f) * graphc_two_to_the(half) * graphc_two_to_the(power - half);
}

static inline float graphc_expm1f(float x) {
    const float inside = x < -20.0f ? -20.0f : x > 89.0f ? 89.0f : x;
    const float n = graphc_halvings(inside), above = graphc_remainder_of_exp(inside, n);
    const float half = graphc_two_to_the((int32_t) (n == n ? n : 0.0f) - 1);
    const float found = graphc_multiply_add(above, half, half - 0.5f) * 2.0f;
    return x == 0.0f ? x : found;
}

/// Source of the coefficients: the Cephes library.
static inline float graphc_logf(float x) {
    const bool tiny = x < 0x1p-126f;
    const int32_t bits = (int32_t) graphc_bits_of(tiny ? x * 0x1p23f : x) - 0x3f3504f3;  // of the root of 1/2
    const float n = (float) ((bits >> 23) - (tiny ? 23 : 0));
    const float f = graphc_float_of((uint32_t) ((bits & 0x7fffff) + 0x3f3504f3)) - 1.0f;
    float sum = graphc_multiply_add(7.0376836292e-2f, f, -1.1514610310e-1f);
    sum = graphc_multiply_add(sum, f, 1.1676998740e-1f);
    sum = graphc_multiply_add(sum, f, -1.2420140846e-1f);
    sum = graphc_multiply_add(sum, f, 1.4249322787e-1f);
    sum = graphc_multiply_add(sum, f, -1.6668057665e-1f);
    sum = graphc_multiply_add(sum, f, 2.0000714765e-1f);
    sum = graphc_multiply_add(sum, f, -2.4999993993e-1f);
    sum = graphc_multiply_add(sum, f, 3.3333331174e-1f);
    const float square = f * f;
    float below = graphc_multiply_add(n, -2.12194440e-4f, sum * f * square);
    below = graphc_multiply_add(square, -0.5f, below);
    const float found = graphc_multiply_add(n, 0.693359375f, f + below);
    return x > 0.0f && x < INFINITY ? found : x == 0.0f ? -INFINITY : x > 0.0f ? x : NAN;
}

static inline float graphc_log1pf(float x) {
    const float sum = x + 1.0f, rounded_off = x - (sum - 1.0f);
    const float found = graphc_logf(sum) + rounded_off / sum;
    return x == 0.0f || x == INFINITY ? x : sum == 0.0f ? -INFINITY : found;
}

static inline float graphc_tanhf(float x) {
    const float below = graphc_expm1f(fabsf(x) * -2.0f);
    return copysignf(below / (below + 2.0f), x);
}

/// By a rational function. Source of the coefficients: the Eigen library.
static inline float graphc_erff(float x) {
    const float near = x < -3.832506856900711f ? -3.832506856900711f : x > 3.832506856900711f ? 3.832506856900711f : x;
    const float square = near * near;
    float above = graphc_multiply_add(2.2905065861350646e-4f, square, 3.4082910107109506e-3f);
    above = graphc_multiply_add(above, square, 5.0955695062380861e-2f);
    above = graphc_multiply_add(above, square, 1.8520832239976145e-1f);
    above = graphc_multiply_add(above, square, 1.128379143519084f);
    float below = graphc_multiply_add(-1.1791602954361697e-7f, square, 2.3547966471313185e-5f);
    below = graphc_multiply_add(below, square, 1.0179625278914885e-3f);
    below = graphc_multiply_add(below, square, 1.4070470171167667e-2f);
    below = graphc_multiply_add(below, square, 1.1098505178285362e-1f);
    below = graphc_multiply_add(below, square, 4.9746925110067538e-1f);
    below = graphc_multiply_add(below, square, 1.0f);
    const float found = near * above / below;
    return found > 1.0f ? 1.0f : found < -1.0f ? -1.0f : found;
}

/// Of what is left when an eighth or a quarter of a turn is taken off. Source of the coefficients: the Cephes library.
static inline float graphc_atanf(float x) {
    const float size = fabsf(x);
    const bool far = size > 2.414213562373095f, middle = size > 0.4142135623730950f;
    const float above = far ? -1.0f : middle ? size - 1.0f : size, below = far ? size : middle ? size + 1.0f : 1.0f;
    const float t = above / below, square = t * t;
    float sum = graphc_multiply_add(8.05374449538e-2f, square, -1.38776856032e-1f);
    sum = graphc_multiply_add(sum, square, 1.99777106478e-1f);
    sum = graphc_multiply_add(sum, square, -3.33329491539e-1f);
    const float found = graphc_multiply_add(sum * square, t, t);
    return copysignf((far ? 1.5707963267948966f : middle ? 0.7853981633974483f : 0.0f) + found, x);
}

/// The larger of two numbers, or the smaller; of a pair with NaN, NaN.
static inline float graphc_farther(bool larger, float a, float b) {
    return (larger ? a > b : a < b) || a != a ? a : b;
}

/// The largest, or the smallest, of what was found before and so many numbers; NaN if there is one.
static inline float graphc_farthest(bool largest, float found, const float * x, int64_t count) {
    float lanes[32];
    for (int k = 0; k < 32; k++) lanes[k] = found;
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        for (int k = 0; k < 32; k++) lanes[k] = graphc_farther(largest, lanes[k], x[i + k]);
    }
    for (int k = 0; k < 32; k++) found = graphc_farther(largest, found, lanes[k]);
    for (; i < count; i++) found = graphc_farther(largest, found, x[i]);
    return found;
}

static inline float graphc_largest(float found, const float * x, int64_t count) {
    return graphc_farthest(true, found, x, count);
}

static inline float graphc_smallest(float found, const float * x, int64_t count) {
    return graphc_farthest(false, found, x, count);
}
