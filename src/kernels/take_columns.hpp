// Some columns of a column-major matrix, turned row-major with only the rows that they use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace blockxmc {

struct TakenColumns {
    std::vector<int32_t> rows; // rows in use, ascending
    std::vector<int64_t> indptr; // of each of these rows
    std::vector<int32_t> columns; // positions in the list of columns taken, ascending
    std::vector<float> values;
};

// `slot` has one entry per row of the matrix, all -1, and is left so.
inline TakenColumns take_columns(const int64_t *indptr, const int32_t *indices, const float *data,
                                 std::span<const int32_t> columns, std::vector<int32_t> &slot) {
    TakenColumns out;
    for (int32_t c : columns)
        for (int64_t k = indptr[c]; k < indptr[c + 1]; ++k)
            if (slot[indices[k]] < 0) {
                slot[indices[k]] = 0;
                out.rows.push_back(indices[k]);
            }
    std::sort(out.rows.begin(), out.rows.end());
    for (size_t r = 0; r < out.rows.size(); ++r) slot[out.rows[r]] = static_cast<int32_t>(r);
    out.indptr.assign(out.rows.size() + 1, 0);
    for (int32_t c : columns)
        for (int64_t k = indptr[c]; k < indptr[c + 1]; ++k) ++out.indptr[slot[indices[k]] + 1];
    for (size_t r = 0; r < out.rows.size(); ++r) out.indptr[r + 1] += out.indptr[r];
    std::vector<int64_t> next(out.indptr.begin(), out.indptr.end() - 1);
    out.columns.resize(out.indptr.back());
    out.values.resize(out.indptr.back());
    for (size_t at = 0; at < columns.size(); ++at)
        for (int64_t k = indptr[columns[at]]; k < indptr[columns[at] + 1]; ++k) {
            const int64_t place = next[slot[indices[k]]]++;
            out.columns[place] = static_cast<int32_t>(at);
            out.values[place] = data[k];
        }
    for (int32_t row : out.rows) slot[row] = -1;
    return out;
}

} // namespace blockxmc
