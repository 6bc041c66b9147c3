// Label filters, training: the direction of a filter, by averaged stochastic gradient descent with a step that never goes
// beyond the optimum of the row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "filters.hpp"
#include "random.hpp"
#include "threads.hpp"

namespace blockxmc {

struct DirectionOptions {
    double own;             // weight of a row's own labels relative to the others
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

} // namespace blockxmc
