// Python's view of predict.hpp: calls on the model object that holds the packed arrays, and calls that take plain arrays.
#include "bindings.hpp"
#include "bound_model.hpp"
#include "calibrate.hpp"
#include "low_rank.hpp"
#include "pack.hpp"
#include "predict.hpp"
#include "predict_batch.hpp"
#include "take_columns.hpp"

namespace {

using Best = std::tuple<nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>, nb::ndarray<nb::numpy, float, nb::ndim<1>>>;

RowView row_view(const I32 &indices, const F32 &values) {
    expect(indices.size() == values.size(), "indices and values must have the same length");
    return {indices.data(), values.data(), static_cast<int64_t>(indices.size())};
}

// Two small result arrays and what fills them.
template <typename Fill>
Best best_of(int64_t k, Fill &&fill) {
    expect(k >= 1, "k must be at least 1");
    auto labels = std::make_unique<int64_t[]>(k);
    auto scores = std::make_unique<float[]>(k);
    {
        nb::gil_scoped_release release;
        fill(labels.get(), scores.get());
    }
    nb::capsule keep_labels(labels.get(), [](void *p) noexcept { delete[] static_cast<int64_t *>(p); });
    int64_t *label_data = labels.release();
    nb::capsule keep_scores(scores.get(), [](void *p) noexcept { delete[] static_cast<float *>(p); });
    float *score_data = scores.release();
    const auto size = static_cast<size_t>(k);
    return {nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(label_data, {size}, keep_labels),
            nb::ndarray<nb::numpy, float, nb::ndim<1>>(score_data, {size}, keep_scores)};
}

Best one(const BoundModel &self, I32 indices, F32 values, std::optional<I32> blocks, int64_t k) {
    const RowView x = row_view(indices, values);
    const Visits visits = self.visits_of_one(blocks);
    return best_of(k, [&](int64_t *labels, float *scores) {
        topk_one(self.model(), x, visits, k, Scratch::of_this_thread(), labels, scores);
    });
}

Routing routing_of(const BoundModel &self, const BoundModel &router, int64_t b, float slope, float mass,
                   const BoundNeighbours *neighbours = nullptr, const BoundSecondLook *look = nullptr) {
    const int64_t known = router.model().n_labels, there = self.model().n_blocks;
    expect(b >= 1 && known <= there, "the router must choose among the scorer's blocks");
    expect(there <= known + 1, "the scorer may have one block more than the router knows, that of the common labels");
    expect(!neighbours || (neighbours->view().rows->n_blocks == there && neighbours->view().n_labels == self.model().n_labels),
           "neighbours must stand in the scorer's blocks and have its labels");
    expect(!look || look->view().n_labels == self.model().n_labels, "the second look must know the scorer's labels");
    return {router.model(), self.model(), b, slope, mass, neighbours ? &neighbours->view() : nullptr, look ? &look->view() : nullptr};
}

Best one_routed(const BoundModel &self, const BoundModel &router, I32 indices, F32 values, int64_t b, float slope,
                float mass, int64_t k, const BoundNeighbours *neighbours, const BoundSecondLook *look) {
    const Routing routing = routing_of(self, router, b, slope, mass, neighbours, look);
    const RowView x = row_view(indices, values);
    return best_of(k, [&](int64_t *labels, float *scores) {
        routed_one(routing, x, k, Scratch::of_this_thread(), labels, scores);
    });
}

void expect_results(const CsrView &X, const Out2<int64_t> &labels, const Out2<float> &scores) {
    expect(static_cast<int64_t>(labels.shape(0)) == X.n_rows && static_cast<int64_t>(scores.shape(0)) == X.n_rows &&
               labels.shape(1) == scores.shape(1) && labels.shape(1) >= 1,
           "labels and scores must be (rows, k)");
}

void topk(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, Out2<int64_t> labels,
          Out2<float> scores, int threads) {
    nb::gil_scoped_release release;
    const CsrView X = csr_view(indptr, indices, data, 0);
    expect_results(X, labels, scores);
    topk_batch(self.model(), X, self.visits(blocks, X.n_rows), static_cast<int64_t>(labels.shape(1)), threads,
               labels.data(), scores.data());
}

// Blocks that routed rows visit, and their weights: (rows, width) each.
struct Visited {
    std::vector<int32_t> blocks;
    std::vector<float> weights;
};

Visited visit(const Routing &routing, const CsrView &X, int threads) {
    std::vector<int64_t> best(X.n_rows * routing.b);
    std::vector<float> margins(X.n_rows * routing.b);
    topk_batch(routing.router, X, {nullptr, 0}, routing.b, threads, best.data(), margins.data());
    const int64_t width = routing.width();
    Visited out{std::vector<int32_t>(X.n_rows * width), std::vector<float>(X.n_rows * width)};
    for (int64_t i = 0; i < X.n_rows; ++i)
        routing.fill(best.data() + i * routing.b, margins.data() + i * routing.b, out.blocks.data() + i * width,
                     out.weights.data() + i * width);
    return out;
}

// All that routed rows bring with them to a scorer.
class Sent {
  public:
    Sent(const Routing &routing, const CsrView &X, int threads) : visited_(visit(routing, X, threads)) {
        if (routing.neighbours) {
            const int64_t count = routing.neighbours->count;
            rows_.resize(X.n_rows * count);
            similarity_.resize(X.n_rows * count);
            const LargestOfRows largest(X, routing.neighbours->features, threads);
            topk_batch(*routing.neighbours->rows, largest.view(X.n_cols), {visited_.blocks.data(), routing.width()}, count, threads,
                       rows_.data(), similarity_.data());
            nearest_ = {routing.neighbours, rows_.data(), similarity_.data()};
        }
        visits = routing.visits(visited_.blocks.data(), visited_.weights.data(), routing.neighbours ? &nearest_ : nullptr);
    }
    Sent(const Sent &) = delete;

    Visits visits;

  private:
    Visited visited_;
    std::vector<int64_t> rows_;
    std::vector<float> similarity_;
    Nearest nearest_{};
};

void topk_routed(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
                 float mass, Out2<int64_t> labels, Out2<float> scores, int threads, const BoundNeighbours *neighbours,
                 const BoundSecondLook *look) {
    nb::gil_scoped_release release;
    const CsrView X = csr_view(indptr, indices, data, 0);
    expect_results(X, labels, scores);
    const Sent sent(routing_of(self, router, b, slope, mass, neighbours, look), X, threads);
    topk_batch(self.model(), X, sent.visits, static_cast<int64_t>(labels.shape(1)), threads, labels.data(), scores.data());
}

// Scores of all candidates of each row: (indptr, labels, values).
auto scored(const BoundModel &self, const CsrView &X, const Visits &visits, int threads) {
    std::vector<int64_t> indptr(X.n_rows + 1, 0);
    count_candidates(self.model(), visits, X.n_rows, threads, indptr.data() + 1);
    std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
    std::vector<int32_t> labels(indptr.back());
    std::vector<float> values(indptr.back());
    score_candidates(self.model(), X, visits, threads, indptr.data(), labels.data(), values.data());
    return std::make_tuple(std::move(indptr), std::move(labels), std::move(values));
}

template <typename Score>
auto scored_without_gil(Score &&score) {
    auto found = [&] {
        nb::gil_scoped_release release;
        return score();
    }();
    return std::apply([](auto &&...part) { return std::make_tuple(to_numpy(std::move(part))...); }, std::move(found));
}

auto scores(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, int threads) {
    return scored_without_gil([&] {
        const CsrView X = csr_view(indptr, indices, data, 0);
        return scored(self, X, self.visits(blocks, X.n_rows), threads);
    });
}

auto scores_routed(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
                   float mass, int threads, const BoundNeighbours *neighbours, const BoundSecondLook *look) {
    return scored_without_gil([&] {
        const CsrView X = csr_view(indptr, indices, data, 0);
        const Sent sent(routing_of(self, router, b, slope, mass, neighbours, look), X, threads);
        return scored(self, X, sent.visits, threads);
    });
}

// The visited blocks (rows x width, flat) and their weights.
auto routes(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
            float mass, int threads) {
    Visited visited;
    {
        nb::gil_scoped_release release;
        visited = visit(routing_of(self, router, b, slope, mass), csr_view(indptr, indices, data, 0), threads);
    }
    return std::make_tuple(to_numpy(std::move(visited.blocks)), to_numpy(std::move(visited.weights)));
}

auto candidates(const BoundModel &self, Blocks blocks, int threads) {
    const int64_t n_rows = blocks ? static_cast<int64_t>(blocks->shape(0)) : 1;
    std::vector<int64_t> counts(n_rows);
    {
        nb::gil_scoped_release release;
        count_candidates(self.model(), self.visits(blocks, n_rows), n_rows, threads, counts.data());
    }
    return to_numpy(std::move(counts));
}

auto touched(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, int threads) {
    const CsrView X = csr_view(indptr, indices, data, 0);
    std::vector<int64_t> counts(X.n_rows);
    {
        nb::gil_scoped_release release;
        count_touched(self.model(), X, self.visits(blocks, X.n_rows), threads, counts.data());
    }
    return to_numpy(std::move(counts));
}

auto pack(I64 indptr, I32 indices, F32 data, I32 labels, I64 ends, int64_t n_features, int bits, int threads) {
    const CsrView by_label = csr_view(indptr, indices, data, n_features);
    const auto n_labels = static_cast<int64_t>(labels.size());
    for (int64_t i = 0; i < n_labels; ++i)
        expect(labels(i) >= -1 && labels(i) < by_label.n_rows, "labels must be rows of weights, or -1 for none");
    for (size_t c = 0; c < ends.size(); ++c) {
        const int64_t width = ends(c) - (c ? ends(c - 1) : 0);
        expect(width >= 0 && width <= max_chunk_labels, "a chunk has too many labels");
    }
    expect((ends.size() ? ends(ends.size() - 1) : 0) == n_labels, "chunks must have all labels");
    expect(bits == 32 || bits == 16 || bits == 8, "a weight has 32, 16 or 8 bits");
    expect(std::all_of(by_label.indices, by_label.indices + by_label.nnz(), [&](int32_t f) { return f >= 0 && f < n_features; }),
           "a feature number is out of range");
    PackedChunks packed;
    {
        nb::gil_scoped_release release;
        packed = pack_chunks(by_label, {labels.data(), labels.size()}, {ends.data(), ends.size()}, bits, threads);
    }
    std::vector<int64_t> sizes;
    for (const auto &each : packed.sizes) sizes.insert(sizes.end(), each.begin(), each.end());
    return std::make_tuple(to_numpy(std::move(sizes)), to_numpy(std::move(packed.flat.keys)),
                           to_numpy(std::move(packed.flat.buckets)), to_numpy(std::move(packed.flat.rows)),
                           to_numpy(std::move(packed.flat.arena)), to_numpy(std::move(packed.flat.scale)));
}

auto largest_values(I64 indptr, I32 indices, F32 data, int64_t most, int threads) {
    const CsrView X = csr_view(indptr, indices, data, 0);
    expect(most >= 0, "most must not be negative");
    std::optional<LargestOfRows> kept;
    {
        nb::gil_scoped_release release;
        kept.emplace(X, most, threads);
    }
    return std::make_tuple(to_numpy(std::move(kept->indptr)), to_numpy(std::move(kept->indices)), to_numpy(std::move(kept->data)));
}

auto columns_of(I64 indptr, I32 indices, F32 data, I32 columns, int64_t n_rows) {
    const CsrView by_column = csr_view(indptr, indices, data, n_rows);
    for (size_t c = 0; c < columns.size(); ++c) {
        expect(columns(c) >= 0 && columns(c) < by_column.n_rows, "a column number is out of range");
        for (int64_t k = indptr(columns(c)); k < indptr(columns(c) + 1); ++k)
            expect(indices(k) >= 0 && indices(k) < n_rows, "a row number is out of range");
    }
    TakenColumns taken;
    {
        nb::gil_scoped_release release;
        thread_local std::vector<int32_t> slot;
        if (static_cast<int64_t>(slot.size()) < n_rows) slot.resize(n_rows, -1);
        taken = take_columns(by_column.indptr, by_column.indices, by_column.data, {columns.data(), columns.size()}, slot);
    }
    return std::make_tuple(to_numpy(std::move(taken.rows)), to_numpy(std::move(taken.indptr)),
                           to_numpy(std::move(taken.columns)), to_numpy(std::move(taken.values)));
}

// Best k of dense scores (rows x labels) whose columns are the given ascending labels.
void dense_topk(In2<float> scores, I32 label_ids, Out2<int64_t> labels, Out2<float> best) {
    nb::gil_scoped_release release;
    const auto n_rows = static_cast<int64_t>(scores.shape(0)), width = static_cast<int64_t>(scores.shape(1));
    const auto k = static_cast<int64_t>(labels.shape(1));
    expect(static_cast<int64_t>(label_ids.size()) == width, "one label id per column of scores");
    expect(k >= 1 && static_cast<int64_t>(labels.shape(0)) == n_rows && static_cast<int64_t>(best.shape(0)) == n_rows &&
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

void calibrate_all(Out1<float> scores, double scale, double shift) {
    nb::gil_scoped_release release;
    calibrate_scores({scale, shift}, static_cast<int64_t>(scores.size()), scores.data());
}

void calibrate_topk(Out2<int64_t> labels, Out2<float> scores, double scale, double shift) {
    expect(labels.shape(0) == scores.shape(0) && labels.shape(1) == scores.shape(1), "labels and scores must be (rows, k)");
    nb::gil_scoped_release release;
    const auto k = static_cast<int64_t>(labels.shape(1));
    for (int64_t i = 0; i < static_cast<int64_t>(labels.shape(0)); ++i)
        calibrate_best({scale, shift}, k, labels.data() + i * k, scores.data() + i * k);
}

void low_rank(I64 indptr, I32 indices, F32 data, In2<float> W, In2<float> H, Out2<float> out) {
    nb::gil_scoped_release release;
    const CsrView X = csr_view(indptr, indices, data, static_cast<int64_t>(W.shape(0)));
    expect(W.shape(1) == H.shape(1), "W and H must have the same rank");
    expect(static_cast<int64_t>(out.shape(0)) == X.n_rows && out.shape(1) == H.shape(0), "out must be (rows, labels)");
    const LowRankView weights{W.data(), H.data(), X.n_cols, static_cast<int64_t>(H.shape(0)),
                              static_cast<int64_t>(H.shape(1))};
    low_rank_scores(X, weights, out.data());
}

} // namespace

void bind_predict(nb::module_ &m) {
    using namespace nb::literals;
    nb::register_exception_translator([](const std::exception_ptr &error, void *) {
        try {
            std::rethrow_exception(error);
        } catch (const DamagedModel &damaged) {
            PyErr_SetString(nb::module_::import_("blockxmc.errors").attr("ModelFormatError").ptr(), damaged.what());
        }
    });
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    nb::class_<BoundModel>(m, "PackedModel", "Packed blocks, ready to score; borrows the arrays it is made from.")
        .def(nb::init<I64, In2<int64_t>, I32, F32, std::optional<F32>, I32, U32, U32, U32, std::optional<F32>, int64_t, int>(),
             exact("block_ptr"), exact("offsets"), exact("labels"), exact("bias"), exact("mass").none(), exact("keys"),
             exact("buckets"), exact("rows"), exact("arena"), exact("scale").none(), "n_labels"_a, "bits"_a)
        .def("one", &one, exact("indices"), exact("values"), exact("blocks").none(), "k"_a)
        .def("one_routed", &one_routed, "router"_a, exact("indices"), exact("values"), "b"_a, "slope"_a,
             "mass"_a, "k"_a, "neighbours"_a.none() = nb::none(), "look"_a.none() = nb::none())
        .def("topk", &topk, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), exact("labels"),
             exact("scores"), "threads"_a)
        .def("topk_routed", &topk_routed, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a,
             "slope"_a, "mass"_a, exact("labels"), exact("scores"), "threads"_a, "neighbours"_a.none() = nb::none(),
             "look"_a.none() = nb::none())
        .def("routes", &routes, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a, "slope"_a,
             "mass"_a, "threads"_a)
        .def("candidates", &candidates, exact("blocks").none(), "threads"_a)
        .def("scores", &scores, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), "threads"_a)
        .def("scores_routed", &scores_routed, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a,
             "slope"_a, "mass"_a, "threads"_a, "neighbours"_a.none() = nb::none(), "look"_a.none() = nb::none())
        .def("touched", &touched, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), "threads"_a);
    nb::class_<BoundNeighbours>(m, "Neighbors", "Training rows in the blocks of a model, and their labels.")
        .def(nb::init<nb::object, I64, I32, int64_t, int64_t, int64_t, float>(), "rows"_a, exact("indptr"), exact("labels"),
             "n_labels"_a, "count"_a, "features"_a, "weight"_a)
        .def("gains", &BoundNeighbours::gains, exact("indptr"), exact("indices"), exact("data"), exact("nearest"), exact("similarity"));
    nb::class_<BoundSecondLook>(m, "Reranker", "A second look at the best labels of a row.")
        .def(nb::init<F32, F32, int64_t>(), exact("curve"), exact("commonness"), "first"_a);
    m.def("largest_values", &largest_values, exact("indptr"), exact("indices"), exact("data"), "most"_a, "threads"_a);
    m.def("pack_chunks", &pack, exact("indptr"), exact("indices"), exact("data"), exact("labels"), exact("ends"),
          "n_features"_a, "bits"_a, "threads"_a);
    m.def("take_columns", &columns_of, exact("indptr"), exact("indices"), exact("data"), exact("columns"), "n_rows"_a);
    m.def("calibrate_scores", &calibrate_all, exact("scores"), "scale"_a, "shift"_a);
    m.def("calibrate_topk", &calibrate_topk, exact("labels"), exact("scores"), "scale"_a, "shift"_a);
    m.def("dense_topk", &dense_topk, exact("scores"), exact("label_ids"), exact("labels"), exact("best"));
    m.def("low_rank_scores", &low_rank, exact("indptr"), exact("indices"), exact("data"), exact("W"), exact("H"),
          exact("out"));
    m.attr("MAX_CHUNK_LABELS") = max_chunk_labels;
}
