// From a router's margins to the blocks that rows visit, for one row and for many.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "largest.hpp"
#include "predict.hpp"
#include "predict_batch.hpp"

namespace blockxmc {

// How routed rows visit a scorer: the router's best b labels are the blocks, and with a slope each has the weight
// exp(-max(0, 1 - margin)^2), its probability under a squared hinge router.
//
// A scorer with one block more than the router knows keeps the frequent labels in it. Every row visits this block first, for
// its scores, at the smallest weight there is: only the blocks that list a frequent label add to its weight.
//
// A row visits the best blocks that together reach a share of `top_p` of the probability of all b; the others are -1.
struct Routing {
    const PackedModel &router, &model;
    int64_t b;
    float slope, top_p;
    const Neighbors *neighbors = nullptr; // their rows are in the blocks of the model
    const Reranker *reranker = nullptr;
    AllowedLabels allowed = {};

    bool frequent() const { return model.n_blocks > router.n_labels; }
    int64_t width() const { return b + frequent(); }
    Visits visits(const int32_t *blocks, const float *weights, const Nearest *nearest = nullptr) const {
        const bool weighed = slope != 0 || frequent() || nearest || reranker;
        return {blocks, width(), weighed ? weights : nullptr, slope, frequent(), nearest, reranker, allowed};
    }

    void fill(const int64_t *best, const float *margins, int32_t *blocks, float *weights) const {
        constexpr float least = std::numeric_limits<float>::min();
        if (frequent()) {
            *blocks++ = static_cast<int32_t>(router.n_labels);
            *weights++ = least;
        }
        float total = 0;
        for (int64_t j = 0; j < b; ++j) {
            const float short_of = std::max(0.0f, 1.0f - margins[j]);
            blocks[j] = static_cast<int32_t>(best[j]);
            weights[j] = std::max(std::exp(-short_of * short_of), 2 * least); // more than the block of the frequent labels
            total += weights[j];
        }
        if (top_p >= 1) return;
        float visited = 0;
        for (int64_t j = 0; j < b; visited += weights[j++])
            if (j > 0 && visited >= top_p * total) blocks[j] = -1;
    }
};

// Best k labels of one row, router included.
inline void routed_one(const Routing &routing, const RowView &x, int64_t k, Scratch &scratch, int64_t *labels, float *scores) {
    scratch.routed.resize(routing.b);
    scratch.routed_scores.resize(routing.b);
    scratch.blocks.resize(routing.width());
    scratch.block_weights.resize(routing.width());
    topk_one(routing.router, x, {nullptr, 0}, routing.b, scratch, scratch.routed.data(), scratch.routed_scores.data());
    routing.fill(scratch.routed.data(), scratch.routed_scores.data(), scratch.blocks.data(), scratch.block_weights.data());
    Nearest nearest{};
    if (const Neighbors *neighbors = routing.neighbors) {
        scratch.nearest.resize(neighbors->count);
        scratch.similarity.resize(neighbors->count);
        topk_one(*neighbors->rows, scratch.largest.of(x, neighbors->features), {scratch.blocks.data(), routing.width()},
                 neighbors->count, scratch, scratch.nearest.data(), scratch.similarity.data());
        nearest = {neighbors, scratch.nearest.data(), scratch.similarity.data(), neighbors->count};
    }
    const Visits visits =
        routing.visits(scratch.blocks.data(), scratch.block_weights.data(), routing.neighbors ? &nearest : nullptr);
    topk_one(routing.model, x, visits, k, scratch, labels, scores);
}

// ---- many rows ----
// Blocks that routed rows visit, and their weights: (rows, width) each.
struct Visited {
    std::vector<int32_t> blocks;
    std::vector<float> weights;
};

inline Visited visit(const Routing &routing, const CsrView &X, int threads) {
    std::vector<int64_t> best(X.n_rows * routing.b);
    std::vector<float> margins(X.n_rows * routing.b);
    topk_batch(routing.router, X, {nullptr, 0}, routing.b, threads, best.data(), margins.data());
    const int64_t width = routing.width();
    Visited out{std::vector<int32_t>(X.n_rows * width), std::vector<float>(X.n_rows * width)};
    constexpr int64_t rows_per_item = 1024;
    parallel_for((X.n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t item, int) {
        for (int64_t i = item * rows_per_item; i < std::min((item + 1) * rows_per_item, X.n_rows); ++i)
            routing.fill(best.data() + i * routing.b, margins.data() + i * routing.b, out.blocks.data() + i * width,
                         out.weights.data() + i * width);
    });
    return out;
}

// Rows in the order of the block that the router likes best: what one row needs is in cache for the next.
inline std::vector<int64_t> by_best_block(const Routing &routing, const Visited &visited, int64_t n_rows) {
    const int32_t *best = visited.blocks.data() + routing.frequent();
    std::vector<int64_t> order(n_rows), next(routing.model.n_blocks + 2, 0); // one place more for rows without any block, -1
    for (int64_t i = 0; i < n_rows; ++i) ++next[best[i * routing.width()] + 2];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (int64_t i = 0; i < n_rows; ++i) order[next[best[i * routing.width()] + 1]++] = i;
    return order;
}

// Many routed rows: the blocks they visit, and their neighbors.
class RoutedRows {
  public:
    RoutedRows(const Routing &routing, const CsrView &X, int threads)
        : visited_(visit(routing, X, threads)), order_(by_best_block(routing, visited_, X.n_rows)) {
        if (const Neighbors *neighbors = routing.neighbors) {
            const int64_t count = neighbors->count;
            rows_.resize(X.n_rows * count);
            similarity_.resize(X.n_rows * count);
            const LargestOfRows largest(X, neighbors->features, threads);
            Visits visits{visited_.blocks.data(), routing.width()};
            visits.order = order_.data();
            topk_batch(*neighbors->rows, largest.view(X.n_cols), visits, count, threads, rows_.data(), similarity_.data());
            nearest_ = {neighbors, rows_.data(), similarity_.data(), count};
        }
        visits = routing.visits(visited_.blocks.data(), visited_.weights.data(), routing.neighbors ? &nearest_ : nullptr);
        visits.order = order_.data();
    }
    RoutedRows(const RoutedRows &) = delete;

    Visits visits{};

  private:
    Visited visited_;
    std::vector<int64_t> order_;
    std::vector<int64_t> rows_;
    std::vector<float> similarity_;
    Nearest nearest_{};
};

} // namespace blockxmc
