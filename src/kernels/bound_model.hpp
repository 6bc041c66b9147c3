// What Python holds of a served model: the arrays that kernels read, kept alive and checked once.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "bindings.hpp"
#include "predict.hpp"
#include "second_look.hpp"

using I32 = In1<int32_t>;
using I64 = In1<int64_t>;
using U32 = In1<uint32_t>;
using F32 = In1<float>;
using Blocks = std::optional<In2<int32_t>>;

inline void expect(bool right, const char *message) {
    if (!right) throw std::invalid_argument(message);
}

inline CsrView csr_view(const I64 &indptr, const I32 &indices, const F32 &data, int64_t n_cols) {
    expect(indptr.size() > 0 && indptr(0) == 0, "indptr must start with 0");
    const auto n_rows = static_cast<int64_t>(indptr.size()) - 1;
    for (int64_t i = 0; i < n_rows; ++i) expect(indptr(i) <= indptr(i + 1), "indptr must not descend");
    expect(indices.size() == data.size() && static_cast<uint64_t>(indptr(n_rows)) <= indices.size(),
           "indptr, indices and data do not belong together");
    return {indptr.data(), indices.data(), data.data(), n_rows, n_cols};
}

// The packed arrays, kept alive for as long as the model reads them.
class BoundModel {
  public:
    BoundModel(I64 block_ptr, In2<int64_t> offsets, I32 labels, F32 bias, std::optional<F32> mass, I32 keys, U32 buckets,
               U32 rows, U32 arena, std::optional<F32> scale, int64_t n_labels, int bits)
        : block_ptr_(block_ptr), offsets_(offsets), labels_(labels), bias_(bias), mass_(mass), scale_(scale), keys_(keys),
          buckets_(buckets), rows_(rows), arena_(arena) {
        require_intact(bits == 32 || bits == 16 || bits == 8, "a weight has neither 32 nor 16 nor 8 bits");
        require_intact(scale_.has_value() == (bits == 8), "scales belong to weights of 8 bits, and to no others");
        check_pointers();
        model_ = std::make_unique<PackedModel>(
            PackedModel::Arrays{block_ptr.data(), offsets.data(), labels.data(), bias.data(),
                                mass ? mass->data() : nullptr, scale ? scale->data() : nullptr, keys.data(), buckets.data(),
                                rows.data(), arena.data(), bits},
            static_cast<int64_t>(block_ptr.size()) - 1, static_cast<int64_t>(offsets.shape(0)) - 1, n_labels);
    }

    const PackedModel &model() const { return *model_; }

    Visits visits(const Blocks &blocks, int64_t n_rows) const {
        if (!blocks) return {nullptr, 0};
        expect(static_cast<int64_t>(blocks->shape(0)) == n_rows, "blocks must have one row per row of X");
        return checked(blocks->data(), blocks->size(), static_cast<int64_t>(blocks->shape(1)));
    }

    Visits visits_of_one(const std::optional<I32> &blocks) const {
        if (!blocks) return {nullptr, 0};
        return checked(blocks->data(), blocks->size(), static_cast<int64_t>(blocks->size()));
    }

  private:
    Visits checked(const int32_t *blocks, size_t size, int64_t width) const {
        for (size_t i = 0; i < size; ++i)
            expect(blocks[i] >= -1 && blocks[i] < model_->n_blocks, "blocks must be block numbers, or -1 as padding");
        return {blocks, width};
    }

    // The small pointer arrays; what they point into is checked chunk by chunk on first use.
    void check_pointers() const {
        const auto n_chunks = static_cast<int64_t>(offsets_.shape(0)) - 1;
        require_intact(n_chunks >= 0 && offsets_.shape(1) == PackedModel::n_columns, "the table of chunks has the wrong shape");
        require_intact(block_ptr_.size() > 0 && block_ptr_(0) == 0 && block_ptr_(block_ptr_.size() - 1) == n_chunks,
                "blocks and chunks do not belong together");
        for (size_t l = 1; l < block_ptr_.size(); ++l)
            require_intact(block_ptr_(l - 1) <= block_ptr_(l), "chunks of blocks out of order");
        const size_t sizes[PackedModel::n_columns] = {labels_.size(), keys_.size(), buckets_.size(), rows_.size(), arena_.size()};
        for (size_t column = 0; column < PackedModel::n_columns; ++column)
            require_intact(offsets_(0, column) == 0 && static_cast<uint64_t>(offsets_(n_chunks, column)) == sizes[column],
                    "an array is longer or shorter than the table of chunks says");
        require_intact(bias_.size() == labels_.size() && (!mass_ || mass_->size() == labels_.size()), "biases are missing");
        require_intact(!scale_ || scale_->size() == labels_.size(), "scales are missing");
        for (int64_t c = 0; c < n_chunks; ++c) check_sizes(c);
    }

    void check_sizes(int64_t c) const {
        int64_t size[PackedModel::n_columns];
        for (int64_t column = 0; column < PackedModel::n_columns; ++column) {
            size[column] = offsets_(c + 1, column) - offsets_(c, column);
            require_intact(size[column] >= 0, "chunks out of order");
        }
        const int64_t keys = size[PackedModel::key_at], rows = size[PackedModel::row_at] - 1;
        require_intact(size[PackedModel::label_at] <= max_chunk_labels, "a chunk has too many labels");
        require_intact(rows >= 0 && size[PackedModel::arena_at] < (int64_t{1} << 31), "weight rows are missing");
        if (keys == 0) return;
        require_intact(keys == rows + key_window && size[PackedModel::bucket_at] >= 2, "feature numbers are missing");
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

// Training rows whose labels have a say, kept alive with the arrays they are read from.
class BoundNeighbours {
  public:
    BoundNeighbours(nb::object rows, I64 indptr, I32 labels, int64_t n_labels, int64_t count, int64_t features, float weight)
        : owner_(rows), indptr_(indptr), labels_(labels),
          view_{&nb::cast<const BoundModel &>(rows).model(), indptr.data(), labels.data(), n_labels, count, features, weight} {
        const auto n_rows = static_cast<int64_t>(indptr.size()) - 1;
        require_intact(n_rows == view_.rows->n_labels && indptr(0) == 0, "the labels of neighbours are missing");
        for (int64_t i = 0; i < n_rows; ++i) require_intact(indptr(i) <= indptr(i + 1), "labels of neighbours out of order");
        require_intact(static_cast<uint64_t>(indptr(n_rows)) == labels.size(), "the labels of neighbours are missing");
        for (size_t j = 0; j < labels.size(); ++j)
            require_intact(labels(j) >= 0 && labels(j) < n_labels, "a neighbour has a label that is none");
        expect(count >= 1 && features >= 1 && weight >= 0, "neighbours must be asked, and must not count less than nothing");
    }

    const Neighbours &view() const { return view_; }

    // What labels gain in each row, given its neighbours: (indptr, labels, values), as they are met.
    auto gains(I64 of_rows, I32 indices, F32 data, In2<int64_t> nearest, In2<float> similarity) const {
        const CsrView X = csr_view(of_rows, indices, data, 0);
        expect(static_cast<int64_t>(nearest.shape(0)) == X.n_rows, "nearest must have one row per row of X");
        expect(static_cast<int64_t>(nearest.shape(1)) == view_.count && similarity.shape(0) == nearest.shape(0) &&
                   similarity.shape(1) == nearest.shape(1),
               "nearest and similarity must be (rows, neighbours)");
        for (size_t i = 0; i < nearest.size(); ++i)
            expect(nearest.data()[i] >= -1 && nearest.data()[i] < view_.rows->n_labels, "no such training row");
        const Nearest all{&view_, nearest.data(), similarity.data()};
        std::vector<int64_t> indptr{0};
        std::vector<int32_t> labels;
        std::vector<float> values;
        for (int64_t i = 0; i < X.n_rows; ++i) {
            Bonuses &bonuses = Scratch::of_this_thread().bonuses;
            all.ask(i, row_of(X, i), bonuses);
            for (const int32_t label : bonuses.labels()) {
                labels.push_back(label);
                values.push_back(bonuses.of(label));
            }
            indptr.push_back(static_cast<int64_t>(labels.size()));
        }
        return std::make_tuple(to_numpy(std::move(indptr)), to_numpy(std::move(labels)), to_numpy(std::move(values)));
    }

  private:
    nb::object owner_;
    I64 indptr_;
    I32 labels_;
    Neighbours view_;
};

// A second look at the best labels, kept alive with the arrays it is read from.
class BoundSecondLook {
  public:
    BoundSecondLook(F32 curve, F32 commonness, int64_t first)
        : curve_(curve), commonness_(commonness),
          view_{reinterpret_cast<const SecondLook::Curve *>(curve.data()), commonness.data(),
                static_cast<int64_t>(commonness.size()), first} {
        require_intact(curve.size() * sizeof(float) == sizeof(SecondLook::Curve), "the second look has the wrong number of terms");
        require_intact(finite(curve) && finite(commonness), "the second look has numbers that are none");
        for (int i = 0; i < SecondLook::n_terms; ++i)
            require_intact(view_.curve->low[i] <= view_.curve->high[i], "the second look has bounds the wrong way round");
        require_intact(first >= 1, "the second look must be at some label");
    }

    const SecondLook &view() const { return view_; }

  private:
    static bool finite(const F32 &values) {
        return std::all_of(values.data(), values.data() + values.size(), [](float value) { return std::isfinite(value); });
    }

    F32 curve_, commonness_;
    SecondLook view_;
};
