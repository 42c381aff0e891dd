// The dialect for clang's NVPTX target without CUDA's toolkit: CUDA as a language, and no header of anybody's.
// Compile with `-cc1 -x cuda -fcuda-is-device -ffp-contract=off`, and with GRAPHC_ARCHITECTURE defined (80 for sm_80).
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define KERNEL(name, threads, blocks_per_multiprocessor, ...) \
    extern "C" __attribute__((global)) __attribute__((launch_bounds(threads, blocks_per_multiprocessor))) void name(__VA_ARGS__)
#define DEVICE static inline __attribute__((device, always_inline))
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")

#define GRAPHC_GLOBAL(T) __attribute__((address_space(1))) T
#define GRAPHC_SHARED(T) __attribute__((address_space(3))) T
#define GRAPHC_COPY __builtin_memcpy

typedef GRAPHC_SHARED(unsigned char) shared_byte;
typedef unsigned graphc_pair __attribute__((ext_vector_type(2)));
typedef unsigned graphc_quad __attribute__((ext_vector_type(4)));

extern __attribute__((shared, aligned(1024))) unsigned char graphc_dynamic[];
DEVICE shared_byte *shared_memory() { return (shared_byte *) graphc_dynamic; }
DEVICE unsigned graphc_shared_address(const shared_byte *address) { return (unsigned) (uint64_t) address; }

DEVICE int thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE unsigned block_index_x() { return (unsigned) __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE unsigned block_index_y() { return (unsigned) __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE unsigned block_index_z() { return (unsigned) __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE unsigned grid_size_x() { return (unsigned) __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE unsigned grid_size_y() { return (unsigned) __nvvm_read_ptx_sreg_nctaid_y(); }
DEVICE unsigned grid_size_z() { return (unsigned) __nvvm_read_ptx_sreg_nctaid_z(); }
DEVICE void barrier() { __nvvm_bar_sync(0); }
DEVICE void warp_barrier() { __nvvm_bar_warp_sync(0xffffffffu); }

// Each of these is one instruction.
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float sqrtf(float x) { return __builtin_sqrtf(x); }
DEVICE float fabsf(float x) { return __builtin_fabsf(x); }
DEVICE float floorf(float x) { return __builtin_floorf(x); }
DEVICE float ceilf(float x) { return __builtin_ceilf(x); }
DEVICE float truncf(float x) { return __builtin_truncf(x); }
DEVICE float rintf(float x) { return __builtin_rintf(x); }
DEVICE float copysignf(float x, float sign) { return __builtin_copysignf(x, sign); }
DEVICE float roundf(float x) { return fabsf(x) < 0x1p23f ? copysignf(floorf(fabsf(x)) + (fabsf(x) - floorf(fabsf(x)) >= 0.5f ? 1.0f : 0.0f), x) : x; }
DEVICE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fminf(float a, float b) { return __builtin_fminf(a, b); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
DEVICE double fabs(double x) { return __builtin_fabs(x); }
DEVICE double floor(double x) { return __builtin_floor(x); }
DEVICE double ceil(double x) { return __builtin_ceil(x); }
DEVICE double trunc(double x) { return __builtin_trunc(x); }
DEVICE double rint(double x) { return __builtin_rint(x); }
DEVICE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
DEVICE double fmax(double a, double b) { return __builtin_fmax(a, b); }
DEVICE double fmin(double a, double b) { return __builtin_fmin(a, b); }

#include "device.h"
