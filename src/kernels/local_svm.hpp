// One squared-hinge problem on a small set of rows, copied out of X with its own feature numbers, so that all costs grow with
// these rows and not with the size of X.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "lane_descent.hpp"
#include "lane_start.hpp"
#include "local_features.hpp"

namespace blockxmc {

// Scalar product in double, in eight sums.
BLOCKXMC_CLONES static double dot_product(const float *a, const float *b, size_t n) {
    double sums[8] = {};
    size_t f = 0;
    for (; f + 8 <= n; f += 8)
        for (int j = 0; j < 8; ++j) sums[j] += static_cast<double>(a[f + j]) * b[f + j];
    for (; f < n; ++f) sums[0] += static_cast<double>(a[f]) * b[f];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// s += alpha p; r -= alpha q; q = r m
BLOCKXMC_CLONES static void step_along(float alpha, const float *p, const float *m, size_t n, float *s, float *r, float *q) {
    for (size_t f = 0; f < n; ++f) {
        s[f] += alpha * p[f];
        r[f] -= alpha * q[f];
        q[f] = r[f] * m[f];
    }
}

// p = q + beta p
BLOCKXMC_CLONES static void turn(float beta, const float *q, size_t n, float *p) {
    for (size_t f = 0; f < n; ++f) p[f] = q[f] + beta * p[f];
}

// a += t b
BLOCKXMC_CLONES static void add_scaled(float t, const float *b, size_t n, float *a) {
    for (size_t f = 0; f < n; ++f) a[f] += t * b[f];
}

// m = 1 / (1 + share m)
BLOCKXMC_CLONES static void invert(float share, size_t n, float *m) {
    for (size_t f = 0; f < n; ++f) m[f] = 1.0f / (1.0f + share * m[f]);
}

class LocalSvm {
  public:
    explicit LocalSvm(const Rows &rows) : rows_(rows), features_(rows.n_features()) {}

    // Rows are among these from now on.
    void take(const Rows &rows) {
        rows_ = rows;
        features_.make_room(rows.n_features());
    }

    // Starts an empty problem.
    void clear() {
        features_.clear();
        start_.assign(1, 0);
        sign_.clear();
        cost_.clear();
        w_.clear();
    }

    void add_row(int64_t i, bool positive) {
        add_row(i, positive ? 1.0f : -1.0f, positive ? rows_.cost(i).positive : rows_.cost(i).negative);
    }

    // A row that is to have the product `sign`, or more of it; 0 is to be kept as it is, on either side.
    void add_row(int64_t i, float sign, float cost) {
        const int64_t begin = rows_.x.indptr[i], size = rows_.x.indptr[i + 1] - begin;
        const size_t first = start_.back(), end = first + size + (rows_.bias != 0);
        if (end > entries_.size()) entries_.resize(2 * end);
        Weight *entry = entries_.data() + first;
        const float *value = rows_.x.data + begin;
        features_.numbers(rows_.x.indices + begin, size, [=](int64_t k, int32_t number) { entry[k] = {number, value[k]}; });
        if (rows_.bias != 0) entry[size] = {features_.number(static_cast<int32_t>(rows_.x.n_cols)), rows_.bias};
        start_.push_back(static_cast<int64_t>(end));
        sign_.push_back(sign);
        cost_.push_back(cost);
    }

    // The features of the rows, in the local numbering that weights() shares.
    std::span<const int32_t> features() const { return features_.list(); }
    // Where a feature stands among them, -1 where no row has it.
    int32_t number_of(int32_t feature) const { return features_.find(feature); }
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

    // |g| at the present weights; prepares solve().
    double gradient(double C) {
        weights();
        z_.resize(n_rows());
        for (int64_t i = 0; i < n_rows(); ++i) z_[i] = product(i, w_);
        return gradient_at_products(C);
    }

    // |g| where the weights are changes of others that give the rows these products; prepares solve().
    double gradient_of_change(double C, std::span<const float> products) {
        w_.assign(features_.size(), 0.0f);
        z_.assign(products.begin(), products.end());
        return gradient_at_products(C);
    }

    // |g| at the best point of the plane of the bias and the `start` (where there is none, the positives' mean), where it
    // puts the weights; prepares solve().
    double gradient_in_plane(double C, std::span<const Weight> start = {}) {
        w_.assign(features_.size(), 0.0f);
        const int64_t n = n_rows();
        for (const Weight &s : start)
            if (const int32_t at = features_.find(s.feature); at >= 0) w_[at] = s.value;
        for (int64_t i = 0; i < n && start.empty(); ++i)
            if (sign_[i] > 0) scatter(i, 1.0f, w_);
        const int64_t counted = start.empty() ? std::count(sign_.begin(), sign_.end(), 1.0f) : 1;
        const auto positives = static_cast<float>(std::max<int64_t>(counted, 1));
        float without_bias = 0, *bias = &without_bias;
        if (rows_.bias != 0 && n) bias = &w_[features_.number(static_cast<int32_t>(rows_.x.n_cols))];
        *bias = 0;
        for (float &value : w_) value /= positives;
        z_.resize(n);
        for (int64_t i = 0; i < n; ++i) z_[i] = product(i, w_);
        LaneSums squared;
        squared[0] = dot(w_, w_);
        Plane plane(C, squared, LaneSums{}, 1);
        plane.minimise([&](const Lanes &u, const Lanes &v, PlaneSums &sums) { plane_sums_alone(u[0], v[0] * rows_.bias, sums); });
        for (float &value : w_) value *= plane.u[0];
        *bias = plane.v[0];
        for (int64_t i = 0; i < n; ++i) z_[i] = plane.u[0] * z_[i] + plane.v[0] * rows_.bias;
        return gradient_at_products(C);
    }

    // |g| where lane_descent.hpp's passes end, the same for one problem, where it puts the weights; prepares solve().
    double gradient_by_descent(double C, double target) {
        w_.assign(features_.size(), 0.0f);
        const int64_t n = n_rows();
        std::vector<float> alpha(n, 0.0f), squares(n, 0.0f);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = start_[i]; k < start_[i + 1]; ++k) squares[i] += entries_[k].value * entries_[k].value;
        std::vector<int32_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        RandomStream random(0);
        double left = INFINITY;
        for (int pass = 0; !(std::sqrt(left) <= kPassesEnd * target) && pass < kMaxPasses; ++pass) {
            random.shuffle(order);
            left = 0;
            for (int32_t i : order) {
                const float counts = 2.0f * static_cast<float>(C) * cost_[i], wish = counts * (1.0f - sign_[i] * product(i, w_));
                const float old = alpha[i], off = std::max(0.0f, wish) - old;
                left += static_cast<double>(off) * off * squares[i];
                alpha[i] = std::max(0.0f, old + (wish - old) / (1.0f + counts * squares[i]));
                if (alpha[i] != old) scatter(i, sign_[i] * (alpha[i] - old), w_);
            }
        }
        return this->gradient(C);
    }

    // Newton steps from where gradient() was called, which gave `gradient`, until |g| <= target, no more than `steps`.
    void solve(double C, double gradient, double target, int steps = kMaxNewton) {
        for (; gradient > target && steps > 0; --steps) {
            find_direction(C);
            const double ss = dot(direction_, direction_), ws = dot(w_, direction_), ww = dot(w_, w_);
            const double t = step_length(C, dot(gradient_, direction_), ws, ss);
            add_scaled(static_cast<float>(t), direction_.data(), w_.size(), w_.data());
            add_scaled(static_cast<float>(t), step_.data(), z_.size(), z_.data());
            if (!(t * std::sqrt(ss) > kNoProgress * std::sqrt(ww))) break;
            compute_gradient(static_cast<float>(C));
            gradient = std::sqrt(dot(gradient_, gradient_));
        }
    }

    static double dot(const std::vector<float> &a, const std::vector<float> &b) {
        return dot_product(a.data(), b.data(), a.size());
    }

  private:
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

    // plane_sums of the one problem: z_ are the products with the mean, the bias adds `shift` to each row.
    void plane_sums_alone(float u, float shift, PlaneSums &out) const {
        double f = 0, gu = 0, gv = 0, uu = 0, uv = 0, vv = 0;
        for (int64_t i = 0; i < n_rows(); ++i) {
            const float miss = 1.0f - sign_[i] * (u * z_[i] + shift), inside = miss > 0 ? 1.0f : 0.0f;
            const double e = inside * miss, slope = cost_[i] * sign_[i] * e, su = cost_[i] * inside * z_[i];
            f += cost_[i] * e * e;
            gu -= slope * z_[i];
            gv -= slope;
            uu += su * z_[i];
            uv += su;
            vv += cost_[i] * inside;
        }
        const double b = rows_.bias;
        out.f[0] = f;
        out.u[0] = gu;
        out.v[0] = gv * b;
        out.uu[0] = uu;
        out.uv[0] = uv * b;
        out.vv[0] = vv * b * b;
    }

    double gradient_at_products(double C) {
        step_.resize(n_rows());
        compute_gradient(static_cast<float>(C));
        return std::sqrt(dot(gradient_, gradient_));
    }

    // Gradient, preconditioner and active rows at the cached products z.
    void compute_gradient(float C) {
        gradient_ = w_;
        inverse_.assign(w_.size(), 0.0f);
        active_.clear();
        for (int64_t i = 0; i < n_rows(); ++i) {
            if (sign_[i] * z_[i] >= 1.0f) continue;
            active_.push_back(static_cast<int32_t>(i));
            const float slope = -2.0f * C * cost_[i] * (sign_[i] - z_[i]);
            for (int64_t k = start_[i]; k < start_[i + 1]; ++k) {
                const Weight e = entries_[k];
                gradient_[e.feature] += slope * e.value;
                inverse_[e.feature] += cost_[i] * e.value * e.value;
            }
        }
        invert(kDiagonalShare * 2.0f * C, inverse_.size(), inverse_.data());
    }

    // Conjugate gradients on H s = -g, H = I + 2C A'A, until the quadratic model stops improving; fills direction_ (s) and
    // step_ (its products with all rows: for active rows a by-product of the products with H).
    void find_direction(double C) {
        const size_t d = w_.size();
        const float twice_C = static_cast<float>(2 * C);
        direction_.assign(d, 0.0f);
        residual_.resize(d);
        conjugate_.resize(d);
        for (size_t f = 0; f < d; ++f) {
            residual_[f] = -gradient_[f];
            conjugate_[f] = residual_[f] * inverse_[f];
        }
        double rz = dot(residual_, conjugate_), model = 0;
        const double share = std::min(0.5, std::sqrt(std::sqrt(rz)));
        products_.resize(active_.size());
        for (int32_t i : active_) step_[i] = 0;
        for (int round = 1; round <= kMaxConjugate; ++round) {
            image_ = conjugate_;
            for (size_t a = 0; a < active_.size(); ++a) {
                products_[a] = product(active_[a], conjugate_);
                scatter(active_[a], twice_C * cost_[active_[a]] * products_[a], image_);
            }
            const double curve = dot(conjugate_, image_);
            if (!(curve > 0)) break;
            const float alpha = static_cast<float>(rz / curve);
            for (size_t a = 0; a < active_.size(); ++a) step_[active_[a]] += alpha * products_[a];
            step_along(alpha, conjugate_.data(), inverse_.data(), d, direction_.data(), residual_.data(), image_.data());
            const double gain = -0.5 * alpha * rz;
            model += gain;
            if (!(round * gain < share * model)) break;
            const double next = dot(residual_, image_);
            const float beta = static_cast<float>(next / rz);
            turn(beta, image_.data(), d, conjugate_.data());
            rz = next;
        }
        for (int64_t i = 0; i < n_rows(); ++i)
            if (sign_[i] * z_[i] >= 1.0f) step_[i] = product(i, direction_);
    }

    double step_length(double C, double gs, double ws, double ss) const {
        StepSearch search(gs);
        for (int trial = 0; search.searching() && trial < kMaxLineSearch; ++trial) {
            const float t = static_cast<float>(search.t());
            double slope = 0;
            for (int64_t i = 0; i < n_rows(); ++i) {
                const float there = z_[i] + t * step_[i], miss = 1.0f - sign_[i] * there;
                if (miss > 0) slope -= static_cast<double>(cost_[i] * sign_[i] * step_[i]) * miss;
                if (sign_[i] == 0) slope += static_cast<double>(cost_[i] * step_[i]) * there;
            }
            search.tell(ws + t * ss + 2 * C * slope);
        }
        search.give_up();
        return search.t();
    }

    Rows rows_;
    LocalFeatures features_;
    std::vector<int32_t> active_;
    std::vector<int64_t> start_{0};
    Large<Weight> entries_; // .feature is local here; those before start_.back() are in use
    std::vector<float> sign_, cost_, z_, step_;                                       // per row
    std::vector<float> products_;                                                     // per active row
    std::vector<float> w_, gradient_, inverse_, direction_, residual_, conjugate_, image_; // per local feature
};

} // namespace blockxmc
