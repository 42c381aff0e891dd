// Ensembles of decision trees: each row of features goes from the first node of a tree to one of its leaves.
#include "reductions.h"
#include "types.h"

#define GRAPHC_TREE_TOTALS 512  // so many totals are kept at once

// What is known of two numbers: which is larger, that they are equal, or that one of them is NaN.
static inline int graphc_relation_T(V x, V split) {
    const int less = x < split, same = x == split, more = x > split;
    return less | same << 1 | more << 2 | !(less | same | more) << 3;
}

// Sends `count` rows of `features` elements from `root` to a leaf each, a step of all of them after the other, so that none waits
// for memory alone. A node is the relations to its split that mean yes, its feature, and where yes and no lead: to a node, or to a
// leaf as -1 - its number. Returns 1 if that is not there, or if there is no end.
static inline int graphc_leaves_T(const T * restrict rows, int64_t count, int64_t features, const T * restrict splits,
                                  const int32_t * restrict nodes, int64_t node_count, int32_t root, int32_t * restrict places) {
    int32_t going[GRAPHC_TREE_TOTALS];
    for (int64_t i = 0; i < count; i++) {
        places[i] = root;
        going[i] = (int32_t) i;
    }
    int64_t left = root >= 0 ? count : 0;
    for (int64_t steps = 0; left > 0; steps++) {
        if (steps == node_count) return 1;
        int64_t kept = 0;
        for (int64_t k = 0; k < left; k++) {
            const int32_t i = going[k], place = places[i];
            if (place >= node_count) return 1;
            const int32_t * const node = nodes + 4 * place;
            if (node[1] < 0 || node[1] >= features) return 1;
            const int yes = (node[0] & graphc_relation_T(LOAD(rows[i * features + node[1]]), LOAD(splits[place]))) != 0;
            places[i] = node[3 - yes];
            going[kept] = i;
            kept += places[i] >= 0;
        }
        left = kept;
    }
    return 0;
}

// One more weight; a total is NaN as long as there is none, but for a sum.
static inline double graphc_tree_total_T(double total, double weight, int64_t how) {
    if (how == GRAPHC_ADD) return total + weight;
    const bool better = how == GRAPHC_MIN ? weight < total : weight > total;
    return better || isnan(total) ? weight : total;
}

// y[rows][targets]: the weights of the leaves that a row comes to, those of each target as one. `ends` has of each leaf the end of
// its weights, which begin where those of the leaf before it end. Returns 1 where a tree names what is not there.
static inline int graphc_tree_ensemble_T(const T * restrict x, const T * restrict splits, const int32_t * restrict nodes,
                                         const int32_t * restrict roots, const int32_t * restrict ends,
                                         const int32_t * restrict target, const T * restrict weights, T * restrict y,
                                         int64_t rows, int64_t features, int64_t count, int64_t trees, int64_t leaves,
                                         int64_t weight_count, int64_t targets, int64_t how, int ith, int nth) {
    const int64_t end = rows * (ith + 1) / nth, most = GRAPHC_TREE_TOTALS;
    const int64_t together = targets > 0 && targets < most ? most / targets : 1;
    double totals[GRAPHC_TREE_TOTALS];
    int32_t places[GRAPHC_TREE_TOTALS];
    for (int64_t row = rows * ith / nth; row < end; row += together) {
        const int64_t height = end - row < together ? end - row : together;
        for (int64_t column = 0; column < targets; column += most) {
            const int64_t width = targets - column < most ? targets - column : most;
            for (int64_t i = 0; i < height * width; i++) totals[i] = how == GRAPHC_ADD ? 0 : (double) NAN;
            for (int64_t tree = 0; tree < trees; tree++) {
                if (graphc_leaves_T(x + row * features, height, features, splits, nodes, count, roots[tree], places)) return 1;
                for (int64_t i = 0; i < height; i++) {
                    const int64_t leaf = -1 - (int64_t) places[i];
                    if (leaf >= leaves) return 1;
                    for (int64_t k = leaf > 0 ? ends[leaf - 1] : 0; k < ends[leaf]; k++) {
                        if (k < 0 || k >= weight_count || target[k] < 0 || target[k] >= targets) return 1;
                        if (target[k] < column || target[k] >= column + width) continue;
                        double * const total = totals + i * width + target[k] - column;
                        *total = graphc_tree_total_T(*total, (double) LOAD(weights[k]), how);
                    }
                }
            }
            for (int64_t i = 0; i < height * width; i++) {
                const double total = isnan(totals[i]) && how != GRAPHC_ADD ? 0 : totals[i];
                y[(row + i / width) * targets + column + i % width] = STORE((V) total);
            }
        }
    }
    return 0;
}
