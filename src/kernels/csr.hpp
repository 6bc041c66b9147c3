// A borrowed view of a CSR matrix: int64 row pointers, int32 column indices, float32 values.
#pragma once

#include <cstdint>

struct CsrView {
    const int64_t *indptr;
    const int32_t *indices;
    const float *data;  // nullptr: all ones (a label matrix)
    int64_t n_rows;
    int64_t n_cols;

    int64_t row_size(int64_t i) const { return indptr[i + 1] - indptr[i]; }
    int64_t nnz() const { return indptr[n_rows]; }
};
