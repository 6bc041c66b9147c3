// Lists of row numbers, one list per label.
#pragma once

#include <cstdint>
#include <span>

namespace blockxmc {

struct RowLists {
    const int64_t *indptr;
    const int32_t *indices;
    std::span<const int32_t> operator[](int64_t j) const { return {indices + indptr[j], indices + indptr[j + 1]}; }
};

} // namespace blockxmc
