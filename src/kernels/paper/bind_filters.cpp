#include "bindings.hpp"
#include "candidate_scores.hpp"
#include "filter_index.hpp"
#include "filter_bounds.hpp"
#include "filter_direction.hpp"
#include "topk.hpp"

namespace blockxmc {

namespace {

EarlierFilters checked_earlier(const In2<float> &lower, const In2<float> &upper, const In2<float> &projections,
                               int64_t n_labels, int64_t n_rows) {
    require(lower.shape(0) == upper.shape(0) && lower.shape(0) == projections.shape(0), "filters differ in number");
    require(static_cast<int64_t>(lower.shape(1)) == n_labels && static_cast<int64_t>(upper.shape(1)) == n_labels,
            "bounds must be filters x labels");
    require(static_cast<int64_t>(projections.shape(1)) == n_rows, "projections must be filters x rows");
    return {lower.data(), upper.data(), projections.data(), static_cast<int64_t>(lower.shape(0)), n_labels, n_rows};
}

Numpy1<double> filters_direction(
    In1<int64_t> x_ptr, In1<int32_t> x_idx, In1<float> x_val, int64_t n_features, In1<int64_t> y_ptr,
    In1<int32_t> y_idx, int64_t n_labels, In2<float> lower, In2<float> upper, In2<float> projections, double own,
    double decay, int64_t n_steps, int64_t n_negatives, int64_t rank_every, uint64_t seed,
    std::optional<Out1<int64_t>> progress) {
    const CsrView x = checked_csr("X", x_ptr, x_idx, x_val, n_features);
    const CsrView y = checked_csr("Y", y_ptr, y_idx, n_labels);
    require(x.n_rows == y.n_rows, "X and Y differ in their number of rows");
    require(own > 0 && decay >= 0 && n_steps >= 1 && n_negatives >= 1 && rank_every >= 1, "parameter out of range");
    const EarlierFilters earlier = checked_earlier(lower, upper, projections, n_labels, x.n_rows);
    const Watch watch = checked_watch(progress);
    std::vector<double> w;
    {
        WithoutGil unlocked;
        w = DirectionTrainer(x, y, earlier, {own, decay, n_steps, n_negatives, rank_every, seed}).run(watch);
    }
    return to_numpy(std::move(w));
}

// out[row, filter] = x . directions[:, filter], summed in double in the order of the row's entries.
void filters_project(In1<int64_t> x_ptr, In1<int32_t> x_idx, In1<float> x_val, In2<float> directions, Out2<float> out,
                     int threads) {
    const CsrView x = checked_csr("X", x_ptr, x_idx, x_val, static_cast<int64_t>(directions.shape(0)));
    const auto n_filters = static_cast<int64_t>(directions.shape(1));
    require(static_cast<int64_t>(out.shape(0)) == x.n_rows && static_cast<int64_t>(out.shape(1)) == n_filters,
            "out must be rows x filters");
    WithoutGil unlocked;
    constexpr int64_t kChunk = 256;
    parallel_for((x.n_rows + kChunk - 1) / kChunk, threads, [&](int64_t chunk, int) {
        std::vector<double> sums(n_filters);
        for (int64_t i = chunk * kChunk; i < std::min(x.n_rows, (chunk + 1) * kChunk); ++i) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (int64_t e = x.indptr[i]; e < x.indptr[i + 1]; ++e) {
                const float *w = directions.data() + x.indices[e] * n_filters;
                for (int64_t f = 0; f < n_filters; ++f) sums[f] += static_cast<double>(x.data[e]) * w[f];
            }
            for (int64_t f = 0; f < n_filters; ++f) out.data()[i * n_filters + f] = static_cast<float>(sums[f]);
        }
    });
}

nb::tuple filters_bounds(In1<int64_t> y_ptr, In1<int32_t> y_idx, int64_t n_labels, In1<int64_t> label_ptr,
                         In1<int32_t> label_rows, In2<float> lower, In2<float> upper, In2<float> projections,
                         In1<float> projection, In1<int64_t> sample, double own, Out1<float> new_lower,
                         Out1<float> new_upper, int threads, std::optional<Out1<int64_t>> progress) {
    const CsrView y = checked_csr("Y", y_ptr, y_idx, n_labels);
    const CsrView rows_of_label = checked_csr("rows of labels", label_ptr, label_rows, y.n_rows);
    require(rows_of_label.n_rows == n_labels, "one list of rows per label is needed");
    require(static_cast<int64_t>(projection.size()) == y.n_rows, "one projection per row is needed");
    require(static_cast<int64_t>(new_lower.size()) == n_labels && static_cast<int64_t>(new_upper.size()) == n_labels,
            "one bound per label is needed");
    for (size_t s = 0; s < sample.size(); ++s) require(sample(s) >= 0 && sample(s) < y.n_rows, "sampled row out of range");
    require(own > 0, "parameter out of range");
    const EarlierFilters earlier = checked_earlier(lower, upper, projections, n_labels, y.n_rows);
    const Watch watch = checked_watch(progress);
    BoundsCount count;
    {
        WithoutGil unlocked;
        const BoundsSolver solver(y, rows_of_label, earlier, projection.data(),
                                  {sample.data(), sample.data() + sample.size()}, own);
        count = solver.run(new_lower.data(), new_upper.data(), threads, watch);
    }
    return nb::make_tuple(count.before, count.after);
}

// Bounds of n_filters x n_labels, indexed for serving.
class BoundFilterIndex {
  public:
    BoundFilterIndex(In2<float> lower, In2<float> upper) : lower_(lower), upper_(upper), index_(made(lower, upper)) {}

    nb::tuple candidates(In2<float> projections, int threads) const {
        require(static_cast<int64_t>(projections.shape(1)) == index_.n_filters(), "projections must be rows x filters");
        const auto n_rows = static_cast<int64_t>(projections.shape(0));
        constexpr int64_t kChunk = 64;
        const int64_t n_chunks = (n_rows + kChunk - 1) / kChunk;
        std::vector<int64_t> indptr(n_rows + 1, 0);
        std::vector<int32_t> labels;
        {
            WithoutGil unlocked;
            std::vector<std::vector<int32_t>> parts(n_chunks);
            parallel_for(n_chunks, threads, [&](int64_t chunk, int) {
                for (int64_t i = chunk * kChunk; i < std::min(n_rows, (chunk + 1) * kChunk); ++i) {
                    const size_t before = parts[chunk].size();
                    index_.candidates(projections.data() + i * index_.n_filters(), parts[chunk]);
                    indptr[i + 1] = static_cast<int64_t>(parts[chunk].size() - before);
                }
            });
            for (int64_t i = 0; i < n_rows; ++i) indptr[i + 1] += indptr[i];
            labels.reserve(indptr[n_rows]);
            for (const auto &part : parts) labels.insert(labels.end(), part.begin(), part.end());
        }
        return nb::make_tuple(to_numpy(std::move(indptr)), to_numpy(std::move(labels)));
    }

  private:
    static FilterIndex made(const In2<float> &lower, const In2<float> &upper) {
        require_intact(lower.shape(0) == upper.shape(0) && lower.shape(1) == upper.shape(1), "the bounds of filters differ in shape");
        require_intact(lower.shape(0) >= 1 && lower.shape(0) <= 64, "there must be 1 to 64 filters");
        require_intact(lower.shape(1) <= INT32_MAX, "there are too many labels");
        return {lower.data(), upper.data(), static_cast<int64_t>(lower.shape(0)), static_cast<int64_t>(lower.shape(1))};
    }
    In2<float> lower_, upper_; // kept so that the memory outlives the index
    FilterIndex index_;
};

// Label-major weights, checked once, so that scoring may trust them.
class LabelWeights {
  public:
    LabelWeights(In1<int64_t> ptr, In1<int32_t> idx, In1<float> val, int64_t n_features, int threads)
        : ptr_(ptr), idx_(idx), val_(val), scores_(without_gil(intact(ptr, idx, val, n_features), threads)) {}

    // out: one score per (row, candidate) pair.
    void score(In1<int64_t> x_ptr, In1<int32_t> x_idx, In1<float> x_val, In1<int64_t> cand_ptr, In1<int32_t> cand,
               Out1<float> out, int threads) const {
        const CsrView x = checked_csr("X", x_ptr, x_idx, x_val, scores_.n_features());
        const CsrView pairs = checked_csr("candidates", cand_ptr, cand, scores_.n_labels());
        require(x.n_rows == pairs.n_rows, "rows and candidates differ in number");
        require(out.size() == cand.size(), "one score per candidate is needed");
        WithoutGil unlocked;
        constexpr int64_t kChunk = 64;
        std::vector<CandidateScores::Scratch> scratch;
        const int64_t n_items = (x.n_rows + kChunk - 1) / kChunk;
        for (int t = 0; t < worker_count(n_items, threads); ++t) scratch.push_back(scores_.scratch());
        parallel_for(n_items, threads, [&](int64_t chunk, int worker) {
            for (int64_t i = chunk * kChunk; i < std::min(x.n_rows, (chunk + 1) * kChunk); ++i) {
                const int64_t start = pairs.indptr[i];
                scores_.row(x, i, pairs.indices + start, pairs.row_size(i), out.data() + start, scratch[worker]);
            }
        });
    }

  private:
    static CandidateScores without_gil(const CsrView &weights, int threads) {
        WithoutGil unlocked;
        return CandidateScores(weights, threads);
    }
    static CsrView intact(const I64 &ptr, const I32 &idx, const F32 &val, int64_t n_features) {
        require_intact(are_pointers(span_of(ptr), idx.size()) && val.size() == idx.size(), "the weights of labels are incomplete");
        require_intact(n_features >= 0 && in_range(span_of(idx), n_features), "a feature number is out of range");
        return {ptr.data(), idx.data(), val.data(), static_cast<int64_t>(ptr.size()) - 1, n_features};
    }

    In1<int64_t> ptr_;
    In1<int32_t> idx_;
    In1<float> val_;
    CandidateScores scores_;
};

void topk_of_pairs(In1<int64_t> ptr, In1<int32_t> cand, In1<float> scores, Out2<int64_t> labels, Out2<float> best,
                   int threads) {
    const CsrView pairs = checked_csr("candidates", ptr, cand, scores, INT32_MAX);
    const auto k = static_cast<int64_t>(labels.shape(1));
    require(static_cast<int64_t>(labels.shape(0)) == pairs.n_rows && labels.shape(0) == best.shape(0) &&
                labels.shape(1) == best.shape(1), "labels and scores must be rows x k");
    WithoutGil unlocked;
    constexpr int64_t kChunk = 256;
    parallel_for((pairs.n_rows + kChunk - 1) / kChunk, threads, [&](int64_t chunk, int) {
        std::vector<Scored> row;
        for (int64_t i = chunk * kChunk; i < std::min(pairs.n_rows, (chunk + 1) * kChunk); ++i) {
            row.clear();
            for (int64_t e = pairs.indptr[i]; e < pairs.indptr[i + 1]; ++e) row.push_back({pairs.data[e], pairs.indices[e]});
            write_best(row, k, labels.data() + i * k, best.data() + i * k);
        }
    });
}

} // namespace

void bind_filters(nb::module_ &m) {
    using nb::arg;
    m.def("filters_direction", &filters_direction, arg("x_ptr").noconvert(), arg("x_idx").noconvert(),
          arg("x_val").noconvert(), arg("n_features"), arg("y_ptr").noconvert(), arg("y_idx").noconvert(),
          arg("n_labels"), arg("lower").noconvert(), arg("upper").noconvert(), arg("projections").noconvert(),
          arg("own"), arg("decay"), arg("n_steps"), arg("n_negatives"), arg("rank_every"), arg("seed"),
          arg("progress").noconvert() = nb::none());
    m.def("filters_project", &filters_project, arg("x_ptr").noconvert(), arg("x_idx").noconvert(),
          arg("x_val").noconvert(), arg("directions").noconvert(), arg("out").noconvert(), arg("threads"));
    m.def("filters_bounds", &filters_bounds, arg("y_ptr").noconvert(), arg("y_idx").noconvert(), arg("n_labels"),
          arg("label_ptr").noconvert(), arg("label_rows").noconvert(), arg("lower").noconvert(),
          arg("upper").noconvert(), arg("projections").noconvert(), arg("projection").noconvert(),
          arg("sample").noconvert(), arg("own"), arg("new_lower").noconvert(), arg("new_upper").noconvert(),
          arg("threads"), arg("progress").noconvert() = nb::none());
    nb::class_<BoundFilterIndex>(m, "FilterIndex")
        .def(nb::init<In2<float>, In2<float>>(), arg("lower").noconvert(), arg("upper").noconvert())
        .def("candidates", &BoundFilterIndex::candidates, arg("projections").noconvert(), arg("threads"));
    nb::class_<LabelWeights>(m, "LabelWeights")
        .def(nb::init<In1<int64_t>, In1<int32_t>, In1<float>, int64_t, int>(), arg("indptr").noconvert(),
             arg("indices").noconvert(), arg("values").noconvert(), arg("n_features"), arg("threads") = 1)
        .def("score", &LabelWeights::score, arg("x_ptr").noconvert(), arg("x_idx").noconvert(),
             arg("x_val").noconvert(), arg("cand_ptr").noconvert(), arg("cand").noconvert(), arg("out").noconvert(),
             arg("threads"));
    m.def("topk_of_pairs", &topk_of_pairs, arg("indptr").noconvert(), arg("candidates").noconvert(),
          arg("scores").noconvert(), arg("labels").noconvert(), arg("best").noconvert(), arg("threads"));
}

} // namespace blockxmc
