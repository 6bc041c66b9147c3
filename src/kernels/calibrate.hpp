// Scores turned into probabilities by a logistic curve, in place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace blockxmc {

struct LogisticCurve {
    double scale, shift;

    float probability(float score) const {
        return static_cast<float>(1.0 / (1.0 + std::exp(-(scale * static_cast<double>(score) + shift))));
    }
};

inline void calibrate_scores(const LogisticCurve &curve, int64_t n, float *scores) {
    for (int64_t i = 0; i < n; ++i) scores[i] = curve.probability(scores[i]);
}

// The k best of a row; padding (label -1) stays as it is. Two scores may give the same float as probability: then the lower
// label comes first.
inline void calibrate_best(const LogisticCurve &curve, int64_t k, int64_t *labels, float *scores) {
    for (int64_t j = 0; j < k && labels[j] >= 0; ++j) {
        const int64_t label = labels[j];
        const float probability = curve.probability(scores[j]);
        int64_t at = j;
        for (; at > 0 && scores[at - 1] == probability && labels[at - 1] > label; --at) labels[at] = labels[at - 1];
        labels[at] = label;
        scores[j] = probability;
    }
}

} // namespace blockxmc
