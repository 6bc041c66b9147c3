// How weights lie in memory for serving. A block's labels are cut into chunks small enough for the accumulator to stay
// in cache; a chunk stores its weights feature-major, so that a row touches only what its own features need:
//
//   arena    rows of weights, in 4-byte words. Sparse row: n floats, then n 16-bit local label numbers (padded to a
//            word). Dense row: one float per label. One stream per row: a short row costs one cache line.
//            A weight of 16 bits is a bfloat16: the upper half of a float, rounded. Sparse row: n words, each with the
//            weight in its upper half and the label number in its lower half. Dense row: two weights per word, the first
//            in the lower half.
//            A weight of 8 bits is an integer in -127..127 that its label's scale multiplies. Sparse row: n label numbers
//            of 16 bits, or of 8 where the chunk has no more than 256 labels, then n weights. Where the words have room
//            for one entry more, it is a zero for a label that the row lacks (labels of a row must differ).
//            Dense row: four weights per word.
//   rows     start of each row in the arena, times two, plus one where the row is dense; a last entry ends the last row
//   keys     feature of each row, grouped by hash bucket; empty where rows are indexed by the feature itself ("direct")
//   buckets  first key of each bucket; keys are compared a window at a time, even beyond the end of the bucket
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checks.hpp"
#include "simd.hpp"

namespace blockxmc {

constexpr int64_t max_chunk_labels = 16384;
constexpr int32_t key_window = 8;      // keys compared at once; as many padding keys end a chunk's list
constexpr int32_t keys_per_bucket = 3; // on average: a bucket rarely has more than a window of them
constexpr int32_t no_feature = -1;

// The words of the arena hold numbers of several types. They are copied out and in byte by byte, which compilers turn into
// plain loads and stores: a pointer of another type to the same words would break the rules of the language.
template <typename T>
BLOCKXMC_INLINE T load(const std::byte *from, int64_t i) {
    T value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

template <typename T>
BLOCKXMC_INLINE void store(std::byte *to, int64_t i, T value) {
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
BLOCKXMC_INLINE const std::byte *bytes_of(const T *values) {
    return reinterpret_cast<const std::byte *>(values);
}

template <typename T>
BLOCKXMC_INLINE std::byte *bytes_of(T *values) {
    return reinterpret_cast<std::byte *>(values);
}

// How many words a row takes in a chunk, and how many entries a sparse row of so many words has.
struct RowShape {
    int bits;
    int64_t n_labels;

    bool byte_labels() const { return n_labels <= 256; } // where weights have 8 bits
    int64_t dense_words() const { return bits == 32 ? n_labels : bits == 16 ? (n_labels + 1) / 2 : (n_labels + 3) / 4; }
    int64_t sparse_words(int64_t n) const {
        return bits == 32 ? n + (n + 1) / 2 : bits == 16 ? n : byte_labels() ? (n + 1) / 2 : (3 * n + 3) / 4;
    }
    int64_t n_sparse(int64_t words) const {
        return bits == 32 ? 2 * words / 3 : bits == 16 ? words : byte_labels() ? 2 * words : 4 * words / 3;
    }
};

struct ChunkView {
    const int32_t *labels; // global ids, ascending
    const float *bias;
    const float *mass; // nullptr: no term in |x|_1
    const float *scale; // of weights of 8 bits, else nullptr
    const int32_t *keys;
    const uint32_t *buckets;
    const uint32_t *rows;
    const uint32_t *arena;
    int64_t n_labels, n_keys, n_buckets, n_rows, arena_words;
    int bits; // of a weight: 32, 16 or 8

    bool direct() const { return n_keys == 0; }
    RowShape shape() const { return {bits, n_labels}; }
};

// A row of weights as the scoring loop wants it.
struct WeightRow {
    const uint32_t *words;
    uint32_t n_words;
    bool dense;

    const std::byte *bytes() const { return bytes_of(words); }

    // The number of the i-th label of a sparse row of n entries.
    int64_t label(int64_t i, int64_t n, RowShape shape) const {
        if (shape.bits == 32) return load<uint16_t>(bytes_of(words + n), i);
        if (shape.bits == 16) return words[i] & 0xFFFFu;
        return shape.byte_labels() ? load<uint8_t>(bytes(), i) : load<uint16_t>(bytes(), i);
    }
};

// The bfloat16 nearest to a weight (ties to even), in the upper half of a word.
inline uint32_t bfloat16_word(float weight) {
    const auto bits = std::bit_cast<uint32_t>(weight);
    return (bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u;
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

// Number of the row that holds `feature`; row 0 with found = false where the chunk lacks it. There are no branches that
// are hard to predict, so that the searches for the features of a row overlap.
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

// ---- checking ----
// Everything a kernel relies on when it reads the chunk; called once, before the first use.
inline void check_chunk(const ChunkView &chunk, int64_t n_labels) {
    for (int64_t i = 0; i < chunk.n_labels; ++i)
        require_intact(chunk.labels[i] > (i ? chunk.labels[i - 1] : -1) && chunk.labels[i] < n_labels, "label ids are out of order");
    if (!chunk.direct()) {
        const int64_t n_keys = chunk.n_keys - key_window;
        require_intact(chunk.buckets[0] == 0 && chunk.buckets[chunk.n_buckets] == n_keys, "feature buckets are out of range");
        for (int64_t b = 0; b < chunk.n_buckets; ++b)
            require_intact(chunk.buckets[b] <= chunk.buckets[b + 1], "feature buckets are out of order");
        require_intact(std::all_of(chunk.keys + n_keys, chunk.keys + chunk.n_keys, [](int32_t f) { return f == no_feature; }) &&
                           std::all_of(chunk.keys, chunk.keys + n_keys, [](int32_t f) { return f >= 0; }),
                       "feature numbers are out of range");
    }
    for (int64_t i = 0; chunk.scale && i < chunk.n_labels; ++i)
        require_intact(std::isfinite(chunk.scale[i]) && chunk.scale[i] > 0, "the scale of a label is not a positive number");
    const RowShape shape = chunk.shape();
    require_intact(chunk.rows[0] < 2 && chunk.rows[chunk.n_rows] == static_cast<uint64_t>(chunk.arena_words) * 2,
                   "weight rows are out of range");
    for (int64_t r = 0; r < chunk.n_rows; ++r) {
        require_intact(chunk.rows[r] >> 1 <= chunk.rows[r + 1] >> 1 && chunk.rows[r + 1] >> 1 <= chunk.arena_words,
                       "weight rows are out of order");
        const WeightRow row = weight_row(chunk, static_cast<uint32_t>(r));
        if (row.dense) {
            require_intact(row.n_words == shape.dense_words(), "a dense weight row has the wrong length");
            continue;
        }
        const int64_t n = shape.n_sparse(row.n_words);
        require_intact(shape.sparse_words(n) == row.n_words, "a sparse weight row has the wrong length");
        for (int64_t i = 0; i < n; ++i)
            require_intact(row.label(i, n, shape) < chunk.n_labels, "a label is out of range");
    }
}

} // namespace blockxmc
