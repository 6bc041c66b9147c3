// Newton's method for a smooth convex function of a few numbers, each of which has a lower bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "threads.hpp"

namespace blockxmc {

// A function, its gradient and the lower half of its Hessian (row by row) at a point.
struct Quadratic {
    explicit Quadratic(int n) : n(n), numbers(1 + n + n * n, 0.0) {}

    double &value() { return numbers[0]; }
    double value() const { return numbers[0]; }
    double *gradient() { return numbers.data() + 1; }
    const double *gradient() const { return numbers.data() + 1; }
    double *hessian() { return gradient() + n; }
    double second(int i, int j) const { return gradient()[n + std::max(i, j) * n + std::min(i, j)]; }
    void add(const Quadratic &other) {
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += other.numbers[i];
    }

    int n;
    std::vector<double> numbers;
};

// The sum of what `add(begin, end, out)` adds for items [begin, end), in the same pieces for any number of threads.
template <typename Add>
Quadratic sum_of_items(int64_t n_items, int64_t piece, int n, int threads, Add &&add) {
    std::vector<Quadratic> sums(std::max<int64_t>((n_items + piece - 1) / piece, 1), Quadratic(n));
    parallel_for(static_cast<int64_t>(sums.size()), threads, [&](int64_t at, int) {
        add(at * piece, std::min((at + 1) * piece, n_items), sums[at]);
    });
    for (size_t at = 1; at < sums.size(); ++at) sums[0].add(sums[at]);
    return std::move(sums[0]);
}

// The step that is best for a quadratic among those that keep to the bounds, `least` for each part of the step (0 or less).
// An active set: parts at their bound stay there until letting go of them helps.
class BoundedStep {
  public:
    BoundedStep(const Quadratic &at, const std::vector<double> &least) : at_(at), least_(least), held_(at.n, 0), step(at.n, 0.0) {
        for (int i = 0; i < at.n; ++i) held_[i] = least[i] >= 0 && at.gradient()[i] > 0;
        for (int turn = 0; turn < 4 * at.n + 8; ++turn)
            if (!go_on()) break;
    }

  private:
    const Quadratic &at_;
    const std::vector<double> &least_;
    std::vector<char> held_;

  public:
    std::vector<double> step;

  private:
    bool go_on() {
        const std::vector<double> goal = best_of_free();
        double share = 1;
        int first = -1;
        for (int i = 0; i < at_.n; ++i) {
            if (held_[i] || goal[i] >= least_[i]) continue;
            const double reach = (least_[i] - step[i]) / (goal[i] - step[i]);
            if (reach < share) share = reach, first = i;
        }
        for (int i = 0; i < at_.n; ++i)
            if (!held_[i]) step[i] += share * (goal[i] - step[i]);
        if (first >= 0) {
            held_[first] = 1;
            step[first] = least_[first];
            return true;
        }
        int worst = -1;
        double most = 0;
        for (int i = 0; i < at_.n; ++i)
            if (const double slope = held_[i] ? slope_at_step(i) : 0; slope < most) most = slope, worst = i;
        if (worst < 0) return false;
        held_[worst] = 0;
        return true;
    }

    double slope_at_step(int i) const {
        double slope = at_.gradient()[i];
        for (int j = 0; j < at_.n; ++j) slope += at_.second(i, j) * step[j];
        return slope;
    }

    // Cholesky's factors of the part of the Hessian that is free.
    std::vector<double> best_of_free() const {
        std::vector<int> free;
        for (int i = 0; i < at_.n; ++i)
            if (!held_[i]) free.push_back(i);
        const int n = static_cast<int>(free.size());
        std::vector<double> factor(n * n), out(n), goal = step;
        double largest = 0;
        for (int i : free) largest = std::max(largest, at_.second(i, i));
        const double least_pivot = std::max(1e-14 * largest, std::numeric_limits<double>::min());
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j <= i; ++j) {
                double sum = at_.second(free[i], free[j]);
                for (int k = 0; k < j; ++k) sum -= factor[i * n + k] * factor[j * n + k];
                factor[i * n + j] = i == j ? std::sqrt(std::max(sum, least_pivot)) : sum / factor[j * n + j];
            }
            out[i] = -at_.gradient()[free[i]];
            for (int j = 0; j < at_.n; ++j)
                if (held_[j]) out[i] -= at_.second(free[i], j) * step[j];
            for (int k = 0; k < i; ++k) out[i] -= factor[i * n + k] * out[k];
            out[i] /= factor[i * n + i];
        }
        for (int i = n - 1; i >= 0; --i) {
            for (int k = i + 1; k < n; ++k) out[i] -= factor[k * n + i] * out[k];
            out[i] /= factor[i * n + i];
            goal[free[i]] = out[i];
        }
        return goal;
    }
};

// Where `evaluate(point) -> Quadratic` is least, by steps of Newton's method that are halved until they go down enough. It
// ends where the next step promises less than `tol`.
template <typename Evaluate>
std::vector<double> minimize_bounded(Evaluate &&evaluate, std::vector<double> point, const std::vector<double> &lower, double tol) {
    constexpr int most_steps = 100, most_halvings = 40;
    const size_t n = point.size();
    for (size_t i = 0; i < n; ++i) point[i] = std::max(point[i], lower[i]);
    Quadratic here = evaluate(point);
    for (int taken = 0; taken < most_steps; ++taken) {
        std::vector<double> least(n);
        for (size_t i = 0; i < n; ++i) least[i] = std::min(lower[i] - point[i], 0.0);
        const BoundedStep best(here, least);
        double slope = 0;
        for (size_t i = 0; i < n; ++i) slope += here.gradient()[i] * best.step[i];
        if (!(-slope > tol)) break; // not a number: no step either
        bool lower_now = false;
        double share = 1;
        for (int halving = 0; halving < most_halvings && !lower_now; ++halving, share /= 2) {
            std::vector<double> next(n);
            for (size_t i = 0; i < n; ++i) next[i] = std::max(point[i] + share * best.step[i], lower[i]);
            Quadratic there = evaluate(next);
            if (!(there.value() <= here.value() + 1e-4 * share * slope)) continue;
            lower_now = true;
            point = std::move(next);
            here = std::move(there);
        }
        if (!lower_now) break;
    }
    return point;
}

} // namespace blockxmc
