// Euclidean projection of (b, c) on {x, y >= 0, sum x = sum y = t, 0 <= t <= C}: the block step of PD-Sparse.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace blockxmc {

class BisimplexProjection {
  public:
    // Replaces b and c by their projection.
    void operator()(std::vector<double> &b, std::vector<double> &c, double C) {
        falling_.assign(b.begin(), b.end());
        std::sort(falling_.begin(), falling_.end(), std::greater<>());
        rising_.assign(c.begin(), c.end());
        std::sort(rising_.begin(), rising_.end(), std::greater<>());
        if (b.empty() || c.empty() || falling_[0] + rising_[0] <= 0) {
            std::fill(b.begin(), b.end(), 0.0);
            std::fill(c.begin(), c.end(), 0.0);
            return;
        }
        double lower = balance(), upper = -lower;
        double total = 0;
        for (double value : falling_) total += std::max(value - lower, 0.0);
        if (total > C) {
            lower = simplex_threshold(falling_, C);
            upper = simplex_threshold(rising_, C);
        }
        for (double &value : b) value = std::max(value - lower, 0.0);
        for (double &value : c) value = std::max(value - upper, 0.0);
    }

  private:
    // theta with sum (b - theta)_+ = sum (c + theta)_+. The left side falls and the right side rises in theta, so one
    // scan from the right over the breakpoints {b_k} and {-c_p} finds the segment that holds the only root.
    double balance() const {
        const size_t nb = falling_.size();
        size_t active_b = 0, active_c = rising_.size();
        double sum_b = 0, sum_c = 0;
        for (double value : rising_) sum_c += value;
        for (;;) {
            const double next_b = active_b < nb ? falling_[active_b] : -std::numeric_limits<double>::infinity();
            const double next_c = active_c > 0 ? -rising_[active_c - 1] : -std::numeric_limits<double>::infinity();
            const double theta = (sum_b - sum_c) / static_cast<double>(active_b + active_c);
            if (active_b + active_c > 0 && theta >= std::max(next_b, next_c)) return theta;
            if (active_b == nb && active_c == 0) return theta;
            if (next_b >= next_c) {
                sum_b += falling_[active_b++];
            } else {
                sum_c -= rising_[--active_c];
            }
        }
    }

    // mu with sum (sorted - mu)_+ = C.
    static double simplex_threshold(const std::vector<double> &sorted, double C) {
        double sum = 0, mu = 0;
        for (size_t r = 0; r < sorted.size(); ++r) {
            sum += sorted[r];
            const double candidate = (sum - C) / static_cast<double>(r + 1);
            if (sorted[r] <= candidate) break;
            mu = candidate;
        }
        return mu;
    }

    std::vector<double> falling_, rising_;
};

} // namespace blockxmc
