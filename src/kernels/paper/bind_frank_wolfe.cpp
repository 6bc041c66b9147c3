#include "bindings.hpp"
#include "frank_wolfe.hpp"

namespace blockxmc {

namespace {

nb::tuple pd_sparse(In1<int64_t> x_indptr, In1<int32_t> x_indices, In1<float> x_data, int64_t n_features,
                    In1<int64_t> y_indptr, In1<int32_t> y_indices, int64_t n_labels, In1<uint8_t> held_out, double C,
                    double lam, double tol, int64_t max_iter, int64_t patience, bool importance_sampling,
                    bool post_solve, int64_t direct_bytes, uint64_t seed, Out1<int64_t> progress) {
    const CsrView X = checked_csr("X", x_indptr, x_indices, x_data, n_features, Order::ascending);
    const CsrView Y = checked_csr("Y", y_indptr, y_indices, n_labels, Order::ascending);
    require(X.n_rows == Y.n_rows && static_cast<int64_t>(held_out.shape(0)) == X.n_rows,
            "X, Y and held_out differ in their number of rows");
    require(C > 0 && lam >= 0, "C must be positive and lam 0 or more");
    const Watch watch = checked_watch(progress);
    const PdOptions options{C, lam, tol, max_iter, patience, importance_sampling, post_solve, direct_bytes, seed};
    PdResult result;
    {
        WithoutGil unlocked;
        result = PdSparse(X, Y, held_out.data(), options, watch).run();
    }
    return nb::make_tuple(to_numpy(std::move(result.indptr)), to_numpy(std::move(result.labels)),
                          to_numpy(std::move(result.weights)), to_numpy(std::move(result.gap_trace)),
                          to_numpy(std::move(result.held_out_trace)), result.gap, result.primal);
}

// Only tests call this: they compare the projection with one found by a general solver in SciPy.
nb::tuple project_bisimplex(In1<double> b, In1<double> c, double C) {
    std::vector<double> x(b.data(), b.data() + b.shape(0)), y(c.data(), c.data() + c.shape(0));
    BisimplexProjection()(x, y, C);
    return nb::make_tuple(to_numpy(std::move(x)), to_numpy(std::move(y)));
}

} // namespace

void bind_frank_wolfe(nb::module_ &m) {
    m.def("pd_sparse", &pd_sparse, nb::arg("x_indptr").noconvert(), nb::arg("x_indices").noconvert(),
          nb::arg("x_data").noconvert(), nb::arg("n_features"), nb::arg("y_indptr").noconvert(),
          nb::arg("y_indices").noconvert(), nb::arg("n_labels"), nb::arg("held_out").noconvert(), nb::kw_only(),
          nb::arg("C"), nb::arg("lam"), nb::arg("tol"), nb::arg("max_iter"), nb::arg("patience"),
          nb::arg("importance_sampling"), nb::arg("post_solve"), nb::arg("direct_bytes"), nb::arg("seed"),
          nb::arg("progress").noconvert());
    m.def("project_bisimplex", &project_bisimplex, nb::arg("b").noconvert(), nb::arg("c").noconvert(), nb::arg("C"),
          "For tests only: the projection inside pd_sparse, to be compared with a reference.");
}

} // namespace blockxmc
