#include "bindings.hpp"
#include "ridge_cg.hpp"
#include "spmm.hpp"

namespace blockxmc {

namespace {

void multiply(I64 indptr, I32 indices, F32 data, In2<float> B, Out2<float> out, int threads) {
    const CsrView X = checked_csr("X", indptr, indices, data, static_cast<int64_t>(B.shape(0)));
    require(static_cast<int64_t>(out.shape(0)) == X.n_rows && out.shape(1) == B.shape(1), "spmm: out has the wrong shape");
    WithoutGil release;
    spmm::multiply(X, B.data(), static_cast<int64_t>(B.shape(1)), out.data(), threads);
}

void ridge(I64 indptr, I32 indices, F32 data, I64 t_indptr, I32 t_indices, F32 t_data, F32 s,
           float lam, In2<float> T, Out2<float> W, Out1<int32_t> steps, double tol, int max_steps, int threads,
           Out1<int64_t> progress) {
    const int64_t n = static_cast<int64_t>(T.shape(0)), d = static_cast<int64_t>(W.shape(0));
    const CsrView X = checked_csr("X", indptr, indices, data, d);
    const CsrView Xt = checked_csr("the transpose of X", t_indptr, t_indices, t_data, n);
    require(X.n_rows == n && Xt.n_rows == d, "ridge_cg: X, its transpose, T and W do not fit together");
    const size_t k = s.shape(0);
    require(T.shape(1) == k && W.shape(1) == k && steps.shape(0) == k, "ridge_cg: T, W and s must have as many columns");
    require(lam > 0, "ridge_cg: lam must be positive");
    const Watch watch = checked_watch(progress);
    WithoutGil release;
    std::vector<float> squares(d);
    for (int64_t f = 0; f < d; ++f) {
        double sum = 0;
        for (int64_t e = Xt.indptr[f]; e < Xt.indptr[f + 1]; ++e) sum += static_cast<double>(Xt.data[e]) * Xt.data[e];
        squares[f] = static_cast<float>(sum);
    }
    const ridge_cg::Problem problem{X,        Xt,  squares.data(), s.data(), T.data(), W.data(), steps.data(),
                                    int64_t(k), lam, tol,            max_steps};
    ridge_cg::solve_all(problem, threads, watch);
}

} // namespace

void bind_spmm(nb::module_ &m) {
    using namespace nb::literals;
    m.def("spmm", &multiply, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(), "B"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a, "out = X @ B for a CSR matrix X.");
    m.def("ridge_cg", &ridge, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(),
          "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "t_data"_a.noconvert(), "s"_a.noconvert(), "lam"_a,
          "T"_a.noconvert(), "W"_a.noconvert(), "steps"_a.noconvert(), "tol"_a, "max_steps"_a, "threads"_a,
          "progress"_a.noconvert(), "Solve (s_c X^T X + lam I) w_c = X^T t_c from W, in place.");
}

} // namespace blockxmc
