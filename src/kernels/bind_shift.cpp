#include <cmath>

#include "bindings.hpp"
#include "shift.hpp"

namespace blockxmc {

namespace {

bool all_finite(const In1<float> &values, size_t size) {
    return values.size() == size && std::all_of(values.data(), values.data() + size, [](float v) { return std::isfinite(v); });
}

nb::tuple shift_one_vs_all(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features,
                           In1<int64_t> old_indptr, In1<int32_t> old_indices, In1<float> old_data, In1<float> old_bias,
                           In1<int64_t> lesson_indptr, In1<int32_t> lesson_rows, In1<float> signs, In1<float> products,
                           In1<float> costs, double C, double tol, double bias, double prune, int threads, Out1<int64_t> progress) {
    require(C > 0 && std::isfinite(C) && tol > 0 && std::isfinite(bias) && prune >= 0, "C and tol must be positive, prune 0 or more");
    require(n_features < INT32_MAX, "n_features is out of range"); // the bias becomes one feature more
    const Watch watch = checked_watch(progress);
    SparseWeights out;
    {
        WithoutGil release;
        const CsrView x = checked_csr("X", indptr, indices, data, n_features);
        const CsrView old = checked_csr("old weights", old_indptr, old_indices, old_data, n_features, Order::ascending);
        const CsrView lessons = checked_csr("lessons", lesson_indptr, lesson_rows, x.n_rows);
        require(lessons.n_rows == old.n_rows, "one list of lessons per label is needed");
        require(all_finite(old_bias, static_cast<size_t>(old.n_rows)), "one finite bias per label is needed");
        for (const In1<float> *of_lessons : {&signs, &products, &costs})
            require(all_finite(*of_lessons, lesson_rows.size()), "one finite sign, product and cost per lesson is needed");
        require(std::all_of(costs.data(), costs.data() + costs.size(), [](float cost) { return cost >= 0; }), "costs must be 0 or more");
        Shift problems(x, static_cast<float>(bias), C, tol, static_cast<float>(prune));
        const Lessons given{{lesson_indptr.data(), lesson_rows.data()}, signs.data(), products.data(), costs.data()};
        out = problems.learn(old, {old_bias.data(), old_bias.size()}, given, threads, watch);
    }
    return nb::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.indices)), to_numpy(std::move(out.data)),
                          to_numpy(std::move(out.bias)));
}

} // namespace

void bind_shift(nb::module_ &m) {
    m.def("shift_one_vs_all", &shift_one_vs_all, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("old_indptr").noconvert(), nb::arg("old_indices").noconvert(),
          nb::arg("old_data").noconvert(), nb::arg("old_bias").noconvert(), nb::arg("lesson_indptr").noconvert(),
          nb::arg("lesson_rows").noconvert(), nb::arg("signs").noconvert(), nb::arg("products").noconvert(),
          nb::arg("costs").noconvert(), nb::kw_only(), nb::arg("C"), nb::arg("tol"), nb::arg("bias"), nb::arg("prune"),
          nb::arg("threads"), nb::arg("progress").noconvert());
}

} // namespace blockxmc
