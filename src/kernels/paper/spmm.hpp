// Sparse times dense: out = X B with X in CSR and B, out row-major float32. X^T B is the same product on the transpose,
// stored once by the caller: no atomics, and every output number is summed in the order of its row, so that the bits
// depend neither on the number of threads nor on which columns are computed together.
//
// B is taken in panels of sixteen columns, copied so that a row of a panel is one cache line: a panel mostly fits the
// cache where B does not, and each non-zero of X then costs one line and one multiply-add.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace blockxmc::spmm {

constexpr int kWidth = 16;
// Sixteen numbers: one AVX-512 register, two AVX ones, four SSE or NEON ones.
typedef float Lanes __attribute__((vector_size(64)));

union alignas(64) Row { // explicit: compilers disagree on the alignment of wide vectors where AVX is off
    Lanes lanes;
    float of[kWidth];
};
using Panel = std::vector<Row>;

// Columns [first, first + count) of a matrix with rows of `stride` numbers; the panel's other columns become zero.
BLOCKXMC_INLINE void load(Panel &panel, const float *from, int64_t stride, int64_t first, int64_t count) {
    for (Row &row : panel) {
        row = Row{};
        std::copy(from + first, from + first + count, row.of);
        from += stride;
    }
}

BLOCKXMC_INLINE void store(const Panel &panel, float *to, int64_t stride, int64_t first, int64_t count) {
    for (const Row &row : panel) {
        std::copy(row.of, row.of + count, to + first);
        to += stride;
    }
}

// out = row i of X times the panel.
BLOCKXMC_INLINE void row_times(const CsrView &X, int64_t i, const Panel &panel, Row &out) {
    constexpr int64_t kStretch = 512; // long rows are summed in stretches: this bounds the rounding error
    constexpr int64_t kAhead = 16;     // rows of the panel lie far apart: ask for them early
    Lanes total = {};
    const int64_t end = X.indptr[i + 1];
    for (int64_t start = X.indptr[i]; start < end; start += kStretch) {
        const int64_t stop = std::min(end, start + kStretch);
        Lanes sum = {};
        for (int64_t e = start; e < stop; ++e) {
            if (e + kAhead < end) __builtin_prefetch(&panel[X.indices[e + kAhead]]);
            sum += X.data[e] * panel[X.indices[e]].lanes;
        }
        total += sum;
    }
    out.lanes = total;
}

BLOCKXMC_INLINE void panel_times(const CsrView &X, const Panel &panel, Panel &out) {
    for (int64_t i = 0; i < X.n_rows; ++i) row_times(X, i, panel, out[i]);
}

using PanelTimes = void (*)(const CsrView &, const Panel &, Panel &);

inline void panel_times_plain(const CsrView &X, const Panel &panel, Panel &out) { panel_times(X, panel, out); }
BLOCKXMC_TARGET("avx2")
inline void panel_times_avx2(const CsrView &X, const Panel &panel, Panel &out) { panel_times(X, panel, out); }
BLOCKXMC_TARGET("avx512f")
inline void panel_times_avx512(const CsrView &X, const Panel &panel, Panel &out) { panel_times(X, panel, out); }

inline int64_t n_panels(int64_t n_columns) { return (n_columns + kWidth - 1) / kWidth; }

// out (n_rows x n_columns) = X B.
inline void multiply(const CsrView &X, const float *B, int64_t n_columns, float *out, int n_threads) {
    const PanelTimes times = widest<PanelTimes>(panel_times_plain, panel_times_avx2, panel_times_avx512);
    const int workers = worker_count(n_panels(n_columns), n_threads);
    std::vector<Panel> given(workers), found(workers);
    parallel_for(n_panels(n_columns), n_threads, [&](int64_t item, int worker) {
        const int64_t first = item * kWidth, count = std::min<int64_t>(kWidth, n_columns - first);
        given[worker].resize(X.n_cols);
        found[worker].resize(X.n_rows);
        load(given[worker], B, n_columns, first, count);
        times(X, given[worker], found[worker]);
        store(found[worker], out, n_columns, first, count);
    });
}

} // namespace blockxmc::spmm
