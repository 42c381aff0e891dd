// An interpreter of kernels. What an instruction is, and which are made for a kernel, says `graphc/kernels/vectors`.
//
// Instructions work on registers, arrays of so many lanes: one, one for each row of a block, or one for each of its elements. A block is
// a stretch of a frame's loops, of which the innermost are rows; it may begin and end within one. A reduction is a loop around instructions,
// or a frame of its own, which runs for one lane after the other. Each operator does one operation and rounds once, so it makes no
// difference whether the compiler may fuse multiplications with additions: results are those of the compiled kernels.

#include "vectors.h"

#include "functions.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

// Operators

#define WIDTHS_(F, ...) F(u8, __VA_ARGS__) F(u16, __VA_ARGS__) F(u32, __VA_ARGS__) F(u64, __VA_ARGS__)
#define SIGNED_(F, ...) F(i8, __VA_ARGS__) F(i16, __VA_ARGS__) F(i32, __VA_ARGS__) F(i64, __VA_ARGS__)
#define WHOLE_(F, ...) SIGNED_(F, __VA_ARGS__) WIDTHS_(F, __VA_ARGS__)
#define REAL_(F, ...) F(f32, __VA_ARGS__) F(f64, __VA_ARGS__)
#define SINGLE_(F, ...) F(f32, __VA_ARGS__)
#define DOUBLE_(F, ...) F(f64, __VA_ARGS__)
#define HALF_(F, ...) F(u16, __VA_ARGS__)
#define BYTE_(F, ...) F(u8, __VA_ARGS__)

/// A function of C's for the type of an operand.
#define MATH(name, ...) _Generic(a, f32: name##f, default: name)(__VA_ARGS__)

/// The same, where we have one of our own for float32.
#define OWN_MATH(name, ...) _Generic(a, f32: graphc_##name##f, default: name)(__VA_ARGS__)

/// Integers are divided by 0 to give 0, and by -1 to wrap around.
#define DIVIDED(a, b, T) ((b) == 0 ? 0 : (b) == -1 ? (T) (0 - (u64) (a)) : (T) ((a) / (b)))
#define REST(a, b, T) ((b) == 0 || (b) == -1 ? 0 : (T) ((a) % (b)))

static u64 power_of(u64 base, u64 exponent) {
    u64 result = 1;
    for (; exponent != 0; exponent >>= 1) {
        result *= exponent & 1 ? base : 1;
        base *= base;
    }
    return result;
}

static u64 signed_power_of(i64 base, i64 exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? (u64) -1 : 1) : 0;
    return power_of((u64) base, (u64) exponent);
}

#define ROUNDED(T, f) \
    static T floor_quotient_##T(T a, T b) { \
        if (b == 0) return a / b; \
        const T rest = fmod##f(a, b); \
        const T quotient = (a - rest) / b - (rest != 0 && (b < 0) != (rest < 0) ? 1 : 0); \
        if (quotient == 0) return copysign##f(0, a / b); \
        const T floored = floor##f(quotient); \
        return quotient - floored > (T) 0.5 ? floored + 1 : floored; \
    } \
    static T modulo_of_##T(T a, T b) { \
        const T rest = fmod##f(a, b); \
        if (rest == 0) return copysign##f(0, b); \
        return (b < 0) != (rest < 0) ? rest + b : rest; \
    }
ROUNDED(f32, f)
ROUNDED(f64, )

static inline f32 from_half(u16 x) {
    // Exponent and mantissa move to where float has them; the exponents' biases differ by 112.
    const f32 size = graphc_float_of((u32) (x & 0x7fff) << 13) * 0x1p112f;
    const u32 infinite = (x & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    return graphc_float_of(graphc_bits_of(size) | infinite | (u32) (x & 0x8000) << 16);
}

static inline u16 to_half(f32 x) {
    const f32 size = fabsf(x);
    const u32 bits = graphc_bits_of(size), sign = graphc_bits_of(x) >> 16 & 0x8000;
    const u32 normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10);
    const u32 tiny = graphc_bits_of(size + 0.5f) - 0x3f000000;  // floats at 0.5 have the steps of the smallest halves
    const u32 huge = size == size ? 0x7c00 : 0x7e00;
    return (u16) (sign | (size < 0x1p-14f ? tiny : size < 65520.0f ? normal : huge));
}

static u16 to_half_at_once(f64 x) {
    const f64 size = fabs(x);
    const u16 sign = signbit(x) ? 0x8000 : 0;
    if (size < 0x1p-14) return sign | (u16) rint(size * 0x1p24);
    if (!(size < 65520.0)) return sign | (size == size ? 0x7c00 : 0x7e00);
    int exponent;
    const f64 mantissa = rint(frexp(size, &exponent) * 2048.0);
    return sign | (u16) (((exponent + 13) << 10) + (int) mantissa);
}

static inline u16 to_bfloat(f32 x) {
    const u32 bits = graphc_bits_of(x);
    return (u16) (x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// What a float is as an integer, if it fits; else what x86 makes of it.
#define TO_I32(T, x) ((x) >= -(T) 0x1p31 && (x) < (T) 0x1p31 ? (i32) (x) : INT32_MIN)
#define TO_I64(T, x) ((x) >= -(T) 0x1p63 && (x) < (T) 0x1p63 ? (i64) (x) : INT64_MIN)
#define TO_U64(T, x) \
    ((x) >= (T) 0x1p63 ? (x) < (T) 0x1p64 ? (u64) (x) : 0 : (x) >= -(T) 0x1p63 ? (u64) (i64) (x) : (u64) INT64_MIN)

/// Operators of one operand: for which types, the result's type, the name, and the result.
#define UNARY_(F) \
    WIDTHS_(F, T, negate, 0 - a) REAL_(F, T, negate, -a) WIDTHS_(F, T, complement, ~a) BYTE_(F, u8, not, !a) \
    WIDTHS_(F, u8, truth, a != 0) REAL_(F, u8, truth, a != 0) \
    WHOLE_(F, u8, to_u8, (u8) a) WHOLE_(F, u16, to_u16, (u16) a) WHOLE_(F, u32, to_u32, (u32) a) WHOLE_(F, u64, to_u64, (u64) a) \
    WHOLE_(F, f32, to_f32, (f32) a) WHOLE_(F, f64, to_f64, (f64) a) SINGLE_(F, f64, to_f64, (f64) a) DOUBLE_(F, f32, to_f32, (f32) a) \
    REAL_(F, i32, to_i32, TO_I32(T, a)) REAL_(F, i64, to_i64, TO_I64(T, a)) REAL_(F, u64, to_u64, TO_U64(T, a)) \
    SINGLE_(F, u16, to_f16, to_half(a)) DOUBLE_(F, u16, to_f16, to_half_at_once(a)) SINGLE_(F, u16, to_bf16, to_bfloat(a)) \
    HALF_(F, f32, from_f16, from_half(a)) HALF_(F, f32, from_bf16, graphc_float_of((u32) a << 16)) \
    REAL_(F, T, exp, OWN_MATH(exp, a)) REAL_(F, T, expm1, OWN_MATH(expm1, a)) REAL_(F, T, log, OWN_MATH(log, a)) \
    REAL_(F, T, log1p, OWN_MATH(log1p, a)) REAL_(F, T, sqrt, MATH(sqrt, a)) REAL_(F, T, sin, MATH(sin, a)) \
    REAL_(F, T, cos, MATH(cos, a)) REAL_(F, T, tan, MATH(tan, a)) REAL_(F, T, asin, MATH(asin, a)) \
    REAL_(F, T, acos, MATH(acos, a)) REAL_(F, T, atan, OWN_MATH(atan, a)) REAL_(F, T, sinh, MATH(sinh, a)) \
    REAL_(F, T, cosh, MATH(cosh, a)) REAL_(F, T, tanh, OWN_MATH(tanh, a)) REAL_(F, T, asinh, MATH(asinh, a)) \
    REAL_(F, T, acosh, MATH(acosh, a)) REAL_(F, T, atanh, MATH(atanh, a)) REAL_(F, T, erf, OWN_MATH(erf, a)) \
    REAL_(F, T, floor, MATH(floor, a)) REAL_(F, T, ceil, MATH(ceil, a)) REAL_(F, T, rint, MATH(rint, a)) \
    REAL_(F, T, fabs, MATH(fabs, a)) REAL_(F, u8, signbit, signbit(a) != 0) SINGLE_(F, i32, ilogb, ilogbf(a))

/// Operators of two operands: for which types, the type of the second operand, the result's type, the name, and the result.
#define BINARY_(F) \
    WIDTHS_(F, T, T, add, a + b) REAL_(F, T, T, add, a + b) WIDTHS_(F, T, T, subtract, a - b) REAL_(F, T, T, subtract, a - b) \
    WIDTHS_(F, T, T, multiply, a * b) REAL_(F, T, T, multiply, a * b) \
    WIDTHS_(F, T, T, and, a & b) WIDTHS_(F, T, T, or, a | b) WIDTHS_(F, T, T, xor, a ^ b) \
    WIDTHS_(F, T, T, shift_left, b < 8 * sizeof(T) ? (T) ((u64) a << b) : 0) \
    SIGNED_(F, T, T, shift_right, (T) (a >> ((u64) b < 8 * sizeof(T) ? b : (T) (8 * sizeof(T) - 1)))) \
    WIDTHS_(F, T, T, shift_right, b < 8 * sizeof(T) ? (T) (a >> b) : 0) \
    SIGNED_(F, T, T, divide, DIVIDED(a, b, T)) WIDTHS_(F, T, T, divide, b == 0 ? 0 : a / b) REAL_(F, T, T, divide, a / b) \
    SIGNED_(F, T, T, remainder, REST(a, b, T)) WIDTHS_(F, T, T, remainder, b == 0 ? 0 : a % b) REAL_(F, T, T, remainder, MATH(fmod, a, b)) \
    SIGNED_(F, T, T, floor_divide, (T) (DIVIDED(a, b, T) - (REST(a, b, T) != 0 && (a < 0) != (b < 0)))) \
    WIDTHS_(F, T, T, floor_divide, b == 0 ? 0 : a / b) \
    SINGLE_(F, T, T, floor_divide, floor_quotient_f32(a, b)) DOUBLE_(F, T, T, floor_divide, floor_quotient_f64(a, b)) \
    SIGNED_(F, T, T, modulo, (T) (REST(a, b, T) + (REST(a, b, T) != 0 && (REST(a, b, T) < 0) != (b < 0) ? b : 0))) \
    WIDTHS_(F, T, T, modulo, b == 0 ? 0 : a % b) \
    SINGLE_(F, T, T, modulo, modulo_of_f32(a, b)) DOUBLE_(F, T, T, modulo, modulo_of_f64(a, b)) \
    SIGNED_(F, T, T, power, signed_power_of(a, b)) WIDTHS_(F, T, T, power, power_of(a, b)) REAL_(F, T, T, power, MATH(pow, a, b)) \
    WHOLE_(F, T, T, max, a > b ? a : b) REAL_(F, T, T, max, a > b || a != a ? a : b) \
    WHOLE_(F, T, T, min, a < b ? a : b) REAL_(F, T, T, min, a < b || a != a ? a : b) \
    REAL_(F, T, T, fmax, MATH(fmax, a, b)) SINGLE_(F, i32, T, ldexp, ldexpf(a, b)) \
    WHOLE_(F, T, u8, less, a < b) REAL_(F, T, u8, less, a < b) WHOLE_(F, T, u8, less_equal, a <= b) REAL_(F, T, u8, less_equal, a <= b) \
    WIDTHS_(F, T, u8, equal, a == b) REAL_(F, T, u8, equal, a == b) \
    WIDTHS_(F, T, u8, not_equal, a != b) REAL_(F, T, u8, not_equal, a != b)

/// What reductions do with a total `a`, of the type that comes first, and the next number `b`: those that go through numbers in their
/// order, and all.
#define FOLD_(F) \
    WIDTHS_(F, T, add, a + b) REAL_(F, f64, add, a + b) WIDTHS_(F, T, multiply, a * b) REAL_(F, f64, multiply, a * b) \
    WHOLE_(F, T, max, a > b ? a : b) DOUBLE_(F, T, max, a > b || a != a ? a : b) \
    WHOLE_(F, T, min, a < b ? a : b) DOUBLE_(F, T, min, a < b || a != a ? a : b)
#define TOTAL_(F) FOLD_(F) SINGLE_(F, T, max, a > b || a != a ? a : b) SINGLE_(F, T, min, a < b || a != a ? a : b)

#define SELECT_(F) WIDTHS_(F, select)

/// So many lanes of an operator; where it has fewer operands, the others are not read.
typedef void vectors_operator(int64_t n, void * restrict to, const void * restrict a, const void * restrict b, const void * restrict c);

#define DEFINE_UNARY(type, R, name, result) \
    static void name##_##type(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        typedef type T; \
        (void) pb, (void) pc; \
        for (int64_t i = 0; i < n; ++i) { \
            const T a = ((const T *) pa)[i]; \
            ((R *) to)[i] = (R) (result); \
        } \
    }
UNARY_(DEFINE_UNARY)

#define DEFINE_BINARY(type, B, R, name, result) \
    static void name##_##type(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        typedef type T; \
        (void) pc; \
        for (int64_t i = 0; i < n; ++i) { \
            const T a = ((const T *) pa)[i]; \
            const B b = ((const B *) pb)[i]; \
            ((R *) to)[i] = (R) (result); \
        } \
    }
BINARY_(DEFINE_BINARY)

/// `fold` adds lanes to one total; `total` each lane to a total of its own.
#define DEFINE_FOLD(type, R, name, result) \
    static void fold_##name##_##type(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        typedef type T; \
        (void) pb, (void) pc; \
        R a = *(R *) to; \
        for (int64_t i = 0; i < n; ++i) { \
            const T b = ((const T *) pa)[i]; \
            a = (R) (result); \
        } \
        *(R *) to = a; \
    }
FOLD_(DEFINE_FOLD)

#define DEFINE_EXTREME(name, found_in) \
    static void fold_##name##_f32(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        (void) pb, (void) pc; \
        *(f32 *) to = found_in(*(f32 *) to, (const f32 *) pa, n); \
    }
DEFINE_EXTREME(max, graphc_largest)
DEFINE_EXTREME(min, graphc_smallest)

#define DEFINE_TOTAL(type, R, name, result) \
    static void total_##name##_##type(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        typedef type T; \
        (void) pb, (void) pc; \
        for (int64_t i = 0; i < n; ++i) { \
            const R a = ((const R *) to)[i]; \
            const T b = ((const T *) pa)[i]; \
            ((R *) to)[i] = (R) (result); \
        } \
    }
TOTAL_(DEFINE_TOTAL)

#define DEFINE_SELECT(T, name) \
    static void name##_##T(int64_t n, void * restrict to, const void * restrict pa, const void * restrict pb, const void * restrict pc) { \
        for (int64_t i = 0; i < n; ++i) { \
            const T a = ((const T *) pb)[i], b = ((const T *) pc)[i]; \
            ((T *) to)[i] = ((const u8 *) pa)[i] ? a : b; \
        } \
    }
SELECT_(DEFINE_SELECT)

#define ROW(T, name) {#name "_" #T, name##_##T},
#define ROW_UNARY(T, R, name, result) ROW(T, name)
#define ROW_BINARY(T, B, R, name, result) ROW(T, name)
#define ROW_TOTAL(T, R, name, result) ROW(T, fold_##name) ROW(T, total_##name)

static const struct {
    const char * name;
    vectors_operator * compute;
} operators[] = {UNARY_(ROW_UNARY) BINARY_(ROW_BINARY) TOTAL_(ROW_TOTAL) SELECT_(ROW)};

int graphc_vectors_operator(const char * name) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; ++i) {
        if (strcmp(operators[i].name, name) == 0) return (int) i;
    }
    return -1;
}

// Instructions

/// What else an instruction may be. Registers, and offsets in tensors, count elements; masks are bytes, -1 for none.
enum {
    LOAD = -1,     // to[i] = input a at b + i * c, of an element's place i in its row; where the mask d is set; e: the lanes of b
    GATHER = -2,   // to[i] = input a at b[i], where the mask d is set, else 0
    EXPAND = -3,   // to = a, of e lanes, for more lanes
    AIM = -4,      // let `to` lie where STORE would store it, if that is without gaps
    STORE = -5,    // the result at b + i * c = a; e: the lanes of b
    SKIP = -6,     // go on at b unless a lane of the mask a is set
    LOOP = -7,     // for `to` from 0 to a - 1, until NEXT, which is before b
    NEXT = -8,     // the end of the loop of instruction b
    FAULT = -9,    // the fault b, if a lane of a is set
    REDUCE = -10,  // to[i] = the register c after the frame a, for each lane i where the mask d is set
};

struct vectors_instruction {
    i32 operator, lanes, to, a, b, c, d, e;  // lanes: 0 one, 1 those of rows, 2 those of elements
};

struct vectors_register {
    i32 place, size;  // in bytes: where it is, and an element's
};

struct vectors_constant {
    i32 to, number, lanes;
};

struct vectors_import {
    i32 from, to;
};

struct vectors_axis {
    i32 extent, index;  // the number that is its size; the register that holds its indices, or -1
};

struct vectors_frame {
    i32 first_axis, axes;
    i32 first_import, imports;
    i32 once, body, end;  // instructions before the blocks, and for each
};

struct vectors_code {
    i32 block, bytes, registers, constants, imports, axes, frames, instructions;  // how many there are of each
    i32 words[];                                                                  // all of them, in the same order
};

struct vectors_data {
    int64_t fault;      // 0, or the number of the check that failed; -1 without memory
    int64_t code;       // the address of a `struct vectors_code`
    int64_t numbers[];  // sizes and constants, each the bits of its type
};

/// What a thread needs for a kernel.
struct vectors {
    const struct vectors_register * registers;
    const struct vectors_import * imports;
    const struct vectors_axis * axes;
    const struct vectors_frame * frames;
    const struct vectors_instruction * instructions;
    const int64_t * numbers;
    struct ggml_tensor * dst;
    int64_t * fault;
    int64_t block;
    char * memory;
    void ** at;  // where each register is
};

/// The lanes of a block: its elements, and the rows in which they are. The first row begins with its element `first`.
struct vectors_span {
    int64_t lanes[3], first, extent;
};

/// For each stretch of a block's elements that lies within a row.
#define EACH_ROW(span) \
    for (int64_t row = 0, lane = 0, from = (span)->first, count; \
         lane < (span)->lanes[2] && (count = min64((span)->extent - from, (span)->lanes[2] - lane), true); lane += count, from = 0, ++row)

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static void * place_of(const struct vectors * v, i32 number) { return v->memory + v->registers[number].place; }

#define WITH_SIZE(size, F) \
    switch (size) { \
        case 1: F(u8) break; \
        case 2: F(u16) break; \
        case 4: F(u32) break; \
        default: F(u64) \
    }

enum { SHORT = 64 };  // bytes for which a call would take longer than the loop

#define COPY(T) \
    static inline void copy_##T(T * restrict to, const T * restrict from, int64_t stride, int64_t count) { \
        if (stride == 1 && count * (int64_t) sizeof(T) > SHORT) memcpy(to, from, count * sizeof(T)); \
        else if (stride == 1) for (int64_t i = 0; i < count; ++i) to[i] = from[i]; \
        else for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride]; \
    }
COPY(u8) COPY(u16) COPY(u32) COPY(u64)

static void copy_one(void * to, const void * from, int64_t lane, i32 size) {
#define COPY_ONE(T) *(T *) to = ((const T *) from)[lane];
    WITH_SIZE(size, COPY_ONE)
}

static void fill_lanes(void * to, const void * value, int64_t count, i32 size) {
#define FILL(T) \
    { \
        const T x = *(const T *) value; \
        for (int64_t i = 0; i < count; ++i) ((T *) to)[i] = x; \
    }
    WITH_SIZE(size, FILL)
}

static bool any_set(const u8 * mask, int64_t n) { return memchr(mask, 1, n) != NULL; }

/// True if a block's elements lie one after the other in a tensor.
static bool in_order(const struct vectors_span * span, const int64_t * base, i32 lanes) {
    int64_t expected = base[0] + span->first;
    EACH_ROW(span) {
        const int64_t offset = base[lanes == 0 ? 0 : row] + from;
        if (offset != expected) return false;
        expected = offset + count;
    }
    return true;
}

static void load_lanes(const struct vectors * v, const struct vectors_span * span, const struct vectors_instruction * x) {
    const char * data = (const char *) v->dst->src[x->a]->data;
    const int64_t * base = (const int64_t *) v->at[x->b], stride = *(const int64_t *) v->at[x->c];
    const i32 size = v->registers[x->to].size;
    if (x->d < 0 && stride == 1 && in_order(span, base, x->e)) {
        v->at[x->to] = (void *) (data + (base[0] + span->first) * size);
        return;
    }
    void * to = v->at[x->to] = place_of(v, x->to);
    const int64_t step = x->e == 0 ? 0 : 1;
    if (x->d < 0 || memchr(v->at[x->d], 0, span->lanes[2]) == NULL) {
#define LOAD_ALL(T) EACH_ROW(span) copy_##T((T *) to + lane, (const T *) data + base[row * step] + from * stride, stride, count);
        WITH_SIZE(size, LOAD_ALL)
        return;
    }
    EACH_ROW(span) {
        const u8 * mask = (const u8 *) v->at[x->d] + lane;
        const int64_t offset = base[row * step] + from * stride;
        for (int64_t i = 0, stop; i < count; i = stop) {
            const u8 is = mask[i];
            const u8 * other = (const u8 *) memchr(mask + i, !is, count - i);
            stop = other == NULL ? count : other - mask;
            if (!is) memset((char *) to + (lane + i) * size, 0, (stop - i) * size);
#define LOAD_SOME(T) if (is) copy_##T((T *) to + lane + i, (const T *) data + offset + i * stride, stride, stop - i);
            WITH_SIZE(size, LOAD_SOME)
        }
    }
}

static void gather_lanes(const struct vectors * v, int64_t n, const struct vectors_instruction * x) {
    const void * data = v->dst->src[x->a]->data;
    const int64_t * at = (const int64_t *) v->at[x->b];
    void * to = v->at[x->to];
    if (x->d < 0) {
#define GATHER_ALL(T) for (int64_t i = 0; i < n; ++i) ((T *) to)[i] = ((const T *) data)[at[i]];
        WITH_SIZE(v->registers[x->to].size, GATHER_ALL)
    } else {
        const u8 * mask = (const u8 *) v->at[x->d];
#define GATHER_SOME(T) for (int64_t i = 0; i < n; ++i) ((T *) to)[i] = mask[i] ? ((const T *) data)[at[i]] : 0;
        WITH_SIZE(v->registers[x->to].size, GATHER_SOME)
    }
}

static void expand_lanes(const struct vectors * v, const struct vectors_span * span, const struct vectors_instruction * x) {
    const i32 size = v->registers[x->to].size;
    const char * value = (const char *) v->at[x->a];
    char * to = (char *) v->at[x->to];
    if (x->e == 0) {
        fill_lanes(to, value, span->lanes[x->lanes], size);
    } else {
        EACH_ROW(span) fill_lanes(to + lane * size, value + row * size, count, size);
    }
}

static void aim_lanes(const struct vectors * v, const struct vectors_span * span, const struct vectors_instruction * x) {
    const int64_t * base = (const int64_t *) v->at[x->b];
    const bool direct = *(const int64_t *) v->at[x->c] == 1 && in_order(span, base, x->e);
    v->at[x->to] = direct ? (char *) v->dst->data + (base[0] + span->first) * v->registers[x->to].size : place_of(v, x->to);
}

static void store_lanes(const struct vectors * v, const struct vectors_span * span, const struct vectors_instruction * x) {
    const i32 size = v->registers[x->a].size;
    const int64_t * base = (const int64_t *) v->at[x->b], stride = *(const int64_t *) v->at[x->c];
    const char * value = (const char *) v->at[x->a];
    if (value == (char *) v->dst->data + (base[0] + span->first) * size) return;  // it was aimed there
    const int64_t step = x->e == 0 ? 0 : 1;
#define STORE_ALL(T) \
    EACH_ROW(span) { \
        T * to = (T *) v->dst->data + base[row * step] + from * stride; \
        if (stride == 1) copy_##T(to, (const T *) value + lane, 1, count); \
        else for (int64_t i = 0; i < count; ++i) to[i * stride] = ((const T *) value)[lane + i]; \
    }
    WITH_SIZE(size, STORE_ALL)
}

static void run_frame(const struct vectors * v, const struct vectors_frame * frame, int64_t begin, int64_t end);

static int64_t elements_of(const struct vectors * v, const struct vectors_frame * frame) {
    int64_t total = 1;
    for (i32 i = 0; i < frame->axes; ++i) total *= v->numbers[v->axes[frame->first_axis + i].extent];
    return total;
}

static void reduce_lanes(const struct vectors * v, int64_t n, const struct vectors_instruction * x) {
    const struct vectors_frame * frame = &v->frames[x->a];
    const struct vectors_import * imports = v->imports + frame->first_import;
    const int64_t total = elements_of(v, frame);
    const i32 size = v->registers[x->to].size;
    for (int64_t lane = 0; lane < n; ++lane) {
        if (x->d >= 0 && !((const u8 *) v->at[x->d])[lane]) continue;
        for (i32 i = 0; i < frame->imports; ++i) {
            copy_one(v->at[imports[i].to], v->at[imports[i].from], lane, v->registers[imports[i].to].size);
        }
        run_frame(v, frame, 0, total);
        copy_one((char *) v->at[x->to] + lane * size, v->at[x->c], 0, size);
    }
}

static void carry_out(const struct vectors * v, const struct vectors_span * span, i32 begin, i32 end) {
    for (i32 i = begin; i < end; ++i) {
        const struct vectors_instruction * x = &v->instructions[i];
        const int64_t n = span->lanes[x->lanes];
        if (x->operator >= 0) {
            operators[x->operator].compute(n, v->at[x->to], v->at[x->a], v->at[x->b], v->at[x->c]);
            continue;
        }
        switch (x->operator) {
            case LOAD: load_lanes(v, span, x); break;
            case GATHER: gather_lanes(v, n, x); break;
            case EXPAND: expand_lanes(v, span, x); break;
            case AIM: aim_lanes(v, span, x); break;
            case STORE: store_lanes(v, span, x); break;
            case SKIP:
                if (!any_set((const u8 *) v->at[x->a], n)) i = x->b - 1;
                break;
            case LOOP:
                *(int64_t *) v->at[x->to] = 0;
                if (*(const int64_t *) v->at[x->a] <= 0) i = x->b - 1;
                break;
            case NEXT: {
                const struct vectors_instruction * loop = &v->instructions[x->b];
                if (++*(int64_t *) v->at[loop->to] < *(const int64_t *) v->at[loop->a]) i = x->b;
                break;
            }
            case FAULT:
                if (any_set((const u8 *) v->at[x->a], n)) *v->fault = x->b;
                break;
            default:
                reduce_lanes(v, n, x);
                i = v->frames[x->a].end - 1;
        }
    }
}

/// The indices of an outer axis, of which there are so many rows for each step.
static void count_rows(int64_t * to, int64_t rows, int64_t row, int64_t step, int64_t extent) {
    int64_t index = row / step % extent, done = row % step;
    for (int64_t i = 0; i < rows; ++i) {
        to[i] = index;
        if (++done < step) continue;
        done = 0;
        if (++index == extent) index = 0;
    }
}

/// The blocks of a part of a frame's elements.
static void run_frame(const struct vectors * v, const struct vectors_frame * frame, int64_t begin, int64_t end) {
    const int64_t most = min64(v->block, end - begin);
    const struct vectors_axis * axes = v->axes + frame->first_axis, * inner = axes + frame->axes - 1;
    struct vectors_span span = {{1, most, most}, 0, v->numbers[inner->extent]};
    carry_out(v, &span, frame->once, frame->body);
    for (; begin < end; begin += v->block) {
        const int64_t n = min64(v->block, end - begin), first_row = begin / span.extent;
        span.first = begin % span.extent;
        span.lanes[1] = (span.first + n - 1) / span.extent + 1;
        span.lanes[2] = n;
        int64_t step = 1;
        for (i32 axis = frame->axes - 2; axis >= 0; --axis) {
            const int64_t extent = v->numbers[axes[axis].extent];
            if (axes[axis].index >= 0) count_rows((int64_t *) v->at[axes[axis].index], span.lanes[1], first_row, step, extent);
            step *= extent;
        }
        if (inner->index >= 0) {
            int64_t * to = (int64_t *) v->at[inner->index];
            EACH_ROW(&span) {
                for (int64_t i = 0; i < count; ++i) to[lane + i] = from + i;
            }
        }
        carry_out(v, &span, frame->body, frame->end);
    }
}

void graphc_vectors(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    struct vectors_data * data = (struct vectors_data *) userdata;
    const struct vectors_code * code = (const struct vectors_code *) (intptr_t) data->code;
    const struct vectors_register * registers = (const struct vectors_register *) code->words;
    const struct vectors_constant * constants = (const struct vectors_constant *) (registers + code->registers);
    const struct vectors_import * imports = (const struct vectors_import *) (constants + code->constants);
    const struct vectors_axis * axes = (const struct vectors_axis *) (imports + code->imports);
    const struct vectors_frame * frames = (const struct vectors_frame *) (axes + code->axes);
    const struct vectors_instruction * instructions = (const struct vectors_instruction *) (frames + code->frames);
    struct vectors v = {registers, imports, axes, frames, instructions, data->numbers, dst, &data->fault, code->block, NULL, NULL};
    const int64_t total = elements_of(&v, frames), first = total * ith / nth, end = total * (ith + 1) / nth;
    if (first >= end) return;
    v.at = (void **) malloc(code->registers * sizeof(void *) + code->bytes);
    if (v.at == NULL) {
        data->fault = -1;
        return;
    }
    v.memory = (char *) (v.at + code->registers);
    for (i32 i = 0; i < code->registers; ++i) v.at[i] = place_of(&v, i);
    const int64_t most[] = {1, code->block, code->block};
    for (i32 i = 0; i < code->constants; ++i) {
        fill_lanes(v.at[constants[i].to], &data->numbers[constants[i].number], most[constants[i].lanes], registers[constants[i].to].size);
    }
    run_frame(&v, frames, first, end);
    free(v.at);
}
