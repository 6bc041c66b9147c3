// The best k of a list of scored labels: best first, ties to the lower label id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

struct ScoredLabel {
    float score;
    int32_t label;
};

inline bool ranks_before(const ScoredLabel &a, const ScoredLabel &b) {
    return a.score > b.score || (a.score == b.score && a.label < b.label);
}

// Reorders `candidates`; writes k labels and scores, padded with -1 / -inf.
inline void write_best(std::vector<ScoredLabel> &candidates, int64_t k, int64_t *labels, float *scores) {
    const int64_t found = std::min<int64_t>(k, static_cast<int64_t>(candidates.size()));
    std::partial_sort(candidates.begin(), candidates.begin() + found, candidates.end(), ranks_before);
    for (int64_t r = 0; r < k; ++r) {
        labels[r] = r < found ? candidates[r].label : -1;
        scores[r] = r < found ? candidates[r].score : -std::numeric_limits<float>::infinity();
    }
}
