// FastXML trees: every node splits its rows into two sides that each rank their labels well (nDCG), then learns a sparse
// linear separator of the sides, which decides where each row goes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "l1_logistic.hpp"
#include "random.hpp"
#include "topk.hpp"
#include "threads.hpp"

namespace blockxmc {

// Rows with their labels renumbered 0..n_labels-1 (ascending in the original ids), and each row's 1 / ideal DCG.
struct NodeLabels {
    std::vector<int64_t> ptr;
    std::vector<int32_t> labels;
    std::vector<double> row_gain;
    int32_t n_labels = 0;

    int32_t n_rows() const { return static_cast<int32_t>(ptr.size()) - 1; }
};

inline double discount(int64_t rank) { return 1 / std::log2(static_cast<double>(rank) + 2); } // rank from 0

inline double inverse_ideal_dcg(int64_t n_labels) {
    double ideal = 0;
    for (int64_t r = 0; r < n_labels; ++r) ideal += discount(r);
    return n_labels ? 1 / ideal : 0;
}

// Alternates between ranking the labels of either side and moving each row to the side that ranks its labels better.
// Both steps are exact, so the mean nDCG (appended to `trace` after every move step) never falls.
class RankingSplit {
  public:
    void run(const NodeLabels &node, std::vector<int8_t> &side, std::vector<double> *trace = nullptr) {
        double previous = -1;
        for (;;) {
            rank_labels(node, side);
            const double ndcg = move_rows(node, side);
            if (trace) trace->push_back(ndcg);
            if (ndcg - previous < 1e-6) return;
            previous = ndcg;
        }
    }

  private:
    std::vector<double> gain_[2], discount_[2];
    std::vector<int32_t> order_;

    void rank_labels(const NodeLabels &node, const std::vector<int8_t> &side) {
        for (int s = 0; s < 2; ++s) gain_[s].assign(node.n_labels, 0.0);
        for (int32_t i = 0; i < node.n_rows(); ++i) {
            auto &gain = gain_[side[i] > 0];
            for (int64_t e = node.ptr[i]; e < node.ptr[i + 1]; ++e) gain[node.labels[e]] += node.row_gain[i];
        }
        order_.resize(node.n_labels);
        for (int s = 0; s < 2; ++s) {
            const auto &gain = gain_[s];
            discount_[s].resize(node.n_labels);
            for (int32_t j = 0; j < node.n_labels; ++j) order_[j] = j;
            std::sort(order_.begin(), order_.end(),
                      [&](int32_t a, int32_t b) { return gain[a] > gain[b] || (gain[a] == gain[b] && a < b); });
            for (int32_t r = 0; r < node.n_labels; ++r) discount_[s][order_[r]] = discount(r);
        }
    }

    double move_rows(const NodeLabels &node, std::vector<int8_t> &side) const {
        double total = 0;
        for (int32_t i = 0; i < node.n_rows(); ++i) {
            double minus = 0, plus = 0;
            for (int64_t e = node.ptr[i]; e < node.ptr[i + 1]; ++e) {
                minus += discount_[0][node.labels[e]];
                plus += discount_[1][node.labels[e]];
            }
            if (plus != minus) side[i] = plus > minus ? 1 : -1;
            total += node.row_gain[i] * std::max(plus, minus);
        }
        return total / std::max(node.n_rows(), 1);
    }
};

struct FastXmlOptions {
    int64_t max_leaf;     // rows
    int64_t leaf_labels; // labels kept per leaf
    double cost;          // C of the separators
    float bias;           // value of the constant feature; 0: without it
};

// Nodes in preorder. An inner node has children and weights but no labels; a leaf has labels only.
struct Tree {
    std::vector<int32_t> children, depth; // two per node (minus, plus), -1 in a leaf
    std::vector<int64_t> feature_ptr{0}, label_ptr{0};
    std::vector<int32_t> features, labels;
    std::vector<float> weights, bias, label_scores;
    std::vector<int64_t> n_rows;
};

class TreeGrower {
  public:
    TreeGrower(const CsrView &x, const CsrView &y, const FastXmlOptions &options)
        : x_(x), y_(y), options_(options), local_feature_(x.n_cols, -1), local_label_(y.n_cols, -1) {}

    Tree grow(uint64_t seed, const Watch &watch) {
        RandomStream random(seed);
        Tree tree;
        rows_.resize(x_.n_rows);
        for (int64_t i = 0; i < x_.n_rows; ++i) rows_[i] = static_cast<int32_t>(i);
        std::vector<Pending> stack{{0, x_.n_rows, -1, 0}};
        while (!stack.empty() && !watch.cancelled()) {
            const Pending task = stack.back();
            stack.pop_back();
            const auto id = static_cast<int32_t>(tree.depth.size());
            if (task.parent_slot >= 0) tree.children[task.parent_slot] = id;
            tree.children.insert(tree.children.end(), {-1, -1});
            tree.depth.push_back(task.depth);
            tree.n_rows.push_back(task.end - task.begin);
            tree.bias.push_back(0);
            const int64_t middle = split(task.begin, task.end, random, tree);
            if (middle < 0) {
                write_leaf(tree);
                watch.advance(task.end - task.begin);
            } else {
                stack.push_back({middle, task.end, 2 * static_cast<int64_t>(id) + 1, task.depth + 1});
                stack.push_back({task.begin, middle, 2 * static_cast<int64_t>(id), task.depth + 1});
            }
            tree.feature_ptr.push_back(static_cast<int64_t>(tree.features.size()));
            tree.label_ptr.push_back(static_cast<int64_t>(tree.labels.size()));
        }
        return tree;
    }

  private:
    struct Pending {
        int64_t begin, end, parent_slot;
        int32_t depth;
    };

    CsrView x_, y_;
    FastXmlOptions options_;
    std::vector<int32_t> rows_, swap_;
    std::vector<int32_t> local_feature_, local_label_; // global id -> id within the node, -1 when absent
    std::vector<int32_t> node_features_, node_label_ids_;
    NodeLabels node_;
    Columns columns_;
    std::vector<int8_t> side_;
    std::vector<double> margin_;
    RankingSplit ranking_;
    L1Logistic solver_;

    // Reorders rows_[begin, end) so that the minus side comes first and returns where the plus side starts; -1: a leaf.
    int64_t split(int64_t begin, int64_t end, RandomStream &random, Tree &tree) {
        gather_labels(begin, end);
        if (end - begin <= options_.max_leaf || all_rows_alike()) return -1;
        side_.resize(end - begin);
        for (auto &s : side_) s = (random.next() >> 63) ? 1 : -1;
        ranking_.run(node_, side_);
        const auto plus = std::count(side_.begin(), side_.end(), int8_t{1});
        const double n = static_cast<double>(side_.size());
        if (plus == 0 || plus == static_cast<int64_t>(side_.size())) return -1;
        gather_columns(begin, end);
        separate(solver_.solve(columns_, side_, options_.cost * n / plus, options_.cost * n / (n - plus), random), tree);
        const auto right = std::count_if(margin_.begin(), margin_.end(), [](double z) { return z >= 0; });
        if (right == 0 || right == static_cast<int64_t>(margin_.size())) {
            tree.features.resize(tree.feature_ptr.back());
            tree.weights.resize(tree.feature_ptr.back());
            tree.bias.back() = 0;
            return -1;
        }
        swap_.assign(rows_.begin() + begin, rows_.begin() + end);
        int64_t minus_at = begin, plus_at = end - right;
        for (size_t i = 0; i < swap_.size(); ++i) rows_[margin_[i] >= 0 ? plus_at++ : minus_at++] = swap_[i];
        return end - right;
    }

    void gather_labels(int64_t begin, int64_t end) {
        for (int32_t j : node_label_ids_) local_label_[j] = -1;
        node_label_ids_.clear();
        for (int64_t r = begin; r < end; ++r)
            for (int64_t e = y_.indptr[rows_[r]]; e < y_.indptr[rows_[r] + 1]; ++e)
                if (local_label_[y_.indices[e]] < 0) {
                    local_label_[y_.indices[e]] = 0;
                    node_label_ids_.push_back(y_.indices[e]);
                }
        std::sort(node_label_ids_.begin(), node_label_ids_.end());
        node_.n_labels = static_cast<int32_t>(node_label_ids_.size());
        for (int32_t j = 0; j < node_.n_labels; ++j) local_label_[node_label_ids_[j]] = j;
        node_.ptr.assign(1, 0);
        node_.labels.clear();
        node_.row_gain.clear();
        for (int64_t r = begin; r < end; ++r) {
            for (int64_t e = y_.indptr[rows_[r]]; e < y_.indptr[rows_[r] + 1]; ++e)
                node_.labels.push_back(local_label_[y_.indices[e]]);
            node_.ptr.push_back(static_cast<int64_t>(node_.labels.size()));
            node_.row_gain.push_back(inverse_ideal_dcg(y_.row_size(rows_[r])));
        }
    }

    // All leaves below such a node would have the same label vector: a split cannot change any prediction.
    bool all_rows_alike() const {
        return static_cast<int64_t>(node_.labels.size()) == static_cast<int64_t>(node_.n_labels) * node_.n_rows();
    }

    // The node's rows by column, over the features present in it; the constant feature, if any, comes last.
    void gather_columns(int64_t begin, int64_t end) {
        node_features_.clear();
        auto &ptr = columns_.ptr;
        ptr.assign(2, 0); // counts of column j at ptr[j + 2] while filling, so that they end up as starts
        for (int64_t r = begin; r < end; ++r)
            for (int64_t e = x_.indptr[rows_[r]]; e < x_.indptr[rows_[r] + 1]; ++e) {
                int32_t &local = local_feature_[x_.indices[e]];
                if (local < 0) {
                    local = static_cast<int32_t>(node_features_.size());
                    node_features_.push_back(x_.indices[e]);
                    ptr.push_back(0);
                }
                ++ptr[local + 2];
            }
        if (options_.bias != 0) ptr.push_back(end - begin);
        for (size_t j = 2; j < ptr.size(); ++j) ptr[j] += ptr[j - 1];
        columns_.entries.resize(ptr.back());
        columns_.n_rows = static_cast<int32_t>(end - begin);
        for (int64_t r = begin; r < end; ++r) {
            const auto row = static_cast<int32_t>(r - begin);
            for (int64_t e = x_.indptr[rows_[r]]; e < x_.indptr[rows_[r] + 1]; ++e)
                columns_.entries[ptr[local_feature_[x_.indices[e]] + 1]++] = {row, x_.data[e]};
            if (options_.bias != 0) columns_.entries[ptr[node_features_.size() + 1]++] = {row, options_.bias};
        }
        ptr.pop_back();
        for (int32_t f : node_features_) local_feature_[f] = -1;
    }

    // Writes the separator to the tree and the margins of the node's rows, summed as prediction sums them.
    void separate(const std::vector<double> &w, Tree &tree) {
        swap_.clear();
        for (size_t j = 0; j < node_features_.size(); ++j)
            if (static_cast<float>(w[j]) != 0) swap_.push_back(static_cast<int32_t>(j));
        std::sort(swap_.begin(), swap_.end(), [&](int32_t a, int32_t b) { return node_features_[a] < node_features_[b]; });
        tree.bias.back() = options_.bias != 0 ? static_cast<float>(w[node_features_.size()] * options_.bias) : 0;
        margin_.assign(columns_.n_rows, tree.bias.back());
        for (int32_t j : swap_) {
            const auto weight = static_cast<float>(w[j]);
            tree.features.push_back(node_features_[j]);
            tree.weights.push_back(weight);
            for (int64_t e = columns_.ptr[j]; e < columns_.ptr[j + 1]; ++e)
                margin_[columns_.entries[e].row] += static_cast<double>(weight) * columns_.entries[e].value;
        }
    }

    // Mean label vector of the rows last gathered, cut to the strongest labels.
    void write_leaf(Tree &tree) {
        std::vector<int64_t> counts(node_.n_labels, 0);
        for (int32_t j : node_.labels) ++counts[j];
        std::vector<Scored> mean(node_.n_labels);
        for (int32_t j = 0; j < node_.n_labels; ++j)
            mean[j] = {static_cast<float>(static_cast<double>(counts[j]) / node_.n_rows()), node_label_ids_[j]};
        const int64_t kept = std::min<int64_t>(options_.leaf_labels, node_.n_labels);
        std::partial_sort(mean.begin(), mean.begin() + kept, mean.end(), better);
        for (int64_t r = 0; r < kept; ++r) {
            tree.labels.push_back(mean[r].label);
            tree.label_scores.push_back(mean[r].score);
        }
    }
};

inline std::vector<Tree> grow_forest(const CsrView &x, const CsrView &y, const FastXmlOptions &options, int64_t n_trees,
                                     uint64_t seed, int n_threads, const Watch &watch) {
    std::vector<Tree> trees(n_trees);
    std::vector<TreeGrower> growers;
    const int workers = worker_count(n_trees, n_threads);
    growers.reserve(workers);
    for (int w = 0; w < workers; ++w) growers.emplace_back(x, y, options);
    parallel_for(n_trees, workers, [&](int64_t t, int worker) {
        trees[t] = growers[worker].grow(RandomStream(seed, static_cast<uint64_t>(t)).next(), watch);
    });
    return trees;
}

} // namespace blockxmc
