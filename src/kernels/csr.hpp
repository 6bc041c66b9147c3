// A borrowed view of a CSR matrix: int64 row pointers, int32 column indices, float32 values.
#pragma once

#include <cmath>
#include <cstdint>

namespace blockxmc {

struct CsrView {
    const int64_t *indptr;
    const int32_t *indices;
    const float *data; // nullptr: all ones (a label matrix)
    int64_t n_rows;
    int64_t n_cols;

    int64_t row_size(int64_t i) const { return indptr[i + 1] - indptr[i]; }
    int64_t nnz() const { return indptr[n_rows]; }
};

// One row of features; need not be sorted.
struct RowView {
    const int32_t *indices;
    const float *values;
    int64_t size;

    float length() const {
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        return static_cast<float>(std::sqrt(sum));
    }
};

inline RowView row_of(const CsrView &X, int64_t i) {
    return {X.indices + X.indptr[i], X.data + X.indptr[i], X.row_size(i)};
}

// A row that will soon be read: its numbers are on their way from memory while other rows are.
inline void expect_row(const CsrView &X, int64_t i) {
    constexpr int64_t kLine = 64 / sizeof(float);
    for (int64_t k = X.indptr[i]; k < X.indptr[i + 1]; k += kLine) {
        __builtin_prefetch(X.indices + k);
        __builtin_prefetch(X.data + k);
    }
}

} // namespace blockxmc
