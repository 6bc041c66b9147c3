// The largest values of a row, or of each row: they tell most about it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

// The bits of |value|: they have the order of the numbers, and NaN has a place in it too, above infinity. (Kernels refuse
// rows with either.)
inline uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu; }

// Finds them row by row, and allocates only for a row longer than all before.
class LargestValues {
  public:
    // The `most` largest of x by size (ties to the lower column), in the order of x; valid until the next call.
    RowView of(const RowView &x, int64_t most) {
        if (x.size <= most) return x;
        if (static_cast<int64_t>(values_.size()) < most) {
            indices_.resize(most);
            values_.resize(most);
        }
        copy(x, most, indices_.data(), values_.data());
        return {indices_.data(), values_.data(), most};
    }

    // The same, copied to arrays with room for min(most, x.size) of them.
    void copy(const RowView &x, int64_t most, int32_t *indices, float *values) {
        if (most <= 0) return;
        uint32_t least = 0;
        int32_t last = std::numeric_limits<int32_t>::max(); // the last column among those as large as the least
        if (x.size > most) std::tie(least, last) = bounds(x, most);
        int64_t room = std::min(most, x.size); // a column that comes twice may be tied with itself
        for (int64_t i = 0; i < x.size && room > 0; ++i) {
            const uint32_t size = magnitude(x.values[i]);
            if (size < least || (size == least && x.indices[i] > last)) continue;
            *indices++ = x.indices[i];
            *values++ = x.values[i];
            --room;
        }
    }

  private:
    std::pair<uint32_t, int32_t> bounds(const RowView &x, int64_t most) {
        sizes_.resize(x.size);
        for (int64_t i = 0; i < x.size; ++i) sizes_[i] = magnitude(x.values[i]);
        std::nth_element(sizes_.begin(), sizes_.begin() + most - 1, sizes_.end(), std::greater<>());
        const uint32_t least = sizes_[most - 1];
        tied_.clear();
        int64_t larger = 0;
        for (int64_t i = 0; i < x.size; ++i) {
            const uint32_t size = magnitude(x.values[i]);
            larger += size > least;
            if (size == least) tied_.push_back(x.indices[i]);
        }
        const auto last = tied_.begin() + (most - larger - 1);
        std::nth_element(tied_.begin(), last, tied_.end());
        return {least, *last};
    }

    std::vector<int32_t> indices_, tied_;
    std::vector<float> values_;
    std::vector<uint32_t> sizes_;
};

struct LargestOfRows {
    std::vector<int64_t> indptr;
    std::vector<int32_t> indices;
    std::vector<float> data;

    // `unit`: of rows at unit length.
    LargestOfRows(const CsrView &X, int64_t most, int threads, bool unit = false) : indptr(X.n_rows + 1, 0) {
        for (int64_t i = 0; i < X.n_rows; ++i) indptr[i + 1] = indptr[i] + std::min(X.row_size(i), most);
        indices.resize(indptr.back());
        data.resize(indptr.back());
        constexpr int64_t rows_per_item = 256;
        const int64_t n_items = (X.n_rows + rows_per_item - 1) / rows_per_item;
        std::vector<LargestValues> of_worker(worker_count(n_items, threads));
        std::vector<std::vector<float>> scaled(of_worker.size());
        parallel_for(n_items, threads, [&](int64_t t, int worker) {
            for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, X.n_rows); ++i) {
                const RowView row = unit ? at_unit_length(row_of(X, i), scaled[worker]) : row_of(X, i);
                of_worker[worker].copy(row, most, indices.data() + indptr[i], data.data() + indptr[i]);
            }
        });
    }

    // As scikit-learn's normalize has it; a row of zeros stays as it is.
    static RowView at_unit_length(const RowView &x, std::vector<float> &room) {
        double squares = 0;
        for (int64_t k = 0; k < x.size; ++k) squares += x.values[k] * x.values[k];
        if (squares == 0) return x;
        const double norm = std::sqrt(squares);
        room.resize(x.size);
        for (int64_t k = 0; k < x.size; ++k) room[k] = static_cast<float>(x.values[k] / norm);
        return {x.indices, room.data(), x.size};
    }

    CsrView view(int64_t n_cols) const {
        return {indptr.data(), indices.data(), data.data(), static_cast<int64_t>(indptr.size()) - 1, n_cols};
    }
};

} // namespace blockxmc
