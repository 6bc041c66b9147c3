// Scoring packed blocks: which chunks a row visits, the scores of a chunk, and the best labels over all of them.
//
// Every path (batch, one row, fused with the router) scores a (row, chunk) pair by the same operations in the same
// order (bias, mass, then the row's features as they come; where weights have scales, the features first), so results agree
// bit for bit, for any number of threads.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "add_rows.hpp"
#include "chunk.hpp"
#include "csr.hpp"
#include "largest.hpp"
#include "neighbours.hpp"
#include "threads.hpp"
#include "topk.hpp"
#include "weighed.hpp"

// Neighbours of each row (n x count training rows, best first) and how similar they are.
struct Nearest {
    const Neighbours *neighbours;
    const int64_t *rows;
    const float *similarity;

    void ask(int64_t i, const RowView &x, Bonuses &bonuses) const {
        ask_neighbours(*neighbours, x, rows + i * neighbours->count, similarity + i * neighbours->count, bonuses);
    }
};

// Visited blocks of each row (n x width, -1 pads); nullptr: every row visits every block.
// Where weights are given (n x width, positive), a label's score gains slope * log(sum of the weights of the visited blocks
// that hold it); all blocks must then score a label alike. Without weights a label keeps its highest score.
// With `common`, every row visits the last block of the model, and first: it scores labels that other blocks only name.
// With `nearest`, labels of each row's neighbours gain a bonus; with `look`, the best labels are looked at again. Both need
// weights.
struct Visits {
    const int32_t *blocks;
    int64_t width;
    const float *weights = nullptr;
    float slope = 0;
    bool common = false;
    const Nearest *nearest = nullptr;
    const SecondLook *look = nullptr;

    Visits row(int64_t i) const { return {blocks + i * width, width, weights + i * width, slope, common}; }
    const Bonuses *bonuses(int64_t i, const RowView &x, Bonuses &of_row) const {
        if (nearest) nearest->ask(i, x, of_row);
        return nearest ? &of_row : nullptr;
    }
    float total_weight() const {
        float sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += blocks[j] < 0 ? 0.0f : weights[j];
        return sum;
    }
};

// ---- the packed model ----
class PackedModel {
  public:
    // Columns of the offsets table: where each chunk starts in the flat arrays; one more row closes the last chunk.
    enum Column { label_at, key_at, bucket_at, row_at, arena_at, n_columns };

    struct Arrays {
        const int64_t *block_ptr; // chunks of each block
        const int64_t *offsets;   // (n_chunks + 1) x n_columns
        const int32_t *labels;
        const float *bias, *mass, *scale; // the last two may be nullptr
        const int32_t *keys;
        const uint32_t *buckets, *rows, *arena;
        int bits; // of a weight
    };

    PackedModel(Arrays arrays, int64_t n_blocks, int64_t n_chunks, int64_t n_labels)
        : n_blocks(n_blocks), n_chunks(n_chunks), n_labels(n_labels), arrays_(arrays),
          checked_(new std::atomic<bool>[static_cast<size_t>(n_chunks)]()) {}

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
            for (int64_t c = arrays_.block_ptr[block]; c < arrays_.block_ptr[block + 1]; ++c) use(c, BlockWeight{weight, met});
            met += weight;
        }
    }

    bool in_last_block(int64_t c) const { return c >= arrays_.block_ptr[n_blocks - 1]; }

    int64_t last_block_size() const {
        return arrays_.offsets[n_chunks * n_columns + label_at] - last_block_start();
    }

    // `scores` are those of all labels of the last block.
    NamedScores named(const float *scores) const {
        return {arrays_.labels + last_block_start(), scores, last_block_size()};
    }

    // The labels of the last block that a chunk of another block names.
    const std::vector<Name> &names(int64_t c) const {
        std::call_once(names_found_, [&] { find_names(); });
        return names_[c];
    }

    const int64_t n_blocks, n_chunks, n_labels;

  private:
    int64_t last_block_start() const { return arrays_.offsets[arrays_.block_ptr[n_blocks - 1] * n_columns + label_at]; }

    void find_names() const {
        std::vector<int32_t> place(n_labels, -1); // of each label in the last block, -1: not in it
        const int64_t first = arrays_.block_ptr[n_blocks - 1];
        for (int64_t c = first, at = 0; c < n_chunks; ++c) {
            const ChunkView part = chunk(c);
            for (int64_t j = 0; j < part.n_labels; ++j) place[part.labels[j]] = static_cast<int32_t>(at++);
        }
        names_.resize(n_chunks);
        for (int64_t c = 0; c < first; ++c) {
            const ChunkView part = chunk(c);
            for (int64_t j = 0; j < part.n_labels; ++j)
                if (part.bias[j] == -std::numeric_limits<float>::infinity() && place[part.labels[j]] >= 0)
                    names_[c].push_back({static_cast<int32_t>(j), place[part.labels[j]]});
        }
    }

    ChunkView unchecked(int64_t c) const {
        const int64_t *at = arrays_.offsets + c * n_columns, *end = at + n_columns;
        return {arrays_.labels + at[label_at],
                arrays_.bias + at[label_at],
                arrays_.mass ? arrays_.mass + at[label_at] : nullptr,
                arrays_.scale ? arrays_.scale + at[label_at] : nullptr,
                arrays_.keys + at[key_at],
                arrays_.buckets + at[bucket_at],
                arrays_.rows + at[row_at],
                arrays_.arena + at[arena_at],
                end[label_at] - at[label_at],
                end[key_at] - at[key_at],
                end[bucket_at] - at[bucket_at] - 1,
                end[row_at] - at[row_at] - 1,
                end[arena_at] - at[arena_at],
                arrays_.bits};
    }

    Arrays arrays_;
    std::unique_ptr<std::atomic<bool>[]> checked_;
    mutable std::once_flag names_found_;
    mutable std::vector<std::vector<Name>> names_; // of each chunk
};

// ---- scores of one chunk ----
struct Place {
    uint32_t row;
    float value;
};
struct Hit {
    WeightRow row;
    float value;
};

// What a thread needs while it scores; kept from call to call so that one row costs no allocation.
struct Scratch {
    std::vector<float> scores, common_scores;
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

// Finds the weight rows of x's features, in two sweeps that each ask for the memory the next one reads: a row waits for
// the slowest of many searches at once, not for one after the other.
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
        if (chunk.mass) add_dense(scores, chunk.mass, chunk.n_labels, l1_norm(x));
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

// ... in scratch.scores.
inline void score_chunk(const ChunkView &chunk, const RowView &x, Scratch &scratch) {
    if (static_cast<int64_t>(scratch.scores.size()) < chunk.n_labels) scratch.scores.resize(chunk.n_labels);
    score_chunk(chunk, x, scratch, scratch.scores.data());
}

// The k best labels of a chunk, best first; returns how many. `enough` is a score that k labels of this row have reached, in
// other chunks: what falls short of it is left out, and it rises if this chunk has as many.
inline int64_t best_of_chunk(const ChunkView &chunk, const RowView &x, int64_t k, Scratch &scratch, Scored *out, float &enough) {
    score_chunk(chunk, x, scratch);
    const float below = std::nextafter(enough, -std::numeric_limits<float>::infinity());
    const int64_t size = keep_best(scratch.scores.data(), chunk.labels, chunk.n_labels, k, out, below);
    if (size == k && k < max_chunk_labels) enough = std::max(enough, out[k - 1].score); // k may stand for more than fit
    return size;
}

// ---- one row ----
// Best k labels of one row; labels and scores hold k each.
inline void topk_one(const PackedModel &model, const RowView &x, const Visits &visits, int64_t k, Scratch &scratch,
                     int64_t *labels, float *scores) {
    const int64_t keep = std::min({k, model.n_labels, max_chunk_labels});
    if (visits.weights) {
        NamedScores named;
        if (visits.common) {
            scratch.common_scores.resize(model.last_block_size());
            named = model.named(scratch.common_scores.data());
        }
        scratch.weighed.start_row(model.n_labels, k, visits.slope, visits.total_weight(), named,
                                  visits.bonuses(0, x, scratch.bonuses), visits.look);
        float *common_scores = scratch.common_scores.data();
        model.for_each_chunk(visits, 0, [&](int64_t c, BlockWeight weight) {
            const ChunkView chunk = model.chunk(c);
            if (visits.common && model.in_last_block(c)) {
                score_chunk(chunk, x, scratch, common_scores);
                common_scores += chunk.n_labels;
                return;
            }
            score_chunk(chunk, x, scratch);
            if (visits.common) fill_in(model.names(c), named, scratch.scores.data());
            scratch.weighed.add(chunk.labels, scratch.scores.data(), chunk.n_labels, weight);
        });
        scratch.weighed.best(labels, scores);
        return;
    }
    int64_t n_chunks = 0;
    model.for_each_chunk(visits, 0, [&](int64_t, BlockWeight) { ++n_chunks; });
    if (static_cast<int64_t>(scratch.best.size()) < n_chunks * keep) scratch.best.resize(n_chunks * keep);
    scratch.runs.clear();
    Scored *out = scratch.best.data();
    float enough = -std::numeric_limits<float>::infinity();
    model.for_each_chunk(visits, 0, [&](int64_t c, BlockWeight) {
        const int64_t size = best_of_chunk(model.chunk(c), x, keep, scratch, out, enough);
        scratch.runs.push_back({out, out + size});
        out += size;
    });
    merge_runs(scratch.runs, k, model.n_labels, scratch.seen, labels, scores);
}

// How routed rows visit a scorer: the router's best b labels are the blocks, and with a slope each weighs
// exp(-max(0, 1 - margin)^2), its probability under a squared hinge router. A scorer with one block more than the router
// knows keeps the weights of labels that live in many blocks in it: every row visits it first, so that its scores count, at
// next to no weight, so that only the blocks which list such a label speak for it. A row whose best blocks have a share of
// ``mass`` of the probability of all b visits no more of them (-1).
struct Routing {
    const PackedModel &router, &model;
    int64_t b;
    float slope, mass;
    const Neighbours *neighbours = nullptr; // their rows stand in the blocks of the model
    const SecondLook *look = nullptr;

    bool common() const { return model.n_blocks > router.n_labels; }
    int64_t width() const { return b + common(); }
    Visits visits(const int32_t *blocks, const float *weights, const Nearest *nearest = nullptr) const {
        const bool weighed = slope != 0 || common() || nearest || look;
        return {blocks, width(), weighed ? weights : nullptr, slope, common(), nearest, look};
    }

    void fill(const int64_t *best, const float *margins, int32_t *blocks, float *weights) const {
        constexpr float least = std::numeric_limits<float>::min();
        if (common()) {
            *blocks++ = static_cast<int32_t>(router.n_labels);
            *weights++ = least;
        }
        float total = 0;
        for (int64_t j = 0; j < b; ++j) {
            const float short_of = std::max(0.0f, 1.0f - margins[j]);
            blocks[j] = static_cast<int32_t>(best[j]);
            weights[j] = std::max(std::exp(-short_of * short_of), 2 * least); // more than being common counts
            total += weights[j];
        }
        if (mass >= 1) return;
        float visited = 0;
        for (int64_t j = 0; j < b; visited += weights[j++])
            if (j > 0 && visited >= mass * total) blocks[j] = -1;
    }
};

inline void routed_one(const Routing &routing, const RowView &x, int64_t k, Scratch &scratch, int64_t *labels, float *scores) {
    scratch.routed.resize(routing.b);
    scratch.routed_scores.resize(routing.b);
    scratch.blocks.resize(routing.width());
    scratch.block_weights.resize(routing.width());
    topk_one(routing.router, x, {nullptr, 0}, routing.b, scratch, scratch.routed.data(), scratch.routed_scores.data());
    routing.fill(scratch.routed.data(), scratch.routed_scores.data(), scratch.blocks.data(), scratch.block_weights.data());
    Nearest nearest{routing.neighbours, nullptr, nullptr};
    if (nearest.neighbours) {
        const int64_t count = nearest.neighbours->count;
        scratch.nearest.resize(count);
        scratch.similarity.resize(count);
        topk_one(*nearest.neighbours->rows, scratch.largest.of(x, nearest.neighbours->features),
                 {scratch.blocks.data(), routing.width()}, count, scratch, scratch.nearest.data(), scratch.similarity.data());
        nearest = {routing.neighbours, scratch.nearest.data(), scratch.similarity.data()};
    }
    const Visits visits = routing.visits(scratch.blocks.data(), scratch.block_weights.data(), nearest.neighbours ? &nearest : nullptr);
    topk_one(routing.model, x, visits, k, scratch, labels, scores);
}

// ---- all candidates ----
template <typename Use>
void for_each_row(int64_t n_rows, int threads, Use &&use) {
    constexpr int64_t rows_per_item = 64;
    parallel_for((n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t t, int) {
        Scratch &scratch = Scratch::of_this_thread();
        for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, n_rows); ++i) use(i, scratch);
    });
}

// Number of distinct labels each row's visited blocks hold.
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

// Scores of every candidate by ascending label, at the places that indptr (from count_candidates) leaves for each row.
inline void score_candidates(const PackedModel &model, const CsrView &X, const Visits &visits, int threads,
                             const int64_t *indptr, int32_t *labels, float *scores) {
    const auto by_label = [](const Scored &a, const Scored &b) { return a.label < b.label; };
    for_each_row(X.n_rows, threads, [&](int64_t i, Scratch &scratch) {
        if (visits.weights) {
            scratch.weighed.start_row(model.n_labels, 0, visits.slope, visits.row(i).total_weight(), {},
                                      visits.bonuses(i, row_of(X, i), scratch.bonuses), visits.look);
            model.for_each_chunk(visits, i, [&](int64_t c, BlockWeight weight) {
                const ChunkView chunk = model.chunk(c);
                score_chunk(chunk, row_of(X, i), scratch);
                scratch.weighed.add(chunk.labels, scratch.scores.data(), chunk.n_labels, weight);
            });
            if (scratch.weighed.size() != indptr[i + 1] - indptr[i])
                throw std::invalid_argument("indptr does not match the number of candidates");
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
                if (at >= indptr[i + 1]) throw std::invalid_argument("indptr leaves no room for all candidates");
            }
            labels[at] = found[j].label;
            scores[at] = repeated ? std::max(scores[at], found[j].score) : found[j].score;
        }
        if (at + 1 != indptr[i + 1]) throw std::invalid_argument("indptr does not match the number of candidates");
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
