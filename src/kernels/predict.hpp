// The best labels of one row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "packed_model.hpp"
#include "score_chunk.hpp"
#include "visits.hpp"

namespace blockxmc {

// Best k labels of one row whose blocks have weights; labels and scores hold k each.
inline void weighed_topk_one(const PackedModel &model, const RowView &x, const Visits &visits, int64_t k, Scratch &scratch,
                             int64_t *labels, float *scores) {
    FrequentScores frequent;
    if (visits.frequent) {
        scratch.frequent_scores.resize(model.last_block_size());
        frequent = model.frequent_scores(scratch.frequent_scores.data());
    }
    scratch.weighed.start_row(model.n_labels, k, visits.slope, visits.total_weight(0), frequent,
                              visits.bonuses(0, x, scratch.bonuses), visits.reranker, visits.allowed);
    float *next_frequent = scratch.frequent_scores.data();
    model.for_each_chunk(visits, 0, [&](int64_t c, BlockWeight weight) {
        const ChunkView chunk = model.chunk(c);
        if (visits.frequent && model.in_last_block(c)) {
            score_chunk(chunk, x, scratch, next_frequent);
            next_frequent += chunk.n_labels;
            return;
        }
        score_chunk(chunk, x, scratch);
        if (visits.frequent) fill_in(model.listed(c), frequent, scratch.scores.data());
        scratch.weighed.add(chunk.labels, scratch.scores.data(), chunk.n_labels, weight);
    });
    scratch.weighed.best(labels, scores);
}

// Best k labels of one row; labels and scores hold k each.
inline void topk_one(const PackedModel &model, const RowView &x, const Visits &visits, int64_t k, Scratch &scratch,
                     int64_t *labels, float *scores) {
    if (visits.weights) return weighed_topk_one(model, x, visits, k, scratch, labels, scores);
    const int64_t keep = std::min({k, model.n_labels, max_chunk_labels});
    int64_t n_chunks = 0;
    model.for_each_chunk(visits, 0, [&](int64_t, BlockWeight) { ++n_chunks; });
    if (static_cast<int64_t>(scratch.best.size()) < n_chunks * keep) scratch.best.resize(n_chunks * keep);
    scratch.runs.clear();
    Scored *out = scratch.best.data();
    float enough = -std::numeric_limits<float>::infinity();
    model.for_each_chunk(visits, 0, [&](int64_t c, BlockWeight) {
        const int64_t size = best_of_chunk(model.chunk(c), x, keep, visits.allowed, scratch, out, enough);
        scratch.runs.push_back({out, out + size});
        out += size;
    });
    merge_runs(scratch.runs, k, model.n_labels, scratch.seen, labels, scores);
}

} // namespace blockxmc
