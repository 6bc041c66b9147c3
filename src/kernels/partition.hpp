// The two steps of block-wise partitioning on a binary label matrix.
//
// rank_labels: how often each label occurs in each block, ranked; every label cluster, for any penalty, is a prefix.
// choose_blocks: each row moves to the block whose label cluster holds most of its labels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "group.hpp"
#include "threads.hpp"

namespace blockxmc {

// The cluster that holds most of each row's labels by their weights (of equal ones the lower; -1: a row without labels). The
// labels of a cluster are added up in the order of the row.
inline std::vector<int32_t> heaviest_clusters(const CsrView &Y, const double *weight, const int32_t *cluster_of, int threads) {
    std::vector<int32_t> out(Y.n_rows, -1);
    constexpr int64_t kRows = 1024;
    parallel_for((Y.n_rows + kRows - 1) / kRows, threads, [&](int64_t part, int) {
        std::vector<std::pair<int32_t, int64_t>> held; // cluster, and where the label stands
        for (int64_t i = part * kRows; i < std::min((part + 1) * kRows, Y.n_rows); ++i) {
            held.clear();
            for (int64_t k = Y.indptr[i]; k < Y.indptr[i + 1]; ++k) held.emplace_back(cluster_of[Y.indices[k]], k);
            std::sort(held.begin(), held.end());
            double heaviest = -1;
            for (size_t at = 0; at < held.size();) {
                const int32_t cluster = held[at].first;
                double sum = 0;
                for (; at < held.size() && held[at].first == cluster; ++at) sum += weight[Y.indices[held[at].second]];
                if (sum <= heaviest) continue;
                heaviest = sum;
                out[i] = cluster;
            }
        }
    });
    return out;
}

struct RankedLabels {
    std::vector<int64_t> indptr; // n_blocks + 1
    std::vector<int32_t> labels; // by count, highest first; equal counts by lower id
    std::vector<int32_t> counts;
};

// Counts below min_count are left out. O(nnz(Y)) plus the sort of what is kept; memory O(threads * m + nnz(Y)).
inline RankedLabels rank_labels(const CsrView &Y, const int32_t *assignment, int64_t n_blocks, int64_t min_count,
                                int threads) {
    const RowGroups groups(assignment, Y.n_rows, n_blocks);
    std::vector<std::vector<uint64_t>> keys(n_blocks); // (complement of count, label): ascending order is the ranking
    struct Scratch {
        std::vector<int32_t> count, touched;
    };
    std::vector<Scratch> scratch(worker_count(n_blocks, threads));
    parallel_for(n_blocks, threads, [&](int64_t block, int worker) {
        auto &[count, touched] = scratch[worker];
        count.resize(Y.n_cols, 0);
        for (int64_t r = groups.begin[block]; r < groups.begin[block + 1]; ++r) {
            const int64_t i = groups.rows[r];
            for (int64_t k = Y.indptr[i]; k < Y.indptr[i + 1]; ++k)
                if (count[Y.indices[k]]++ == 0) touched.push_back(Y.indices[k]);
        }
        for (int32_t label : touched) {
            if (count[label] >= min_count)
                keys[block].push_back((uint64_t(UINT32_MAX - uint32_t(count[label])) << 32) | uint32_t(label));
            count[label] = 0;
        }
        touched.clear();
        std::sort(keys[block].begin(), keys[block].end());
    });
    RankedLabels out;
    out.indptr.assign(n_blocks + 1, 0);
    for (int64_t l = 0; l < n_blocks; ++l) out.indptr[l + 1] = out.indptr[l] + int64_t(keys[l].size());
    out.labels.resize(out.indptr[n_blocks]);
    out.counts.resize(out.indptr[n_blocks]);
    parallel_for(n_blocks, threads, [&](int64_t l, int) {
        for (size_t k = 0; k < keys[l].size(); ++k) {
            out.labels[out.indptr[l] + k] = int32_t(keys[l][k] & UINT32_MAX);
            out.counts[out.indptr[l] + k] = int32_t(UINT32_MAX - uint32_t(keys[l][k] >> 32));
        }
        std::vector<uint64_t>().swap(keys[l]);
    });
    return out;
}

// Label -> the blocks that hold it, or, where they are more than half, the blocks that do not: a row's counts are then
// `base` (its labels of the second kind) plus or minus one per listed block, and no label lists more than q/2 blocks.
class BlocksOfLabel {
  public:
    BlocksOfLabel(const int64_t *indptr, const int32_t *labels, int64_t n_blocks, int64_t n_labels)
        : complement(n_labels, 0), begin(n_labels + 1, 0) {
        std::vector<int64_t> holders(n_labels, 0);
        for (int64_t k = 0; k < indptr[n_blocks]; ++k) ++holders[labels[k]];
        for (int64_t j = 0; j < n_labels; ++j) {
            complement[j] = 2 * holders[j] > n_blocks;
            begin[j + 1] = begin[j] + (complement[j] ? n_blocks - holders[j] : holders[j]);
        }
        blocks.resize(begin[n_labels]);
        std::vector<int64_t> next(begin.begin(), begin.end() - 1);
        std::vector<int64_t> last(n_labels, -1); // the last block seen to hold a complemented label
        for (int64_t l = 0; l < n_blocks; ++l)
            for (int64_t k = indptr[l]; k < indptr[l + 1]; ++k) {
                const int32_t j = labels[k];
                if (!complement[j]) {
                    blocks[next[j]++] = int32_t(l);
                    continue;
                }
                for (int64_t gap = last[j] + 1; gap < l; ++gap) blocks[next[j]++] = int32_t(gap);
                last[j] = l;
            }
        for (int64_t j = 0; j < n_labels; ++j)
            if (complement[j])
                for (int64_t gap = last[j] + 1; gap < n_blocks; ++gap) blocks[next[j]++] = int32_t(gap);
    }

    std::vector<uint8_t> complement;
    std::vector<int64_t> begin;
    std::vector<int32_t> blocks;
};

// A row's counts over all blocks, sparse around `base`.
struct RowCounts {
    std::vector<int32_t> delta;
    std::vector<int32_t> touched;
    int64_t base = 0;

    void add(const BlocksOfLabel &where, int32_t label) {
        const int32_t sign = where.complement[label] ? -1 : 1;
        base += where.complement[label];
        for (int64_t k = where.begin[label]; k < where.begin[label + 1]; ++k) {
            const int32_t block = where.blocks[k];
            if (delta[block] == 0) touched.push_back(block); // may repeat after a cancellation: harmless
            delta[block] += sign;
        }
    }
    void clear() {
        for (int32_t block : touched) delta[block] = 0;
        touched.clear();
        base = 0;
    }
};

enum class Tie { stay, small };

struct BlockChoice {
    std::vector<int32_t> assignment;
    int64_t captured = 0;
};

// Row i goes to the block with the largest |y_i ∩ L_l| - price * |L_l|. Among equals: its present block (Tie::stay), then the
// smallest label cluster, then the lowest id; Tie::small asks for the smallest cluster first. A row whose labels are in no
// cluster keeps its block (-1 included).
inline BlockChoice choose_blocks(const CsrView &Y, const int64_t *indptr, const int32_t *labels, int64_t n_blocks,
                                 const int32_t *assignment, double price, Tie tie, int threads) {
    const BlocksOfLabel where(indptr, labels, n_blocks, Y.n_cols);
    const auto size = [&](int32_t l) { return indptr[l + 1] - indptr[l]; };
    std::vector<int32_t> by_size(n_blocks);
    std::iota(by_size.begin(), by_size.end(), 0);
    std::stable_sort(by_size.begin(), by_size.end(), [&](int32_t a, int32_t b) { return size(a) < size(b); });

    BlockChoice out;
    out.assignment.assign(assignment, assignment + Y.n_rows);
    constexpr int64_t kChunk = 256;
    const int64_t n_chunks = (Y.n_rows + kChunk - 1) / kChunk;
    std::vector<int64_t> captured(n_chunks, 0);
    std::vector<RowCounts> scratch(worker_count(n_chunks, threads));
    for (auto &counts : scratch) counts.delta.assign(n_blocks, 0);

    const auto choose = [&](const RowCounts &row, int32_t current) {
        const auto score = [&](int32_t l) { return double(row.delta[l]) - price * double(size(l)); };
        const auto better = [&](int32_t a, int32_t b) {
            const double sa = score(a), sb = score(b);
            if (sa != sb) return sa > sb;
            if (tie == Tie::stay && (a == current || b == current)) return a == current;
            if (size(a) != size(b)) return size(a) < size(b);
            if (a == current || b == current) return a == current;
            return a < b;
        };
        // The best of the blocks at `base` is the first of them by size; all others are in the touched list.
        int32_t best = current;
        for (int32_t l : by_size)
            if (row.delta[l] == 0) {
                if (best < 0 || better(l, best)) best = l;
                break;
            }
        for (int32_t l : row.touched)
            if (best < 0 || better(l, best)) best = l;
        return best;
    };
    parallel_for(n_chunks, threads, [&](int64_t chunk, int worker) {
        RowCounts &row = scratch[worker];
        for (int64_t i = chunk * kChunk; i < std::min((chunk + 1) * kChunk, Y.n_rows); ++i) {
            for (int64_t k = Y.indptr[i]; k < Y.indptr[i + 1]; ++k) row.add(where, Y.indices[k]);
            if (row.base > 0 || !row.touched.empty()) {
                out.assignment[i] = choose(row, assignment[i]);
                captured[chunk] += row.base + row.delta[out.assignment[i]];
            }
            row.clear();
        }
    });
    out.captured = std::accumulate(captured.begin(), captured.end(), int64_t(0));
    return out;
}

} // namespace blockxmc
