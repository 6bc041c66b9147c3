// What Python holds of a served model: views that keep the arrays alive which they read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "packed_model.hpp"
#include "reranker.hpp"
#include "score_chunk.hpp"
#include "visits.hpp"

namespace blockxmc {

using Blocks = std::optional<In2<int32_t>>;
using Allowed = const std::optional<In1<bool>> &; // a mask of labels

class BoundModel {
  public:
    BoundModel(I64 block_ptr, In2<int64_t> offsets, I32 labels, F32 bias, std::optional<F32> mass, I32 keys, U32 buckets,
               U32 rows, U32 arena, std::optional<F32> scale, int64_t n_labels, int64_t n_features, int bits)
        : block_ptr_(block_ptr), offsets_(offsets), labels_(labels), bias_(bias), mass_(mass), scale_(scale), keys_(keys),
          buckets_(buckets), rows_(rows), arena_(arena) {
        require_intact(offsets.shape(1) == PackedModel::n_columns, "the table of chunks has the wrong shape");
        const PackedModel::Arrays arrays{span_of(block_ptr),
                                         {offsets.data(), offsets.size()},
                                         span_of(labels),
                                         span_of(bias),
                                         there(mass_),
                                         there(scale_),
                                         span_of(keys),
                                         span_of(buckets),
                                         span_of(rows),
                                         span_of(arena),
                                         bits};
        model_ = std::make_unique<PackedModel>(arrays, n_labels, n_features);
    }

    const PackedModel &model() const { return *model_; }

    CsrView rows(const I64 &indptr, const I32 &indices, const F32 &data) const {
        return checked_rows(indptr, indices, data, model_->n_features);
    }

    RowView row(const I32 &indices, const F32 &values) const {
        return checked_row(span_of(indices), span_of(values), model_->n_features);
    }

    Visits visits(const Blocks &blocks, int64_t n_rows) const {
        if (!blocks) return {nullptr, 0};
        require(static_cast<int64_t>(blocks->shape(0)) == n_rows, "blocks must have one row per row of X");
        return checked({blocks->data(), blocks->size()}, static_cast<int64_t>(blocks->shape(1)));
    }

    Visits visits_of_one(const std::optional<I32> &blocks) const {
        if (!blocks) return {nullptr, 0};
        return checked(span_of(*blocks), static_cast<int64_t>(blocks->size()));
    }

    AllowedLabels allowed(Allowed mask) const {
        if (!mask) return {};
        require(static_cast<int64_t>(mask->size()) == model_->n_labels, "allowed must hold true or false for each label");
        return {mask->data()};
    }

  private:
    // An empty array is there too: its pointer must not read as an absent one.
    static std::span<const float> there(const std::optional<F32> &array) {
        static constexpr float nothing = 0;
        if (!array) return {};
        return {array->size() ? array->data() : &nothing, array->size()};
    }

    Visits checked(std::span<const int32_t> blocks, int64_t width) const {
        for (const int32_t block : blocks)
            require(block >= -1 && block < model_->n_blocks, "blocks must be block numbers, or -1 as padding");
        return {blocks.data(), width};
    }

    I64 block_ptr_;
    In2<int64_t> offsets_;
    I32 labels_;
    F32 bias_;
    std::optional<F32> mass_, scale_;
    I32 keys_;
    U32 buckets_, rows_, arena_;
    std::unique_ptr<PackedModel> model_;
};

// Training rows and their labels.
class BoundNeighbors {
  public:
    BoundNeighbors(nb::object rows, I64 indptr, I32 labels, int64_t n_labels, int64_t count, int64_t features, float weight)
        : owner_(rows), indptr_(indptr), labels_(labels) {
        const PackedModel &model = nb::cast<const BoundModel &>(rows).model();
        require_intact(static_cast<int64_t>(indptr.size()) == model.n_labels + 1 && are_pointers(span_of(indptr), labels.size()),
                       "the labels of neighbors are missing or out of order");
        require_intact(in_range(span_of(labels), n_labels), "a neighbor has a label that is out of range");
        require_intact(count >= 1 && features >= 1 && weight >= 0, "the number of neighbors or their weight is out of range");
        // There are no more neighbors than training rows: a larger count would only ask for memory.
        const int64_t most = std::max<int64_t>(model.n_labels, 1);
        view_ = {&model, indptr.data(), labels.data(), n_labels, std::min(count, most), features, weight};
    }

    const Neighbors &view() const { return view_; }

    // What some labels of each row gain, given its neighbors (rows x few, -1: none): 0 where neighbors lack the label.
    void few_gains(I64 of_rows, I32 indices, F32 data, In2<int64_t> nearest, In2<float> similarity, In2<int64_t> few, Out2<float> out,
                   int threads) const {
        WithoutGil release;
        const CsrView X = checked_rows(of_rows, indices, data, view_.rows->n_features);
        const Nearest all = checked_nearest(X, nearest, similarity);
        const auto width = static_cast<int64_t>(few.shape(1));
        require(static_cast<int64_t>(few.shape(0)) == X.n_rows && out.shape(0) == few.shape(0) && out.shape(1) == few.shape(1),
                "labels and gains must be (rows, few)");
        for (size_t i = 0; i < few.size(); ++i)
            require(few.data()[i] >= -1 && few.data()[i] < view_.n_labels, "a label is out of range");
        constexpr int64_t rows_per_item = 16;
        parallel_for((X.n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t t, int) {
            Bonuses &bonuses = Scratch::of_this_thread().bonuses;
            for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, X.n_rows); ++i) {
                all.collect(i, row_of(X, i), bonuses);
                for (int64_t j = i * width; j < (i + 1) * width; ++j)
                    out.data()[j] = few.data()[j] < 0 ? 0.0f : bonuses.of(static_cast<int32_t>(few.data()[j]));
            }
        });
    }

  private:
    Nearest checked_nearest(const CsrView &X, const In2<int64_t> &nearest, const In2<float> &similarity) const {
        require(static_cast<int64_t>(nearest.shape(0)) == X.n_rows && similarity.shape(0) == nearest.shape(0) &&
                    similarity.shape(1) == nearest.shape(1),
                "nearest and similarity must be (rows, neighbors)");
        for (size_t i = 0; i < nearest.size(); ++i)
            require(nearest.data()[i] >= -1 && nearest.data()[i] < view_.rows->n_labels, "a training row is out of range");
        return {&view_, nearest.data(), similarity.data(), static_cast<int64_t>(nearest.shape(1))};
    }

    nb::object owner_;
    I64 indptr_;
    I32 labels_;
    Neighbors view_{};
};

// Pairs of labels that training rows carry.
class BoundCompanions {
  public:
    BoundCompanions(I64 indptr, I32 others, In1<uint8_t> log_counts, F32 frequency, float log_rows, float weight)
        : indptr_(indptr), others_(others), log_counts_(log_counts), frequency_(frequency) {
        require_intact(indptr.size() == frequency.size() + 1 && are_pointers(span_of(indptr), others.size()) &&
                           log_counts.size() == others.size(),
                       "the companions of labels are missing or out of order");
        require_intact(all_finite(span_of(frequency)) && std::isfinite(log_rows) && std::isfinite(weight),
                       "the companions of labels have NaN or infinite numbers");
        view_ = {indptr.data(), others.data(), log_counts.data(), frequency.data(), static_cast<int64_t>(frequency.size()), log_rows, weight};
    }

    const Companions &view() const { return view_; }

    // What labels (rows x few, best first; -1: none, and none after it) say about each other: into out.
    void sums(In2<int64_t> labels, Out2<float> out, int threads) const {
        const int64_t n_rows = static_cast<int64_t>(labels.shape(0)), few = static_cast<int64_t>(labels.shape(1));
        require(out.shape(0) == labels.shape(0) && out.shape(1) == labels.shape(1), "out must have the shape of labels");
        WithoutGil release;
        constexpr int64_t rows_at_a_time = 16;
        parallel_for((n_rows + rows_at_a_time - 1) / rows_at_a_time, threads, [&](int64_t part, int) {
            std::vector<Scored> items;
            for (int64_t i = part * rows_at_a_time; i < std::min((part + 1) * rows_at_a_time, n_rows); ++i) {
                items.clear();
                for (int64_t j = 0; j < few && labels.data()[i * few + j] >= 0; ++j) {
                    require(labels.data()[i * few + j] < view_.n_labels, "a label is out of range");
                    items.push_back({0, static_cast<int32_t>(labels.data()[i * few + j])});
                }
                std::fill(out.data() + i * few, out.data() + (i + 1) * few, 0.0f);
                view_.sums(items.data(), static_cast<int64_t>(items.size()), out.data() + i * few);
            }
        });
    }

  private:
    I64 indptr_;
    I32 others_;
    In1<uint8_t> log_counts_;
    F32 frequency_;
    Companions view_{};
};

class BoundReranker {
  public:
    BoundReranker(F32 curve, F32 frequency, int64_t first, nb::object companions) : frequency_(frequency), owner_(companions) {
        require_intact(curve.size() * sizeof(float) == sizeof(Reranker::Curve), "the reranker has the wrong number of terms");
        require_intact(all_finite(span_of(curve)) && all_finite(span_of(frequency)), "the reranker has NaN or infinite numbers");
        require_intact(first >= 1, "the reranker must reorder at least one label");
        std::memcpy(&view_.curve, curve.data(), sizeof view_.curve);
        for (int i = 0; i < Reranker::n_terms; ++i)
            require_intact(view_.curve.low[i] <= view_.curve.high[i], "the reranker has a lower bound above its upper bound");
        view_.frequency = frequency.data();
        view_.n_labels = static_cast<int64_t>(frequency.size());
        view_.first = first;
        if (companions.is_none()) return;
        view_.companions = &nb::cast<const BoundCompanions &>(companions).view();
        require_intact(view_.companions->n_labels == view_.n_labels, "the reranker has companions of other labels");
    }

    const Reranker &view() const { return view_; }

  private:
    F32 frequency_;
    nb::object owner_;
    Reranker view_{};
};

} // namespace blockxmc
