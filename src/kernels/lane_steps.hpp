// What Newton's method for sixteen lanes does row by row and feature by feature: active rows, gradients, conjugate steps.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "lane_line.hpp"

namespace blockxmc {

// Rows that matter in some wanted lane (inside the margin; with the logistic loss all of them), and how often they do.
BLOCKXMC_CLONES static int64_t find_active_rows(int64_t n, Loss loss, const LaneMask *positive, const LaneMask *wanted,
                                                   const Lanes *z, std::vector<ActiveRow> &out) {
    out.clear();
    int64_t total = 0;
    for (int64_t i = 0; i < n; ++i) {
        ActiveRow found{static_cast<int32_t>(i), 0};
        if (loss == Loss::logistic) {
            found.lanes = wanted[i];
        } else {
            FloatLanes sign;
            choose(positive[i], 1.0f, -1.0f, sign);
            found.lanes = mask_of(below(sign * z[i].v, FloatLanes{} + 1.0f)) & wanted[i];
        }
        if (!found.lanes) continue;
        total += std::popcount(found.lanes);
        out.push_back(found);
    }
    return total;
}

// Gradient and diagonal of the Hessian at the cached products z.
BLOCKXMC_CLONES static void lane_gradient(const Rows &rows, Loss loss, float C, const LaneMask *positive,
                                             const std::vector<ActiveRow> &active, const Lanes *z, const Lanes *w,
                                             Lanes *gradient, Lanes *diagonal, Lanes *curvature) {
    const int64_t d = rows.n_features();
    const FloatLanes zero = {};
    for (int64_t f = 0; f < d; ++f) {
        gradient[f].v = w[f].v;
        diagonal[f].v = zero + 1.0f;
    }
    FloatLanes slope_sum = {}, curve_sum = {};
    for (const auto [i, lanes] : active) {
        FloatLanes first, second;
        loss_derivatives(loss, rows.cost(i, C), positive[i], lanes, z[i].v, first, second);
        curvature[i].v = second;
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
BLOCKXMC_CLONES static void conjugate_step(int64_t d, const Lanes &alpha, const Lanes *p, const Lanes *q, const Lanes *m,
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
BLOCKXMC_CLONES static void next_direction(int64_t d, const Lanes &beta, const Lanes *r, const Lanes *m, Lanes *p) {
    for (int64_t f = 0; f < d; ++f) p[f].v = r[f].v * m[f].v + beta.v * p[f].v;
}

// Inverse of the preconditioner in place of the diagonal; s = 0; r = -g; p = r / m; returns g . g / m
BLOCKXMC_CLONES static void conjugate_start(int64_t d, const Lanes *gradient, Lanes *m, Lanes *s, Lanes *r, Lanes *p,
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

BLOCKXMC_CLONES static void add_row(const Rows &rows, int64_t i, LaneMask lanes, Lanes *out) {
    FloatLanes one_or_none;
    choose(lanes, 1.0f, 0.0f, one_or_none);
    row_scatter(rows, i, one_or_none, out);
}

} // namespace blockxmc
