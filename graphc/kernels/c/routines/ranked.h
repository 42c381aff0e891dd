// Sorting of places by 64-bit keys.
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Up to as many are sorted by insertion.
#define GRAPHC_FEW 40

struct graphc_ranked {
    uint64_t key;
    int64_t place;
};

// A key of numbers: zeros are alike, NaN is the last.
static inline uint64_t graphc_float_key(double x) {
    if (x != x) return UINT64_MAX;
    x += 0.0;  // -0 becomes 0
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits >> 63 ? ~bits : bits | (uint64_t) 1 << 63;
}

static inline void graphc_insertion_sort(struct graphc_ranked * items, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        const struct graphc_ranked item = items[i];
        int64_t k = i;
        for (; k > 0 && items[k - 1].key > item.key; k--) items[k] = items[k - 1];
        items[k] = item;
    }
}

// Sorts by key, by one byte of it after the other; equal keys keep their order. `room` is for as many items.
static inline void graphc_sort_ranked(struct graphc_ranked * items, struct graphc_ranked * room, int64_t count) {
    if (count <= GRAPHC_FEW) {
        graphc_insertion_sort(items, count);
        return;
    }
    uint64_t differing = 0;
    for (int64_t i = 1; i < count; i++) differing |= items[i].key ^ items[0].key;
    struct graphc_ranked * from = items, * to = room;
    for (int shift = 0; shift < 64; shift += 8) {
        if ((differing >> shift & 255) == 0) continue;
        int64_t ends[257] = {0};
        for (int64_t i = 0; i < count; i++) ends[(from[i].key >> shift & 255) + 1]++;
        for (int byte = 0; byte < 256; byte++) ends[byte + 1] += ends[byte];
        for (int64_t i = 0; i < count; i++) to[ends[from[i].key >> shift & 255]++] = from[i];
        struct graphc_ranked * const other = from;
        from = to, to = other;
    }
    if (from != items) memcpy(items, from, (size_t) count * sizeof(*items));
}

// True if an item comes behind another: equal ones are in the order of their places.
static inline bool graphc_is_behind(struct graphc_ranked a, struct graphc_ranked b) {
    return a.key > b.key || (a.key == b.key && a.place > b.place);
}

// Has an item of a heap, whose first one is behind all others, sink to where none below it is behind it.
static inline void graphc_sink(struct graphc_ranked * heap, int64_t size, int64_t at) {
    const struct graphc_ranked item = heap[at];
    for (int64_t below; (below = 2 * at + 1) < size; at = below) {
        if (below + 1 < size && graphc_is_behind(heap[below + 1], heap[below])) below++;
        if (!graphc_is_behind(heap[below], item)) break;
        heap[at] = heap[below];
    }
    heap[at] = item;
}

// Has the `count` first items stand in order before the others.
static inline void graphc_sort_first(struct graphc_ranked * items, int64_t size, int64_t count) {
    for (int64_t at = count / 2; at-- > 0;) graphc_sink(items, count, at);
    for (int64_t i = count; i < size; i++) {
        if (!graphc_is_behind(items[0], items[i])) continue;
        items[0] = items[i];
        graphc_sink(items, count, 0);
    }
    for (int64_t left = count; left-- > 1;) {
        const struct graphc_ranked last = items[0];
        items[0] = items[left], items[left] = last;
        graphc_sink(items, left, 0);
    }
}
