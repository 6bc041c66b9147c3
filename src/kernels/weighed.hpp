// The best labels of a row whose blocks have weights: scores, block weights and bonuses are added up label by label.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "allowed.hpp"
#include "bonuses.hpp"
#include "reranker.hpp"
#include "topk.hpp"

namespace blockxmc {

// The weight of a visited block, and the sum of the weights of those visited before it.
struct BlockWeight {
    float own, before;
};

// Scores of the frequent labels. Their weights are stored once, in a block of their own; other blocks only list them, with
// a score of -inf.
struct FrequentScores {
    const int32_t *labels = nullptr; // nullptr: the model has no such block
    const float *scores = nullptr;
    int64_t size = 0;
};

// Where a chunk lists a frequent label, and the place of that label among the frequent ones.
struct Listed {
    int32_t at, place;
};

// Gives the frequent labels that a chunk lists their scores.
inline void fill_in(const std::vector<Listed> &listed, const FrequentScores &frequent, float *scores) {
    for (const Listed &label : listed) scores[label.at] = frequent.scores[label.place];
}

// The gain of a frequent label that no visited block lists: its score comes below all others. A score below half of this
// is such a label's.
constexpr float unlisted = -1e6f;

// A label's score gains slope * log(weight of the blocks that list it), and its bonus if it has one.
//
// The score of a label so far is a lower bound of its final score. It can gain at most slope * log(weight of the block where
// it is first met and of all later ones). A label whose upper bound stays below the k best lower bounds is skipped, as
// nearly all are.
//
// With a reranker, the first few labels by this score gain what it gives them. All others are shifted by the same amount as
// the last of these, so that they stay behind it in their old order.
class WeighedLabels {
  public:
    // Only the best k of the candidates to come are wanted; 0: all of them.
    void start_row(int64_t n_labels, int64_t k, float slope, float total_weight, const FrequentScores &frequent = {},
                   const Bonuses *bonuses = nullptr, const Reranker *reranker = nullptr, AllowedLabels allowed = {}) {
        allowed_ = allowed;
        bonuses_ = bonuses;
        reranker_ = reranker;
        if (static_cast<int64_t>(place_.size()) < n_labels) place_.resize(n_labels, 0);
        forget();
        bounds_.clear();
        asked_ = k;
        wanted_ = static_cast<size_t>(reranker && k > 0 ? std::max(k, reranker->first) : k);
        frequent_ = frequent;
        slope_ = slope;
        total_weight_ = total_weight;
        most_ = most_of(total_weight);
        threshold_ = -infinity;
    }

    // The labels of one visited block, with the scores of frequent labels filled in. A label that an earlier block lists
    // too keeps its score, since all blocks give it the same. `repeated` has a bit per label, in words of 64, for those that
    // other blocks list too; nullptr: any may be. A label of this block alone has its final score at once.
    void add(const int32_t *labels, const float *scores, int64_t n, BlockWeight weight, const uint64_t *repeated = nullptr) {
        const float gain = gain_of(weight.own), most_bonus = bonuses_ ? bonuses_->most() : 0.0f;
        // So many labels of this block end no lower than where they are.
        if (wanted_ > 0 && wanted_ <= n_lanes / 2 && n >= n_lanes && !allowed_.of_label)
            threshold_ = std::max(threshold_, reached_by(scores, n, static_cast<int64_t>(wanted_), threshold_ - gain) + gain);
        // The factor covers rounding errors in the sums of weights.
        const float most_if_new = weight.before > 0 ? most_of(total_weight_ * 1.00001f - weight.before) : most_;
        for (int64_t start = 0; start < n; start += group_of_bits) {
            const int64_t size = std::min(group_of_bits, n - start);
            const uint64_t again = repeated ? repeated[start / group_of_bits] : ~uint64_t{0};
            const auto reach = [&](float alone, float often) {
                return (reaching(scores + start, size, alone, threshold_) & ~again) |
                       (again ? reaching(scores + start, size, often, threshold_) & again : 0);
            };
            uint64_t bits = reach(gain, most_);
            if (bonuses_) { // labels that need a bonus to get there; few of them have one
                uint64_t need_bonus = reach(gain + most_bonus + 1e-5f, most_ + most_bonus) & ~bits;
                for (; need_bonus; need_bonus &= need_bonus - 1) {
                    const int j = std::countr_zero(need_bonus);
                    bits |= static_cast<uint64_t>(bonuses_->has(labels[start + j])) << j;
                }
            }
            for (; bits; bits &= bits - 1) {
                const int bit = std::countr_zero(bits);
                const int32_t label = labels[start + bit];
                const bool alone = !(again >> bit & 1);
                const float score = scores[start + bit], bonus = bonus_of(label);
                if (score + (alone ? gain : most_) + bonus < threshold_ || !allowed_.has(label)) continue;
                if (!alone && contains(label)) {
                    found(label).weight += weight.own;
                } else if (alone || !(score + most_if_new + bonus < threshold_)) {
                    insert({score, weight.own, bonus, label});
                    raise_threshold(score + gain + bonus);
                }
            }
        }
    }

    int64_t size() const { return static_cast<int64_t>(found_.size()); }

    // The best k, padded with -1 / -inf.
    void best(int64_t *labels, float *scores) {
        // Where the visited blocks list too few labels, the other frequent labels come last.
        if (found_.size() < wanted_)
            for (int64_t j = 0; j < frequent_.size; ++j)
                if (!contains(frequent_.labels[j]) && allowed_.has(frequent_.labels[j]))
                    insert({frequent_.scores[j], 0, bonus_of(frequent_.labels[j]), frequent_.labels[j]});
        keep_first(wanted_);
        if (reranker_) rerank(heap_.data(), static_cast<int64_t>(heap_.size()));
        const int64_t size = static_cast<int64_t>(heap_.size());
        const int64_t kept = std::min(size, asked_);
        for (int64_t r = 0; r < kept; ++r) {
            labels[r] = heap_[r].label;
            scores[r] = heap_[r].score;
        }
        std::fill(labels + kept, labels + asked_, int64_t{-1});
        std::fill(scores + kept, scores + asked_, -infinity);
    }

    // All of them by ascending label.
    void all(int32_t *labels, float *scores) {
        if (reranker_) {
            keep_first(found_.size());
            rerank(heap_.data(), static_cast<int64_t>(heap_.size()));
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
    // Places count on from row to row: those of earlier rows are lower than row_start_.
    void forget() {
        row_start_ += static_cast<uint32_t>(found_.size());
        found_.clear();
        if (row_start_ < uint32_t{1} << 31) return;
        std::fill(place_.begin(), place_.end(), 0u);
        row_start_ = 1;
    }
    float bonus_of(int32_t label) const { return bonuses_ ? bonuses_->of(label) : 0.0f; }
    float most_of(float weight) const { return slope_ * std::log(std::max(weight, std::numeric_limits<float>::min())) + 1e-5f; }
    // The block of the frequent labels has the smallest weight there is: a label in no other block is unlisted.
    float gain_of(float weight) const {
        return weight > std::numeric_limits<float>::min() ? slope_ * std::log(weight) : unlisted;
    }
    // An upper bound of gain_of without a logarithm: the bits of a float are nearly its logarithm to the base 2.
    float most_gain_of(float weight) const {
        const auto bits = std::bit_cast<int32_t>(weight);
        return slope_ * (0.69314718f * (static_cast<float>(bits) * 0x1p-23f - 126.9f)) + 1e-5f;
    }
    // Puts the best of those found into heap_, best first.
    void keep_first(size_t most) {
        heap_.clear();
        for (const Weighed &item : found_) {
            const bool full = heap_.size() == most;
            // Added in the order of final_score, so that rounding keeps this above it.
            if (item.score + most_gain_of(item.weight) + item.bonus < (full ? heap_[0].score : threshold_)) continue;
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
    // Reorders items[0..n), which come best first.
    void rerank(Scored *items, int64_t n) {
        const int64_t first = std::min(n, reranker_->first);
        if (first == 0) return;
        const float last = items[first - 1].score;
        float least = infinity;
        for (int64_t j = 0; j < first; ++j) {
            const Weighed &item = found(items[j].label);
            items[j].score += reranker_->gain(item.score, std::log(item.weight), item.bonus, item.label);
        }
        if (reranker_->companions) {
            sort_scored(items, first);
            int64_t listed = 0;
            while (listed < first && items[listed].score > unlisted / 2) ++listed;
            reranker_->companions->add(items, listed);
        }
        for (int64_t j = 0; j < first; ++j) least = std::min(least, items[j].score);
        for (int64_t j = first; j < n; ++j) items[j].score += least - last;
        sort_scored(items, n);
    }
    static void sort_scored(Scored *items, int64_t n) {
        for (int64_t j = 0; j < n; ++j) // NaN has no place in an order: std::sort would leave its range
            if (std::isnan(items[j].score)) items[j].score = -infinity;
        std::sort(items, items + n, better);
    }
    float final_score(const Weighed &item) const { return item.score + gain_of(item.weight) + item.bonus; }

    // bounds_ is a min-heap of the best lower bounds of different labels. Once there are k, the least of them is a lower
    // bound of the k-th best final score.
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
        if (bounds_.size() == wanted_) threshold_ = std::max(threshold_, bounds_.front());
    }

    AllowedLabels allowed_;
    const Bonuses *bonuses_ = nullptr;
    const Reranker *reranker_ = nullptr;
    std::vector<uint32_t> place_; // of each label among those found, counted from row_start_
    uint32_t row_start_ = 1;
    std::vector<Weighed> found_;
    std::vector<Scored> heap_;
    std::vector<float> bounds_;
    FrequentScores frequent_;
    size_t wanted_ = 0; // while candidates come: the reranker may need more than are asked for
    int64_t asked_ = 0;
    float slope_ = 0, total_weight_ = 0, most_ = 0, threshold_ = 0;
};

} // namespace blockxmc
