// What all binding files share: array types that never convert silently, and the list of bind functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "threads.hpp"

namespace blockxmc {

namespace nb = nanobind;

// Inputs are const (joblib hands out read-only memory maps) and C-contiguous; pass them with .noconvert().
template <typename T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Numpy1 = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

using I32 = In1<int32_t>;
using I64 = In1<int64_t>;
using U32 = In1<uint32_t>;
using F32 = In1<float>;

// Releases the GIL for as long as it lives. Before Python 3.14, a thread that asks for the GIL while the interpreter exits is
// ended by force, which C++ turns into an abort: a daemon thread waits here for the end of the process instead. (A thread
// that waits for the GIL already when the exit begins cannot be helped from here.) The exit is told by an exit handler: the
// stable ABI of Python 3.12 has no function that tells.
class WithoutGil {
  public:
    WithoutGil() : exiting_(exiting()), state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;
    ~WithoutGil() {
        while (!exiting_ && exiting()) std::this_thread::sleep_for(std::chrono::seconds(1));
        PyEval_RestoreThread(state_);
    }

    static void begin_exit() { flag().store(true); }

  private:
    static std::atomic<bool> &flag() {
        static std::atomic<bool> set = false;
        return set;
    }
    static bool exiting() { return flag().load(); }

    const bool exiting_; // before: then this is the thread that exits
    PyThreadState *const state_;
};

template <typename T>
std::span<const T> span_of(const In1<T> &array) {
    return {array.data(), array.size()};
}

inline CsrView checked_csr(const char *name, const I64 &indptr, const I32 &indices, int64_t n_cols, Order order = Order::any) {
    return checked_csr(name, span_of(indptr), span_of(indices), n_cols, order);
}

inline CsrView checked_csr(const char *name, const I64 &indptr, const I32 &indices, const F32 &data, int64_t n_cols,
                           Order order = Order::any) {
    return checked_csr(name, span_of(indptr), span_of(indices), span_of(data), n_cols, order);
}

inline CsrView checked_rows(const I64 &indptr, const I32 &indices, const F32 &data, int64_t n_features) {
    return checked_rows(span_of(indptr), span_of(indices), span_of(data), n_features);
}

inline Watch checked_watch(const Out1<int64_t> &progress) {
    require(progress.size() == 2, "progress must hold two numbers");
    return Watch(progress.data());
}

inline Watch checked_watch(const std::optional<Out1<int64_t>> &progress) {
    return progress ? checked_watch(*progress) : Watch();
}

// Hands a vector to NumPy without a copy. The vector has an owner at every moment, even when the capsule cannot be made.
template <typename T, typename Allocator>
Numpy1<T> to_numpy(std::vector<T, Allocator> &&values) {
    using Vector = std::vector<T, Allocator>;
    auto owner = std::make_unique<Vector>(std::move(values));
    nb::capsule guard(owner.get(), [](void *p) noexcept { delete static_cast<Vector *>(p); });
    Vector *kept = owner.release();
    return {kept->data(), {kept->size()}, guard};
}

void bind_parse(nb::module_ &m);
void bind_partition(nb::module_ &m);
void bind_shift(nb::module_ &m);
void bind_newton(nb::module_ &m);
void bind_predict(nb::module_ &m);
void bind_predict_arrays(nb::module_ &m);
void bind_merge_rows(nb::module_ &m);
void bind_spmm(nb::module_ &m);
void bind_frank_wolfe(nb::module_ &m);
void bind_dual_cd(nb::module_ &m);
void bind_fastxml(nb::module_ &m);
void bind_held_out(nb::module_ &m);
void bind_filters(nb::module_ &m);
void bind_rows(nb::module_ &m);
void bind_words(nb::module_ &m);

} // namespace blockxmc
