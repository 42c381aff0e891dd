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
