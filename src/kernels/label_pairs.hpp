// How many rows carry both of two labels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

struct LabelPairs {
    std::vector<int64_t> indptr{0}; // of each label
    std::vector<int32_t> others;    // the higher labels of its pairs, ascending
    std::vector<int32_t> counts;
};

// The pairs that at least `least` rows carry. The labels of a row ascend; `rows_of` has the rows of each label.
inline LabelPairs count_pairs(const CsrView &Y, const CsrView &rows_of, int64_t least, int threads) {
    constexpr int64_t kLabels = 64; // per work item
    const int64_t n_labels = rows_of.n_rows, n_items = (n_labels + kLabels - 1) / kLabels;
    std::vector<LabelPairs> parts(n_items);
    struct Room {
        std::vector<int32_t> count, touched;
    };
    std::vector<Room> room(worker_count(n_items, threads));
    parallel_for(n_items, threads, [&](int64_t item, int worker) {
        auto &[count, touched] = room[worker];
        count.resize(n_labels, 0);
        for (int64_t label = item * kLabels; label < std::min((item + 1) * kLabels, n_labels); ++label) {
            for (int64_t r = rows_of.indptr[label]; r < rows_of.indptr[label + 1]; ++r) {
                const int64_t row = rows_of.indices[r];
                const int32_t *end = Y.indices + Y.indptr[row + 1];
                for (const int32_t *at = std::upper_bound(Y.indices + Y.indptr[row], end, int32_t(label)); at != end; ++at)
                    if (count[*at]++ == 0) touched.push_back(*at);
            }
            std::sort(touched.begin(), touched.end());
            for (int32_t other : touched) {
                if (count[other] >= least) {
                    parts[item].others.push_back(other);
                    parts[item].counts.push_back(count[other]);
                }
                count[other] = 0;
            }
            touched.clear();
            parts[item].indptr.push_back(static_cast<int64_t>(parts[item].others.size()));
        }
    });
    LabelPairs out;
    for (const LabelPairs &part : parts) {
        for (size_t i = 1; i < part.indptr.size(); ++i) out.indptr.push_back(part.indptr[i] + static_cast<int64_t>(out.others.size()));
        out.others.insert(out.others.end(), part.others.begin(), part.others.end());
        out.counts.insert(out.counts.end(), part.counts.begin(), part.counts.end());
    }
    return out;
}

} // namespace blockxmc
