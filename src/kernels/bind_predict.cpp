// Calls on the model object that holds the packed arrays.
#include <algorithm>
#include <memory>
#include <numeric>

#include "bindings.hpp"
#include "bound_model.hpp"
#include "candidates.hpp"
#include "predict.hpp"
#include "predict_batch.hpp"
#include "routing.hpp"

namespace blockxmc {

namespace {

using Best = std::tuple<Numpy1<int64_t>, Numpy1<float>>;

template <typename T>
Numpy1<T> array_of(std::unique_ptr<T[]> &&values, int64_t size) {
    nb::capsule guard(values.get(), [](void *p) noexcept { delete[] static_cast<T *>(p); });
    return {values.release(), {static_cast<size_t>(size)}, guard};
}

// Two small result arrays and what fills them.
template <typename Fill>
Best best_of(const BoundModel &self, int64_t k, Fill &&fill) {
    require_k(k, self.model().n_labels);
    auto labels = std::make_unique_for_overwrite<int64_t[]>(k);
    auto scores = std::make_unique_for_overwrite<float[]>(k);
    {
        WithoutGil release;
        fill(labels.get(), scores.get());
    }
    return {array_of(std::move(labels), k), array_of(std::move(scores), k)};
}

Best one(const BoundModel &self, I32 indices, F32 values, std::optional<I32> blocks, int64_t k, Allowed allowed) {
    const RowView x = self.row(indices, values);
    Visits visits = self.visits_of_one(blocks);
    visits.allowed = self.allowed(allowed);
    return best_of(self, k, [&](int64_t *labels, float *scores) {
        topk_one(self.model(), x, visits, k, Scratch::of_this_thread(), labels, scores);
    });
}

// What comes with a call that routes.
struct Extras {
    const BoundNeighbors *neighbors = nullptr;
    const BoundReranker *reranker = nullptr;
    AllowedLabels allowed = {};
};

Routing routing_of(const BoundModel &self, const BoundModel &router, int64_t b, float slope, float top_p, Extras extras = {}) {
    const int64_t known = router.model().n_labels, there = self.model().n_blocks, n_labels = self.model().n_labels;
    require(b >= 1 && known <= there, "the router must choose among the scorer's blocks");
    require(there <= known + 1, "the scorer may have one block more than the router knows, that of the frequent labels");
    const Neighbors *neighbors = extras.neighbors ? &extras.neighbors->view() : nullptr;
    require(!neighbors || (neighbors->rows->n_blocks == there && neighbors->n_labels == n_labels),
            "neighbors must have the scorer's blocks and labels");
    const Reranker *reranker = extras.reranker ? &extras.reranker->view() : nullptr;
    require(!reranker || reranker->n_labels == n_labels, "the reranker must know the scorer's labels");
    // A row cannot visit more blocks than there are.
    return {router.model(), self.model(), std::min(b, std::max<int64_t>(known, 1)), slope, top_p, neighbors, reranker, extras.allowed};
}

Best one_routed(const BoundModel &self, const BoundModel &router, I32 indices, F32 values, int64_t b, float slope,
                float top_p, int64_t k, const BoundNeighbors *neighbors, const BoundReranker *reranker, Allowed allowed) {
    const Routing routing = routing_of(self, router, b, slope, top_p, {neighbors, reranker, self.allowed(allowed)});
    const RowView x = self.row(indices, values);
    return best_of(self, k, [&](int64_t *labels, float *scores) {
        routed_one(routing, x, k, Scratch::of_this_thread(), labels, scores);
    });
}

void require_results(const BoundModel &self, const CsrView &X, const Out2<int64_t> &labels, const Out2<float> &scores) {
    require_k(static_cast<int64_t>(labels.shape(1)), self.model().n_labels);
    require(static_cast<int64_t>(labels.shape(0)) == X.n_rows && static_cast<int64_t>(scores.shape(0)) == X.n_rows &&
                labels.shape(1) == scores.shape(1),
            "labels and scores must be (rows, k)");
}

void topk(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, Out2<int64_t> labels,
          Out2<float> scores, int threads, Allowed allowed) {
    WithoutGil release;
    const CsrView X = self.rows(indptr, indices, data);
    require_results(self, X, labels, scores);
    Visits visits = self.visits(blocks, X.n_rows);
    visits.allowed = self.allowed(allowed);
    topk_batch(self.model(), X, visits, static_cast<int64_t>(labels.shape(1)), threads, labels.data(), scores.data());
}

void topk_routed(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
                 float top_p, Out2<int64_t> labels, Out2<float> scores, int threads, const BoundNeighbors *neighbors,
                 const BoundReranker *reranker, Allowed allowed) {
    WithoutGil release;
    const CsrView X = self.rows(indptr, indices, data);
    require_results(self, X, labels, scores);
    const Extras extras{neighbors, reranker, self.allowed(allowed)};
    const RoutedRows routed(routing_of(self, router, b, slope, top_p, extras), X, threads);
    topk_batch(self.model(), X, routed.visits, static_cast<int64_t>(labels.shape(1)), threads, labels.data(), scores.data());
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
        WithoutGil release;
        return score();
    }();
    return std::apply([](auto &&...part) { return std::make_tuple(to_numpy(std::move(part))...); }, std::move(found));
}

auto scores(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, int threads) {
    return scored_without_gil([&] {
        const CsrView X = self.rows(indptr, indices, data);
        return scored(self, X, self.visits(blocks, X.n_rows), threads);
    });
}

auto scores_routed(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
                   float top_p, int threads, const BoundNeighbors *neighbors, const BoundReranker *reranker) {
    return scored_without_gil([&] {
        const CsrView X = self.rows(indptr, indices, data);
        const RoutedRows routed(routing_of(self, router, b, slope, top_p, {neighbors, reranker}), X, threads);
        return scored(self, X, routed.visits, threads);
    });
}

// The visited blocks (rows x width, flat) and their weights.
auto routes(const BoundModel &self, const BoundModel &router, I64 indptr, I32 indices, F32 data, int64_t b, float slope,
            float top_p, int threads) {
    Visited visited;
    {
        WithoutGil release;
        visited = visit(routing_of(self, router, b, slope, top_p), self.rows(indptr, indices, data), threads);
    }
    return std::make_tuple(to_numpy(std::move(visited.blocks)), to_numpy(std::move(visited.weights)));
}

auto candidates(const BoundModel &self, Blocks blocks, int threads) {
    const int64_t n_rows = blocks ? static_cast<int64_t>(blocks->shape(0)) : 1;
    std::vector<int64_t> counts(n_rows);
    {
        WithoutGil release;
        count_candidates(self.model(), self.visits(blocks, n_rows), n_rows, threads, counts.data());
    }
    return to_numpy(std::move(counts));
}

auto touched(const BoundModel &self, I64 indptr, I32 indices, F32 data, Blocks blocks, int threads) {
    const CsrView X = self.rows(indptr, indices, data);
    std::vector<int64_t> counts(X.n_rows);
    {
        WithoutGil release;
        count_touched(self.model(), X, self.visits(blocks, X.n_rows), threads, counts.data());
    }
    return to_numpy(std::move(counts));
}

} // namespace

void bind_predict(nb::module_ &m) {
    using namespace nb::literals;
    nb::register_exception_translator([](const std::exception_ptr &error, void *) {
        try {
            std::rethrow_exception(error);
        } catch (const DamagedModel &damaged) {
            PyErr_SetString(nb::module_::import_("blockxmc.errors").attr("ModelFormatError").ptr(), damaged.what());
        } catch (const BadInput &bad) {
            PyErr_SetString(nb::module_::import_("blockxmc.errors").attr("BlockXMCError").ptr(), bad.what());
        }
    });
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    const auto no_mask = exact("allowed").none() = nb::none();
    nb::class_<BoundModel>(m, "PackedModel", "Packed blocks, ready to score; borrows the arrays it is made from.")
        .def(nb::init<I64, In2<int64_t>, I32, F32, std::optional<F32>, I32, U32, U32, U32, std::optional<F32>, int64_t, int64_t, int>(),
             exact("block_ptr"), exact("offsets"), exact("labels"), exact("bias"), exact("mass").none(), exact("keys"),
             exact("buckets"), exact("rows"), exact("arena"), exact("scale").none(), "n_labels"_a, "n_features"_a, "bits"_a)
        .def("one", &one, exact("indices"), exact("values"), exact("blocks").none(), "k"_a, no_mask)
        .def("one_routed", &one_routed, "router"_a, exact("indices"), exact("values"), "b"_a, "slope"_a,
             "top_p"_a, "k"_a, "neighbors"_a.none() = nb::none(), "reranker"_a.none() = nb::none(), no_mask)
        .def("topk", &topk, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), exact("labels"),
             exact("scores"), "threads"_a, no_mask)
        .def("topk_routed", &topk_routed, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a,
             "slope"_a, "top_p"_a, exact("labels"), exact("scores"), "threads"_a, "neighbors"_a.none() = nb::none(),
             "reranker"_a.none() = nb::none(), no_mask)
        .def("routes", &routes, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a, "slope"_a,
             "top_p"_a, "threads"_a)
        .def("candidates", &candidates, exact("blocks").none(), "threads"_a)
        .def("scores", &scores, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), "threads"_a)
        .def("scores_routed", &scores_routed, "router"_a, exact("indptr"), exact("indices"), exact("data"), "b"_a,
             "slope"_a, "top_p"_a, "threads"_a, "neighbors"_a.none() = nb::none(), "reranker"_a.none() = nb::none())
        .def("touched", &touched, exact("indptr"), exact("indices"), exact("data"), exact("blocks").none(), "threads"_a);
    nb::class_<BoundNeighbors>(m, "Neighbors", "Training rows in the blocks of a model, and their labels.")
        .def(nb::init<nb::object, I64, I32, int64_t, int64_t, int64_t, float>(), "rows"_a, exact("indptr"), exact("labels"),
             "n_labels"_a, "count"_a, "features"_a, "weight"_a)
        .def("few_gains", &BoundNeighbors::few_gains, exact("indptr"), exact("indices"), exact("data"), exact("nearest"),
             exact("similarity"), exact("few"), exact("out"), "threads"_a);
    nb::class_<BoundReranker>(m, "Reranker", "A reranker of the best labels of a row.")
        .def(nb::init<F32, F32, int64_t, nb::object>(), exact("curve"), exact("frequency"), "first"_a,
             "companions"_a.none() = nb::none());
    nb::class_<BoundCompanions>(m, "Companions", "Pairs of labels that training rows carry.")
        .def(nb::init<I64, I32, In1<uint8_t>, F32, float, float>(), exact("indptr"), exact("others"), exact("log_counts"),
             exact("frequency"), "log_rows"_a, "weight"_a)
        .def("sums", &BoundCompanions::sums, exact("labels"), exact("out"), nb::arg("threads"));
    m.attr("MAX_CHUNK_LABELS") = max_chunk_labels;
    m.attr("UNLISTED") = unlisted;
}

} // namespace blockxmc
