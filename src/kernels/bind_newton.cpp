#include <cmath>

#include "bindings.hpp"
#include "nearest_rows.hpp"
#include "newton.hpp"
#include "row_unions.hpp"

namespace blockxmc {

namespace {

// The rows that each label learns from. They are many times more than all else that is checked: all threads look at them.
RowLists checked_members(const In1<int64_t> &indptr, const In1<int32_t> &indices, int64_t n_rows, const RowLists &positives,
                         int64_t n_labels, int threads) {
    require(static_cast<int64_t>(indptr.size()) == n_labels + 1, "one list of rows per label is needed");
    require(are_pointers(span_of(indptr), indices.size()), "members: the row pointers do not match the number of entries");
    const RowLists members{indptr.data(), indices.data()};
    constexpr int64_t kLabels = 64; // per work item
    parallel_for((n_labels + kLabels - 1) / kLabels, threads, [&](int64_t item, int) {
        for (int64_t j = item * kLabels; j < std::min((item + 1) * kLabels, n_labels); ++j) {
            const std::span<const int32_t> own = members[j];
            require(in_range(own, n_rows), "members: a column index is out of range");
            require(std::ranges::adjacent_find(own, std::ranges::greater_equal{}) == own.end(),
                    "members: the indices of a row must be ascending");
            // Each positive is looked up, since members are many times more.
            for (int32_t row : positives[j])
                require(std::ranges::binary_search(own, row), "the positives of a label must be among its rows");
        }
    });
    return members;
}

// Rows x 2: what a row counts as a positive, and as a negative.
const Cost *checked_costs(const In2<float> &costs, int64_t n_rows) {
    static_assert(sizeof(Cost) == 2 * sizeof(float));
    require(static_cast<int64_t>(costs.shape(0)) == n_rows && costs.shape(1) == 2, "costs must be (rows, 2)");
    const std::span<const float> all{costs.data(), costs.size()};
    require(std::ranges::all_of(all, [](float cost) { return cost >= 0 && std::isfinite(cost); }), "costs must be 0 or more");
    return reinterpret_cast<const Cost *>(costs.data());
}

nb::tuple train_one_vs_all(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features,
                           In1<int64_t> positive_indptr, In1<int32_t> positive_indices,
                           std::optional<In1<int64_t>> member_indptr, std::optional<In1<int32_t>> member_indices,
                           std::optional<In2<float>> costs, std::optional<In1<int64_t>> start_indptr,
                           std::optional<In1<int32_t>> start_indices, std::optional<In1<float>> start_data, const std::string &loss, double C, double tol, double bias,
                           double prune, int threads, Out1<int64_t> progress) {
    require(loss == "squared_hinge" || loss == "logistic", "loss must be 'squared_hinge' or 'logistic'");
    require(C > 0 && std::isfinite(C) && tol > 0 && std::isfinite(bias) && prune >= 0, "C and tol must be positive, prune 0 or more");
    require(n_features < INT32_MAX, "n_features is out of range"); // the bias becomes one feature more
    const Watch watch = checked_watch(progress);
    require(member_indptr.has_value() == member_indices.has_value(), "member_indptr and member_indices go together");
    SparseWeights out;
    {
        WithoutGil release;
        const CsrView x = checked_csr("X", indptr, indices, data, n_features);
        const int64_t n_labels = checked_csr("positives", positive_indptr, positive_indices, x.n_rows, Order::ascending).n_rows;
        const RowLists positives{positive_indptr.data(), positive_indices.data()};
        std::optional<RowLists> members;
        if (member_indptr) members = checked_members(*member_indptr, *member_indices, x.n_rows, positives, n_labels, threads);
        std::optional<CsrView> start;
        if (start_indptr) {
            require(loss == "squared_hinge" && start_indices && start_data, "a start needs three arrays and the squared hinge");
            start = checked_csr("start", *start_indptr, *start_indices, *start_data, n_features);
            require(start->n_rows == n_labels, "one start per label is needed");
        }
        const Cost *cost_of_rows = costs ? checked_costs(*costs, x.n_rows) : nullptr;
        const Objective objective{loss == "logistic" ? Loss::logistic : Loss::squared_hinge, C, tol};
        OneVsAll problems(x, static_cast<float>(bias), objective, static_cast<float>(prune), cost_of_rows);
        out = problems.train(n_labels, positives, members, start, threads, watch);
    }
    return nb::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.indices)), to_numpy(std::move(out.data)),
                          to_numpy(std::move(out.bias)));
}

nb::tuple rows_of_labels(In1<int64_t> block_indptr, In1<int32_t> block_rows, int64_t n_rows, In1<int64_t> label_indptr,
                         In1<int32_t> label_blocks, In1<int64_t> own_indptr, In1<int32_t> own_rows, int threads) {
    RowUnions out;
    {
        WithoutGil release;
        const CsrView blocks = checked_csr("blocks", block_indptr, block_rows, n_rows);
        checked_csr("blocks of labels", label_indptr, label_blocks, blocks.n_rows);
        checked_csr("own rows", own_indptr, own_rows, n_rows);
        require(label_indptr.size() == own_indptr.size(), "one list of own rows per label is needed");
        out = unite_rows(static_cast<int64_t>(label_indptr.size()) - 1, n_rows, {label_indptr.data(), label_blocks.data()},
                         {block_indptr.data(), block_rows.data()}, {own_indptr.data(), own_rows.data()}, threads);
    }
    return nb::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.rows)));
}

nb::tuple nearest_rows(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features, In1<int64_t> sum_indptr,
                       In1<int32_t> sum_indices, In1<float> sum_data, In1<int64_t> own_indptr, In1<int32_t> own_rows,
                       In1<int64_t> row_indptr, In1<int32_t> row_indices, In1<uint8_t> cut, int64_t most, int threads) {
    RowUnions out;
    {
        WithoutGil release;
        const CsrView x = checked_csr("X", indptr, indices, data, n_features);
        const CsrView sums = checked_csr("sums", sum_indptr, sum_indices, sum_data, n_features, Order::ascending);
        const CsrView own = checked_csr("own rows", own_indptr, own_rows, x.n_rows, Order::ascending);
        const CsrView rows = checked_csr("rows", row_indptr, row_indices, x.n_rows, Order::ascending);
        require(own.n_rows == sums.n_rows && rows.n_rows == sums.n_rows, "one list of rows per label is needed");
        require(static_cast<int64_t>(cut.size()) == sums.n_rows && most >= 0, "one mark per label is needed");
        for (int64_t j = 0; j < sums.n_rows; ++j) {
            if (!cut.data()[j]) continue;
            require(rows.row_size(j) > most && own.row_size(j) <= most, "a label that is cut has too few rows, or too many of its own");
            const auto begin = rows.indices + rows.indptr[j], end = rows.indices + rows.indptr[j + 1];
            require(std::includes(begin, end, own.indices + own.indptr[j], own.indices + own.indptr[j + 1]), "own rows must be among the rows");
        }
        NearestRows nearest(x, sums, {own.indptr, own.indices}, {rows.indptr, rows.indices});
        out = nearest.find(cut.data(), most, threads);
    }
    return nb::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.rows)));
}

} // namespace

void bind_newton(nb::module_ &m) {
    m.def("train_one_vs_all", &train_one_vs_all, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("positive_indptr").noconvert(),
          nb::arg("positive_indices").noconvert(), nb::arg("member_indptr").noconvert().none(),
          nb::arg("member_indices").noconvert().none(), nb::kw_only(), nb::arg("costs").noconvert().none() = nb::none(), nb::arg("start_indptr").noconvert().none() = nb::none(),
          nb::arg("start_indices").noconvert().none() = nb::none(), nb::arg("start_data").noconvert().none() = nb::none(), nb::arg("loss"), nb::arg("C"), nb::arg("tol"),
          nb::arg("bias"), nb::arg("prune"), nb::arg("threads"), nb::arg("progress").noconvert());
    m.def("rows_of_labels", &rows_of_labels, nb::arg("block_indptr").noconvert(), nb::arg("block_rows").noconvert(),
          nb::arg("n_rows"), nb::arg("label_indptr").noconvert(), nb::arg("label_blocks").noconvert(),
          nb::arg("own_indptr").noconvert(), nb::arg("own_rows").noconvert(), nb::arg("threads"));
    m.def("nearest_rows", &nearest_rows, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
          nb::arg("n_features"), nb::arg("sum_indptr").noconvert(), nb::arg("sum_indices").noconvert(), nb::arg("sum_data").noconvert(),
          nb::arg("own_indptr").noconvert(), nb::arg("own_rows").noconvert(), nb::arg("row_indptr").noconvert(),
          nb::arg("row_indices").noconvert(), nb::arg("cut").noconvert(), nb::arg("most"), nb::arg("threads"));
}

} // namespace blockxmc
