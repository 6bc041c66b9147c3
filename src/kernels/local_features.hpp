// Numbers of the features that some rows use, in the order in which they are met.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace blockxmc {

class LocalFeatures {
  public:
    explicit LocalFeatures(int64_t n_features) : slot_(n_features, -1), features_(n_features + 1) {}

    // Features are below this number from now on.
    void make_room(int64_t n_features) {
        clear();
        if (n_features <= static_cast<int64_t>(slot_.size())) return;
        slot_.resize(n_features, -1);
        features_.resize(n_features + 1);
    }

    void clear() {
        for (int32_t f : list()) slot_[f] = -1;
        size_ = 0;
    }

    // Without a branch: whether a feature is new cannot be foreseen.
    int32_t number(int32_t feature) {
        const int32_t known = slot_[feature], is_new = known < 0;
        const int32_t number = is_new ? size_ : known;
        slot_[feature] = number;
        features_[size_] = feature;
        size_ += is_new;
        return number;
    }

    // The numbers of many features, in their order: out(k, number).
    template <class Out> void numbers(const int32_t *features, int64_t n, Out &&out) {
        int32_t *const slot = slot_.data(), *const list = features_.data();
        int32_t size = size_; // in a register: as a member it would go through memory with every feature
        for (int64_t k = 0; k < n; ++k) {
            const int32_t feature = features[k], known = slot[feature], is_new = known < 0;
            const int32_t number = is_new ? size : known;
            slot[feature] = number;
            list[size] = feature;
            size += is_new;
            out(k, number);
        }
        size_ = size;
    }

    // The number of a feature, -1 where it is not in the rows.
    int32_t find(int32_t feature) const { return slot_[feature]; }

    // The features by number.
    std::span<const int32_t> list() const { return {features_.data(), size()}; }
    size_t size() const { return static_cast<size_t>(size_); }

  private:
    std::vector<int32_t> slot_;     // feature -> number, -1: not in the rows
    std::vector<int32_t> features_; // the first size_ are in use; one more may be written
    int32_t size_ = 0;
};

} // namespace blockxmc
