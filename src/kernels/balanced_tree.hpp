// A balanced tree of 2-means on sparse rows: equally large leaves, at a cost that grows with the logarithm of their number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "csr.hpp"
#include "float_order.hpp"
#include "kmeans.hpp"
#include "random.hpp"
#include "large.hpp"
#include "threads.hpp"

namespace blockxmc::kmeans {

// One worker's memory for splitting a set of rows in two. The features of the rows are numbered 0, 1, ..., so that the
// iterations run on short dense vectors even where d is large.
class Splitter {
  public:
    // `norms`: the inverse norm of each row.
    Splitter(const CsrView &X, const std::vector<float> &norms, int max_iter) : X_(X), norms_(norms), max_iter_(max_iter), local_(X.n_cols, -1) {}

    // Reorders rows[0, n), which ascend, so that the first n_left of them form the left part; the rows of each part ascend.
    void split(int64_t *rows, int64_t n, int64_t n_left, int64_t sample, RandomStream random, int threads) {
        threads_ = threads;
        const int64_t n_sample = std::min(n, sample);
        rows_.assign(rows, rows + n);
        if (n_sample < n)
            for (int64_t i = 0; i < n_sample; ++i) std::swap(rows_[i], rows_[i + random.below_any(n - i)]);
        gather(n_sample);
        find_direction(n_sample, std::clamp<int64_t>(std::llround(double(n_left) * n_sample / n), 1, n_sample - 1), random);
        cut(n, n_left, [&](int64_t begin, int64_t end, float *scores) {
            for (int64_t i = begin; i < end; ++i) *scores++ = project(rows[i]);
        });
        rows_.assign(rows, rows + n);
        int64_t *next[2] = {rows, rows + n_left};
        for (int64_t i = 0; i < n; ++i) *next[keys_[i] >= first_right_]++ = rows_[i];
        for (int32_t f : features_) local_[f] = -1;
    }

  private:
    static constexpr int64_t kItems = 128; // rows, or features, that are worked on at a time

    // The root of a tree has all threads, since no other node can be split beside it.
    template <typename Use>
    void for_items(int64_t n, Use &&use) const {
        parallel_for((n + kItems - 1) / kItems, threads_, [&](int64_t item, int) {
            for (int64_t i = item * kItems; i < std::min((item + 1) * kItems, n); ++i) use(i);
        });
    }

    // Calls use(feature) for each entry of rows_[begin, end).
    template <typename Use>
    void for_features(int64_t begin, int64_t end, Use &&use) const {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t k = X_.indptr[rows_[i]]; k < X_.indptr[rows_[i] + 1]; ++k) use(X_.indices[k]);
    }

    void number(int32_t feature) {
        int32_t &id = local_[feature];
        if (id >= 0) return;
        id = int32_t(features_.size());
        features_.push_back(feature);
    }

    // Numbers the features of the first n of rows_ in the order in which they come. Threads find what is new in each part of
    // the rows; part after part, the first of all is found among these.
    void number_features(int64_t n) {
        features_.clear();
        if (threads_ == 1) return for_features(0, n, [&](int32_t f) { number(f); });
        const int64_t per_part = (n + threads_ - 1) / threads_;
        std::vector<std::vector<int32_t>> found(threads_);
        parallel_for(threads_, threads_, [&](int64_t part, int) {
            std::vector<char> seen(X_.n_cols, 0);
            for_features(std::min(part * per_part, n), std::min((part + 1) * per_part, n), [&](int32_t f) {
                if (!seen[f]) found[part].push_back(f);
                seen[f] = 1;
            });
        });
        for (const std::vector<int32_t> &part : found)
            for (const int32_t f : part) number(f);
    }

    // The first n of rows_ with their features numbered.
    void gather(int64_t n) {
        number_features(n);
        indptr_.assign(1, 0);
        for (int64_t i = 0; i < n; ++i) indptr_.push_back(indptr_.back() + X_.row_size(rows_[i]));
        indices_.resize(indptr_.back());
        values_.resize(indptr_.back());
        for_items(n, [&](int64_t i) {
            const int64_t begin = X_.indptr[rows_[i]];
            const float norm = norms_[rows_[i]];
            for (int64_t k = begin, to = indptr_[i]; to < indptr_[i + 1]; ++k, ++to) {
                indices_[to] = local_[X_.indices[k]];
                values_[to] = X_.data[k] * norm;
            }
        });
    }

    float product(int64_t i) const {
        float sum = 0;
        for (int64_t k = indptr_[i]; k < indptr_[i + 1]; ++k) sum += values_[k] * direction_[indices_[k]];
        return sum;
    }

    // The products of four rows, each summed as product() does: one row's sum waits for itself at every step, four do not.
    void four_products(int64_t i, float *out) const {
        const int32_t *index[4];
        const float *value[4], *const direction = direction_.data();
        int64_t size[4];
        for (int r = 0; r < 4; ++r) {
            index[r] = indices_.data() + indptr_[i + r];
            value[r] = values_.data() + indptr_[i + r];
            size[r] = indptr_[i + r + 1] - indptr_[i + r];
        }
        const int64_t shared = std::min(std::min(size[0], size[1]), std::min(size[2], size[3]));
        float a = 0, b = 0, c = 0, d = 0;
        for (int64_t k = 0; k < shared; ++k) {
            a += value[0][k] * direction[index[0][k]];
            b += value[1][k] * direction[index[1][k]];
            c += value[2][k] * direction[index[2][k]];
            d += value[3][k] * direction[index[3][k]];
        }
        const float sums[4] = {a, b, c, d};
        for (int r = 0; r < 4; ++r) {
            float sum = sums[r];
            for (int64_t k = shared; k < size[r]; ++k) sum += value[r][k] * direction[index[r][k]];
            out[r] = sum;
        }
    }

    // Those of rows begin to end.
    void products(int64_t begin, int64_t end, float *out) const {
        for (; begin + 4 <= end; begin += 4, out += 4) four_products(begin, out);
        for (; begin < end; ++begin) *out++ = product(begin);
    }

    float project(int64_t row) const {
        float sum = 0;
        for (int64_t k = X_.indptr[row]; k < X_.indptr[row + 1]; ++k)
            if (const int32_t id = local_[X_.indices[k]]; id >= 0) sum += X_.data[k] * direction_[id];
        return sum * norms_[row];
    }

    // Makes keys_ of the scores of n items, which scores_of(begin, end, scores) writes; those of the n_left lowest are below
    // first_right_. Of equal scores the earlier item is lower. Rows that hold infinities have no score, which counts as 0.
    template <typename ScoresOf>
    void cut(int64_t n, int64_t n_left, ScoresOf &&scores_of) {
        keys_.resize(n);
        parallel_for((n + kItems - 1) / kItems, threads_, [&](int64_t item, int) {
            float scores[kItems];
            const int64_t begin = item * kItems, end = std::min((item + 1) * kItems, n);
            scores_of(begin, end, scores);
            for (int64_t i = begin; i < end; ++i) {
                const float score = scores[i - begin];
                keys_[i] = uint64_t(rising_bits(std::isnan(score) ? 0.0f : score)) << 32 | uint64_t(i);
            }
        });
        ordered_ = keys_;
        std::nth_element(ordered_.begin(), ordered_.begin() + n_left, ordered_.end());
        first_right_ = ordered_[n_left];
    }

    // 2-means++ start: a random row, and a second one drawn by its distance from the first.
    void seed_direction(int64_t n, RandomStream &random) {
        direction_.assign(features_.size(), 0.0f);
        const int64_t first = random.below_any(n);
        for (int64_t k = indptr_[first]; k < indptr_[first + 1]; ++k) direction_[indices_[k]] = values_[k];
        std::vector<double> reach(n);
        double total = 0;
        for_items(n, [&](int64_t i) {
            const float near = product(i);
            reach[i] = std::max(0.0, 1.0 - (std::isnan(near) ? 0.0 : double(near)));
        });
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
            cut(n, n_left, [&](int64_t begin, int64_t end, float *scores) { products(begin, end, scores); });
            int64_t moved = 0;
            for (int64_t i = 0; i < n; ++i) {
                const uint8_t side = keys_[i] >= first_right_;
                moved += side_[i] != side;
                side_[i] = side;
            }
            if (moved * 1000 <= n) return;
            update_direction(n);
        }
    }

    // The same rows by column, for threads that share one sum. The rows of a column ascend, so that it is the same sum.
    // Each thread counts, and later places, the entries of its own part of the rows.
    void gather_columns(int64_t n) {
        const int64_t n_features = static_cast<int64_t>(features_.size()), per_part = (n + threads_ - 1) / threads_;
        std::vector<std::vector<int32_t>> next(threads_);
        const auto for_entries = [&](int64_t part, auto &&use) {
            for (int64_t i = std::min(part * per_part, n); i < std::min((part + 1) * per_part, n); ++i)
                for (int64_t k = indptr_[i]; k < indptr_[i + 1]; ++k) use(i, k);
        };
        parallel_for(threads_, threads_, [&](int64_t part, int) {
            next[part].assign(n_features, 0);
            for_entries(part, [&](int64_t, int64_t k) { ++next[part][indices_[k]]; });
        });
        column_.assign(n_features + 1, 0);
        for_items(n_features, [&](int64_t f) { // how many of a column stand before those of each part
            int32_t sum = 0;
            for (auto &count : next) sum += std::exchange(count[f], sum);
            column_[f + 1] = sum;
        });
        std::partial_sum(column_.begin(), column_.end(), column_.begin());
        // Words that come first are frequent: work items of equally many columns would be far from equal.
        const int64_t per_item = static_cast<int64_t>(indices_.size()) / (8 * threads_) + 1;
        column_items_.assign(1, 0);
        for (int64_t f = 1; f <= n_features; ++f)
            if (f == n_features || column_[f] - column_[column_items_.back()] >= per_item) column_items_.push_back(f);
        entries_.resize(indices_.size());
        parallel_for(threads_, threads_, [&](int64_t part, int) {
            for_entries(part, [&](int64_t i, int64_t k) {
                entries_[column_[indices_[k]] + next[part][indices_[k]]++] = {static_cast<int32_t>(i), values_[k]};
            });
        });
    }

    void sum_columns() {
        parallel_for(static_cast<int64_t>(column_items_.size()) - 1, threads_, [&](int64_t item, int) {
            for (int64_t f = column_items_[item]; f < column_items_[item + 1]; ++f)
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
    const std::vector<float> &norms_;
    const int max_iter_;
    int threads_ = 1;
    std::vector<int64_t> rows_;     // of the node: those of the sample first
    std::vector<int32_t> local_;    // feature -> its number here, or -1
    std::vector<int32_t> features_; // the reverse
    std::vector<int64_t> indptr_;
    Large<int32_t> indices_;
    Large<float> values_;
    std::vector<float> direction_, sums_;
    std::vector<int64_t> column_items_;        // where the work items of sum_columns begin
    std::vector<int64_t> column_;              // where each feature begins in entries_, where threads share a node
    Large<std::pair<int32_t, float>> entries_; // row and value, column by column
    std::vector<uint8_t> side_;
    std::vector<uint64_t> keys_, ordered_; // score and place of each item, as they come and half sorted
    uint64_t first_right_ = 0;
};

// Rows that become so many leaves of the tree.
struct Node {
    int64_t begin, end, first_leaf, leaves;
    uint64_t id;

    int64_t left_leaves() const { return leaves / 2; }
    int64_t middle() const { return begin + (end - begin) * left_leaves() / leaves; }
    Node left() const { return {begin, middle(), first_leaf, left_leaves(), 2 * id}; }
    Node right() const { return {middle(), end, first_leaf + left_leaves(), leaves - left_leaves(), 2 * id + 1}; }
};

inline std::vector<Node> children_of(const std::vector<Node> &level) {
    std::vector<Node> children;
    for (const Node &node : level) children.insert(children.end(), {node.left(), node.right()});
    return children;
}

// Splits the rows into n_leaves groups of equal size (up to rounding) by a binary tree of balanced 2-means. Leaves are
// numbered from left to right, so with n_leaves = 2^t the coarser levels are leaf >> 1, leaf >> 2, ...
inline std::vector<int32_t> balanced_tree(const CsrView &X, int64_t n_leaves, uint64_t seed, int64_t sample, int max_iter,
                                          int threads, const Watch &watch) {
    std::vector<float> norms(X.n_rows);
    constexpr int64_t kRows = 1024;
    parallel_for((X.n_rows + kRows - 1) / kRows, threads, [&](int64_t part, int) {
        for (int64_t i = part * kRows; i < std::min((part + 1) * kRows, X.n_rows); ++i) norms[i] = inverse_norm(X, i);
    });
    std::vector<Node> level{{0, X.n_rows, 0, n_leaves, 1}};
    std::vector<int64_t> rows(X.n_rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<int32_t> leaf_of(X.n_rows, 0);
    std::vector<std::vector<Splitter>> room(worker_count(n_leaves, threads));
    const auto split = [&](const Node &node, int worker, int inside) {
        if (room[worker].empty()) room[worker].emplace_back(X, norms, max_iter);
        room[worker][0].split(rows.data() + node.begin, node.end - node.begin, node.middle() - node.begin, sample,
                              RandomStream::of_node(seed, node.id), inside);
        watch.advance();
    };
    const auto grow = [&](auto &&again, const Node &node, int worker) -> void {
        if (watch.cancelled()) return;
        if (node.leaves == 1) {
            for (int64_t r = node.begin; r < node.end; ++r) leaf_of[rows[r]] = int32_t(node.first_leaf);
            return;
        }
        split(node, worker, 1);
        again(again, node.left(), worker);
        again(again, node.right(), worker);
    };
    // Where nodes are few, threads share each of them; from then on each thread grows whole subtrees, and waits for nobody.
    const auto few = [&] { // and none of them is a leaf
        const auto n_nodes = int64_t(level.size());
        return threads > 1 && n_nodes < 2 * threads && 2 * n_nodes <= n_leaves;
    };
    while (few() && !watch.cancelled()) {
        parallel_for(int64_t(level.size()), threads, [&](int64_t item, int worker) {
            // Two threads would spend on sharing all that they save.
            const int inside = threads > 2 ? std::max(1, threads / static_cast<int>(level.size())) : 1;
            if (!watch.cancelled()) split(level[item], worker, inside);
        });
        level = children_of(level);
    }
    parallel_for(int64_t(level.size()), threads, [&](int64_t item, int worker) { grow(grow, level[item], worker); });
    return leaf_of;
}

} // namespace blockxmc::kmeans
