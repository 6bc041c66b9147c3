// Many labels through dual coordinate descent at once: sixteen side by side per thread, one sweep searches for all.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.hpp"
#include "dual_cd.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace blockxmc {

constexpr int kCdLanes = 16;

// Scores of one row for sixteen labels whose weights lie side by side: out += sum_e x_e W[column_e].
BLOCKXMC_CLONES inline void cd_lane_scores(const float *x, const int32_t *columns, int64_t size, const float *W,
                                              float *out) {
    float sum[kCdLanes];
    for (int l = 0; l < kCdLanes; ++l) sum[l] = out[l];
    for (int64_t e = 0; e < size; ++e) {
        const float *w = W + static_cast<int64_t>(columns[e]) * kCdLanes;
        for (int l = 0; l < kCdLanes; ++l) sum[l] += x[e] * w[l];
    }
    for (int l = 0; l < kCdLanes; ++l) out[l] = sum[l];
}

// One thread's share: up to sixteen labels at work, each in its own lane. A lane never looks at another, so which labels
// happen to sit together has no effect on the result; a label that is done makes room for the next.
class CdWorker {
  public:
    CdWorker(const CdRows &rows, CsrView positives, const CsrView *subsets, const CdOptions &options)
        : rows_(rows), positives_(positives), subsets_(subsets), options_(options),
          solvers_(subsets ? 1 : kCdLanes, DualCd(rows, options)), label_(solvers_.size(), -1),
          rounds_(solvers_.size(), 0), W_(subsets ? 0 : rows.original.size() * kCdLanes, 0.0f) {}

    void run(std::atomic<int64_t> &next, std::vector<CdLabel> &results, const Watch &watch) {
        while (fill(next) && !watch.cancelled()) {
            for_lanes([&](size_t lane) {
                solvers_[lane].solve(watch);
                solvers_[lane].begin_search();
            });
            if (subsets_) {
                solvers_[0].offer_subset();
            } else {
                search();
            }
            for_lanes([&](size_t lane) {
                const bool done = solvers_[lane].admit();
                if (++rounds_[lane] < options_.max_rounds && !done) return;
                results[label_[lane]] = solvers_[lane].finish(done);
                results[label_[lane]].rounds = rounds_[lane];
                label_[lane] = -1;
                watch.advance();
            });
        }
    }

  private:
    template <typename Body>
    void for_lanes(Body &&body) {
        for (size_t lane = 0; lane < label_.size(); ++lane)
            if (label_[lane] >= 0) body(lane);
    }

    // Gives every idle lane a label; false when all are idle and no label is left.
    bool fill(std::atomic<int64_t> &next) {
        bool busy = false;
        for (size_t lane = 0; lane < label_.size(); ++lane) {
            if (label_[lane] < 0) {
                const int64_t label = next.fetch_add(1);
                if (label >= positives_.n_rows) continue;
                label_[lane] = label;
                rounds_[lane] = 0;
                const int32_t *subset = subsets_ ? subsets_->indices + subsets_->indptr[label] : nullptr;
                solvers_[lane].begin(positives_.indices + positives_.indptr[label], positives_.row_size(label), subset,
                                     subsets_ ? subsets_->row_size(label) : 0, label);
            }
            busy = true;
        }
        return busy;
    }

    // Every row, by the weights of all lanes at once.
    void search() {
        std::array<float, kCdLanes> start;
        start.fill(-std::numeric_limits<float>::infinity());
        for_lanes([&](size_t lane) {
            start[lane] = static_cast<float>(solvers_[lane].bias_score());
            solvers_[lane].for_weights([&](int32_t f, float w) { W_[int64_t(f) * kCdLanes + lane] = w; });
        });
        const auto limit = static_cast<float>(options_.tol - 1);
        for (int64_t row = 0; row < rows_.n_rows; ++row) {
            std::array<float, kCdLanes> score = start;
            const int64_t first = rows_.indptr[row];
            cd_lane_scores(rows_.values + first, rows_.columns.data() + first, rows_.indptr[row + 1] - first, W_.data(),
                           score.data());
            for (size_t lane = 0; lane < label_.size(); ++lane)
                if (score[lane] > limit) solvers_[lane].offer(static_cast<int32_t>(row), score[lane]);
        }
        for_lanes([&](size_t lane) {
            solvers_[lane].for_weights([&](int32_t f, float) { W_[int64_t(f) * kCdLanes + lane] = 0; });
        });
    }

    const CdRows &rows_;
    const CsrView positives_;
    const CsrView *subsets_;
    const CdOptions options_;
    std::vector<DualCd> solvers_;
    std::vector<int64_t> label_, rounds_; // per lane; label -1: idle
    std::vector<float> W_;                 // features x lanes
};

// positives and subsets: labels x rows. Each label has its own random stream.
inline std::vector<CdLabel> dual_cd(CsrView X, CsrView positives, const CsrView *subsets, const CdOptions &options,
                                    int n_threads, const Watch &watch) {
    const CdRows rows(X, options.bias);
    std::vector<CdLabel> results(positives.n_rows);
    std::atomic<int64_t> next{0};
    const int workers = worker_count(positives.n_rows, n_threads);
    parallel_for(workers, workers, [&](int64_t, int) {
        CdWorker(rows, positives, subsets, options).run(next, results, watch);
    });
    return results;
}

} // namespace blockxmc
