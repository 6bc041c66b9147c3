// Of the rows that some labels learn from, those that are most like the labels' own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "candidate_scores.hpp"
#include "row_lists.hpp"
#include "row_unions.hpp"
#include "threads.hpp"

namespace blockxmc {

class NearestRows {
  public:
    // `sums` has the sum of each label's own rows; a label's `own` are among its `rows`, and both ascend.
    NearestRows(const CsrView &x, const CsrView &sums, const RowLists &own, const RowLists &rows)
        : x_(x), sums_(sums), own_(own), rows_(rows) {}

    // All rows of each label, but of those that are `cut` the `most` with the largest product with the sum: first its own,
    // and of rows that are as like those that come first. Labels that are cut have more rows, and no more of their own.
    RowUnions find(const uint8_t *cut, int64_t most, int n_threads) {
        const int64_t n_labels = sums_.n_rows;
        compute(cut, n_threads);
        RowUnions out;
        out.indptr.assign(n_labels + 1, 0);
        for (int64_t j = 0; j < n_labels; ++j)
            out.indptr[j + 1] = out.indptr[j] + (cut[j] ? most : static_cast<int64_t>(rows_[j].size()));
        out.rows.resize(out.indptr.back());
        constexpr int64_t kLabels = 16; // per work item
        parallel_for((n_labels + kLabels - 1) / kLabels, n_threads, [&](int64_t item, int) {
            for (int64_t j = item * kLabels; j < std::min((item + 1) * kLabels, n_labels); ++j) {
                int32_t *to = out.rows.data() + out.indptr[j];
                if (cut[j]) choose(j, most, to);
                else std::ranges::copy(rows_[j], to);
            }
        });
        return out;
    }

  private:
    // The product of every row of every label that is cut: by rows, each of which meets many labels at once.
    void compute(const uint8_t *cut, int n_threads) {
        std::vector<int64_t> begin(x_.n_rows + 1, 0);
        const auto for_pairs = [&](auto &&use) {
            for (int64_t j = 0; j < sums_.n_rows; ++j)
                for (int64_t k = rows_.indptr[j]; cut[j] && k < rows_.indptr[j + 1]; ++k) use(j, rows_.indices[k], k);
        };
        for_pairs([&](int64_t, int32_t i, int64_t) { ++begin[i + 1]; });
        for (int64_t i = 0; i < x_.n_rows; ++i) begin[i + 1] += begin[i];
        std::vector<int32_t> labels(begin.back());
        std::vector<int64_t> places(begin.back()), next(begin.begin(), begin.end() - 1);
        for_pairs([&](int64_t j, int32_t i, int64_t k) {
            labels[next[i]] = static_cast<int32_t>(j);
            places[next[i]++] = k;
        });
        likeness_.assign(rows_.indptr[sums_.n_rows], 0.0f);
        const CandidateScores scores(sums_, n_threads);
        constexpr int64_t kRows = 64; // per work item
        const int64_t n_items = (x_.n_rows + kRows - 1) / kRows;
        std::vector<CandidateScores::Scratch> scratch(worker_count(n_items, n_threads), scores.scratch());
        std::vector<std::vector<float>> found(scratch.size());
        parallel_for(n_items, n_threads, [&](int64_t item, int worker) {
            for (int64_t i = item * kRows; i < std::min((item + 1) * kRows, x_.n_rows); ++i) {
                const int64_t n = begin[i + 1] - begin[i];
                if (!n) continue;
                found[worker].resize(n);
                scores.row(x_, i, labels.data() + begin[i], n, found[worker].data(), scratch[worker]);
                for (int64_t s = 0; s < n; ++s) likeness_[places[begin[i] + s]] = found[worker][s];
            }
        });
    }

    void choose(int64_t j, int64_t most, int32_t *to) {
        const std::span<const int32_t> rows = rows_[j];
        const std::span<float> likeness(likeness_.data() + rows_.indptr[j], rows.size());
        size_t at = 0;
        for (int32_t i : own_[j]) {
            at = std::lower_bound(rows.begin() + static_cast<int64_t>(at), rows.end(), i) - rows.begin();
            likeness[at] = std::numeric_limits<float>::infinity();
        }
        if (!most) return;
        std::vector<float> sorted(likeness.begin(), likeness.end());
        std::ranges::nth_element(sorted, sorted.begin() + most - 1, std::greater{});
        const float last = sorted[most - 1];
        int64_t alike = most - std::ranges::count_if(likeness, [&](float value) { return value > last; });
        for (size_t k = 0; k < rows.size(); ++k)
            if (likeness[k] > last || (likeness[k] == last && alike-- > 0)) *to++ = rows[k];
    }

    const CsrView x_, sums_;
    const RowLists own_, rows_;
    std::vector<float> likeness_; // of each row of each label
};

} // namespace blockxmc
