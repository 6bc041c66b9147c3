// Calls that take plain arrays: packing, the best of dense scores, calibration.
#include <algorithm>
#include <cstring>

#include "bindings.hpp"
#include "calibrate.hpp"
#include "largest.hpp"
#include "low_rank.hpp"
#include "pack.hpp"
#include "place_rows.hpp"
#include "take_columns.hpp"
#include "topk.hpp"

namespace blockxmc {

namespace {

auto pack(I64 indptr, I32 indices, F32 data, I32 labels, I64 ends, int64_t n_features, int bits, int threads) {
    const CsrView by_label = checked_csr("weights", indptr, indices, data, n_features);
    const auto n_labels = static_cast<int64_t>(labels.size());
    for (int64_t i = 0; i < n_labels; ++i)
        require(labels(i) >= -1 && labels(i) < by_label.n_rows, "labels must be rows of weights, or -1 for none");
    for (size_t c = 0; c < ends.size(); ++c) {
        const int64_t begin = c ? ends(c - 1) : 0;
        require(begin <= ends(c) && ends(c) <= n_labels, "the ends of chunks must ascend to the number of labels");
        require(ends(c) - begin <= max_chunk_labels, "a chunk has too many labels");
    }
    require((ends.size() ? ends(ends.size() - 1) : 0) == n_labels, "chunks must have all labels");
    require(bits == 32 || bits == 16 || bits == 8, "a weight has 32, 16 or 8 bits");
    PackedChunks packed;
    {
        WithoutGil release;
        packed = pack_chunks(by_label, {labels.data(), labels.size()}, {ends.data(), ends.size()}, bits, threads);
    }
    std::vector<int64_t> sizes;
    for (const auto &each : packed.sizes) sizes.insert(sizes.end(), each.begin(), each.end());
    return std::make_tuple(to_numpy(std::move(sizes)), to_numpy(std::move(packed.flat.keys)),
                           to_numpy(std::move(packed.flat.buckets)), to_numpy(std::move(packed.flat.rows)),
                           to_numpy(std::move(packed.flat.arena)), to_numpy(std::move(packed.flat.scale)));
}

// Copies the rows of a matrix to where each begins in the arrays of another.
void place(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, In1<int64_t> starts, Out1<int32_t> to_indices,
           Out1<float> to_data, int threads) {
    const CsrView from = checked_csr("rows", indptr, indices, data, INT32_MAX);
    const auto room = static_cast<int64_t>(to_indices.size());
    require(static_cast<int64_t>(starts.size()) == from.n_rows && to_data.size() == to_indices.size(),
            "one start per row and two arrays of one size are needed");
    for (int64_t i = 0; i < from.n_rows; ++i)
        require(starts(i) >= 0 && starts(i) <= room - from.row_size(i), "a row has no room where it should begin");
    WithoutGil release;
    place_rows(from, starts.data(), to_indices.data(), to_data.data(), threads);
}

auto largest_values(I64 indptr, I32 indices, F32 data, int64_t most, int threads, bool unit) {
    const CsrView X = checked_rows(indptr, indices, data, INT32_MAX);
    require(most >= 0, "most must not be negative");
    std::optional<LargestOfRows> kept;
    {
        WithoutGil release;
        kept.emplace(X, most, threads, unit);
    }
    return std::make_tuple(to_numpy(std::move(kept->indptr)), to_numpy(std::move(kept->indices)), to_numpy(std::move(kept->data)));
}

auto columns_of(I64 indptr, I32 indices, F32 data, I32 columns, int64_t n_rows) {
    require(are_pointers(span_of(indptr), indices.size()) && data.size() == indices.size(),
            "pointers, indices and values do not match");
    const CsrView by_column{indptr.data(), indices.data(), data.data(), static_cast<int64_t>(indptr.size()) - 1, n_rows};
    require(in_range(span_of(columns), by_column.n_rows), "a column number is out of range");
    for (size_t c = 0; c < columns.size(); ++c) { // only the columns that are taken: there may be many others
        const int64_t begin = indptr(columns(c)), end = indptr(columns(c) + 1);
        require(in_range(span_of(indices).subspan(begin, end - begin), n_rows), "a row number is out of range");
    }
    TakenColumns taken;
    {
        WithoutGil release;
        thread_local std::vector<int32_t> slot;
        if (static_cast<int64_t>(slot.size()) < n_rows) slot.resize(n_rows, -1);
        taken = take_columns(by_column.indptr, by_column.indices, by_column.data, {columns.data(), columns.size()}, slot);
    }
    return std::make_tuple(to_numpy(std::move(taken.rows)), to_numpy(std::move(taken.indptr)),
                           to_numpy(std::move(taken.columns)), to_numpy(std::move(taken.values)));
}

// Best k of dense scores (rows x labels) whose columns are the given ascending labels.
void dense_topk(In2<float> scores, I32 label_ids, Out2<int64_t> labels, Out2<float> best) {
    WithoutGil release;
    const auto n_rows = static_cast<int64_t>(scores.shape(0)), width = static_cast<int64_t>(scores.shape(1));
    const auto k = static_cast<int64_t>(labels.shape(1));
    require(static_cast<int64_t>(label_ids.size()) == width, "one label id per column of scores");
    require(k >= 1 && static_cast<int64_t>(labels.shape(0)) == n_rows && static_cast<int64_t>(best.shape(0)) == n_rows &&
                static_cast<int64_t>(best.shape(1)) == k,
            "labels and best must be (rows, k)");
    std::vector<Scored> heap(std::min(k, width));
    std::vector<Run> runs(1);
    SeenLabels unused;
    for (int64_t i = 0; i < n_rows; ++i) {
        const int64_t size = keep_best(scores.data() + i * width, label_ids.data(), width,
                                       static_cast<int64_t>(heap.size()), heap.data());
        runs = {{heap.data(), heap.data() + size}};
        merge_runs(runs, k, 0, unused, labels.data() + i * k, best.data() + i * k);
    }
}

Calibration checked_curve(const In1<double> &numbers) {
    require(numbers.size() * sizeof(double) == sizeof(Calibration), "a calibration has eleven numbers");
    Calibration curve;
    std::memcpy(&curve, numbers.data(), sizeof curve);
    for (int i = 1; i <= Calibration::n_slopes + Calibration::n_falls; ++i)
        require(numbers.data()[i] >= 0, "a calibration must rise with the score and fall with the rank");
    return curve;
}

void calibrate_scores(I64 indptr, I32 labels, Out1<float> scores, In1<double> curve, int threads) {
    require(are_pointers(span_of(indptr), labels.size()) && scores.size() == labels.size(),
            "pointers, labels and scores do not match");
    const Calibration checked = checked_curve(curve);
    WithoutGil release;
    calibrate_rows(checked, indptr.data(), static_cast<int64_t>(indptr.size()) - 1, labels.data(), scores.data(), threads);
}

void calibrate_topk(Out2<int64_t> labels, Out2<float> scores, In1<double> curve, int threads) {
    require(labels.shape(0) == scores.shape(0) && labels.shape(1) == scores.shape(1), "labels and scores must be (rows, k)");
    const Calibration checked = checked_curve(curve);
    WithoutGil release;
    const auto k = static_cast<int64_t>(labels.shape(1));
    const std::vector<double> falls = falls_of(checked, k);
    const auto n_rows = static_cast<int64_t>(labels.shape(0));
    constexpr int64_t rows_per_item = 256;
    parallel_for((n_rows + rows_per_item - 1) / rows_per_item, threads, [&](int64_t t, int) {
        for (int64_t i = t * rows_per_item; i < std::min((t + 1) * rows_per_item, n_rows); ++i)
            calibrate_best(checked, k, falls.data(), labels.data() + i * k, scores.data() + i * k);
    });
}

void low_rank_scores(I64 indptr, I32 indices, F32 data, In2<float> W, In2<float> H, Out2<float> out) {
    WithoutGil release;
    const CsrView X = checked_rows(indptr, indices, data, static_cast<int64_t>(W.shape(0)));
    require(W.shape(1) == H.shape(1), "W and H must have the same rank");
    require(static_cast<int64_t>(out.shape(0)) == X.n_rows && out.shape(1) == H.shape(0), "out must be (rows, labels)");
    const low_rank::View weights{W.data(), H.data(), X.n_cols, static_cast<int64_t>(H.shape(0)),
                              static_cast<int64_t>(H.shape(1))};
    low_rank::scores(X, weights, out.data());
}

} // namespace

void bind_predict_arrays(nb::module_ &m) {
    using namespace nb::literals;
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("place_rows", &place, exact("indptr"), exact("indices"), exact("data"), exact("starts"), exact("to_indices"),
          exact("to_data"), "threads"_a);
    m.def("largest_values", &largest_values, exact("indptr"), exact("indices"), exact("data"), "most"_a, "threads"_a,
          "unit"_a = false);
    m.def("pack_chunks", &pack, exact("indptr"), exact("indices"), exact("data"), exact("labels"), exact("ends"),
          "n_features"_a, "bits"_a, "threads"_a);
    m.def("take_columns", &columns_of, exact("indptr"), exact("indices"), exact("data"), exact("columns"), "n_rows"_a);
    m.def("calibrate_scores", &calibrate_scores, exact("indptr"), exact("labels"), exact("scores"), exact("curve"),
          "threads"_a);
    m.def("calibrate_topk", &calibrate_topk, exact("labels"), exact("scores"), exact("curve"), "threads"_a = 1);
    m.def("dense_topk", &dense_topk, exact("scores"), exact("label_ids"), exact("labels"), exact("best"));
    m.def("low_rank_scores", &low_rank_scores, exact("indptr"), exact("indices"), exact("data"), exact("W"), exact("H"),
          exact("out"));
}

} // namespace blockxmc
