// Label filters, training: a direction w and, per label, an interval on the line such that rows that carry the label
// project into it and as many other rows as possible do not.
//
// Objective of one filter, with the hinge h(a) = max(0, 1 - a), the projection p_i = w.x_i, and labels ordered on the
// line by the mean projection of their rows:
//     decay/2 |w|^2 + sum_i { own * sum_{c in y_i} [h(p_i - l_c) + h(u_c - p_i)]
//                           + sum_{c not in y_i, not yet filtered for i} [a_ic h(l_c - p_i) + b_ic h(p_i - u_c)] }
// where a_ic and b_ic count the labels of row i that lie left and right of c.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "random.hpp"
#include "threads.hpp"

namespace blockxmc {

// Intervals and row projections of the filters trained so far (filter-major).
struct EarlierFilters {
    const float *lower, *upper; // n_filters x m
    const float *projections;    // n_filters x n
    int64_t n_filters, n_labels, n_rows;

    // The pair still has to be separated: no earlier filter has removed the label for this row.
    bool keeps(int64_t row, int64_t label) const {
        for (int64_t f = 0; f < n_filters; ++f) {
            const float p = projections[f * n_rows + row];
            if (!(lower[f * n_labels + label] < p && p <= upper[f * n_labels + label])) return false;
        }
        return true;
    }
};

// Where the labels stand on the line: mean projection of their rows, and the order it implies.
struct LabelOrder {
    std::vector<double> mean;
    std::vector<int32_t> rank; // ties to the lower label id; labels without rows come last
    std::vector<int64_t> counts;

    void update(const CsrView &y, const float *projection) {
        mean.assign(y.n_cols, 0.0);
        counts.assign(y.n_cols, 0);
        for (int64_t i = 0; i < y.n_rows; ++i)
            for (int64_t e = y.indptr[i]; e < y.indptr[i + 1]; ++e) {
                mean[y.indices[e]] += projection[i];
                ++counts[y.indices[e]];
            }
        std::vector<int32_t> order(y.n_cols);
        std::iota(order.begin(), order.end(), 0);
        for (int64_t c = 0; c < y.n_cols; ++c)
            mean[c] = counts[c] ? mean[c] / static_cast<double>(counts[c]) : std::numeric_limits<double>::infinity();
        std::sort(order.begin(), order.end(),
                  [&](int32_t a, int32_t b) { return mean[a] < mean[b] || (mean[a] == mean[b] && a < b); });
        rank.resize(y.n_cols);
        for (int64_t r = 0; r < y.n_cols; ++r) rank[order[r]] = static_cast<int32_t>(r);
    }
};

inline double project_row(const CsrView &x, int64_t row, const double *w) {
    double p = 0;
    for (int64_t e = x.indptr[row]; e < x.indptr[row + 1]; ++e) p += x.data[e] * w[x.indices[e]];
    return p;
}

// ---- the direction: averaged stochastic gradient with a step that never jumps over the row's own optimum ----

struct DirectionOptions {
    double own;             // weight of a row's own labels against the others
    double decay;           // of the squared norm of w, per step
    int64_t n_steps;
    int64_t n_negatives;    // labels drawn per step when there are more
    int64_t rank_every;     // steps between two orderings of the labels
    uint64_t seed;
};

class DirectionTrainer {
  public:
    DirectionTrainer(const CsrView &x, const CsrView &y, const EarlierFilters &earlier, const DirectionOptions &options)
        : x_(x), y_(y), earlier_(earlier), options_(options), random_(options.seed), is_own_(y.n_cols, 0) {
        for (int64_t i = 0; i < y.n_rows; ++i)
            if (y.row_size(i)) usable_.push_back(i);
    }

    std::vector<double> run(const Watch &watch) {
        start();
        if (usable_.empty()) return v_;
        const int64_t average_from = std::min(std::max(x_.n_rows, x_.n_cols), options_.n_steps / 2);
        int64_t averaged = 0;
        for (int64_t t = 0; t < options_.n_steps && !watch.cancelled(); ++t) {
            if (t && t % options_.rank_every == 0) reorder();
            const double rate = 0.1 * std::pow(1 + 0.1 * options_.decay * static_cast<double>(t), -0.75);
            step(usable_[random_.below(static_cast<int64_t>(usable_.size()))], rate);
            if (t >= average_from) {
                weight_sum_ += scale_;
                ++averaged;
            }
            watch.advance();
        }
        for (size_t f = 0; f < v_.size(); ++f)
            v_[f] = averaged ? (weight_sum_ * v_[f] + correction_[f]) / static_cast<double>(averaged) : scale_ * v_[f];
        return v_;
    }

  private:
    CsrView x_, y_;
    EarlierFilters earlier_;
    DirectionOptions options_;
    RandomStream random_;
    std::vector<int64_t> usable_; // rows with labels
    LabelOrder order_;
    std::vector<float> projection_, lower_, upper_;
    // w = scale * v, and the sum of all averaged iterates is weight_sum * v + correction: sparse steps stay sparse.
    std::vector<double> v_, correction_;
    double scale_ = 1, weight_sum_ = 0;
    std::vector<uint8_t> is_own_;
    std::vector<int32_t> own_ranks_;
    // The labels that pull on the current row: for each, its bounds and the weight of either hinge.
    std::vector<int32_t> pull_label_;
    std::vector<float> pull_lower_, pull_upper_, pull_left_, pull_right_;
    size_t n_own_ = 0;

    // The difference of the mean rows of two labels, at norm 10.
    void start() {
        v_.assign(x_.n_cols, 0.0);
        correction_.assign(x_.n_cols, 0.0);
        if (!usable_.empty()) {
            const auto draw = [&] {
                const int64_t row = usable_[random_.below(static_cast<int64_t>(usable_.size()))];
                return y_.indices[y_.indptr[row] + random_.below(y_.row_size(row))];
            };
            const int32_t first = draw();
            int32_t second = draw();
            for (int tries = 0; second == first && tries < 20; ++tries) second = draw();
            add_mean_row(first, 1);
            if (second != first) add_mean_row(second, -1);
        }
        double norm = 0;
        for (double value : v_) norm += value * value;
        if (norm > 0)
            for (double &value : v_) value *= 10 / std::sqrt(norm);
        reorder();
        lower_.resize(y_.n_cols);
        upper_.resize(y_.n_cols);
        for (int64_t c = 0; c < y_.n_cols; ++c) {
            lower_[c] = static_cast<float>(order_.mean[c] - 1);
            upper_[c] = static_cast<float>(order_.mean[c] + 1);
        }
    }

    void add_mean_row(int32_t label, double sign) {
        std::vector<int64_t> rows;
        for (int64_t i : usable_)
            if (std::binary_search(y_.indices + y_.indptr[i], y_.indices + y_.indptr[i + 1], label)) rows.push_back(i);
        for (int64_t i : rows)
            for (int64_t e = x_.indptr[i]; e < x_.indptr[i + 1]; ++e)
                v_[x_.indices[e]] += sign * x_.data[e] / static_cast<double>(rows.size());
    }

    void reorder() {
        projection_.resize(x_.n_rows);
        for (int64_t i = 0; i < x_.n_rows; ++i) projection_[i] = static_cast<float>(scale_ * project_row(x_, i, v_.data()));
        order_.update(y_, projection_.data());
    }

    void add_pull(int32_t label, float left, float right) {
        pull_label_.push_back(label);
        pull_lower_.push_back(lower_[label]);
        pull_upper_.push_back(upper_[label]);
        pull_left_.push_back(left);
        pull_right_.push_back(right);
    }

    void gather_pulls(int64_t row) {
        for (auto *part : {&pull_lower_, &pull_upper_, &pull_left_, &pull_right_}) part->clear();
        pull_label_.clear();
        own_ranks_.clear();
        const int64_t begin = y_.indptr[row], end = y_.indptr[row + 1];
        for (int64_t e = begin; e < end; ++e) {
            is_own_[y_.indices[e]] = 1;
            own_ranks_.push_back(order_.rank[y_.indices[e]]);
            add_pull(y_.indices[e], static_cast<float>(options_.own), static_cast<float>(options_.own));
        }
        n_own_ = pull_label_.size();
        const bool all = y_.n_cols <= options_.n_negatives;
        const int64_t draws = all ? y_.n_cols : options_.n_negatives;
        const float weight = static_cast<float>(y_.n_cols) / static_cast<float>(draws);
        for (int64_t s = 0; s < draws; ++s) {
            const auto c = static_cast<int32_t>(all ? s : random_.below(y_.n_cols));
            if (is_own_[c] || !order_.counts[c] || !earlier_.keeps(row, c)) continue;
            const int32_t rank = order_.rank[c];
            int32_t left_of_c = 0;
            for (int32_t own : own_ranks_) left_of_c += own < rank;
            const auto left = static_cast<float>(left_of_c);
            add_pull(c, weight * left, weight * (static_cast<float>(end - begin) - left));
        }
        for (int64_t e = begin; e < end; ++e) is_own_[y_.indices[e]] = 0;
    }

    // Derivative of the row's part of the objective with respect to its projection (never falls as p grows).
    double pull_at(double p) const {
        const auto at = static_cast<float>(p);
        double own = 0;
        for (size_t s = 0; s < n_own_; ++s)
            own += pull_right_[s] * (pull_upper_[s] - at < 1) - pull_left_[s] * (at - pull_lower_[s] < 1);
        float foreign = 0;
        for (size_t s = n_own_; s < pull_label_.size(); ++s)
            foreign += (pull_lower_[s] - at < 1 ? pull_left_[s] : 0.0f) - (at - pull_upper_[s] < 1 ? pull_right_[s] : 0.0f);
        return own + foreign;
    }

    void step(int64_t row, double rate) {
        gather_pulls(row);
        const double p = scale_ * project_row(x_, row, v_.data());
        double length = 0;
        for (int64_t e = x_.indptr[row]; e < x_.indptr[row + 1]; ++e) length += static_cast<double>(x_.data[e]) * x_.data[e];
        const double pull = pull_at(p);
        double moved = p, shrink = 1;
        for (;; rate *= 0.5) {
            if (rate < 1e-8) return;
            shrink = std::max(1 - rate * options_.decay, 1e-3);
            moved = shrink * p - rate * pull * length;
            if (pull_at(moved) * pull >= 0) break;
        }
        scale_ *= shrink;
        for (int64_t e = x_.indptr[row]; e < x_.indptr[row + 1]; ++e) {
            const double change = -rate * pull * x_.data[e] / scale_;
            v_[x_.indices[e]] += change;
            correction_[x_.indices[e]] -= weight_sum_ * change;
        }
        if (scale_ < 1e-6) fold_scale();
        move_bounds(static_cast<float>(moved), static_cast<float>(rate));
    }

    void fold_scale() {
        for (double &value : v_) value *= scale_;
        weight_sum_ /= scale_;
        scale_ = 1;
    }

    // Own intervals open and foreign ones close towards the row, never past the margin.
    void move_bounds(float p, float rate) {
        for (size_t s = 0; s < pull_label_.size(); ++s) {
            float &lower = lower_[pull_label_[s]], &upper = upper_[pull_label_[s]];
            const float left = rate * pull_left_[s], right = rate * pull_right_[s];
            if (s < n_own_) {
                if (p - lower < 1) lower = std::max(lower - left, p - 1);
                if (upper - p < 1) upper = std::min(upper + right, p + 1);
            } else {
                if (left > 0 && lower - p < 1) lower = std::min(lower + left, p + 1);
                if (right > 0 && p - upper < 1) upper = std::max(upper - right, p - 1);
            }
        }
    }
};

// ---- the intervals: exact for a given direction ----

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
