// C's functions of double, for the few kernels that compute in it: GPUs are slow at double, so these are short, not fast. Each is
// within 8 units in the last place (erf 32), sin, cos and tan for numbers below 2^30 (they are NaN from 2^52 on); pow is exact to
// whole powers up to 64 where those are, else within 2^-40.
#pragma once

DEVICE double graphc_double_of(uint64_t bits) {
    union {
        uint64_t bits;
        double number;
    } same = {bits};
    return same.number;
}
DEVICE uint64_t graphc_bits_of_double(double number) {
    union {
        double number;
        uint64_t bits;
    } same = {number};
    return same.bits;
}
// x 2^n for n of -2044 to 2046, rounded once.
DEVICE double graphc_double_scaled(double x, int n) {
    const int half = n >> 1;
    return x * graphc_double_of((uint64_t) (half + 1023) << 52) * graphc_double_of((uint64_t) (n - half + 1023) << 52);
}

// e^r - 1 for |r| up to 0.35: its series.
DEVICE double graphc_double_expm1_near(double r) {
    double p = 0;
    NO_UNROLL for (int k = 14; k > 1; k--) p = (p + 1) * (r / k);
    return fma(p, r, r);
}
DEVICE double graphc_double_rest(double x, double whole) { return fma(whole, -0x1.abc9e3b39803fp-56, fma(whole, -0x1.62e42fefa39efp-1, x)); }
DEVICE double graphc_double_exp(double x) {
    if (!(fabs(x) < 750)) return x != x ? x : x > 0 ? (double) INFINITY : 0.0;
    const double whole = rint(x * 0x1.71547652b82fep0);
    return graphc_double_scaled(1 + graphc_double_expm1_near(graphc_double_rest(x, whole)), (int) whole);
}
DEVICE double graphc_double_expm1(double x) {
    if (!(fabs(x) < 750)) return x != x ? x : x > 0 ? (double) INFINITY : -1.0;
    const double whole = rint(x * 0x1.71547652b82fep0);
    if (whole == 0) return x == 0 ? x : graphc_double_expm1_near(x);
    const double p = graphc_double_expm1_near(graphc_double_rest(x, whole));
    if (whole > 53) return graphc_double_scaled(1 + p, (int) whole);
    const double power = graphc_double_scaled(1, (int) whole);
    return fma(power, p, power - 1);
}
DEVICE double graphc_double_tanh(double x) {
    const double a = fabs(x);
    if (a >= 20) return copysign(1.0, x);
    const double e = graphc_double_expm1(2 * a);  // NaN comes here
    return copysign(e / (e + 2), x);
}

// log(1 + x) for x above -1, where 1 + x was rounded to `sum`.
DEVICE double graphc_double_log_of(double sum, double lost) {
    if (!(sum < (double) INFINITY)) return sum;
    const int tiny = sum < 0x1p-1022 ? 54 : 0;
    const uint64_t bits = graphc_bits_of_double(tiny ? sum * 0x1p54 : sum);
    const int64_t exponent = (int64_t) (bits - 0x3fe6a09e667f3bcdull) >> 52;
    const double e = (double) (exponent - tiny), mantissa = graphc_double_of(bits - ((uint64_t) exponent << 52));
    const double f = mantissa - 1 + (lost == 0 ? 0 : graphc_double_scaled(lost, (int) -exponent));
    const double s = f / (2 + f), z = s * s;
    double p = 0;
    NO_UNROLL for (int k = 25; k > 1; k -= 2) p = fma(p, z, 2.0 / k);
    const double square = 0.5 * f * f;
    return fma(e, 0x1.62e42fefa3800p-1, f + (fma(e, 0x1.ef35793c76730p-45, s * fma(z, p, square) - square)));
}
DEVICE double graphc_double_log(double x) { return x > 0 ? graphc_double_log_of(x, 0) : x == 0 ? -(double) INFINITY : (double) NAN; }
DEVICE double graphc_double_log1p(double x) {
    if (!(x > -1)) return x == -1 ? -(double) INFINITY : (double) NAN;
    if (fabs(x) < 0x1p-53) return x;
    const double sum = 1 + x;
    return graphc_double_log_of(sum, x >= 1 ? 1 - (sum - x) : x - (sum - 1));
}

// sin of x and a number of quarters of a turn.
DEVICE double graphc_double_sin_of(double x, int quarters) {
    if (!(fabs(x) < 0x1p52)) return (double) NAN;
    const double whole = rint(x * 0x1.45f306dc9c883p-1);
    const double r = fma(whole, 0x1.f1976b7ed8fbcp-110, fma(whole, -0x1.1a62633145c07p-54, fma(whole, -0x1.921fb54442d18p0, x)));
    const int turn = (int) ((int64_t) whole & 3) + quarters;
    double p = 0;
    NO_UNROLL for (int k = turn & 1 ? 16 : 17; k > 1; k -= 2) p = (1 + p) * (-(r * r) / (k * (k - 1)));
    const double size = turn & 1 ? 1 + p : fma(r, p, r);
    return turn & 2 ? -size : size;
}
DEVICE double graphc_double_sin(double x) { return x == 0 ? x : graphc_double_sin_of(x, 0); }
DEVICE double graphc_double_cos(double x) { return graphc_double_sin_of(x, 1); }

DEVICE double graphc_double_tan(double x) { return x == 0 ? x : graphc_double_sin_of(x, 0) / graphc_double_sin_of(x, 1); }

// The angle is halved twice, then the series is short.
DEVICE double graphc_double_atan(double x) {
    const double a = fabs(x);
    double t = a > 1 ? 1 / a : a;
    t = t / (1 + sqrt(1 + t * t));
    t = t / (1 + sqrt(1 + t * t));
    double p = 0;
    NO_UNROLL for (int k = 25; k > 1; k -= 2) p = -(t * t) * (p + 1.0 / k);
    const double angle = 4 * fma(t, p, t);
    return copysign(a > 1 ? 0x1.921fb54442d18p0 - angle : angle, x);
}
DEVICE double graphc_double_asin(double x) { return graphc_double_atan(x / sqrt((1 - x) * (1 + x))); }
DEVICE double graphc_double_acos(double x) { return 2 * graphc_double_atan(sqrt((1 - x) / (1 + x))); }

DEVICE double graphc_double_sinh(double x) {
    const double a = fabs(x), e = graphc_double_expm1(a > 700 ? a / 2 : a);
    return copysign(a > 700 ? 0.5 * e * e : 0.5 * (e + e / (e + 1)), x);
}
DEVICE double graphc_double_cosh(double x) {
    const double a = fabs(x), e = graphc_double_exp(a > 700 ? a / 2 : a);
    return a > 700 ? 0.5 * e * e : 0.5 * (e + 1 / e);
}
DEVICE double graphc_double_asinh(double x) {
    const double a = fabs(x);
    return copysign(a > 0x1p28 ? graphc_double_log(a) + 0x1.62e42fefa39efp-1 : graphc_double_log1p(a + a * a / (1 + sqrt(fma(a, a, 1.0)))), x);
}
DEVICE double graphc_double_acosh(double x) {
    if (!(x >= 1)) return (double) NAN;
    const double above = x - 1;
    return x > 0x1p28 ? graphc_double_log(x) + 0x1.62e42fefa39efp-1 : graphc_double_log1p(above + sqrt(above * (above + 2)));
}
DEVICE double graphc_double_atanh(double x) {
    const double a = fabs(x);
    return copysign(0.5 * graphc_double_log1p(2 * a / (1 - a)), x);
}

// The series whose terms are all positive: e^(-x^2) times the sum of 2^n x^(2 n + 1) / (1 3 5 ... (2 n + 1)).
DEVICE double graphc_double_erf(double x) {
    const double a = fabs(x);
    if (a >= 6) return copysign(1.0, x);
    double term = a, sum = a;
    const double square = a * a, lost = fma(a, a, -square);
    NO_UNROLL for (int n = 1; n < 200 && term > sum * 0x1p-60; n++) {
        term *= 2 * square / (2 * n + 1);
        sum += term;
    }
    return copysign(0x1.20dd750429b6dp0 * sum * (graphc_double_exp(-square) * (1 - lost)), x);
}

DEVICE double graphc_double_pow(double x, double y) {
    if (x == 1 || y == 0) return 1;
    if (x != x || y != y) return x + y;
    const double a = fabs(x);
    const bool whole = trunc(y) == y, odd = whole && fabs(y) < 0x1p53 && ((int64_t) y & 1);
    if (fabs(y) == (double) INFINITY) return a == 1 ? 1.0 : (a > 1) == (y > 0) ? (double) INFINITY : 0.0;
    if (x < 0 && a < (double) INFINITY && !whole) return (double) NAN;
    double size;
    if (a == 0 || a == (double) INFINITY) size = (a == 0) == (y > 0) ? 0.0 : (double) INFINITY;
    else if (whole && y > 0 && y <= 64) {
        double base = a;
        size = 1;
        for (int rest = (int) y; rest; rest >>= 1) {
            if (rest & 1) size *= base;
            if (rest > 1) base *= base;
        }
    } else size = graphc_double_exp(y * graphc_double_log(a));
    return odd ? copysign(size, x) : size;
}

// As graphc_fmodf.
DEVICE double graphc_double_fmod(double x, double y) {
    const uint64_t first = 1ull << 52;
    uint64_t a = graphc_bits_of_double(x) << 1 >> 1, b = graphc_bits_of_double(y) << 1 >> 1;
    if (a >= 0x7ffull << 52 || b > 0x7ffull << 52 || b == 0) return (double) NAN;
    if (a < b) return x;
    int exponent = (int) (a >> 52), least = (int) (b >> 52);
    a = exponent ? (a & (first - 1)) | first : a << 1;
    b = least ? (b & (first - 1)) | first : b << 1;
    for (; a < first; exponent--) a <<= 1;
    for (; b < first; least--) b <<= 1;
    for (; exponent > least; exponent--) {
        a -= a >= b ? b : 0;
        a <<= 1;
    }
    a -= a >= b ? b : 0;
    return copysign(graphc_double_scaled((double) a, least - 1075), x);
}

#define exp(x) graphc_double_exp(x)
#define expm1(x) graphc_double_expm1(x)
#define log(x) graphc_double_log(x)
#define log1p(x) graphc_double_log1p(x)
#define tanh(x) graphc_double_tanh(x)
#define sin(x) graphc_double_sin(x)
#define cos(x) graphc_double_cos(x)
#define tan(x) graphc_double_tan(x)
#define atan(x) graphc_double_atan(x)
#define asin(x) graphc_double_asin(x)
#define acos(x) graphc_double_acos(x)
#define sinh(x) graphc_double_sinh(x)
#define cosh(x) graphc_double_cosh(x)
#define asinh(x) graphc_double_asinh(x)
#define acosh(x) graphc_double_acosh(x)
#define atanh(x) graphc_double_atanh(x)
#define erf(x) graphc_double_erf(x)
#define pow(x, y) graphc_double_pow(x, y)
#define fmod(x, y) graphc_double_fmod(x, y)
