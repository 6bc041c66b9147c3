// A reranker of the best few labels of a row: the terms of their scores are weighed again, together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "companions.hpp"

namespace blockxmc {

// A label's score is a first guess at how likely it is. Each of the best labels gains
//
//     sum_i t_i (linear_i + sum_{j >= i} products_ij t_j)
//
// where t are its own score, the logarithm of its blocks' weight, its bonus and its frequency, each clamped to the bounds
// within which the curve was fitted.
struct Reranker {
    static constexpr int n_terms = 4, n_products = n_terms * (n_terms + 1) / 2;
    struct Curve {
        float low[n_terms], high[n_terms], linear[n_terms], products[n_products];
    };
    Curve curve;
    const float *frequency; // of each label
    int64_t n_labels;
    int64_t first; // the best labels, so many, are reordered
    const Companions *companions = nullptr; // ... and then told what the others say

    float gain(float own, float log_weight, float bonus, int32_t label) const {
        const float given[n_terms] = {own, log_weight, bonus, frequency[label]};
        float t[n_terms], sum = 0;
        for (int i = 0; i < n_terms; ++i) t[i] = std::clamp(given[i], curve.low[i], curve.high[i]);
        for (int i = 0, at = 0; i < n_terms; ++i) {
            float factor = curve.linear[i];
            for (int j = i; j < n_terms; ++j) factor += curve.products[at++] * t[j];
            sum += t[i] * factor;
        }
        return sum;
    }
};

} // namespace blockxmc
