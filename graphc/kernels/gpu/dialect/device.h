// The dialect on NVIDIA's GPUs: what nvcc and clang have in common, with PTX for what C++ has no words for. nvcc.h or clang.h stands
// before it, and defines GRAPHC_GLOBAL(T) and GRAPHC_SHARED(T) (a T in that memory), GRAPHC_COPY, GRAPHC_ARCHITECTURE, places, barriers.
#pragma once

#include "types.h"
#include "functions.h"
#include "functions_double.h"

DEVICE int lane_index() { return thread_index() % 32; }

// ---- Memory

template <int bytes> struct graphc_words;
template <> struct graphc_words<1> {
    typedef uint8_t type;
};
template <> struct graphc_words<2> {
    typedef uint16_t type;
};
template <> struct graphc_words<4> {
    typedef unsigned type;
};
template <> struct graphc_words<8> {
    typedef graphc_pair type;
};
template <> struct graphc_words<16> {
    typedef graphc_quad type;
};
template <class T> struct graphc_same {
    typedef T type;
};

#define GRAPHC_BYTES(bytes)                                                                                         \
    template <class R> DEVICE void load_global_##bytes(R *registers, const void *address) {                         \
        const graphc_words<bytes>::type words = *(const GRAPHC_GLOBAL(graphc_words<bytes>::type) *) address;        \
        GRAPHC_COPY(registers, &words, bytes);                                                                      \
    }                                                                                                               \
    template <class R> DEVICE void store_global_##bytes(void *address, const R *registers) {                        \
        graphc_words<bytes>::type words;                                                                            \
        GRAPHC_COPY(&words, registers, bytes);                                                                      \
        *(GRAPHC_GLOBAL(graphc_words<bytes>::type) *) address = words;                                              \
    }                                                                                                               \
    template <class R> DEVICE void load_shared_##bytes(R *registers, const shared_byte *address) {                  \
        const graphc_words<bytes>::type words = *(const GRAPHC_SHARED(graphc_words<bytes>::type) *) address;        \
        GRAPHC_COPY(registers, &words, bytes);                                                                      \
    }                                                                                                               \
    template <class R> DEVICE void store_shared_##bytes(shared_byte *address, const R *registers) {                 \
        graphc_words<bytes>::type words;                                                                            \
        GRAPHC_COPY(&words, registers, bytes);                                                                      \
        *(GRAPHC_SHARED(graphc_words<bytes>::type) *) address = words;                                              \
    }                                                                                                               \
    template <class R> DEVICE void load_readonly_##bytes(R *registers, const void *address) {                       \
        graphc_words<bytes>::type words;                                                                            \
        GRAPHC_LOAD_##bytes("ld.global.nc.", words, address);                                                       \
        GRAPHC_COPY(registers, &words, bytes);                                                                      \
    }                                                                                                               \
    template <class R> DEVICE void load_streaming_##bytes(R *registers, const void *address) {                      \
        graphc_words<bytes>::type words;                                                                            \
        GRAPHC_LOAD_##bytes("ld.global.cs.nc.", words, address);                                                    \
        GRAPHC_COPY(registers, &words, bytes);                                                                      \
    }                                                                                                               \
    template <class R> DEVICE void store_streaming_##bytes(void *address, const R *registers) {                     \
        graphc_words<bytes>::type words;                                                                            \
        GRAPHC_COPY(&words, registers, bytes);                                                                      \
        GRAPHC_STORE_##bytes("st.global.cs.", address, words);                                                      \
    }
#define GRAPHC_LOAD_1(how, words, from)                                       \
    do {                                                                      \
        uint16_t wide;                                                        \
        asm volatile(how "u8 %0, [%1];" : "=h"(wide) : "l"(from));                     \
        words = (uint8_t) wide;                                               \
    } while (0)
#define GRAPHC_LOAD_2(how, words, from) asm volatile(how "u16 %0, [%1];" : "=h"(words) : "l"(from))
#define GRAPHC_LOAD_4(how, words, from) asm volatile(how "u32 %0, [%1];" : "=r"(words) : "l"(from))
#define GRAPHC_LOAD_8(how, words, from)                                                 \
    do {                                                                                \
        unsigned r0, r1;                                                                \
        asm volatile(how "v2.u32 {%0, %1}, [%2];" : "=r"(r0), "=r"(r1) : "l"(from));             \
        words.x = r0, words.y = r1;                                                     \
    } while (0)
#define GRAPHC_LOAD_16(how, words, from)                                                                              \
    do {                                                                                                              \
        unsigned r0, r1, r2, r3;                                                                                      \
        asm volatile(how "v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "l"(from));               \
        words.x = r0, words.y = r1, words.z = r2, words.w = r3;                                                       \
    } while (0)
#define GRAPHC_STORE_1(how, to, words) asm volatile(how "u8 [%0], %1;" ::"l"(to), "h"((uint16_t) words) : "memory")
#define GRAPHC_STORE_2(how, to, words) asm volatile(how "u16 [%0], %1;" ::"l"(to), "h"(words) : "memory")
#define GRAPHC_STORE_4(how, to, words) asm volatile(how "u32 [%0], %1;" ::"l"(to), "r"(words) : "memory")
#define GRAPHC_STORE_8(how, to, words) asm volatile(how "v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y) : "memory")
#define GRAPHC_STORE_16(how, to, words) \
    asm volatile(how "v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory")
GRAPHC_BYTES(1)
GRAPHC_BYTES(2)
GRAPHC_BYTES(4)
GRAPHC_BYTES(8)
GRAPHC_BYTES(16)
#undef GRAPHC_BYTES

template <class T> DEVICE T load_global(const T *address) { return *(const GRAPHC_GLOBAL(T) *) address; }
template <class T> DEVICE void store_global(T *address, typename graphc_same<T>::type value) { *(GRAPHC_GLOBAL(T) *) address = value; }
template <class T> DEVICE T load_shared(const shared_byte *address) { return *(const GRAPHC_SHARED(T) *) address; }
template <class T> DEVICE void store_shared(shared_byte *address, T value) { *(GRAPHC_SHARED(T) *) address = value; }

DEVICE void atomic_add_global(float *address, float value) { asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory"); }
DEVICE unsigned atomic_add_global(unsigned *address, unsigned value) {
    unsigned before;
    asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
    return before;
}
DEVICE void discard_global(void *line) {
#if GRAPHC_ARCHITECTURE >= 80
    asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
#endif
}
DEVICE void await_kernels_before() {
#if GRAPHC_ARCHITECTURE >= 90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void device_fence() { asm volatile("membar.gl;" ::: "memory"); }

// ---- Asynchronous copies

#if GRAPHC_ARCHITECTURE >= 80
#define GRAPHC_COPY_ASYNC(bytes, cache)                                                                                            \
    DEVICE void copy_async_##bytes(shared_byte *to, const void *from, bool valid) {                                                \
        asm volatile("cp.async." cache ".shared.global [%0], [%1], " #bytes ", %2;" ::"r"(graphc_shared_address(to)), "l"(from),  \
                     "r"(valid ? bytes : 0) : "memory");                                                                           \
    }
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }
#else
#define GRAPHC_COPY_ASYNC(bytes, cache)                                                \
    DEVICE void copy_async_##bytes(shared_byte *to, const void *from, bool valid) {    \
        unsigned words[bytes / 4];                                                     \
        for (int i = 0; i < bytes / 4; i++) words[i] = 0;                              \
        if (valid) load_global_##bytes(words, from);                                   \
        store_shared_##bytes(to, words);                                               \
    }
DEVICE void copy_commit() {}
template <int groups> DEVICE void copy_wait() {}
#endif
GRAPHC_COPY_ASYNC(16, "cg")
GRAPHC_COPY_ASYNC(8, "ca")
GRAPHC_COPY_ASYNC(4, "ca")
#undef GRAPHC_COPY_ASYNC

// ---- Shuffles and votes

#define GRAPHC_SHUFFLE(name, instruction, last)                                                                                  \
    DEVICE unsigned name(unsigned value, int by) {                                                                               \
        unsigned other;                                                                                                          \
        asm volatile("shfl.sync." instruction ".b32 %0, %1, %2, " last ", 0xffffffff;" : "=r"(other) : "r"(value), "r"(by));     \
        return other;                                                                                                            \
    }                                                                                                                            \
    DEVICE float name(float value, int by) { return float_of(name(bits_of(value), by)); }                                        \
    DEVICE int name(int value, int by) { return (int) name((unsigned) value, by); }
GRAPHC_SHUFFLE(shuffle_xor, "bfly", "31")
GRAPHC_SHUFFLE(shuffle_down, "down", "31")
GRAPHC_SHUFFLE(shuffle_up, "up", "0")
GRAPHC_SHUFFLE(shuffle, "idx", "31")
#undef GRAPHC_SHUFFLE

// As the first lane says: so the assembler sees that it is one number for a warp, and has it where operands of products are named.
DEVICE int warp_index() { return shuffle(thread_index() / 32, 0); }

DEVICE unsigned ballot(bool vote) {
    unsigned votes;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(votes) : "r"((unsigned) vote));
    return votes;
}
DEVICE bool vote_any(bool vote) { return ballot(vote) != 0; }
DEVICE bool vote_all(bool vote) { return ballot(vote) == 0xffffffffu; }

// ---- Conversions and fast functions

DEVICE float to_float(half_t number) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(number.bits));
    return result;
}
DEVICE half_t to_half(float number) {
    half_t result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(number));
    return result;
}
#if GRAPHC_ARCHITECTURE >= 80
DEVICE bfloat16_t to_bfloat16(float number) {
    bfloat16_t result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(number));
    return result;
}
DEVICE unsigned pack_half(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE unsigned pack_bfloat16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE unsigned to_tf32(float number) {
    unsigned result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(number));
    return result;
}
DEVICE float maximum(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
DEVICE float minimum(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
#else
DEVICE float maximum(float a, float b) { return graphc_maximum(a, b); }
DEVICE float minimum(float a, float b) { return graphc_minimum(a, b); }
DEVICE bfloat16_t to_bfloat16(float number) { return graphc_rounded_bfloat16(number); }
DEVICE unsigned pack_half(float low, float high) { return pack(to_half(low), to_half(high)); }
DEVICE unsigned pack_bfloat16(float low, float high) { return pack(to_bfloat16(low), to_bfloat16(high)); }
#endif
DEVICE float half_low(unsigned pair) { return to_float(half_t{(uint16_t) pair}); }
DEVICE float half_high(unsigned pair) { return to_float(half_t{(uint16_t) (pair >> 16)}); }

DEVICE int dot_bytes(int a, int b, int c) {
    int sum;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

#define GRAPHC_FAST(name, instruction)                                  \
    DEVICE float name(float x) {                                        \
        float result;                                                   \
        asm(instruction " %0, %1;" : "=f"(result) : "f"(x));            \
        return result;                                                  \
    }
GRAPHC_FAST(fast_exp2, "ex2.approx.ftz.f32")
GRAPHC_FAST(fast_log2, "lg2.approx.ftz.f32")
GRAPHC_FAST(fast_tanh, "tanh.approx.f32")
GRAPHC_FAST(fast_reciprocal, "rcp.approx.ftz.f32")
GRAPHC_FAST(fast_reciprocal_sqrt, "rsqrt.approx.ftz.f32")
#undef GRAPHC_FAST
DEVICE float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }

#include "matrices.h"
#if GRAPHC_ARCHITECTURE == 90
#include "wgmma.h"
#endif
#include "tf32.h"
