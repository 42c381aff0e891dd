// Boxes that are detected several times. A box is its lower corner and its upper one.
#include <stdbool.h>
#include <stdint.h>

static inline float graphc_side(float low, float high) {
    return high > low ? high - low : 0;
}

// True if two boxes share more than `most` of the area that they cover together.
static inline bool graphc_overlap(const float * a, const float * b, float most) {
    const float height = graphc_side(a[0] > b[0] ? a[0] : b[0], a[2] < b[2] ? a[2] : b[2]);
    const float width = graphc_side(a[1] > b[1] ? a[1] : b[1], a[3] < b[3] ? a[3] : b[3]);
    const float shared = height * width;
    const float first = (a[2] - a[0]) * (a[3] - a[1]), second = (b[2] - b[0]) * (b[3] - b[1]);
    return shared > most * (first + second - shared);
}

// For each batch and class the numbers of up to `most` of `count` boxes, then -1: in their `order` those that score more than
// `least` and overlap with none before by more than `overlap`. Returns 1 if the order names a box that is not there.
static inline int graphc_best_boxes(const float * boxes, const float * scores, const int64_t * order,
                                    const float * overlap, const float * least, int64_t * y, int64_t batches,
                                    int64_t classes, int64_t count, int64_t most, int ith, int nth) {
    const int64_t first = batches * classes * ith / nth, end = batches * classes * (ith + 1) / nth;
    for (int64_t lane = first; lane < end; lane++) {
        const float * const corners = boxes + lane / classes * count * 4;
        int64_t * const kept = y + lane * most;
        int64_t found = 0;
        for (int64_t i = 0; i < count && found < most; i++) {
            const int64_t box = order[lane * count + i];
            if (box < 0 || box >= count) return 1;
            bool fits = scores[lane * count + box] > *least;
            for (int64_t k = 0; k < found && fits; k++) {
                fits = !graphc_overlap(corners + 4 * box, corners + 4 * kept[k], *overlap);
            }
            if (fits) kept[found++] = box;
        }
        while (found < most) kept[found++] = -1;
    }
    return 0;
}
