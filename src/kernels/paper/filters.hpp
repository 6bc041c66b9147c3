// Label filters, training: a direction w and, per label, an interval on the line such that rows that carry the label
// project into it and as many other rows as possible do not.
//
// Objective of one filter, with the hinge h(a) = max(0, 1 - a), the projection p_i = w.x_i, and labels ordered on the
// line by the mean projection of their rows:
//     decay/2 |w|^2 + sum_i { own * sum_{c in y_i} [h(p_i - l_c) + h(u_c - p_i)]
//                           + sum_{c not in y_i, not yet filtered for i} [a_ic h(l_c - p_i) + b_ic h(p_i - u_c)] }
// where a_ic and b_ic count the labels of row i that lie left and right of c.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "random.hpp"
#include "threads.hpp"

namespace blockxmc {

// Intervals and row projections of the filters trained so far (filter-major).
struct EarlierFilters {
    const float *lower, *upper; // n_filters x m
    const float *projections;    // n_filters x n
    int64_t n_filters, n_labels, n_rows;

    // The pair still has to be separated: no earlier filter has removed the label for this row.
    bool keeps(int64_t row, int64_t label) const {
        for (int64_t f = 0; f < n_filters; ++f) {
            const float p = projections[f * n_rows + row];
            if (!(lower[f * n_labels + label] < p && p <= upper[f * n_labels + label])) return false;
        }
        return true;
    }
};

// The labels on the line: the mean projection of their rows, and the order of these means.
struct LabelOrder {
    std::vector<double> mean;
    std::vector<int32_t> rank; // ties to the lower label id; labels without rows come last
    std::vector<int64_t> counts;

    void update(const CsrView &y, const float *projection) {
        mean.assign(y.n_cols, 0.0);
        counts.assign(y.n_cols, 0);
        for (int64_t i = 0; i < y.n_rows; ++i)
            for (int64_t e = y.indptr[i]; e < y.indptr[i + 1]; ++e) {
                mean[y.indices[e]] += projection[i];
                ++counts[y.indices[e]];
            }
        std::vector<int32_t> order(y.n_cols);
        std::iota(order.begin(), order.end(), 0);
        for (int64_t c = 0; c < y.n_cols; ++c)
            mean[c] = counts[c] ? mean[c] / static_cast<double>(counts[c]) : std::numeric_limits<double>::infinity();
        std::sort(order.begin(), order.end(),
                  [&](int32_t a, int32_t b) { return mean[a] < mean[b] || (mean[a] == mean[b] && a < b); });
        rank.resize(y.n_cols);
        for (int64_t r = 0; r < y.n_cols; ++r) rank[order[r]] = static_cast<int32_t>(r);
    }
};

inline double project_row(const CsrView &x, int64_t row, const double *w) {
    double p = 0;
    for (int64_t e = x.indptr[row]; e < x.indptr[row + 1]; ++e) p += x.data[e] * w[x.indices[e]];
    return p;
}

} // namespace blockxmc
