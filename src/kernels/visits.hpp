// Which blocks each row visits, and what comes with the visit: weights, neighbors, a reranker.
#pragma once

#include <cstdint>

#include "allowed.hpp"
#include "csr.hpp"
#include "neighbors.hpp"
#include "reranker.hpp"

namespace blockxmc {

// Visited blocks of each row (n x width, -1 pads); nullptr: every row visits every block.
// Where weights are given (n x width, positive), a label's score gains slope * log(sum of the weights of the visited blocks
// that list it); all blocks must then give a label the same score. Without weights a label keeps its highest score.
// With `frequent`, every row visits the last block of the model, and visits it first: it scores the frequent labels, which
// other blocks only list. With `nearest`, labels of each row's neighbors gain a bonus; with `reranker`, the best labels are
// reordered. Both need weights.
// With `allowed`, labels that it denies are no candidates: answers are those of a model in which no block lists them.
struct Visits {
    const int32_t *blocks;
    int64_t width;
    const float *weights = nullptr;
    float slope = 0;
    bool frequent = false;
    const Nearest *nearest = nullptr;
    const Reranker *reranker = nullptr;
    AllowedLabels allowed = {};
    const int64_t *order = nullptr; // in which many rows are taken; nullptr: as they come

    int64_t row(int64_t place) const { return order ? order[place] : place; }

    const Bonuses *bonuses(int64_t i, const RowView &x, Bonuses &of_row) const {
        if (nearest) nearest->collect(i, x, of_row);
        return nearest ? &of_row : nullptr;
    }

    // Of the blocks that row i visits.
    float total_weight(int64_t i) const {
        float sum = 0;
        for (int64_t j = i * width; j < (i + 1) * width; ++j) sum += blocks[j] < 0 ? 0.0f : weights[j];
        return sum;
    }
};

} // namespace blockxmc
