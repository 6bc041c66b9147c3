// Newton's method for sixteen labels side by side: min_w 1/2 |w|^2 + C sum_i loss(s_i w.x_i), squared hinge or logistic.
//
// A step needs a direction per lane, then one pass over X and one line search for all of them. Where the lanes' active
// rows overlap (frequent labels, first steps, logistic loss) the directions come from conjugate gradients in lock-step,
// a pass over X for all lanes at once: in the space of the active rows where these are fewer than the features
// (lane_dual.hpp), else in that of the features. Where they do not overlap (a rare label ends with one or two per cent of
// the rows inside its margin) each lane solves the problem on its own active rows: problem and sub-problem have the same
// gradient at the start, so a point where the sub-problem is lower lies in a direction of descent.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lane_descent.hpp"
#include "lane_dual.hpp"
#include "lane_start.hpp"
#include "lane_steps.hpp"
#include "local_svm.hpp"

namespace blockxmc {

class LaneNewton {
  public:
    explicit LaneNewton(const Objective &objective) : objective_(objective), line_(objective), local_(Rows{}) {}

    // The rows from now on, the same by column, and their mean, which is looked at where there is no bias or labels are
    // trained on all rows. Memory is kept from rows to rows: to ask the system for it takes longer than many a problem.
    void take(const Rows &rows, const Columns &columns, const MeanRow &mean) {
        rows_ = rows;
        columns_ = &columns;
        mean_ = &mean;
        all_taken_ = false;
        line_.take(rows, columns);
        local_.take(rows);
        gradient_.resize(rows.n_features());
        wanted_.resize(rows.x.n_rows);
        largest_cost_ = 1;
        for (int64_t i = 0; rows.costs && i < rows.x.n_rows; ++i)
            largest_cost_ = std::max({largest_cost_, rows.costs[i].positive, rows.costs[i].negative});
    }

    // positive[i] has the bit of each lane for which row i is a positive, member[i] that of each lane trained on row i
    // (all_rows: every lane is trained on every row). `start` has the vector from which each lane starts, if any. The
    // weights are then in weights().
    void solve(LaneMask lanes, const LaneMask *positive, const LaneMask *member, bool all_rows,
               std::span<const std::span<const Weight>> start = {}) {
        positive_ = positive;
        set_targets(positive, member, all_rows);
        if (objective_.loss == Loss::squared_hinge && rows_.uneven) start_by_descent(lanes, positive, member);
        else if (objective_.loss == Loss::squared_hinge) start_in_plane(positive, member, start);
        else line_.to_zero();
        LaneMask open = lanes;
        for (int newton = 0; open && newton < kMaxNewton; ++newton) {
            for (int64_t i = 0; i < rows_.x.n_rows; ++i) wanted_[i] = member[i] & open;
            const int64_t pairs = find_active_rows(rows_.x.n_rows, objective_.loss, positive, wanted_.data(), line_.z.data(), active_);
            const bool alone = objective_.loss == Loss::squared_hinge && apart(pairs, static_cast<int64_t>(active_.size()));
            open &= ~(alone ? directions_alone(open) : directions_together(open));
            if (open) open &= ~line_.move(open, positive, wanted_.data());
        }
    }

    const LaneVector &weights() const { return line_.w; }

  private:
    static constexpr double kOverlap = 1.5;    // mean lanes per active row from which lock-step is the cheaper way
    static constexpr double kMost = 0.6;       // share of the rows from which it is not worth while to take them out
    static constexpr float kEven = 8;          // the preconditioner is needed where it would exceed 1 by more than this
    static constexpr double kReduction = 0.1; // a lane alone stops at this share of its gradient ...
    static constexpr double kPrecision = 0.5; // ... or at this share of what it is to reach
    static constexpr int kSteps = 3;           // ... or after so many steps

    // Whether so many pairs of active rows and lanes are fewer than serve each other.
    static bool apart(int64_t pairs, int64_t rows) { return static_cast<double>(pairs) < kOverlap * static_cast<double>(rows); }
    int64_t width() const { return static_cast<int64_t>(gradient_.size()); }
    float C() const { return static_cast<float>(objective_.C); }

    static LaneSums row_counts(int64_t n, const LaneMask *rows) {
        LaneSums out;
        for (int64_t i = 0; i < n; ++i)
            for (unsigned left = rows[i]; left; left &= left - 1) out[std::countr_zero(left)] += 1;
        return out;
    }

    // out = sum over rows, in the lanes of mask[i], of x_i (without the bias).
    void sum_rows(const LaneMask *mask, LaneVector &out) const {
        std::fill(out.begin(), out.end(), Lanes{});
        for (int64_t i = 0; i < rows_.x.n_rows; ++i)
            if (mask[i]) add_row(rows_, i, mask[i], out.data());
    }

    // |g| to reach in each lane, from |g(0)| = slope * |sum over members - 2 sum over positives|, which is left in w.
    void set_targets(const LaneMask *positive, const LaneMask *member, bool all_rows) {
        const double n = static_cast<double>(rows_.x.n_rows);
        positives_ = row_counts(rows_.x.n_rows, positive);
        LaneSums members, squared;
        if (all_rows) std::fill_n(members.v, kLanes, n);
        else members = row_counts(rows_.x.n_rows, member);
        sum_rows(positive, line_.w);
        if (!all_rows) sum_rows(member, line_.direction);
        for (int64_t f = 0; f < rows_.x.n_cols; ++f)
            for (int lane = 0; lane < kLanes; ++lane) {
                const double sum = all_rows ? n * mean_->mean[f] : line_.direction[f][lane];
                squared[lane] += (sum - 2 * line_.w[f][lane]) * (sum - 2 * line_.w[f][lane]);
            }
        const double slope = objective_.loss == Loss::logistic ? 0.5 * objective_.C : 2 * objective_.C;
        for (int lane = 0; lane < kLanes; ++lane) {
            const double bias = rows_.bias * (members[lane] - 2 * positives_[lane]);
            target_[lane] = objective_.target(slope * std::sqrt(squared[lane] + bias * bias),
                                              static_cast<int64_t>(positives_[lane]), static_cast<int64_t>(members[lane]));
        }
    }

    // A start from outside would have to be one of the rows' alphas: there is no use for one of weights.
    void start_by_descent(LaneMask lanes, const LaneMask *positive, const LaneMask *member) {
        descent_.solve(rows_, objective_.C, lanes, positive, member, target_, line_.w);
        lane_products_of_all(rows_, *columns_, line_.w.data(), line_.z.data());
    }

    // Puts w at the best point of the plane of the lane's start, or else of the positives' mean (from the sums in w), and
    // of the bias or overall mean.
    void start_in_plane(const LaneMask *positive, const LaneMask *member, std::span<const std::span<const Weight>> start) {
        const int64_t n = rows_.x.n_rows, d = rows_.x.n_cols;
        Lanes share{};
        for (int lane = 0; lane < kLanes; ++lane) share[lane] = static_cast<float>(1 / std::max(positives_[lane], 1.0));
        for (size_t lane = 0; lane < start.size(); ++lane) {
            if (start[lane].empty()) continue;
            const int at = static_cast<int>(lane);
            share[at] = 1;
            for (Lanes &w : line_.w) w[at] = 0;
            for (const Weight &s : start[lane]) line_.w[s.feature][at] = s.value;
        }
        for (int64_t f = 0; f < d; ++f) line_.w[f].v *= share.v;
        lane_products_of_all(rows_, *columns_, line_.w.data(), line_.z.data());
        const bool biased = rows_.bias != 0;
        const std::vector<float> along_v = biased ? std::vector<float>(n, rows_.bias) : mean_->products;
        LaneSums pp, pc;
        double cc = biased ? 1 : 0;
        lane_dots(line_.w.data(), line_.w.data(), d, pp);
        for (int64_t f = 0; f < d && !biased; ++f) {
            cc += static_cast<double>(mean_->mean[f]) * mean_->mean[f];
            for (int lane = 0; lane < kLanes; ++lane) pc[lane] += static_cast<double>(mean_->mean[f]) * line_.w[f][lane];
        }
        Plane plane(objective_.C, pp, pc, cc);
        plane.minimise([&](const Lanes &u, const Lanes &v, PlaneSums &sums) {
            plane_sums(rows_, positive, member, line_.z.data(), along_v.data(), u, v, sums);
        });
        for (int64_t f = 0; f < d; ++f) line_.w[f].v = line_.w[f].v * plane.u.v + (biased ? 0.0f : mean_->mean[f]) * plane.v.v;
        if (biased) line_.w[d] = plane.v;
        for (int64_t i = 0; i < n; ++i) line_.z[i].v = line_.z[i].v * plane.u.v + along_v[i] * plane.v.v;
    }

    // Directions of all open lanes by lock-step conjugate gradients; returns the lanes that are solved.
    LaneMask directions_together(LaneMask open) {
        if (static_cast<int64_t>(active_.size()) < width()) {
            take_columns();
            const float steepest = largest_cost_ * (objective_.loss == Loss::squared_hinge ? 2 * C() : C() / 4);
            if (kDiagonalShare * steepest * columns_of_active_.largest_square() < kEven) return directions_in_span(open);
            std::erase_if(active_, [](const ActiveRow &row) { return !row.lanes; });
        }
        curvature_.resize(rows_.x.n_rows);
        // Only now: most problems never come here, and to touch so much memory takes each thread a while.
        for (LaneVector *v : {&diagonal_, &residual_, &conjugate_, &product_}) v->resize(width());
        lane_gradient(rows_, objective_.loss, C(), positive_, active_, line_.z.data(), line_.w.data(), gradient_.data(),
                      diagonal_.data(), curvature_.data());
        LaneSums squared;
        lane_dots(gradient_.data(), gradient_.data(), width(), squared);
        const LaneMask solved = solved_lanes(squared, Lanes{});
        if (open & ~solved) conjugate_directions(open & ~solved);
        return solved;
    }

    // Directions of the open lanes, each from its own active rows; returns the lanes that are solved.
    LaneMask directions_alone(LaneMask open) {
        // Features without an active row have only their ridge term, least at 0.
        Lanes back;
        for (int lane = 0; lane < kLanes; ++lane) back[lane] = open >> lane & 1 ? -1.0f : 0.0f;
        lane_scale(line_.direction.data(), back, line_.w.data(), width());
        LaneSums squared;
        lane_dots(line_.w.data(), line_.w.data(), width(), squared);
        LaneMask solved = 0;
        for (int lane = 0; lane < kLanes; ++lane)
            if ((open >> lane & 1) && !direction_alone(lane, squared[lane])) solved |= 1u << lane;
        return solved;
    }

    bool direction_alone(int lane, double squared) {
        local_.clear();
        for (const ActiveRow &active : active_)
            if (active.lanes >> lane & 1) local_.add_row(active.row, positive_[active.row] >> lane & 1);
        std::vector<float> &w = local_.weights();
        const std::span<const int32_t> features = local_.features();
        for (size_t f = 0; f < w.size(); ++f) w[f] = line_.w[features[f]][lane];
        const double elsewhere = std::max(0.0, squared - LocalSvm::dot(w, w));
        const double here = local_.gradient(objective_.C);
        if (!(std::sqrt(here * here + elsewhere) > target_[lane])) return false;
        local_.solve(objective_.C, here, std::max(kPrecision * target_[lane], kReduction * here), kSteps);
        for (size_t f = 0; f < w.size(); ++f) line_.direction[features[f]][lane] = w[f] - line_.w[features[f]][lane];
        return true;
    }

    // The columns of the active rows; where these are most rows, of all rows, which are looked through once for all steps.
    void take_columns() {
        const int64_t n = rows_.x.n_rows;
        const bool most = static_cast<double>(active_.size()) >= kMost * static_cast<double>(n) && n < width();
        if (most) {
            std::vector<ActiveRow> all(n);
            for (int64_t i = 0; i < n; ++i) all[i] = {static_cast<int32_t>(i), 0};
            for (const ActiveRow &row : active_) all[row.row] = row;
            active_ = std::move(all);
        }
        if (!(std::exchange(all_taken_, most) && most)) columns_of_active_.take(rows_, *columns_, active_);
    }

    // The same in the space of the active rows, which columns_of_active_ has.
    LaneMask directions_in_span(LaneMask open) {
        Lanes slopes, curves;
        derivatives_in_span(slopes, curves);
        gradient_ = line_.w;
        columns_of_active_.add_rows(slope_.data(), gradient_.data());
        LaneSums squared; // without the bias
        lane_dots(gradient_.data(), gradient_.data(), rows_.x.n_cols, squared);
        Lanes bias{}, share_of_bias{};
        if (rows_.bias != 0) {
            bias.v = gradient_.back().v + slopes.v * rows_.bias;
            gradient_.back() = bias;
            share_of_bias.v = 1.0f / (1.0f + kDiagonalShare * rows_.bias * rows_.bias * curves.v);
        }
        const LaneMask solved = solved_lanes(squared, bias) & open, left = open & ~solved;
        if (!left) return solved;
        if (solved && narrow(left)) return solved | directions_alone(left);
        gz_.resize(active_.size());
        columns_of_active_.products(gradient_.data(), gz_.data());
        span_directions(left, squared, bias, share_of_bias);
        return solved;
    }

    void derivatives_in_span(Lanes &slopes, Lanes &curves) {
        for (LaneVector *v : {&slope_, &curvature_, &weighted_, &image_}) v->resize(active_.size());
        active_derivatives(rows_, objective_.loss, C(), positive_, active_, line_.z.data(), slope_.data(), curvature_.data(), slopes, curves);
    }

    // Leaves the rows that matter in these lanes alone; true where each lane is then better served by itself.
    bool narrow(LaneMask lanes) {
        int64_t pairs = 0, rows = 0;
        for (const ActiveRow &row : active_) {
            pairs += std::popcount(static_cast<LaneMask>(row.lanes & lanes));
            rows += (row.lanes & lanes) != 0;
        }
        const bool alone = objective_.loss == Loss::squared_hinge && apart(pairs, rows);
        if (!alone && static_cast<double>(rows) >= kMost * static_cast<double>(active_.size())) return false;
        std::erase_if(active_, [&](const ActiveRow &row) { return !(row.lanes & lanes); });
        for (ActiveRow &row : active_) row.lanes &= lanes;
        if (alone) return true;
        columns_of_active_.take(rows_, *columns_, active_);
        all_taken_ = false;
        Lanes slopes, curves;
        derivatives_in_span(slopes, curves);
        return false;
    }

    LaneMask solved_lanes(const LaneSums &squared, const Lanes &bias) const {
        LaneMask solved = 0;
        for (int lane = 0; lane < kLanes; ++lane)
            if (!(std::sqrt(squared[lane] + static_cast<double>(bias[lane]) * bias[lane]) > target_[lane])) solved |= 1u << lane;
        return solved;
    }

    // Conjugate gradients as in conjugate_directions, with the vectors of lane_dual.hpp; m: inverse preconditioner of the bias.
    void span_directions(LaneMask open, const LaneSums &squared, const Lanes &gradient_of_bias, const Lanes &m) {
        for (SpanVector *v : {&s_, &r_, &p_}) v->to_zero(gz_.size());
        for (size_t i = 0; i < gz_.size(); ++i) r_.products[i].v = -gz_[i].v;
        r_.a.v -= 1.0f;
        r_.bias.v = -gradient_of_bias.v;
        const auto length = [&](const SpanVector &v, const SpanSums &sums, int lane) {
            const double a = v.a[lane];
            return a * a * squared[lane] + a * sums.along[lane] + sums.across[lane];
        };
        LaneSums rz, share, model;
        for (int lane = 0; lane < kLanes; ++lane) {
            rz[lane] = squared[lane] + static_cast<double>(r_.bias[lane]) * r_.bias[lane] * m[lane];
            share[lane] = std::min(0.5, std::sqrt(std::sqrt(rz[lane])));
        }
        Lanes beta{};
        for (int round = 1; open && round <= kMaxConjugate; ++round) {
            SpanSums sums;
            LaneSums curve, slope;
            p_.a.v = r_.a.v + beta.v * p_.a.v;
            p_.bias.v = r_.bias.v * m.v + beta.v * p_.bias.v;
            span_direction(beta, rows_.bias, curvature_, gz_, r_, p_, weighted_, sums, curve, slope);
            Lanes alpha{};
            for (int lane = 0; lane < kLanes; ++lane) {
                const double bias = p_.bias[lane], all = length(p_, sums, lane) + bias * bias + curve[lane];
                if ((open >> lane & 1) && all > 0) alpha[lane] = static_cast<float>(rz[lane] / all);
                r_.bias[lane] -= alpha[lane] * static_cast<float>(bias + rows_.bias * slope[lane]);
            }
            s_.a.v += alpha.v * p_.a.v;
            s_.bias.v += alpha.v * p_.bias.v;
            for (int lane = 0; lane < kLanes; ++lane) {
                const double gain = -0.5 * alpha[lane] * rz[lane];
                model[lane] += gain;
                if (!(round * gain < share[lane] * model[lane])) open &= ~(1u << lane);
            }
            if (!open) { // nobody asks for the residual: this saves the product with AA'
                lane_add(s_.u.data(), alpha, p_.u.data(), static_cast<int64_t>(gz_.size()));
                break;
            }
            r_.a.v -= alpha.v * p_.a.v;
            columns_of_active_.gram(weighted_.data(), image_.data());
            span_step(alpha, rows_.bias, curvature_, image_, gz_, p_, s_, r_, sums);
            for (int lane = 0; lane < kLanes; ++lane) {
                const double next = length(r_, sums, lane) + static_cast<double>(r_.bias[lane]) * r_.bias[lane] * m[lane];
                if (!(next > 0)) open &= ~(1u << lane);
                beta[lane] = open >> lane & 1 ? static_cast<float>(next / rz[lane]) : 0.0f;
                rz[lane] = next;
            }
        }
        lane_scale(line_.direction.data(), s_.a, gradient_.data(), width());
        columns_of_active_.add_rows(s_.u.data(), line_.direction.data());
        if (rows_.bias != 0) line_.direction.back() = s_.bias;
    }

    // Conjugate gradients on H s = -g until the quadratic model stops improving: t (Q_t - Q_{t-1}) >= share * Q_t.
    void conjugate_directions(LaneMask open) {
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

    Rows rows_{};
    const Columns *columns_ = nullptr;
    const MeanRow *mean_ = nullptr;
    const Objective objective_;
    LaneLine line_;
    LocalSvm local_;
    LaneDescent descent_;
    LaneVector gradient_, diagonal_, residual_, conjugate_, product_; // per feature
    LaneVector curvature_;                                             // per row, or per active row
    ActiveColumns columns_of_active_;
    bool all_taken_ = false; // they are those of all rows
    SpanVector s_, r_, p_;
    LaneVector slope_, gz_, weighted_, image_; // per active row
    std::vector<LaneMask> wanted_;
    std::vector<ActiveRow> active_;
    const LaneMask *positive_ = nullptr;
    LaneSums positives_, target_;
    float largest_cost_ = 1;
};

} // namespace blockxmc
