#include <algorithm>
#include <tuple>

#ifdef __GLIBC__ // which a header of the C++ library has defined
#include <malloc.h>
#endif

#include "bindings.hpp"
#include "large.hpp"

namespace blockxmc {

namespace {

// The listed rows, in this order, copied. Of X only these rows are looked at, since few
// may be wanted of many; column numbers are copied as they are.
auto copy_rows(I64 indptr, I32 indices, F32 data, I64 rows, int threads) {
    std::vector<int64_t> starts(1, 0);
    Unset<int32_t> columns;
    Unset<float> values;
    {
        WithoutGil release;
        require(indptr.size() > 0 && indices.size() == data.size(), "X: arrays of a CSR matrix are needed");
        const auto n_rows = static_cast<int64_t>(indptr.size()) - 1, n_values = static_cast<int64_t>(indices.size());
        const CsrView X{indptr.data(), indices.data(), data.data(), n_rows, 0};
        starts.reserve(rows.size() + 1);
        for (size_t at = 0; at < rows.size(); ++at) {
            const int64_t i = rows.data()[at];
            require(i >= 0 && i < n_rows, "a row is out of range");
            require(0 <= X.indptr[i] && X.indptr[i] <= X.indptr[i + 1] && X.indptr[i + 1] <= n_values, "X: row pointers must ascend");
            starts.push_back(starts.back() + X.row_size(i));
        }
        columns.resize(starts.back());
        values.resize(starts.back());
        constexpr int64_t at_a_time = 1024;
        const auto n_wanted = static_cast<int64_t>(rows.size());
        parallel_for((n_wanted + at_a_time - 1) / at_a_time, threads, [&](int64_t part, int) {
            for (int64_t at = part * at_a_time; at < std::min((part + 1) * at_a_time, n_wanted); ++at) {
                const int64_t begin = X.indptr[rows.data()[at]], end = X.indptr[rows.data()[at] + 1];
                std::copy(X.indices + begin, X.indices + end, columns.begin() + starts[at]);
                std::copy(X.data + begin, X.data + end, values.begin() + starts[at]);
            }
        });
    }
    return std::make_tuple(to_numpy(std::move(starts)), to_numpy(std::move(columns)), to_numpy(std::move(values)));
}

// The C library usually keeps some of the memory that is freed, which saves page faults; Dask tells it not to.
void keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20); // what it moves up to by itself
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

} // namespace

void bind_rows(nb::module_ &m) {
    m.def("keep_freed_memory", &keep_freed_memory, "Have the C library keep some of the memory that is freed, as it usually does.");
    m.def("copy_rows", &copy_rows, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
          nb::arg("rows").noconvert(), nb::arg("threads"), "Some rows of a CSR matrix: CSR arrays.");
}

} // namespace blockxmc
