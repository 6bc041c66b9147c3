// The negatives of a label that are most like its positives, for labels that have few of these.
//
// Such a label hardly tells the other rows apart: all that they do is to hold its bias down, and for that it is enough to know
// how many they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lanes.hpp"

namespace blockxmc {

class NearestNegatives {
  public:
    explicit NearestNegatives(const Rows &rows) : rows_(rows), sum_(rows.x.n_cols) {}

    // Looks at the members that are not among the positives (both ascend) by their products with the sum of the positives.
    void choose(std::span<const int32_t> positives, std::span<const int32_t> members, size_t most) {
        const auto for_values = [&](auto &&use) {
            for (int32_t i : positives)
                for (int64_t k = rows_.x.indptr[i]; k < rows_.x.indptr[i + 1]; ++k) use(rows_.x.indices[k], rows_.x.data[k]);
        };
        for_values([&](int32_t f, float value) { sum_[f] += value; });
        like_.clear();
        others_ = 0;
        size_t p = 0;
        for (int32_t i : members) {
            const bool is_positive = p < positives.size() && positives[p] == i;
            p += is_positive;
            const double cost = rows_.cost(i).negative;
            if (is_positive || !(cost > 0)) continue; // a row of weight 0 takes nobody's place
            like_.push_back({0, i});
            others_ += cost; // those that are chosen are taken off: the order of the others is the library's
        }
        size_t at = 0;
        for (; at + 1 < like_.size(); at += 2) two_products(like_[at], like_[at + 1]);
        if (at < like_.size()) like_[at].product = product(like_[at].row);
        for (Like &row : like_)
            if (row.product != row.product) row.product = -INFINITY; // what is no number cannot be sorted
        for_values([&](int32_t f, float) { sum_[f] = 0; });
        take(most);
    }

    // The rows with the largest products, `most` or all of them, ascending; of rows that are as like, the first.
    std::span<const int32_t> chosen() const { return chosen_; }
    // What the other rows count, all together.
    double others() const { return others_; }

  private:
    struct Like {
        float product;
        int32_t row;
        bool nearer_than(const Like &other) const { return product != other.product ? product > other.product : row < other.row; }
    };

    float product(int32_t i) const { return product_from(rows_.x.indptr[i], rows_.x.indptr[i + 1], 0, 0); }

    // With what is summed already of the numbers in front, an even number of them.
    float product_from(int64_t k, int64_t end, float even, float odd) const {
        for (; k + 1 < end; k += 2) {
            even += sum_[rows_.x.indices[k]] * rows_.x.data[k];
            odd += sum_[rows_.x.indices[k + 1]] * rows_.x.data[k + 1];
        }
        if (k < end) even += sum_[rows_.x.indices[k]] * rows_.x.data[k];
        return even + odd;
    }

    // The same of two rows, side by side: the sums of one row wait for themselves at every step.
    void two_products(Like &one, Like &other) const {
        int64_t k = rows_.x.indptr[one.row], l = rows_.x.indptr[other.row];
        const int64_t end = rows_.x.indptr[one.row + 1], other_end = rows_.x.indptr[other.row + 1];
        const int32_t *const index = rows_.x.indices;
        const float *const value = rows_.x.data, *const sum = sum_.data();
        float even = 0, odd = 0, other_even = 0, other_odd = 0;
        for (; k + 1 < end && l + 1 < other_end; k += 2, l += 2) {
            even += sum[index[k]] * value[k];
            odd += sum[index[k + 1]] * value[k + 1];
            other_even += sum[index[l]] * value[l];
            other_odd += sum[index[l + 1]] * value[l + 1];
        }
        one.product = product_from(k, end, even, odd);
        other.product = product_from(l, other_end, other_even, other_odd);
    }

    void take(size_t most) {
        const auto near = static_cast<int64_t>(std::min(most, like_.size()));
        const auto nearer = [](const Like &a, const Like &b) { return a.nearer_than(b); };
        if (near < static_cast<int64_t>(like_.size())) std::nth_element(like_.begin(), like_.begin() + near, like_.end(), nearer);
        chosen_.clear();
        for (const Like &row : std::span(like_).first(near)) chosen_.push_back(row.row);
        std::ranges::sort(chosen_);
        if (near == static_cast<int64_t>(like_.size())) others_ = 0;
        else
            for (int32_t i : chosen_) others_ -= rows_.cost(i).negative;
    }

    const Rows rows_;
    std::vector<float> sum_; // of the positives, per feature; 0 between two calls
    std::vector<Like> like_;
    std::vector<int32_t> chosen_;
    double others_ = 0;
};

} // namespace blockxmc
