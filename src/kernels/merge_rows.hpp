// Two sparse matrices merged row by row: what vectors of labels need after training. Rows ascend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "row_sums.hpp"
#include "threads.hpp"

namespace blockxmc {

// Builds row after row: row_of(r, put) calls put(column, value) in ascending order. It is called twice, first to count.
template <typename RowOf>
SparseRows build_rows(int64_t n_rows, int threads, RowOf &&row_of) {
    constexpr int64_t kRows = 64; // per work item
    const auto for_rows = [&](auto &&use) {
        parallel_for((n_rows + kRows - 1) / kRows, threads, [&](int64_t item, int) {
            for (int64_t r = item * kRows; r < std::min((item + 1) * kRows, n_rows); ++r) use(r);
        });
    };
    SparseRows out;
    out.indptr.assign(n_rows + 1, 0);
    for_rows([&](int64_t r) {
        int64_t size = 0;
        row_of(r, [&](int32_t, float) { ++size; });
        out.indptr[r + 1] = size;
    });
    std::partial_sum(out.indptr.begin(), out.indptr.end(), out.indptr.begin());
    out.indices.resize(out.indptr.back());
    out.data.resize(out.indptr.back());
    for_rows([&](int64_t r) {
        int64_t at = out.indptr[r];
        row_of(r, [&](int32_t column, float value) {
            out.indices[at] = column;
            out.data[at++] = value;
        });
    });
    return out;
}

// Rows of A at unit length: parts below `least` are left out, but where the row of B has an entry too.
inline SparseRows large_or_known(const CsrView &a, const CsrView &b, float least, int threads) {
    return build_rows(a.n_rows, threads, [&](int64_t r, auto &&put) {
        double square = 0;
        for (int64_t k = a.indptr[r]; k < a.indptr[r + 1]; ++k) square += static_cast<double>(a.data[k]) * a.data[k];
        const auto length = static_cast<float>(square > 0 ? std::sqrt(square) : 1);
        int64_t other = b.indptr[r];
        for (int64_t k = a.indptr[r]; k < a.indptr[r + 1]; ++k) {
            while (other < b.indptr[r + 1] && b.indices[other] < a.indices[k]) ++other;
            const bool known = other < b.indptr[r + 1] && b.indices[other] == a.indices[k];
            const float value = a.data[k] / length;
            if (value != 0 && (known || std::fabs(value) >= least)) put(a.indices[k], value);
        }
    });
}

// A + share * B.
inline SparseRows weighted_sum(const CsrView &a, const CsrView &b, float share, int threads) {
    return build_rows(a.n_rows, threads, [&](int64_t r, auto &&put) {
        int64_t i = a.indptr[r], j = b.indptr[r];
        const int64_t end_a = a.indptr[r + 1], end_b = b.indptr[r + 1];
        while (i < end_a || j < end_b) {
            const int32_t x = i < end_a ? a.indices[i] : INT32_MAX, y = j < end_b ? b.indices[j] : INT32_MAX;
            const int32_t column = std::min(x, y);
            float value = 0;
            if (x == column) value += a.data[i++];
            if (y == column) value += share * b.data[j++];
            put(column, value);
        }
    });
}

} // namespace blockxmc
