// Newton's method for sixteen labels in lock-step: min_w 1/2 |w|^2 + C sum_i loss(s_i w.x_i), squared hinge or logistic.
//
// Right where most rows matter to most labels (frequent labels, logistic loss, small blocks): every product is one pass
// over X for all lanes. Directions come from conjugate gradients preconditioned by (1 - a) I + a diag(H); products with
// w and with the direction are cached, so that a step length costs no product. A step is accepted once the slope along the
// direction is at most a tenth of its start, which for a convex function means "at or near the minimum of the line".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lanes.hpp"

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
constexpr double kSlopeShare = 0.1;   // accepted slope at the end of a step, as a share of the slope at its start
constexpr double kNoProgress = 1e-7;  // a step this small relative to w is below float resolution

LANES_INLINE void exp_of_nonpositive(FloatLanes x, FloatLanes &out) {
    const FloatLanes floor = x - x - 87.0f;
    x = x > floor ? x : floor;
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

// First and second derivative of C * loss with respect to z = w.x, in the lanes of `wanted` (0 elsewhere).
LANES_INLINE void loss_derivatives(Loss loss, float C, LaneMask positive, LaneMask wanted, const FloatLanes &z,
                                   FloatLanes &first, FloatLanes &second) {
    const FloatLanes zero = {};
    const FloatLanes sign = lanes_of(positive) ? zero + 1.0f : zero - 1.0f;
    const FloatLanes margin = sign * z;
    if (loss == Loss::squared_hinge) {
        const IntLanes active = lanes_of(wanted) & (margin < 1.0f);
        first = active ? -2.0f * C * sign * (1.0f - margin) : zero;
        second = active ? zero + 2.0f * C : zero;
    } else {
        FloatLanes e;
        exp_of_nonpositive(margin > 0.0f ? -margin : margin, e);
        const FloatLanes one = zero + 1.0f, inverse = one / (one + e);
        const FloatLanes miss = (margin > 0.0f ? e : one) * inverse;  // sigma(-margin)
        const IntLanes kept = lanes_of(wanted);
        first = kept ? -C * sign * miss : zero;
        second = kept ? C * e * inverse * inverse : zero;
    }
}

// Gradient and diagonal of the Hessian at the cached products z; rows whose every lane is flat are left out of `active`.
LANES_MULTIVERSION static void lane_gradient(const Rows &rows, Loss loss, float C, const LaneMask *positive,
                                             const LaneMask *wanted, const Lanes *z, const Lanes *w, Lanes *gradient,
                                             Lanes *diagonal, Lanes *curvature, std::vector<int32_t> &active) {
    const int64_t d = rows.n_features();
    const FloatLanes zero = {};
    for (int64_t f = 0; f < d; ++f) {
        gradient[f].v = w[f].v;
        diagonal[f].v = zero + 1.0f;
    }
    active.clear();
    FloatLanes slope_sum = {}, curve_sum = {};
    for (int64_t i = 0; i < rows.x.n_rows; ++i) {
        FloatLanes first, second;
        loss_derivatives(loss, C, positive[i], wanted[i], z[i].v, first, second);
        curvature[i].v = second;
        if (!any_lane(first != 0.0f)) continue;
        active.push_back(static_cast<int32_t>(i));
        slope_sum += first;
        curve_sum += second;
        for (int64_t k = rows.x.indptr[i]; k < rows.x.indptr[i + 1]; ++k) {
            const int32_t f = rows.x.indices[k];
            const float value = rows.x.data[k];
            gradient[f].v += first * value;
            diagonal[f].v += second * (value * value);
        }
    }
    if (rows.bias != 0) {
        gradient[rows.x.n_cols].v += slope_sum * rows.bias;
        diagonal[rows.x.n_cols].v += curve_sum * (rows.bias * rows.bias);
    }
}

// Derivative of the loss along the direction: sum_i loss'(z_i + t zs_i) zs_i.
LANES_MULTIVERSION static void lane_slopes(int64_t n, Loss loss, float C, const LaneMask *positive, const LaneMask *wanted,
                                           const Lanes *z, const Lanes &t, const Lanes *zs, LaneSums &out) {
    out = LaneSums{};
    constexpr int64_t kRun = 16;
    for (int64_t start = 0; start < n; start += kRun) {
        FloatLanes part = {};
        const int64_t stop = start + kRun < n ? start + kRun : n;
        for (int64_t i = start; i < stop; ++i) {
            FloatLanes first, second;
            loss_derivatives(loss, C, positive[i], wanted[i], z[i].v + t.v * zs[i].v, first, second);
            part += first * zs[i].v;
        }
        for (int lane = 0; lane < kLanes; ++lane) out[lane] += part[lane];
    }
}

// s += alpha p; r -= alpha q; returns r . r / m
LANES_MULTIVERSION static void conjugate_step(int64_t d, const Lanes &alpha, const Lanes *p, const Lanes *q, const Lanes *m,
                                              Lanes *s, Lanes *r, LaneSums &rz) {
    constexpr int64_t kRun = 32;
    rz = LaneSums{};
    for (int64_t start = 0; start < d; start += kRun) {
        FloatLanes part = {};
        const int64_t stop = start + kRun < d ? start + kRun : d;
        for (int64_t f = start; f < stop; ++f) {
            s[f].v += alpha.v * p[f].v;
            const FloatLanes left = r[f].v - alpha.v * q[f].v;
            r[f].v = left;
            part += left * left * m[f].v;
        }
        for (int lane = 0; lane < kLanes; ++lane) rz[lane] += part[lane];
    }
}

// p = r * m + beta p
LANES_MULTIVERSION static void next_direction(int64_t d, const Lanes &beta, const Lanes *r, const Lanes *m, Lanes *p) {
    for (int64_t f = 0; f < d; ++f) p[f].v = r[f].v * m[f].v + beta.v * p[f].v;
}

// Inverse of the preconditioner in place of the diagonal; s = 0; r = -g; p = r / m; returns g . g / m
LANES_MULTIVERSION static void conjugate_start(int64_t d, const Lanes *gradient, Lanes *m, Lanes *s, Lanes *r, Lanes *p,
                                               LaneSums &rz) {
    constexpr int64_t kRun = 32;
    constexpr float kDiagonalShare = 0.01f;
    rz = LaneSums{};
    for (int64_t start = 0; start < d; start += kRun) {
        FloatLanes part = {};
        const int64_t stop = start + kRun < d ? start + kRun : d;
        for (int64_t f = start; f < stop; ++f) {
            const FloatLanes inverse = 1.0f / ((1.0f - kDiagonalShare) + kDiagonalShare * m[f].v);
            const FloatLanes left = -gradient[f].v;
            m[f].v = inverse;
            s[f].v = left - left;
            r[f].v = left;
            p[f].v = left * inverse;
            part += left * left * inverse;
        }
        for (int lane = 0; lane < kLanes; ++lane) rz[lane] += part[lane];
    }
}

class Lockstep {
  public:
    Lockstep(const Rows &rows, const Objective &objective)
        : rows_(rows), objective_(objective), w_(rows.n_features()), gradient_(w_.size()), diagonal_(w_.size()),
          direction_(w_.size()), residual_(w_.size()), conjugate_(w_.size()), product_(w_.size()), z_(rows.x.n_rows),
          step_(rows.x.n_rows), curvature_(rows.x.n_rows), wanted_(rows.x.n_rows) {}

    // Solves the lanes of `lanes`: positive[i] has the bit of each lane for which row i is a positive, member[i] of each
    // lane that is trained on row i. The weights are then in weights().
    void solve(LaneMask lanes, const LaneMask *positive, const LaneMask *member) {
        positive_ = positive;
        std::fill(w_.begin(), w_.end(), Lanes{});
        std::fill(z_.begin(), z_.end(), Lanes{});
        LaneMask open = lanes;
        LaneSums target;
        for (int newton = 0; open && newton < kMaxNewton; ++newton) {
            for (int64_t i = 0; i < rows_.x.n_rows; ++i) wanted_[i] = member[i] & open;
            lane_gradient(rows_, objective_.loss, static_cast<float>(objective_.C), positive_, wanted_.data(), z_.data(),
                          w_.data(), gradient_.data(), diagonal_.data(), curvature_.data(), active_);
            LaneSums squared;
            lane_dots(gradient_.data(), gradient_.data(), width(), squared);
            if (newton == 0) target = targets(squared, positive, member);
            for (int lane = 0; lane < kLanes; ++lane)
                if (!(std::sqrt(squared[lane]) > target[lane])) open &= ~(1u << lane);
            if (open) open &= ~advance(open);
        }
    }

    const LaneVector &weights() const { return w_; }

  private:
    int64_t width() const { return static_cast<int64_t>(w_.size()); }

    LaneSums targets(const LaneSums &squared, const LaneMask *positive, const LaneMask *member) const {
        int64_t positives[kLanes] = {}, members[kLanes] = {};
        for (int64_t i = 0; i < rows_.x.n_rows; ++i)
            for (int lane = 0; lane < kLanes; ++lane) {
                positives[lane] += positive[i] >> lane & 1;
                members[lane] += member[i] >> lane & 1;
            }
        LaneSums out;
        for (int lane = 0; lane < kLanes; ++lane)
            out[lane] = objective_.target(std::sqrt(squared[lane]), positives[lane], members[lane]);
        return out;
    }

    // One Newton step of the open lanes; returns the lanes that can get no further in float arithmetic.
    LaneMask advance(LaneMask open) {
        find_direction(open);
        lane_products(rows_, direction_.data(), step_.data());
        LaneSums ww, ws, ss, gs;
        lane_dots(w_.data(), w_.data(), width(), ww);
        lane_dots(w_.data(), direction_.data(), width(), ws);
        lane_dots(direction_.data(), direction_.data(), width(), ss);
        lane_dots(gradient_.data(), direction_.data(), width(), gs);
        const Lanes t = search(open, ws, ss, gs);
        lane_add(w_.data(), t, direction_.data(), width());
        lane_add(z_.data(), t, step_.data(), rows_.x.n_rows);
        LaneMask stuck = 0;
        for (int lane = 0; lane < kLanes; ++lane)
            if (!(t[lane] * std::sqrt(ss[lane]) > kNoProgress * std::sqrt(ww[lane]))) stuck |= 1u << lane;
        return stuck;
    }

    // Conjugate gradients on H s = -g until the quadratic model stops improving: t (Q_t - Q_{t-1}) >= share * Q_t.
    void find_direction(LaneMask open) {
        LaneSums rz, share, model;
        conjugate_start(width(), gradient_.data(), diagonal_.data(), direction_.data(), residual_.data(), conjugate_.data(), rz);
        for (int lane = 0; lane < kLanes; ++lane) share[lane] = std::min(0.5, std::sqrt(std::sqrt(rz[lane])));
        for (int round = 1; open && round <= kMaxConjugate; ++round) {
            lane_hessian(rows_, active_, curvature_.data(), conjugate_.data(), product_.data());
            LaneSums curve, next;
            lane_dots(conjugate_.data(), product_.data(), width(), curve);
            Lanes alpha{}, beta{};
            for (int lane = 0; lane < kLanes; ++lane)
                if ((open >> lane & 1) && curve[lane] > 0) alpha[lane] = static_cast<float>(rz[lane] / curve[lane]);
            conjugate_step(width(), alpha, conjugate_.data(), product_.data(), diagonal_.data(), direction_.data(),
                           residual_.data(), next);
            for (int lane = 0; lane < kLanes; ++lane) {
                const double gain = -0.5 * alpha[lane] * rz[lane];
                model[lane] += gain;
                if (!(round * gain < share[lane] * model[lane])) open &= ~(1u << lane);
                if (rz[lane] > 0) beta[lane] = static_cast<float>(next[lane] / rz[lane]);
            }
            rz = next;
            if (open) next_direction(width(), beta, residual_.data(), diagonal_.data(), conjugate_.data());
        }
    }

    // Step lengths: from 1 downwards by the secant rule until the slope has fallen enough; 0 where it never does.
    Lanes search(LaneMask open, const LaneSums &ws, const LaneSums &ss, const LaneSums &gs) const {
        Lanes t{};
        for (int lane = 0; lane < kLanes; ++lane)
            if ((open >> lane & 1) && gs[lane] < 0) t[lane] = 1;
            else open &= ~(1u << lane);
        for (int trial = 0; open && trial < kMaxLineSearch; ++trial) {
            LaneSums slope;
            lane_slopes(rows_.x.n_rows, objective_.loss, static_cast<float>(objective_.C), positive_, wanted_.data(), z_.data(),
                        t, step_.data(), slope);
            for (int lane = 0; lane < kLanes; ++lane) {
                if (!(open >> lane & 1)) continue;
                const double along = ws[lane] + t[lane] * ss[lane] + slope[lane];
                if (along <= -kSlopeShare * gs[lane]) open &= ~(1u << lane);
                else t[lane] *= static_cast<float>(gs[lane] / (gs[lane] - along));
            }
        }
        for (int lane = 0; lane < kLanes; ++lane)
            if (open >> lane & 1) t[lane] = 0;
        return t;
    }

    const Rows rows_;
    const Objective objective_;
    const LaneMask *positive_ = nullptr;
    LaneVector w_, gradient_, diagonal_, direction_, residual_, conjugate_, product_;  // per feature
    LaneVector z_, step_, curvature_;                                                  // per row
    std::vector<LaneMask> wanted_;
    std::vector<int32_t> active_;
};
