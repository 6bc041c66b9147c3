// What is fitted on held-out rows: a logistic curve, the weights that put right labels before wrong ones, and how many of
// the first labels are right under many ways to add up a score.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bounded_newton.hpp"
#include "float_order.hpp"
#include "simd.hpp"

namespace blockxmc {

// out += weight * each * each', and of the gradient slope * each; n is small.
BLOCKXMC_INLINE void add_outer(const double *each, int n, double slope, double weight, double *gradient, double *hessian) {
    for (int i = 0; i < n; ++i) {
        gradient[i] += slope * each[i];
        const double factor = weight * each[i];
        for (int j = 0; j <= i; ++j) hessian[i * n + j] += factor * each[j];
    }
}

// Items of a logistic regression; the first weight is that of a constant.
struct LogisticItems {
    const double *features; // items x n_features
    const uint8_t *right;
    const double *counts;
    int64_t n_items;
    int n_features;
    double shrinkage; // times the squares of the weights
};

BLOCKXMC_CLONES static void add_logistic(const LogisticItems &items, const double *weights, int64_t begin, int64_t end, int64_t every, Quadratic &out) {
    const int n = items.n_features + 1;
    double *gradient = out.gradient(), *hessian = out.hessian(), each[64];
    double value = 0;
    each[0] = 1;
    for (int64_t at = begin; at < end; ++at) {
        const int64_t i = at * every;
        double z = weights[0];
        for (int f = 1; f < n; ++f) {
            each[f] = items.features[i * items.n_features + f - 1];
            z += weights[f] * each[f];
        }
        const double e = std::exp(-std::abs(z)), chance = (z > 0 ? 1.0 : e) / (1 + e), count = items.counts[i];
        value += count * (std::max(z, 0.0) + std::log1p(e) - (items.right[i] ? z : 0.0));
        add_outer(each, n, count * (chance - items.right[i]), count * chance * (1 - chance), gradient, hessian);
    }
    out.value() += value;
}

// Weights of a constant and of the features, each at least `lower`. One item in eight, where they are many, brings near to
// where all lead.
inline std::vector<double> fit_logistic(const LogisticItems &items, std::vector<double> start, const std::vector<double> &lower, double tol, int threads) {
    const int n = items.n_features + 1;
    constexpr int64_t piece = 1024, many = 8192, one_in = 8;
    for (int64_t every : {one_in, int64_t(1)}) {
        if (every > 1 && items.n_items < many) continue;
        start = minimize_bounded(
            [&](const std::vector<double> &weights) {
                const int64_t n_items = (items.n_items + every - 1) / every;
                Quadratic sum = sum_of_items(n_items, piece, n, threads, [&](int64_t begin, int64_t end, Quadratic &out) {
                    add_logistic(items, weights.data(), begin, end, every, out);
                });
                for (int i = 0; i < n; ++i) {
                    sum.value() += items.shrinkage * weights[i] * weights[i];
                    sum.gradient()[i] += 2 * items.shrinkage * weights[i];
                    sum.hessian()[i * n + i] += 2 * items.shrinkage;
                }
                return sum;
            },
            std::move(start), lower, every > 1 ? 1e-6 : tol);
    }
    return start;
}

// Rows of a few candidates each: some right, some wrong, some not there.
struct RankedRows {
    const double *features; // rows x candidates x n_features
    const int8_t *side;     // rows x candidates: 1 right, -1 wrong, 0 not there
    int64_t n_rows;
    int n_candidates, n_features;
};

// Each right candidate of a row competes with all its wrong ones: log(1 + sum of exp(wrong - right)), and a row with n right
// ones counts by the root of n.
BLOCKXMC_CLONES static void add_order(const RankedRows &rows, const double *weights, int64_t begin, int64_t end, Quadratic &out) {
    const int n = rows.n_features, width = rows.n_candidates;
    std::vector<double> scores(width), chance(width), middle(n), apart(n);
    double *gradient = out.gradient(), *hessian = out.hessian();
    for (int64_t row = begin; row < end; ++row) {
        const double *features = rows.features + row * width * n;
        const int8_t *side = rows.side + row * width;
        double highest = -INFINITY;
        int n_right = 0;
        for (int c = 0; c < width; ++c) {
            scores[c] = 0;
            for (int f = 0; f < n; ++f) scores[c] += weights[f] * features[c * n + f];
            if (side[c] < 0) highest = std::max(highest, scores[c]);
            n_right += side[c] > 0;
        }
        if (!n_right || highest == -INFINITY) continue;
        double total = 0;
        for (int c = 0; c < width; ++c) total += chance[c] = side[c] < 0 ? std::exp(scores[c] - highest) : 0.0;
        const double against = highest + std::log(total), share = 1 / (std::sqrt(double(n_right)) * rows.n_rows);
        std::fill(middle.begin(), middle.end(), 0.0);
        for (int c = 0; c < width; ++c) {
            chance[c] /= total;
            for (int f = 0; f < n; ++f) middle[f] += chance[c] * features[c * n + f];
        }
        double pulled = 0;
        for (int c = 0; c < width; ++c) {
            if (side[c] <= 0) continue;
            const double behind = against - scores[c], e = std::exp(-std::abs(behind));
            const double lost = (behind > 0 ? 1.0 : e) / (1 + e);
            out.value() += share * (std::max(behind, 0.0) + std::log1p(e));
            for (int f = 0; f < n; ++f) apart[f] = middle[f] - features[c * n + f];
            add_outer(apart.data(), n, share * lost, share * lost * (1 - lost), gradient, hessian);
            pulled += share * lost;
        }
        // How the wrong ones spread about their middle.
        for (int c = 0; c < width; ++c) {
            if (side[c] >= 0) continue;
            for (int f = 0; f < n; ++f) apart[f] = features[c * n + f] - middle[f];
            add_outer(apart.data(), n, 0.0, pulled * chance[c], gradient, hessian);
        }
    }
}

// Weights of the features, pulled towards `usual`, each at least `lower`.
inline std::vector<double> fit_order(const RankedRows &rows, const std::vector<double> &usual, const std::vector<double> &lower, double pull, double tol, int threads) {
    const int n = rows.n_features;
    constexpr int64_t piece = 32;
    return minimize_bounded(
        [&](const std::vector<double> &weights) {
            Quadratic sum = sum_of_items(rows.n_rows, piece, n, threads, [&](int64_t begin, int64_t end, Quadratic &out) {
                add_order(rows, weights.data(), begin, end, out);
            });
            for (int i = 0; i < n; ++i) {
                const double away = weights[i] - usual[i];
                sum.value() += pull * away * away;
                sum.gradient()[i] += 2 * pull * away;
                sum.hessian()[i * n + i] += 2 * pull;
            }
            return sum;
        },
        usual, lower, tol);
}

// Weights of the terms, as floats: slope, name, centroid, neighbors.
struct MixWeights {
    float slope, name, centroid, neighbors;
};

// What speaks for some labels of each row (rows x few); see Terms in training/candidates.py.
struct ScoreTerms {
    const float *margin, *name, *centroid, *block, *neighbors;
    const uint8_t *right;
    int64_t n_rows, few;

    float own(int64_t j, const MixWeights &mix) const {
        const float named = margin[j] + mix.name * name[j];
        return named + mix.centroid * centroid[j];
    }
    float score(int64_t j, const MixWeights &mix) const {
        const float of_label = own(j, mix) + mix.slope * block[j];
        return of_label + mix.neighbors * neighbors[j];
    }
};

// mixes x rows: the mean of P@1, P@3 and P@5 of each row under each mix. Labels of equal scores stay in their order.
inline void hits_of_mixes(const ScoreTerms &terms, const std::vector<MixWeights> &mixes, double *out, int threads) {
    constexpr int64_t piece = 16, first = 5;
    parallel_for((terms.n_rows + piece - 1) / piece, threads, [&](int64_t item, int) {
        for (int64_t row = item * piece; row < std::min((item + 1) * piece, terms.n_rows); ++row) {
            const int64_t begin = row * terms.few;
            for (size_t m = 0; m < mixes.size(); ++m) {
                const MixWeights &mix = mixes[m];
                float best[first];
                uint8_t right[first] = {};
                std::fill(best, best + first, -INFINITY);
                for (int64_t j = begin; j < begin + terms.few; ++j) {
                    const float score = terms.score(j, mix);
                    if (!(score > best[first - 1])) continue;
                    int64_t at = first - 1;
                    for (; at > 0 && score > best[at - 1]; --at) best[at] = best[at - 1], right[at] = right[at - 1];
                    best[at] = score;
                    right[at] = terms.right[j];
                }
                const int one = right[0], three = one + right[1] + right[2], five = three + right[3] + right[4];
                out[m * terms.n_rows + row] = (one / 1.0 + three / 3.0 + five / 5.0) / 3;
            }
        }
    });
}

// The places of the highest scores of a row, the highest first; equal scores stay in their order, and what is no number
// counts as -inf.
class HighestOfRow {
  public:
    // `score_at(j)` for j in [0, few); only `keep` of the places are found.
    template <typename ScoreAt>
    HighestOfRow(int64_t few, int64_t keep, ScoreAt &&score_at) : keys_(few) {
        for (int64_t j = 0; j < few; ++j) {
            const float score = score_at(j);
            keys_[j] = uint64_t(~rising_bits(std::isnan(score) ? -INFINITY : score)) << 32 | uint64_t(j);
        }
        if (keep < few) std::nth_element(keys_.begin(), keys_.begin() + keep, keys_.end());
        std::sort(keys_.begin(), keys_.begin() + keep);
    }
    int64_t operator[](int64_t rank) const { return static_cast<int64_t>(keys_[rank] & 0xffffffffu); }

  private:
    std::vector<uint64_t> keys_;
};

constexpr int64_t ranked_rows_at_a_time = 16;

// rows x few: the places of all candidates of each row, best first.
inline void order_of_scores(const float *scores, int64_t n_rows, int64_t few, int64_t *out, int threads) {
    parallel_for((n_rows + ranked_rows_at_a_time - 1) / ranked_rows_at_a_time, threads, [&](int64_t item, int) {
        for (int64_t row = item * ranked_rows_at_a_time; row < std::min((item + 1) * ranked_rows_at_a_time, n_rows); ++row) {
            const HighestOfRow best(few, few, [&](int64_t j) { return scores[row * few + j]; });
            for (int64_t j = 0; j < few; ++j) out[row * few + j] = best[j];
        }
    });
}

// The best `keep` candidates of each row under a mix (rows x keep), best first: their scores, and whether they are right. Of the
// first `shown` also their places, and what a reranker sees of each: its own score, blocks, neighbors, frequency.
struct BestCandidates {
    int64_t keep, shown;
    int64_t *places; // rows x shown
    float *scores;
    uint8_t *right;
    float *terms; // rows x shown x 4
};

inline void best_candidates(const ScoreTerms &terms, const float *log_positives, const MixWeights &mix, const BestCandidates &out, int threads) {
    parallel_for((terms.n_rows + ranked_rows_at_a_time - 1) / ranked_rows_at_a_time, threads, [&](int64_t item, int) {
        std::vector<float> scores(terms.few);
        for (int64_t row = item * ranked_rows_at_a_time; row < std::min((item + 1) * ranked_rows_at_a_time, terms.n_rows); ++row) {
            const int64_t begin = row * terms.few;
            for (int64_t j = 0; j < terms.few; ++j) scores[j] = terms.score(begin + j, mix);
            const HighestOfRow best(terms.few, out.keep, [&](int64_t j) { return scores[j]; });
            for (int64_t rank = 0; rank < out.keep; ++rank) {
                const int64_t to = row * out.keep + rank, j = begin + best[rank];
                out.scores[to] = scores[best[rank]];
                out.right[to] = terms.right[j];
                if (rank >= out.shown) continue;
                const int64_t at = row * out.shown + rank;
                out.places[at] = best[rank];
                const float seen[] = {terms.own(j, mix), terms.block[j], mix.neighbors * terms.neighbors[j], log_positives[j]};
                std::copy(seen, seen + 4, out.terms + 4 * at);
            }
        }
    });
}

} // namespace blockxmc
