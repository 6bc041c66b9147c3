// Numbers of the features that some rows use, in the order in which they are met.
#pragma once

#include <cstdint>
#include <vector>

namespace blockxmc {

class LocalFeatures {
  public:
    explicit LocalFeatures(int64_t n_features) : slot_(n_features, -1) {}

    void clear() {
        for (int32_t f : features_) slot_[f] = -1;
        features_.clear();
    }

    int32_t number(int32_t feature) {
        int32_t &slot = slot_[feature];
        if (slot < 0) {
            slot = static_cast<int32_t>(features_.size());
            features_.push_back(feature);
        }
        return slot;
    }

    // The features by number.
    const std::vector<int32_t> &list() const { return features_; }
    size_t size() const { return features_.size(); }

  private:
    std::vector<int32_t> slot_; // feature -> number, -1: not in the rows
    std::vector<int32_t> features_;
};

} // namespace blockxmc
