// What kernels refuse, and how they say it. After these checks a kernel may follow every index it reads.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "csr.hpp"

namespace blockxmc {

// A caller passed arrays or numbers that do not fit together: ValueError in Python.
inline void require(bool holds, const char *message) {
    if (!holds) throw std::invalid_argument(message);
}

// A user passed a row that cannot be scored: BlockXMCError in Python.
struct BadInput : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

inline void require_input(bool holds, const char *message) {
    if (!holds) throw BadInput(message);
}

// The arrays of a stored model contradict each other: ModelFormatError in Python.
struct DamagedModel : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void require_intact(bool holds, const char *what) {
    if (!holds) throw DamagedModel(std::string("the model is damaged: ") + what + "; restore it or train again");
}

// Pointers start at 0, ascend and end at n_entries. They are only compared: a difference of hostile ones could overflow.
inline bool are_pointers(std::span<const int64_t> ptr, size_t n_entries) {
    if (ptr.empty() || ptr.front() != 0 || static_cast<uint64_t>(ptr.back()) != n_entries) return false;
    bool ascending = true;
    for (size_t i = 1; i < ptr.size(); ++i) ascending &= ptr[i - 1] <= ptr[i];
    return ascending;
}

inline bool in_range(std::span<const int32_t> ids, int64_t limit) {
    const auto end = static_cast<uint64_t>(limit < 0 ? 0 : limit);
    const auto bound = static_cast<uint32_t>(end < 0x80000000u ? end : 0x80000000u);
    uint32_t outside = 0;
    for (const int32_t id : ids) outside |= static_cast<uint32_t>(id) >= bound; // a negative number is a large one
    return outside == 0;
}

// By their bits, so that the loop stays simple enough for vector instructions.
inline bool all_finite(std::span<const float> values) {
    constexpr uint32_t exponent = 0x7F800000u;
    uint32_t wrong = 0;
    for (const float &value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        wrong |= (bits & exponent) == exponent;
    }
    return wrong == 0;
}

inline bool rows_ascend(std::span<const int64_t> indptr, std::span<const int32_t> indices) {
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
        for (int64_t k = indptr[i] + 1; k < indptr[i + 1]; ++k)
            if (indices[k - 1] >= indices[k]) return false;
    return true;
}

// ---- sparse matrices ----
enum class Order { any, ascending }; // of the columns in a row

// The check of every CSR matrix that a kernel takes; `name` is how the message calls it.
inline CsrView checked_csr(const char *name, std::span<const int64_t> indptr, std::span<const int32_t> indices, int64_t n_cols,
                           Order order = Order::any) {
    const auto demand = [&](bool holds, const char *what) {
        if (!holds) throw std::invalid_argument(std::string(name) + ": " + what);
    };
    demand(n_cols >= 0 && n_cols <= INT32_MAX, "the number of columns is out of range");
    demand(are_pointers(indptr, indices.size()), "the row pointers do not match the number of entries");
    demand(in_range(indices, n_cols), "a column index is out of range");
    demand(order == Order::any || rows_ascend(indptr, indices), "the indices of a row must be ascending");
    return {indptr.data(), indices.data(), nullptr, static_cast<int64_t>(indptr.size()) - 1, n_cols};
}

inline CsrView checked_csr(const char *name, std::span<const int64_t> indptr, std::span<const int32_t> indices,
                           std::span<const float> data, int64_t n_cols, Order order = Order::any) {
    CsrView view = checked_csr(name, indptr, indices, n_cols, order);
    if (data.size() != indices.size()) throw std::invalid_argument(std::string(name) + ": indices and values must have the same length");
    view.data = data.data();
    return view;
}

// ---- rows to be scored ----
constexpr const char *needs_finite = "a feature value is NaN or infinite: replace it, or leave the feature out";
constexpr const char *needs_known_feature = "a feature index is out of range: it must be 0 or more, and below the number of features";

// Answers are padded to k labels. A k far beyond the number of labels would only ask for memory.
inline void require_k(int64_t k, int64_t n_labels) {
    constexpr int64_t always_allowed = 65536;
    require_input(k >= 1, "k must be at least 1");
    require_input(k <= always_allowed || k <= n_labels, "k is too large: there are not that many labels");
}

inline RowView checked_row(std::span<const int32_t> indices, std::span<const float> values, int64_t n_features) {
    require(indices.size() == values.size(), "indices and values must have the same length");
    require_input(in_range(indices, n_features), needs_known_feature);
    require_input(all_finite(values), needs_finite);
    return {indices.data(), values.data(), static_cast<int64_t>(indices.size())};
}

// Rows to be scored. Their arrays may be longer than the row pointers say, as SciPy allows.
inline CsrView checked_rows(std::span<const int64_t> indptr, std::span<const int32_t> indices, std::span<const float> data,
                            int64_t n_features) {
    require(!indptr.empty() && indptr.back() >= 0 && static_cast<uint64_t>(indptr.back()) <= indices.size(),
            "the row pointers do not match the number of entries");
    const auto size = static_cast<size_t>(indptr.back());
    require(are_pointers(indptr, size), "the row pointers must ascend from 0");
    require(indices.size() == data.size(), "indices and values must have the same length");
    require_input(in_range(indices.first(size), n_features), needs_known_feature);
    require_input(all_finite(data.first(size)), needs_finite);
    return {indptr.data(), indices.data(), data.data(), static_cast<int64_t>(indptr.size()) - 1, n_features};
}

} // namespace blockxmc
