// The best labels of many rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "packed_model.hpp"
#include "score_chunk.hpp"
#include "threads.hpp"
#include "visits.hpp"

namespace blockxmc {

// Rows that visit the same chunk are scored together, tile by tile, while the chunk is in cache.
class BatchTopK {
  public:
    BatchTopK(const PackedModel &model, const CsrView &X, const Visits &visits, int64_t k, int threads)
        : model_(model), X_(X), visits_(visits), k_(k), keep_(std::min({k, model.n_labels, max_chunk_labels})), threads_(threads) {}

    void run(int64_t *labels, float *scores) {
        int64_t widest = model_.n_chunks;
        if (visits_.blocks) {
            widest = 0;
            for (int64_t i = 0; i < X_.n_rows; ++i) {
                int64_t n = 0;
                model_.for_each_chunk(visits_, i, [&](int64_t, BlockWeight) { ++n; });
                widest = std::max(widest, n);
            }
        }
        const int64_t cells = std::max<int64_t>(visits_.weights ? widest_candidates() : widest * keep_, 1);
        const int64_t step = std::clamp<int64_t>(max_cells / cells, 64, 65536);
        enough_.reset(new std::atomic<float>[std::min(step, X_.n_rows)]);
        for (int64_t begin = 0; begin < X_.n_rows; begin += step) {
            const int64_t end = std::min(begin + step, X_.n_rows);
            group(begin, end);
            if (visits_.weights) {
                score_all();
                weigh(begin, end, labels, scores);
            } else {
                score(begin, end);
                merge(begin, end, labels, scores);
            }
        }
    }

  private:
    static constexpr int64_t max_cells = int64_t{1} << 22; // scored labels held between the two stages
    static constexpr int64_t tile_items = 32;

    struct Item {
        int64_t row, slot; // slot: where the results go; the slots of a row follow each other
    };
    struct Tile {
        int64_t chunk, begin, end;
    };

    // Counting sort of the (row, chunk) pairs by chunk.
    void group(int64_t begin, int64_t end) {
        std::vector<int64_t> next(model_.n_chunks + 1, 0);
        slots_.assign(end - begin + 1, 0);
        for (int64_t i = begin; i < end; ++i) {
            int64_t &stop = slots_[i - begin + 1];
            stop = slots_[i - begin];
            model_.for_each_chunk(visits_, i, [&](int64_t c, BlockWeight) { ++next[c + 1], ++stop; });
        }
        std::partial_sum(next.begin(), next.end(), next.begin());
        tiles_.clear();
        for (int64_t c = 0; c < model_.n_chunks; ++c)
            for (int64_t at = next[c]; at < next[c + 1]; at += tile_items)
                tiles_.push_back({c, at, std::min(at + tile_items, next[c + 1])});
        items_.resize(slots_.back());
        for (int64_t i = begin, slot = 0; i < end; ++i)
            model_.for_each_chunk(visits_, i, [&](int64_t c, BlockWeight) { items_[next[c]++] = {i, slot++}; });
        if (visits_.weights) {
            starts_.assign(slots_.back() + 1, 0);
            for (const Tile &tile : tiles_)
                for (int64_t at = tile.begin; at < tile.end; ++at)
                    starts_[items_[at].slot + 1] = model_.chunk(tile.chunk).n_labels;
            std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
            all_.resize(starts_.back());
            return;
        }
        best_.resize(slots_.back() * keep_);
        sizes_.resize(slots_.back());
    }

    // Most candidates (counted once per block) that any row has.
    int64_t widest_candidates() const {
        int64_t widest = 0;
        for (int64_t i = 0; i < X_.n_rows; ++i) {
            int64_t n = 0;
            model_.for_each_chunk(visits_, i, [&](int64_t c, BlockWeight) { n += model_.chunk(c).n_labels; });
            widest = std::max(widest, n);
        }
        return widest;
    }

    void score_all() {
        parallel_for(static_cast<int64_t>(tiles_.size()), threads_, [&](int64_t t, int) {
            Scratch &scratch = Scratch::of_this_thread();
            const ChunkView chunk = model_.chunk(tiles_[t].chunk);
            for (int64_t i = tiles_[t].begin; i < tiles_[t].end; ++i) {
                score_chunk(chunk, row_of(X_, items_[i].row), scratch, all_.data() + starts_[items_[i].slot]);
            }
        });
    }

    void weigh(int64_t begin, int64_t end, int64_t *labels, float *scores) {
        constexpr int64_t rows_per_item = 256;
        parallel_for((end - begin + rows_per_item - 1) / rows_per_item, threads_, [&](int64_t t, int) {
            Scratch &scratch = Scratch::of_this_thread();
            const int64_t first = begin + t * rows_per_item, last = std::min(first + rows_per_item, end);
            for (int64_t i = first; i < last; ++i) {
                int64_t slot = slots_[i - begin];
                // The chunks of the frequent labels come first, and so do their scores.
                const FrequentScores frequent =
                    visits_.frequent ? model_.frequent_scores(all_.data() + starts_[slot]) : FrequentScores{};
                scratch.weighed.start_row(model_.n_labels, k_, visits_.slope, visits_.total_weight(i), frequent,
                                          visits_.bonuses(i, row_of(X_, i), scratch.bonuses), visits_.reranker, visits_.allowed);
                model_.for_each_chunk(visits_, i, [&](int64_t c, BlockWeight weight) {
                    const ChunkView chunk = model_.chunk(c);
                    float *of_chunk = all_.data() + starts_[slot++];
                    if (visits_.frequent && model_.in_last_block(c)) return;
                    if (visits_.frequent) fill_in(model_.listed(c), frequent, of_chunk);
                    scratch.weighed.add(chunk.labels, of_chunk, chunk.n_labels, weight);
                });
                scratch.weighed.best(labels + i * k_, scores + i * k_);
            }
        });
    }

    // Threads share the scores that k labels of a row have reached. This only saves work: results do not depend on it.
    void score(int64_t begin, int64_t end) {
        for (int64_t i = 0; i < end - begin; ++i) enough_[i].store(-std::numeric_limits<float>::infinity(), std::memory_order_relaxed);
        parallel_for(static_cast<int64_t>(tiles_.size()), threads_, [&](int64_t t, int) {
            Scratch &scratch = Scratch::of_this_thread();
            const ChunkView chunk = model_.chunk(tiles_[t].chunk);
            for (int64_t i = tiles_[t].begin; i < tiles_[t].end; ++i) {
                const Item item = items_[i];
                Scored *out = best_.data() + item.slot * keep_;
                float enough = enough_[item.row - begin].load(std::memory_order_relaxed);
                sizes_[item.slot] = best_of_chunk(chunk, row_of(X_, item.row), keep_, visits_.allowed, scratch, out, enough);
                enough_[item.row - begin].store(enough, std::memory_order_relaxed);
            }
        });
    }

    void merge(int64_t begin, int64_t end, int64_t *labels, float *scores) {
        constexpr int64_t rows_per_item = 256;
        parallel_for((end - begin + rows_per_item - 1) / rows_per_item, threads_, [&](int64_t t, int) {
            Scratch &scratch = Scratch::of_this_thread();
            const int64_t first = begin + t * rows_per_item, last = std::min(first + rows_per_item, end);
            for (int64_t i = first; i < last; ++i) {
                scratch.runs.clear();
                for (int64_t slot = slots_[i - begin]; slot < slots_[i - begin + 1]; ++slot) {
                    const Scored *run = best_.data() + slot * keep_;
                    scratch.runs.push_back({run, run + sizes_[slot]});
                }
                merge_runs(scratch.runs, k_, model_.n_labels, scratch.seen, labels + i * k_, scores + i * k_);
            }
        });
    }

    const PackedModel &model_;
    const CsrView X_;
    const Visits visits_;
    const int64_t k_, keep_;
    const int threads_;
    std::vector<int64_t> slots_, sizes_, starts_;
    std::vector<float> all_;
    std::vector<Item> items_;
    std::vector<Tile> tiles_;
    std::vector<Scored> best_;
    std::unique_ptr<std::atomic<float>[]> enough_; // of each row, a score that k labels have reached
};

inline void topk_batch(const PackedModel &model, const CsrView &X, const Visits &visits, int64_t k, int threads,
                       int64_t *labels, float *scores) {
    BatchTopK(model, X, visits, k, threads).run(labels, scores);
}

} // namespace blockxmc
