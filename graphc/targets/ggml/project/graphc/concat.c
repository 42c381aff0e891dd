// Tensors joined along an axis, a row at a time: ggml copies element by element.

#include "products.h"

#include "tiles.h"

#include <string.h>

enum { SHORTEST_ROW = 8 };

bool graphc_takes_concat(const struct ggml_tensor * part) { return is_float_rows(part) && part->ne[0] >= SHORTEST_ROW; }

void graphc_concat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    const int axis = ((const struct graphc_concat_settings *) userdata)->axis;
    int64_t before = 0;
    for (int number = 0; number < GGML_MAX_SRC && dst->src[number] != NULL; ++number) {
        const struct ggml_tensor * part = dst->src[number];
        const int64_t rows = part->ne[1] * part->ne[2] * part->ne[3];
        char * start = (char *) dst->data + before * dst->nb[axis];
        for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; ++row) {
            const int64_t i1 = row % part->ne[1], i2 = row / part->ne[1] % part->ne[2], i3 = row / part->ne[1] / part->ne[2];
            const char * from = (const char *) part->data + i1 * part->nb[1] + i2 * part->nb[2] + i3 * part->nb[3];
            memcpy(start + i1 * dst->nb[1] + i2 * dst->nb[2] + i3 * dst->nb[3], from, part->ne[0] * sizeof(float));
        }
        before += part->ne[axis];
    }
}
