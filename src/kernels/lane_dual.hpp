// Conjugate gradients of sixteen lanes in the space of the active rows, for problems with fewer active rows than features.
//
// All vectors of the method lie in the span of the gradient g and the active rows A: v = a g + A'u. It is enough to keep a, u
// and the products A v of each. A round then needs one pass over the columns of A, which reads and writes vectors as long as
// A has rows and none as long as it has features; a column with a single active row is only a number on the diagonal of AA'.
// The bias stands apart, since it alone has a preconditioner: rows with features of very different scale need one for these
// too, and are better served in the space of the features.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lane_line.hpp"

namespace blockxmc {

// The active rows A by columns, without the bias; columns with a single row are kept apart.
class ActiveColumns {
  public:
    void take(const Rows &rows, const Columns &columns, const std::vector<ActiveRow> &active) {
        const auto n = static_cast<int32_t>(active.size());
        position_.assign(rows.x.n_rows, -1);
        for (int32_t a = 0; a < n; ++a) position_[active[a].row] = a;
        diagonal_.assign(n, 0.0f);
        row_.resize(columns.row.size());
        value_.resize(columns.row.size());
        start_.assign(1, 0);
        feature_.clear();
        single_.clear();
        largest_square_ = 0;
        int64_t at = 0;
        for (int64_t f = 0; f < rows.x.n_cols; ++f) {
            const int64_t first = at;
            for (int64_t k = columns.start[f]; k < columns.start[f + 1]; ++k) {
                const int32_t a = position_[columns.row[k]];
                row_[at] = a;
                value_[at] = columns.value[k];
                at += a >= 0;
            }
            largest_square_ = std::max(largest_square_, sum_of_squares(first, at));
            if (at - first == 1) {
                diagonal_[row_[first]] += value_[first] * value_[first];
                single_.push_back({static_cast<int32_t>(f), row_[first], value_[first]});
                at = first;
            } else if (at != first) {
                feature_.push_back(static_cast<int32_t>(f));
                start_.push_back(at);
            }
        }
    }

    // The largest sum of the squares in a column.
    float largest_square() const { return largest_square_; }
    // out = AA'v
    void gram(const Lanes *v, Lanes *out) const { gram_product(*this, v, out); }
    // features += A'v
    void add_rows(const Lanes *v, Lanes *features) const { sum(*this, v, features); }
    // out = A features
    void products(const Lanes *features, Lanes *out) const { products_of_rows(*this, features, out); }

  private:
    // In four sums: one would wait for itself.
    float sum_of_squares(int64_t first, int64_t end) const {
        float sums[4] = {};
        const float *value = value_.data();
        for (; first + 4 <= end; first += 4)
            for (int j = 0; j < 4; ++j) sums[j] += value[first + j] * value[first + j];
        for (; first < end; ++first) sums[0] += value[first] * value[first];
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    struct Single {
        int32_t feature, row;
        float value;
    };

    BLOCKXMC_INLINE void column_sum(size_t c, const Lanes *v, FloatLanes &out) const {
        const int32_t *row = row_.data();
        const float *value = value_.data();
        int64_t k = start_[c];
        const int64_t end = start_[c + 1];
        FloatLanes even = v[row[k]].v * value[k], odd = v[row[k + 1]].v * value[k + 1];
        for (k += 2; k + 1 < end; k += 2) {
            even += v[row[k]].v * value[k];
            odd += v[row[k + 1]].v * value[k + 1];
        }
        if (k < end) even += v[row[k]].v * value[k];
        out = even + odd;
    }

    BLOCKXMC_INLINE void column_scatter(size_t c, const FloatLanes &scale, Lanes *out) const {
        for (int64_t k = start_[c]; k < start_[c + 1]; ++k) out[row_[k]].v += scale * value_[k];
    }

    BLOCKXMC_CLONES static void gram_product(const ActiveColumns &a, const Lanes *v, Lanes *out) {
        for (size_t i = 0; i < a.diagonal_.size(); ++i) out[i].v = v[i].v * a.diagonal_[i];
        for (size_t c = 0; c < a.feature_.size(); ++c) {
            FloatLanes sum;
            a.column_sum(c, v, sum);
            a.column_scatter(c, sum, out);
        }
    }

    BLOCKXMC_CLONES static void products_of_rows(const ActiveColumns &a, const Lanes *features, Lanes *out) {
        for (size_t i = 0; i < a.diagonal_.size(); ++i) out[i].v = FloatLanes{};
        for (size_t c = 0; c < a.feature_.size(); ++c) a.column_scatter(c, features[a.feature_[c]].v, out);
        for (const Single &s : a.single_) out[s.row].v += features[s.feature].v * s.value;
    }

    BLOCKXMC_CLONES static void sum(const ActiveColumns &a, const Lanes *v, Lanes *features) {
        for (size_t c = 0; c < a.feature_.size(); ++c) {
            FloatLanes sum;
            a.column_sum(c, v, sum);
            features[a.feature_[c]].v += sum;
        }
        for (const Single &s : a.single_) features[s.feature].v += v[s.row].v * s.value;
    }

    std::vector<int32_t> position_; // of a row among the active ones, -1: not active
    std::vector<float> diagonal_;   // per active row: squares of the features that no other one has
    std::vector<int32_t> feature_;  // of each column with several rows
    std::vector<int64_t> start_;    // of the column in row_ and value_
    Large<int32_t> row_;
    Large<float> value_;
    std::vector<Single> single_;
    float largest_square_ = 0;
};

// A vector a g + A'u of features, its number for the bias, and its products with the active rows without the bias.
struct SpanVector {
    Lanes a, bias;
    LaneVector u, products;

    void to_zero(size_t n) {
        a = bias = Lanes{};
        u.assign(n, Lanes{});
        products.assign(n, Lanes{});
    }
};

// Derivatives of the loss in the active rows, and their sums.
BLOCKXMC_CLONES static void active_derivatives(const Rows &rows, Loss loss, float C, const LaneMask *positive,
                                               const std::vector<ActiveRow> &active, const Lanes *z, Lanes *first, Lanes *second, Lanes &first_sum,
                                               Lanes &second_sum) {
    first_sum = second_sum = Lanes{};
    for (size_t a = 0; a < active.size(); ++a) {
        const auto [i, lanes] = active[a];
        loss_derivatives(loss, rows.cost(i, C), positive[i], lanes, z[i].v, first[a].v, second[a].v);
        first_sum.v += first[a].v;
        second_sum.v += second[a].v;
    }
}

// What scalar products in the span need: sums of gz u and u z over the rows.
struct SpanSums {
    LaneSums along, across;
};

// s += alpha p; r -= alpha H p, where pz are all products of p, `curvature` is D and `image` is AA'D pz; sums of r.
BLOCKXMC_CLONES static void span_step(const Lanes &alpha, float bias, const LaneVector &curvature, const LaneVector &image,
                                      const LaneVector &gz, const SpanVector &p, SpanVector &s, SpanVector &r, SpanSums &out) {
    FloatSums along, across;
    const FloatLanes shift = p.bias.v * bias;
    for (size_t i = 0; i < gz.size(); ++i) {
        s.u[i].v += alpha.v * p.u[i].v;
        const FloatLanes pz = p.products[i].v;
        const FloatLanes u = r.u[i].v - alpha.v * (p.u[i].v + curvature[i].v * (pz + shift));
        const FloatLanes z = r.products[i].v - alpha.v * (pz + image[i].v);
        r.u[i].v = u;
        r.products[i].v = z;
        along.add(gz[i].v * u);
        across.add(u * z);
    }
    along.finish(out.along);
    across.finish(out.across);
}

// p = r + beta p in the rows; weighted = D pz; sums of p, of pz D pz and of D pz.
BLOCKXMC_CLONES static void span_direction(const Lanes &beta, float bias, const LaneVector &curvature, const LaneVector &gz,
                                           const SpanVector &r, SpanVector &p, LaneVector &weighted, SpanSums &out,
                                           LaneSums &curve, LaneSums &slope) {
    FloatSums along, across, curves, slopes;
    const FloatLanes shift = p.bias.v * bias;
    for (size_t i = 0; i < gz.size(); ++i) {
        const FloatLanes u = r.u[i].v + beta.v * p.u[i].v, z = r.products[i].v + beta.v * p.products[i].v;
        const FloatLanes all = z + shift, bent = curvature[i].v * all;
        p.u[i].v = u;
        p.products[i].v = z;
        weighted[i].v = bent;
        along.add(gz[i].v * u);
        across.add(u * z);
        curves.add(bent * all);
        slopes.add(bent);
    }
    along.finish(out.along);
    across.finish(out.across);
    curves.finish(curve);
    slopes.finish(slope);
}

} // namespace blockxmc
