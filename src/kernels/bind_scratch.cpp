#include <algorithm>
#include <tuple>

#include "bindings.hpp"
#include "scratch.hpp"

namespace blockxmc {

namespace {

// The listed rows, in this order, copied to arrays that may lie in scratch files. Of X only these rows are looked at, since few
// may be wanted of many; column numbers are copied as they are.
auto copy_rows(I64 indptr, I32 indices, F32 data, I64 rows) {
    std::vector<int64_t> starts(1, 0);
    Large<int32_t> columns;
    Large<float> values;
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
        columns.reserve(starts.back());
        values.reserve(starts.back());
        for (size_t at = 0; at < rows.size(); ++at) {
            const int64_t i = rows.data()[at];
            columns.insert(columns.end(), X.indices + X.indptr[i], X.indices + X.indptr[i + 1]);
            values.insert(values.end(), X.data + X.indptr[i], X.data + X.indptr[i + 1]);
        }
    }
    return std::make_tuple(to_numpy(std::move(starts)), to_numpy(std::move(columns)), to_numpy(std::move(values)));
}

auto held() {
    const Scratch::Held now = Scratch::all().held();
    return std::make_tuple(now.in_memory, now.most, now.in_files);
}

} // namespace

void bind_scratch(nb::module_ &m) {
    m.def("limit_scratch", [](const std::string &folder, int64_t budget) { Scratch::all().limit(folder, budget); }, nb::arg("folder"),
          nb::arg("budget"), "Large arrays beyond so many bytes go to files in the folder; an empty name: none do.");
    m.def("held_scratch", &held, "Bytes of large arrays: in memory, the most in memory since the last limit, in files.");
    m.def("copy_rows", &copy_rows, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
          nb::arg("rows").noconvert(), "Some rows of a CSR matrix: CSR arrays.");
}

} // namespace blockxmc
