// CSR arrays from Python become a view only after every index has been checked.
#pragma once

#include <stdexcept>
#include <string>

#include "bindings.hpp"
#include "csr.hpp"

// Row pointers must rise from 0 to the number of entries; indices must rise strictly within a row and stay below n_cols.
inline CsrView checked_csr(const char *name, const In1<int64_t> &indptr, const In1<int32_t> &indices, const float *data,
                           int64_t n_cols) {
    const auto fail = [&](const char *what) { throw std::invalid_argument(std::string(name) + ": " + what); };
    const int64_t n_rows = static_cast<int64_t>(indptr.shape(0)) - 1;
    if (n_rows < 0 || indptr.data()[0] != 0 || indptr.data()[n_rows] != static_cast<int64_t>(indices.shape(0)))
        fail("row pointers do not match the number of entries");
    for (int64_t i = 0; i < n_rows; ++i)
        if (indptr.data()[i] > indptr.data()[i + 1]) fail("row pointers fall");
    for (int64_t i = 0; i < n_rows; ++i) {
        int64_t last = -1;
        for (int64_t e = indptr.data()[i]; e < indptr.data()[i + 1]; ++e) {
            const int64_t column = indices.data()[e];
            if (column <= last || column >= n_cols) fail("column indices are unsorted, repeated or out of range");
            last = column;
        }
    }
    return {indptr.data(), indices.data(), data, n_rows, n_cols};
}

inline CsrView checked_csr(const char *name, const In1<int64_t> &indptr, const In1<int32_t> &indices,
                           const In1<float> &data, int64_t n_cols) {
    if (data.shape(0) != indices.shape(0)) throw std::invalid_argument(std::string(name) + ": values and indices differ in number");
    return checked_csr(name, indptr, indices, data.data(), n_cols);
}
