// Labels that learn from new rows without all of the old ones: what their weights w should change by.
//
// Where w solves min 1/2 |w|^2 + C sum loss over the old rows, their gradient is zero, and with some rows more the change v
// is nearly the solution of min 1/2 |v|^2 + C sum over old rows (x.v)^2 + C sum over new rows loss(s (w.x + v.x)): old rows
// hold their products. A few of them, which count for all, say well enough how much they hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "local_svm.hpp"
#include "newton.hpp"
#include "row_lists.hpp"
#include "threads.hpp"

namespace blockxmc {

// Rows of each label, what the product of each is to be (+1 or -1 and beyond; 0: the row holds), what it is now (0 where the
// row holds), and what the row counts.
struct Lessons {
    RowLists rows;
    const float *signs, *products, *costs;
};

class Shift {
  public:
    Shift(const CsrView &x, float bias, double C, double tol, float prune) : rows_{x, bias}, C_(C), tol_(tol), prune_(prune) {}

    // The weights of each label, `old` and `old_bias` changed by its lessons; small ones are left out.
    SparseWeights learn(const CsrView &old, std::span<const float> old_bias, const Lessons &lessons, int n_threads, const Watch &watch) {
        const int64_t n_labels = old.n_rows, n_items = (n_labels + kLabels - 1) / kLabels;
        std::vector<std::vector<Weight>> found(n_labels);
        std::vector<std::unique_ptr<LocalSvm>> solvers(worker_count(n_items, n_threads));
        SparseWeights out;
        out.bias.assign(old_bias.begin(), old_bias.end());
        parallel_for(n_items, n_threads, [&](int64_t item, int worker) {
            if (watch.cancelled()) return;
            if (!solvers[worker]) solvers[worker] = std::make_unique<LocalSvm>(rows_);
            const int64_t end = std::min((item + 1) * kLabels, n_labels);
            for (int64_t j = item * kLabels; j < end; ++j) out.bias[j] += learn(j, old, lessons, *solvers[worker], found[j]);
            watch.advance(end - item * kLabels);
        });
        out.indptr.assign(n_labels + 1, 0);
        for (int64_t j = 0; j < n_labels; ++j) out.indptr[j + 1] = out.indptr[j] + static_cast<int64_t>(found[j].size());
        for (const std::vector<Weight> &weights : found)
            for (const Weight &w : weights) {
                out.indices.push_back(w.feature);
                out.data.push_back(w.value);
            }
        return out;
    }

  private:
    static constexpr int64_t kLabels = 16; // per work item
    static constexpr int kSteps = 4;
    static constexpr int64_t kAhead = 4; // rows: they lie far apart in memory

    // Fills the weights of a label; returns the change of its bias.
    float learn(int64_t j, const CsrView &old, const Lessons &lessons, LocalSvm &solver, std::vector<Weight> &out) const {
        const int64_t begin = lessons.rows.indptr[j], end = lessons.rows.indptr[j + 1];
        solver.clear();
        for (int64_t k = begin; k < end; ++k) {
            if (k + kAhead < end) expect_row(rows_.x, lessons.rows.indices[k + kAhead]);
            solver.add_row(lessons.rows.indices[k], lessons.signs[k], lessons.costs[k]);
        }
        const double gradient = solver.gradient_of_change(C_, {lessons.products + begin, lessons.products + end});
        solver.solve(C_, gradient, tol_ * gradient, kSteps);
        return merge(j, old, solver, out);
    }

    // The old weights and their change, those that are not small: few of all features, so that only these are sorted.
    float merge(int64_t j, const CsrView &old, LocalSvm &solver, std::vector<Weight> &out) const {
        const std::span<const int32_t> features = solver.features();
        std::vector<float> &weights = solver.weights();
        const auto keep = [&](int32_t feature, float value) {
            if (value != 0 && std::fabs(value) >= prune_) out.push_back({feature, value});
        };
        for (int64_t k = old.indptr[j]; k < old.indptr[j + 1]; ++k) {
            if (const int32_t at = solver.number_of(old.indices[k]); at >= 0) weights[at] += old.data[k];
            else keep(old.indices[k], old.data[k]);
        }
        float bias = 0;
        for (size_t f = 0; f < features.size(); ++f) {
            if (features[f] == rows_.x.n_cols) bias = weights[f] * rows_.bias;
            else keep(features[f], weights[f]);
        }
        std::ranges::sort(out, {}, &Weight::feature);
        out.shrink_to_fit();
        return bias;
    }

    const Rows rows_;
    const double C_, tol_;
    const float prune_;
};

} // namespace blockxmc
