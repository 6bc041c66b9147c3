// The packed weights of all blocks, and which of their chunks a row visits.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "chunk.hpp"
#include "visits.hpp"
#include "weighed.hpp"

namespace blockxmc {

class PackedModel {
  public:
    // Columns of the offsets table: where each chunk starts in the flat arrays; one more row ends the last chunk.
    enum Column { label_at, key_at, bucket_at, row_at, arena_at, n_columns };

    struct Arrays {
        std::span<const int64_t> block_ptr; // chunks of each block
        std::span<const int64_t> offsets;   // (n_chunks + 1) x n_columns
        std::span<const int32_t> labels;
        std::span<const float> bias, mass, scale; // the last two may be absent (nullptr)
        std::span<const int32_t> keys;
        std::span<const uint32_t> buckets, rows, arena;
        int bits; // of a weight
    };

    // Checks the small arrays of pointers; what they point into is checked chunk by chunk on first use.
    PackedModel(const Arrays &arrays, int64_t n_labels, int64_t n_features)
        : n_blocks(static_cast<int64_t>(arrays.block_ptr.size()) - 1),
          n_chunks(static_cast<int64_t>(arrays.offsets.size() / n_columns) - 1), n_labels(n_labels), n_features(n_features),
          arrays_(arrays) {
        check_shapes();
        check_offsets();
        checked_ = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(n_chunks));
    }

    // A chunk that is safe to read; the first caller checks it.
    ChunkView chunk(int64_t c) const {
        const ChunkView view = unchecked(c);
        if (!checked_[c].load(std::memory_order_relaxed)) {
            check_chunk(view, n_labels);
            checked_[c].store(true, std::memory_order_relaxed);
        }
        return view;
    }

    // Calls use(chunk number, weight) for every chunk that row i visits.
    template <typename Use>
    void for_each_chunk(const Visits &visits, int64_t i, Use &&use) const {
        if (!visits.blocks) {
            for (int64_t c = 0; c < n_chunks; ++c) use(c, BlockWeight{0, 0});
            return;
        }
        float met = 0;
        for (int64_t j = 0; j < visits.width; ++j) {
            const int32_t block = visits.blocks[i * visits.width + j];
            if (block < 0) continue;
            const float weight = visits.weights ? visits.weights[i * visits.width + j] : 0.0f;
            for (int64_t c = block_ptr(block); c < block_ptr(block + 1); ++c) use(c, BlockWeight{weight, met});
            met += weight;
        }
    }

    // ---- the last block, where it holds the frequent labels ----
    bool in_last_block(int64_t c) const { return c >= last_block_chunk(); }
    int64_t last_block_chunk() const { return block_ptr(n_blocks - 1); }

    int64_t last_block_size() const { return offset(n_chunks, label_at) - last_block_start(); }

    // `scores` are those of all labels of the last block.
    FrequentScores frequent_scores(const float *scores) const {
        return {arrays_.labels.data() + last_block_start(), scores, last_block_size()};
    }

    // The frequent labels that a chunk of another block lists.
    const std::vector<Listed> &listed(int64_t c) const {
        std::call_once(listed_found_, [&] { find_listed(); });
        return listed_[c];
    }

    // A bit per label of a chunk, in words of 64: whether other chunks list it too.
    const uint64_t *repeated(int64_t c) const {
        std::call_once(repeated_found_, [&] { find_repeated(); });
        return repeated_.data() + first_word_[c];
    }

    const int64_t n_blocks, n_chunks, n_labels, n_features;

  private:
    int64_t block_ptr(int64_t block) const { return arrays_.block_ptr[block]; }
    int64_t offset(int64_t c, int column) const { return arrays_.offsets[c * n_columns + column]; }
    int64_t last_block_start() const { return offset(block_ptr(n_blocks - 1), label_at); }

    void find_listed() const {
        std::vector<int32_t> place(n_labels, -1); // of each label in the last block, -1: not in it
        const int64_t first = block_ptr(n_blocks - 1);
        for (int64_t c = first, at = 0; c < n_chunks; ++c) {
            const ChunkView part = chunk(c);
            for (int64_t j = 0; j < part.n_labels; ++j) place[part.labels[j]] = static_cast<int32_t>(at++);
        }
        listed_.resize(n_chunks);
        for (int64_t c = 0; c < first; ++c) {
            const ChunkView part = chunk(c);
            for (int64_t j = 0; j < part.n_labels; ++j)
                if (part.bias[j] == -std::numeric_limits<float>::infinity() && place[part.labels[j]] >= 0)
                    listed_[c].push_back({static_cast<int32_t>(j), place[part.labels[j]]});
        }
    }

    void find_repeated() const {
        std::vector<uint8_t> times(n_labels, 0); // 2: or more
        for (const int32_t label : arrays_.labels) {
            require_intact(label >= 0 && label < n_labels, "label ids are out of order");
            times[label] += times[label] < 2;
        }
        first_word_.assign(n_chunks + 1, 0);
        for (int64_t c = 0; c < n_chunks; ++c)
            first_word_[c + 1] = first_word_[c] + (offset(c + 1, label_at) - offset(c, label_at) + group_of_bits - 1) / group_of_bits;
        repeated_.assign(first_word_.back(), 0);
        for (int64_t c = 0; c < n_chunks; ++c)
            for (int64_t at = offset(c, label_at), j = 0; at < offset(c + 1, label_at); ++at, ++j)
                repeated_[first_word_[c] + j / group_of_bits] |= uint64_t{times[arrays_.labels[at]] > 1} << j % group_of_bits;
    }

    ChunkView unchecked(int64_t c) const {
        const int64_t *at = arrays_.offsets.data() + c * n_columns, *end = at + n_columns;
        return {arrays_.labels.data() + at[label_at],
                arrays_.bias.data() + at[label_at],
                arrays_.mass.data() ? arrays_.mass.data() + at[label_at] : nullptr,
                arrays_.scale.data() ? arrays_.scale.data() + at[label_at] : nullptr,
                arrays_.keys.data() + at[key_at],
                arrays_.buckets.data() + at[bucket_at],
                arrays_.rows.data() + at[row_at],
                arrays_.arena.data() + at[arena_at],
                end[label_at] - at[label_at],
                end[key_at] - at[key_at],
                end[bucket_at] - at[bucket_at] - 1,
                end[row_at] - at[row_at] - 1,
                end[arena_at] - at[arena_at],
                arrays_.bits};
    }

    // ---- checking ----
    void check_shapes() const {
        const size_t size = arrays_.labels.size();
        require_intact(arrays_.bits == 32 || arrays_.bits == 16 || arrays_.bits == 8, "a weight must have 32, 16 or 8 bits");
        require_intact(n_labels >= 0 && n_labels <= INT32_MAX && n_features >= 0 && n_features <= INT32_MAX,
                       "the number of labels or features is out of range");
        require_intact(n_chunks >= 0 && arrays_.offsets.size() % n_columns == 0, "the table of chunks has the wrong shape");
        require_intact(are_pointers(arrays_.block_ptr, static_cast<size_t>(n_chunks)), "the chunks of blocks are out of order");
        require_intact(arrays_.bias.size() == size, "biases are missing");
        require_intact(!arrays_.mass.data() || arrays_.mass.size() == size, "the coefficients of l1 norms are missing");
        require_intact((arrays_.scale.data() != nullptr) == (arrays_.bits == 8), "weights of 8 bits need scales, others have none");
        require_intact(!arrays_.scale.data() || arrays_.scale.size() == size, "scales are missing");
    }

    // Offsets are compared before they are subtracted: each column must rise from 0 to the size of its array.
    void check_offsets() const {
        const size_t sizes[n_columns] = {arrays_.labels.size(), arrays_.keys.size(), arrays_.buckets.size(),
                                         arrays_.rows.size(), arrays_.arena.size()};
        for (int column = 0; column < n_columns; ++column) {
            require_intact(offset(0, column) == 0 && static_cast<uint64_t>(offset(n_chunks, column)) == sizes[column],
                           "an array is longer or shorter than the table of chunks says");
            for (int64_t c = 0; c < n_chunks; ++c)
                require_intact(offset(c, column) <= offset(c + 1, column), "the chunks are out of order");
        }
        for (int64_t c = 0; c < n_chunks; ++c) check_sizes(c);
    }

    void check_sizes(int64_t c) const {
        const auto size = [&](Column column) { return offset(c + 1, column) - offset(c, column); };
        require_intact(size(label_at) <= max_chunk_labels, "a chunk has too many labels");
        require_intact(size(row_at) >= 1 && size(arena_at) < (int64_t{1} << 31), "weight rows are missing");
        if (size(key_at) == 0) return;
        require_intact(size(key_at) == size(row_at) - 1 + key_window && size(bucket_at) >= 2, "feature numbers are missing");
    }

    const Arrays arrays_;
    std::unique_ptr<std::atomic<bool>[]> checked_;
    mutable std::once_flag listed_found_;
    mutable std::vector<std::vector<Listed>> listed_; // of each chunk
    mutable std::once_flag repeated_found_;
    mutable std::vector<uint64_t> repeated_;
    mutable std::vector<int64_t> first_word_; // of each chunk in repeated_
};

} // namespace blockxmc
