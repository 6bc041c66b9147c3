// Scores of low-rank weights: (x W) H^T. Each score is summed in an order that does not depend on the number of rows, so
// that one row and many agree bit for bit, which a BLAS does not promise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "csr.hpp"
#include "simd.hpp"

namespace blockxmc::low_rank {

struct View {
    const float *W, *H; // d x rank, labels x rank
    int64_t n_features, n_labels, rank;
};

// Labels are scored a panel at a time, one lane each, from a transposed copy of their rows of H: every score is the plain
// sum over the rank, in order.
constexpr int lanes = 16, panel_vectors = 2, panel = lanes * panel_vectors;
typedef float Lanes __attribute__((vector_size(4 * lanes), aligned(4), may_alias)); // may read an array of floats

template <int Rows>
__attribute__((always_inline)) inline void score_panel(const float *u, const Lanes *h, int64_t rank, float *out,
                                                       int64_t stride, int64_t width) {
    Lanes sums[Rows][panel_vectors] = {};
    for (int64_t p = 0; p < rank; ++p)
        for (int r = 0; r < Rows; ++r)
            for (int v = 0; v < panel_vectors; ++v) sums[r][v] += u[r * rank + p] * h[p * panel_vectors + v];
    for (int r = 0; r < Rows; ++r) std::memcpy(out + r * stride, sums[r], width * sizeof(float));
}

BLOCKXMC_CLONES static void multiply(const float *u, int64_t n_rows, const View &weights, float *out) {
    constexpr int tile = 4;
    std::vector<float> transposed(weights.rank * panel, 0.0f);
    const auto *h = reinterpret_cast<const Lanes *>(transposed.data());
    for (int64_t first = 0; first < weights.n_labels; first += panel) {
        const int64_t width = std::min<int64_t>(panel, weights.n_labels - first);
        for (int64_t j = 0; j < width; ++j)
            for (int64_t p = 0; p < weights.rank; ++p) transposed[p * panel + j] = weights.H[(first + j) * weights.rank + p];
        float *place = out + first;
        int64_t i = 0;
        for (; i + tile <= n_rows; i += tile)
            score_panel<tile>(u + i * weights.rank, h, weights.rank, place + i * weights.n_labels, weights.n_labels, width);
        for (; i < n_rows; ++i)
            score_panel<1>(u + i * weights.rank, h, weights.rank, place + i * weights.n_labels, 0, width);
    }
}

// Scores of all labels for all rows of X; out is n x labels.
inline void scores(const CsrView &X, const View &weights, float *out) {
    std::vector<float> u(X.n_rows * weights.rank, 0.0f);
    for (int64_t i = 0; i < X.n_rows; ++i) {
        float *sum = u.data() + i * weights.rank;
        for (int64_t at = X.indptr[i]; at < X.indptr[i + 1]; ++at) {
            const float *w = weights.W + X.indices[at] * weights.rank;
            for (int64_t p = 0; p < weights.rank; ++p) sum[p] += X.data[at] * w[p];
        }
    }
    multiply(u.data(), X.n_rows, weights, out);
}

} // namespace blockxmc::low_rank
