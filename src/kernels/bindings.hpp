// Shared vocabulary of the binding files: array types that never convert silently, and the list of bind functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

namespace nb = nanobind;

// Read-only inputs are const (joblib hands out read-only memory maps) and C-contiguous; pass them with .noconvert().
template <typename T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Hands a vector to NumPy without a copy.
template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> &&values) {
    auto *owner = new std::vector<T>(std::move(values));
    nb::capsule guard(owner, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return {owner->data(), {owner->size()}, guard};
}

void bind_parse(nb::module_ &m);
void bind_partition(nb::module_ &m);
void bind_newton(nb::module_ &m);
void bind_predict(nb::module_ &m);
void bind_spmm(nb::module_ &m);
void bind_frank_wolfe(nb::module_ &m);
void bind_dual_cd(nb::module_ &m);
void bind_fastxml(nb::module_ &m);
void bind_filters(nb::module_ &m);
