// Where weights lie. Valid as C and as C++.

#include "residence.h"

#include <stdio.h>
#include <stdlib.h>

/// Bytes that a device is taken to have which does not say.
#define UNKNOWN_MEMORY ((size_t) -1 >> 14)

struct held_weight {
    size_t size;
    bool rows, stays, streamed;
    int device;
};

struct holder {
    char name[64];
    size_t limit, results, slot;
};

struct graphc_residence {
    struct held_weight * weights, ** order, ** together;  // by their numbers; as they are read; those of each call, and NULL behind them
    struct holder holders[GRAPHC_MOST_DEVICES];
    size_t read, told, least;  // `least`: what the weights of the device that is too small need
    int devices, tight;        // `tight`: that device, or -1
    bool spill, bounded;
    char text[512];
};

struct graphc_residence * graphc_residence_new(size_t weights, bool spill) {
    struct graphc_residence * r = (struct graphc_residence *) calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->spill = spill, r->tight = -1;
    r->weights = (struct held_weight *) calloc(weights + 1, sizeof *r->weights);
    r->order = (struct held_weight **) calloc(weights + 1, sizeof *r->order);
    if (r->weights == NULL || r->order == NULL) {
        graphc_residence_free(r);
        return NULL;
    }
    for (size_t i = 0; i < weights; ++i) r->weights[i].device = GRAPHC_ON_HOST;
    return r;
}

void graphc_residence_free(struct graphc_residence * r) {
    if (r == NULL) return;
    free(r->weights);
    free(r->order);
    free(r->together);
    free(r);
}

void graphc_residence_device(struct graphc_residence * r, const char * name, size_t limit, size_t free) {
    struct holder * made = &r->holders[r->devices++];
    snprintf(made->name, sizeof made->name, "%s", name);
    made->limit = limit != 0 ? limit : free != 0 ? free - free / 16 : UNKNOWN_MEMORY;
    r->bounded = r->bounded || limit != 0;
}

bool graphc_residence_weight(struct graphc_residence * r, size_t index, size_t size, bool rows, bool stays) {
    struct held_weight * made = r->order[r->read++] = &r->weights[index];
    made->size = size, made->rows = rows, made->stays = stays;
    return graphc_residence_together(r, &index, 1);
}

bool graphc_residence_together(struct graphc_residence * r, const size_t * indices, size_t count) {
    struct held_weight ** together = (struct held_weight **) realloc(r->together, sizeof *together * (r->told + count + 1));
    if (together == NULL) return false;
    for (size_t i = 0; i < count; ++i) together[r->told++] = &r->weights[indices[i]];
    together[r->told++] = NULL;
    r->together = together;
    return true;
}

/// The bytes that a device has for weights.
static double room_on(const struct holder * holder) { return (double) holder->limit - (double) holder->results; }

/// Thinks of a device for each weight. Each gets a share of them in proportion to its room, in order; with `spill` no more than there is
/// room for. True if they fill more than half of the room.
static bool guess(struct graphc_residence * r) {
    double left[GRAPHC_MOST_DEVICES], ends[GRAPHC_MOST_DEVICES], room = 0, space = 0, all = 0, shared = 0, passed = 0;
    for (int d = 0; d < r->devices; ++d) {
        const double own = room_on(&r->holders[d]);
        left[d] = own > 0 ? own : 0;
        room += own, space += left[d];
    }
    for (int d = 0; space == 0 && d < r->devices; ++d) left[d] = r->spill ? 0 : 1;
    if (space == 0) space = r->devices;
    for (size_t i = 0; i < r->read; ++i) all += r->order[i]->stays ? 0 : (double) r->order[i]->size;
    for (size_t i = 0; i < r->read; ++i) {
        struct held_weight * each = r->order[i];
        each->stays = each->stays || (each->rows && all > room);
        shared += each->stays ? 0 : (double) each->size;
    }
    const double scale = shared < space || !r->spill ? shared / space : 1;
    for (int d = 0; d < r->devices; ++d) ends[d] = (d == 0 ? 0 : ends[d - 1]) + left[d] * scale;
    for (size_t i = 0; i < r->read; ++i) {
        struct held_weight * each = r->order[i];
        each->device = GRAPHC_ON_HOST, each->streamed = false;
        if (each->stays) continue;
        const double size = (double) each->size;
        int d = 0;
        while (d < r->devices - 1 && ends[d] < passed + size / 2) ++d;
        passed += size;
        if (r->spill && size > left[d]) continue;
        left[d] -= size, each->device = d;
    }
    return 2 * all > room;
}

bool graphc_residence_bounded(struct graphc_residence * r) {
    const bool tight = guess(r);
    return r->bounded = r->bounded || tight;
}

/// The weights of a device that are streamed, or that are not: their bytes.
static double bytes_on(const struct graphc_residence * r, int device, bool streamed) {
    double sum = 0;
    for (size_t i = 0; i < r->read; ++i) {
        if (r->order[i]->device == device && r->order[i]->streamed == streamed) sum += (double) r->order[i]->size;
    }
    return sum;
}

/// Bytes that hold what any call reads of the weights that are streamed to a device.
static size_t slot_size(const struct graphc_residence * r, int device) {
    size_t largest = 0, sum = 0;
    for (size_t i = 0; i < r->told; ++i) {
        const struct held_weight * each = r->together[i];
        sum = each == NULL ? 0 : sum + (each->device == device && each->streamed ? each->size : 0);
        if (sum > largest) largest = sum;
    }
    return largest;
}

/// The weight that is streamed to a device with the fewest bytes; NULL if none is.
static struct held_weight * smallest_streamed(const struct graphc_residence * r, int device) {
    struct held_weight * found = NULL;
    for (size_t i = 0; i < r->read; ++i) {
        struct held_weight * each = r->order[i];
        if (each->device == device && each->streamed && (found == NULL || each->size < found->size)) found = each;
    }
    return found;
}

/// Streams as few bytes as a device's room allows, the largest weights first. False if it has too little.
static bool stream(struct graphc_residence * r, int device) {
    struct holder * holder = &r->holders[device];
    const bool fits = bytes_on(r, device, false) + bytes_on(r, device, true) <= room_on(holder);
    for (size_t i = 0; i < r->read; ++i) {
        if (r->order[i]->device == device) r->order[i]->streamed = !fits;
    }
    r->least = GRAPHC_SLOTS * slot_size(r, device);
    double left = room_on(holder) - (double) r->least;
    if (r->least != 0 && left < 0) return false;
    for (struct held_weight * each; (each = smallest_streamed(r, device)) != NULL && (double) each->size <= left;) {
        left -= (double) each->size;
        each->streamed = false;
    }
    holder->slot = slot_size(r, device);
    return true;
}

bool graphc_residence_fits(struct graphc_residence * r, const size_t * results, const size_t * displaced, size_t count) {
    bool moved = false;
    for (int d = 0; d < r->devices; ++d) {
        struct holder * holder = &r->holders[d];
        if (results[d] > holder->results) holder->results = results[d], moved = true;
    }
    for (size_t i = 0; i < count; ++i) {
        struct held_weight * each = &r->weights[displaced[i]];
        if (!each->stays) each->stays = moved = true;
    }
    r->tight = -1;
    if (moved) guess(r);
    for (int d = 0; !moved && r->tight < 0 && d < r->devices; ++d) {
        if (!stream(r, d)) r->tight = d;
    }
    return !moved && r->tight < 0;
}

static double mib(double bytes) { return bytes / (1 << 20); }

const char * graphc_residence_problem(struct graphc_residence * r) {
    if (r->tight < 0) return NULL;
    const struct holder * holder = &r->holders[r->tight];
    const double results = (double) holder->results, least = (double) r->least;
    snprintf(r->text, sizeof r->text,
             "%s may use %.1f MiB, and these sizes need %.1f MiB there at least: %.1f MiB for intermediate results, and twice the %.1f MiB of "
             "weights that one step reads",
             holder->name, mib((double) holder->limit), mib(results + least), mib(results), mib(least / (double) GRAPHC_SLOTS));
    return r->text;
}

const char * graphc_residence_text(struct graphc_residence * r, int device) {
    const double own = bytes_on(r, device, false), streamed = bytes_on(r, device, true);
    if (device == GRAPHC_ON_HOST) {
        snprintf(r->text, sizeof r->text, "CPU: weights %.1f MiB", mib(own));
        return own > 0 ? r->text : "";
    }
    const struct holder * holder = &r->holders[device];
    char through[96] = "", results[96] = "";
    if (streamed > 0) snprintf(through, sizeof through, ", %.1f MiB streamed through 2 x %.1f MiB", mib(streamed), mib((double) holder->slot));
    if (r->bounded && own + streamed > 0) snprintf(results, sizeof results, ", intermediate results %.1f MiB", mib((double) holder->results));
    snprintf(r->text, sizeof r->text, "%s: weights %.1f MiB%s%s", holder->name, mib(own), through, results);
    return r->text;
}

int graphc_residence_of(const struct graphc_residence * r, size_t index) { return r->weights[index].device; }
bool graphc_residence_streamed(const struct graphc_residence * r, size_t index) { return r->weights[index].streamed; }
size_t graphc_residence_slot(const struct graphc_residence * r, int device) { return r->holders[device].slot; }
