// Which labels an answer may hold.
#pragma once

#include <cstdint>
#include <limits>

namespace blockxmc {

struct AllowedLabels {
    const bool *of_label = nullptr; // nullptr: all are allowed

    bool has(int32_t label) const { return !of_label || of_label[label]; }
    // Takes the labels that are denied out of a chunk's scores: -inf is never kept.
    void apply(const int32_t *labels, int64_t n, float *scores) const {
        if (!of_label) return;
        for (int64_t j = 0; j < n; ++j)
            if (!of_label[labels[j]]) scores[j] = -std::numeric_limits<float>::infinity();
    }
};

} // namespace blockxmc
