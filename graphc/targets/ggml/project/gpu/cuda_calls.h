// The functions of CUDA's driver interface that are used, as libcuda exports them (names and types: cuda.h of CUDA 11.4 to 13.0).
// A handle is a pointer, an address of memory 64 bits, a result or a device an int.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define CUDA_CALL __stdcall
#else
#define CUDA_CALL
#endif

typedef uint64_t cuda_address;

/// X(name here, name there, parameters): what every driver has.
#define CUDA_CALLS(X)                                                                                                        \
    X(Init, cuInit, (unsigned flags))                                                                                        \
    X(GetErrorName, cuGetErrorName, (int, const char **))                                                                    \
    X(GetErrorString, cuGetErrorString, (int, const char **))                                                                \
    X(DeviceGetCount, cuDeviceGetCount, (int *))                                                                             \
    X(DeviceGet, cuDeviceGet, (int * device, int index))                                                                     \
    X(DeviceGetName, cuDeviceGetName, (char *, int size, int device))                                                        \
    X(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *, int size, int device))                                                \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *, int attribute, int device))                                          \
    X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int device))                                                           \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void ** context, int device))                                       \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device))                                                   \
    X(CtxPushCurrent, cuCtxPushCurrent_v2, (void * context))                                                                 \
    X(CtxPopCurrent, cuCtxPopCurrent_v2, (void ** context))                                                                  \
    X(CtxSynchronize, cuCtxSynchronize, (void))                                                                              \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t * free, size_t * total))                                                          \
    X(MemAlloc, cuMemAlloc_v2, (cuda_address *, size_t))                                                                     \
    X(MemFree, cuMemFree_v2, (cuda_address))                                                                                 \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (cuda_address, const void *, size_t, void * stream))                            \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, cuda_address, size_t, void * stream))                                  \
    X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (cuda_address to, cuda_address from, size_t, void * stream))                    \
    X(MemcpyPeerAsync, cuMemcpyPeerAsync,                                                                                    \
      (cuda_address to, void * to_context, cuda_address from, void * from_context, size_t, void * stream))                   \
    X(MemsetD8Async, cuMemsetD8Async, (cuda_address, unsigned char, size_t, void * stream))                                  \
    X(StreamCreate, cuStreamCreate, (void ** stream, unsigned flags))                                                        \
    X(StreamDestroy, cuStreamDestroy_v2, (void * stream))                                                                    \
    X(StreamSynchronize, cuStreamSynchronize, (void * stream))                                                               \
    X(StreamWaitEvent, cuStreamWaitEvent, (void * stream, void * event, unsigned flags))                                     \
    X(EventCreate, cuEventCreate, (void ** event, unsigned flags))                                                           \
    X(EventDestroy, cuEventDestroy_v2, (void * event))                                                                       \
    X(EventRecord, cuEventRecord, (void * event, void * stream))                                                             \
    X(EventSynchronize, cuEventSynchronize, (void * event))                                                                  \
    X(EventElapsedTime, cuEventElapsedTime, (float * milliseconds, void * begin, void * end))                                \
    X(ModuleLoadDataEx, cuModuleLoadDataEx, (void ** module, const void * image, unsigned count, int * options, void ** values)) \
    X(ModuleUnload, cuModuleUnload, (void * module))                                                                         \
    X(ModuleGetFunction, cuModuleGetFunction, (void ** function, void * module, const char * name))                          \
    X(FuncSetAttribute, cuFuncSetAttribute, (void * function, int attribute, int value))                                     \
    X(LaunchKernel, cuLaunchKernel,                                                                                          \
      (void * function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads_x, unsigned threads_y,           \
       unsigned threads_z, unsigned shared, void * stream, void ** arguments, void ** more))

/// What recording needs; without it, nothing is recorded.
#define CUDA_GRAPH_CALLS(X)                                                                                                  \
    X(StreamBeginCapture, cuStreamBeginCapture_v2, (void * stream, int mode))                                                \
    X(StreamEndCapture, cuStreamEndCapture, (void * stream, void ** graph))                                                  \
    X(GraphInstantiate, cuGraphInstantiateWithFlags, (void ** executable, void * graph, unsigned long long flags))           \
    X(GraphLaunch, cuGraphLaunch, (void * executable, void * stream))                                                        \
    X(GraphDestroy, cuGraphDestroy, (void * graph))                                                                          \
    X(GraphExecDestroy, cuGraphExecDestroy, (void * executable))

/// What lets a kernel begin while the one before it ends; without it, each begins when the one before has ended.
#define CUDA_EARLY_CALLS(X)                                                                                                  \
    X(FuncGetAttribute, cuFuncGetAttribute, (int *, int attribute, void * function))                                         \
    X(LaunchKernelEx, cuLaunchKernelEx,                                                                                      \
      (const struct cuda_launch *, void * function, void ** arguments, void ** more))

/// An attribute of a launch: its number, 4 bytes of nothing, and 64 bytes for its value.
struct cuda_launch_attribute {
    int number, padding, value[16];
};

/// A launch: how many blocks along x, y and z, and threads of a block, bytes of shared memory, the stream, and attributes.
struct cuda_launch {
    unsigned grid[3], threads[3], shared;
    void * stream;
    struct cuda_launch_attribute * attributes;
    unsigned attribute_count;
};

struct cuda_library {
#define CUDA_FIELD(name, there, parameters) int(CUDA_CALL * name) parameters;
    CUDA_CALLS(CUDA_FIELD)
    CUDA_GRAPH_CALLS(CUDA_FIELD)
    CUDA_EARLY_CALLS(CUDA_FIELD)
#undef CUDA_FIELD
};

/// Numbers of cuda.h.
enum {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
    CUDA_JIT_ERROR_LOG = 5,
    CUDA_JIT_ERROR_LOG_SIZE = 6,
    CUDA_FUNCTION_PTX_ARCHITECTURE = 5,
    CUDA_LAUNCH_EARLY = 6,
    CUDA_FUNCTION_MAX_SHARED = 8,
    CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    CUDA_ATTRIBUTE_INTEGRATED = 18,
    CUDA_ATTRIBUTE_CACHE = 38,
    CUDA_ATTRIBUTE_THREADS = 39,
    CUDA_ATTRIBUTE_MAJOR = 75,
    CUDA_ATTRIBUTE_MINOR = 76,
    CUDA_ATTRIBUTE_REGISTERS = 82,
    CUDA_ATTRIBUTE_SHARED = 97,
};
