// The k best of many scores, exactly: higher score first, ties to the lower label id, for any order of the input.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "simd.hpp"

namespace blockxmc {

struct Scored {
    float score;
    int32_t label;
};

// An object, not a function, so that the algorithms of the standard library inline it.
inline constexpr auto better = [](const Scored &a, const Scored &b) {
    return a.score > b.score || (a.score == b.score && a.label < b.label);
};

// Replaces the root of the min-heap heap[0..size), its worst element, by `item`.
inline void replace_worst(Scored *heap, int64_t size, Scored item) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && better(heap[child], heap[child + 1])) ++child;
        if (!better(item, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

// Inserts `item` into best[0..size), best first, behind all that are as good; there is room for one more.
inline void insert_sorted(Scored *best, int64_t size, Scored item) {
    for (; size > 0 && best[size - 1].score < item.score; --size) best[size] = best[size - 1];
    best[size] = item;
}

// One bit per score, n <= 64: whether the score plus `gain` reaches `threshold`. NaN counts as reaching it.
constexpr int64_t group_of_bits = 64;
inline uint64_t reaching_plain(const float *scores, int64_t n, float gain, float threshold) {
    uint64_t bits = 0;
    int64_t j = 0;
#if defined(__SSE2__) // the compiler would set them one by one
    const __m128 more = _mm_set1_ps(gain), limit = _mm_set1_ps(threshold);
    for (; j + 4 <= n; j += 4) {
        const __m128 enough = _mm_cmpnlt_ps(_mm_add_ps(_mm_loadu_ps(scores + j), more), limit);
        bits |= static_cast<uint64_t>(_mm_movemask_ps(enough)) << j;
    }
#endif
    for (; j < n; ++j) bits |= static_cast<uint64_t>(!(scores[j] + gain < threshold)) << j;
    return bits;
}

#if defined(__x86_64__)
BLOCKXMC_TARGET("avx2")
inline uint64_t reaching_avx2(const float *scores, int64_t n, float gain, float threshold) {
    uint64_t bits = 0;
    int64_t j = 0;
    const __m256 more = _mm256_set1_ps(gain), limit = _mm256_set1_ps(threshold);
    for (; j + 8 <= n; j += 8) {
        const __m256 enough = _mm256_cmp_ps(_mm256_add_ps(_mm256_loadu_ps(scores + j), more), limit, _CMP_NLT_UQ);
        bits |= static_cast<uint64_t>(_mm256_movemask_ps(enough)) << j;
    }
    for (; j < n; ++j) bits |= static_cast<uint64_t>(!(scores[j] + gain < threshold)) << j;
    return bits;
}

BLOCKXMC_TARGET("avx512f")
inline uint64_t reaching_avx512(const float *scores, int64_t n, float gain, float threshold) {
    uint64_t bits = 0;
    const __m512 more = _mm512_set1_ps(gain), limit = _mm512_set1_ps(threshold);
    for (int64_t j = 0; j < n; j += 16) {
        const auto there = static_cast<__mmask16>(n - j < 16 ? (1u << (n - j)) - 1 : 0xFFFFu);
        const __m512 sums = _mm512_add_ps(_mm512_maskz_loadu_ps(there, scores + j), more);
        bits |= static_cast<uint64_t>(_mm512_mask_cmp_ps_mask(there, sums, limit, _CMP_NLT_UQ)) << j;
    }
    return bits;
}
#else
inline constexpr auto reaching_avx2 = reaching_plain, reaching_avx512 = reaching_plain;
#endif

using Reaching = uint64_t (*)(const float *, int64_t, float, float);
inline const Reaching reaching = widest<Reaching>(reaching_plain, reaching_avx2, reaching_avx512);

// The best of each of 32 lanes, to which scores[0..n) are dealt out in turn; NaN is left out.
constexpr int64_t n_lanes = 32;
BLOCKXMC_INLINE void best_of_lanes(const float *__restrict scores, int64_t n, float *__restrict best) {
    std::fill_n(best, n_lanes, -std::numeric_limits<float>::infinity());
    int64_t start = 0;
    for (; start + n_lanes <= n; start += n_lanes)
        for (int64_t j = 0; j < n_lanes; ++j) best[j] = scores[start + j] > best[j] ? scores[start + j] : best[j];
    for (int64_t j = 0; start + j < n; ++j) best[j] = scores[start + j] > best[j] ? scores[start + j] : best[j];
}

// The k-th best of them: at least k scores reach it, and often it is the k-th best of all.
BLOCKXMC_INLINE float kth_of_lanes(const float *best, int64_t k) {
    int32_t as_good[n_lanes] = {};
    for (int64_t i = 0; i < n_lanes; ++i)
        for (int64_t j = 0; j < n_lanes; ++j) as_good[j] += best[i] >= best[j];
    float found = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < n_lanes; ++j)
        if (as_good[j] >= k) found = std::max(found, best[j]);
    return found;
}

// Whether one of them is above a threshold.
BLOCKXMC_INLINE bool any_above(const float *best, float threshold) {
    int32_t above = 0;
    for (int64_t j = 0; j < n_lanes; ++j) above |= best[j] > threshold;
    return above;
}

// A score that at least k of scores[0..n) reach, or one below `threshold`; k <= n_lanes.
BLOCKXMC_CLONES static float reached_by(const float *scores, int64_t n, int64_t k, float threshold) {
    float best[n_lanes];
    best_of_lanes(scores, n, best);
    return any_above(best, threshold) ? kth_of_lanes(best, k) : -std::numeric_limits<float>::infinity();
}

// Keeps the k best of scores[0..n), best first, and returns how many there are. Labels ascend: a later score that equals the
// worst kept score comes after it, and one strict comparison per score is enough. Only scores above `threshold` are kept;
// -inf and NaN are left out.
BLOCKXMC_CLONES static int64_t keep_best(const float *__restrict scores, const int32_t *__restrict labels, int64_t n,
                                       int64_t k, Scored *__restrict best,
                                       float threshold = -std::numeric_limits<float>::infinity()) {
    const bool few = k <= 32; // a short list is kept in order faster than a heap
    if (k <= n_lanes / 2 && n >= 2 * n_lanes) {
        float best_of_lane[n_lanes];
        best_of_lanes(scores, n, best_of_lane);
        if (!any_above(best_of_lane, threshold)) return 0;
        threshold = std::max(threshold, std::nextafter(kth_of_lanes(best_of_lane, k), -std::numeric_limits<float>::infinity()));
    }
    int64_t size = 0;
    float least = std::nextafter(threshold, std::numeric_limits<float>::infinity());
    for (int64_t start = 0; start < n; start += group_of_bits) {
        uint64_t bits = reaching(scores + start, std::min(group_of_bits, n - start), 0.0f, least);
        if (!bits) continue;
        for (; bits; bits &= bits - 1) {
            const int64_t j = start + std::countr_zero(bits);
            if (!(scores[j] > threshold)) continue; // it has risen since
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
        least = std::nextafter(threshold, std::numeric_limits<float>::infinity());
    }
    if (!few) std::sort_heap(best, best + size, better);
    return size;
}

// Remembers which labels of a row were seen; a new row starts in constant time.
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

  private:
    std::vector<uint32_t> stamps_;
    uint32_t now_ = 0;
};

// Reorders `candidates`; writes the k best of them, padded with -1 / -inf.
inline void write_best(std::vector<Scored> &candidates, int64_t k, int64_t *labels, float *scores) {
    const int64_t found = std::min<int64_t>(k, static_cast<int64_t>(candidates.size()));
    std::partial_sort(candidates.begin(), candidates.begin() + found, candidates.end(), better);
    for (int64_t r = 0; r < found; ++r) {
        labels[r] = candidates[r].label;
        scores[r] = candidates[r].score;
    }
    std::fill(labels + found, labels + k, int64_t{-1});
    std::fill(scores + found, scores + k, -std::numeric_limits<float>::infinity());
}

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

} // namespace blockxmc
