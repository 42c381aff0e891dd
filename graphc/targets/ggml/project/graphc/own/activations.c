// Activations, several elements at a time: ReLU that keeps NaN, GELU by the error function, and what is x times a sigmoid; times
// another tensor if there is one.

#include "activations.h"

#include "tiles.h"

static inline vector polynomial(vector x, const float * coefficients, int count) {
    vector sum = all(coefficients[0]);
    for (int i = 1; i < count; ++i) sum = sum * x + coefficients[i];
    return sum;
}

/// erf(x), to two units in the last place. Source of the coefficients: the Cephes library's erff and erfcf.
static inline vector error_function(vector x) {
    static const float inner[] = {7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f, -2.685381193529856e-2f,
                                  1.128358514861418e-1f, -3.761262582423300e-1f, 1.128379165726710e+0f};
    static const float middle[] = {2.326819970068386e-2f,  -1.387039388740657e-1f, 3.687424674597105e-1f,
                                   -5.824733027278666e-1f, 6.210004621745983e-1f,  -4.944515323274145e-1f,
                                   3.404879937665872e-1f,  -2.741127028184656e-1f, 5.638259427386472e-1f};
    static const float outer[] = {-1.047766399936249e+1f, 1.297719955372516e+1f,  -7.495518717768503e+0f, 2.921019019210786e+0f,
                                  -1.015265279202700e+0f, 4.218463358204948e-1f, -2.820767439740514e-1f, 5.641895067754075e-1f};
    const vector size = choose(x < all(0), -x, x), square = x * x, inverse = 1.0f / size, z = inverse * inverse;
    const vector far = choose(size < all(2), polynomial(z, middle, 9), polynomial(z, outer, 8));
    const vector left = 1.0f - exponential(-square) * inverse * far;
    const vector tail = choose(x < all(0), -left, left);
    return choose(size < all(1), x * polynomial(square, inner, 7), choose(x == x, tail, x));
}

static vector relu(vector x, const struct graphc_gate_settings * s) {
    (void) s;
    return choose(x < all(0), all(0), x);
}

static vector gelu(vector x, const struct graphc_gate_settings * s) {
    (void) s;
    return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
}

static vector swish(vector x, const struct graphc_gate_settings * s) { return x * sigmoid(x * s->linear); }

static vector gate(vector x, const struct graphc_gate_settings * s) { return x * sigmoid(x * (s->linear + s->cubic * x * x)); }

typedef vector (*function)(vector, const struct graphc_gate_settings *);

/// A thread's share of a function of each element.
static inline __attribute__((always_inline)) void apply(function f, struct ggml_tensor * dst, int ith, int nth, const void * settings) {
    const int64_t count = dst->ne[0] * dst->ne[1] * dst->ne[2] * dst->ne[3], vectors = count / WIDTH;
    const float * x = dst->src[0]->data, * other = dst->src[1] == NULL ? NULL : dst->src[1]->data;
    float * y = dst->data;
    for (int64_t i = vectors * ith / nth; i < vectors * (ith + 1) / nth; ++i) {
        const vector result = f(*(const unaligned *) (x + i * WIDTH), settings);
        *(unaligned *) (y + i * WIDTH) = other == NULL ? result : result * *(const unaligned *) (other + i * WIDTH);
    }
    if (ith > 0 || vectors * WIDTH == count) return;
    vector last = all(0);
    for (int64_t i = vectors * WIDTH; i < count; ++i) last[i - vectors * WIDTH] = x[i];
    last = f(last, settings);
    for (int64_t i = vectors * WIDTH; i < count; ++i) y[i] = last[i - vectors * WIDTH] * (other == NULL ? 1 : other[i]);
}

bool graphc_takes_activation(const struct ggml_tensor * x) { return is_dense(x); }
void graphc_relu(struct ggml_tensor * dst, int ith, int nth, void * userdata) { apply(relu, dst, ith, nth, userdata); }
void graphc_gelu(struct ggml_tensor * dst, int ith, int nth, void * userdata) { apply(gelu, dst, ith, nth, userdata); }
void graphc_gate(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const struct graphc_gate_settings * s = userdata;
    if (s->cubic == 0) {
        apply(swish, dst, ith, nth, s);
    } else {
        apply(gate, dst, ith, nth, s);
    }
}
