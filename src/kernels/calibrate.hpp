// Scores turned into probabilities, in place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "threads.hpp"
#include "weighed.hpp"

namespace blockxmc {

// The chance that a label is right: a logistic curve whose argument is piecewise linear in the score and in the logarithm of
// the label's rank in its row. It rises with the score and falls with the rank, so labels stay in order. All labels of a row
// gain or lose alike by how well its eighth label scores: where many score well, each means something else.
struct Calibration {
    static constexpr int n_slopes = 5, n_falls = 4, row_rank = 8;
    static constexpr double score_knots[n_slopes - 1] = {-1.0, -0.5, 0.0, 1.0}, rank_knots[n_falls] = {1, 3, 10, 32};
    double shift; // at a score of -1 and the first rank
    double slopes[n_slopes], falls[n_falls], of_others;

    double of_rank(int64_t rank) const { // 1: the first
        double sum = 0;
        for (int i = 0; i < n_falls && rank > rank_knots[i]; ++i) {
            const double end = i + 1 < n_falls ? std::min<double>(rank, rank_knots[i + 1]) : static_cast<double>(rank);
            sum += falls[i] * std::log(end / rank_knots[i]);
        }
        return sum;
    }
    double of_score(double score) const {
        double sum = slopes[0] * (std::min(score, score_knots[0]) - score_knots[0]);
        for (int i = 1; i < n_slopes; ++i) {
            const double end = i + 1 < n_slopes ? std::min(score, score_knots[i]) : score;
            sum += slopes[i] * std::max(end - score_knots[i - 1], 0.0);
        }
        return sum;
    }
    // `eighth`: the score of the label at row_rank; -inf where the row has fewer.
    double of_row(float eighth) const { return shift + of_others * std::clamp(static_cast<double>(eighth), -1.0, 1.0); }
    // `fall`: what of_rank says; `start`: what of_row says. A label that no visited block lists has no chance.
    float probability(float score, double fall, double start) const {
        if (score < unlisted / 2) return 0.0f;
        return static_cast<float>(1.0 / (1.0 + std::exp(fall - start - of_score(score))));
    }
};

// The k best of a row, eight or more if it has them; padding (label -1) stays as it is. Two scores may give the same float as
// probability: then the lower label comes first.
inline void calibrate_best(const Calibration &curve, int64_t k, const double *falls, int64_t *labels, float *scores) {
    constexpr int64_t at_row_rank = Calibration::row_rank - 1;
    const bool enough = k > at_row_rank && labels[at_row_rank] >= 0;
    const double start = curve.of_row(enough ? scores[at_row_rank] : -std::numeric_limits<float>::infinity());
    for (int64_t j = 0; j < k && labels[j] >= 0; ++j) {
        const int64_t label = labels[j];
        float probability = curve.probability(scores[j], falls[j], start);
        if (j > 0) probability = std::min(probability, scores[j - 1]); // rounding must not put it first
        int64_t at = j;
        for (; at > 0 && scores[at - 1] == probability && labels[at - 1] > label; --at) labels[at] = labels[at - 1];
        labels[at] = label;
        scores[j] = probability;
    }
}

// What of_rank says of the first n ranks.
inline std::vector<double> falls_of(const Calibration &curve, int64_t n) {
    std::vector<double> falls(n);
    for (int64_t j = 0; j < n; ++j) falls[j] = curve.of_rank(j + 1);
    return falls;
}

// All candidates of each row, labels ascending.
inline void calibrate_rows(const Calibration &curve, const int64_t *indptr, int64_t n_rows, const int32_t *labels, float *scores,
                           int threads) {
    int64_t widest = 0;
    for (int64_t i = 0; i < n_rows; ++i) widest = std::max(widest, indptr[i + 1] - indptr[i]);
    const std::vector<double> falls = falls_of(curve, widest);
    constexpr int64_t rows_per_item = 64;
    parallel_for((n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t t, int) {
        std::vector<int64_t> order;
        for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, n_rows); ++i) {
            order.clear();
            for (int64_t at = indptr[i]; at < indptr[i + 1]; ++at) {
                if (std::isnan(scores[at])) scores[at] = -std::numeric_limits<float>::infinity(); // it has no place in an order
                order.push_back(at);
            }
            std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                return scores[a] > scores[b] || (scores[a] == scores[b] && labels[a] < labels[b]);
            });
            const bool enough = order.size() >= Calibration::row_rank;
            const double start =
                curve.of_row(enough ? scores[order[Calibration::row_rank - 1]] : -std::numeric_limits<float>::infinity());
            for (size_t r = 0; r < order.size(); ++r) {
                const float probability = curve.probability(scores[order[r]], falls[r], start);
                scores[order[r]] = r ? std::min(probability, scores[order[r - 1]]) : probability;
            }
        }
    });
}

} // namespace blockxmc
