// Sums of unit rows over many lists of rows (the rows that carry a label), each cut to its heaviest features.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "kmeans.hpp"
#include "threads.hpp"

namespace blockxmc {

struct SparseRows {
    std::vector<int64_t> indptr{0};
    Large<int32_t> indices;
    Large<float> data;

    void append(const SparseRows &more) {
        for (size_t i = 1; i < more.indptr.size(); ++i) indptr.push_back(more.indptr[i] + static_cast<int64_t>(indices.size()));
        indices.insert(indices.end(), more.indices.begin(), more.indices.end());
        data.insert(data.end(), more.data.begin(), more.data.end());
    }
};

// One worker's sum: dense, with a list of the features that have been touched.
class RowSum {
  public:
    explicit RowSum(int64_t n_features) : sum_(n_features, 0.0f), seen_(n_features, 0) {}

    void add(const CsrView &X, int64_t row, float scale) {
        for (int64_t k = X.indptr[row]; k < X.indptr[row + 1]; ++k) {
            const int32_t f = X.indices[k];
            if (!seen_[f]) {
                seen_[f] = 1;
                touched_.push_back(f);
            }
            sum_[f] += X.data[k] * scale;
        }
    }

    // Appends the `keep` entries of largest magnitude (lower feature first among equals) to `out`, ascending, and clears the sum.
    void flush(int64_t keep, SparseRows &out) {
        for (int32_t f : touched_) seen_[f] = 0;
        if (static_cast<int64_t>(touched_.size()) > keep) {
            const auto heavier = [&](int32_t a, int32_t b) {
                const float x = std::fabs(sum_[a]), y = std::fabs(sum_[b]);
                return x > y || (x == y && a < b);
            };
            std::nth_element(touched_.begin(), touched_.begin() + keep, touched_.end(), heavier);
            for (auto cut = touched_.begin() + keep; cut != touched_.end(); ++cut) sum_[*cut] = 0;
            touched_.resize(keep);
        }
        std::sort(touched_.begin(), touched_.end());
        for (int32_t f : touched_) {
            out.indices.push_back(f);
            out.data.push_back(sum_[f]);
            sum_[f] = 0;
        }
        out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
        touched_.clear();
    }

  private:
    std::vector<float> sum_;
    std::vector<uint8_t> seen_;
    std::vector<int32_t> touched_;
};

// Row l of the result: the sum of the rows of X named in lists[l], each divided by its norm.
inline SparseRows heaviest_sums(const CsrView &X, const CsrView &lists, int64_t keep, int threads, const Watch &watch) {
    constexpr int64_t kChunk = 256;
    std::vector<float> scale(X.n_rows);
    for (int64_t i = 0; i < X.n_rows; ++i) scale[i] = kmeans::inverse_norm(X, i);
    std::vector<SparseRows> parts((lists.n_rows + kChunk - 1) / kChunk);
    std::vector<std::vector<RowSum>> room(worker_count(static_cast<int64_t>(parts.size()), threads));
    parallel_for(static_cast<int64_t>(parts.size()), threads, [&](int64_t chunk, int worker) {
        if (watch.cancelled()) return;
        if (room[worker].empty()) room[worker].emplace_back(X.n_cols);
        RowSum &sum = room[worker][0];
        for (int64_t l = chunk * kChunk; l < std::min((chunk + 1) * kChunk, lists.n_rows); ++l) {
            for (int64_t k = lists.indptr[l]; k < lists.indptr[l + 1]; ++k) sum.add(X, lists.indices[k], scale[lists.indices[k]]);
            sum.flush(keep, parts[chunk]);
        }
        watch.advance(std::min(kChunk, lists.n_rows - chunk * kChunk));
    });
    SparseRows out;
    for (SparseRows &part : parts) {
        out.append(part);
        part = {};
    }
    return out;
}

} // namespace blockxmc
