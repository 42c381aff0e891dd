#pragma once

// Weights of narrower types as float32, by vectors: into memory, or in registers where they meet one row. Blocks lie in memory as
// ggml-common.h says. What a type has no code for here, ggml's own functions read.

#include "tiles.h"

/// What is read or multiplied at once, a divisor of all blocks of ggml's; elements of a partial sum; those of the smallest blocks, and how many of
/// these are a partial sum.
enum { EVEN = 2 * WIDTH, DEPTH = 256, CODED = 32, SCALES = DEPTH / CODED };

typedef uint8_t bytes __attribute__((vector_size(WIDTH)));
typedef uint8_t bytes_anywhere __attribute__((vector_size(WIDTH), aligned(1)));
typedef uint32_t words __attribute__((vector_size(WIDTH)));
typedef uint32_t bits __attribute__((vector_size(WIDTH * 4)));
typedef uint32_t bits_anywhere __attribute__((vector_size(WIDTH * 4), aligned(2), may_alias));

struct q8_0 { uint16_t scale; uint8_t q[32]; };
struct q4_0 { uint16_t scale; uint8_t q[16]; };
struct q4_1 { uint16_t scale, least; uint8_t q[16]; };
struct q5_0 { uint16_t scale, fifths[2]; uint8_t q[16]; };
struct q5_1 { uint16_t scale, least, fifths[2]; uint8_t q[16]; };
struct parts { uint16_t scale, least, shares[6]; };
struct q4_k { struct parts parts; uint8_t q[128]; };
struct q5_k { struct parts parts; uint8_t fifths[32], q[128]; };
struct q6_k { uint8_t q[128], high[64]; int8_t parts[16]; uint16_t scale; };
struct f32 { float x[EVEN]; };
struct f16 { uint16_t x[EVEN]; };
struct bf16 { uint16_t x[EVEN]; };

/// Float16 in the upper halves of words as float32.
static inline vector upper_halves(bits x) {
    const vector finite = (vector) ((bits) ((integers) x >> 3) & 0x8fffe000) * 0x1p112f;
    const bits huge = (bits) ((x & 0x7c000000) == 0x7c000000);  // infinite, or not a number
    return (vector) ((bits) finite | (huge & 0x7f800000));
}

/// A float16 as float32, by an instruction if there is one. (Where compilers know float16, theirs on x86 keeps the rest of its register, so
/// each conversion of a loop would wait for the one before.)
static inline float float16(uint16_t x) {
#if defined(__F16C__)
    typedef uint32_t quad __attribute__((vector_size(16)));
    typedef float four __attribute__((vector_size(16)));
    four found;
    __asm__("vcvtph2ps %1, %0" : "=v"(found) : "v"((quad){x}));
    return found[0];
#elif defined(__FLT16_MANT_DIG__) && defined(__aarch64__)
    return (float) ((union { uint16_t bits; _Float16 value; }){x}).value;
#else
    return upper_halves((bits){(uint32_t) x << 16})[0];
#endif
}

#if !defined(__clang__) && __GNUC__ < 12
#define WITH_ZEROS(type, x, ...) __builtin_shuffle(x, (type){0}, (type){__VA_ARGS__})
#else
#define WITH_ZEROS(type, x, ...) __builtin_shufflevector(x, (type){0}, __VA_ARGS__)
#endif

static inline bytes load(const uint8_t * from) { return *(const bytes_anywhere *) from; }

/// The bits of bytes some places lower, or higher; those that come in from a neighbour are to be taken away.
static inline bytes lower(bytes x, int places) { return (bytes) ((words) x >> places); }
static inline bytes higher(bytes x, int places) { return (bytes) ((words) x << places); }

static inline integers numbers(bytes x) {
#if defined(__AVX__)
    return __builtin_convertvector(x, integers);
#else  // which compilers do an element at a time
    typedef uint8_t sixteen __attribute__((vector_size(16)));
    typedef uint16_t eight __attribute__((vector_size(16)));
    const eight y = (eight) WITH_ZEROS(sixteen, (sixteen) (bits){((words) x)[0]}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return (integers) WITH_ZEROS(eight, y, 0, 8, 1, 9, 2, 10, 3, 11);
#endif
}

/// Bytes of memory as numbers. (Compilers convert what comes from memory an element at a time.)
static inline integers numbers_at(const uint8_t * from) {
#if defined(__AVX2__)
    integers found;
    __asm__("vpmovzxbd %1, %0" : "=v"(found) : "m"(*(const bytes_anywhere *) from));
    return found;
#else
    return numbers(load(from));
#endif
}

/// The same of bytes with signs.
static inline integers signed_numbers_at(const uint8_t * from) {
#if defined(__AVX2__)
    integers found;
    __asm__("vpmovsxbd %1, %0" : "=v"(found) : "m"(*(const bytes_anywhere *) from));
    return found;
#else
    return numbers(load(from) ^ 128) - 128;
#endif
}

static inline vector as_floats(integers x) { return __builtin_convertvector(x, vector); }

/// What codes stand for. Nothing is added where nothing is least, for compilers would add 0.
static inline __attribute__((always_inline)) vector stood_for(vector codes, float scale, float least) {
    return __builtin_constant_p(least) && least == 0 ? codes * scale : codes * scale + least;
}

static inline vector scaled(integers x, float scale) { return as_floats(x) * scale; }

/// Bit i for element i of two vectors, as 16.
static inline integers fifth(int bits, int i) {
    static const int32_t places[16] __attribute__((aligned(64))) = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return ((integers) {0} + bits * 16) >> *(const integers *) (places + i) & 16;
}

#define READ(type) static inline __attribute__((always_inline)) void read_##type(const struct type * x, unaligned * to)

READ(f32) {
    to[0] = *(const unaligned *) x->x;
    to[1] = *(const unaligned *) (x->x + WIDTH);
}

#if defined(__AVX2__) && defined(__F16C__)
/// As many numbers of two bytes as there are lanes, by an instruction that widens them. (Compilers convert what comes from memory an element
/// at a time.)
#define WIDEN_BOTH(instruction, x, found) \
    __asm__(instruction " %1, %0" : "=v"(found[0]) : "m"(*(const uint16_t (*)[WIDTH]) x)); \
    __asm__(instruction " %1, %0" : "=v"(found[1]) : "m"(*(const uint16_t (*)[WIDTH]) (x + WIDTH)))

READ(f16) {
    vector found[2];
    WIDEN_BOTH("vcvtph2ps", x->x, found);
    to[0] = found[0], to[1] = found[1];
}

READ(bf16) {
    bits found[2];
    WIDEN_BOTH("vpmovzxwd", x->x, found);
    to[0] = (vector) (found[0] << 16), to[1] = (vector) (found[1] << 16);
}
#else
READ(f16) {
    const bits pairs = *(const bits_anywhere *) x->x;
    const vector even = upper_halves(pairs << 16), odd = upper_halves(pairs);
    to[0] = interleave_first(even, odd);
    to[1] = interleave_last(even, odd);
}

READ(bf16) {
    const bits pairs = *(const bits_anywhere *) x->x;
    const vector even = (vector) (pairs << 16), odd = (vector) (pairs & 0xffff0000);
    to[0] = interleave_first(even, odd);
    to[1] = interleave_last(even, odd);
}
#endif

#if defined(__AVX512F__)
/// Of as many numbers as there are lanes those that the last four bits of words tell.
static inline vector looked_up(vector table, integers at) {
    vector found;
    __asm__("vpermps %1, %2, %0" : "=v"(found) : "v"(table), "v"(at));
    return found;
}

/// All that four bits may be.
static const vector four_bits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// Numbers, and where a bit is set what is more; the last bit is that of the first number.
static inline vector more_where(vector x, uint16_t bits, vector more) {
    __asm__("vaddps %2, %0, %0 %{%1%}" : "+v"(x) : "Yk"(bits), "v"(more));
    return x;
}
#endif

/// What the lower halves of bytes stand for, and the upper ones: each less so much, times a scale, plus what is least.
static inline __attribute__((always_inline)) void halves_of(const uint8_t * q, int less, float scale, float least, vector * low, vector * high) {
#if defined(__AVX512F__)
    const integers bytes = numbers_at(q);
    const vector table = stood_for(four_bits - (float) less, scale, least);
    *low = looked_up(table, bytes), *high = looked_up(table, bytes >> 4);
#else
    const bytes x = load(q);
    *low = stood_for(as_floats(numbers(x & 15) - less), scale, least);
    *high = stood_for(as_floats(numbers(lower(x, 4) & 15) - less), scale, least);
#endif
}

/// The same with a fifth bit for each, of which those from number i on are wanted.
static inline __attribute__((always_inline)) void halves_and_fifths(const uint8_t * q, const uint16_t * fifths, int i, int less, float scale, float least,
                                                                    vector * low, vector * high) {
#if defined(__AVX512F__)
    halves_of(q, less, 1, 0, low, high);
    *low = stood_for(more_where(*low, fifths[0], all(16)), scale, least);
    *high = stood_for(more_where(*high, fifths[1], all(16)), scale, least);
#else
    const bytes x = load(q);
    *low = stood_for(as_floats((numbers(x & 15) | fifth(fifths[0], i)) - less), scale, least);
    *high = stood_for(as_floats((numbers(lower(x, 4) & 15) | fifth(fifths[1], i)) - less), scale, least);
#endif
}

/// What the codes of a block of CODED elements stand for. Bytes have two codes of four bits: the lower halves are those of the first half.
#define VALUES(type) static inline __attribute__((always_inline)) void values_##type(const struct type * x, float scale, float least, unaligned * to)
#define VALUES_OF_HALVES(type, values, ...) \
    VALUES(type) { \
        _Pragma("GCC unroll 4") \
        for (int i = 0; i < CODED / 2; i += WIDTH) { \
            vector low, high; \
            values(x->q + i, __VA_ARGS__, scale, least, &low, &high); \
            to[i / WIDTH] = low, to[(i + CODED / 2) / WIDTH] = high; \
        } \
    }
VALUES_OF_HALVES(q4_0, halves_of, 8)
VALUES_OF_HALVES(q4_1, halves_of, 0)
VALUES_OF_HALVES(q5_0, halves_and_fifths, x->fifths, i, 16)
VALUES_OF_HALVES(q5_1, halves_and_fifths, x->fifths, i, 0)

VALUES(q8_0) {
#pragma GCC unroll 8
    for (int i = 0; i < CODED; i += WIDTH) to[i / WIDTH] = stood_for(as_floats(signed_numbers_at(x->q + i)), scale, least);
}

READ(q8_0) { values_q8_0(x, float16(x->scale), 0, to); }
READ(q4_0) { values_q4_0(x, float16(x->scale), 0, to); }
READ(q4_1) { values_q4_1(x, float16(x->scale), float16(x->least), to); }
READ(q5_0) { values_q5_0(x, float16(x->scale), 0, to); }
READ(q5_1) { values_q5_1(x, float16(x->scale), float16(x->least), to); }

/// The scales and the least numbers of eight parts of a block, of 6 bits each.
struct shares {
    float scale[8], least[8];
} __attribute__((aligned(64)));

#if defined(__AVX512F__)
/// Of a block's two numbers, for some lanes what is least.
static inline vector scale_or_least(const struct parts * parts, integers of_least) {
    vector both;
    __asm__("vcvtph2ps %1, %x0" : "=v"(both) : "m"(*(const uint16_t (*)[4]) parts));
    return looked_up(both, of_least & 1);
}
#else
static inline vector scale_or_least(const struct parts * parts, integers of_least) {
    return choose(of_least, all(float16(parts->least)), all(float16(parts->scale)));
}
#endif

static inline struct shares shares_of(const struct parts * parts) {
    typedef uint32_t quad __attribute__((vector_size(16)));
    typedef uint32_t quad_anywhere __attribute__((vector_size(16), aligned(2), may_alias));
    const quad x = *(const quad_anywhere *) parts;
    const quad last = WITH_ZEROS(quad, x, 1, 3, 2, 3) >> (quad){0, 0, 0, 4} & (quad){0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f};
    const quad first = WITH_ZEROS(quad, x, 4, 1, 4, 2) >> 2 & 0x30303030;
    const union { quad words; uint8_t bytes[16]; } found = {last | first};
    static const int32_t of_least[16] __attribute__((aligned(64))) = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
    struct shares s;
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += WIDTH) {
        const vector share = __builtin_convertvector(numbers_at(found.bytes + i), vector);
        *(vector *) (s.scale + i) = share * scale_or_least(parts, *(const integers *) (of_least + i));
    }
    __asm__("" : "+m"(s));  // a processor reads one of them for all lanes from memory by the way
    return s;
}

READ(q4_k) {
    const struct shares s = shares_of(&x->parts);
#pragma GCC unroll 4
    for (int part = 0; part < 8; part += 2) {
#pragma GCC unroll 8
        for (int i = 0; i < 32; i += WIDTH) {
            const bytes q = load(x->q + part * 16 + i);
            to[(part * 32 + i) / WIDTH] = scaled(numbers(q & 15), s.scale[part]) - s.least[part];
            to[(part * 32 + 32 + i) / WIDTH] = scaled(numbers(lower(q, 4) & 15), s.scale[part + 1]) - s.least[part + 1];
        }
    }
}

READ(q5_k) {
    const struct shares s = shares_of(&x->parts);
#pragma GCC unroll 4
    for (int part = 0; part < 8; part += 2) {
#pragma GCC unroll 8
        for (int i = 0; i < 32; i += WIDTH) {
            const bytes q = load(x->q + part * 16 + i), fifths = lower(load(x->fifths + i), part);
            const bytes first = (q & 15) | (higher(fifths, 4) & 16), second = (lower(q, 4) & 15) | (higher(fifths, 3) & 16);
            to[(part * 32 + i) / WIDTH] = scaled(numbers(first), s.scale[part]) - s.least[part];
            to[(part * 32 + 32 + i) / WIDTH] = scaled(numbers(second), s.scale[part + 1]) - s.least[part + 1];
        }
    }
}

READ(q6_k) {
    const float scale = float16(x->scale);
    float scales[16];
    for (int i = 0; i < 16; ++i) scales[i] = scale * x->parts[i];
#pragma GCC unroll 16
    for (int part = 0; part < 16; ++part) {
        const uint8_t * q = x->q + part / 8 * 64 + part % 4 * 16, * high = x->high + part / 8 * 32 + part % 2 * 16;
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += WIDTH) {
            const bytes four = lower(load(q + i), part % 8 / 4 * 4) & 15, two = higher(lower(load(high + i), part % 8 / 2 * 2), 4) & 48;
            to[(part * 16 + i) / WIDTH] = scaled(numbers(four | two) - 32, scales[part]);
        }
    }
}

/// Adds products of `count` elements of blocks, so many in each, to `total` by vectors: what is behind adds those of the next `some` to `totals`.
/// What lies `ahead` bytes behind comes to the cache meanwhile.
#define ADD_PARTS(elements, ...) \
    vector whole = *total; \
    for (; count > 0; count -= DEPTH) { \
        const int64_t some = min_of(count, DEPTH); \
        fetch((const char *) block + ahead, DEPTH / elements * sizeof *block); \
        vector totals[2] = {{0}, {0}}; \
        __VA_ARGS__ \
        whole += totals[0] + totals[1]; \
    } \
    *total = whole;

/// A function that multiplies blocks of a type with as many numbers of a row; the products of a block are added to `totals`.
#define DOT(name, type, elements, ...) \
    static __attribute__((unused)) void name(const void * from, const float * row, int64_t count, int64_t ahead, vector * total) { \
        const struct type * block = from; \
        ADD_PARTS(elements, for (int64_t i = 0; i < some; i += elements, row += elements, ++block) __VA_ARGS__) \
    }

/// What reads whole blocks of a type that have so many elements, and what multiplies them.
#define READER(type, elements) WIDENER(type, elements) DOT(dot_##type, type, elements, { \
        unaligned x[elements / WIDTH]; \
        read_##type(block, x); \
        _Pragma("GCC unroll 64") \
        for (int j = 0; j < elements / WIDTH; ++j) totals[j % 2] += x[j] * *(const vector *) (row + j * WIDTH); \
    })
#define WIDENER(type, elements) \
    static void widen_##type(const void * from, float * to, int64_t count) { \
        const struct type * block = from; \
        for (int64_t i = 0; i < count; i += elements) read_##type(block++, (unaligned *) (to + i)); \
    }
READER(f32, EVEN) READER(f16, EVEN) READER(bf16, EVEN)
WIDENER(q8_0, CODED) WIDENER(q4_0, CODED) WIDENER(q4_1, CODED) WIDENER(q5_0, CODED) WIDENER(q5_1, CODED)
WIDENER(q4_k, 256) WIDENER(q5_k, 256) WIDENER(q6_k, 256)

/// The first number of each of up to SCALES blocks that follow one another, as float32. (Four are one word in memory: a processor would wait for
/// smaller pieces to be there before it reads them together.)
static inline void first_numbers(const void * blocks, int64_t size, int64_t count, float * numbers) {
#pragma GCC unroll 2
    for (int i = 0; i < SCALES; i += 4) {
        uint64_t four = 0;
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) four |= (uint64_t) *(const uint16_t *) ((const char *) blocks + min_of(i + j, count - 1) * size) << 16 * j;
#if defined(__F16C__)
        typedef float vector_of_four __attribute__((vector_size(16)));
        __asm__("vcvtph2ps %1, %0" : "=v"(*(vector_of_four *) (numbers + i)) : "m"(four));
#else
        for (int j = 0; j < 4; ++j) numbers[i + j] = float16((uint16_t) (four >> 16 * j));
#endif
    }
}

/// A function that multiplies blocks of codes. The first numbers of several are read together: scales, and what is `least` where blocks say that.
#define DOT_CODES(type, read, least) \
    static void dot_##type(const void * from, const float * row, int64_t count, int64_t ahead, vector * total) { \
        const struct type * block = from; \
        ADD_PARTS(CODED, { \
            const int64_t blocks = some / CODED; \
            float scales[SCALES] __attribute__((aligned(64))), second[SCALES] __attribute__((aligned(64))); \
            first_numbers(&block->scale, sizeof *block, blocks, scales); \
            read; \
            for (int64_t i = 0; i < blocks; ++i, row += CODED, ++block) { \
                unaligned x[CODED / WIDTH]; \
                values_##type(block, scales[i], least, x); \
                _Pragma("GCC unroll 8") \
                for (int j = 0; j < CODED / WIDTH; ++j) totals[j % 2] += x[j] * *(const vector *) (row + j * WIDTH); \
            } \
        }) \
    }
#define READ_LEAST first_numbers(&block->least, sizeof *block, blocks, second)
DOT_CODES(q8_0, (void) second, 0) DOT_CODES(q4_0, (void) second, 0) DOT_CODES(q5_0, (void) second, 0)
DOT_CODES(q4_1, READ_LEAST, second[i]) DOT_CODES(q5_1, READ_LEAST, second[i])

/// What whole numbers stand for, each plus a shift, times a scale: there is one of these for `size` elements, the first for the next `left`.
/// Without shifts they are 0.
struct scaling {
    const float * scales, * shifts;
    int64_t size, left;
};

/// The same for whole numbers in blocks of CODED elements, where `size` is a multiple of that. `numbers` makes what a block's elements are
/// read by of `scale` and `shift`; `store` writes them to `row`, and `products` adds their products with `row` to `totals`.
#define SCALED_READER(type, numbers, store, products) \
    static void scaled_widen_##type(const void * from, struct scaling s, int64_t count, float * row) { \
        FIRST_SCALED(type, numbers) \
        EACH_SCALED(count, numbers, store) \
    } \
    static void scaled_dot_##type(const void * from, struct scaling s, const float * row, int64_t count, int64_t ahead, vector * total) { \
        FIRST_SCALED(type, numbers) \
        ADD_PARTS(CODED, EACH_SCALED(some, numbers, products)) \
    }

#define FIRST_SCALED(type, numbers) \
    const struct type * block = from; \
    float scale = *s.scales, shift = s.shifts == NULL ? 0 : *s.shifts; \
    vector by = numbers;

#define EACH_SCALED(count, numbers, ...) \
    for (int64_t i = 0, end = count; i < end; i += CODED, row += CODED, s.left -= CODED, ++block) { \
        if (s.left == 0) { \
            s.left = s.size, scale = *++s.scales; \
            if (s.shifts != NULL) shift = *++s.shifts; \
            by = numbers; \
        } \
        __VA_ARGS__; \
    }

#define STORE_READ(type) \
    do { \
        unaligned * x = (unaligned *) row; \
        read_##type(block, x); \
        _Pragma("GCC unroll 8") \
        for (int j = 0; j < CODED / WIDTH; ++j) x[j] = (x[j] + shift) * by; \
    } while (0)

#define MULTIPLY_READ(type) \
    do { \
        unaligned x[CODED / WIDTH]; \
        vector sums[2] = {{0}, {0}}; \
        read_##type(block, x); \
        _Pragma("GCC unroll 8") \
        for (int j = 0; j < CODED / WIDTH; ++j) sums[j % 2] += (x[j] + shift) * *(const vector *) (row + j * WIDTH); \
        totals[0] += sums[0] * by, totals[1] += sums[1] * by; \
    } while (0)

SCALED_READER(q8_0, all(scale), STORE_READ(q8_0), MULTIPLY_READ(q8_0))

#if defined(__AVX512F__)
/// Adds the products of bytes' halves with numbers of two rows to sums, by what each half may stand for.
static inline void add_halves(const uint8_t * q, vector low, vector high, const float * row, const float * other, vector * sum, vector * other_sum) {
    const integers bytes = numbers_at(q);
    *sum += looked_up(low, bytes) * *(const vector *) row;
    *other_sum += looked_up(high, bytes >> 4) * *(const vector *) other;
}

/// Writes what bytes' halves stand for to two rows.
static inline void store_halves(const uint8_t * q, vector table, float * row, float * other) {
    const integers bytes = numbers_at(q);
    *(unaligned *) row = looked_up(table, bytes);
    *(unaligned *) other = looked_up(table, bytes >> 4);
}

SCALED_READER(q4_0, (four_bits - 8 + shift) * scale, store_halves(block->q, by, row, row + WIDTH),
              add_halves(block->q, by, by, row, row + WIDTH, &totals[0], &totals[1]))
#else
SCALED_READER(q4_0, all(scale), STORE_READ(q4_0), MULTIPLY_READ(q4_0))
#endif
