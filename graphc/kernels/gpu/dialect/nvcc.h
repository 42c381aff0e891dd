// The dialect for CUDA's nvcc. Compile with -std=c++17 -fmad=false.
#pragma once

#include <math.h>
#include <stdint.h>

#define KERNEL(name, threads, blocks_per_multiprocessor, ...) \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_multiprocessor) name(__VA_ARGS__)
#define DEVICE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

#ifdef __CUDA_ARCH__
#define GRAPHC_ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define GRAPHC_ARCHITECTURE 80  // the pass for the host, whose result is not used
#endif
#define GRAPHC_GLOBAL(T) T
#define GRAPHC_SHARED(T) T
#define GRAPHC_COPY memcpy

typedef unsigned char shared_byte;
typedef uint2 graphc_pair;
typedef uint4 graphc_quad;

extern __shared__ __align__(1024) unsigned char graphc_dynamic[];
DEVICE shared_byte *shared_memory() { return graphc_dynamic; }
DEVICE unsigned graphc_shared_address(const shared_byte *address) { return (unsigned) __cvta_generic_to_shared(address); }

DEVICE int thread_index() { return (int) threadIdx.x; }
DEVICE unsigned block_index_x() { return blockIdx.x; }
DEVICE unsigned block_index_y() { return blockIdx.y; }
DEVICE unsigned block_index_z() { return blockIdx.z; }
DEVICE unsigned grid_size_x() { return gridDim.x; }
DEVICE unsigned grid_size_y() { return gridDim.y; }
DEVICE unsigned grid_size_z() { return gridDim.z; }
DEVICE void barrier() { __syncthreads(); }
DEVICE void warp_barrier() { __syncwarp(); }

#define ballot graphc_ballot  // CUDA has one of its own, which newer architectures refuse

#include "device.h"
