// The best candidates of a row whose blocks have weights: scores, block weights and bonuses are added up label by label.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "second_look.hpp"
#include "topk.hpp"

// What a visited block counts, and what those visited before it do together.
struct BlockWeight {
    float own, before;
};

// Scores of labels that live in so many blocks that these only name them (-inf): they stand in a block of their own.
struct NamedScores {
    const int32_t *labels = nullptr; // nullptr: there are none
    const float *scores = nullptr;
    int64_t size = 0;
};

// Where a block names a label, and where that stands among the named scores.
struct Name {
    int32_t at, place;
};

// The labels that a block only names get their scores.
inline void fill_in(const std::vector<Name> &names, const NamedScores &named, float *scores) {
    for (const Name &name : names) scores[name.at] = named.scores[name.place];
}

// What some labels of the present row gain beside the others: a bit each says which, so that asking for many labels stays in
// cache.
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
    // Closes a row: all that was added counts times `scale`.
    void scale(float scale) {
        scale_ = scale;
        for (const int32_t label : labels_) most_ = std::max(most_, of(label));
    }
    float of(int32_t label) const { return has(label) ? value_[label] * scale_ : 0.0f; }
    float most() const { return most_; }
    const std::vector<int32_t> &labels() const { return labels_; } // as they were met

    bool has(int32_t label) const { return bits_[label >> 6] >> (label & 63) & 1; }

  private:
    std::vector<uint64_t> bits_;
    std::vector<float> value_;
    std::vector<int32_t> labels_;
    float scale_ = 0, most_ = 0;
};

// Candidates of one row when blocks have weights: a label's score gains slope * log(weight of the blocks that hold it), and
// its bonus if it has one.
//
// What a label has gained so far is a lower bound of its final score, and no label can gain more than slope * log(weight of
// all blocks that it may be in: not those before the one it is first met in). One that falls short of the k best lower
// bounds even so is passed over, as nearly all are.
//
// With a second look, the first few by this score gain what it gives them; all others move along with the last of these, and
// so stay behind it in their old order.
class WeighedLabels {
  public:
    // Of the candidates to come only the best k are wanted; 0: all of them.
    void start_row(int64_t n_labels, int64_t k, float slope, float total_weight, const NamedScores &named = {},
                   const Bonuses *bonuses = nullptr, const SecondLook *look = nullptr) {
        bonuses_ = bonuses;
        look_ = look;
        if (static_cast<int64_t>(place_.size()) < n_labels) place_.resize(n_labels, 0);
        forget();
        bounds_.clear();
        asked_ = k;
        wanted_ = static_cast<size_t>(look && k > 0 ? std::max(k, look->first) : k);
        named_ = named;
        slope_ = slope;
        total_weight_ = total_weight;
        most_ = most_of(total_weight);
        threshold_ = -infinity;
    }

    // The labels of one visited block, names filled in. A label that an earlier block had already keeps its score: blocks
    // score alike.
    void add(const int32_t *labels, const float *scores, int64_t n, BlockWeight weight) {
        const float gain = gain_of(weight.own), most_with_bonus = most_ + (bonuses_ ? bonuses_->most() : 0.0f);
        // Sums of weights are right but for their last digits.
        const float most_if_new = weight.before > 0 ? most_of(total_weight_ * 1.00001f - weight.before) : most_;
        for (int64_t start = 0; start < n; start += group_of_bits) {
            const int64_t size = std::min(group_of_bits, n - start);
            uint64_t bits = reaching(scores + start, size, most_, threshold_);
            if (bonuses_) { // few labels have one, so that nearly all that hope for it are passed over here
                uint64_t hoping = reaching(scores + start, size, most_with_bonus, threshold_) & ~bits;
                for (; hoping; hoping &= hoping - 1) {
                    const int j = std::countr_zero(hoping);
                    bits |= static_cast<uint64_t>(bonuses_->has(labels[start + j])) << j;
                }
            }
            for (; bits; bits &= bits - 1) {
                const int64_t j = start + std::countr_zero(bits);
                const float score = scores[j], bonus = bonus_of(labels[j]);
                if (score + most_ + bonus < threshold_) continue;
                if (contains(labels[j])) {
                    found(labels[j]).weight += weight.own;
                } else if (!(score + most_if_new + bonus < threshold_)) {
                    insert({score, weight.own, bonus, labels[j]});
                    raise_threshold(score + gain + bonus);
                }
            }
        }
    }

    int64_t size() const { return static_cast<int64_t>(found_.size()); }

    // The best, as many as were wanted, padded with -1 / -inf.
    void best(int64_t *labels, float *scores) {
        // Where blocks list fewer than are wanted, labels that no visited block names come last.
        if (found_.size() < wanted_)
            for (int64_t j = 0; j < named_.size; ++j)
                if (!contains(named_.labels[j]))
                    insert({named_.scores[j], 0, bonus_of(named_.labels[j]), named_.labels[j]});
        keep_first(wanted_);
        if (look_) look_again(heap_.data(), static_cast<int64_t>(heap_.size()));
        const int64_t size = static_cast<int64_t>(heap_.size());
        for (int64_t r = 0; r < asked_; ++r) {
            labels[r] = r < size ? heap_[r].label : -1;
            scores[r] = r < size ? heap_[r].score : -infinity;
        }
    }

    // All of them by ascending label.
    void all(int32_t *labels, float *scores) {
        if (look_) {
            keep_first(found_.size());
            look_again(heap_.data(), static_cast<int64_t>(heap_.size()));
        } else {
            heap_.clear();
            for (const Weighed &item : found_) heap_.push_back({final_score(item), item.label});
        }
        std::sort(heap_.begin(), heap_.end(), [](const Scored &a, const Scored &b) { return a.label < b.label; });
        for (size_t j = 0; j < heap_.size(); ++j) {
            labels[j] = heap_[j].label;
            scores[j] = heap_[j].score;
        }
    }

  private:
    static constexpr float infinity = std::numeric_limits<float>::infinity();
    struct Weighed {
        float score, weight, bonus;
        int32_t label;
    };
    bool contains(int32_t label) const { return place_[label] >= row_start_; }
    Weighed &found(int32_t label) { return found_[place_[label] - row_start_]; }
    void insert(const Weighed &item) {
        place_[item.label] = row_start_ + static_cast<uint32_t>(found_.size());
        found_.push_back(item);
    }
    // Places go on counting from row to row, so that those of earlier rows are told by being lower.
    void forget() {
        row_start_ += static_cast<uint32_t>(found_.size());
        found_.clear();
        if (row_start_ < uint32_t{1} << 31) return;
        std::fill(place_.begin(), place_.end(), 0u);
        row_start_ = 1;
    }
    float bonus_of(int32_t label) const { return bonuses_ ? bonuses_->of(label) : 0.0f; }
    float most_of(float weight) const { return slope_ * std::log(std::max(weight, std::numeric_limits<float>::min())) + 1e-5f; }
    // A label that no block but that of the common labels has (at next to no weight) stands far below all others.
    float gain_of(float weight) const {
        return weight > std::numeric_limits<float>::min() ? slope_ * std::log(weight) : -1e6f;
    }
    // No less than gain_of, without a logarithm: a float's bits are nearly the logarithm of its value to the base 2.
    float most_gain_of(float weight) const {
        int32_t bits;
        std::memcpy(&bits, &weight, sizeof bits);
        return slope_ * (0.69314718f * (static_cast<float>(bits) * 0x1p-23f - 126.9f)) + 1e-5f;
    }
    // heap_ holds the best of those found by score, best first.
    void keep_first(size_t most) {
        heap_.clear();
        for (const Weighed &item : found_) {
            const bool full = heap_.size() == most;
            if (item.score + item.bonus + most_gain_of(item.weight) < (full ? heap_[0].score : threshold_)) continue;
            const Scored candidate{final_score(item), item.label};
            if (!full) {
                heap_.push_back(candidate);
                std::push_heap(heap_.begin(), heap_.end(), better);
            } else if (better(candidate, heap_[0])) {
                replace_worst(heap_.data(), static_cast<int64_t>(most), candidate);
            }
        }
        std::sort_heap(heap_.begin(), heap_.end(), better);
    }
    // items[0..n) are the best by score, best first, and are put in order anew.
    void look_again(Scored *items, int64_t n) {
        const int64_t first = std::min(n, look_->first);
        if (first == 0) return;
        const float last = items[first - 1].score;
        float least = infinity;
        for (int64_t j = 0; j < first; ++j) {
            const Weighed &item = found(items[j].label);
            items[j].score += look_->gain(item.score, std::log(item.weight), item.bonus, item.label);
            least = std::min(least, items[j].score);
        }
        for (int64_t j = first; j < n; ++j) items[j].score += least - last;
        std::sort(items, items + n, better);
    }
    float final_score(const Weighed &item) const { return item.score + gain_of(item.weight) + item.bonus; }

    // bounds_ is a min-heap of the best lower bounds of different labels; once there are k, the k-th best final score is no
    // lower than the least of them.
    void raise_threshold(float bound) {
        if (bounds_.size() < wanted_) {
            bounds_.push_back(bound);
        } else if (wanted_ == 0 || !(bound > bounds_.front())) {
            return;
        } else {
            std::pop_heap(bounds_.begin(), bounds_.end(), std::greater<>());
            bounds_.back() = bound;
        }
        std::push_heap(bounds_.begin(), bounds_.end(), std::greater<>());
        if (bounds_.size() == wanted_) threshold_ = bounds_.front();
    }

    const Bonuses *bonuses_ = nullptr;
    const SecondLook *look_ = nullptr;
    std::vector<uint32_t> place_; // of each label among those found, counted from row_start_
    uint32_t row_start_ = 1;
    std::vector<Weighed> found_;
    std::vector<Scored> heap_;
    std::vector<float> bounds_;
    NamedScores named_;
    size_t wanted_ = 0; // while candidates come; no fewer than are asked for in the end
    int64_t asked_ = 0;
    float slope_ = 0, total_weight_ = 0, most_ = 0, threshold_ = 0;
};
