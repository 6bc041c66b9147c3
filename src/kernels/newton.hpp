// One-vs-all linear classifiers: many binary problems min_w 1/2 |w|^2 + C sum_i loss(s_i w.x_i) on shared rows.
//
// Labels are solved sixteen at a time (LaneNewton). Labels that are trained on few rows are solved on a copy of these rows:
// sixteen labels on the union of their rows where they share most of them, otherwise each label by itself (LocalSvm).
// Groups are made in a fixed order that does not depend on the number of threads, so neither do the results.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lane_newton.hpp"
#include "row_lists.hpp"
#include "row_subset.hpp"
#include "row_unions.hpp"
#include "threads.hpp"

namespace blockxmc {

// Weights kept after pruning, label after label (CSR, n_labels x n_features, ascending), and the biases.
struct SparseWeights {
    std::vector<int64_t> indptr;
    Large<int32_t> indices;
    Large<float> data;
    std::vector<float> bias;
};

class OneVsAll {
  public:
    // `costs`: what the loss of each row counts; nullptr: 1.
    OneVsAll(const CsrView &x, float bias, const Objective &objective, float prune, const Cost *costs = nullptr)
        : objective_(objective), prune_(prune), number_(x.n_cols, -1) {
        for (int64_t k = 0; k < x.nnz(); ++k) number_[x.indices[k]] = 0;
        for (int64_t f = 0; f < x.n_cols; ++f)
            if (number_[f] == 0) {
                number_[f] = static_cast<int32_t>(original_.size());
                original_.push_back(static_cast<int32_t>(f));
            }
        const auto n_used = static_cast<int64_t>(original_.size());
        if (n_used < x.n_cols) { // else the columns are numbered so already, and X may be too large for a copy
            columns_.resize(x.nnz());
            for (int64_t k = 0; k < x.nnz(); ++k) columns_[k] = number_[x.indices[k]];
        }
        const int32_t *columns = n_used < x.n_cols ? columns_.data() : x.indices;
        rows_ = {{x.indptr, columns, x.data, x.n_rows, n_used}, bias, costs, rows_are_uneven(x)};
    }

    // positives[j]: rows of label j; members (optional): rows label j is trained on, a superset of its positives; start
    // (optional, squared hinge only): a vector that is nearly the solution, per label; one without numbers is none.
    SparseWeights train(int64_t n_labels, const RowLists &positives, const std::optional<RowLists> &members,
                        const std::optional<CsrView> &start, int n_threads, const Watch &watch) {
        solutions_.assign(n_labels, {});
        take_starts(n_labels, start);
        plan(n_labels, positives, members, n_threads);
        const bool together = std::ranges::any_of(groups_, [](const Group &group) { return group.way == Way::together; });
        const MeanRow mean = together ? MeanRow(rows_) : MeanRow();
        if (together) columns_by_feature_.take(rows_);
        std::vector<Worker> workers(worker_count(static_cast<int64_t>(groups_.size()), n_threads));
        parallel_for(static_cast<int64_t>(groups_.size()), n_threads, [&](int64_t g, int worker) {
            if (watch.cancelled()) return;
            solve(groups_[g], positives, members, mean, workers[worker]);
            watch.advance(static_cast<int64_t>(groups_[g].labels.size()));
        });
        return assemble(n_labels, n_threads);
    }

  private:
    enum class Way { together, on_union, alone };
    struct Group {
        Way way;
        std::vector<int64_t> labels;
    };
    // The rows that sixteen labels learn from, and their solver.
    struct Union {
        Union(const Rows &all, const Objective &objective) : uniter(all.x.n_rows), subset(all), lanes(objective) {}
        Uniter uniter;
        std::vector<int32_t> rows;
        RowSubset subset;
        Columns columns;
        MeanRow mean;
        LaneNewton lanes;
    };
    // What a thread reuses from group to group, made when first needed.
    struct Worker {
        std::unique_ptr<LaneNewton> lanes;
        std::unique_ptr<LocalSvm> local;
        std::unique_ptr<Union> on_union;
    };

    static constexpr int64_t kFewRows = 2;     // "few": less than one row of this many
    static constexpr int64_t kAloneGroup = 8; // labels per work item when solved alone
    static constexpr int64_t kShared = 4;    // labels go together when a row of their union serves this many of them
    static constexpr int64_t kHeavy = 1024;  // a group of more than one in so many of all pairs begins early

    // The starts in the numbering of the features that occur: the others end at 0 whatever they start from.
    void take_starts(int64_t n_labels, const std::optional<CsrView> &start) {
        starts_.assign(n_labels, {});
        for (int64_t j = 0; start && j < n_labels; ++j)
            for (int64_t k = start->indptr[j]; k < start->indptr[j + 1]; ++k)
                if (const int32_t f = number_[start->indices[k]]; f >= 0) starts_[j].push_back({f, start->data[k]});
    }

    // Groups of labels of similar frequency, frequent ones first. Labels without positives have the same weights when they
    // are trained on all rows: one is solved for all.
    void plan(int64_t n_labels, const RowLists &positives, const std::optional<RowLists> &members, int n_threads) {
        const int64_t n = rows_.x.n_rows;
        source_.resize(n_labels);
        std::vector<int64_t> together, few;
        int64_t empty = -1;
        for (int64_t j = 0; j < n_labels; ++j) {
            const int64_t size = members ? static_cast<int64_t>((*members)[j].size()) : n;
            source_[j] = j;
            if (size == n && positives[j].empty() && starts_[j].empty()) {
                if (empty < 0) empty = j;
                source_[j] = empty;
            }
            if (source_[j] != j) continue;
            (size * kFewRows < n && objective_.loss == Loss::squared_hinge ? few : together).push_back(j);
        }
        std::stable_sort(together.begin(), together.end(),
                         [&](int64_t a, int64_t b) { return positives[a].size() > positives[b].size(); });
        groups_.clear();
        for (size_t at = 0; at < together.size(); at += kLanes) add_group(Way::together, together, at, kLanes);
        const std::vector<char> shared = share_rows(few, members, n_threads);
        for (size_t at = 0; at < few.size(); at += kLanes) {
            if (shared[at / kLanes]) {
                add_group(Way::on_union, few, at, kLanes);
            } else {
                add_group(Way::alone, few, at, kAloneGroup);
                add_group(Way::alone, few, at + kAloneGroup, kAloneGroup);
            }
        }
        heaviest_first(members);
    }

    // A heavy group that begins last keeps one thread busy while all others wait. The light ones stay in their order, in which
    // neighbours learn from about the same rows.
    void heaviest_first(const std::optional<RowLists> &members) {
        const auto pairs_of = [&](const Group &group) {
            int64_t pairs = 0;
            for (int64_t j : group.labels) pairs += members ? static_cast<int64_t>((*members)[j].size()) : rows_.x.n_rows;
            return pairs;
        };
        std::vector<std::pair<int64_t, size_t>> order; // pairs of a heavy group, 0 for a light one
        int64_t total = 0;
        for (const Group &group : groups_) total += pairs_of(group);
        for (size_t g = 0; g < groups_.size(); ++g) {
            const int64_t pairs = pairs_of(groups_[g]);
            order.emplace_back(pairs * kHeavy > total ? pairs : 0, g);
        }
        std::ranges::stable_sort(order, std::ranges::greater{}, &std::pair<int64_t, size_t>::first);
        std::vector<Group> sorted;
        sorted.reserve(groups_.size());
        for (const auto &[pairs, g] : order) sorted.push_back(std::move(groups_[g]));
        groups_ = std::move(sorted);
    }

    // For each sixteen of these labels: whether a row of their union serves enough of them.
    std::vector<char> share_rows(const std::vector<int64_t> &labels, const std::optional<RowLists> &members, int n_threads) const {
        const auto n_groups = static_cast<int64_t>((labels.size() + kLanes - 1) / kLanes);
        std::vector<char> shared(n_groups);
        std::vector<std::vector<int64_t>> last(worker_count(n_groups, n_threads)); // group that has last seen a row
        parallel_for(n_groups, n_threads, [&](int64_t g, int worker) {
            if (last[worker].empty()) last[worker].assign(rows_.x.n_rows, -1);
            int64_t pairs = 0, rows = 0;
            for (size_t at = g * kLanes; at < std::min<size_t>((g + 1) * kLanes, labels.size()); ++at)
                for (int32_t i : (*members)[labels[at]]) {
                    rows += last[worker][i] != g;
                    last[worker][i] = g;
                    ++pairs;
                }
            shared[g] = pairs >= kShared * rows;
        });
        return shared;
    }

    void add_group(Way way, const std::vector<int64_t> &labels, size_t from, int64_t size) {
        const size_t to = std::min(from + static_cast<size_t>(size), labels.size());
        if (from < to) groups_.push_back({way, {labels.begin() + from, labels.begin() + to}});
    }

    void solve(const Group &group, const RowLists &positives, const std::optional<RowLists> &members, const MeanRow &mean,
               Worker &worker) {
        if (group.way == Way::on_union) {
            if (!worker.on_union) worker.on_union = std::make_unique<Union>(rows_, objective_);
            solve_on_union(group, positives, *members, *worker.on_union);
        } else if (group.way == Way::alone) {
            if (!worker.local) worker.local = std::make_unique<LocalSvm>(rows_);
            for (int64_t j : group.labels) solve_alone(j, positives[j], (*members)[j], *worker.local);
        } else {
            if (!worker.lanes) {
                worker.lanes = std::make_unique<LaneNewton>(objective_);
                worker.lanes->take(rows_, columns_by_feature_, mean);
            }
            solve_together(group, positives, members, *worker.lanes);
        }
    }

    void solve_alone(int64_t j, std::span<const int32_t> positive, std::span<const int32_t> member, LocalSvm &local) {
        local.clear();
        size_t p = 0;
        for (int32_t i : member) {
            const bool is_positive = p < positive.size() && positive[p] == i;
            p += is_positive;
            local.add_row(i, is_positive);
        }
        finish_alone(j, static_cast<int64_t>(p), local);
    }

    // Solves what was added to the problem, and keeps it.
    void finish_alone(int64_t j, int64_t positives, LocalSvm &local) {
        const double target = objective_.target(local.gradient_at_zero(objective_.C), positives, local.n_rows());
        const double gradient = rows_.uneven ? local.gradient_by_descent(objective_.C, target)
                                             : local.gradient_in_plane(objective_.C, starts_[j]);
        local.solve(objective_.C, gradient, target);
        const std::vector<float> &w = local.weights();
        for (size_t f = 0; f < w.size(); ++f) keep(j, {local.features()[f], w[f]});
    }

    void solve_on_union(const Group &group, const RowLists &positives, const RowLists &members, Union &all) {
        std::vector<int32_t> &rows = all.rows;
        RowSubset &subset = all.subset;
        LaneNewton &lanes = all.lanes;
        for (int64_t j : group.labels) all.uniter.add(members[j]);
        rows.clear();
        all.uniter.append_to(rows);
        subset.take(rows);
        std::vector<LaneMask> positive(rows.size(), 0), member(rows.size(), 0);
        for (size_t lane = 0; lane < group.labels.size(); ++lane) {
            mark(rows, positives[group.labels[lane]], lane, positive);
            mark(rows, members[group.labels[lane]], lane, member);
        }
        all.columns.take(subset.rows());
        if (rows_.bias == 0) all.mean = MeanRow(subset.rows());
        lanes.take(subset.rows(), all.columns, all.mean);
        std::vector<std::vector<Weight>> known(group.labels.size());
        for (size_t lane = 0; lane < group.labels.size(); ++lane)
            for (const Weight &s : starts_[group.labels[lane]])
                if (const int32_t f = subset.find(s.feature); f >= 0) known[lane].push_back({f, s.value});
        const std::vector<std::span<const Weight>> start(known.begin(), known.end());
        lanes.solve(lanes_in(group), positive.data(), member.data(), false, start);
        keep(group, lanes.weights(), [&](size_t f) { return subset.feature(f); });
    }

    // Sets the bit of the lane for each of `some`, which ascend like the rows and are among them.
    static void mark(const std::vector<int32_t> &rows, std::span<const int32_t> some, size_t lane, std::vector<LaneMask> &out) {
        size_t at = 0;
        for (int32_t i : some) {
            while (rows[at] < i) ++at;
            out[at] |= 1u << lane;
        }
    }

    static LaneMask lanes_in(const Group &group) { return static_cast<LaneMask>((1u << group.labels.size()) - 1); }

    void solve_together(const Group &group, const RowLists &positives, const std::optional<RowLists> &members,
                        LaneNewton &lanes) {
        const LaneMask all = lanes_in(group);
        std::vector<LaneMask> positive(rows_.x.n_rows, 0), member(rows_.x.n_rows, members ? 0 : all);
        for (size_t lane = 0; lane < group.labels.size(); ++lane) {
            for (int32_t i : positives[group.labels[lane]]) positive[i] |= 1u << lane;
            if (members)
                for (int32_t i : (*members)[group.labels[lane]]) member[i] |= 1u << lane;
        }
        std::vector<std::span<const Weight>> start;
        for (int64_t j : group.labels) start.push_back(starts_[j]);
        lanes.solve(all, positive.data(), member.data(), !members, start);
        keep(group, lanes.weights(), [](size_t f) { return static_cast<int32_t>(f); });
    }

    // feature(f): the number of weights[f] among all features.
    template <typename Feature>
    void keep(const Group &group, const LaneVector &weights, Feature &&feature) {
        std::vector<LaneMask> large(weights.size()); // most are not: sixteen are looked at as one
        lanes_from(weights.data(), static_cast<int64_t>(weights.size()), prune_, large.data());
        for (size_t f = 0; f < weights.size(); ++f)
            for (unsigned left = large[f] & lanes_in(group); left; left &= left - 1) {
                const int lane = std::countr_zero(left);
                keep(group.labels[lane], {feature(f), weights[f][lane]});
            }
    }

    void keep(int64_t j, const Weight &w) {
        if (w.value != 0 && std::fabs(w.value) >= prune_) solutions_[j].push_back(w);
    }

    SparseWeights assemble(int64_t n_labels, int n_threads) {
        constexpr int64_t kLabels = 64; // per work item
        const auto for_labels = [&](auto &&use) {
            parallel_for((n_labels + kLabels - 1) / kLabels, n_threads, [&](int64_t item, int) {
                for (int64_t j = item * kLabels; j < std::min((item + 1) * kLabels, n_labels); ++j) use(j);
            });
        };
        SparseWeights out;
        out.bias.assign(n_labels, 0.0f);
        out.indptr.assign(n_labels + 1, 0);
        // The bias is the last feature of all: once sorted, it stands at the end.
        const int32_t bias_feature = static_cast<int32_t>(original_.size());
        for_labels([&](int64_t j) { std::ranges::sort(solutions_[j], {}, &Weight::feature); });
        for_labels([&](int64_t j) {
            const std::vector<Weight> &w = solutions_[source_[j]];
            const bool biased = !w.empty() && w.back().feature == bias_feature;
            if (biased) out.bias[j] = w.back().value * rows_.bias;
            out.indptr[j + 1] = static_cast<int64_t>(w.size()) - biased;
        });
        std::partial_sum(out.indptr.begin(), out.indptr.end(), out.indptr.begin());
        out.indices.resize(out.indptr.back());
        out.data.resize(out.indptr.back());
        for_labels([&](int64_t j) {
            const Weight *w = solutions_[source_[j]].data();
            for (int64_t at = out.indptr[j]; at < out.indptr[j + 1]; ++at, ++w) {
                out.indices[at] = original_[w->feature];
                out.data[at] = w->value;
            }
        });
        return out;
    }

    const Objective objective_;
    const float prune_;
    std::vector<int32_t> number_;             // of a feature among those that occur, -1: it does not
    std::vector<int32_t> original_;           // features that occur
    Large<int32_t> columns_;                  // the columns of X in their numbering
    Rows rows_;
    Columns columns_by_feature_; // the same, by column; empty where no group needs it
    std::vector<int64_t> source_; // label whose solution a label shares
    std::vector<Group> groups_;
    std::vector<std::vector<Weight>> starts_, solutions_;
};

} // namespace blockxmc
