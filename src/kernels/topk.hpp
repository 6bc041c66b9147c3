// The k best of many scores, exactly: higher score first, ties to the lower label id, whatever the order of arrival.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "second_look.hpp"

// The widest vectors of the machine at hand, chosen when the module is loaded; elsewhere the portable code.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define BLOCKXMC_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BLOCKXMC_SIMD
#endif

struct Scored {
    float score;
    int32_t label;
};

// An object, not a function, so that the algorithms of the standard library inline it.
inline constexpr auto better = [](const Scored &a, const Scored &b) {
    return a.score > b.score || (a.score == b.score && a.label < b.label);
};

// Puts `item` into the min-heap heap[0..size) in place of its root, the worst of the heap.
inline void replace_worst(Scored *heap, int64_t size, Scored item) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && better(heap[child], heap[child + 1])) ++child;
        if (!better(item, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

// Puts `item` behind those of best[0..size) that are as good (best first, room for one more), and moves the others on.
inline void insert_sorted(Scored *best, int64_t size, Scored item) {
    for (; size > 0 && best[size - 1].score < item.score; --size) best[size] = best[size - 1];
    best[size] = item;
}

// Keeps the k best of scores[0..n), best first, and returns how many there are. Labels ascend, so that a later score equal to
// the worst kept one never displaces it, and one strict comparison per score is enough. Only scores above `threshold` are
// kept; -inf and NaN never are.
BLOCKXMC_SIMD static int64_t keep_best(const float *__restrict scores, const int32_t *__restrict labels, int64_t n,
                                       int64_t k, Scored *__restrict best,
                                       float threshold = -std::numeric_limits<float>::infinity()) {
    constexpr int64_t group = 64;
    const bool few = k <= 32; // a short list is kept in order faster than a heap
    int64_t size = 0;
    for (int64_t start = 0; start < n; start += group) {
        const int64_t stop = std::min(start + group, n);
        if (stop - start == group) {
            int32_t any = 0;
            for (int64_t j = 0; j < group; ++j) any |= scores[start + j] > threshold;
            if (!any) continue;
        }
        for (int64_t j = start; j < stop; ++j) {
            if (!(scores[j] > threshold)) continue;
            const Scored item{scores[j], labels[j]};
            if (few) {
                size += size < k;
                insert_sorted(best, size - 1, item);
                if (size == k) threshold = best[k - 1].score;
                continue;
            }
            if (size == k) {
                replace_worst(best, k, item);
            } else {
                best[size++] = item;
                std::push_heap(best, best + size, better);
            }
            if (size == k) threshold = best[0].score;
        }
    }
    if (!few) std::sort_heap(best, best + size, better);
    return size;
}

// Remembers which labels of the present row were seen; forgetting costs nothing.
class SeenLabels {
  public:
    void start_row(int64_t n_labels) {
        if (static_cast<int64_t>(stamps_.size()) < n_labels) stamps_.resize(n_labels, 0);
        if (++now_ == 0) {
            std::fill(stamps_.begin(), stamps_.end(), 0u);
            now_ = 1;
        }
    }
    // True the first time a label is met in this row.
    bool insert(int32_t label) {
        const bool fresh = stamps_[label] != now_;
        stamps_[label] = now_;
        return fresh;
    }
    bool contains(int32_t label) const { return stamps_[label] == now_; }

  private:
    std::vector<uint32_t> stamps_;
    uint32_t now_ = 0;
};

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

  private:
    bool has(int32_t label) const { return bits_[label >> 6] >> (label & 63) & 1; }

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
        seen_.start_row(n_labels);
        if (static_cast<int64_t>(place_.size()) < n_labels) place_.resize(n_labels);
        found_.clear();
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
        for (int64_t j = 0; j < n; ++j) {
            const float score = scores[j];
            if (score + most_with_bonus < threshold_) continue;
            const float bonus = bonus_of(labels[j]);
            if (score + most_ + bonus < threshold_) continue;
            if (seen_.contains(labels[j])) {
                found_[place_[labels[j]]].weight += weight.own;
            } else if (!(score + most_if_new + bonus < threshold_)) {
                seen_.insert(labels[j]);
                place_[labels[j]] = static_cast<int32_t>(found_.size());
                found_.push_back({score, weight.own, bonus, labels[j]});
                raise_threshold(score + gain + bonus);
            }
        }
    }

    int64_t size() const { return static_cast<int64_t>(found_.size()); }

    // The best, as many as were wanted, padded with -1 / -inf.
    void best(int64_t *labels, float *scores) {
        // Where blocks list fewer than are wanted, labels that no visited block names come last.
        if (found_.size() < wanted_)
            for (int64_t j = 0; j < named_.size; ++j)
                if (seen_.insert(named_.labels[j])) {
                    place_[named_.labels[j]] = static_cast<int32_t>(found_.size());
                    found_.push_back({named_.scores[j], 0, bonus_of(named_.labels[j]), named_.labels[j]});
                }
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
    void look_again(Scored *items, int64_t n) const {
        const int64_t first = std::min(n, look_->first);
        if (first == 0) return;
        const float last = items[first - 1].score;
        float least = infinity;
        for (int64_t j = 0; j < first; ++j) {
            const Weighed &item = found_[place_[items[j].label]];
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
    SeenLabels seen_;
    std::vector<int32_t> place_;
    std::vector<Weighed> found_;
    std::vector<Scored> heap_;
    std::vector<float> bounds_;
    NamedScores named_;
    size_t wanted_ = 0; // while candidates come; no fewer than are asked for in the end
    int64_t asked_ = 0;
    float slope_ = 0, total_weight_ = 0, most_ = 0, threshold_ = 0;
};

// A sorted list of scored labels (best first) that is being consumed.
struct Run {
    const Scored *next, *end;
};

// Merges sorted lists into the k best distinct labels (a label met twice keeps its higher score); pads with -1 / -inf.
inline void merge_runs(std::vector<Run> &runs, int64_t k, int64_t n_labels, SeenLabels &seen, int64_t *labels,
                       float *scores) {
    const bool repeats = runs.size() > 1;
    if (repeats) seen.start_row(n_labels);
    int64_t found = 0;
    while (found < k) {
        Run *best = nullptr;
        for (Run &run : runs)
            if (run.next != run.end && (!best || better(*run.next, *best->next))) best = &run;
        if (!best) break;
        const Scored top = *best->next++;
        if (repeats && !seen.insert(top.label)) continue;
        labels[found] = top.label;
        scores[found++] = top.score;
    }
    std::fill(labels + found, labels + k, int64_t{-1});
    std::fill(scores + found, scores + k, -std::numeric_limits<float>::infinity());
}
