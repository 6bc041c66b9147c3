// PD-Sparse: multi-label max-margin training with L1 + L2 by block-coordinate Frank-Wolfe in the dual.
//
//   min_W  sum_k (1/2 |w_k|^2 + lam |w_k|_1) + C sum_i max_{k not in y_i, p in y_i} (1 + w_k.x_i - w_p.x_i)_+
//
// One thread, one random stream: the same data, options and seed give the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "bisimplex.hpp"
#include "csr.hpp"
#include "feature_rows.hpp"
#include "random.hpp"
#include "threads.hpp"
#include "topk.hpp"

namespace blockxmc {

struct PdOptions {
    double C, lam;
    double tol;               // stop at gap <= tol * primal objective
    int64_t max_iter;         // epochs of the main phase
    int64_t patience;         // epochs without better held-out accuracy before stopping
    bool importance_sampling; // search with a sample of each row's features
    bool post_solve;          // solve again on the support, without L1
    int64_t direct_bytes;     // label indexes of all features start direct when that takes no more than this
    uint64_t seed;
};

struct PdResult {
    std::vector<int64_t> indptr; // features x labels, weights of the final model
    std::vector<int32_t> labels;
    std::vector<float> weights;
    std::vector<double> gap_trace;       // per epoch: sum of the rows' gaps, each taken when the row was visited
    std::vector<double> held_out_trace; // per epoch: top-1 accuracy on the held-out rows
    double gap = 0, primal = 0;          // of the main problem at its end, exact
};

class PdSparse {
  public:
    // held_out: rows that only judge when to stop.
    PdSparse(CsrView X, CsrView Y, const uint8_t *held_out, const PdOptions &options, Watch watch)
        : X_(X), Y_(Y), options_(options), watch_(watch), random_(options.seed), lam_(static_cast<float>(options.lam)),
          rows_v_(X.n_cols), positive_(Y.nnz(), 0.0), negative_(X.n_rows), norm_(X.n_rows), any_order_(Y.n_cols),
          product_(Y.n_cols, 0.0f) {
        const bool direct = X.n_cols * Y.n_cols * static_cast<int64_t>(sizeof(float)) <= options.direct_bytes;
        for (FeatureRow &row : rows_v_) row.reset(static_cast<int32_t>(Y.n_cols), direct);
        int64_t positives = 0;
        for (int64_t i = 0; i < X.n_rows; ++i) {
            for (int64_t e = X.indptr[i]; e < X.indptr[i + 1]; ++e) norm_[i] += double(X.data[e]) * X.data[e];
            // A row needs features, labels, and labels that it lacks.
            if (Y.row_size(i) == 0 || Y.row_size(i) == Y.n_cols || norm_[i] == 0) continue;
            (held_out[i] ? held_out_ : train_).push_back(i);
            positives += Y.row_size(i);
        }
        const auto useful = static_cast<int64_t>(train_.size() + held_out_.size());
        max_select_ = useful ? std::clamp<int64_t>((positives + useful - 1) / useful, 1, kMaxSelect) : 1;
        std::iota(any_order_.begin(), any_order_.end(), 0);
        random_.shuffle(any_order_);
        if (options.importance_sampling) sample_divisor_ = default_sample_divisor();
    }

    PdResult run() {
        PdResult result;
        const Outcome main = solve(options_.max_iter, &result);
        measure(result);
        if (options_.post_solve) post_solve(main);
        collect(result);
        return result;
    }

  private:
    struct Dual {
        int32_t label;
        double alpha;
    };
    struct Active {
        int32_t label;
        double alpha;
        float product;
    };
    static constexpr int64_t kMaxSelect = 100, kRefresh = 10;
    static constexpr double kNegligible = 1e-12;
    static constexpr float kOut = -std::numeric_limits<float>::infinity();

    struct Outcome {
        int64_t epochs;
        double accuracy; // on the held-out rows, if any
    };

    // Epochs until the gap is small, the held-out rows stop improving, or the limit; leaves the best epoch's alpha.
    Outcome solve(int64_t limit, PdResult *trace) {
        Outcome best{0, -1};
        std::vector<double> best_positive;
        std::vector<std::vector<Dual>> best_negative;
        int64_t epoch = 0;
        while (epoch < limit && !train_.empty() && !watch_.cancelled()) {
            const auto [gap, loss] = sweep();
            if (++epoch % kRefresh == 0) refresh();
            const auto [squares, absolutes] = norms();
            if (trace) trace->gap_trace.push_back(gap);
            if (!held_out_.empty()) {
                const double accuracy = held_out_accuracy();
                if (trace) trace->held_out_trace.push_back(accuracy);
                if (accuracy > best.accuracy) {
                    best = {epoch, accuracy};
                    best_positive = positive_;
                    best_negative = negative_;
                } else if (epoch - best.epochs >= options_.patience) {
                    break;
                }
            }
            if (gap <= options_.tol * (0.5 * squares + double(lam_) * absolutes + options_.C * loss)) break;
        }
        if (best.epochs == 0 || best.epochs == epoch) return {epoch, best.accuracy};
        positive_.swap(best_positive);
        negative_.swap(best_negative);
        refresh();
        return best;
    }

    // Solves again on the support without L1, for at most as many epochs. If accuracy on the held-out rows falls by more
    // than a standard error, this is undone; otherwise it is repeated with the held-out rows among the training rows.
    void post_solve(const Outcome &main) {
        const std::vector<double> main_positive = positive_;
        const std::vector<std::vector<Dual>> main_negative = negative_;
        const float main_lam = lam_;
        const auto restart = [&](float lam) {
            positive_ = main_positive;
            negative_ = main_negative;
            lam_ = lam;
            refresh();
        };
        for (FeatureRow &row : rows_v_) row.freeze();
        sample_divisor_ = 1;
        restart(0);
        const Outcome post = solve(main.epochs, nullptr);
        if (held_out_.empty()) return;
        const double noise = std::sqrt(main.accuracy * (1 - main.accuracy) / static_cast<double>(held_out_.size()));
        if (post.accuracy < main.accuracy - noise) return restart(main_lam);
        train_.insert(train_.end(), held_out_.begin(), held_out_.end());
        held_out_.clear();
        restart(0);
        solve(post.epochs, nullptr);
    }

    struct Sweep {
        double gap, loss;
    };
    Sweep sweep() {
        Sweep total{0, 0};
        int64_t search_steps = 0, update_steps = 0;
        random_.shuffle(train_);
        for (int64_t i : train_) {
            if (watch_.cancelled()) break;
            search_steps += search(i, sample_divisor_);
            double highest = set_own_apart(i);
            choose();
            if (sample_divisor_ > 1) highest = exact_products(i);
            const Sweep row = row_gap(i, highest);
            total.gap += row.gap;
            total.loss += row.loss;
            update_steps += X_.row_size(i) * block_step(i);
            watch_.advance();
        }
        // Searching costs much more than solving: take more labels from each search.
        if (search_steps > 2 * update_steps) max_select_ = std::min(2 * max_select_, kMaxSelect);
        return total;
    }

    // ---- search ----
    // product_[k] = w_k.x_i for all labels, or an estimate from a sample of the row. Returns the number of steps taken.
    int64_t search(int64_t i, int64_t divisor) {
        int64_t steps = Y_.n_cols;
        float *product = product_.data();
        std::fill(product_.begin(), product_.end(), 0.0f);
        auto accumulate = [&](int32_t feature, float value) {
            const FeatureRow &row = rows_v_[feature];
            steps += row.support_size() + 1;
            row.for_support(lam_, [&](int32_t label, float w) { product[label] += value * w; });
        };
        const int64_t first = X_.indptr[i], size = X_.row_size(i);
        if (divisor <= 1 || size < divisor) {
            for (int64_t e = first; e < first + size; ++e) accumulate(X_.indices[e], X_.data[e]);
            return steps;
        }
        cumulative_.resize(size);
        double total = 0;
        for (int64_t r = 0; r < size; ++r) cumulative_[r] = total += std::fabs(X_.data[first + r]);
        const int64_t draws = size / divisor;
        for (int64_t s = 0; s < draws; ++s) {
            const double u = random_.uniform() * total;
            const int64_t r = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, u) - cumulative_.begin();
            const float x = X_.data[first + r];
            accumulate(X_.indices[first + r], std::copysign(static_cast<float>(total / double(draws)), x));
        }
        return steps;
    }

    // Takes the row's labels and the negatives it has out of product_; returns the best product of a wrong label.
    double set_own_apart(int64_t i) {
        own_product_.clear();
        for (int64_t e = Y_.indptr[i]; e < Y_.indptr[i + 1]; ++e) {
            own_product_.push_back(product_[Y_.indices[e]]);
            product_[Y_.indices[e]] = kOut;
        }
        float highest = kOut;
        for (float product : product_) highest = std::max(highest, product);
        work_.clear();
        for (const Dual &dual : negative_[i]) {
            work_.push_back({dual.label, dual.alpha, product_[dual.label]});
            product_[dual.label] = kOut;
        }
        return highest;
    }

    // Adds to the active set the max_select_ other labels of highest product, if above -1 (below, they cannot violate).
    void choose() {
        candidates_.clear();
        float floor = 0; // rises once enough candidates are known
        for (int32_t label = 0; label < Y_.n_cols; ++label) {
            if (product_[label] <= floor) continue;
            candidates_.push_back({product_[label], label});
            if (static_cast<int64_t>(candidates_.size()) >= 4 * max_select_) floor = keep_best();
        }
        // Labels that no feature of the row reaches score 0; they come in a random but fixed cyclic order.
        const int64_t n_labels = Y_.n_cols;
        for (int64_t tried = 0; tried < n_labels && static_cast<int64_t>(candidates_.size()) < max_select_; ++tried) {
            const int32_t label = any_order_[next_any_];
            if (++next_any_ == n_labels) next_any_ = 0;
            if (product_[label] == 0) candidates_.push_back({0.0f, label});
        }
        if (static_cast<int64_t>(candidates_.size()) < max_select_)
            for (int32_t label = 0; label < Y_.n_cols; ++label)
                if (product_[label] < 0 && product_[label] > -1) candidates_.push_back({product_[label], label});
        keep_best();
        std::sort(candidates_.begin(), candidates_.end(), better);
        for (const Scored &candidate : candidates_) work_.push_back({candidate.label, 0.0, candidate.score});
    }

    // Cuts the candidates to the max_select_ best and returns the lowest product among them.
    float keep_best() {
        if (static_cast<int64_t>(candidates_.size()) <= max_select_) return 0;
        const auto last = candidates_.begin() + max_select_ - 1;
        std::nth_element(candidates_.begin(), last, candidates_.end(), better);
        candidates_.resize(max_select_);
        return candidates_.back().score;
    }

    // Replaces sampled products of the active labels by exact ones; returns the best of a wrong label among them.
    double exact_products(int64_t i) {
        auto exact = [&](int32_t label) {
            float sum = 0;
            for (int64_t e = X_.indptr[i]; e < X_.indptr[i + 1]; ++e)
                sum += X_.data[e] * rows_v_[X_.indices[e]].weight(label, lam_);
            return sum;
        };
        for (int64_t r = 0; r < Y_.row_size(i); ++r) own_product_[r] = exact(Y_.indices[Y_.indptr[i] + r]);
        float highest = kOut;
        for (Active &active : work_) highest = std::max(highest, active.product = exact(active.label));
        return highest;
    }

    // The row's share of primal - dual: C loss + sum alpha w.x + sum of the negatives' alpha.
    Sweep row_gap(int64_t i, double highest) const {
        double lowest = std::numeric_limits<double>::infinity(), inner = 0;
        for (int64_t r = 0; r < Y_.row_size(i); ++r) {
            lowest = std::min<double>(lowest, own_product_[r]);
            inner += positive_[Y_.indptr[i] + r] * own_product_[r];
        }
        for (const Active &active : work_) inner += active.alpha * (active.product + 1.0);
        const double loss = std::max(1.0 + highest - lowest, 0.0);
        return {options_.C * loss + inner, loss};
    }

    // ---- solve ----
    // Minimise the dual over the row's active labels; returns how many labels were active.
    int64_t block_step(int64_t i) {
        const double H = norm_[i];
        const int64_t first = Y_.indptr[i], n_positive = Y_.row_size(i);
        b_.clear();
        for (const Active &active : work_) b_.push_back((active.product + 1.0) / H - active.alpha);
        c_.clear();
        for (int64_t r = 0; r < n_positive; ++r) c_.push_back(positive_[first + r] - own_product_[r] / H);
        project_(b_, c_, options_.C);
        changes_.clear();
        for (int64_t r = 0; r < n_positive; ++r) {
            note_change(Y_.indices[first + r], c_[r] - positive_[first + r]);
            positive_[first + r] = c_[r];
        }
        std::vector<Dual> &kept = negative_[i];
        kept.clear();
        for (size_t r = 0; r < work_.size(); ++r) {
            const double alpha = b_[r] < kNegligible ? 0.0 : -b_[r];
            note_change(work_[r].label, alpha - work_[r].alpha);
            if (alpha != 0) kept.push_back({work_[r].label, alpha});
        }
        apply_changes(i);
        return n_positive + static_cast<int64_t>(work_.size());
    }

    void note_change(int32_t label, double change) {
        if (change != 0) changes_.push_back({label, change});
    }

    void apply_changes(int64_t i) {
        for (int64_t e = X_.indptr[i]; e < X_.indptr[i + 1]; ++e) {
            FeatureRow &row = rows_v_[X_.indices[e]];
            for (const Dual &change : changes_) row.add(change.label, static_cast<float>(X_.data[e] * change.alpha), lam_);
        }
    }

    // v = X^T alpha from scratch: rounding of many small updates does not pile up.
    void refresh() {
        for (FeatureRow &row : rows_v_) row.clear();
        for (int64_t i = 0; i < X_.n_rows; ++i) {
            changes_.clear();
            for (int64_t e = Y_.indptr[i]; e < Y_.indptr[i + 1]; ++e) note_change(Y_.indices[e], positive_[e]);
            for (const Dual &dual : negative_[i]) note_change(dual.label, dual.alpha);
            if (!changes_.empty()) apply_changes(i);
        }
    }

    // ---- measure ----
    struct Norms {
        double squares, absolutes;
    };
    Norms norms() {
        Norms total{0, 0};
        for (FeatureRow &row : rows_v_)
            row.for_support(lam_, [&](int32_t, float w) {
                total.squares += double(w) * w;
                total.absolutes += std::fabs(w);
            });
        return total;
    }

    void measure(PdResult &result) {
        refresh();
        const Norms w = norms();
        double loss = 0;
        for (int64_t i : train_) {
            if (watch_.cancelled()) break;
            search(i, 1);
            const double highest = set_own_apart(i);
            const Sweep row = row_gap(i, highest);
            result.gap += row.gap;
            loss += row.loss;
        }
        result.primal = 0.5 * w.squares + double(lam_) * w.absolutes + options_.C * loss;
    }

    double held_out_accuracy() {
        int64_t hits = 0;
        for (int64_t i : held_out_) {
            search(i, 1);
            const auto best = std::max_element(product_.begin(), product_.end()) - product_.begin();
            hits += std::binary_search(Y_.indices + Y_.indptr[i], Y_.indices + Y_.indptr[i + 1], best);
        }
        return double(hits) / double(held_out_.size());
    }

    void collect(PdResult &result) {
        std::vector<std::pair<int32_t, float>> entries;
        result.indptr.assign(1, 0);
        for (FeatureRow &row : rows_v_) {
            entries.clear();
            row.for_support(lam_, [&](int32_t label, float w) { entries.emplace_back(label, w); });
            std::sort(entries.begin(), entries.end());
            for (const auto &[label, w] : entries) {
                result.labels.push_back(label);
                result.weights.push_back(w);
            }
            result.indptr.push_back(static_cast<int64_t>(result.labels.size()));
        }
    }

    // The authors' rule: sample harder the more classes there are per non-zero, but keep some ten features a row.
    int64_t default_sample_divisor() const {
        const double nnz = static_cast<double>(std::max<int64_t>(X_.nnz(), 1)), K = static_cast<double>(Y_.n_cols);
        const double by_classes = 5.0 * double(X_.n_cols) * K / (nnz * options_.C * std::log(std::max(K, 2.0)));
        const double by_length = nnz / (10.0 * double(std::max<int64_t>(X_.n_rows, 1)));
        return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::min(by_classes, by_length))));
    }

    const CsrView X_, Y_;
    const PdOptions options_;
    const Watch watch_;
    RandomStream random_;
    float lam_;
    std::vector<FeatureRow> rows_v_;
    std::vector<double> positive_;              // alpha of the row's own labels, aligned with Y
    std::vector<std::vector<Dual>> negative_;   // non-zero alphas of other labels
    std::vector<double> norm_;
    std::vector<int64_t> train_, held_out_;
    std::vector<int32_t> any_order_;
    int64_t max_select_ = 1, sample_divisor_ = 1, next_any_ = 0;
    // Scratch of one visit.
    std::vector<float> product_, own_product_;
    std::vector<Active> work_; // negatives of the active set
    std::vector<Scored> candidates_; // by their product with the row
    std::vector<double> cumulative_, b_, c_;
    std::vector<Dual> changes_;
    BisimplexProjection project_;
};

} // namespace blockxmc
