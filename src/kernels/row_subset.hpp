// Some rows of X, copied out with their own feature numbers, so that all costs grow with these rows and not with the size of
// X.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lanes.hpp"
#include "local_features.hpp"

namespace blockxmc {

class RowSubset {
  public:
    explicit RowSubset(const Rows &all) : all_(all), features_(all.x.n_cols) {}

    // Replaces the rows held before by these.
    void take(std::span<const int32_t> rows) {
        features_.clear();
        columns_.clear();
        values_.clear();
        indptr_.assign(1, 0);
        costs_.clear();
        int64_t size = 0; // room at once: while a vector grows, two copies are held
        for (int32_t i : rows) size += all_.x.indptr[i + 1] - all_.x.indptr[i];
        columns_.resize(size);
        values_.resize(size);
        int64_t at = 0;
        for (int32_t i : rows) {
            const int64_t begin = all_.x.indptr[i], n = all_.x.indptr[i + 1] - begin;
            int32_t *const columns = columns_.data() + at;
            features_.numbers(all_.x.indices + begin, n, [=](int64_t k, int32_t number) { columns[k] = number; });
            std::copy_n(all_.x.data + begin, n, values_.data() + at);
            indptr_.push_back(at += n);
            if (all_.costs) costs_.push_back(all_.costs[i]);
        }
    }

    Rows rows() const {
        return {{indptr_.data(), columns_.data(), values_.data(), static_cast<int64_t>(indptr_.size()) - 1,
                 static_cast<int64_t>(features_.size())},
                all_.bias, all_.costs ? costs_.data() : nullptr, all_.uneven};
    }

    // The feature of all rows behind a feature of these; the bias comes last in both.
    int32_t feature(size_t local) const {
        return local < features_.size() ? features_.list()[local] : static_cast<int32_t>(all_.x.n_cols);
    }

    // The other way round; -1: these rows do not have the feature.
    int32_t find(int32_t feature) const { return features_.find(feature); }

  private:
    const Rows all_;
    LocalFeatures features_;
    Unset<int32_t> columns_;
    Unset<float> values_;
    std::vector<int64_t> indptr_{0};
    std::vector<Cost> costs_;
};

} // namespace blockxmc
