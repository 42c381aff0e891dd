// C's mathematical functions of float, by arithmetic that every toolchain does alike: what the emulator computes is what a GPU does,
// bit for bit. Each is within 2 units in the last place of the right number, tanf within 4; tests/gpu/test_dialect_numbers.py measures it.
//
// Before it stand fmaf, sqrtf, rintf, fabsf and their like, which are instructions. Coefficients are of polynomials whose largest
// relative error in the interval is least, found by weighted least squares and rounded to float one after the other.
#pragma once

DEVICE float graphc_rsqrtf(float x) { return 1.0f / sqrtf(x); }

// x 2^n for n of -252 to 254, rounded once.
DEVICE float graphc_scaled(float x, int n) {
    const int half = n >> 1;
    return x * float_of((unsigned) (half + 127) << 23) * float_of((unsigned) (n - half + 127) << 23);
}

// ---- Exponentials

// e^r - 1 for |r| up to 0.35.
DEVICE float graphc_expm1_near(float r) {
    float p = 0x1.a242f6p-13f;
    p = fmaf(p, r, 0x1.6d428ep-10f);
    p = fmaf(p, r, 0x1.111004p-7f);
    p = fmaf(p, r, 0x1.5554f2p-5f);
    p = fmaf(p, r, 0x1.555556p-3f);
    p = fmaf(p, r, 0.5f);
    return fmaf(r * r, p, r);
}

// e^(x + more) 2^n, for |x| below 105; `more` is what x has beyond its last digit.
DEVICE float graphc_exp(float x, float more, int n) {
    const float whole = rintf(x * 0x1.715476p0f);
    const float r = fmaf(whole, 0x1.05c610p-29f, fmaf(whole, -0x1.62e430p-1f, x)) + more;
    return graphc_scaled(1.0f + graphc_expm1_near(r), (int) whole + n);
}
DEVICE float graphc_expf(float x) {
    if (!(fabsf(x) < 105.0f)) return x != x ? x : x > 0 ? INFINITY : 0.0f;
    return graphc_exp(x, 0.0f, 0);
}
DEVICE float graphc_exp2f(float x) {
    if (!(fabsf(x) < 160.0f)) return x != x ? x : x > 0 ? INFINITY : 0.0f;
    const float whole = rintf(x), r = x - whole;
    float p = 0x1.4447b0p-13f;
    p = fmaf(p, r, 0x1.5f0960p-10f);
    p = fmaf(p, r, 0x1.3b2a28p-7f);
    p = fmaf(p, r, 0x1.c6af7ap-5f);
    p = fmaf(p, r, 0x1.ebfbe0p-3f);
    p = fmaf(p, r, 0x1.62e430p-1f);
    return graphc_scaled(fmaf(p, r, 1.0f), (int) whole);
}
DEVICE float graphc_expm1f(float x) {
    if (!(fabsf(x) < 105.0f)) return x != x ? x : x > 0 ? INFINITY : -1.0f;
    const float whole = rintf(x * 0x1.715476p0f);
    if (whole == 0) return fabsf(x) < 0x1p-24f ? x : graphc_expm1_near(x);
    const float p = graphc_expm1_near(fmaf(whole, 0x1.05c610p-29f, fmaf(whole, -0x1.62e430p-1f, x)));
    if (whole > 24) return graphc_scaled(1.0f + p, (int) whole);
    const float power = graphc_scaled(1.0f, (int) whole);
    return fmaf(power, p, power - 1.0f);
}
DEVICE float graphc_sinhf(float x) {
    const float a = fabsf(x);
    if (!(a < 105.0f)) return x != x || a == INFINITY ? x : x * INFINITY;
    if (a >= 1.0f) {
        const float half = graphc_exp(a, 0.0f, -1);
        return copysignf(half - 0.25f / half, x);
    }
    const float z = a * a;
    float p = 0x1.75a6f0p-19f;
    p = fmaf(p, z, 0x1.a02156p-13f);
    p = fmaf(p, z, 0x1.1110e2p-7f);
    p = fmaf(p, z, 0x1.555556p-3f);
    return fmaf(x * z, p, x);
}
DEVICE float graphc_coshf(float x) {
    const float a = fabsf(x);
    if (!(a < 105.0f)) return x != x ? x : INFINITY;
    const float half = graphc_exp(a, 0.0f, -1);
    return half + 0.25f / half;
}
DEVICE float graphc_tanhf(float x) {
    const float a = fabsf(x);
    if (a >= 10.0f) return copysignf(1.0f, x);
    if (a >= 0.6f) return copysignf(1.0f - 2.0f / (graphc_exp(2 * a, 0.0f, 0) + 1.0f), x);
    const float z = x * x;  // NaN comes here
    float p = 0x1.1e495ep-9f;
    p = fmaf(p, z, -0x1.0d5fa4p-7f);
    p = fmaf(p, z, 0x1.63d1aap-6f);
    p = fmaf(p, z, -0x1.b9f4b6p-5f);
    p = fmaf(p, z, 0x1.111084p-3f);
    p = fmaf(p, z, -0x1.555554p-2f);
    return copysignf(fmaf(x * z, p, x), x);
}

// ---- Logarithms

// A positive finite number as (1 + f) 2^e, f of -0.293 to 0.415.
DEVICE float graphc_mantissa(float x, int *e) {
    const int tiny = x < 0x1p-126f ? 25 : 0;
    const unsigned bits = bits_of(tiny ? x * 0x1p25f : x);
    const int exponent = (int) (bits - 0x3f3504f3) >> 23;
    *e = exponent - tiny;
    return float_of(bits - ((unsigned) exponent << 23)) - 1.0f;
}
// What log(1 + f) has beyond f, for f as above.
DEVICE float graphc_log_beyond(float f) {
    const float s = f / (2.0f + f), z = s * s;  // the series of 2 atanh(s)
    float p = 0x1.f1406cp-3f;
    p = fmaf(p, z, 0x1.23d3d0p-2f);
    p = fmaf(p, z, 0x1.999c26p-2f);
    p = fmaf(p, z, 0x1.555554p-1f);
    const float square = 0.5f * f * f;
    return s * fmaf(z, p, square) - square;
}
DEVICE float graphc_log_of(float f, float e) { return fmaf(e, 0x1.62e400p-1f, f + fmaf(e, 0x1.7f7d1cp-20f, graphc_log_beyond(f))); }
DEVICE float graphc_logf(float x) {
    if (!(x > 0 && x < INFINITY)) return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    int e;
    const float f = graphc_mantissa(x, &e);
    return graphc_log_of(f, (float) e);
}
DEVICE float graphc_log2f(float x) {
    if (!(x > 0 && x < INFINITY)) return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    int e;
    const float f = graphc_mantissa(x, &e), beyond = graphc_log_beyond(f);
    const float high = f * 0x1.715476p0f, low = fmaf(f, 0x1.715476p0f, -high);
    return (float) e + (high + fmaf(beyond, 0x1.715476p0f, fmaf(f, 0x1.4ae0c0p-26f, low)));
}
DEVICE float graphc_log1pf(float x) {
    if (!(x > -1.0f && x < INFINITY)) return x == -1.0f ? -INFINITY : x < -1.0f ? NAN : x;
    if (fabsf(x) < 0x1p-24f) return x;
    const float sum = 1.0f + x, lost = x >= 1.0f ? 1.0f - (sum - x) : x - (sum - 1.0f);
    int e;
    const float f = graphc_mantissa(sum, &e);
    return graphc_log_of(f + graphc_scaled(lost, -e), (float) e);
}
DEVICE float graphc_asinhf(float x) {
    const float a = fabsf(x);
    if (!(a < INFINITY)) return x;
    if (a > 0x1p13f) return copysignf(graphc_logf(a) + 0x1.62e430p-1f, x);
    return copysignf(graphc_log1pf(a + a * a / (1.0f + sqrtf(fmaf(a, a, 1.0f)))), x);
}
DEVICE float graphc_acoshf(float x) {
    if (!(x >= 1.0f && x < INFINITY)) return x > 1.0f ? x : NAN;
    if (x > 0x1p13f) return graphc_logf(x) + 0x1.62e430p-1f;
    const float above = x - 1.0f;
    return graphc_log1pf(above + sqrtf(fmaf(above, above, 2.0f * above)));
}
DEVICE float graphc_atanhf(float x) {
    const float a = fabsf(x);
    return copysignf(0.5f * graphc_log1pf(2.0f * a / (1.0f - a)), x);
}

// ---- Powers

// x^y for x positive and finite, y finite: e^(y log x), the logarithm in two floats.
DEVICE float graphc_power(float x, float y) {
    int e;
    const float f = graphc_mantissa(x, &e);
    const float below = 2.0f + f, below_more = f - (below - 2.0f);
    const float s = f / below, s_more = (fmaf(-s, below, f) - s * below_more) / below;
    const float z = s * s, z_more = fmaf(s, s, -z) + 2.0f * s * s_more;
    float p = 0x1.25f506p-1f;
    p = fmaf(p, z, 0x1.8e966ap-3f);
    p = fmaf(p, z, 0x1.2543fap-2f);
    p = fmaf(p, z, 0x1.9997e0p-2f);
    p = fmaf(p, z, -0x1.555556p-26f);  // with the 2/3 below, more than a float has
    // log(1 + f) = 2 s + s z (2/3 + p z): first and more, the third power in two floats too.
    const float cube = s * z, cube_more = fmaf(s, z, -cube) + s * z_more + s_more * z;
    const float third = cube * 0x1.555556p-1f;
    const float third_more = fmaf(cube, 0x1.555556p-1f, -third) + fmaf(cube_more, 0x1.555556p-1f, cube * p);
    const float twice = 2.0f * s, sum = twice + third, sum_more = (twice - sum) + third + (2.0f * s_more + third_more);
    const float exponent = (float) e, high = exponent * 0x1.62e400p-1f;
    const float log = high + sum, from = log - high;
    const float log_more = (high - (log - from)) + (sum - from) + fmaf(exponent, 0x1.7f7d1cp-20f, sum_more);
    const float product = y * log;
    if (!(fabsf(product) < 104.5f)) return product != product ? 1.0f : product > 0 ? INFINITY : 0.0f;
    return graphc_exp(product, fmaf(y, log, -product) + y * log_more, 0);
}
DEVICE float graphc_powf(float x, float y) {
    if (x == 1.0f || y == 0.0f) return 1.0f;
    if (x != x || y != y) return x + y;
    const float a = fabsf(x);
    const bool whole = truncf(y) == y, odd = whole && fabsf(y) < 0x1p24f && ((int) y & 1);
    if (fabsf(y) == INFINITY) return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0) ? INFINITY : 0.0f;
    if (x < 0 && x != -INFINITY && !whole) return NAN;
    const float size = a == 0.0f || a == INFINITY ? ((a == 0.0f) == (y > 0) ? 0.0f : INFINITY) : graphc_power(a, y);
    return odd ? copysignf(size, x) : size;
}

// ---- Angles

// A number as `turns` quarters of a turn and a rest of -0.8 to 0.8.
DEVICE float graphc_quarters(float x, int *turns) {
    if (fabsf(x) < 0x1p17f) {
        const float whole = rintf(x * 0x1.45f306p-1f);
        *turns = (int) whole;
        return fmaf(whole, 0x1.ee59dap-50f, fmaf(whole, 0x1.777a5cp-25f, fmaf(whole, -0x1.921fb6p0f, x)));
    }
    // The mantissa times those bits of 2 / pi that do not make whole turns: 96 of them, the first two for the quarters.
    constexpr unsigned two_over_pi[8] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    const unsigned bits = bits_of(x) & 0x7fffffff, start = (bits >> 23) - 150 + 30, first = start / 32, shift = start % 32;
    unsigned word[4] = {0, 0, 0, 0};
    for (unsigned i = 0; i < 8; i++)
        for (unsigned k = 0; k < 4; k++)
            if (i == first + k) word[k] = two_over_pi[i];
    for (int k = 0; k < 3; k++) word[k] = shift ? word[k] << shift | word[k + 1] >> (32 - shift) : word[k];
    const uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
    const uint64_t low = mantissa * word[2], middle = mantissa * word[1] + (low >> 32), high = mantissa * word[0] + (middle >> 32);
    const uint64_t product = high << 32 | (middle & 0xffffffff);
    const int64_t rest = (int64_t) (product << 2);
    const int quarters = (int) (product >> 62) + (rest < 0);
    *turns = x < 0 ? -quarters : quarters;
    const float high_digits = (float) (rest >> 1), more = (float) ((rest >> 1) - (int64_t) high_digits);
    const float size = fmaf(high_digits, 0x1.921fb6p-63f, fmaf(high_digits, -0x1.777a5cp-88f, more * 0x1.921fb6p-63f));
    return x < 0 ? -size : size;
}
DEVICE float graphc_sin_near(float r) {
    const float z = r * r;
    float p = 0x1.78140cp-19f;
    p = fmaf(p, z, -0x1.a04bd4p-13f);
    p = fmaf(p, z, 0x1.11116ap-7f);
    p = fmaf(p, z, -0x1.555556p-3f);
    return fmaf(r * z, p, r);
}
DEVICE float graphc_cos_near(float r) {
    const float z = r * r;
    float p = -0x1.31ab5ap-22f;
    p = fmaf(p, z, 0x1.a06188p-16f);
    p = fmaf(p, z, -0x1.6c1750p-10f);
    p = fmaf(p, z, 0x1.555556p-5f);
    return fmaf(z * z, p, fmaf(z, -0.5f, 1.0f));
}
DEVICE float graphc_sinf(float x) {
    if (!(fabsf(x) < INFINITY)) return NAN;
    int turns;
    const float r = graphc_quarters(x, &turns), size = turns & 1 ? graphc_cos_near(r) : graphc_sin_near(r);
    return x == 0 ? x : turns & 2 ? -size : size;
}
DEVICE float graphc_cosf(float x) {
    if (!(fabsf(x) < INFINITY)) return NAN;
    int turns;
    const float r = graphc_quarters(x, &turns), size = turns & 1 ? graphc_sin_near(r) : graphc_cos_near(r);
    return (turns + 1) & 2 ? -size : size;
}
DEVICE float graphc_tanf(float x) {
    if (!(fabsf(x) < INFINITY)) return NAN;
    int turns;
    const float r = graphc_quarters(x, &turns), sine = graphc_sin_near(r), cosine = graphc_cos_near(r);
    return x == 0 ? x : turns & 1 ? -cosine / sine : sine / cosine;
}

// What asin(s) has beyond s, as a multiple of s, for s of 0 to 0.5; z is its square.
DEVICE float graphc_asin_beyond(float z) {
    float p = 0x1.344322p-5f;
    p = fmaf(p, z, 0x1.d6686ap-7f);
    p = fmaf(p, z, 0x1.04c116p-5f);
    p = fmaf(p, z, 0x1.6ca8eap-5f);
    p = fmaf(p, z, 0x1.3338a6p-4f);
    return z * fmaf(p, z, 0x1.55554cp-3f);
}
DEVICE float graphc_asinf(float x) {
    const float a = fabsf(x);
    if (a <= 0.5f) return fmaf(x, graphc_asin_beyond(x * x), x);
    const float z = fmaf(-0.5f, a, 0.5f), s = sqrtf(z);  // NaN for a above 1
    const float angle = 0x1.921fb6p0f - 2.0f * s, lost = (0x1.921fb6p0f - angle) - 2.0f * s;
    return copysignf(angle + fmaf(-2.0f * s, graphc_asin_beyond(z), lost - 0x1.777a5cp-25f), x);
}
DEVICE float graphc_acosf(float x) {
    const float a = fabsf(x);
    if (a <= 0.5f) return 0x1.921fb6p0f - (fmaf(x, graphc_asin_beyond(x * x), 0x1.777a5cp-25f) + x);
    const float z = fmaf(-0.5f, a, 0.5f), s = sqrtf(z), half = fmaf(s, graphc_asin_beyond(z), s);
    return x > 0 ? 2.0f * half : 0x1.921fb6p1f - fmaf(2.0f, half, 0x1.777a5cp-24f);
}
DEVICE float graphc_atanf(float x) {
    const float a = fabsf(x), t = a > 1.0f ? 1.0f / a : a, z = t * t;
    float p = -0x1.d5581ap-10f;
    p = fmaf(p, z, 0x1.652948p-7f);
    p = fmaf(p, z, -0x1.fe581cp-6f);
    p = fmaf(p, z, 0x1.da8a34p-5f);
    p = fmaf(p, z, -0x1.5820f8p-4f);
    p = fmaf(p, z, 0x1.c092dep-4f);
    p = fmaf(p, z, -0x1.2420fap-3f);
    p = fmaf(p, z, 0x1.9991eap-3f);
    p = fmaf(p, z, -0x1.55553ep-2f);
    const float angle = fmaf(t * z, p, t);
    return copysignf(a > 1.0f ? 0x1.921fb6p0f - (angle + 0x1.777a5cp-25f) : angle, x);
}

// ---- Others

DEVICE float graphc_erff(float x) {
    const float a = fabsf(x);
    if (a >= 4.0f) return copysignf(1.0f, x);
    if (a >= 1.0f) {
        float p = 0x1.cdc460p-23f;  // the logarithm of 1 - erf
        p = fmaf(p, a, -0x1.9fdebep-16f);
        p = fmaf(p, a, 0x1.e2e378p-12f);
        p = fmaf(p, a, -0x1.17e864p-8f);
        p = fmaf(p, a, 0x1.9f53c4p-6f);
        p = fmaf(p, a, -0x1.bcdadep-4f);
        p = fmaf(p, a, -0x1.442128p-1f);
        p = fmaf(p, a, -0x1.2130b4p0f);
        p = fmaf(p, a, 0x1.a7c30ep-13f);
        return copysignf(1.0f - graphc_exp(p, 0.0f, 0), x);
    }
    const float z = x * x;  // NaN comes here
    float p = -0x1.740618p-20f;
    p = fmaf(p, z, 0x1.5f4fb2p-14f);
    p = fmaf(p, z, -0x1.a80ca0p-11f);
    p = fmaf(p, z, 0x1.54676cp-8f);
    p = fmaf(p, z, -0x1.b8028ep-6f);
    p = fmaf(p, z, 0x1.ce2d6ap-4f);
    p = fmaf(p, z, -0x1.812740p-2f);
    p = fmaf(p, z, 0x1.06eba8p-3f);
    return fmaf(x, p, x);
}

// The rest of the division of whole digits, one bit of the quotient after the other: exact.
DEVICE float graphc_fmodf(float x, float y) {
    unsigned a = bits_of(x) & 0x7fffffff, b = bits_of(y) & 0x7fffffff;
    if (a >= 0x7f800000 || b > 0x7f800000 || b == 0) return NAN;
    if (a < b) return x;
    int exponent = (int) (a >> 23), least = (int) (b >> 23);
    a = exponent ? (a & 0x7fffff) | 0x800000 : a << 1;
    b = least ? (b & 0x7fffff) | 0x800000 : b << 1;
    for (; a < 0x800000; exponent--) a <<= 1;
    for (; b < 0x800000; least--) b <<= 1;
    for (; exponent > least; exponent--) {
        a -= a >= b ? b : 0;
        a <<= 1;
    }
    a -= a >= b ? b : 0;
    return copysignf(graphc_scaled((float) a, least - 150), x);
}

#define rsqrtf graphc_rsqrtf
#define expf graphc_expf
#define exp2f graphc_exp2f
#define expm1f graphc_expm1f
#define logf graphc_logf
#define log2f graphc_log2f
#define log1pf graphc_log1pf
#define sinf graphc_sinf
#define cosf graphc_cosf
#define tanf graphc_tanf
#define asinf graphc_asinf
#define acosf graphc_acosf
#define atanf graphc_atanf
#define sinhf graphc_sinhf
#define coshf graphc_coshf
#define tanhf graphc_tanhf
#define asinhf graphc_asinhf
#define acoshf graphc_acoshf
#define atanhf graphc_atanhf
#define erff graphc_erff
#define powf graphc_powf
#define fmodf graphc_fmodf
