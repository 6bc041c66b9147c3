// Where squared-hinge problems start on rows of very different length: near the solution, by dual coordinate descent.
//
// A row of a hundred times the usual length makes the Hessian ten thousand times as steep along itself. Many such rows leave
// conjugate gradients, and so Newton's method, with hundreds of steps; no preconditioner of the features helps, since the rows
// are what differs. In the dual each row has a number of its own, alpha_i with w = sum_i s_i alpha_i x_i, and a step that fits
// its length: about ten passes over the rows come as near to the solution as is asked for. Newton's method then starts there:
// its stopping rule has the last word, and it goes on where so few passes were not enough.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lane_line.hpp"
#include "random.hpp"

namespace blockxmc {

constexpr int kMaxPasses = 100;
// Passes end where the gradient is so much of what is to be reached, by an estimate that takes rows for orthogonal and each
// as it was before its step: the half makes up for that. A whole takes 5 to 15 % longer, since Newton's method then has more
// left to do.
constexpr double kPassesEnd = 0.5;

// |x_i|^2, bias included.
inline std::vector<float> squared_lengths(const Rows &rows) {
    std::vector<float> out(rows.x.n_rows, rows.bias * rows.bias);
    for (int64_t i = 0; i < rows.x.n_rows; ++i)
        for (int64_t k = rows.x.indptr[i]; k < rows.x.indptr[i + 1]; ++k) out[i] += rows.x.data[k] * rows.x.data[k];
    return out;
}

// Whether one row in a hundred is kUneven times as long as the median row, or longer; empty rows do not count.
inline bool rows_are_uneven(const CsrView &x) {
    constexpr float kUneven = 8;
    std::vector<float> squares = squared_lengths({x, 0});
    std::erase_if(squares, [](float square) { return !(square > 0); });
    if (squares.empty()) return false;
    const auto middle = squares.begin() + static_cast<int64_t>(squares.size() / 2);
    const auto long_one = squares.end() - 1 - static_cast<int64_t>(squares.size() / 100);
    std::nth_element(squares.begin(), middle, squares.end());
    const float median = *middle;
    std::nth_element(squares.begin(), long_one, squares.end());
    return *long_one > kUneven * kUneven * median;
}

// One step for each row in this order, in the open lanes. left: sum of (alpha_i(w) - alpha_i)^2 |x_i|^2, where alpha(w) would
// make w - sum_i s_i alpha_i x_i the gradient; C: of a loss that counts 1.
BLOCKXMC_CLONES static void descent_pass(const Rows &rows, float C, const std::vector<int32_t> &order, const std::vector<float> &squares,
                                         const LaneMask *positive, const LaneMask *member, LaneMask open, Lanes *alpha, Lanes *w,
                                         LaneSums &left) {
    const FloatLanes zero = {};
    FloatSums sum;
    for (int32_t i : order) {
        const IntLanes wanted = lanes_of(member[i] & open);
        const Cost cost = rows.cost(i, 2 * C);
        FloatLanes z, sign, counts, at_w, off, next, change;
        row_product(rows, i, w, z);
        choose(positive[i], 1.0f, -1.0f, sign);
        choose(positive[i], cost.positive, cost.negative, counts);
        const FloatLanes wish = counts * (1.0f - sign * z), old = alpha[i].v;
        only_in(below(zero, wish), wish, at_w);
        only_in(wanted, at_w - old, off);
        sum.add(off * off * squares[i]);
        const FloatLanes best = old + (wish - old) / (1.0f + counts * squares[i]);
        only_in(below(zero, best), best, next);
        only_in(wanted, next - old, change);
        if (!any_bits(bits_of(change) << 1)) continue; // all are 0, of either sign
        alpha[i].v = old + change;
        row_scatter(rows, i, sign * change, w);
        if (rows.bias != 0) w[rows.x.n_cols].v += sign * change * rows.bias;
    }
    sum.finish(left);
}

class LaneDescent {
  public:
    // w: the weights of the lanes from 0 to about where |g| is the target.
    void solve(const Rows &rows, double C, LaneMask open, const LaneMask *positive, const LaneMask *member, const LaneSums &target,
               LaneVector &w) {
        squares_ = squared_lengths(rows);
        alpha_.assign(rows.x.n_rows, Lanes{});
        std::fill(w.begin(), w.end(), Lanes{});
        order_.clear();
        for (int64_t i = 0; i < rows.x.n_rows; ++i)
            if (member[i] & open) order_.push_back(static_cast<int32_t>(i));
        RandomStream random(0); // the same for each group: rows in their own order would follow whatever sorted them
        for (int pass = 0; open && pass < kMaxPasses; ++pass) {
            random.shuffle(order_);
            LaneSums left;
            descent_pass(rows, static_cast<float>(C), order_, squares_, positive, member, open, alpha_.data(), w.data(), left);
            for (int lane = 0; lane < kLanes; ++lane)
                if (std::sqrt(left[lane]) <= kPassesEnd * target[lane]) open &= ~(1u << lane);
        }
    }

  private:
    std::vector<float> squares_;
    std::vector<int32_t> order_;
    LaneVector alpha_;
};

} // namespace blockxmc
