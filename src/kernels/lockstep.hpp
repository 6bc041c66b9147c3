// Newton's method for sixteen labels in lock-step: min_w 1/2 |w|^2 + C sum_i loss(s_i w.x_i), squared hinge or logistic.
//
// Right where most rows matter to most labels (frequent labels, logistic loss, small blocks): every product is one pass
// over X for all lanes. Directions come from conjugate gradients preconditioned by (1 - a) I + a diag(H).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lane_line.hpp"

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
        : rows_(rows), objective_(objective), line_(rows, objective), gradient_(rows.n_features()),
          diagonal_(gradient_.size()), residual_(gradient_.size()), conjugate_(gradient_.size()), product_(gradient_.size()),
          curvature_(rows.x.n_rows), wanted_(rows.x.n_rows) {}

    // Solves the lanes of `lanes`: positive[i] has the bit of each lane for which row i is a positive, member[i] of each
    // lane that is trained on row i. The weights are then in weights().
    void solve(LaneMask lanes, const LaneMask *positive, const LaneMask *member) {
        line_.to_zero();
        LaneMask open = lanes;
        LaneSums target;
        for (int newton = 0; open && newton < kMaxNewton; ++newton) {
            for (int64_t i = 0; i < rows_.x.n_rows; ++i) wanted_[i] = member[i] & open;
            lane_gradient(rows_, objective_.loss, static_cast<float>(objective_.C), positive, wanted_.data(), line_.z.data(),
                          line_.w.data(), gradient_.data(), diagonal_.data(), curvature_.data(), active_);
            LaneSums squared;
            lane_dots(gradient_.data(), gradient_.data(), width(), squared);
            if (newton == 0) target = targets(squared, positive, member);
            for (int lane = 0; lane < kLanes; ++lane)
                if (!(std::sqrt(squared[lane]) > target[lane])) open &= ~(1u << lane);
            if (!open) break;
            find_direction(open);
            open &= ~line_.move(open, positive, wanted_.data());
        }
    }

    const LaneVector &weights() const { return line_.w; }

  private:
    int64_t width() const { return static_cast<int64_t>(gradient_.size()); }

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

    // Conjugate gradients on H s = -g until the quadratic model stops improving: t (Q_t - Q_{t-1}) >= share * Q_t.
    void find_direction(LaneMask open) {
        LaneSums rz, share, model;
        conjugate_start(width(), gradient_.data(), diagonal_.data(), line_.direction.data(), residual_.data(), conjugate_.data(), rz);
        for (int lane = 0; lane < kLanes; ++lane) share[lane] = std::min(0.5, std::sqrt(std::sqrt(rz[lane])));
        for (int round = 1; open && round <= kMaxConjugate; ++round) {
            lane_hessian(rows_, active_, curvature_.data(), conjugate_.data(), product_.data());
            LaneSums curve, next;
            lane_dots(conjugate_.data(), product_.data(), width(), curve);
            Lanes alpha{}, beta{};
            for (int lane = 0; lane < kLanes; ++lane)
                if ((open >> lane & 1) && curve[lane] > 0) alpha[lane] = static_cast<float>(rz[lane] / curve[lane]);
            conjugate_step(width(), alpha, conjugate_.data(), product_.data(), diagonal_.data(), line_.direction.data(),
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

    const Rows rows_;
    const Objective objective_;
    LaneLine line_;
    LaneVector gradient_, diagonal_, residual_, conjugate_, product_;  // per feature
    LaneVector curvature_;                                             // per row
    std::vector<LaneMask> wanted_;
    std::vector<int32_t> active_;
};
