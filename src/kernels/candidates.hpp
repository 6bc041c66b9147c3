// All candidates of a row: the labels of the blocks that it visits, how many they are, and their scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "packed_model.hpp"
#include "score_chunk.hpp"
#include "threads.hpp"
#include "visits.hpp"

namespace blockxmc {

template <typename Use>
void for_each_row(int64_t n_rows, int threads, Use &&use) {
    constexpr int64_t rows_per_item = 64;
    parallel_for((n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t t, int) {
        Scratch &scratch = Scratch::of_this_thread();
        for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, n_rows); ++i) use(i, scratch);
    });
}

// Number of distinct labels in the blocks that each row visits.
inline void count_candidates(const PackedModel &model, const Visits &visits, int64_t n_rows, int threads, int64_t *counts) {
    for_each_row(n_rows, threads, [&](int64_t i, Scratch &scratch) {
        scratch.seen.start_row(model.n_labels);
        counts[i] = 0;
        model.for_each_chunk(visits, i, [&](int64_t c, BlockWeight) {
            const ChunkView chunk = model.chunk(c);
            for (int64_t j = 0; j < chunk.n_labels; ++j) counts[i] += scratch.seen.insert(chunk.labels[j]);
        });
    });
}

// Scores of every candidate by ascending label; indptr (from count_candidates) says where each row goes.
inline void score_candidates(const PackedModel &model, const CsrView &X, const Visits &visits, int threads,
                             const int64_t *indptr, int32_t *labels, float *scores) {
    const auto by_label = [](const Scored &a, const Scored &b) { return a.label < b.label; };
    for_each_row(X.n_rows, threads, [&](int64_t i, Scratch &scratch) {
        if (visits.weights) {
            scratch.weighed.start_row(model.n_labels, 0, visits.slope, visits.total_weight(i), {},
                                      visits.bonuses(i, row_of(X, i), scratch.bonuses), visits.reranker);
            model.for_each_chunk(visits, i, [&](int64_t c, BlockWeight weight) {
                const ChunkView chunk = model.chunk(c);
                score_chunk(chunk, row_of(X, i), scratch);
                scratch.weighed.add(chunk.labels, scratch.scores.data(), chunk.n_labels, weight);
            });
            require(scratch.weighed.size() == indptr[i + 1] - indptr[i], "indptr does not match the number of candidates");
            scratch.weighed.all(labels + indptr[i], scores + indptr[i]);
            return;
        }
        std::vector<Scored> &found = scratch.best;
        found.clear();
        model.for_each_chunk(visits, i, [&](int64_t c, BlockWeight) {
            const ChunkView chunk = model.chunk(c);
            score_chunk(chunk, row_of(X, i), scratch);
            const auto middle = static_cast<int64_t>(found.size());
            for (int64_t j = 0; j < chunk.n_labels; ++j) found.push_back({scratch.scores[j], chunk.labels[j]});
            std::inplace_merge(found.begin(), found.begin() + middle, found.end(), by_label);
        });
        int64_t at = indptr[i] - 1;
        for (size_t j = 0; j < found.size(); ++j) {
            const bool repeated = j > 0 && found[j].label == found[j - 1].label;
            if (!repeated) {
                ++at;
                require(at < indptr[i + 1], "indptr does not match the number of candidates");
            }
            labels[at] = found[j].label;
            scores[at] = repeated ? std::max(scores[at], found[j].score) : found[j].score;
        }
        require(at + 1 == indptr[i + 1], "indptr does not match the number of candidates");
    });
}

// Number of stored weights each row touches in the chunks it visits.
inline void count_touched(const PackedModel &model, const CsrView &X, const Visits &visits, int threads, int64_t *counts) {
    for_each_row(X.n_rows, threads, [&](int64_t i, Scratch &scratch) {
        counts[i] = 0;
        model.for_each_chunk(visits, i, [&](int64_t c, BlockWeight) {
            const ChunkView chunk = model.chunk(c);
            const int64_t n_hits = find_hits(chunk, row_of(X, i), scratch);
            for (const Hit *hit = scratch.hits.data(), *end = hit + n_hits; hit != end; ++hit)
                counts[i] += hit->row.dense ? chunk.n_labels : chunk.shape().n_sparse(hit->row.n_words);
        });
    });
}

} // namespace blockxmc
