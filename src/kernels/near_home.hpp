// Which blocks a row teaches the router: its own, and others in which its labels are nearly as much at home.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

struct BlockLists {
    std::vector<int64_t> indptr;
    std::vector<int32_t> blocks; // of each row, ascending
};

// `home` (labels x blocks) says how much a label is at home in a block. Of a row, the `most` blocks are taken in which its labels
// are most at home together, if they are there at least `near` times as much as in its own block; the own one always.
inline BlockLists near_home(const CsrView &Y, const CsrView &home, const int32_t *assignment, float near, int64_t most,
                            int threads) {
    constexpr int64_t kRows = 1024;
    struct Room {
        std::vector<float> sums;
        std::vector<int32_t> touched;
        std::vector<std::pair<float, int32_t>> best; // minus the share, so that the largest come first; and the block
    };
    const int64_t n_items = (Y.n_rows + kRows - 1) / kRows;
    std::vector<Room> rooms(worker_count(n_items, threads));
    std::vector<std::vector<int32_t>> found(n_items);
    BlockLists out;
    out.indptr.assign(Y.n_rows + 1, 0);
    const auto list = [&](int64_t row, Room &room, std::vector<int32_t> &blocks) {
        for (int64_t k = Y.indptr[row]; k < Y.indptr[row + 1]; ++k)
            for (int64_t h = home.indptr[Y.indices[k]]; h < home.indptr[Y.indices[k] + 1]; ++h) {
                float &sum = room.sums[home.indices[h]];
                if (sum == 0) room.touched.push_back(home.indices[h]);
                sum += home.data[h];
            }
        const float least = near * room.sums[assignment[row]];
        room.best.clear();
        for (const int32_t block : room.touched) {
            const float sum = std::exchange(room.sums[block], 0.0f);
            if (sum >= least) room.best.emplace_back(-sum, block);
        }
        room.touched.clear();
        const auto end = room.best.begin() + std::min<int64_t>(most, int64_t(room.best.size()));
        std::partial_sort(room.best.begin(), end, room.best.end());
        const auto begin = static_cast<std::ptrdiff_t>(blocks.size());
        blocks.push_back(assignment[row]);
        for (auto each = room.best.begin(); each != end; ++each)
            if (each->second != assignment[row]) blocks.push_back(each->second);
        std::sort(blocks.begin() + begin, blocks.end());
        out.indptr[row + 1] = static_cast<int64_t>(blocks.size()) - begin;
    };
    parallel_for(n_items, threads, [&](int64_t item, int worker) {
        rooms[worker].sums.resize(home.n_cols, 0.0f);
        for (int64_t row = item * kRows; row < std::min((item + 1) * kRows, Y.n_rows); ++row)
            list(row, rooms[worker], found[item]);
    });
    for (int64_t row = 0; row < Y.n_rows; ++row) out.indptr[row + 1] += out.indptr[row];
    out.blocks.reserve(out.indptr.back());
    for (const std::vector<int32_t> &part : found) out.blocks.insert(out.blocks.end(), part.begin(), part.end());
    return out;
}

} // namespace blockxmc
