// Spherical k-means on sparse rows: one Lloyd pass for few clusters, a balanced tree of 2-means for many.
//
// Rows count by their direction only, so every row is divided by its Euclidean norm on the fly; a zero row stays zero.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "group.hpp"
#include "random.hpp"
#include "scratch.hpp"
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

// Cluster sums of a slice of clusters, feature-major (d x width), with the inverse norm of each.
class CentroidSlice {
  public:
    CentroidSlice(const CsrView &X, const RowGroups &groups, int64_t first, int64_t width, Large<float> &table,
                  int threads)
        : first(first), width(width), scale(width, 0.0f), table(table) {
        table.assign(X.n_cols * width, 0.0f);
        parallel_for(width, threads, [&](int64_t c, int) {
            for (int64_t r = groups.begin[first + c]; r < groups.begin[first + c + 1]; ++r) {
                const int64_t i = groups.rows[r];
                const float norm = inverse_norm(X, i);
                for (int64_t k = X.indptr[i]; k < X.indptr[i + 1]; ++k) table[X.indices[k] * width + c] += X.data[k] * norm;
            }
        });
        constexpr int64_t kChunk = 8192;
        const int64_t n_chunks = (X.n_cols + kChunk - 1) / kChunk;
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
    const Large<float> &table;
};

// The k nearest centroids of each query row; centroid c is the direction of the rows of X with assignment c (-1: none).
// Clusters without rows are never chosen. The centroids are built in slices of at most `budget` floats.
inline Nearest nearest_centroids(const CsrView &X, const int32_t *assignment, int64_t n_clusters, const CsrView &queries,
                                 int64_t k, int64_t budget, int threads, const Watch &watch) {
    const RowGroups groups(assignment, X.n_rows, n_clusters);
    int64_t width = std::clamp<int64_t>(budget / std::max<int64_t>(X.n_cols, 1), 1, n_clusters);
    if (width > 16) width -= width % 16 && width < n_clusters ? width % 16 : 0;
    Nearest out(queries.n_rows, k);
    Large<float> table;
    constexpr int64_t kChunk = 1024;
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

// One worker's memory for splitting a set of rows in two. The features of the rows are numbered 0, 1, ..., so that the
// iterations run on short dense vectors even where d is large.
class Splitter {
  public:
    Splitter(const CsrView &X, int max_iter) : X_(X), max_iter_(max_iter), local_(X.n_cols, -1) {}

    // Reorders rows[0, n) so that the first n_left of them form the left part; each part ends sorted.
    void split(int64_t *rows, int64_t n, int64_t n_left, int64_t sample, RandomStream random, int threads) {
        threads_ = threads;
        const int64_t n_sample = std::min(n, sample);
        if (n_sample < n)
            for (int64_t i = 0; i < n_sample; ++i) std::swap(rows[i], rows[i + random.below_any(n - i)]);
        gather(rows, n_sample);
        find_direction(n_sample, std::clamp<int64_t>(std::llround(double(n_left) * n_sample / n), 1, n_sample - 1), random);
        order_.resize(n);
        for_items(n, [&](int64_t i) { order_[i] = {project(rows[i]), rows[i]}; });
        std::nth_element(order_.begin(), order_.begin() + n_left, order_.end());
        for (int64_t i = 0; i < n; ++i) rows[i] = order_[i].second;
        std::sort(rows, rows + n_left);
        std::sort(rows + n_left, rows + n);
        for (int32_t f : features_) local_[f] = -1;
    }

  private:
    // The root of a tree has all threads, since no other node can be split beside it; items are rows, or features.
    template <typename Use>
    void for_items(int64_t n, Use &&use) const {
        constexpr int64_t kItems = 512; // of work at a time
        parallel_for((n + kItems - 1) / kItems, threads_, [&](int64_t item, int) {
            for (int64_t i = item * kItems; i < std::min((item + 1) * kItems, n); ++i) use(i);
        });
    }

    void gather(const int64_t *rows, int64_t n) {
        indptr_.assign(1, 0);
        indices_.clear();
        values_.clear();
        features_.clear();
        for (int64_t i = 0; i < n; ++i) {
            const float norm = inverse_norm(X_, rows[i]);
            for (int64_t k = X_.indptr[rows[i]]; k < X_.indptr[rows[i] + 1]; ++k) {
                int32_t &id = local_[X_.indices[k]];
                if (id < 0) {
                    id = int32_t(features_.size());
                    features_.push_back(X_.indices[k]);
                }
                indices_.push_back(id);
                values_.push_back(X_.data[k] * norm);
            }
            indptr_.push_back(int64_t(indices_.size()));
        }
    }

    float product(int64_t i) const {
        float sum = 0;
        for (int64_t k = indptr_[i]; k < indptr_[i + 1]; ++k) sum += values_[k] * direction_[indices_[k]];
        return ordered(sum);
    }

    float project(int64_t row) const {
        float sum = 0;
        for (int64_t k = X_.indptr[row]; k < X_.indptr[row + 1]; ++k)
            if (const int32_t id = local_[X_.indices[k]]; id >= 0) sum += X_.data[k] * direction_[id];
        return ordered(sum * inverse_norm(X_, row));
    }

    // Rows that hold infinities must not break the sort.
    static float ordered(float score) { return std::isnan(score) ? 0.0f : score; }

    // 2-means++ start: a random row, and a second one drawn by its distance from the first.
    void seed_direction(int64_t n, RandomStream &random) {
        direction_.assign(features_.size(), 0.0f);
        const int64_t first = random.below_any(n);
        for (int64_t k = indptr_[first]; k < indptr_[first + 1]; ++k) direction_[indices_[k]] = values_[k];
        std::vector<double> reach(n);
        double total = 0;
        for_items(n, [&](int64_t i) { reach[i] = std::max(0.0, 1.0 - double(product(i))); });
        for (double &each : reach) each = total += each;
        const double mark = random.uniform() * total;
        const int64_t second = std::min<int64_t>(std::upper_bound(reach.begin(), reach.end(), mark) - reach.begin(), n - 1);
        for (float &w : direction_) w = -w;
        for (int64_t k = indptr_[second]; k < indptr_[second + 1]; ++k) direction_[indices_[k]] += values_[k];
    }

    // Alternates "cut the rows at n_left along the direction" and "direction = difference of the two mean directions".
    void find_direction(int64_t n, int64_t n_left, RandomStream &random) {
        seed_direction(n, random);
        side_.assign(n, 2);
        if (threads_ > 1) gather_columns(n);
        for (int iteration = 0; iteration < max_iter_; ++iteration) {
            order_.resize(n);
            for_items(n, [&](int64_t i) { order_[i] = {product(i), i}; });
            std::nth_element(order_.begin(), order_.begin() + n_left, order_.end());
            int64_t moved = 0;
            for (int64_t r = 0; r < n; ++r) {
                uint8_t &side = side_[order_[r].second];
                moved += side != (r >= n_left);
                side = r >= n_left;
            }
            if (moved * 1000 <= n) return;
            update_direction(n);
        }
    }

    // The same rows by column, for threads that share one sum. The rows of a column ascend, so that it is the same sum.
    void gather_columns(int64_t n) {
        column_.assign(features_.size() + 1, 0);
        for (int32_t f : indices_) ++column_[f + 1];
        std::partial_sum(column_.begin(), column_.end(), column_.begin());
        entries_.resize(indices_.size());
        std::vector<int64_t> next(column_.begin(), column_.end() - 1);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = indptr_[i]; k < indptr_[i + 1]; ++k) entries_[next[indices_[k]]++] = {static_cast<int32_t>(i), values_[k]};
    }

    void sum_columns() {
        for_items(static_cast<int64_t>(features_.size()), [&](int64_t f) {
            for (int64_t k = column_[f]; k < column_[f + 1]; ++k) sums_[2 * f + side_[entries_[k].first]] += entries_[k].second;
        });
    }

    void update_direction(int64_t n) {
        sums_.assign(2 * features_.size(), 0.0f);
        if (threads_ > 1) sum_columns();
        else
            for (int64_t i = 0; i < n; ++i)
                for (int64_t k = indptr_[i]; k < indptr_[i + 1]; ++k) sums_[2 * indices_[k] + side_[i]] += values_[k];
        double squares[2] = {0, 0};
        for (size_t f = 0; f < sums_.size(); ++f) squares[f & 1] += double(sums_[f]) * sums_[f];
        const float left = squares[0] > 0 ? float(1 / std::sqrt(squares[0])) : 0.0f;
        const float right = squares[1] > 0 ? float(1 / std::sqrt(squares[1])) : 0.0f;
        for (size_t f = 0; f < direction_.size(); ++f) direction_[f] = right * sums_[2 * f + 1] - left * sums_[2 * f];
    }

    const CsrView &X_;
    const int max_iter_;
    int threads_ = 1;
    std::vector<int32_t> local_;     // feature -> its number here, or -1
    std::vector<int32_t> features_; // the reverse
    std::vector<int64_t> indptr_;
    Large<int32_t> indices_;
    Large<float> values_;
    std::vector<float> direction_, sums_;
    std::vector<int64_t> column_;               // where each feature begins in entries_, where threads share a node
    Large<std::pair<int32_t, float>> entries_; // row and value, column by column
    std::vector<uint8_t> side_;
    std::vector<std::pair<float, int64_t>> order_;
};

// Splits the rows into n_leaves groups of equal size (up to rounding) by a binary tree of balanced 2-means. Leaves are
// numbered from left to right, so with n_leaves = 2^t the coarser levels are leaf >> 1, leaf >> 2, ...
inline std::vector<int32_t> balanced_tree(const CsrView &X, int64_t n_leaves, uint64_t seed, int64_t sample, int max_iter,
                                          int threads, const Watch &watch) {
    struct Node {
        int64_t begin, end, first_leaf, leaves;
        uint64_t id;
    };
    std::vector<int64_t> rows(X.n_rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<int32_t> leaf_of(X.n_rows, 0);
    std::vector<Node> level{{0, X.n_rows, 0, n_leaves, 1}};
    std::vector<std::vector<Splitter>> room(worker_count(n_leaves, threads));
    while (!level.empty() && !watch.cancelled()) {
        std::vector<Node> open;
        for (const Node &node : level) {
            if (node.leaves > 1) {
                open.push_back(node);
                continue;
            }
            for (int64_t r = node.begin; r < node.end; ++r) leaf_of[rows[r]] = int32_t(node.first_leaf);
        }
        std::vector<Node> children(2 * open.size());
        parallel_for(int64_t(open.size()), threads, [&](int64_t item, int worker) {
            const Node &node = open[item];
            const int64_t left_leaves = node.leaves / 2;
            const int64_t middle = node.begin + (node.end - node.begin) * left_leaves / node.leaves;
            children[2 * item] = {node.begin, middle, node.first_leaf, left_leaves, 2 * node.id};
            children[2 * item + 1] = {middle, node.end, node.first_leaf + left_leaves, node.leaves - left_leaves, 2 * node.id + 1};
            if (watch.cancelled()) return;
            if (room[worker].empty()) room[worker].emplace_back(X, max_iter);
            room[worker][0].split(rows.data() + node.begin, node.end - node.begin, middle - node.begin, sample,
                                  RandomStream::of_node(seed, node.id), threads / static_cast<int>(open.size()));
            watch.advance();
        });
        level = std::move(children);
    }
    return leaf_of;
}

} // namespace blockxmc::kmeans
