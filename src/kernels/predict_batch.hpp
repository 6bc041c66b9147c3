// The best labels of many rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "packed_model.hpp"
#include "predict.hpp"
#include "score_chunk.hpp"
#include "threads.hpp"
#include "visits.hpp"

namespace blockxmc {

// Some rows at a time, by one thread: rows that visit the same chunk are scored together, tile by tile, while the chunk is in
// cache. The room for scores is used again for the next rows.
class RowBatch {
  public:
    RowBatch(const PackedModel &model, const CsrView &X, const Visits &visits, int64_t k)
        : model_(model), X_(X), visits_(visits), k_(k), keep_(std::min({k, model.n_labels, max_chunk_labels})) {}

    // Scores that are held at one time for the p-th row in order.
    int64_t cells(int64_t p) const {
        int64_t n = 0;
        for_each_chunk(p, [&](int64_t c) { n += visits_.weights ? model_.chunk(c).n_labels : keep_; });
        return n;
    }

    // Rows from the begin-th to before the end-th, in the order of the visits.
    void run(int64_t begin, int64_t end, int64_t *labels, float *scores) {
        group(begin, end);
        if (visits_.weights) {
            score_all();
            weigh(begin, end, labels, scores);
        } else {
            score(begin, end);
            merge(begin, end, labels, scores);
        }
    }

  private:
    static constexpr int64_t tile_items = 32;

    struct Item {
        int64_t place, slot; // place: of the row in order; slot: where the results go; the slots of a row follow each other
    };
    struct Tile {
        int64_t chunk, begin, end;
    };

    // The chunks of the p-th row that are scored together with other rows. The frequent labels are not: their scores, of one
    // row at a time, stay in cache until all is added up.
    template <typename Use>
    void for_each_chunk(int64_t p, Use &&use) const {
        model_.for_each_chunk(visits_, visits_.row(p), [&](int64_t c, BlockWeight) {
            if (!visits_.frequent || !model_.in_last_block(c)) use(c);
        });
    }

    // Counting sort of the (row, chunk) pairs by chunk.
    void group(int64_t begin, int64_t end) {
        next_.assign(model_.n_chunks + 1, 0);
        slots_.assign(end - begin + 1, 0);
        for (int64_t p = begin; p < end; ++p) {
            int64_t &stop = slots_[p - begin + 1];
            stop = slots_[p - begin];
            for_each_chunk(p, [&](int64_t c) { ++next_[c + 1], ++stop; });
        }
        std::partial_sum(next_.begin(), next_.end(), next_.begin());
        tiles_.clear();
        for (int64_t c = 0; c < model_.n_chunks; ++c)
            for (int64_t at = next_[c]; at < next_[c + 1]; at += tile_items)
                tiles_.push_back({c, at, std::min(at + tile_items, next_[c + 1])});
        items_.resize(slots_.back());
        for (int64_t p = begin, slot = 0; p < end; ++p)
            for_each_chunk(p, [&](int64_t c) { items_[next_[c]++] = {p, slot++}; });
        if (visits_.weights) {
            starts_.assign(slots_.back() + 1, 0);
            for (const Tile &tile : tiles_)
                for (int64_t at = tile.begin; at < tile.end; ++at)
                    starts_[items_[at].slot + 1] = model_.chunk(tile.chunk).n_labels;
            std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
            if (static_cast<int64_t>(all_.size()) < starts_.back()) all_.resize(starts_.back());
            return;
        }
        if (static_cast<int64_t>(best_.size()) < slots_.back() * keep_) best_.resize(slots_.back() * keep_);
        sizes_.resize(slots_.back());
    }

    void score_all() {
        Scratch &scratch = Scratch::of_this_thread();
        for (const Tile &tile : tiles_) {
            const ChunkView chunk = model_.chunk(tile.chunk);
            for (int64_t at = tile.begin; at < tile.end; ++at)
                score_chunk(chunk, row_of(X_, visits_.row(items_[at].place)), scratch, all_.data() + starts_[items_[at].slot]);
        }
    }

    void weigh(int64_t begin, int64_t end, int64_t *labels, float *scores) {
        Scratch &scratch = Scratch::of_this_thread();
        for (int64_t p = begin; p < end; ++p) {
            const int64_t i = visits_.row(p);
            int64_t slot = slots_[p - begin];
            const RowView x = row_of(X_, i);
            const FrequentScores frequent = visits_.frequent ? score_frequent(model_, x, scratch) : FrequentScores{};
            scratch.weighed.start_row(model_.n_labels, k_, visits_.slope, visits_.total_weight(i), frequent,
                                      visits_.bonuses(i, x, scratch.bonuses), visits_.reranker, visits_.allowed);
            model_.for_each_chunk(visits_, i, [&](int64_t c, BlockWeight weight) {
                if (visits_.frequent && model_.in_last_block(c)) return;
                const ChunkView chunk = model_.chunk(c);
                float *of_chunk = all_.data() + starts_[slot++];
                if (visits_.frequent) fill_in(model_.listed(c), frequent, of_chunk);
                scratch.weighed.add(chunk.labels, of_chunk, chunk.n_labels, weight, model_.repeated(c));
            });
            scratch.weighed.best(labels + i * k_, scores + i * k_);
        }
    }

    void score(int64_t begin, int64_t end) {
        enough_.assign(end - begin, -std::numeric_limits<float>::infinity());
        Scratch &scratch = Scratch::of_this_thread();
        // Of each row its first chunk first, which is likely to have the best labels: few of the others get any further.
        for (const bool first : {true, false})
            for (const Tile &tile : tiles_) score(tile, first, begin, scratch);
    }

    void score(const Tile &tile, bool first, int64_t begin, Scratch &scratch) {
        const ChunkView chunk = model_.chunk(tile.chunk);
        for (int64_t at = tile.begin; at < tile.end; ++at) {
            const Item item = items_[at];
            if ((item.slot == slots_[item.place - begin]) != first) continue;
            sizes_[item.slot] = best_of_chunk(chunk, row_of(X_, visits_.row(item.place)), keep_, visits_.allowed, scratch,
                                              best_.data() + item.slot * keep_, enough_[item.place - begin]);
        }
    }

    void merge(int64_t begin, int64_t end, int64_t *labels, float *scores) {
        Scratch &scratch = Scratch::of_this_thread();
        for (int64_t p = begin; p < end; ++p) {
            const int64_t i = visits_.row(p);
            scratch.runs.clear();
            for (int64_t slot = slots_[p - begin]; slot < slots_[p - begin + 1]; ++slot) {
                const Scored *run = best_.data() + slot * keep_;
                scratch.runs.push_back({run, run + sizes_[slot]});
            }
            merge_runs(scratch.runs, k_, model_.n_labels, scratch.seen, labels + i * k_, scores + i * k_);
        }
    }

    const PackedModel &model_;
    const CsrView X_;
    const Visits visits_;
    const int64_t k_, keep_;
    std::vector<int64_t> next_, slots_, sizes_, starts_;
    std::vector<float> all_;
    std::vector<Item> items_;
    std::vector<Tile> tiles_;
    std::vector<Scored> best_;
    std::vector<float> enough_; // of each row, a score that k labels have reached
};

// Where batches end. Each thread has a batch of its own: threads meet only at the end, and so that none waits long for the
// last, batches get smaller towards the end. Many threads hold fewer scores each.
inline std::vector<int64_t> batch_ends(const RowBatch &batch, int64_t n_rows, int threads) {
    constexpr int64_t most_cells = int64_t{1} << 22, least_rows = 16;
    std::vector<int64_t> cells(n_rows), ends;
    parallel_for((n_rows + 1023) / 1024, threads, [&](int64_t item, int) {
        for (int64_t i = item * 1024; i < std::min((item + 1) * 1024, n_rows); ++i) cells[i] = batch.cells(i);
    });
    const int64_t most = most_cells / std::clamp(threads / 4, 1, 4);
    const auto rows_from = [&](int64_t begin) { // a batch takes a third of what each thread has left
        return threads > 1 ? std::clamp<int64_t>((n_rows - begin) / (3 * threads), least_rows, 65536) : 65536;
    };
    for (int64_t begin = 0, i = 0, sum = 0, rows = rows_from(0); i < n_rows; ++i) {
        sum += cells[i];
        if (i + 1 < n_rows && i + 1 - begin < rows && (sum + cells[i + 1] <= most || i + 1 - begin < least_rows)) continue;
        ends.push_back(begin = i + 1);
        rows = rows_from(begin);
        sum = 0;
    }
    return ends;
}

inline void topk_batch(const PackedModel &model, const CsrView &X, const Visits &visits, int64_t k, int threads,
                       int64_t *labels, float *scores) {
    const std::vector<int64_t> ends = batch_ends(RowBatch(model, X, visits, k), X.n_rows, threads);
    const auto n_batches = static_cast<int64_t>(ends.size());
    std::vector<RowBatch> workers(worker_count(n_batches, threads), RowBatch(model, X, visits, k));
    parallel_for(n_batches, threads, [&](int64_t b, int worker) {
        workers[worker].run(b ? ends[b - 1] : 0, ends[b], labels, scores);
    });
}

} // namespace blockxmc
