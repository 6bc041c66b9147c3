// A second look at the best few labels of a row: the terms that their scores add up are weighed again, together.
#pragma once

#include <algorithm>
#include <cstdint>

// What a label's score adds up to is a first guess at how likely it is; of those that guess best, each gains
//
//     sum_i t_i (linear_i + sum_{j >= i} products_ij t_j)
//
// where t are its own score, the logarithm of its blocks' weight, its bonus and how common it is, each within the bounds that
// the curve was fitted in.
struct SecondLook {
    static constexpr int n_terms = 4, n_products = n_terms * (n_terms + 1) / 2;
    struct Curve {
        float low[n_terms], high[n_terms], linear[n_terms], products[n_products];
    };
    const Curve *curve;
    const float *commonness; // of each label
    int64_t n_labels, first; // so many labels are looked at

    float gain(float own, float log_weight, float bonus, int32_t label) const {
        const float given[n_terms] = {own, log_weight, bonus, commonness[label]};
        float t[n_terms], sum = 0;
        for (int i = 0; i < n_terms; ++i) t[i] = std::clamp(given[i], curve->low[i], curve->high[i]);
        for (int i = 0, at = 0; i < n_terms; ++i) {
            float factor = curve->linear[i];
            for (int j = i; j < n_terms; ++j) factor += curve->products[at++] * t[j];
            sum += t[i] * factor;
        }
        return sum;
    }
};
