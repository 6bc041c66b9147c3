// What every solver of sixteen lanes shares: the losses, the stopping rule, and the move along a direction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lanes.hpp"

namespace blockxmc {

enum class Loss { squared_hinge, logistic };

// Constants of the trained problems; the stopping rule is LIBLINEAR's.
struct Objective {
    Loss loss;
    double C;
    double tol;

    // |g| at which a problem is solved, given |g(0)|; float vectors resolve no less than 1e-7 of it.
    double target(double gradient_at_zero, int64_t positives, int64_t rows) const {
        const double rarer = static_cast<double>(std::max<int64_t>(std::min(positives, rows - positives), 1));
        return std::max(tol * rarer / static_cast<double>(std::max<int64_t>(rows, 1)), 1e-7) * gradient_at_zero;
    }
};

constexpr int kMaxNewton = 200;
constexpr int kMaxConjugate = 500;
constexpr int kMaxLineSearch = 20;
constexpr float kDiagonalShare = 0.01f; // weight of diag(H) in the preconditioner, the identity has the rest
constexpr double kNoProgress = 1e-7; // a step this small relative to w is below float resolution

BLOCKXMC_INLINE void exp_of_nonpositive(const FloatLanes &argument, FloatLanes &out) {
    const FloatLanes lowest = argument - argument - 87.0f;
    FloatLanes x;
    choose(below(argument, lowest), lowest, argument, x);
    const IntLanes power = __builtin_convertvector(x * 1.44269504f - 0.5f, IntLanes);
    const FloatLanes whole = __builtin_convertvector(power, FloatLanes);
    const FloatLanes r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    FloatLanes p = r * 1.3888889e-3f + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = (p * r + 1.0f) * r + 1.0f;
    const IntLanes bits = (power + 127) << 23;
    FloatLanes scale;
    std::memcpy(&scale, &bits, sizeof scale);
    out = p * scale;
}

// First and second derivative of cost * loss with respect to z = w.x, in the lanes of `wanted` (0 elsewhere).
BLOCKXMC_INLINE void loss_derivatives(Loss loss, Cost cost, LaneMask positive, LaneMask wanted, const FloatLanes &z,
                                   FloatLanes &first, FloatLanes &second) {
    const FloatLanes zero = {}, one = zero + 1.0f;
    FloatLanes C, sign;
    choose(positive, cost.positive, cost.negative, C);
    choose(positive, 1.0f, -1.0f, sign);
    const FloatLanes margin = sign * z;
    if (loss == Loss::squared_hinge) {
        const IntLanes active = lanes_of(wanted) & below(margin, one);
        only_in(active, -2.0f * C * sign * (1.0f - margin), first);
        only_in(active, 2.0f * C, second);
    } else {
        FloatLanes away, e, part;
        const IntLanes right = below(zero, margin), kept = lanes_of(wanted);
        choose(right, -margin, margin, away);
        exp_of_nonpositive(away, e);
        const FloatLanes inverse = one / (one + e);
        choose(right, e, one, part);
        const FloatLanes miss = part * inverse; // sigma(-margin)
        only_in(kept, -C * sign * miss, first);
        only_in(kept, C * e * inverse * inverse, second);
    }
}

// Derivative of the loss along the direction at both ends of the step, sum_i loss'(z_i + t zs_i) zs_i at t = 0 and t = 1,
// and the rows on which it depends in between: a hinge that is flat at both ends is flat all the way.
BLOCKXMC_CLONES static void slopes_at_ends(const Rows &rows, Loss loss, float C, const LaneMask *positive,
                                              const LaneMask *wanted, const Lanes *z, const Lanes *zs, LaneSums &at_start,
                                              LaneSums &at_end, std::vector<int32_t> &in_play) {
    in_play.clear();
    FloatSums start, end;
    for (int64_t i = 0; i < rows.x.n_rows; ++i) {
        FloatLanes here, there, curvature;
        loss_derivatives(loss, rows.cost(i, C), positive[i], wanted[i], z[i].v, here, curvature);
        loss_derivatives(loss, rows.cost(i, C), positive[i], wanted[i], z[i].v + zs[i].v, there, curvature);
        if (!any_bits((bits_of(here) | bits_of(there)) << 1)) continue; // all are 0, of either sign
        in_play.push_back(static_cast<int32_t>(i));
        start.add(here * zs[i].v);
        end.add(there * zs[i].v);
    }
    start.finish(at_start);
    end.finish(at_end);
}

// The same derivative at any t, given the rows in play.
BLOCKXMC_CLONES static void slopes_between(const Rows &rows, const std::vector<int32_t> &in_play, Loss loss, float C,
                                              const LaneMask *positive, const LaneMask *wanted, const Lanes *z, const Lanes &t,
                                              const Lanes *zs, LaneSums &out) {
    FloatSums sum;
    for (int32_t i : in_play) {
        FloatLanes first, second;
        loss_derivatives(loss, rows.cost(i, C), positive[i], wanted[i], z[i].v + t.v * zs[i].v, first, second);
        sum.add(first * zs[i].v);
    }
    sum.finish(out);
}

// Step length along a direction of descent of a convex function, from its slopes: 1 if the slope there is about flat or still
// falling, else a point between the last falling and the first rising one, by the secant rule kept off the ends.
class StepSearch {
  public:
    explicit StepSearch(double first = 0) : first_(first), low_slope_(first), searching_(first < 0), t_(first < 0 ? 1 : 0) {}

    bool searching() const { return searching_; }
    // The step length to try while searching; the result afterwards.
    double t() const { return t_; }

    // Takes the slope at t.
    void tell(double slope) {
        if (slope > -kRising * first_) {
            high_ = t_;
            high_slope_ = slope;
        } else if (slope < kFalling * first_ && high_slope_ > 0) {
            low_ = t_;
            low_slope_ = slope;
        } else {
            searching_ = false;
            return;
        }
        const double secant = low_slope_ / (low_slope_ - high_slope_);
        t_ = low_ + (high_ - low_) * std::clamp(secant, kEnds, 1 - kEnds);
    }

    // Ends the search at the best length known to be an improvement.
    void give_up() {
        if (searching_) t_ = low_;
        searching_ = false;
    }

  private:
    static constexpr double kRising = 0.1, kFalling = 0.5; // shares of the first slope that count as flat
    static constexpr double kEnds = 0.1;

    double first_, low_ = 0, low_slope_, high_ = 0, high_slope_ = 0;
    bool searching_;
    double t_;
};

// The present weights of sixteen problems and a direction to move along, both with their products with every row, so that
// trying a step length costs no product.
class LaneLine {
  public:
    explicit LaneLine(const Objective &objective) : objective_(objective) {}

    // The rows from now on; weights and products have no meaning until they are set.
    void take(const Rows &rows, const Columns &columns) {
        rows_ = rows;
        columns_ = &columns;
        for (LaneVector *v : {&w, &direction}) v->resize(rows.n_features());
        for (LaneVector *v : {&z, &step}) v->resize(rows.x.n_rows);
    }

    void to_zero() {
        std::fill(w.begin(), w.end(), Lanes{});
        std::fill(z.begin(), z.end(), Lanes{});
    }

    // Moves the open lanes along `direction`; returns those that can get no further in float arithmetic.
    LaneMask move(LaneMask open, const LaneMask *positive, const LaneMask *wanted) {
        const int64_t d = rows_.n_features();
        lane_products_of_all(rows_, *columns_, direction.data(), step.data());
        LaneSums ww, ws, ss;
        lane_dots(w.data(), w.data(), d, ww);
        lane_dots(w.data(), direction.data(), d, ws);
        lane_dots(direction.data(), direction.data(), d, ss);
        const Lanes t = step_lengths(open, positive, wanted, ws, ss);
        lane_add(w.data(), t, direction.data(), d);
        lane_add(z.data(), t, step.data(), rows_.x.n_rows);
        LaneMask stuck = 0;
        for (int lane = 0; lane < kLanes; ++lane)
            if (!(t[lane] * std::sqrt(ss[lane]) > kNoProgress * std::sqrt(ww[lane]))) stuck |= 1u << lane;
        return stuck;
    }

    LaneVector w, direction; // per feature
    LaneVector z, step;       // per row

  private:
    Lanes step_lengths(LaneMask open, const LaneMask *positive, const LaneMask *wanted, const LaneSums &ws,
                       const LaneSums &ss) {
        const float C = static_cast<float>(objective_.C);
        LaneSums at_start, slope;
        slopes_at_ends(rows_, objective_.loss, C, positive, wanted, z.data(), step.data(), at_start, slope, in_play_);
        StepSearch search[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
            if (open >> lane & 1) search[lane] = StepSearch(ws[lane] + at_start[lane]);
        Lanes t{};
        for (int trial = 0;; ++trial) {
            bool searching = false;
            for (int lane = 0; lane < kLanes; ++lane) {
                if (search[lane].searching()) search[lane].tell(ws[lane] + search[lane].t() * ss[lane] + slope[lane]);
                if (trial == kMaxLineSearch) search[lane].give_up();
                t[lane] = static_cast<float>(search[lane].t());
                searching |= search[lane].searching();
            }
            if (!searching) break;
            slopes_between(rows_, in_play_, objective_.loss, C, positive, wanted, z.data(), t, step.data(), slope);
        }
        return t;
    }

    Rows rows_{};
    const Columns *columns_ = nullptr;
    const Objective objective_;
    std::vector<int32_t> in_play_;
};

} // namespace blockxmc
