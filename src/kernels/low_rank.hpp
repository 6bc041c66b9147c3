// Scores through a bottleneck: (x W) H^T. Each score is summed in the same order whatever the number of rows at hand, so
// that one row and many agree bit for bit, which a BLAS does not promise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "csr.hpp"
#include "topk.hpp"

struct LowRankView {
    const float *W, *H; // d x rank, labels x rank
    int64_t n_features, n_labels, rank;
};

// Products of n_rows <= Rows vectors u with one vector h: 16 partial sums each, added in order.
template <int Rows>
__attribute__((always_inline)) inline void dot_rows(const float *u, const float *h, int64_t rank, float *out, int64_t stride) {
    constexpr int lanes = 16;
    float sums[Rows][lanes] = {};
    int64_t p = 0;
    for (; p + lanes <= rank; p += lanes)
        for (int r = 0; r < Rows; ++r)
            for (int l = 0; l < lanes; ++l) sums[r][l] += u[r * rank + p + l] * h[p + l];
    for (int r = 0; r < Rows; ++r) {
        for (int64_t l = 0; p + l < rank; ++l) sums[r][l] += u[r * rank + p + l] * h[p + l];
        float total = 0;
        for (int l = 0; l < lanes; ++l) total += sums[r][l];
        out[r * stride] = total;
    }
}

BLOCKXMC_SIMD static void multiply(const float *u, int64_t n_rows, const LowRankView &weights, float *out) {
    constexpr int tile = 4;
    for (int64_t i = 0; i < n_rows; i += tile) {
        for (int64_t j = 0; j < weights.n_labels; ++j) {
            const float *h = weights.H + j * weights.rank, *first = u + i * weights.rank;
            float *place = out + i * weights.n_labels + j;
            if (i + tile <= n_rows)
                dot_rows<tile>(first, h, weights.rank, place, weights.n_labels);
            else
                for (int64_t r = 0; r < n_rows - i; ++r)
                    dot_rows<1>(first + r * weights.rank, h, weights.rank, place + r * weights.n_labels, 0);
        }
    }
}

// Scores of all labels for all rows of X; out is n x labels.
inline void low_rank_scores(const CsrView &X, const LowRankView &weights, float *out) {
    std::vector<float> u(X.n_rows * weights.rank, 0.0f);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        float *sum = u.data() + i * weights.rank;
        for (int64_t at = X.indptr[i]; at < X.indptr[i + 1]; ++at) {
            if (X.indices[at] < 0 || X.indices[at] >= weights.n_features)
                throw std::invalid_argument("a feature is out of range");
            const float *w = weights.W + X.indices[at] * weights.rank;
            for (int64_t p = 0; p < weights.rank; ++p) sum[p] += X.data[at] * w[p];
        }
    }
    multiply(u.data(), X.n_rows, weights, out);
}
