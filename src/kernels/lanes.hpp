// Sixteen binary problems side by side: vectors are stored feature-major with one float per problem ("lane"), so one
// pass over the rows of X serves sixteen labels and every inner step is one wide vector operation.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "csr.hpp"
#include "large.hpp"
#include "simd.hpp"

namespace blockxmc {

constexpr int kLanes = 16;
typedef float FloatLanes __attribute__((vector_size(64)));
typedef float EightLanes __attribute__((vector_size(32)));
typedef double DoubleLanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));

struct alignas(64) Lanes {
    FloatLanes v;
    // A vector and its elements may alias: GCC and Clang treat them as one type.
    float &operator[](int lane) { return reinterpret_cast<float *>(&v)[lane]; }
    float operator[](int lane) const { return reinterpret_cast<const float *>(&v)[lane]; }
};
using LaneVector = Large<Lanes>;
using LaneMask = uint16_t; // one bit per lane

// One number of a sparse vector.
struct Weight {
    int32_t feature;
    float value;
};

struct LaneSums {
    double v[kLanes] = {};
    double &operator[](int lane) { return v[lane]; }
    double operator[](int lane) const { return v[lane]; }
};

// Sums of many float vectors: float within short runs, double across them.
struct FloatSums {
    FloatLanes run = {};
    int length = 0;
    LaneSums total;

    BLOCKXMC_INLINE void add(const FloatLanes &value) {
        run += value;
        if (++length == 16) flush();
    }
    BLOCKXMC_INLINE void finish(LaneSums &out) {
        flush();
        out = total;
    }

  private:
    BLOCKXMC_INLINE void flush() {
        for (int lane = 0; lane < kLanes; ++lane) total[lane] += run[lane];
        run = FloatLanes{};
        length = 0;
    }
};

// What the loss of a row counts where it is a positive of a label, and where it is not.
struct Cost {
    float positive, negative;
};

// The shared rows: X plus, where bias != 0, one more feature (number n_cols) whose value is `bias` in every row; `costs` has
// one number per row, or none where each counts 1; `uneven` rows differ very much in length (lane_descent.hpp).
struct Rows {
    CsrView x;
    float bias;
    const Cost *costs = nullptr;
    bool uneven = false;
    Cost cost(int64_t i, float C = 1) const { return costs ? Cost{C * costs[i].positive, C * costs[i].negative} : Cost{C, C}; }
    int64_t n_features() const { return x.n_cols + (bias != 0 ? 1 : 0); }
};

// X by columns: rows and values of each feature.
struct Columns {
    // Replaces the columns held before.
    void take(const Rows &rows) {
        // Two places ahead: once filled, start[f + 1] has moved to the end of column f, where it belongs.
        start.assign(rows.x.n_cols + 2, 0);
        row.resize(rows.x.nnz());
        value.resize(rows.x.nnz());
        for (int64_t k = 0; k < rows.x.nnz(); ++k) ++start[rows.x.indices[k] + 2];
        for (int64_t f = 0; f < rows.x.n_cols; ++f) start[f + 2] += start[f + 1];
        for (int64_t i = 0; i < rows.x.n_rows; ++i)
            for (int64_t k = rows.x.indptr[i]; k < rows.x.indptr[i + 1]; ++k) {
                const int64_t at = start[rows.x.indices[k] + 1]++;
                row[at] = static_cast<int32_t>(i);
                value[at] = rows.x.data[k];
            }
    }
    std::vector<int64_t> start;
    Large<int32_t> row;
    Large<float> value;
};

// Masks have all bits of a lane set, or none. They are made without comparisons of vectors and used without `?:`, which GCC 12
// takes apart into sixteen scalar ones where vectors have 64 bytes.
BLOCKXMC_INLINE IntLanes bits_of(const FloatLanes &value) {
    IntLanes bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

BLOCKXMC_INLINE IntLanes lanes_of(LaneMask mask) {
    const IntLanes to_the_sign = {31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16};
    return ((IntLanes{} + static_cast<int32_t>(mask)) << to_the_sign) >> 31;
}

// Where a < b; it may go either way where one is NaN, and where a is -0 and b is 0.
BLOCKXMC_INLINE IntLanes below(const FloatLanes &a, const FloatLanes &b) { return bits_of(a - b) >> 31; }

// `yes` in the lanes of the mask, `no` in the others.
BLOCKXMC_INLINE void choose(const IntLanes &mask, const FloatLanes &yes, const FloatLanes &no, FloatLanes &out) {
    const IntLanes bits = (bits_of(yes) & mask) | (bits_of(no) & ~mask);
    std::memcpy(&out, &bits, sizeof out);
}

// `value` in the lanes of the mask, 0 in the others.
BLOCKXMC_INLINE void only_in(const IntLanes &mask, const FloatLanes &value, FloatLanes &out) {
    const IntLanes bits = bits_of(value) & mask;
    std::memcpy(&out, &bits, sizeof out);
}

// Two numbers by the lanes of `positive`.
BLOCKXMC_INLINE void choose(LaneMask positive, float yes, float no, FloatLanes &out) {
    choose(lanes_of(positive), FloatLanes{} + yes, FloatLanes{} + no, out);
}

// All bits that some lane has.
BLOCKXMC_INLINE int32_t any_bits(const IntLanes &lanes) {
    typedef int32_t Eight __attribute__((vector_size(32)));
    typedef int32_t Four __attribute__((vector_size(16)));
    Eight halves[2];
    std::memcpy(halves, &lanes, sizeof halves);
    const Eight half = halves[0] | halves[1];
    Four quarters[2];
    std::memcpy(quarters, &half, sizeof quarters);
    const Four quarter = quarters[0] | quarters[1];
    int64_t rest[2];
    std::memcpy(rest, &quarter, sizeof rest);
    const int64_t both = rest[0] | rest[1];
    return static_cast<int32_t>(both | both >> 32);
}

// The lanes of a mask, one bit for each.
BLOCKXMC_INLINE LaneMask mask_of(const IntLanes &lanes) {
    const IntLanes bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    return static_cast<LaneMask>(any_bits(lanes & bit));
}

BLOCKXMC_INLINE void row_product(const Rows &rows, int64_t i, const Lanes *v, FloatLanes &out) {
    FloatLanes even = {}, odd = {};
    if (rows.bias != 0) even = v[rows.x.n_cols].v * rows.bias;
    int64_t k = rows.x.indptr[i];
    const int64_t end = rows.x.indptr[i + 1];
    for (; k + 1 < end; k += 2) {
        even += v[rows.x.indices[k]].v * rows.x.data[k];
        odd += v[rows.x.indices[k + 1]].v * rows.x.data[k + 1];
    }
    if (k < end) even += v[rows.x.indices[k]].v * rows.x.data[k];
    out = even + odd;
}

BLOCKXMC_INLINE void row_scatter(const Rows &rows, int64_t i, const FloatLanes &scale, Lanes *out) {
    for (int64_t k = rows.x.indptr[i]; k < rows.x.indptr[i + 1]; ++k) out[rows.x.indices[k]].v += scale * rows.x.data[k];
}

// out[i] = x_i . V for every row.
BLOCKXMC_CLONES static void lane_products(const Rows &rows, const Lanes *v, Lanes *out) {
    for (int64_t i = 0; i < rows.x.n_rows; ++i) row_product(rows, i, v, out[i].v);
}

// The same, column by column: random access to vectors as long as there are rows, not features.
BLOCKXMC_CLONES static void lane_products(const Rows &rows, const Columns &columns, const Lanes *v, Lanes *out) {
    FloatLanes bias = {};
    if (rows.bias != 0) bias = v[rows.x.n_cols].v * rows.bias;
    for (int64_t i = 0; i < rows.x.n_rows; ++i) out[i].v = bias;
    for (int64_t f = 0; f < rows.x.n_cols; ++f) {
        const FloatLanes at = v[f].v;
        for (int64_t k = columns.start[f]; k < columns.start[f + 1]; ++k) out[columns.row[k]].v += at * columns.value[k];
    }
}

// By the cheaper of the two ways.
inline void lane_products_of_all(const Rows &rows, const Columns &columns, const Lanes *v, Lanes *out) {
    if (2 * rows.x.n_rows < rows.x.n_cols) lane_products(rows, columns, v, out);
    else lane_products(rows, v, out);
}

struct ActiveRow {
    int32_t row;
    LaneMask lanes; // those in which the row matters
};

// out = v + sum over the listed rows of x_i (curvature_i * (x_i . v)): the Hessian of every lane times its vector.
BLOCKXMC_CLONES static void lane_hessian(const Rows &rows, const std::vector<ActiveRow> &active,
                                            const Lanes *curvature, const Lanes *v, Lanes *out) {
    const int64_t d = rows.n_features();
    for (int64_t f = 0; f < d; ++f) out[f].v = v[f].v;
    FloatLanes bias_sum = {};
    for (const auto [i, lanes] : active) {
        FloatLanes t;
        row_product(rows, i, v, t);
        t *= curvature[i].v;
        row_scatter(rows, i, t, out);
        bias_sum += t;
    }
    if (rows.bias != 0) out[rows.x.n_cols].v += bias_sum * rows.bias;
}

// Dot products lane by lane, in double.
BLOCKXMC_CLONES static void lane_dots(const Lanes *a, const Lanes *b, int64_t n, LaneSums &out) {
    DoubleLanes low = {}, high = {};
    for (int64_t i = 0; i < n; ++i) {
        EightLanes part[4];
        std::memcpy(part, &a[i].v, sizeof a[i].v);
        std::memcpy(part + 2, &b[i].v, sizeof b[i].v);
        low += __builtin_convertvector(part[0], DoubleLanes) * __builtin_convertvector(part[2], DoubleLanes);
        high += __builtin_convertvector(part[1], DoubleLanes) * __builtin_convertvector(part[3], DoubleLanes);
    }
    for (int lane = 0; lane < kLanes / 2; ++lane) {
        out[lane] = low[lane];
        out[lane + kLanes / 2] = high[lane];
    }
}

// The lanes in which |v| is `least` or more; those of NaN may be among them.
BLOCKXMC_CLONES static void lanes_from(const Lanes *v, int64_t n, float least, LaneMask *out) {
    const FloatLanes bound = FloatLanes{} + least;
    for (int64_t i = 0; i < n; ++i) {
        const IntLanes bits = bits_of(v[i].v) & 0x7FFFFFFF;
        FloatLanes size;
        std::memcpy(&size, &bits, sizeof size);
        out[i] = mask_of(~below(size, bound));
    }
}

// a = scale * b
BLOCKXMC_CLONES static void lane_scale(Lanes *a, const Lanes &scale, const Lanes *b, int64_t n) {
    const FloatLanes s = scale.v;
    for (int64_t i = 0; i < n; ++i) a[i].v = s * b[i].v;
}

// a += scale * b
BLOCKXMC_CLONES static void lane_add(Lanes *a, const Lanes &scale, const Lanes *b, int64_t n) {
    const FloatLanes s = scale.v;
    for (int64_t i = 0; i < n; ++i) a[i].v += s * b[i].v;
}

} // namespace blockxmc
