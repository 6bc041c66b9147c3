// Boundary checks shared by the bindings: after them a kernel may trust every index it follows.
#pragma once

#include <optional>
#include <stdexcept>

#include "bindings.hpp"
#include "csr.hpp"
#include "threads.hpp"

inline void require(bool holds, const char *message) {
    if (!holds) throw std::invalid_argument(message);
}

// Row pointers start at 0, never fall, and end at the number of entries.
inline void require_pointers(const In1<int64_t> &ptr, size_t n_entries, const char *message) {
    require(ptr.size() >= 1 && ptr(0) == 0 && ptr(ptr.size() - 1) == static_cast<int64_t>(n_entries), message);
    for (size_t i = 1; i < ptr.size(); ++i) require(ptr(i - 1) <= ptr(i), message);
}

inline void require_range(const int32_t *ids, size_t n, int64_t limit, const char *message) {
    bool inside = true;
    for (size_t i = 0; i < n; ++i) inside &= ids[i] >= 0 && ids[i] < limit;
    require(inside, message);
}

inline CsrView checked_csr(const In1<int64_t> &indptr, const In1<int32_t> &indices, const float *data, size_t n_data,
                           int64_t n_cols) {
    require_pointers(indptr, indices.size(), "row pointers do not fit the indices");
    require(!data || n_data == indices.size(), "indices and values differ in length");
    require_range(indices.data(), indices.size(), n_cols, "column index out of range");
    return {indptr.data(), indices.data(), data, static_cast<int64_t>(indptr.size()) - 1, n_cols};
}

inline Watch checked_watch(std::optional<Out1<int64_t>> &progress) {
    if (!progress) return Watch();
    require(progress->size() == 2, "progress must hold two numbers");
    return Watch(progress->data());
}
