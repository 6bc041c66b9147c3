// Binary squared-hinge classifiers with L1 + L2, one per label, by dual coordinate descent on mined rows (PPD-Sparse).
//
//   min_w  1/2 |w|^2 + lam |w|_1 + C sum_i max(0, 1 - s_i w.x_i)^2        (the bias is not thresholded; lam = 0: DiSMEC)
//
// A label works on an active set: its positives and the negatives that push back. Rows outside are searched exactly,
// for many labels in one sweep over the data. When all margins are kept up to tol, the dual is optimal to that tolerance,
// and the label is certified.
// The work for a label grows with the rows and features it looks at, not with the size of X.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "random.hpp"
#include "threads.hpp"

namespace blockxmc {

struct CdOptions {
    double C, lam, bias;
    double tol;          // largest violation left, in units of the margin
    int64_t max_rounds; // solve + search rounds per label
    int64_t max_passes; // coordinate passes per round
    double prune;        // weights below are dropped at the end
    uint64_t seed;
};

struct CdLabel {
    std::vector<int32_t> features;
    std::vector<float> weights;
    float bias = 0;
    int64_t rounds = 0;
    bool certified = false;
};

// What all labels share: the rows with features renumbered by falling frequency (the busy part of v stays in cache and
// unused features vanish) and the squared norms.
class CdRows {
  public:
    CdRows(CsrView X, double bias) : n_rows(X.n_rows), indptr(X.indptr), values(X.data), norm(X.n_rows, bias * bias) {
        std::vector<int64_t> count(X.n_cols, 0);
        for (int64_t e = 0; e < X.nnz(); ++e) ++count[X.indices[e]];
        for (int32_t f = 0; f < X.n_cols; ++f)
            if (count[f]) original.push_back(f);
        std::stable_sort(original.begin(), original.end(), [&](int32_t a, int32_t b) { return count[a] > count[b]; });
        std::vector<int32_t> rank(X.n_cols, -1);
        for (size_t r = 0; r < original.size(); ++r) rank[original[r]] = static_cast<int32_t>(r);
        columns.resize(X.nnz());
        for (int64_t i = 0; i < X.n_rows; ++i)
            for (int64_t e = X.indptr[i]; e < X.indptr[i + 1]; ++e) {
                columns[e] = rank[X.indices[e]];
                norm[i] += double(X.data[e]) * X.data[e];
            }
    }

    int64_t n_rows;
    const int64_t *indptr;
    const float *values;
    std::vector<int32_t> columns;   // feature ranks, aligned with values
    std::vector<int32_t> original; // rank -> feature
    std::vector<double> norm;       // |x_i|^2 + bias^2
};

// The solver of one label at a time: its scratch is allocated once and left clean after every label.
class DualCd {
  public:
    DualCd(const CdRows &rows, const CdOptions &options)
        : rows_(rows), options_(options), lam_(static_cast<float>(options.lam)), ridge_(0.5 / options.C),
          v_(rows.original.size(), 0.0f), state_(rows.n_rows, kOutside), moved_(rows.n_rows, 0) {}

    // positives: rows of the label, ascending; subset: the rows to train on, ascending, or null for all.
    void begin(const int32_t *positives, int64_t n_positive, const int32_t *subset, int64_t n_subset, uint64_t stream) {
        subset_ = subset;
        n_subset_ = subset ? n_subset : rows_.n_rows;
        random_ = RandomStream(options_.seed, stream);
        bias_ = 0;
        int64_t r = 0;
        for (int64_t p = 0; p < n_positive; ++p) {
            const int32_t row = positives[p];
            if (subset) {
                r = std::lower_bound(subset + r, subset + n_subset, row) - subset;
                if (r == n_subset || subset[r] != row) continue;
            }
            state_[row] = kPositive;
            items_.push_back({row, 1.0f, 0.0});
        }
        const auto n_in = static_cast<int64_t>(items_.size());
        const int64_t wanted = std::min(std::max(10 * n_in, kStart), n_subset_ - n_in);
        if (2 * wanted >= n_subset_ - n_in) {
            for (int64_t q = 0; q < n_subset_; ++q) activate(row_at(q));
        } else {
            while (static_cast<int64_t>(items_.size()) < n_in + wanted) activate(row_at(random_.below(n_subset_)));
        }
    }

    // Shuffled passes over the active set until no coordinate violates optimality by more than tol; rows that sit
    // safely at zero are set aside on the way, to be looked at again by the search.
    void solve(const Watch &watch) {
        double previous = std::numeric_limits<double>::infinity();
        solved_ = false;
        for (int64_t pass = 0; pass < options_.max_passes && !solved_ && !watch.cancelled(); ++pass) {
            random_.shuffle(items_);
            double worst = 0;
            for (size_t r = 0; r < items_.size();) {
                Item &item = items_[r];
                const double gradient = item.sign * score(item.row) - 1 + ridge_ * item.alpha;
                if (item.alpha == 0 && gradient > 0) {
                    if (gradient > previous) {
                        set_aside(r);
                        continue;
                    }
                } else {
                    worst = std::max(worst, std::fabs(gradient));
                    step(item, gradient);
                }
                ++r;
            }
            solved_ = worst <= options_.tol;
            previous = worst;
        }
    }

    // ---- search: begin_search, then every row outside is offered with its score, then admit ----
    void begin_search() {
        for (size_t r = 0; r < items_.size();)
            if (items_[r].alpha == 0 && items_[r].sign < 0) {
                set_aside(r);
            } else {
                ++r;
            }
        found_ = 0;
        size_t kept = 0;
        for (int32_t row : shrunk_)
            if (1 - score(row) > options_.tol) {
                items_.push_back({row, 1.0f, 0.0});
                ++found_;
            } else {
                shrunk_[kept++] = row;
            }
        shrunk_.resize(kept);
        violators_.clear();
    }

    void offer(int32_t row, double score) {
        if (state_[row] == kOutside && score + 1 > options_.tol) violators_.push_back({static_cast<float>(score), row});
    }

    void offer_subset() {
        for (int64_t r = 0; r < n_subset_; ++r)
            if (state_[row_at(r)] == kOutside) offer(row_at(r), score(row_at(r)));
    }

    // Takes the worst violators in. True when there were no violators and the active set is solved: the label is done.
    bool admit() {
        found_ += static_cast<int64_t>(violators_.size());
        const int64_t most = std::max<int64_t>(static_cast<int64_t>(items_.size()), kStart);
        const auto taken = violators_.begin() + std::min<int64_t>(most, violators_.size());
        std::nth_element(violators_.begin(), taken, violators_.end());
        std::sort(violators_.begin(), taken);
        for (auto it = violators_.begin(); it != taken; ++it) activate(it->row);
        return found_ == 0 && solved_;
    }

    // Calls visit(rank, w) for every feature that may have a weight (some more than once).
    template <typename Visit>
    void for_weights(Visit &&visit) const {
        for (int32_t row : updated_)
            for (int64_t e = rows_.indptr[row]; e < rows_.indptr[row + 1]; ++e)
                visit(rows_.columns[e], shrink(v_[rows_.columns[e]]));
    }

    double bias_score() const { return bias_ * options_.bias; }

    // Collect the weights and leave the scratch clean.
    CdLabel finish(bool certified) {
        CdLabel result;
        std::vector<std::pair<int32_t, float>> entries;
        for (int32_t row : updated_) {
            moved_[row] = 0;
            for (int64_t e = rows_.indptr[row]; e < rows_.indptr[row + 1]; ++e) {
                float &v = v_[rows_.columns[e]];
                const float w = shrink(v);
                if (w != 0 && std::fabs(w) >= options_.prune) entries.emplace_back(rows_.original[rows_.columns[e]], w);
                v = 0;
            }
        }
        std::sort(entries.begin(), entries.end());
        for (const auto &[feature, w] : entries) {
            result.features.push_back(feature);
            result.weights.push_back(w);
        }
        result.bias = static_cast<float>(bias_score());
        result.certified = certified;
        for (const Item &item : items_) state_[item.row] = kOutside;
        for (int32_t row : shrunk_) state_[row] = kOutside;
        items_.clear();
        shrunk_.clear();
        updated_.clear();
        return result;
    }

  private:
    struct Item {
        int32_t row;
        float sign;
        double alpha;
    };
    struct Violator {
        float score;
        int32_t row;
        bool operator<(const Violator &other) const {
            return score != other.score ? score > other.score : row < other.row;
        }
    };
    enum State : uint8_t { kOutside, kActive, kPositive };
    static constexpr int64_t kStart = 100;

    int32_t row_at(int64_t r) const { return subset_ ? subset_[r] : static_cast<int32_t>(r); }

    void activate(int32_t row) {
        if (state_[row] != kOutside) return;
        state_[row] = kActive;
        items_.push_back({row, -1.0f, 0.0});
    }

    float shrink(float v) const { return std::max(v - lam_, 0.0f) + std::min(v + lam_, 0.0f); }

    double score(int32_t row) const {
        const int64_t last = rows_.indptr[row + 1];
        const int32_t *column = rows_.columns.data();
        const float *x = rows_.values, *v = v_.data();
        double a = 0, b = 0; // two chains: the additions would otherwise wait for each other
        int64_t e = rows_.indptr[row];
        for (; e + 1 < last; e += 2) {
            a += x[e] * shrink(v[column[e]]);
            b += x[e + 1] * shrink(v[column[e + 1]]);
        }
        if (e < last) a += x[e] * shrink(v[column[e]]);
        return a + b + bias_score();
    }

    void step(Item &item, double gradient) {
        const double alpha = std::max(0.0, item.alpha - gradient / (rows_.norm[item.row] + ridge_));
        const double change = (alpha - item.alpha) * item.sign;
        if (std::fabs(change) < 1e-12) return;
        if (!moved_[item.row]) {
            moved_[item.row] = 1;
            updated_.push_back(item.row);
        }
        item.alpha = alpha;
        bias_ += change * options_.bias;
        const auto scale = static_cast<float>(change);
        for (int64_t e = rows_.indptr[item.row]; e < rows_.indptr[item.row + 1]; ++e)
            v_[rows_.columns[e]] += scale * rows_.values[e];
    }

    void set_aside(size_t r) {
        if (items_[r].sign > 0) {
            shrunk_.push_back(items_[r].row);
        } else {
            state_[items_[r].row] = kOutside;
        }
        items_[r] = items_.back();
        items_.pop_back();
    }

    const CdRows &rows_;
    const CdOptions options_;
    const float lam_;
    const double ridge_;
    RandomStream random_{0};
    std::vector<float> v_;
    double bias_ = 0;                     // v of the bias feature
    std::vector<uint8_t> state_, moved_; // per row
    std::vector<Item> items_;
    std::vector<int32_t> shrunk_;   // positives set aside
    std::vector<int32_t> updated_; // rows that ever moved v
    std::vector<Violator> violators_;
    const int32_t *subset_ = nullptr;
    int64_t n_subset_ = 0, found_ = 0;
    bool solved_ = false;
};

} // namespace blockxmc
