#include <stdexcept>

#include "bindings.hpp"
#include "ridge_cg.hpp"
#include "spmm.hpp"

namespace {

using Pointers = In1<int64_t>;
using Indices = In1<int32_t>;
using Values = In1<float>;

// A CSR matrix whose pointers and indices have been checked: nothing outside n_cols can be reached through it.
CsrView checked(const Pointers &indptr, const Indices &indices, const Values &data, int64_t n_cols) {
    const int64_t n_rows = static_cast<int64_t>(indptr.shape(0)) - 1, nnz = static_cast<int64_t>(indices.shape(0));
    const int64_t *pointers = indptr.data();
    if (n_rows < 0 || pointers[0] != 0 || pointers[n_rows] != nnz || static_cast<int64_t>(data.shape(0)) != nnz)
        throw std::invalid_argument("sparse matrix: pointers, indices and values do not fit together");
    for (int64_t i = 0; i < n_rows; ++i)
        if (pointers[i] > pointers[i + 1]) throw std::invalid_argument("sparse matrix: row pointers must not fall");
    for (int64_t e = 0; e < nnz; ++e)
        if (indices.data()[e] < 0 || indices.data()[e] >= n_cols)
            throw std::invalid_argument("sparse matrix: a column index is out of range");
    return {pointers, indices.data(), data.data(), n_rows, n_cols};
}

void require(bool fits, const char *message) {
    if (!fits) throw std::invalid_argument(message);
}

void multiply(Pointers indptr, Indices indices, Values data, In2<float> B, Out2<float> out, int threads) {
    const CsrView X = checked(indptr, indices, data, static_cast<int64_t>(B.shape(0)));
    require(static_cast<int64_t>(out.shape(0)) == X.n_rows && out.shape(1) == B.shape(1), "spmm: out has the wrong shape");
    nb::gil_scoped_release release;
    spmm::multiply(X, B.data(), static_cast<int64_t>(B.shape(1)), out.data(), threads);
}

void ridge(Pointers indptr, Indices indices, Values data, Pointers t_indptr, Indices t_indices, Values t_data, Values s,
           float lam, In2<float> T, Out2<float> W, Out1<int32_t> steps, double tol, int max_steps, int threads,
           Out1<int64_t> progress) {
    const int64_t n = static_cast<int64_t>(T.shape(0)), d = static_cast<int64_t>(W.shape(0));
    const CsrView X = checked(indptr, indices, data, d), Xt = checked(t_indptr, t_indices, t_data, n);
    require(X.n_rows == n && Xt.n_rows == d, "ridge_cg: X, its transpose, T and W do not fit together");
    const size_t k = s.shape(0);
    require(T.shape(1) == k && W.shape(1) == k && steps.shape(0) == k, "ridge_cg: T, W and s must have as many columns");
    require(lam > 0, "ridge_cg: lam must be positive");
    require(progress.shape(0) == 2, "ridge_cg: progress must hold two numbers");
    nb::gil_scoped_release release;
    std::vector<float> squares(d);
    for (int64_t f = 0; f < d; ++f) {
        double sum = 0;
        for (int64_t e = Xt.indptr[f]; e < Xt.indptr[f + 1]; ++e) sum += static_cast<double>(Xt.data[e]) * Xt.data[e];
        squares[f] = static_cast<float>(sum);
    }
    const ridge_cg::Problem problem{X,        Xt,  squares.data(), s.data(), T.data(), W.data(), steps.data(),
                                    int64_t(k), lam, tol,            max_steps};
    ridge_cg::solve_all(problem, threads, Watch(progress.data()));
}

}  // namespace

void bind_spmm(nb::module_ &m) {
    using namespace nb::literals;
    m.def("spmm", &multiply, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(), "B"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a, "out = X @ B for a CSR matrix X.");
    m.def("ridge_cg", &ridge, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(),
          "t_indptr"_a.noconvert(), "t_indices"_a.noconvert(), "t_data"_a.noconvert(), "s"_a.noconvert(), "lam"_a,
          "T"_a.noconvert(), "W"_a.noconvert(), "steps"_a.noconvert(), "tol"_a, "max_steps"_a, "threads"_a,
          "progress"_a.noconvert(), "Solve (s_c X^T X + lam I) w_c = X^T t_c from W, in place.");
}
