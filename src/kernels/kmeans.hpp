// Spherical k-means on sparse rows: one Lloyd pass. balanced_tree.hpp starts it where clusters are many.
//
// Rows count by their direction only, so every row is divided by its Euclidean norm on the fly; a zero row stays zero.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.hpp"
#include "group.hpp"
#include "large.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace blockxmc::kmeans {

inline float inverse_norm(const CsrView &X, int64_t i) {
    double sum = 0;
    for (int64_t k = X.indptr[i]; k < X.indptr[i + 1]; ++k) sum += double(X.data[k]) * X.data[k];
    return sum > 0 ? float(1 / std::sqrt(sum)) : 0.0f;
}

// out[c] += sum_k values[k] * table[indices[k]][c] for c < width: the row's products with `width` centroids at once.
BLOCKXMC_CLONES static void add_products(const int32_t *indices, const float *values, int64_t nnz, const float *table,
                                       int64_t width, float *out) {
    for (int64_t k = 0; k < nnz; ++k) {
        const float *row = table + int64_t(indices[k]) * width;
        const float v = values[k];
        for (int64_t c = 0; c < width; ++c) out[c] += v * row[c];
    }
}

// The k nearest clusters of each row, nearest first (ties: lower cluster first), padded with -1 / -inf: rows x k, flat.
struct Nearest {
    Nearest(int64_t n_rows, int64_t k) : k(k), cluster(n_rows * k, -1), cosine(n_rows * k, -std::numeric_limits<float>::infinity()) {}

    // Clusters must be offered in ascending order.
    void offer(int64_t row, int32_t candidate, float value) {
        const int64_t first = row * k;
        int64_t at = first + k - 1;
        if (!(value > cosine[at])) return;
        for (; at > first && value > cosine[at - 1]; --at) {
            cosine[at] = cosine[at - 1];
            cluster[at] = cluster[at - 1];
        }
        cosine[at] = value;
        cluster[at] = candidate;
    }

    int64_t k;
    std::vector<int32_t> cluster;
    std::vector<float> cosine;
};

// One worker's sum of scaled rows: dense, with a list of the features that have been touched.
class FeatureSums {
  public:
    void prepare(int64_t n_features) {
        sum_.resize(n_features, 0.0f);
        seen_.resize(n_features, 0);
    }
    void add(const CsrView &X, int64_t row, float scale) {
        // Without a branch: whether a feature is new cannot be foreseen.
        const int64_t begin = X.indptr[row], size = X.indptr[row + 1] - begin;
        size_t n = touched.size();
        touched.resize(n + size + 1);
        for (int64_t k = begin; k < begin + size; ++k) {
            const int32_t f = X.indices[k];
            touched[n] = f;
            n += !seen_[f];
            seen_[f] = 1;
            sum_[f] += X.data[k] * scale;
        }
        touched.resize(n);
    }
    float operator[](int32_t f) const { return sum_[f]; }

    // Calls use(feature, sum) for the features in `touched`, which the caller may have sorted or shortened, and clears them.
    template <typename Use>
    void flush(Use &&use) {
        for (int32_t f : touched) {
            use(f, sum_[f]);
            forget(f);
        }
        touched.clear();
    }
    void forget(int32_t f) {
        sum_[f] = 0;
        seen_[f] = 0;
    }

    std::vector<int32_t> touched;

  private:
    std::vector<float> sum_;
    std::vector<uint8_t> seen_;
};

// Cluster sums of a slice of clusters, feature-major (d x width), with the inverse norm of each.
class CentroidSlice {
  public:
    CentroidSlice(const CsrView &X, const RowGroups &groups, int64_t first, int64_t width, Unset<float> &table,
                  int threads)
        : first(first), width(width), scale(width, 0.0f), table(table) {
        constexpr int64_t kChunk = 8192;
        const int64_t n_chunks = (X.n_cols + kChunk - 1) / kChunk;
        table.resize(X.n_cols * width);
        constexpr int64_t kRow = 256; // features whose part of the table is cleared at a time
        parallel_for((X.n_cols + kRow - 1) / kRow, threads, [&](int64_t part, int) {
            std::fill(table.begin() + part * kRow * width, table.begin() + std::min((part + 1) * kRow, X.n_cols) * width, 0.0f);
        });
        // Each cluster is summed apart and then written: side by side in the table, threads would wait for each other.
        std::vector<FeatureSums> room(worker_count(width, threads));
        parallel_for(width, threads, [&](int64_t c, int worker) {
            FeatureSums &sums = room[worker];
            sums.prepare(X.n_cols);
            for (int64_t r = groups.begin[first + c]; r < groups.begin[first + c + 1]; ++r)
                sums.add(X, groups.rows[r], inverse_norm(X, groups.rows[r]));
            sums.flush([&](int32_t f, float sum) { table[f * width + c] = sum; });
        });
        std::vector<double> squares(n_chunks * width, 0.0);
        parallel_for(n_chunks, threads, [&](int64_t chunk, int) {
            double *sum = squares.data() + chunk * width;
            for (int64_t f = chunk * kChunk; f < std::min((chunk + 1) * kChunk, X.n_cols); ++f)
                for (int64_t c = 0; c < width; ++c) sum[c] += double(table[f * width + c]) * table[f * width + c];
        });
        for (int64_t c = 0; c < width; ++c) {
            double total = 0;
            for (int64_t chunk = 0; chunk < n_chunks; ++chunk) total += squares[chunk * width + c];
            if (total > 0) scale[c] = float(1 / std::sqrt(total));
        }
    }

    const int64_t first, width;
    std::vector<float> scale; // 0: no direction
    const Unset<float> &table;
};

// The k nearest centroids of each query row; centroid c is the direction of the rows of X with assignment c (-1: none).
// Clusters without rows are never chosen. The centroids are built in slices of at most `budget` floats.
inline Nearest nearest_centroids(const CsrView &X, const int32_t *assignment, int64_t n_clusters, const CsrView &queries,
                                 int64_t k, int64_t budget, int threads, const Watch &watch) {
    const RowGroups groups(assignment, X.n_rows, n_clusters);
    int64_t width = std::clamp<int64_t>(budget / std::max<int64_t>(X.n_cols, 1), 1, n_clusters);
    if (width > 16) width -= width % 16 && width < n_clusters ? width % 16 : 0;
    Nearest out(queries.n_rows, k);
    Unset<float> table;
    constexpr int64_t kChunk = 128;
    const int64_t n_items = (queries.n_rows + kChunk - 1) / kChunk;
    std::vector<std::vector<float>> scratch(worker_count(n_items, threads));
    for (int64_t first = 0; first < n_clusters && !watch.cancelled(); first += width) {
        const CentroidSlice slice(X, groups, first, std::min(width, n_clusters - first), table, threads);
        parallel_for(n_items, threads, [&](int64_t chunk, int worker) {
            if (watch.cancelled()) return;
            auto &scores = scratch[worker];
            for (int64_t i = chunk * kChunk; i < std::min((chunk + 1) * kChunk, queries.n_rows); ++i) {
                scores.assign(slice.width, 0.0f);
                const int64_t begin = queries.indptr[i];
                add_products(queries.indices + begin, queries.data + begin, queries.row_size(i), slice.table.data(),
                             slice.width, scores.data());
                const float norm = inverse_norm(queries, i);
                for (int64_t c = 0; c < slice.width; ++c) {
                    if (groups.begin[first + c] == groups.begin[first + c + 1]) continue;
                    out.offer(i, int32_t(first + c), scores[c] * slice.scale[c] * norm);
                }
            }
            watch.advance(std::min(kChunk, queries.n_rows - chunk * kChunk));
        });
    }
    return out;
}

} // namespace blockxmc::kmeans
