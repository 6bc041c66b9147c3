// Binary squared-hinge classifiers with L1 + L2, one per label, by dual coordinate descent on mined rows (PPD-Sparse).
//
//   min_w  1/2 |w|^2 + lam |w|_1 + C sum_i max(0, 1 - s_i w.x_i)^2        (the bias is not thresholded; lam = 0: DiSMEC)
//
// A label works on an active set: its positives and the negatives that push back. Rows outside are searched exactly;
// when none violates its margin by more than tol the dual is optimal to that tolerance, and the label is certified.
// Nothing per label costs O(rows) or O(features) unless the label really looks at that many.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "splitmix.hpp"
#include "threads.hpp"

struct CdOptions {
    double C, lam, bias;
    double tol;          // largest violation left, in units of the margin
    int64_t max_rounds;  // solve + search rounds per label
    int64_t max_passes;  // coordinate passes per round
    double prune;        // weights below are dropped at the end
    uint64_t seed;
};

struct CdLabel {
    std::vector<int32_t> features;
    std::vector<float> weights;
    float bias = 0;
    bool certified = false;
};

// What all labels share: the rows with features renumbered by falling frequency (the busy part of v stays in cache and
// unused features vanish), the same by column, and the squared norms.
class CdRows {
  public:
    CdRows(CsrView X, double bias) : n_rows(X.n_rows), indptr(X.indptr), values(X.data), norm(X.n_rows, bias * bias) {
        std::vector<int64_t> count(X.n_cols, 0);
        for (int64_t e = 0; e < X.nnz(); ++e) ++count[X.indices[e]];
        for (int32_t f = 0; f < X.n_cols; ++f)
            if (count[f]) original.push_back(f);
        std::stable_sort(original.begin(), original.end(), [&](int32_t a, int32_t b) { return count[a] > count[b]; });
        std::vector<int32_t> rank(X.n_cols, -1);
        column_start.assign(1, 0);
        for (size_t r = 0; r < original.size(); ++r) {
            rank[original[r]] = static_cast<int32_t>(r);
            column_start.push_back(column_start[r] + count[original[r]]);
        }
        columns.resize(X.nnz());
        column_rows.resize(X.nnz());
        column_values.resize(X.nnz());
        std::vector<int64_t> next(column_start.begin(), column_start.end() - 1);
        for (int64_t i = 0; i < X.n_rows; ++i)
            for (int64_t e = X.indptr[i]; e < X.indptr[i + 1]; ++e) {
                columns[e] = rank[X.indices[e]];
                norm[i] += double(X.data[e]) * X.data[e];
                const int64_t at = next[columns[e]]++;
                column_rows[at] = static_cast<int32_t>(i);
                column_values[at] = X.data[e];
            }
    }

    int64_t n_rows;
    const int64_t *indptr;
    const float *values;
    std::vector<int32_t> columns;   // feature ranks, aligned with values
    std::vector<int32_t> original;  // rank -> feature
    std::vector<int64_t> column_start;
    std::vector<int32_t> column_rows;
    std::vector<float> column_values;
    std::vector<double> norm;  // |x_i|^2 + bias^2
};

// One worker: its scratch is allocated once and left clean after every label.
class DualCd {
  public:
    DualCd(const CdRows &rows, const CdOptions &options)
        : rows_(rows), options_(options), lam_(static_cast<float>(options.lam)), ridge_(0.5 / options.C),
          v_(rows.original.size(), 0.0f), state_(rows.n_rows, kOutside), moved_(rows.n_rows, 0),
          score_(rows.n_rows, 0.0f) {}

    // positives: rows of the label, ascending; subset: the rows to train on, ascending, or null for all.
    CdLabel train(const int32_t *positives, int64_t n_positive, const int32_t *subset, int64_t n_subset, uint64_t stream,
                  const Watch &watch) {
        subset_ = subset;
        n_subset_ = subset ? n_subset : rows_.n_rows;
        SplitMix random(options_.seed, stream);
        begin(positives, n_positive, random);
        bool certified = false;
        for (int64_t round = 0; round < options_.max_rounds && !certified && !watch.cancelled(); ++round) {
            const bool solved = solve(random, watch);
            certified = mine(random) == 0 && solved;
        }
        CdLabel result = finish();
        result.certified = certified;
        return result;
    }

  private:
    struct Item {
        int32_t row;
        float sign;
        double alpha;
    };
    struct Violator {
        float amount;
        int32_t row;
        bool operator<(const Violator &other) const {
            return amount != other.amount ? amount > other.amount : row < other.row;
        }
    };
    enum State : uint8_t { kOutside, kActive, kPositive };
    static constexpr int64_t kStart = 1000;  // so many negatives are cheaper to sweep once than to search

    int32_t row_at(int64_t r) const { return subset_ ? subset_[r] : static_cast<int32_t>(r); }

    void begin(const int32_t *positives, int64_t n_positive, SplitMix &random) {
        items_.clear();
        shrunk_.clear();
        updated_.clear();
        bias_ = 0;
        int64_t r = 0;
        for (int64_t p = 0; p < n_positive; ++p) {
            const int32_t row = positives[p];
            if (subset_) {
                r = std::lower_bound(subset_ + r, subset_ + n_subset_, row) - subset_;
                if (r == n_subset_ || subset_[r] != row) continue;
            }
            state_[row] = kPositive;
            items_.push_back({row, 1.0f, 0.0});
        }
        const int64_t n_in = static_cast<int64_t>(items_.size());
        const int64_t wanted = std::min(std::max(10 * n_in, kStart), n_subset_ - n_in);
        if (2 * wanted >= n_subset_ - n_in) {
            for (int64_t q = 0; q < n_subset_; ++q) activate(row_at(q));
        } else {
            while (static_cast<int64_t>(items_.size()) < n_in + wanted) activate(row_at(random.below(n_subset_)));
        }
    }

    void activate(int32_t row) {
        if (state_[row] != kOutside) return;
        state_[row] = kActive;
        items_.push_back({row, -1.0f, 0.0});
    }

    double dot(int32_t row) const {
        const int64_t first = rows_.indptr[row], last = rows_.indptr[row + 1];
        const int32_t *column = rows_.columns.data();
        const float *x = rows_.values, *v = v_.data();
        double a = 0, b = 0;
        int64_t e = first;
        for (; e + 1 < last; e += 2) {
            a += x[e] * shrink(v[column[e]]);
            b += x[e + 1] * shrink(v[column[e + 1]]);
        }
        if (e < last) a += x[e] * shrink(v[column[e]]);
        return a + b + bias_ * options_.bias;
    }

    float shrink(float v) const { return std::max(v - lam_, 0.0f) + std::min(v + lam_, 0.0f); }

    // ---- solve on the active set ----
    // Shuffled passes until no coordinate violates optimality by more than tol; rows that sit safely at zero are set
    // aside on the way (mine() looks at them again). True when the tolerance was reached.
    bool solve(SplitMix &random, const Watch &watch) {
        double previous = std::numeric_limits<double>::infinity();
        for (int64_t pass = 0; pass < options_.max_passes; ++pass) {
            if (watch.cancelled()) return false;
            random.shuffle(items_);
            double worst = 0;
            for (size_t r = 0; r < items_.size();) {
                Item &item = items_[r];
                const double gradient = item.sign * dot(item.row) - 1 + ridge_ * item.alpha;
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
            if (worst <= options_.tol) return true;
            previous = worst;
        }
        return false;
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

    // ---- search outside the active set ----
    // Brings the worst violators in; returns how many there were.
    int64_t mine(SplitMix &random) {
        for (size_t r = 0; r < items_.size();)
            if (items_[r].alpha == 0 && items_[r].sign < 0) {
                set_aside(r);
            } else {
                ++r;
            }
        int64_t found = 0;
        std::vector<int32_t> positives;
        positives.swap(shrunk_);
        for (int32_t row : positives)
            if (1 - dot(row) > options_.tol) {
                items_.push_back({row, 1.0f, 0.0});
                ++found;
            } else {
                shrunk_.push_back(row);
            }
        violators_.clear();
        const int64_t most = std::max<int64_t>(static_cast<int64_t>(items_.size()), 100);
        if (index_pays()) {
            search_by_column(random, most);
        } else {
            for (int64_t r = 0; r < n_subset_; ++r)
                if (state_[row_at(r)] == kOutside) consider(row_at(r), dot(row_at(r)));
        }
        found += static_cast<int64_t>(violators_.size());
        const auto taken = violators_.begin() + std::min<int64_t>(most, violators_.size());
        std::nth_element(violators_.begin(), taken, violators_.end());
        std::sort(violators_.begin(), taken);
        for (auto it = violators_.begin(); it != taken; ++it) activate(it->row);
        return found;
    }

    void consider(int32_t row, double score) {
        if (score + 1 > options_.tol) violators_.push_back({static_cast<float>(score), row});
    }

    // The inverted index wins when w reaches few entries; a subset is small enough to be read row by row.
    bool index_pays() {
        reached_.clear();
        if (subset_) return false;
        int64_t entries = 0;
        const int64_t limit = rows_.column_start.back() / 2;
        for (int32_t row : updated_)
            for (int64_t e = rows_.indptr[row]; e < rows_.indptr[row + 1]; ++e) {
                const int32_t f = rows_.columns[e];
                if (shrink(v_[f]) != 0) reached_.push_back(f);
            }
        std::sort(reached_.begin(), reached_.end());
        reached_.erase(std::unique(reached_.begin(), reached_.end()), reached_.end());
        for (int32_t f : reached_) entries += rows_.column_start[f + 1] - rows_.column_start[f];
        return entries < limit;
    }

    void search_by_column(SplitMix &random, int64_t most) {
        const double bias = bias_ * options_.bias;
        seen_.clear();
        for (int32_t f : reached_) {
            const float w = shrink(v_[f]);
            for (int64_t e = rows_.column_start[f]; e < rows_.column_start[f + 1]; ++e) {
                const int32_t row = rows_.column_rows[e];
                if (score_[row] == 0) seen_.push_back(row);
                score_[row] += w * rows_.column_values[e];
            }
        }
        for (int32_t row : seen_)
            if (state_[row] == kOutside && score_[row] != 0) consider(row, score_[row] + bias);
        // A row that w does not reach scores the bias alone. There may be very many; a random run of them will do.
        if (bias + 1 > options_.tol) {
            int64_t row = static_cast<int64_t>(random.below(rows_.n_rows)), added = 0;
            for (int64_t tried = 0; tried < rows_.n_rows && added < most; ++tried) {
                if (state_[row] == kOutside && score_[row] == 0) {
                    consider(static_cast<int32_t>(row), bias);
                    ++added;
                }
                if (++row == rows_.n_rows) row = 0;
            }
        }
        for (int32_t row : seen_) score_[row] = 0;
    }

    // ---- collect the weights and leave the scratch clean ----
    CdLabel finish() {
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
        result.bias = static_cast<float>(bias_ * options_.bias);
        for (const Item &item : items_) state_[item.row] = kOutside;
        for (int32_t row : shrunk_) state_[row] = kOutside;
        return result;
    }

    const CdRows &rows_;
    const CdOptions options_;
    const float lam_;
    const double ridge_;
    std::vector<float> v_;
    double bias_ = 0;  // v of the bias feature
    std::vector<uint8_t> state_, moved_;
    std::vector<float> score_;
    std::vector<Item> items_;
    std::vector<int32_t> shrunk_;   // positives set aside
    std::vector<int32_t> updated_;  // rows that ever moved v
    std::vector<int32_t> reached_, seen_;
    std::vector<Violator> violators_;
    const int32_t *subset_ = nullptr;
    int64_t n_subset_ = 0;
};

// positives and subsets: labels x rows. Each label is its own item with its own random stream.
inline std::vector<CdLabel> dual_cd(CsrView X, CsrView positives, const CsrView *subsets, const CdOptions &options,
                                    int n_threads, const Watch &watch) {
    const CdRows rows(X, options.bias);
    const int64_t n_labels = positives.n_rows;
    const int workers = static_cast<int>(std::clamp<int64_t>(n_labels, 1, std::max(n_threads, 1)));
    std::vector<DualCd> solvers(workers, DualCd(rows, options));
    std::vector<CdLabel> results(n_labels);
    parallel_for(n_labels, workers, [&](int64_t label, int worker) {
        if (watch.cancelled()) return;
        const int32_t *subset = subsets ? subsets->indices + subsets->indptr[label] : nullptr;
        results[label] = solvers[worker].train(positives.indices + positives.indptr[label], positives.row_size(label),
                                               subset, subsets ? subsets->row_size(label) : 0, label, watch);
        watch.advance();
    });
    return results;
}
