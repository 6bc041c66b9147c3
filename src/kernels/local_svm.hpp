// One squared-hinge problem on a small set of rows, copied out of X with its own feature numbering, so that everything
// costs in proportion to those rows and nothing to the size of X.
//
// Newton's step H s = -g with H = I + 2C A'A (A: the rows inside the margin) is solved in the space of the active rows:
// s = -g + A'c with (AA' + I/2C) c = A g (Woodbury). A truncated solution is still a descent direction, vectors of the
// conjugate gradients have the length of the active set, and A s = -(residual + c/2C) comes without a product.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep.hpp"

struct Weight {
    int32_t feature;
    float value;
};

class LocalSvm {
  public:
    explicit LocalSvm(const Rows &rows) : rows_(rows), slot_(rows.n_features(), -1) {}

    // Starts an empty problem.
    void clear() {
        for (int32_t f : features_) slot_[f] = -1;
        features_.clear();
        entries_.clear();
        start_.assign(1, 0);
        sign_.clear();
        norm_.clear();
        w_.clear();
    }

    void add_row(int64_t i, float sign) {
        double norm = 0;
        for (int64_t k = rows_.x.indptr[i]; k < rows_.x.indptr[i + 1]; ++k) norm += add_entry(rows_.x.indices[k], rows_.x.data[k]);
        if (rows_.bias != 0) norm += add_entry(static_cast<int32_t>(rows_.x.n_cols), rows_.bias);
        start_.push_back(static_cast<int64_t>(entries_.size()));
        sign_.push_back(sign);
        norm_.push_back(static_cast<float>(norm));
    }

    // The features of the rows, in the local numbering that weights() shares.
    const std::vector<int32_t> &features() const { return features_; }
    std::vector<float> &weights() {
        w_.resize(features_.size(), 0.0f);
        return w_;
    }
    int64_t n_rows() const { return static_cast<int64_t>(sign_.size()); }

    // |g(0)| over the rows of this problem.
    double gradient_at_zero(double C) {
        gradient_.assign(features_.size(), 0.0f);
        for (int64_t i = 0; i < n_rows(); ++i) scatter(i, -2.0f * static_cast<float>(C) * sign_[i], gradient_);
        return std::sqrt(dot(gradient_, gradient_));
    }

    // Minimises from the present weights until |g| <= target; says whether the weights moved.
    bool solve(double C, double target) {
        weights();
        z_.resize(n_rows());
        step_.resize(n_rows());
        for (int64_t i = 0; i < n_rows(); ++i) z_[i] = product(i, w_);
        bool moved = false;
        for (int newton = 0; newton < kMaxNewton; ++newton) {
            compute_gradient(static_cast<float>(C));
            const double gradient = std::sqrt(dot(gradient_, gradient_));
            if (!(gradient > target)) break;
            find_direction(C, std::min(kResidualShare, std::sqrt(target / gradient)));
            const double ss = dot(direction_, direction_), ws = dot(w_, direction_), ww = dot(w_, w_);
            const double t = search(C, dot(gradient_, direction_), ws, ss);
            for (size_t f = 0; f < w_.size(); ++f) w_[f] += static_cast<float>(t) * direction_[f];
            for (int64_t i = 0; i < n_rows(); ++i) z_[i] += static_cast<float>(t) * step_[i];
            moved |= t > 0;
            if (!(t * std::sqrt(ss) > kNoProgress * std::sqrt(ww))) break;
        }
        return moved;
    }

  private:
    static constexpr double kResidualShare = 0.25;  // conjugate gradients stop at this share of the first residual

    double add_entry(int32_t feature, float value) {
        int32_t &slot = slot_[feature];
        if (slot < 0) {
            slot = static_cast<int32_t>(features_.size());
            features_.push_back(feature);
        }
        entries_.push_back({slot, value});
        return static_cast<double>(value) * value;
    }

    float product(int64_t i, const std::vector<float> &v) const {
        float a = 0, b = 0, c = 0, e = 0;
        const Weight *p = entries_.data() + start_[i], *end = entries_.data() + start_[i + 1];
        for (; p + 4 <= end; p += 4) {
            a += p[0].value * v[p[0].feature];
            b += p[1].value * v[p[1].feature];
            c += p[2].value * v[p[2].feature];
            e += p[3].value * v[p[3].feature];
        }
        for (; p < end; ++p) a += p->value * v[p->feature];
        return (a + b) + (c + e);
    }

    void scatter(int64_t i, float scale, std::vector<float> &out) const {
        for (int64_t k = start_[i]; k < start_[i + 1]; ++k) out[entries_[k].feature] += scale * entries_[k].value;
    }

    static double dot(const std::vector<float> &a, const std::vector<float> &b) {
        double sums[8] = {};
        size_t f = 0;
        for (; f + 8 <= a.size(); f += 8)
            for (int j = 0; j < 8; ++j) sums[j] += static_cast<double>(a[f + j]) * b[f + j];
        for (; f < a.size(); ++f) sums[0] += static_cast<double>(a[f]) * b[f];
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }

    void compute_gradient(float C) {
        gradient_ = w_;
        active_.clear();
        for (int64_t i = 0; i < n_rows(); ++i) {
            if (sign_[i] * z_[i] >= 1.0f) continue;
            active_.push_back(static_cast<int32_t>(i));
            scatter(i, -2.0f * C * (sign_[i] - z_[i]), gradient_);
        }
    }

    // u = A'v, then out = A u + v/2C
    void kernel_product(double C, const std::vector<float> &v, std::vector<float> &out) {
        scratch_.assign(w_.size(), 0.0f);
        for (size_t a = 0; a < active_.size(); ++a) scatter(active_[a], v[a], scratch_);
        const float ridge = static_cast<float>(0.5 / C);
        for (size_t a = 0; a < active_.size(); ++a) out[a] = product(active_[a], scratch_) + ridge * v[a];
    }

    // Fills direction_ (features) and step_ (its products with all rows).
    void find_direction(double C, double share) {
        const size_t n = active_.size();
        const float ridge = static_cast<float>(0.5 / C);
        for (auto *v : {&solution_, &residual_, &conjugate_, &image_, &inverse_}) v->resize(n);
        double rz = 0;
        for (size_t a = 0; a < n; ++a) {
            solution_[a] = 0;
            residual_[a] = product(active_[a], gradient_);
            inverse_[a] = 1.0f / (norm_[active_[a]] + ridge);
            conjugate_[a] = residual_[a] * inverse_[a];
            rz += static_cast<double>(residual_[a]) * conjugate_[a];
        }
        const double goal = share * share * rz;
        for (int round = 0; rz > goal && round < kMaxConjugate; ++round) {
            kernel_product(C, conjugate_, image_);
            const double curve = dot(conjugate_, image_);
            if (!(curve > 0)) break;
            const float alpha = static_cast<float>(rz / curve);
            double next = 0;
            for (size_t a = 0; a < n; ++a) {
                solution_[a] += alpha * conjugate_[a];
                residual_[a] -= alpha * image_[a];
                next += static_cast<double>(residual_[a]) * residual_[a] * inverse_[a];
            }
            const float beta = static_cast<float>(next / rz);
            for (size_t a = 0; a < n; ++a) conjugate_[a] = residual_[a] * inverse_[a] + beta * conjugate_[a];
            rz = next;
        }
        direction_.resize(w_.size());
        for (size_t f = 0; f < w_.size(); ++f) direction_[f] = -gradient_[f];
        for (size_t a = 0; a < n; ++a) scatter(active_[a], solution_[a], direction_);
        size_t a = 0;
        for (int64_t i = 0; i < n_rows(); ++i) {
            if (a < n && active_[a] == i) {
                step_[i] = -(residual_[a] + ridge * solution_[a]);
                ++a;
            } else {
                step_[i] = product(i, direction_);
            }
        }
    }

    double search(double C, double gs, double ws, double ss) const {
        double t = gs < 0 ? 1 : 0;
        for (int trial = 0; t > 0 && trial < kMaxLineSearch; ++trial) {
            double slope = 0;
            for (int64_t i = 0; i < n_rows(); ++i) {
                const float miss = 1.0f - sign_[i] * (z_[i] + static_cast<float>(t) * step_[i]);
                if (miss > 0) slope -= static_cast<double>(sign_[i] * step_[i]) * miss;
            }
            const double along = ws + t * ss + 2 * C * slope;
            if (along <= -kSlopeShare * gs) return t;
            t *= gs / (gs - along);
        }
        return 0;
    }

    const Rows rows_;
    std::vector<int32_t> slot_;  // feature -> local number, -1: not in this problem
    std::vector<int32_t> features_, active_;
    std::vector<int64_t> start_{0};
    std::vector<Weight> entries_;                                             // .feature is local here
    std::vector<float> sign_, norm_, z_, step_;                               // per row
    std::vector<float> w_, gradient_, direction_, scratch_;                   // per local feature
    std::vector<float> solution_, residual_, conjugate_, image_, inverse_;    // per active row
};
