// Rows of a sparse matrix copied to their places in a larger one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

// Row i of `from` begins at starts[i] of the arrays `indices` and `data`; no two rows meet there.
inline void place_rows(const CsrView &from, const int64_t *starts, int32_t *indices, float *data, int n_threads) {
    constexpr int64_t kRows = 1024; // per work item
    parallel_for((from.n_rows + kRows - 1) / kRows, n_threads, [&](int64_t item, int) {
        for (int64_t i = item * kRows; i < std::min((item + 1) * kRows, from.n_rows); ++i) {
            std::copy(from.indices + from.indptr[i], from.indices + from.indptr[i + 1], indices + starts[i]);
            std::copy(from.data + from.indptr[i], from.data + from.indptr[i + 1], data + starts[i]);
        }
    });
}

} // namespace blockxmc
