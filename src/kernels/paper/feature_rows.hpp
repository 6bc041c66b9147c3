// The dual accumulator v (features x labels) with w = S_lam(v) read off it: one list of (label, value) per feature.
//
// Entries with |v| > lam come first, so a search streams over exactly the non-zero weights. An index leads from a label
// to its entry: hashed while the list is short, direct (slot = label) when that is no larger, so memory stays near the
// smaller of the two.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace blockxmc {

class FeatureRow {
  public:
    void reset(int32_t n_labels, bool direct) {
        n_labels_ = n_labels;
        direct_ = direct;
        index_.assign(direct ? n_labels : 0, kNone);
    }

    // v[label] += delta. Once frozen, labels outside the list stay outside.
    void add(int32_t label, float delta, float lam) {
        int32_t at = find(label);
        if (at == kNone) {
            if (frozen_) return;
            at = insert(label);
        }
        const float value = entries_[at].value += delta;
        const bool non_zero = std::fabs(value) > lam;
        if (non_zero && at >= n_support_) {
            exchange(at, n_support_++);
        } else if (!non_zero && at < n_support_) {
            exchange(at, --n_support_);
        }
    }

    float weight(int32_t label, float lam) const {
        const int32_t at = find(label);
        return at == kNone || at >= n_support_ ? 0.0f : shrink(entries_[at].value, lam);
    }

    // Calls visit(label, w) for every non-zero w.
    template <typename Visit>
    void for_support(float lam, Visit &&visit) const {
        for (int32_t r = 0; r < n_support_; ++r) visit(entries_[r].label, shrink(entries_[r].value, lam));
    }

    int64_t support_size() const { return n_support_; }

    // From now on only what is non-zero may change.
    void freeze() {
        entries_.resize(n_support_);
        entries_.shrink_to_fit();
        rebuild_index(index_.size());
        frozen_ = true;
    }

    // v = 0, to be summed afresh; a list that is not frozen also forgets its labels.
    void clear() {
        n_support_ = 0;
        if (frozen_) {
            for (Entry &entry : entries_) entry.value = 0;
        } else {
            entries_.clear();
            index_.assign(index_.size(), kNone);
        }
    }

  private:
    struct Entry {
        int32_t label;
        float value;
    };
    static constexpr int32_t kNone = -1;

    // Of a value that is known to exceed lam.
    static float shrink(float v, float lam) { return v - std::copysign(lam, v); }

    // Slot of the label in the index, or the empty slot where it would go.
    size_t slot(int32_t label) const {
        if (direct_) return static_cast<size_t>(label);
        const size_t mask = index_.size() - 1;
        size_t at = (static_cast<uint32_t>(label) * 0x9e3779b1u >> 7) & mask;
        while (index_[at] != kNone && entries_[index_[at]].label != label) at = (at + 1) & mask;
        return at;
    }

    int32_t find(int32_t label) const { return index_.empty() ? kNone : index_[slot(label)]; }

    int32_t insert(int32_t label) {
        if (!direct_ && 4 * (entries_.size() + 1) > 3 * index_.size()) rebuild_index(index_.empty() ? 8 : 2 * index_.size());
        const auto at = static_cast<int32_t>(entries_.size());
        index_[slot(label)] = at;
        entries_.push_back({label, 0.0f});
        return at;
    }

    void rebuild_index(size_t size) {
        direct_ = direct_ || size >= static_cast<size_t>(n_labels_);
        index_.assign(direct_ ? n_labels_ : size, kNone);
        for (size_t at = 0; at < entries_.size(); ++at) index_[slot(entries_[at].label)] = static_cast<int32_t>(at);
    }

    void exchange(int32_t a, int32_t b) {
        if (a == b) return;
        std::swap(index_[slot(entries_[a].label)], index_[slot(entries_[b].label)]);
        std::swap(entries_[a], entries_[b]);
    }

    std::vector<Entry> entries_;
    std::vector<int32_t> index_; // positions in entries_
    int32_t n_support_ = 0;
    int32_t n_labels_ = 0;
    bool direct_ = false;
    bool frozen_ = false;
};

} // namespace blockxmc
