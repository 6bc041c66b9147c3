// Packing weights for serving, from label-major rows to the chunks of chunk.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "chunk.hpp"
#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

struct PackedChunk {
    std::vector<int32_t> keys;
    std::vector<uint32_t> buckets, rows, arena;
    std::vector<float> scale; // of weights of 8 bits
};

// The largest weight over 127, but no less than the smallest normal number: below it, division would lose digits.
inline float scale_of(std::span<const float> weights) {
    float largest = 0;
    for (float weight : weights) largest = std::max(largest, std::fabs(weight));
    return largest == 0 ? 1.0f : std::max(largest / 127, std::numeric_limits<float>::min());
}

// The nearest integer (ties to even) of a number far below 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
inline int32_t rounded(float x) { return static_cast<int32_t>((x + 12582912.0f) - 12582912.0f); }

// Packs chunk after chunk of one label-major matrix (labels x features); the room for all features is made once.
class ChunkPacker {
  public:
    ChunkPacker(const CsrView &by_label, int bits)
        : by_label_(by_label), bits_(bits), slots_(by_label.n_cols), room_for_used_(by_label.n_cols + 1) {}

    // `labels` are rows of the matrix, or -1 for a label without weights.
    PackedChunk pack(std::span<const int32_t> labels) {
        labels_ = labels;
        shape_ = {bits_, static_cast<int64_t>(labels.size())};
        PackedChunk out;
        if (bits_ == 8)
            for (int32_t label : labels) out.scale.push_back(label < 0 ? 1.0f : scale_of(weights_of(label)));
        scale_ = out.scale.data();
        count();
        lay_out(out);
        if (bits_ == 32) fill<32>(out.arena.data());
        if (bits_ == 16) fill<16>(out.arena.data());
        if (bits_ == 8 && shape_.byte_labels()) fill_bytes<uint8_t>(out);
        if (bits_ == 8 && !shape_.byte_labels()) fill_bytes<uint16_t>(out);
        for (int32_t feature : used_) slots_[feature] = {};
        return out;
    }

  private:
    // A feature's row: weights in it, first word, weights written so far.
    struct Slot {
        uint32_t count = 0, start = 0, filled = 0;
    };

    std::span<const float> weights_of(int32_t label) const {
        return {by_label_.data + by_label_.indptr[label], static_cast<size_t>(by_label_.row_size(label))};
    }

    bool dense(const Slot &slot) const { return 4 * int64_t{slot.count} > shape_.n_labels; }

    // Calls use(feature, position of the label, weight) for every weight that is not zero once it is rounded.
    template <bool bytes, typename Use>
    void for_each_weight(Use &&use) {
        const auto [indptr, indices, data, n_rows, n_cols] = by_label_;
        for (size_t at = 0; at < labels_.size(); ++at) {
            if (labels_[at] < 0) continue;
            const float scale = bytes ? scale_[at] : 1.0f;
            for (int64_t k = indptr[labels_[at]], end = indptr[labels_[at] + 1]; k < end; ++k) {
                const float weight = bytes ? static_cast<float>(rounded(data[k] / scale)) : data[k];
                if (weight != 0) use(indices[k], at, weight);
            }
        }
    }

    void count() {
        size_t n_used = 0;
        Slot *slots = slots_.data();
        int32_t *used = room_for_used_.data();
        const auto see = [&](int32_t feature, size_t, float) {
            used[n_used] = feature; // a branch on whether it is new would often be predicted wrong
            n_used += slots[feature].count++ == 0;
        };
        bits_ == 8 ? for_each_weight<true>(see) : for_each_weight<false>(see);
        used_ = {used, n_used};
    }

    // Decides on rows, their order and their shape.
    void lay_out(PackedChunk &out) {
        // Where a third of the features occur, a plain table is smaller than keys and buckets, and quicker.
        const bool direct = 3 * static_cast<int64_t>(used_.size()) >= by_label_.n_cols && by_label_.n_cols > 0;
        if (!direct) group_by_bucket(out);
        const int64_t n_rows = direct ? by_label_.n_cols : static_cast<int64_t>(used_.size());
        out.rows.resize(n_rows + 1);
        uint64_t words = 0;
        for (int64_t row = 0; row < n_rows; ++row) {
            Slot &slot = slots_[direct ? row : out.keys[row]];
            slot.start = static_cast<uint32_t>(words);
            out.rows[row] = static_cast<uint32_t>(words * 2) + dense(slot);
            words += static_cast<uint64_t>(dense(slot) ? shape_.dense_words() : shape_.sparse_words(slot.count));
            if (words >= uint64_t{1} << 31)
                throw std::length_error("a chunk of " + std::to_string(labels_.size()) + " labels has more than 8 GB of weights");
        }
        out.rows[n_rows] = static_cast<uint32_t>(words * 2);
        out.arena.resize(words);
        if (!direct) out.keys.insert(out.keys.end(), key_window, no_feature);
    }

    // Features with a weight, ordered by bucket and by number within a bucket.
    void group_by_bucket(PackedChunk &out) const {
        const int64_t n_buckets = static_cast<int64_t>(used_.size()) / keys_per_bucket + 1;
        out.buckets.assign(n_buckets + 1, 0);
        for (int32_t feature : used_) ++out.buckets[bucket_of(feature, n_buckets) + 1];
        for (int64_t b = 0; b < n_buckets; ++b) out.buckets[b + 1] += out.buckets[b];
        std::vector<uint32_t> next(out.buckets.begin(), out.buckets.end() - 1);
        out.keys.reserve(used_.size() + key_window);
        out.keys.resize(used_.size());
        for (int32_t feature : used_) out.keys[next[bucket_of(feature, n_buckets)]++] = feature;
        for (int64_t b = 0; b < n_buckets; ++b)
            std::sort(out.keys.begin() + out.buckets[b], out.keys.begin() + out.buckets[b + 1]);
    }

    template <int bits>
    void fill(uint32_t *arena) {
        Slot *slots = slots_.data();
        for_each_weight<false>([&](int32_t feature, size_t label, float weight) {
            Slot &slot = slots[feature];
            uint32_t *words = arena + slot.start;
            if (bits == 16 && dense(slot)) {
                words[label / 2] |= bfloat16_word(weight) >> (label % 2 ? 0 : 16);
            } else if (bits == 16) {
                words[slot.filled++] = bfloat16_word(weight) | static_cast<uint32_t>(label);
            } else if (dense(slot)) {
                words[label] = std::bit_cast<uint32_t>(weight);
            } else {
                store(bytes_of(words + slot.count), slot.filled, static_cast<uint16_t>(label));
                words[slot.filled++] = std::bit_cast<uint32_t>(weight);
            }
        });
    }

    template <typename Label>
    void fill_bytes(PackedChunk &out) {
        for_each_weight<true>([&](int32_t feature, size_t label, float weight) {
            Slot &slot = slots_[feature];
            std::byte *row = bytes_of(out.arena.data() + slot.start);
            if (dense(slot)) {
                store(row, static_cast<int64_t>(label), static_cast<int8_t>(weight));
            } else {
                store(row + room(slot) * static_cast<int64_t>(sizeof(Label)), slot.filled, static_cast<int8_t>(weight));
                store(row, slot.filled++, static_cast<Label>(label));
            }
        });
        for (int32_t feature : used_) {
            const Slot &slot = slots_[feature];
            if (dense(slot) || room(slot) == slot.count) continue;
            std::byte *labels = bytes_of(out.arena.data() + slot.start);
            uint32_t missing = 0; // a sparse row lacks most labels
            while (missing < slot.count && load<Label>(labels, missing) == missing) ++missing;
            store(labels, slot.count, static_cast<Label>(missing));
        }
    }

    // Entries that the words of a sparse row hold: at most one more than it needs.
    int64_t room(const Slot &slot) const { return shape_.n_sparse(shape_.sparse_words(slot.count)); }

    const CsrView by_label_;
    const int bits_;
    std::vector<Slot> slots_; // one per feature, empty between chunks
    std::vector<int32_t> room_for_used_;
    std::span<const int32_t> used_; // features with a weight in the chunk
    std::span<const int32_t> labels_;
    RowShape shape_{};
    const float *scale_ = nullptr;
};

// All chunks in flat arrays; sizes[c] says how much of keys, buckets, rows and arena is chunk c's.
struct PackedChunks {
    PackedChunk flat;
    std::vector<std::array<int64_t, 4>> sizes;
};

// Packs labels[ends[c - 1]..ends[c]] into chunk c, for each c. The same bytes for any number of threads.
inline PackedChunks pack_chunks(const CsrView &by_label, std::span<const int32_t> labels, std::span<const int64_t> ends,
                                int bits, int threads) {
    const auto n_chunks = static_cast<int64_t>(ends.size());
    std::vector<PackedChunk> chunks(ends.size());
    std::vector<std::unique_ptr<ChunkPacker>> packers(worker_count(n_chunks, threads));
    parallel_for(n_chunks, threads, [&](int64_t item, int worker) {
        const int64_t c = n_chunks - 1 - item; // the large chunks of frequent labels come last: start with them
        if (!packers[worker]) packers[worker] = std::make_unique<ChunkPacker>(by_label, bits);
        const int64_t begin = c ? ends[c - 1] : 0;
        chunks[c] = packers[worker]->pack(labels.subspan(begin, ends[c] - begin));
    });
    PackedChunks out;
    const auto join = [&](auto PackedChunk::*part) {
        int64_t size = 0;
        for (const PackedChunk &chunk : chunks) size += static_cast<int64_t>((chunk.*part).size());
        auto &all = out.flat.*part;
        all.reserve(size);
        for (PackedChunk &chunk : chunks) {
            all.insert(all.end(), (chunk.*part).begin(), (chunk.*part).end());
            chunk.*part = {};
        }
    };
    for (const PackedChunk &chunk : chunks)
        out.sizes.push_back({static_cast<int64_t>(chunk.keys.size()), static_cast<int64_t>(chunk.buckets.size()),
                             static_cast<int64_t>(chunk.rows.size()), static_cast<int64_t>(chunk.arena.size())});
    join(&PackedChunk::keys), join(&PackedChunk::buckets), join(&PackedChunk::rows), join(&PackedChunk::arena);
    join(&PackedChunk::scale);
    return out;
}

} // namespace blockxmc
