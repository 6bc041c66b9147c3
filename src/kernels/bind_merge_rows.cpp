#include "bindings.hpp"
#include "merge_rows.hpp"

namespace blockxmc {

namespace {

auto to_arrays(SparseRows &&rows) {
    return std::make_tuple(to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)), to_numpy(std::move(rows.data)));
}

auto large_or_known_py(I64 indptr, I32 indices, F32 data, I64 known_indptr, I32 known_indices, int64_t n_columns, float least,
                       int threads) {
    SparseRows out;
    {
        WithoutGil release;
        const CsrView a = checked_csr("A", indptr, indices, data, n_columns, Order::ascending);
        const CsrView known = checked_csr("known", known_indptr, known_indices, n_columns, Order::ascending);
        require(known.n_rows == a.n_rows, "large_or_known: the matrices must have as many rows");
        out = large_or_known(a, known, least, threads);
    }
    return to_arrays(std::move(out));
}

auto weighted_sum_py(I64 indptr, I32 indices, F32 data, I64 other_indptr, I32 other_indices, F32 other_data,
                     float share, int64_t n_columns, int threads) {
    SparseRows out;
    {
        WithoutGil release;
        const CsrView a = checked_csr("A", indptr, indices, data, n_columns, Order::ascending);
        const CsrView b = checked_csr("B", other_indptr, other_indices, other_data, n_columns, Order::ascending);
        require(b.n_rows == a.n_rows, "weighted_sum: the matrices must have as many rows");
        out = weighted_sum(a, b, share, threads);
    }
    return to_arrays(std::move(out));
}

} // namespace

void bind_merge_rows(nb::module_ &m) {
    using namespace nb::literals;
    m.def("large_or_known", &large_or_known_py, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(),
          "known_indptr"_a.noconvert(), "known_indices"_a.noconvert(), "n_columns"_a, "least"_a, "threads"_a,
          "Rows of A at unit length, without parts below `least` that are not known: CSR arrays.");
    m.def("weighted_sum", &weighted_sum_py, "indptr"_a.noconvert(), "indices"_a.noconvert(), "data"_a.noconvert(),
          "other_indptr"_a.noconvert(), "other_indices"_a.noconvert(), "other_data"_a.noconvert(),
          "share"_a, "n_columns"_a, "threads"_a, "A + share * B: CSR arrays.");
}

} // namespace blockxmc
