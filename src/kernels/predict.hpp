// The best labels of one row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "packed_model.hpp"
#include "score_chunk.hpp"
#include "visits.hpp"

namespace blockxmc {

// The scores of the frequent labels, which stand in the last block; valid until the next call.
inline FrequentScores score_frequent(const PackedModel &model, const RowView &x, Scratch &scratch) {
    scratch.frequent_scores.resize(model.last_block_size());
    float *next = scratch.frequent_scores.data();
    for (int64_t c = model.last_block_chunk(); c < model.n_chunks; ++c) {
        const ChunkView chunk = model.chunk(c);
        score_chunk(chunk, x, scratch, next);
        next += chunk.n_labels;
    }
    return model.frequent_scores(scratch.frequent_scores.data());
}

// Best k labels of one row whose blocks have weights; labels and scores hold k each.
inline void weighed_topk_one(const PackedModel &model, const RowView &x, const Visits &visits, int64_t k, Scratch &scratch,
                             int64_t *labels, float *scores) {
    const FrequentScores frequent = visits.frequent ? score_frequent(model, x, scratch) : FrequentScores{};
    scratch.weighed.start_row(model.n_labels, k, visits.slope, visits.total_weight(0), frequent,
                              visits.bonuses(0, x, scratch.bonuses), visits.reranker, visits.allowed);
    model.for_each_chunk(visits, 0, [&](int64_t c, BlockWeight weight) {
        if (visits.frequent && model.in_last_block(c)) return;
        const ChunkView chunk = model.chunk(c);
        score_chunk(chunk, x, scratch);
        if (visits.frequent) fill_in(model.listed(c), frequent, scratch.scores.data());
        scratch.weighed.add(chunk.labels, scratch.scores.data(), chunk.n_labels, weight, model.repeated(c));
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
