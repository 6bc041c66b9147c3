#include "bindings.hpp"
#include "dual_cd_lanes.hpp"

namespace blockxmc {

namespace {

nb::tuple train(In1<int64_t> x_indptr, In1<int32_t> x_indices, In1<float> x_data, int64_t n_features,
                In1<int64_t> p_indptr, In1<int32_t> p_indices, std::optional<In1<int64_t>> r_indptr,
                std::optional<In1<int32_t>> r_indices, double C, double lam, double bias, double tol,
                int64_t max_rounds, int64_t max_passes, double prune, uint64_t seed, int threads,
                Out1<int64_t> progress) {
    const CsrView X = checked_csr("X", x_indptr, x_indices, x_data, n_features, Order::ascending);
    const CsrView positives = checked_csr("positives", p_indptr, p_indices, X.n_rows, Order::ascending);
    require(r_indptr.has_value() == r_indices.has_value(), "rows: give both arrays, or leave both out");
    std::optional<CsrView> subsets;
    if (r_indptr) {
        subsets = checked_csr("rows", *r_indptr, *r_indices, X.n_rows, Order::ascending);
        require(subsets->n_rows == positives.n_rows, "rows and positives differ in labels");
    }
    require(C > 0 && lam >= 0 && std::isfinite(bias), "C must be positive, lam 0 or more, and bias finite");
    const Watch watch = checked_watch(progress);
    const CdOptions options{C, lam, bias, tol, max_rounds, max_passes, prune, seed};
    std::vector<int64_t> indptr(1, 0), rounds;
    std::vector<int32_t> features;
    std::vector<float> weights, biases;
    std::vector<uint8_t> certified;
    {
        WithoutGil unlocked;
        for (CdLabel &label : dual_cd(X, positives, subsets ? &*subsets : nullptr, options, threads, watch)) {
            features.insert(features.end(), label.features.begin(), label.features.end());
            weights.insert(weights.end(), label.weights.begin(), label.weights.end());
            indptr.push_back(static_cast<int64_t>(features.size()));
            biases.push_back(label.bias);
            rounds.push_back(label.rounds);
            certified.push_back(label.certified);
        }
    }
    return nb::make_tuple(to_numpy(std::move(indptr)), to_numpy(std::move(features)), to_numpy(std::move(weights)),
                          to_numpy(std::move(biases)), to_numpy(std::move(rounds)),
                          to_numpy(std::move(certified)));
}

} // namespace

void bind_dual_cd(nb::module_ &m) {
    m.def("dual_cd", &train, nb::arg("x_indptr").noconvert(), nb::arg("x_indices").noconvert(),
          nb::arg("x_data").noconvert(), nb::arg("n_features"), nb::arg("p_indptr").noconvert(),
          nb::arg("p_indices").noconvert(), nb::arg("r_indptr").noconvert().none(),
          nb::arg("r_indices").noconvert().none(), nb::kw_only(), nb::arg("C"), nb::arg("lam"), nb::arg("bias"),
          nb::arg("tol"), nb::arg("max_rounds"), nb::arg("max_passes"), nb::arg("prune"), nb::arg("seed"),
          nb::arg("threads"), nb::arg("progress").noconvert());
}

} // namespace blockxmc
