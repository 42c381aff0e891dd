// What is known of graphs that came before.

#include "recordings.h"

#include <stdlib.h>
#include <string.h>

static void forget(struct gpu_known * known, struct gpu_unit * unit) {
    if (known->recording != NULL) unit->host->calls->recording_free(unit->open, known->recording);
    free(known->key);
    memset(known, 0, sizeof *known);
}

static bool is_of(const struct gpu_known * known, const struct gpu_plan * plan) {
    return known->key_size == plan->key_size && memcmp(known->key, plan->key, plan->key_size) == 0;
}

/// A place for one more: that of the least recently used one if there is no other.
static struct gpu_known * place_for(struct gpu_recordings * all, struct gpu_unit * unit) {
    if (all->count < GPU_MOST_RECORDINGS) return &all->known[all->count++];
    struct gpu_known * oldest = &all->known[0];
    for (int i = 1; i < all->count; i++) {
        if (all->known[i].used < oldest->used) oldest = &all->known[i];
    }
    forget(oldest, unit);
    return oldest;
}

struct gpu_known * gpu_recordings_find(struct gpu_recordings * all, struct gpu_unit * unit, const struct gpu_plan * plan) {
    all->uses++;
    for (int i = 0; i < all->count; i++) {
        if (!is_of(&all->known[i], plan)) continue;
        all->known[i].used = all->uses;
        return &all->known[i];
    }
    uint8_t * key = (uint8_t *) malloc(plan->key_size);
    if (key == NULL) return NULL;
    memcpy(key, plan->key, plan->key_size);
    *place_for(all, unit) = (struct gpu_known) {GPU_SEEN, NULL, plan->key_size, key, all->uses};
    return NULL;
}

void gpu_recordings_free(struct gpu_recordings * all, struct gpu_unit * unit) {
    while (all->count > 0) forget(&all->known[--all->count], unit);
}
