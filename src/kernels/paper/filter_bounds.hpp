// Label filters, training: the intervals of all labels, exact for a given direction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.hpp"
#include "filters.hpp"
#include "threads.hpp"

namespace blockxmc {

// The largest minimiser over l of   own * sum_o (1 - o + l)_+  +  sum_f weight_f (1 - l + f)_+.
// own_at(o) and foreign_at(f) are ascending; there is at least one own row; `right` is the sum of all weights. Ties and
// flat stretches are decided exactly because the weights are whole numbers and `own` is compared, never accumulated.
template <typename Own, typename Foreign, typename Weight>
float best_lower(double own, int64_t n_own, Own own_at, int64_t n_foreign, Foreign foreign_at, Weight weight,
                 int64_t right) {
    for (int64_t o = 0, f = 0;;) {
        const bool take_own = o < n_own && (f == n_foreign || own_at(o) - 1 <= foreign_at(f) + 1);
        const float here = take_own ? own_at(o) - 1 : foreign_at(f) + 1;
        if (take_own) ++o;
        else right -= weight(f++); // no longer pulls l up
        if (own * static_cast<double>(o) > static_cast<double>(right)) return here;
    }
}

struct BoundsCount {
    int64_t before = 0, after = 0; // foreign pairs not yet filtered, before and after this filter
};

// Optimal [lower, upper] of every label for the projections of this filter. Foreign rows are those listed in
// `sample`; `own` is the weight of an own row relative to a sampled foreign one. Labels without rows: empty interval.
class BoundsSolver {
  public:
    BoundsSolver(const CsrView &y, const CsrView &rows_of_label, const EarlierFilters &earlier, const float *projection,
                 std::vector<int64_t> sample, double own)
        : rows_of_label_(rows_of_label), earlier_(earlier), projection_(projection), own_(own),
          n_sample_(static_cast<int64_t>(sample.size())), place_(y.n_rows, -1) {
        std::stable_sort(sample.begin(), sample.end(), [&](int64_t a, int64_t b) { return projection[a] < projection[b]; });
        LabelOrder order;
        order.update(y, projection);
        by_rank_.resize(y.n_cols);
        for (int64_t c = 0; c < y.n_cols; ++c) by_rank_[order.rank[c]] = static_cast<int32_t>(c);
        rank_ = std::move(order.rank);
        earlier_at_.resize(earlier.n_filters * n_sample_);
        for (int64_t s = 0; s < n_sample_; ++s) {
            const int64_t i = sample[s];
            place_[i] = static_cast<int32_t>(s);
            at_.push_back(projection[i]);
            for (int64_t f = 0; f < earlier.n_filters; ++f)
                earlier_at_[f * n_sample_ + s] = earlier.projections[f * earlier.n_rows + i];
            for (int64_t e = y.indptr[i]; e < y.indptr[i + 1]; ++e) row_ranks_.push_back(rank_[y.indices[e]]);
            row_ptr_.push_back(static_cast<int64_t>(row_ranks_.size()));
        }
    }

    // Labels are taken in the order of the line, a stretch at a time: the number of a row's labels on the left of the
    // current one is then kept up to date by adding, where counting it anew would cost every label of every row.
    BoundsCount run(float *lower, float *upper, int n_threads, const Watch &watch) const {
        constexpr int64_t kStretch = 64;
        const auto n_labels = static_cast<int64_t>(by_rank_.size());
        const int64_t n_stretches = (n_labels + kStretch - 1) / kStretch;
        std::vector<Scratch> scratch(worker_count(n_stretches, n_threads));
        std::vector<BoundsCount> counts(n_labels);
        parallel_for(n_stretches, n_threads, [&](int64_t stretch, int worker) {
            const int64_t first = stretch * kStretch, last = std::min(n_labels, first + kStretch);
            count_left(first, scratch[worker]);
            for (int64_t r = first; r < last && !watch.cancelled(); ++r) {
                const int32_t c = by_rank_[r];
                counts[c] = solve(c, scratch[worker], lower[c], upper[c]);
                watch.advance();
            }
        });
        BoundsCount total;
        for (const auto &one : counts) total.before += one.before, total.after += one.after;
        return total;
    }

  private:
    struct Scratch {
        std::vector<int32_t> n_left;       // per sampled row: its labels left of the current one
        std::vector<uint8_t> is_foreign;   // per sampled row
        std::vector<float> own_at, foreign_at;
        std::vector<int32_t> left, right; // of the foreign rows
    };
    CsrView rows_of_label_;
    EarlierFilters earlier_;
    const float *projection_;
    double own_;
    int64_t n_sample_;
    // Sampled rows, ascending in projection: where each row stands (-1: not sampled), projections, ranks of its labels.
    std::vector<int32_t> place_;
    std::vector<float> at_, earlier_at_;
    std::vector<int64_t> row_ptr_{0};
    std::vector<int32_t> row_ranks_;
    std::vector<int32_t> rank_, by_rank_; // of the labels on the line

    void count_left(int64_t rank, Scratch &s) const {
        s.n_left.assign(n_sample_, 0);
        for (int64_t i = 0; i < n_sample_; ++i)
            for (int64_t e = row_ptr_[i]; e < row_ptr_[i + 1]; ++e) s.n_left[i] += row_ranks_[e] < rank;
    }

    BoundsCount solve(int32_t c, Scratch &s, float &lower, float &upper) const {
        lower = std::numeric_limits<float>::infinity();
        upper = -lower;
        const int32_t *own = rows_of_label_.indices + rows_of_label_.indptr[c];
        const int64_t n_own = rows_of_label_.row_size(c);
        if (!n_own) return {};
        s.own_at.clear();
        for (int64_t e = 0; e < n_own; ++e) s.own_at.push_back(projection_[own[e]]);
        std::sort(s.own_at.begin(), s.own_at.end());
        mark_foreign(c, own, n_own, s.is_foreign);
        s.foreign_at.resize(n_sample_);
        s.left.resize(n_sample_);
        s.right.resize(n_sample_);
        int64_t n_foreign = 0, left = 0, right = 0;
        for (int64_t i = 0; i < n_sample_; ++i) { // without a branch: a row that is not foreign is written over
            s.foreign_at[n_foreign] = at_[i];
            s.left[n_foreign] = s.n_left[i];
            s.right[n_foreign] = static_cast<int32_t>(row_ptr_[i + 1] - row_ptr_[i]) - s.n_left[i];
            left += s.is_foreign[i] ? s.left[n_foreign] : 0;
            right += s.is_foreign[i] ? s.right[n_foreign] : 0;
            n_foreign += s.is_foreign[i];
        }
        for (int64_t e = 0; e < n_own; ++e)
            if (place_[own[e]] >= 0) ++s.n_left[place_[own[e]]]; // this label lies left of the next
        lower = best_lower(own_, n_own, [&](int64_t o) { return s.own_at[o]; }, n_foreign,
                           [&](int64_t f) { return s.foreign_at[f]; }, [&](int64_t f) { return s.left[f]; }, left);
        // The upper bound is the lower bound of the mirrored line.
        upper = -best_lower(own_, n_own, [&](int64_t o) { return -s.own_at[n_own - 1 - o]; }, n_foreign,
                            [&](int64_t f) { return -s.foreign_at[n_foreign - 1 - f]; },
                            [&](int64_t f) { return s.right[n_foreign - 1 - f]; }, right);
        BoundsCount count{n_foreign, 0};
        for (int64_t f = 0; f < n_foreign; ++f) count.after += lower < s.foreign_at[f] && s.foreign_at[f] <= upper;
        return count;
    }

    // Foreign: without the label, and let through by the earlier filters.
    void mark_foreign(int32_t c, const int32_t *own, int64_t n_own, std::vector<uint8_t> &is_foreign) const {
        is_foreign.assign(n_sample_, 1);
        for (int64_t f = 0; f < earlier_.n_filters; ++f) {
            const float low = earlier_.lower[f * earlier_.n_labels + c], high = earlier_.upper[f * earlier_.n_labels + c];
            const float *p = earlier_at_.data() + f * n_sample_;
            for (int64_t i = 0; i < n_sample_; ++i) is_foreign[i] &= static_cast<uint8_t>((low < p[i]) & (p[i] <= high));
        }
        for (int64_t e = 0; e < n_own; ++e)
            if (place_[own[e]] >= 0) is_foreign[place_[own[e]]] = 0;
    }
};

} // namespace blockxmc
