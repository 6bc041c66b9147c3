// Label filters, serving: the labels whose interval holds the row's projection in every filter.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.hpp"

namespace blockxmc {

// For every filter the line is cut into buckets, and each bucket has a bitmap of the labels whose interval touches it.
// A row's candidates are the conjunction of one bitmap per filter, checked exactly label by label.
class FilterIndex {
  public:
    FilterIndex(const float *lower, const float *upper, int64_t n_filters, int64_t n_labels)
        : lower_(lower), upper_(upper), n_filters_(n_filters), n_labels_(n_labels), n_words_((n_labels + 63) / 64) {
        constexpr int64_t kBudget = int64_t{1} << 23; // words: 64 MiB of bitmaps at most, unless 16 buckets need more
        n_buckets_ = std::clamp<int64_t>(kBudget / std::max<int64_t>(1, n_filters * n_words_), 16, 1024);
        edges_.resize(n_filters);
        bitmaps_.assign(n_filters * n_buckets_ * n_words_, 0);
        for (int64_t f = 0; f < n_filters; ++f) build(f);
    }

    int64_t n_filters() const { return n_filters_; }
    int64_t n_labels() const { return n_labels_; }

    // Appends the candidates of a row with these projections, ascending.
    void candidates(const float *projection, std::vector<int32_t> &out) const {
        const uint64_t *maps[64];
        for (int64_t f = 0; f < n_filters_; ++f) maps[f] = bitmap(f, bucket_of(f, projection[f]));
        for (int64_t word = 0; word < n_words_; ++word) {
            uint64_t bits = maps[0][word];
            for (int64_t f = 1; f < n_filters_; ++f) bits &= maps[f][word];
            for (; bits; bits &= bits - 1) {
                const int64_t label = 64 * word + std::countr_zero(bits);
                if (inside(projection, label)) out.push_back(static_cast<int32_t>(label));
            }
        }
    }

  private:
    const float *lower_, *upper_; // n_filters x n_labels
    int64_t n_filters_, n_labels_, n_words_, n_buckets_;
    std::vector<std::vector<float>> edges_; // ascending; bucket b is (edge b-1, edge b]
    std::vector<uint64_t> bitmaps_;

    const uint64_t *bitmap(int64_t f, int64_t bucket) const {
        return bitmaps_.data() + (f * n_buckets_ + bucket) * n_words_;
    }
    int64_t bucket_of(int64_t f, float p) const {
        return std::lower_bound(edges_[f].begin(), edges_[f].end(), p) - edges_[f].begin();
    }
    bool inside(const float *projection, int64_t label) const {
        for (int64_t f = 0; f < n_filters_; ++f)
            if (!(lower_[f * n_labels_ + label] < projection[f] && projection[f] <= upper_[f * n_labels_ + label]))
                return false;
        return true;
    }

    // Edges are quantiles of the bounds: every bucket has about the same number of bounds.
    void build(int64_t f) {
        const float *lower = lower_ + f * n_labels_, *upper = upper_ + f * n_labels_;
        std::vector<float> bounds;
        for (int64_t c = 0; c < n_labels_; ++c)
            if (lower[c] < upper[c]) bounds.insert(bounds.end(), {lower[c], upper[c]});
        std::sort(bounds.begin(), bounds.end());
        auto &edges = edges_[f];
        const auto n = static_cast<int64_t>(bounds.size());
        for (int64_t b = 1; b < n_buckets_ && n; ++b) edges.push_back(bounds[b * (n - 1) / n_buckets_]);
        edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
        for (int64_t c = 0; c < n_labels_; ++c) {
            if (!(lower[c] < upper[c])) continue;
            // The first point inside lies just above `lower`, the last one is `upper`.
            const int64_t first = std::upper_bound(edges.begin(), edges.end(), lower[c]) - edges.begin();
            for (int64_t b = first; b <= bucket_of(f, upper[c]); ++b)
                bitmaps_[(f * n_buckets_ + b) * n_words_ + c / 64] |= uint64_t{1} << (c % 64);
        }
    }
};

} // namespace blockxmc
