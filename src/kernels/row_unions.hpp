// The rows that each of many labels learns from: those of all its blocks, and its own positives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "row_lists.hpp"
#include "large.hpp"
#include "threads.hpp"

namespace blockxmc {

struct RowUnions {
    std::vector<int64_t> indptr;
    Unset<int32_t> rows; // ascending within a label
};

// Unions of lists of numbers below n. A bit per number sorts a long union in one sweep; a short union is simply sorted.
class Uniter {
  public:
    explicit Uniter(int64_t n) : words_((n + 63) / 64) {}

    void add(std::span<const int32_t> rows) { met_.insert(met_.end(), rows.begin(), rows.end()); }

    // Appends what was added since the last time, ascending and each number once.
    template <typename Rows>
    void append_to(Rows &out) {
        if (met_.size() * kSweepsPerSort < words_.size()) {
            std::sort(met_.begin(), met_.end());
            out.insert(out.end(), met_.begin(), std::unique(met_.begin(), met_.end()));
        } else {
            for (int32_t row : met_) words_[row / 64] |= uint64_t{1} << (row % 64);
            for (size_t at = 0; at < words_.size(); ++at) {
                for (uint64_t left = words_[at]; left; left &= left - 1)
                    out.push_back(static_cast<int32_t>(at * 64 + std::countr_zero(left)));
                words_[at] = 0;
            }
        }
        met_.clear();
    }

  private:
    static constexpr size_t kSweepsPerSort = 8; // words swept in the time that sorting takes per number

    std::vector<uint64_t> words_;
    std::vector<int32_t> met_;
};

// blocks[j] names the blocks of label j, own[j] its positives; rows[b] are the rows of block b, numbers below n_rows.
inline RowUnions unite_rows(int64_t n_labels, int64_t n_rows, const RowLists &blocks, const RowLists &rows, const RowLists &own,
                            int n_threads) {
    constexpr int64_t kLabels = 256; // per work item
    const int64_t n_items = (n_labels + kLabels - 1) / kLabels;
    std::vector<Large<int32_t>> found(n_items);
    std::vector<Uniter> workers(worker_count(n_items, n_threads), Uniter(n_rows));
    RowUnions out;
    out.indptr.assign(n_labels + 1, 0);
    parallel_for(n_items, n_threads, [&](int64_t item, int worker) {
        for (int64_t j = item * kLabels; j < std::min((item + 1) * kLabels, n_labels); ++j) {
            for (int32_t block : blocks[j]) workers[worker].add(rows[block]);
            workers[worker].add(own[j]);
            const size_t before = found[item].size();
            workers[worker].append_to(found[item]);
            out.indptr[j + 1] = static_cast<int64_t>(found[item].size() - before);
        }
    });
    for (int64_t j = 0; j < n_labels; ++j) out.indptr[j + 1] += out.indptr[j];
    out.rows.resize(out.indptr.back());
    parallel_for(n_items, n_threads, [&](int64_t item, int) {
        std::ranges::copy(found[item], out.rows.begin() + out.indptr[item * kLabels]);
        Large<int32_t>().swap(found[item]); // frees the copy at once: two copies of all rows take too much memory
    });
    return out;
}

} // namespace blockxmc
