// Graphs that come again as they were: recorded when they come for the second time, replayed from then on. One that always comes
// otherwise (another token, other sizes) costs nothing but its key.
#pragma once

#include "plan.h"

enum { GPU_MOST_RECORDINGS = 64 };

enum gpu_recorded {
    GPU_SEEN,     // once
    GPU_READY,    // there is a recording
    GPU_REFUSED,  // the driver could not record it; it is launched
};

struct gpu_known {
    enum gpu_recorded state;
    struct gpu_recording * recording;
    size_t key_size;
    uint8_t * key;
    int64_t used;  // when, of all uses
};

struct gpu_recordings {
    int count;
    struct gpu_known known[GPU_MOST_RECORDINGS];
    int64_t uses, recorded, replayed;
};

/// What is known of a plan, which is SEEN now if nothing was; NULL then, and where there is no memory to know it.
struct gpu_known * gpu_recordings_find(struct gpu_recordings * all, struct gpu_unit * unit, const struct gpu_plan * plan);

void gpu_recordings_free(struct gpu_recordings * all, struct gpu_unit * unit);
