// Bytes by a table.
#include "types.h"

// y = table[x - least], of so many bytes.
static inline void graphc_byte_table_T(const T * restrict x, const I * restrict table, I * restrict y, int64_t count, int ith, int nth) {
    const uint8_t turned = (T) -1 < 0 ? 0x80 : 0;
#pragma GCC unroll 8
    for (int64_t i = count * ith / nth; i < count * (ith + 1) / nth; i++) y[i] = table[(uint8_t) x[i] ^ turned];
}
