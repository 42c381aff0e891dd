// Bytes by a table.
#include "types.h"
#include "lookup.h"

// y = table[x - least], of so many bytes.
static inline void graphc_byte_table_T(const T * restrict x, const I * restrict table, I * restrict y, int64_t count, int ith, int nth) {
    const uint8_t turned = (T) -1 < 0 ? 0x80 : 0;
    int64_t i = count * ith / nth;
    const int64_t end = count * (ith + 1) / nth;
#if defined(GRAPHC_LOOKS_UP_VECTORS)
    struct graphc_tables tables;
    if (end - i >= 256) {
        graphc_tables_of((const uint8_t *) table, &tables);
        for (; i + GRAPHC_LOOKED_UP <= end; i += GRAPHC_LOOKED_UP) graphc_look_up(&tables, (const uint8_t *) x + i, turned, (uint8_t *) y + i);
    }
#endif
#pragma GCC unroll 8
    for (; i < end; i++) y[i] = table[(uint8_t) x[i] ^ turned];
}
