#include <algorithm>
#include <cmath>

#include "bindings.hpp"
#include "candidate_terms.hpp"
#include "held_out_fits.hpp"

namespace blockxmc {

namespace {

template <typename T>
void check_shape(const In2<T> &array, size_t rows, size_t columns) {
    require(array.shape(0) == rows && array.shape(1) == columns, "all tables must have the same shape");
}

std::vector<double> checked_weights(const In1<double> &weights, size_t size) {
    require(weights.size() == size, "one number per weight is needed");
    return {weights.data(), weights.data() + size};
}

Numpy1<double> logistic_weights(In2<double> features, In1<uint8_t> right, In1<double> counts, In1<double> start, In1<double> lower,
                                double shrinkage, double tol, int threads) {
    require(features.shape(1) < 64, "features must be fewer than 64");
    require(right.size() == features.shape(0) && counts.size() == features.shape(0), "one target and one count per item are needed");
    require(shrinkage > 0 && tol > 0, "shrinkage and tol must be positive");
    const LogisticItems items{features.data(), right.data(), counts.data(), static_cast<int64_t>(features.shape(0)),
                              static_cast<int>(features.shape(1)), shrinkage};
    std::vector<double> found;
    {
        const size_t n = features.shape(1) + 1;
        const std::vector<double> begin = checked_weights(start, n), least = checked_weights(lower, n);
        WithoutGil release;
        found = fit_logistic(items, begin, least, tol, threads);
    }
    return to_numpy(std::move(found));
}

Numpy1<double> order_weights(In2<double> features, In2<int8_t> side, In1<double> usual, In1<double> lower, double pull,
                             double tol, int threads) {
    require(features.shape(0) == side.size(), "one row of features per candidate is needed");
    require(pull > 0 && tol > 0, "pull and tol must be positive");
    const RankedRows rows{features.data(), side.data(), static_cast<int64_t>(side.shape(0)), static_cast<int>(side.shape(1)),
                          static_cast<int>(features.shape(1))};
    std::vector<double> found;
    {
        const std::vector<double> pulled = checked_weights(usual, features.shape(1)), least = checked_weights(lower, features.shape(1));
        WithoutGil release;
        found = fit_order(rows, pulled, least, pull, tol, threads);
    }
    return to_numpy(std::move(found));
}

void mix_hits(In2<float> margin, In2<float> name, In2<float> centroid, In2<float> block, In2<float> neighbors, In2<uint8_t> right,
              In2<float> mixes, Out2<double> out, int threads) {
    const size_t n = margin.shape(0), few = margin.shape(1);
    for (const In2<float> *table : {&name, &centroid, &block, &neighbors}) check_shape(*table, n, few);
    check_shape(right, n, few);
    require(mixes.shape(1) == 4, "a mix has four numbers");
    require(out.shape(0) == mixes.shape(0) && out.shape(1) == n, "out must be (mixes, rows)");
    WithoutGil release;
    std::vector<MixWeights> weights(mixes.shape(0));
    for (size_t m = 0; m < weights.size(); ++m) {
        const float *each = mixes.data() + 4 * m;
        weights[m] = {each[0], each[1], each[2], each[3]};
    }
    const ScoreTerms terms{margin.data(), name.data(), centroid.data(), block.data(), neighbors.data(), right.data(),
                           static_cast<int64_t>(n), static_cast<int64_t>(few)};
    hits_of_mixes(terms, weights, out.data(), threads);
}

void best_candidates_py(In2<float> margin, In2<float> name, In2<float> centroid, In2<float> block, In2<float> neighbors,
                        In2<float> log_positives, In2<uint8_t> right, In1<float> mix, Out2<int64_t> places, Out2<float> scores,
                        Out2<uint8_t> are_right, Out2<float> seen, int threads) {
    const size_t n = margin.shape(0), few = margin.shape(1), keep = scores.shape(1), shown = places.shape(1);
    for (const In2<float> *table : {&name, &centroid, &block, &neighbors, &log_positives}) check_shape(*table, n, few);
    check_shape(right, n, few);
    require(mix.size() == 4, "a mix has four numbers");
    require(shown <= keep && keep <= few && scores.shape(0) == n, "no more candidates than there are can be the best");
    require(are_right.shape(0) == n && are_right.shape(1) == keep && places.shape(0) == n && seen.shape(0) == n &&
                seen.shape(1) == 4 * shown,
            "results must have the shape of the scores, or of the places");
    WithoutGil release;
    const ScoreTerms terms{margin.data(), name.data(), centroid.data(), block.data(), neighbors.data(), right.data(),
                           static_cast<int64_t>(n), static_cast<int64_t>(few)};
    const BestCandidates out{static_cast<int64_t>(keep), static_cast<int64_t>(shown), places.data(), scores.data(), are_right.data(), seen.data()};
    best_candidates(terms, log_positives.data(), {mix.data()[0], mix.data()[1], mix.data()[2], mix.data()[3]}, out, threads);
}

void best_first(In2<float> scores, Out2<int64_t> out, int threads) {
    require(out.shape(0) == scores.shape(0) && out.shape(1) == scores.shape(1), "out must have the shape of the scores");
    WithoutGil release;
    order_of_scores(scores.data(), static_cast<int64_t>(scores.shape(0)), static_cast<int64_t>(scores.shape(1)), out.data(), threads);
}

void check_labels(const In2<int64_t> &labels, int64_t n_labels) {
    const std::span<const int64_t> all{labels.data(), labels.size()};
    require(std::ranges::all_of(all, [&](int64_t label) { return label >= -1 && label < n_labels; }), "labels must be label numbers, or -1");
}

void block_weights(I64 indptr, I32 blocks, int64_t n_blocks, In2<int32_t> visited, In2<float> weights, In2<int64_t> labels,
                   Out2<float> out, int threads) {
    WithoutGil release;
    const CsrView blocks_of = checked_csr("blocks of labels", indptr, blocks, n_blocks);
    check_labels(labels, blocks_of.n_rows);
    require(visited.shape(0) == labels.shape(0) && weights.shape(0) == labels.shape(0) && weights.shape(1) == visited.shape(1),
            "visited blocks and their weights must be (rows, blocks)");
    require(out.shape(0) == labels.shape(0) && out.shape(1) == labels.shape(1), "out must have the shape of the labels");
    const std::span<const int32_t> all{visited.data(), visited.size()};
    require(std::ranges::all_of(all, [&](int32_t block) { return block >= -1 && block < n_blocks; }), "blocks must be block numbers, or -1");
    listed_weights(blocks_of, static_cast<int64_t>(labels.shape(0)), visited.data(), weights.data(),
                   static_cast<int64_t>(visited.shape(1)), labels.data(), static_cast<int64_t>(labels.shape(1)), out.data(), threads);
}

void right_labels(I64 indptr, I32 labels_of, int64_t n_labels, In2<int64_t> labels, Out2<uint8_t> out, int threads) {
    WithoutGil release;
    const CsrView of_rows = checked_csr("labels of rows", indptr, labels_of, n_labels, Order::ascending);
    check_labels(labels, n_labels);
    require(static_cast<int64_t>(labels.shape(0)) == of_rows.n_rows, "one row of labels per row is needed");
    require(out.shape(0) == labels.shape(0) && out.shape(1) == labels.shape(1), "out must have the shape of the labels");
    has_labels(of_rows, labels.data(), static_cast<int64_t>(labels.shape(1)), out.data(), threads);
}

} // namespace

void bind_held_out(nb::module_ &m) {
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("logistic_weights", &logistic_weights, exact("features"), exact("right"), exact("counts"), exact("start"), exact("lower"),
          nb::arg("shrinkage"), nb::arg("tol"), nb::arg("threads"));
    m.def("order_weights", &order_weights, exact("features"), exact("side"), exact("usual"), exact("lower"), nb::arg("pull"),
          nb::arg("tol"), nb::arg("threads"));
    m.def("mix_hits", &mix_hits, exact("margin"), exact("name"), exact("centroid"), exact("block"), exact("neighbors"),
          exact("right"), exact("mixes"), exact("out"), nb::arg("threads"));
    m.def("block_weights", &block_weights, exact("indptr"), exact("blocks"), nb::arg("n_blocks"), exact("visited"), exact("weights"),
          exact("labels"), exact("out"), nb::arg("threads"));
    m.def("right_labels", &right_labels, exact("indptr"), exact("labels_of"), nb::arg("n_labels"), exact("labels"), exact("out"),
          nb::arg("threads"));
    m.def("best_candidates", &best_candidates_py, exact("margin"), exact("name"), exact("centroid"), exact("block"),
          exact("neighbors"), exact("log_positives"), exact("right"), exact("mix"), exact("places"), exact("scores"), exact("are_right"),
          exact("seen"), nb::arg("threads"));
    m.def("best_first", &best_first, exact("scores"), exact("out"), nb::arg("threads"));
}

} // namespace blockxmc
