// What speaks for some labels of each row, beside their margins: the blocks that list them, and whether they are right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

constexpr int64_t candidate_rows_at_a_time = 16;

// out (rows x few): the summed weights of the visited blocks (rows x width, -1: none) that list each label; a negative label
// has none. `blocks_of` has the blocks of each label.
inline void listed_weights(const CsrView &blocks_of, int64_t n_rows, const int32_t *visited, const float *weights, int64_t width,
                           const int64_t *labels, int64_t few, float *out, int threads) {
    const int64_t n_items = (n_rows + candidate_rows_at_a_time - 1) / candidate_rows_at_a_time;
    std::vector<std::vector<float>> of_worker(worker_count(n_items, threads));
    parallel_for(n_items, threads, [&](int64_t item, int worker) {
        std::vector<float> &weight = of_worker[worker];
        weight.resize(blocks_of.n_cols, 0.0f);
        for (int64_t i = item * candidate_rows_at_a_time; i < std::min((item + 1) * candidate_rows_at_a_time, n_rows); ++i) {
            for (int64_t v = i * width; v < (i + 1) * width; ++v)
                if (visited[v] >= 0) weight[visited[v]] = weights[v];
            for (int64_t j = i * few; j < (i + 1) * few; ++j) {
                double sum = 0;
                if (labels[j] >= 0)
                    for (int64_t e = blocks_of.indptr[labels[j]]; e < blocks_of.indptr[labels[j] + 1]; ++e)
                        sum += weight[blocks_of.indices[e]];
                out[j] = static_cast<float>(sum);
            }
            for (int64_t v = i * width; v < (i + 1) * width; ++v)
                if (visited[v] >= 0) weight[visited[v]] = 0;
        }
    });
}

// out (rows x few): whether a row has each label; the labels of a row ascend.
inline void has_labels(const CsrView &of_rows, const int64_t *labels, int64_t few, uint8_t *out, int threads) {
    const int64_t n_items = (of_rows.n_rows + candidate_rows_at_a_time - 1) / candidate_rows_at_a_time;
    parallel_for(n_items, threads, [&](int64_t item, int) {
        for (int64_t i = item * candidate_rows_at_a_time; i < std::min((item + 1) * candidate_rows_at_a_time, of_rows.n_rows); ++i) {
            const int32_t *begin = of_rows.indices + of_rows.indptr[i], *end = of_rows.indices + of_rows.indptr[i + 1];
            for (int64_t j = i * few; j < (i + 1) * few; ++j)
                out[j] = labels[j] >= 0 && std::binary_search(begin, end, labels[j]);
        }
    });
}

} // namespace blockxmc
