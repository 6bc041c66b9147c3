// L1-regularised logistic regression by coordinate descent inside Newton steps (newGLMNET):
//     min_w  sum_j |w_j| + sum_i C_i log(1 + exp(-s_i w.x_i)),   s_i in {-1, +1}.
// Made for many small problems: the scratch of one solver is reused from one problem to the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "random.hpp"

namespace blockxmc {

// Column-major data of one problem.
struct ColumnEntry {
    int32_t row;
    float value;
};
struct Columns {
    std::vector<int64_t> ptr; // n_cols + 1
    std::vector<ColumnEntry> entries;
    int32_t n_rows = 0;

    int32_t n_cols() const { return static_cast<int32_t>(ptr.size()) - 1; }
};

struct L1LogisticOptions {
    double tolerance = 0.01; // stop when the violation falls to this share of its start
    int max_newton = 10;
    int max_passes = 10; // coordinate passes per Newton step
};

class L1Logistic {
  public:
    explicit L1Logistic(L1LogisticOptions options = {}) : options_(options) {}

    // side: +1 / -1 per row; cost_plus, cost_minus: C_i of either side. The solution stays valid until the next call.
    const std::vector<double> &solve(const Columns &x, const std::vector<int8_t> &side, double cost_plus,
                                     double cost_minus, RandomStream &random) {
        start(x, side, cost_plus, cost_minus);
        double first_violation = 0, inner_tolerance = 1;
        largest_violation_ = std::numeric_limits<double>::infinity();
        for (int step = 0; step < options_.max_newton; ++step) {
            const double violation = differentiate(x);
            if (step == 0) first_violation = violation;
            if (violation <= options_.tolerance * first_violation) break;
            const int passes = minimise_model(x, inner_tolerance * first_violation, random);
            if (!line_search()) break;
            if (passes == 1) inner_tolerance *= 0.25;
        }
        return w_;
    }

  private:
    static constexpr double kRidge = 1e-12; // keeps a column's curvature positive
    L1LogisticOptions options_;
    std::vector<double> w_, trial_w_, gradient_, curvature_;       // per column
    std::vector<double> margin_, move_, slope_, bend_, cost_;      // per row; move = x.(trial_w - w)
    std::vector<int8_t> side_;
    std::vector<int32_t> active_;
    double largest_violation_ = 0;

    void start(const Columns &x, const std::vector<int8_t> &side, double cost_plus, double cost_minus) {
        side_ = side;
        w_.assign(x.n_cols(), 0.0);
        gradient_.assign(x.n_cols(), 0.0);
        curvature_.assign(x.n_cols(), 0.0);
        margin_.assign(x.n_rows, 0.0);
        slope_.resize(x.n_rows);
        bend_.resize(x.n_rows);
        move_.resize(x.n_rows);
        cost_.resize(x.n_rows);
        for (int32_t i = 0; i < x.n_rows; ++i) cost_[i] = side_[i] > 0 ? cost_plus : cost_minus;
    }

    // How far a coordinate is from optimal; `shut` tells that it is zero and firmly so.
    static double violation_of(double w, double gradient, double slack, bool &shut) {
        const double right = gradient + 1, left = gradient - 1;
        shut = false;
        if (w > 0) return std::fabs(right);
        if (w < 0) return std::fabs(left);
        if (right < 0) return -right;
        if (left > 0) return left;
        shut = right > slack && left < -slack;
        return 0;
    }

    // Gradient of every column, curvature of those that may move (they become active_); returns the total violation.
    double differentiate(const Columns &x) {
        for (int32_t i = 0; i < x.n_rows; ++i) {
            const double wrong = 1 / (1 + std::exp(side_[i] * margin_[i]));
            slope_[i] = -side_[i] * cost_[i] * wrong;
            bend_[i] = cost_[i] * wrong * (1 - wrong);
        }
        const double slack = largest_violation_ / std::max(x.n_rows, 1);
        double total = 0, largest = 0;
        active_.clear();
        for (int32_t j = 0; j < x.n_cols(); ++j) {
            const ColumnEntry *e = x.entries.data() + x.ptr[j], *end = x.entries.data() + x.ptr[j + 1];
            double g = 0;
            for (const ColumnEntry *p = e; p < end; ++p) g += p->value * slope_[p->row];
            gradient_[j] = g;
            bool shut;
            const double violation = violation_of(w_[j], g, slack, shut);
            if (shut) continue;
            double h = kRidge;
            for (const ColumnEntry *p = e; p < end; ++p) h += static_cast<double>(p->value) * p->value * bend_[p->row];
            curvature_[j] = h;
            active_.push_back(j);
            total += violation;
            largest = std::max(largest, violation);
        }
        largest_violation_ = largest;
        return total;
    }

    // Coordinate descent on the quadratic model with the l1 term; returns the number of passes.
    int minimise_model(const Columns &x, double target, RandomStream &random) {
        trial_w_ = w_;
        std::fill(move_.begin(), move_.end(), 0.0);
        int64_t open = static_cast<int64_t>(active_.size());
        double slack = std::numeric_limits<double>::infinity();
        int pass = 0;
        while (pass < options_.max_passes) {
            random.shuffle(active_.data(), open);
            double total = 0, largest = 0;
            for (int64_t s = 0; s < open; ++s) {
                const int32_t j = active_[s];
                const ColumnEntry *e = x.entries.data() + x.ptr[j], *end = x.entries.data() + x.ptr[j + 1];
                double g = gradient_[j] + (trial_w_[j] - w_[j]) * kRidge;
                for (const ColumnEntry *p = e; p < end; ++p) g += p->value * bend_[p->row] * move_[p->row];
                bool shut;
                const double violation = violation_of(trial_w_[j], g, slack, shut);
                if (shut) {
                    std::swap(active_[s--], active_[--open]);
                    continue;
                }
                total += violation;
                largest = std::max(largest, violation);
                const double z = best_move(g, curvature_[j], trial_w_[j]);
                if (std::fabs(z) < 1e-12) continue;
                trial_w_[j] += z;
                for (; e < end; ++e) move_[e->row] += e->value * z;
            }
            ++pass;
            slack = largest / std::max(x.n_rows, 1);
            if (total > target) continue;
            if (open == static_cast<int64_t>(active_.size())) break;
            open = static_cast<int64_t>(active_.size()); // look once more at what was set aside
            slack = std::numeric_limits<double>::infinity();
        }
        return pass;
    }

    static double best_move(double g, double h, double w) {
        double z = -w;
        if (g + 1 < h * w) z = -(g + 1) / h;
        else if (g - 1 > h * w) z = -(g - 1) / h;
        return std::clamp(z, -10.0, 10.0);
    }

    // Halves the move until the objective falls enough (sigma 0.01); false: no acceptable move, w is unchanged.
    bool line_search() {
        double norm_change = 0, promised = 0;
        for (int32_t j : active_) {
            norm_change += std::fabs(trial_w_[j]) - std::fabs(w_[j]);
            promised += gradient_[j] * (trial_w_[j] - w_[j]);
        }
        promised += norm_change;
        double before = 0;
        for (size_t i = 0; i < margin_.size(); ++i) before += cost_[i] * log_loss(side_[i] * margin_[i]);
        double share = 1;
        for (int halving = 0; halving < 20; ++halving, share *= 0.5) {
            if (halving) {
                norm_change = 0;
                for (int32_t j : active_)
                    norm_change += std::fabs(w_[j] + share * (trial_w_[j] - w_[j])) - std::fabs(w_[j]);
            }
            double after = 0;
            for (size_t i = 0; i < margin_.size(); ++i)
                after += cost_[i] * log_loss(side_[i] * (margin_[i] + share * move_[i]));
            if (norm_change + after - before > 0.01 * share * promised) continue;
            for (int32_t j : active_) w_[j] = share == 1 ? trial_w_[j] : w_[j] + share * (trial_w_[j] - w_[j]);
            for (size_t i = 0; i < margin_.size(); ++i) margin_[i] += share * move_[i];
            return true;
        }
        return false;
    }

    static double log_loss(double z) { return z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z; }
};

} // namespace blockxmc
