// How the emulator's compiled kernels are called: plain C, for whoever loads the library (emulate.py, the stand-in for libcuda).
//
// A kernel NAME is exported as `graphc_emulate_NAME`, which runs it, and `graphc_kernel_NAME`, which describes it.
#pragma once

#include <stdint.h>

enum { EMULATOR_MOST_PARAMETERS = 64, EMULATOR_MESSAGE = 512 };

// What a kernel is. A parameter's value has as many bytes as `parameter_bytes` says.
struct EmulatorKernel {
    const char *name;
    uint32_t threads;
    uint32_t blocks_per_multiprocessor;
    uint32_t parameter_count;
    uint32_t parameter_bytes[EMULATOR_MOST_PARAMETERS];
};

// Global memory that the kernel may touch. Around it should be room that is in no buffer, for what is read past an end to be seen.
struct EmulatorBuffer {
    void *start;
    uint64_t bytes;
    const char *name;  // in messages; may be null
};

struct EmulatorLaunch {
    uint32_t grid[3];  // blocks
    uint32_t threads;  // of a block; 0: as many as the kernel has
    uint64_t shared_bytes;
    uint64_t seed;            // of the order in which blocks, warps and lanes run
    uint32_t workers;         // threads of the CPU; 0: one
    uint32_t argument_count;  // as many as there are parameters
    void *const *arguments;   // the address of each argument's value
    uint64_t buffer_count;
    const struct EmulatorBuffer *buffers;
};

// What the kernel did. A request is one instruction of a warp; a wavefront is what shared memory serves at once.
struct EmulatorCounters {
    uint64_t blocks;
    uint64_t barriers;                // of blocks
    uint64_t mma;                     // instructions of warps
    uint64_t load_matrix_wavefronts;  // 8 rows of 16 bytes each, if there is no conflict
    uint64_t load_matrix_conflicts;   // wavefronts more than needed
    uint64_t shared_requests;         // loads, stores and what asynchronous copies write
    uint64_t shared_wavefronts;
    uint64_t shared_conflicts;      // wavefronts more than needed
    uint64_t global_load_requests;  // asynchronous copies are among them
    uint64_t global_load_sectors;   // of 32 bytes
    uint64_t global_load_bytes;
    uint64_t global_store_requests;
    uint64_t global_store_sectors;
    uint64_t global_store_bytes;
    uint64_t global_wide_bytes;  // of both, in accesses of 16 bytes a lane
    uint64_t atomics;            // of lanes
};

struct EmulatorReport {
    struct EmulatorCounters counters;
    char error[EMULATOR_MESSAGE];  // what the kernel did wrong first; empty if nothing
};

// Returns 0, or 1 with the report's error. After an error what the kernel wrote is of no use.
typedef int (*EmulatorEntry)(const struct EmulatorLaunch *launch, struct EmulatorReport *report);
