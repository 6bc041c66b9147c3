// Where sixteen squared-hinge problems start: at the best point of the plane spanned by the mean of the label's positives
// and the bias (without a bias: the mean of all rows). One pass over X finds it, since only products with the two vectors
// are needed, and it already has about the right rows inside the margin.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lane_line.hpp"

namespace blockxmc {

// Mean of all rows, bias included, and its products with the rows.
struct MeanRow {
    MeanRow() = default; // for problems that do not ask for it
    explicit MeanRow(const Rows &rows) : mean(rows.n_features()), products(rows.x.n_rows) {
        std::vector<double> sum(rows.n_features());
        for (int64_t k = 0; k < rows.x.nnz(); ++k) sum[rows.x.indices[k]] += rows.x.data[k];
        if (rows.bias != 0) sum[rows.x.n_cols] = static_cast<double>(rows.bias) * static_cast<double>(rows.x.n_rows);
        const double n = static_cast<double>(std::max<int64_t>(rows.x.n_rows, 1));
        for (size_t f = 0; f < sum.size(); ++f) mean[f] = static_cast<float>(sum[f] / n);
        for (int64_t i = 0; i < rows.x.n_rows; ++i)
            for (int64_t k = rows.x.indptr[i]; k < rows.x.indptr[i + 1]; ++k)
                products[i] += rows.x.data[k] * mean[rows.x.indices[k]];
    }
    std::vector<float> mean, products;
};

// f, its gradient and its Hessian in the plane, without the ridge terms.
struct PlaneSums {
    LaneSums f, u, v, uu, uv, vv;
};

BLOCKXMC_CLONES static void plane_sums(const Rows &rows, const LaneMask *positive, const LaneMask *wanted,
                                          const Lanes *along_u, const float *along_v, const Lanes &u, const Lanes &v,
                                          PlaneSums &out) {
    constexpr int64_t kRun = 16;
    const int64_t n = rows.x.n_rows;
    const FloatLanes zero = {};
    out = PlaneSums{};
    for (int64_t start = 0; start < n; start += kRun) {
        FloatLanes f = {}, gu = {}, gv = {}, uu = {}, uv = {}, vv = {};
        const int64_t stop = start + kRun < n ? start + kRun : n;
        for (int64_t i = start; i < stop; ++i) {
            const FloatLanes zu = along_u[i].v, zv = zero + along_v[i];
            const Cost cost = rows.cost(i);
            FloatLanes sign, counts, e, su, sv;
            choose(positive[i], 1.0f, -1.0f, sign);
            choose(positive[i], cost.positive, cost.negative, counts);
            const FloatLanes miss = 1.0f - sign * (u.v * zu + v.v * zv);
            const IntLanes inside = below(zero, miss) & lanes_of(wanted[i]);
            only_in(inside, miss, e);
            only_in(inside, zu, su);
            only_in(inside, zv, sv);
            f += counts * e * e;
            gu -= counts * sign * e * zu;
            gv -= counts * sign * e * zv;
            uu += counts * su * su;
            uv += counts * su * sv;
            vv += counts * sv * sv;
        }
        for (int lane = 0; lane < kLanes; ++lane) {
            out.f[lane] += f[lane];
            out.u[lane] += gu[lane];
            out.v[lane] += gv[lane];
            out.uu[lane] += uu[lane];
            out.uv[lane] += uv[lane];
            out.vv[lane] += vv[lane];
        }
    }
}

// Minimum over (u, v) of 1/2 |u p + v c|^2 + C sum_i max(0, 1 - s_i (u zp_i + v zc_i))^2, given the products and pp, pc, cc:
// Newton's method, with half the step where the whole one does not help.
class Plane {
  public:
    Plane(double C, const LaneSums &pp, const LaneSums &pc, double cc) : C_(C), pp_(pp), pc_(pc), cc_(cc) {}

    // sums_at(u, v, OUT sums): plane_sums at a point.
    template <typename SumsAt>
    void minimise(SumsAt &&sums_at) {
        Lanes trial_u{}, trial_v{};
        std::fill_n(best_.v, kLanes, INFINITY);
        for (int round = 0; round < kRounds; ++round) {
            PlaneSums sums;
            sums_at(trial_u, trial_v, sums);
            bool improved = false;
            for (int lane = 0; lane < kLanes; ++lane) improved |= consider(lane, sums, trial_u[lane], trial_v[lane]);
            if (!improved) break;
        }
    }

    Lanes u{}, v{}; // OUT

  private:
    static constexpr int kRounds = 8;
    static constexpr double kWorthwhile = 0.05; // a share of f; the start need not be exact

    // Judges the trial point and replaces it by the next one; false when the lane gained little.
    bool consider(int lane, const PlaneSums &sums, float &trial_u, float &trial_v) {
        const double a = trial_u, b = trial_v;
        const double f = 0.5 * (a * a * pp_[lane] + 2 * a * b * pc_[lane] + b * b * cc_) + C_ * sums.f[lane];
        if (!(f < best_[lane])) {
            trial_u = 0.5f * (trial_u + u[lane]);
            trial_v = 0.5f * (trial_v + v[lane]);
            return f > best_[lane];
        }
        const bool worthwhile = !(f > (1 - kWorthwhile) * best_[lane]);
        best_[lane] = f;
        u[lane] = trial_u;
        v[lane] = trial_v;
        const double gu = a * pp_[lane] + b * pc_[lane] + 2 * C_ * sums.u[lane];
        const double gv = a * pc_[lane] + b * cc_ + 2 * C_ * sums.v[lane];
        const double uu = pp_[lane] + 2 * C_ * sums.uu[lane], uv = pc_[lane] + 2 * C_ * sums.uv[lane];
        const double vv = cc_ + 2 * C_ * sums.vv[lane], determinant = uu * vv - uv * uv;
        if (determinant > 1e-9 * uu * vv) {
            trial_u -= static_cast<float>((vv * gu - uv * gv) / determinant);
            trial_v -= static_cast<float>((uu * gv - uv * gu) / determinant);
        } else if (vv > 0) {
            trial_v -= static_cast<float>(gv / vv);
        }
        return worthwhile;
    }

    const double C_;
    const LaneSums pp_, pc_;
    const double cc_;
    LaneSums best_;
};

} // namespace blockxmc
