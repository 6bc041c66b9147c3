// The scores of all labels of a chunk for one row, and the working memory of scoring.
//
// Every path (many rows, one row, with or without the router) scores a row and a chunk by the same operations in the same
// order: bias, mass, then the features in the order of the row (with 8-bit weights the features come first). So all results
// agree bit for bit, for any number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "add_rows.hpp"
#include "allowed.hpp"
#include "bonuses.hpp"
#include "chunk.hpp"
#include "csr.hpp"
#include "largest.hpp"
#include "topk.hpp"
#include "weighed.hpp"

namespace blockxmc {

struct Place {
    uint32_t row;
    float value;
};
struct Hit {
    WeightRow row;
    float value;
};

// The working memory of a thread, kept from call to call so that scoring one row allocates nothing.
struct Scratch {
    std::vector<float> scores, frequent_scores;
    std::vector<Place> places;
    std::vector<Hit> hits;
    std::vector<Scored> best;
    std::vector<Run> runs;
    std::vector<int32_t> blocks;
    std::vector<int64_t> routed;
    std::vector<float> routed_scores, block_weights;
    SeenLabels seen;
    WeighedLabels weighed;
    LargestValues largest;
    std::vector<int64_t> nearest;
    std::vector<float> similarity;
    Bonuses bonuses;

    static Scratch &of_this_thread() {
        thread_local Scratch scratch;
        return scratch;
    }
};

// Finds the weight rows of x's features in two sweeps. Each prefetches the memory that the next one reads, so that many
// searches wait for memory at the same time.
template <typename Find>
int64_t find_hits(const ChunkView &chunk, const RowView &x, Scratch &scratch, Find find) {
    auto *places = scratch.places.data();
    auto *hits = scratch.hits.data();
    int64_t n_places = 0, n_hits = 0;
    for (int64_t i = 0; i < x.size; ++i) {
        bool found;
        places[n_places] = {find(chunk, x.indices[i], found), x.values[i]};
        __builtin_prefetch(chunk.rows + places[n_places].row);
        n_places += found;
    }
    for (int64_t i = 0; i < n_places; ++i) {
        hits[n_hits] = {weight_row(chunk, places[i].row), places[i].value};
        __builtin_prefetch(hits[n_hits].row.words);
        n_hits += hits[n_hits].row.n_words != 0;
    }
    return n_hits;
}

inline int64_t find_hits(const ChunkView &chunk, const RowView &x, Scratch &scratch) {
    if (chunk.n_rows == 0) return 0;
    if (static_cast<int64_t>(scratch.hits.size()) < x.size + 1) {
        scratch.hits.resize(x.size + 1);
        scratch.places.resize(x.size + 1);
    }
    return chunk.direct() ? find_hits(chunk, x, scratch, [](auto &...a) { return find_direct(a...); })
                          : find_hits(chunk, x, scratch, [](auto &...a) { return find_hashed(a...); });
}

inline float l1_norm(const RowView &x) {
    double sum = 0;
    for (int64_t i = 0; i < x.size; ++i) sum += std::fabs(static_cast<double>(x.values[i]));
    return static_cast<float>(sum);
}

// Scores of all labels of a chunk.
inline void score_chunk(const ChunkView &chunk, const RowView &x, Scratch &scratch, float *scores) {
    const auto add_mass = [&] {
        if (chunk.mass) add_dense(scores, bytes_of(chunk.mass), chunk.n_labels, l1_norm(x));
    };
    if (chunk.scale) {
        std::fill_n(scores, chunk.n_labels, 0.0f);
    } else {
        std::copy_n(chunk.bias, chunk.n_labels, scores);
        add_mass();
    }
    const int64_t n_hits = find_hits(chunk, x, scratch);
    for (const Hit *hit = scratch.hits.data(), *end = hit + n_hits; hit != end; ++hit)
        hit->row.dense ? add_dense_row(chunk, hit->row, hit->value, scores) : add_sparse_row(chunk, hit->row, hit->value, scores);
    if (chunk.scale) {
        apply_scales(scores, chunk.scale, chunk.bias, chunk.n_labels);
        add_mass();
    }
}

// The same in scratch.scores.
inline void score_chunk(const ChunkView &chunk, const RowView &x, Scratch &scratch) {
    if (static_cast<int64_t>(scratch.scores.size()) < chunk.n_labels) scratch.scores.resize(chunk.n_labels);
    score_chunk(chunk, x, scratch, scratch.scores.data());
}

// The k best allowed labels of a chunk, best first; returns how many. `enough` is a score that k labels of this row have reached in
// other chunks: labels below it are left out, and it rises where this chunk has k labels too.
inline int64_t best_of_chunk(const ChunkView &chunk, const RowView &x, int64_t k, const AllowedLabels &allowed, Scratch &scratch,
                             Scored *out, float &enough) {
    score_chunk(chunk, x, scratch);
    allowed.apply(chunk.labels, chunk.n_labels, scratch.scores.data());
    const float below = std::nextafter(enough, -std::numeric_limits<float>::infinity());
    const int64_t size = keep_best(scratch.scores.data(), chunk.labels, chunk.n_labels, k, out, below);
    if (size == k && k < max_chunk_labels) enough = std::max(enough, out[k - 1].score); // a larger k is cut to what a chunk holds
    return size;
}

} // namespace blockxmc
