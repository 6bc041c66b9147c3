// The bonuses of some labels of a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace blockxmc {

// A bit per label says whether it has a bonus, so that looking up many labels stays in cache.
class Bonuses {
  public:
    void start_row(int64_t n_labels) {
        for (const int32_t label : labels_) bits_[label >> 6] = 0;
        labels_.clear();
        scale_ = most_ = 0;
        if (static_cast<int64_t>(value_.size()) >= n_labels) return;
        value_.resize(n_labels);
        bits_.resize(n_labels / 64 + 1, 0);
    }
    void add(int32_t label, float value) {
        if (has(label)) {
            value_[label] += value;
        } else {
            bits_[label >> 6] |= uint64_t{1} << (label & 63);
            value_[label] = value;
            labels_.push_back(label);
        }
    }
    // Ends a row: every bonus is multiplied by `scale`.
    void scale(float scale) {
        scale_ = scale;
        for (const int32_t label : labels_) most_ = std::max(most_, of(label));
    }
    float of(int32_t label) const { return has(label) ? value_[label] * scale_ : 0.0f; }
    float most() const { return most_; }
    const std::vector<int32_t> &labels() const { return labels_; } // in the order they were added

    bool has(int32_t label) const { return bits_[label >> 6] >> (label & 63) & 1; }

  private:
    std::vector<uint64_t> bits_;
    std::vector<float> value_;
    std::vector<int32_t> labels_;
    float scale_ = 0, most_ = 0;
};

} // namespace blockxmc
