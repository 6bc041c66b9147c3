// Prediction with trees of linear nodes: the leaf of a row in every tree, and the mean of the leaves' label vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "topk.hpp"
#include "threads.hpp"

namespace blockxmc {

// Borrowed arrays of all trees in a row; see Tree in fastxml.hpp. `roots` are node ids.
struct ForestView {
    const int32_t *roots, *children;
    const int64_t *feature_ptr, *label_ptr;
    const int32_t *features, *labels;
    const float *weights, *bias, *label_scores;
    int64_t n_trees, n_nodes, n_features, n_labels;
};

// Scratch of one thread: a row spread over all features, label sums, and the labels touched.
struct ForestScratch {
    std::vector<float> row;
    std::vector<float> sums;
    std::vector<int32_t> touched;

    explicit ForestScratch(const ForestView &f) : row(f.n_features, 0.0f), sums(f.n_labels, 0.0f) {}
};

inline void reach_leaves(const ForestView &f, const int32_t *indices, const float *values, int64_t nnz,
                         ForestScratch &scratch, int32_t *leaves) {
    for (int64_t e = 0; e < nnz; ++e) scratch.row[indices[e]] = values[e];
    for (int64_t t = 0; t < f.n_trees; ++t) {
        int32_t node = f.roots[t];
        while (f.children[2 * node] >= 0) {
            double z = f.bias[node];
            for (int64_t e = f.feature_ptr[node]; e < f.feature_ptr[node + 1]; ++e)
                z += static_cast<double>(f.weights[e]) * scratch.row[f.features[e]];
            node = f.children[2 * node + (z >= 0)];
        }
        leaves[t] = node;
    }
    for (int64_t e = 0; e < nnz; ++e) scratch.row[indices[e]] = 0;
}

// Mean of the leaf vectors over the trees, as (score, label) in order of first touch.
inline void average_leaves(const ForestView &f, const int32_t *leaves, ForestScratch &scratch,
                           std::vector<Scored> &out) {
    scratch.touched.clear();
    for (int64_t t = 0; t < f.n_trees; ++t)
        for (int64_t e = f.label_ptr[leaves[t]]; e < f.label_ptr[leaves[t] + 1]; ++e) {
            float &sum = scratch.sums[f.labels[e]];
            if (sum == 0) scratch.touched.push_back(f.labels[e]); // leaf scores are positive
            sum += f.label_scores[e];
        }
    out.clear();
    for (int32_t j : scratch.touched) {
        out.push_back({scratch.sums[j] / static_cast<float>(f.n_trees), j});
        scratch.sums[j] = 0;
    }
}

// Calls use(row, scratch, leaves of the row) for every row, in chunks of rows over threads.
template <typename Use>
void for_each_row(const ForestView &f, const CsrView &x, int n_threads, Use &&use) {
    constexpr int64_t kChunk = 64;
    const int64_t n_items = (x.n_rows + kChunk - 1) / kChunk;
    std::vector<ForestScratch> scratch;
    for (int w = 0; w < worker_count(n_items, n_threads); ++w) scratch.emplace_back(f);
    parallel_for(n_items, n_threads, [&](int64_t chunk, int worker) {
        std::vector<int32_t> leaves(f.n_trees);
        for (int64_t i = chunk * kChunk; i < std::min(x.n_rows, (chunk + 1) * kChunk); ++i) {
            const int64_t start = x.indptr[i];
            reach_leaves(f, x.indices + start, x.data + start, x.row_size(i), scratch[worker], leaves.data());
            use(i, scratch[worker], leaves);
        }
    });
}

} // namespace blockxmc
