// Threads that other programs hold up at any place, for `runner_fuzz.c`: before each look at what threads share, sometimes for long.

#include <stdint.h>
#include <time.h>

static void held_up(void) {
    static __thread uint32_t state;
    if (state == 0) state = (uint32_t) (uintptr_t) &state >> 4 | 1;
    state = state * 1664525u + 1013904223u;
    const uint32_t chance = state >> 16 & 4095;
    const struct timespec moment = {0, chance == 0 ? 1000000 : chance < 4 ? 50000 : 0};
    if (moment.tv_nsec > 0) nanosleep(&moment, NULL);
}

#define __atomic_load_n(place, order) (held_up(), __atomic_load_n(place, order))
#define __atomic_compare_exchange_n(place, before, ...) (held_up(), __atomic_compare_exchange_n(place, before, __VA_ARGS__))
