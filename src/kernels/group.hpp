// Rows grouped by the block they belong to: a stable counting sort, so rows keep their order inside a block.
#pragma once

#include <cstdint>
#include <vector>

namespace blockxmc {

struct RowGroups {
    std::vector<int64_t> begin; // n_blocks + 1
    std::vector<int64_t> rows;   // rows of block l at [begin[l], begin[l + 1]); rows without a block (-1) are left out

    RowGroups(const int32_t *assignment, int64_t n_rows, int64_t n_blocks) : begin(n_blocks + 1, 0) {
        for (int64_t i = 0; i < n_rows; ++i)
            if (assignment[i] >= 0) ++begin[assignment[i] + 1];
        for (int64_t l = 0; l < n_blocks; ++l) begin[l + 1] += begin[l];
        rows.resize(begin[n_blocks]);
        std::vector<int64_t> next(begin.begin(), begin.end() - 1);
        for (int64_t i = 0; i < n_rows; ++i)
            if (assignment[i] >= 0) rows[next[assignment[i]]++] = i;
    }
};

} // namespace blockxmc
