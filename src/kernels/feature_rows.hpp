// The dual accumulator v (features x labels) with w = S_lam(v) read off it: one table of (label, value) per feature.
//
// A table is hashed while sparse and turns into a direct one (slot = label) when that is no larger, so memory stays
// near the smaller of the two. Each feature keeps the slots where |v| > lam, which is what a search walks.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

inline float soft_threshold(float v, float lam) { return v > lam ? v - lam : (v < -lam ? v + lam : 0.0f); }

class FeatureRow {
  public:
    void reset(int32_t n_labels, bool direct) {
        n_labels_ = n_labels;
        direct_ = direct;
        used_ = 0;
        slots_.assign(direct ? n_labels : 0, Slot{kEmpty, 0.0f});
        listed_.assign(slots_.size(), 0);
        support_.clear();
    }

    // v[label] += delta. Once frozen, labels outside the table stay outside.
    void add(int32_t label, float delta, float lam) {
        int64_t at = locate(label);
        if (slots_.empty() || slots_[at].label != label) {
            if (frozen_) return;
            at = insert(label);
        }
        float &value = slots_[at].value;
        value += delta;
        if (std::fabs(value) > lam && !listed_[at]) list(at);
    }

    float weight(int32_t label, float lam) const {
        if (slots_.empty()) return 0.0f;
        const Slot &slot = slots_[locate(label)];
        return slot.label == label ? soft_threshold(slot.value, lam) : 0.0f;
    }

    // Calls visit(label, w) for every non-zero w; slots that fell to zero leave the list on the way.
    template <typename Visit>
    void for_support(float lam, Visit &&visit) {
        for (size_t r = 0; r < support_.size();) {
            const Slot slot = slots_[support_[r]];
            const float w = soft_threshold(slot.value, lam);
            if (w != 0.0f) {
                visit(slot.label, w);
                ++r;
            } else {
                listed_[support_[r]] = 0;
                support_[r] = support_.back();
                support_.pop_back();
            }
        }
    }

    size_t support_size() const { return support_.size(); }

    // From now on only what is non-zero at lam may change.
    void freeze(float lam) {
        for (Slot &slot : slots_)
            if (slot.label >= 0 && std::fabs(slot.value) <= lam) slot = Slot{direct_ ? kEmpty : kTombstone, 0.0f};
        frozen_ = true;
    }

    // v = 0, to be summed afresh; a table that is not frozen also forgets its labels.
    void clear() {
        for (Slot &slot : slots_) slot = Slot{frozen_ ? slot.label : kEmpty, 0.0f};
        listed_.assign(slots_.size(), 0);
        support_.clear();
        if (!frozen_) used_ = 0;
    }

  private:
    struct Slot {
        int32_t label;
        float value;
    };
    static constexpr int32_t kEmpty = -1, kTombstone = -2;

    // Slot of the label, or the empty slot where it would go.
    int64_t locate(int32_t label) const {
        if (direct_) return label;
        if (slots_.empty()) return 0;
        const size_t mask = slots_.size() - 1;
        size_t at = (static_cast<uint32_t>(label) * 0x9e3779b1u >> 7) & mask;
        while (slots_[at].label != label && slots_[at].label != kEmpty) at = (at + 1) & mask;
        return static_cast<int64_t>(at);
    }

    int64_t insert(int32_t label) {
        if (!direct_ && 4 * (used_ + 1) > 3 * static_cast<int64_t>(slots_.size())) grow();
        const int64_t at = locate(label);
        slots_[at].label = label;
        ++used_;
        return at;
    }

    void grow() {
        const size_t capacity = slots_.empty() ? 8 : 2 * slots_.size();
        std::vector<Slot> old;
        old.swap(slots_);
        direct_ = capacity >= static_cast<size_t>(n_labels_);
        slots_.assign(direct_ ? n_labels_ : capacity, Slot{kEmpty, 0.0f});
        std::vector<uint8_t> was_listed(slots_.size(), 0);
        for (int32_t at : support_) was_listed[move(old[at])] = 1;
        was_listed.swap(listed_);
        for (int32_t &at : support_) at = static_cast<int32_t>(locate(old[at].label));
        for (const Slot &slot : old)
            if (slot.label >= 0) move(slot);
    }

    int64_t move(const Slot &slot) {
        const int64_t at = locate(slot.label);
        slots_[at] = slot;
        return at;
    }

    void list(int64_t at) {
        listed_[at] = 1;
        support_.push_back(static_cast<int32_t>(at));
    }

    std::vector<Slot> slots_;
    std::vector<uint8_t> listed_;
    std::vector<int32_t> support_;
    int64_t used_ = 0;
    int32_t n_labels_ = 0;
    bool direct_ = false;
    bool frozen_ = false;
};
