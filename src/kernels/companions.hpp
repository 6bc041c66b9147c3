// Labels that come together more, or less, often than chance would have it: what the best labels of a row say about each
// other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "topk.hpp"

namespace blockxmc {

// How many training rows carry both of two labels, for all pairs that some rows do. A pair (low, high) is listed by its
// lower label.
//
// The lift of a pair is log((count + 1/2) / (expected + 1/2)), where so many rows are expected to carry both if labels knew
// nothing of each other. A pair that is not listed has a count of 0.
struct Companions {
    static constexpr int64_t most = 64;  // labels of a row that are compared with each other
    static constexpr float lead = 1e-3f; // by which the first label stays first: its probability must be higher, too
    const int64_t *indptr;              // of each label
    const int32_t *others;              // rising
    const uint8_t *log_counts;          // sixteenths of log(count + 1/2)
    const float *frequency;             // logarithm of the number of positives of each label
    int64_t n_labels;
    float log_rows; // expected = exp(frequency + frequency - log_rows)
    float weight;

    float lift(int32_t a, int32_t b) const {
        const int32_t low = std::min(a, b), high = std::max(a, b);
        const int32_t *end = others + indptr[low + 1], *at = std::lower_bound(others + indptr[low], end, high);
        const float log_half = -0.69314718f;
        const float count = at != end && *at == high ? static_cast<float>(log_counts[at - others]) / 16 : log_half;
        const float log_expected = frequency[a] + frequency[b] - log_rows;
        return count - (log_expected < -12 ? log_half : std::log(std::exp(log_expected) + 0.5f));
    }

    // What the other labels of a row say about each of items[0..n), which come best first: the lifts, the r-th label's
    // divided by r. The first label, which is the surest, is told nothing.
    void sums(const Scored *items, int64_t n, float *out) const {
        std::fill(out, out + n, 0.0f);
        const int64_t compared = std::min(n, most);
        // All of them wait for memory at the same time.
        for (int64_t i = 0; i < compared; ++i) __builtin_prefetch(indptr + items[i].label);
        for (int64_t i = 0; i < compared; ++i) __builtin_prefetch(others + (indptr[items[i].label] + indptr[items[i].label + 1]) / 2);
        for (int64_t i = 0; i < compared; ++i)
            for (int64_t j = i + 1; j < compared; ++j) {
                const float found = lift(items[i].label, items[j].label);
                out[j] += found / static_cast<float>(i + 1);
                if (i > 0) out[i] += found / static_cast<float>(j + 1);
            }
    }

    // Adds the weighted sums to the scores of items[0..n), of which the first stays first. They are not sorted again.
    void add(Scored *items, int64_t n) const {
        if (n < 2) return;
        n = std::min(n, most);
        float told[most], highest = -std::numeric_limits<float>::infinity();
        sums(items, n, told);
        for (int64_t j = 1; j < n; ++j) {
            items[j].score += weight * told[j];
            highest = std::max(highest, items[j].score);
        }
        items[0].score = std::max(items[0].score, highest + lead);
    }
};

} // namespace blockxmc
