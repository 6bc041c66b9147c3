// How weights lie in memory for serving. A block's labels are cut into chunks small enough for the accumulator to stay
// in cache; a chunk stores its weights feature-major, so that a row touches only what its own features need:
//
//   arena    rows of weights, in 4-byte words. Sparse row: n floats, then n 16-bit local label numbers (padded to a
//            word). Dense row: one float per label. One stream per row: a short row costs one cache line.
//            In half precision a weight is the upper half of a float, rounded. Sparse row: n words, each a weight above its
//            label number. Dense row: two weights per word, the first one below.
//   rows     start of each row in the arena, times two, plus one where the row is dense; one more entry closes the last
//   keys     feature of each row, grouped by hash bucket; empty where rows are indexed by the feature itself ("direct")
//   buckets  first key of each bucket; keys are compared a window at a time, whatever bucket they belong to
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "csr.hpp"

constexpr int64_t max_chunk_labels = 16384;
constexpr int32_t key_window = 8;      // keys compared at once; as many padding keys close a chunk's list
constexpr int32_t keys_per_bucket = 3; // on average: more than a window in one bucket is rare
constexpr int32_t no_feature = -1;

struct DamagedModel : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct ChunkView {
    const int32_t *labels; // global ids, ascending
    const float *bias;
    const float *mass; // nullptr: no term in |x|_1
    const int32_t *keys;
    const uint32_t *buckets;
    const uint32_t *rows;
    const uint32_t *arena;
    int64_t n_labels, n_keys, n_buckets, n_rows, arena_words;
    bool half; // weights in half precision

    bool direct() const { return n_keys == 0; }
};

// A row of weights as the scoring loop wants it.
struct WeightRow {
    const uint32_t *words;
    uint32_t n_words;
    bool dense;

    int64_t n_sparse(bool half) const { return half ? int64_t{n_words} : int64_t{n_words} * 2 / 3; }
    const float *weights() const { return reinterpret_cast<const float *>(words); }
    const uint16_t *labels(int64_t n) const { return reinterpret_cast<const uint16_t *>(words + n); }
};

inline int64_t sparse_words(int64_t n, bool half) { return half ? n : n + (n + 1) / 2; }
inline int64_t dense_words(int64_t n, bool half) { return half ? (n + 1) / 2 : n; }

// A weight in the upper half of a word, rounded to the nearest (ties to even).
inline uint32_t upper_half(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    return (bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u;
}

inline float weight_of(uint32_t upper) {
    float weight;
    std::memcpy(&weight, &upper, sizeof weight);
    return weight;
}

inline uint32_t bucket_of(int32_t feature, int64_t n_buckets) {
    const uint32_t hash = static_cast<uint32_t>(feature) * 0x9E3779B1u;
    return static_cast<uint32_t>((uint64_t{hash} * static_cast<uint64_t>(n_buckets)) >> 32);
}

// Position of `feature` in a window of keys, or key_window.
inline int32_t find_in_window(const int32_t *keys, int32_t feature) {
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi32(feature);
    const __m128i low = _mm_cmpeq_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(keys)), wanted);
    const __m128i high = _mm_cmpeq_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(keys + 4)), wanted);
    const __m128i both = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
    return __builtin_ctz(static_cast<uint32_t>(_mm_movemask_epi8(both)) | (1u << key_window));
#else
    int32_t at = 0;
    while (at < key_window && keys[at] != feature) ++at;
    return at;
#endif
}

// Number of the row that holds `feature`; row 0 with found = false where the chunk has none. Free of unpredictable
// branches, so that the searches for the features of one instance overlap.
inline uint32_t find_direct(const ChunkView &chunk, int32_t feature, bool &found) {
    found = static_cast<uint64_t>(static_cast<uint32_t>(feature)) < static_cast<uint64_t>(chunk.n_rows);
    return static_cast<uint32_t>(feature) & (0u - found);
}

inline uint32_t find_hashed(const ChunkView &chunk, int32_t feature, bool &found) {
    const uint32_t bucket = bucket_of(feature, chunk.n_buckets);
    uint32_t at = chunk.buckets[bucket];
    const uint32_t stop = chunk.buckets[bucket + 1];
    int32_t offset = find_in_window(chunk.keys + at, feature);
    while (__builtin_expect(at + key_window < stop, 0)) {
        if (offset < key_window) break;
        at += key_window;
        offset = find_in_window(chunk.keys + at, feature);
    }
    found = (offset < key_window) & (feature >= 0);
    return (at + static_cast<uint32_t>(offset)) & (0u - found);
}

inline WeightRow weight_row(const ChunkView &chunk, uint32_t row) {
    const uint32_t start = chunk.rows[row], stop = chunk.rows[row + 1] >> 1;
    return {chunk.arena + (start >> 1), stop - (start >> 1), (start & 1) != 0};
}

// ---- packing ----
struct PackedChunk {
    std::vector<int32_t> keys;
    std::vector<uint32_t> buckets, rows, arena;
};

// Features with a weight, ordered by bucket (and by number within a bucket).
inline std::vector<int32_t> group_by_bucket(const std::vector<int32_t> &features, std::vector<uint32_t> &buckets) {
    const int64_t n_buckets = static_cast<int64_t>(features.size()) / keys_per_bucket + 1;
    buckets.assign(n_buckets + 1, 0);
    for (int32_t f : features) ++buckets[bucket_of(f, n_buckets) + 1];
    for (int64_t b = 0; b < n_buckets; ++b) buckets[b + 1] += buckets[b];
    std::vector<uint32_t> next(buckets.begin(), buckets.end() - 1);
    std::vector<int32_t> keys(features.size());
    for (int32_t f : features) keys[next[bucket_of(f, n_buckets)]++] = f;
    return keys;
}

// Appends one row of weights for labels first..first+width as a sparse or dense row; returns whether dense.
inline bool append_row(const CsrView &coef, int64_t row, int64_t first, int64_t width, int64_t count, bool half,
                       std::vector<uint32_t> &arena) {
    const bool dense = 4 * count > width;
    const size_t start = arena.size();
    arena.resize(start + (dense ? dense_words(width, half) : sparse_words(count, half)), 0);
    uint32_t *words = arena.data() + start;
    auto *weights = reinterpret_cast<float *>(words);
    auto *labels = reinterpret_cast<uint16_t *>(words + count);
    for (int64_t at = coef.indptr[row], i = 0; at < coef.indptr[row + 1]; ++at) {
        const int64_t label = coef.indices[at] - first;
        if (label < 0 || label >= width || coef.data[at] == 0) continue;
        if (half && dense) {
            words[label / 2] |= upper_half(coef.data[at]) >> (label % 2 ? 0 : 16);
        } else if (half) {
            words[i++] = upper_half(coef.data[at]) | static_cast<uint32_t>(label);
        } else if (dense) {
            weights[label] = coef.data[at];
        } else {
            weights[i] = coef.data[at];
            labels[i++] = static_cast<uint16_t>(label);
        }
    }
    return dense;
}

// Packs columns first..first+width of a feature-major matrix; its row r holds the weights of features[r] (ascending), or of
// feature r where `features` is null.
inline PackedChunk pack_chunk(const CsrView &coef, const int32_t *features, int64_t n_features, int64_t first,
                              int64_t width, bool half) {
    std::vector<int64_t> counts(coef.n_rows, 0);
    std::vector<int32_t> used;
    for (int64_t r = 0; r < coef.n_rows; ++r) {
        for (int64_t at = coef.indptr[r]; at < coef.indptr[r + 1]; ++at)
            counts[r] += coef.indices[at] >= first && coef.indices[at] < first + width && coef.data[at] != 0;
        if (counts[r]) used.push_back(features ? features[r] : static_cast<int32_t>(r));
    }
    // Where the weights of a feature lie in `coef`, or -1 where it has none.
    auto source = [&](int32_t feature) -> int64_t {
        if (!features) return feature;
        const int32_t *at = std::lower_bound(features, features + coef.n_rows, feature);
        return at != features + coef.n_rows && *at == feature ? at - features : -1;
    };
    PackedChunk out;
    // Where a third of the features occur, a plain table is smaller than keys and buckets, and quicker.
    const bool direct = 3 * static_cast<int64_t>(used.size()) >= n_features && n_features > 0;
    if (!direct) out.keys = group_by_bucket(used, out.buckets);
    const int64_t n_rows = direct ? n_features : static_cast<int64_t>(used.size());
    out.rows.reserve(n_rows + 1);
    for (int64_t row = 0; row < n_rows; ++row) {
        const int64_t from = source(direct ? static_cast<int32_t>(row) : out.keys[row]);
        if (out.arena.size() >= (size_t{1} << 31) - static_cast<size_t>(2 * width))
            throw std::length_error("a chunk of " + std::to_string(width) + " labels has more than 8 GB of weights");
        const auto start = static_cast<uint32_t>(out.arena.size() * 2);
        const bool dense = from >= 0 && counts[from] && append_row(coef, from, first, width, counts[from], half, out.arena);
        out.rows.push_back(start + dense);
    }
    out.rows.push_back(static_cast<uint32_t>(out.arena.size() * 2));
    if (!direct) out.keys.insert(out.keys.end(), key_window, no_feature);
    return out;
}

// ---- checking ----
inline void require_intact(bool right, const char *what) {
    if (!right) throw DamagedModel(std::string("the model is damaged: ") + what + "; restore it or train again");
}

// Everything a kernel relies on when it reads the chunk; called once, before the first use.
inline void check_chunk(const ChunkView &chunk, int64_t n_labels) {
    for (int64_t i = 0; i < chunk.n_labels; ++i)
        require_intact(chunk.labels[i] > (i ? chunk.labels[i - 1] : -1) && chunk.labels[i] < n_labels, "label ids out of order");
    if (!chunk.direct()) {
        const int64_t n_keys = chunk.n_keys - key_window;
        require_intact(chunk.buckets[0] == 0 && chunk.buckets[chunk.n_buckets] == n_keys, "feature buckets out of range");
        for (int64_t b = 0; b < chunk.n_buckets; ++b)
            require_intact(chunk.buckets[b] <= chunk.buckets[b + 1], "feature buckets out of order");
        require_intact(std::all_of(chunk.keys + n_keys, chunk.keys + chunk.n_keys, [](int32_t f) { return f == no_feature; }) &&
                    std::all_of(chunk.keys, chunk.keys + n_keys, [](int32_t f) { return f >= 0; }),
                "feature numbers out of range");
    }
    require_intact(chunk.rows[0] < 2 && chunk.rows[chunk.n_rows] == static_cast<uint64_t>(chunk.arena_words) * 2,
            "weight rows out of range");
    for (int64_t r = 0; r < chunk.n_rows; ++r) {
        require_intact(chunk.rows[r] >> 1 <= chunk.rows[r + 1] >> 1 && chunk.rows[r + 1] >> 1 <= chunk.arena_words,
                "weight rows out of order");
        const WeightRow row = weight_row(chunk, static_cast<uint32_t>(r));
        if (row.dense) {
            require_intact(row.n_words == dense_words(chunk.n_labels, chunk.half), "a dense weight row has the wrong length");
            continue;
        }
        const int64_t n = row.n_sparse(chunk.half);
        require_intact(sparse_words(n, chunk.half) == row.n_words, "a sparse weight row has the wrong length");
        for (int64_t i = 0; i < n; ++i)
            require_intact((chunk.half ? row.words[i] & 0xFFFFu : row.labels(n)[i]) < chunk.n_labels, "a label is out of range");
    }
}
