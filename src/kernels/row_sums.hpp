// Sums of unit rows over many lists of rows (the rows that carry a label), each cut to its heaviest features.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "csr.hpp"
#include "kmeans.hpp"
#include "largest.hpp"
#include "row_unions.hpp"
#include "threads.hpp"

namespace blockxmc {

struct SparseRows {
    std::vector<int64_t> indptr{0};
    Unset<int32_t> indices;
    Unset<float> data;
};

// The rows of all parts, one part after another; parts are freed as they are copied.
inline SparseRows joined(std::vector<SparseRows> &parts, int threads) {
    SparseRows out;
    std::vector<int64_t> begin(1, 0);
    for (const SparseRows &part : parts) {
        for (size_t i = 1; i < part.indptr.size(); ++i) out.indptr.push_back(part.indptr[i] + begin.back());
        begin.push_back(begin.back() + static_cast<int64_t>(part.indices.size()));
    }
    out.indices.resize(begin.back());
    out.data.resize(begin.back());
    parallel_for(static_cast<int64_t>(parts.size()), threads, [&](int64_t at, int) {
        std::copy(parts[at].indices.begin(), parts[at].indices.end(), out.indices.begin() + begin[at]);
        std::copy(parts[at].data.begin(), parts[at].data.end(), out.data.begin() + begin[at]);
        parts[at] = {};
    });
    return out;
}

// Appends the `keep` sums of largest magnitude (lower feature first among equals) to `out`, ascending, and clears all.
inline void take_heaviest(kmeans::FeatureSums &sums, int64_t keep, std::vector<uint64_t> &keys, Uniter &order, SparseRows &out) {
    std::vector<int32_t> &touched = sums.touched;
    if (static_cast<int64_t>(touched.size()) > keep) {
        // As one number each, which need no look at the sums: magnitude, then the lower feature.
        keys.resize(touched.size());
        for (size_t k = 0; k < touched.size(); ++k)
            keys[k] = uint64_t{magnitude(sums[touched[k]])} << 32 | ~static_cast<uint32_t>(touched[k]);
        std::nth_element(keys.begin(), keys.begin() + keep, keys.end(), std::greater{});
        for (size_t k = 0; k < keys.size(); ++k) {
            const auto f = static_cast<int32_t>(~static_cast<uint32_t>(keys[k]));
            if (static_cast<int64_t>(k) < keep) touched[k] = f;
            else sums.forget(f);
        }
        touched.resize(keep);
    }
    order.add(touched);
    touched.clear();
    order.append_to(touched);
    sums.flush([&](int32_t f, float sum) {
        out.indices.push_back(f);
        out.data.push_back(sum);
    });
    out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
}

// Where the work items of heaviest_sums end: at kLabels lists, or earlier where lists are long.
inline std::vector<int64_t> item_ends(const CsrView &lists) {
    constexpr int64_t kLabels = 256, kRows = 512;
    std::vector<int64_t> ends;
    for (int64_t begin = 0, l = 1; l <= lists.n_rows; ++l)
        if (l == lists.n_rows || l - begin == kLabels || lists.indptr[l] - lists.indptr[begin] >= kRows) ends.push_back(begin = l);
    return ends;
}

// Row l of the result: the sum of the rows of X named in lists[l], each divided by its norm.
inline SparseRows heaviest_sums(const CsrView &X, const CsrView &lists, int64_t keep, int threads, const Watch &watch) {
    constexpr int64_t kRows = 4096, kAhead = 4;
    std::vector<float> scale(X.n_rows);
    parallel_for((X.n_rows + kRows - 1) / kRows, threads, [&](int64_t part, int) {
        for (int64_t i = part * kRows; i < std::min((part + 1) * kRows, X.n_rows); ++i) scale[i] = kmeans::inverse_norm(X, i);
    });
    const std::vector<int64_t> ends = item_ends(lists);
    std::vector<SparseRows> parts(ends.size());
    std::vector<kmeans::FeatureSums> room(worker_count(static_cast<int64_t>(parts.size()), threads));
    std::vector<Uniter> orders(room.size(), Uniter(X.n_cols));
    parallel_for(static_cast<int64_t>(parts.size()), threads, [&](int64_t item, int worker) {
        if (watch.cancelled()) return;
        const int64_t begin = item ? ends[item - 1] : 0, end = ends[item];
        kmeans::FeatureSums &sums = room[worker];
        sums.prepare(X.n_cols);
        std::vector<uint64_t> keys;
        for (int64_t l = begin; l < end; ++l) {
            for (int64_t k = lists.indptr[l]; k < lists.indptr[l + 1]; ++k) {
                if (k + kAhead < lists.indptr[l + 1]) expect_row(X, lists.indices[k + kAhead]);
                sums.add(X, lists.indices[k], scale[lists.indices[k]]);
            }
            take_heaviest(sums, keep, keys, orders[worker], parts[item]);
        }
        watch.advance(end - begin);
    });
    return joined(parts, threads);
}

} // namespace blockxmc
