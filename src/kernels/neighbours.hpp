// Training rows near a row, and what their labels gain from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "topk.hpp"

class PackedModel;

// Training rows packed like labels, in the blocks they are assigned to: the score of a "label" is a row's similarity.
struct Neighbours {
    const PackedModel *rows;
    const int64_t *indptr; // labels of each training row
    const int32_t *labels;
    int64_t n_labels, count; // so many neighbours are asked
    float weight;
};

// One row of features; need not be sorted.
struct RowView {
    const int32_t *indices;
    const float *values;
    int64_t size;

    float length() const {
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        return static_cast<float>(std::sqrt(sum));
    }
};

// A label gains weight * c / (s + 2): c is the sum of the cosines to neighbours that have it, s that to all. Where they are
// alike, this is nearly the label's share; where they are not, two unknown rows exactly alike that lack it hold it back.
// Neighbours come best first, padded with -1; those that are not similar at all have no say.
inline void ask_neighbours(const Neighbours &neighbours, const RowView &x, const int64_t *nearest, const float *similarity,
                           Bonuses &bonuses) {
    bonuses.start_row(neighbours.n_labels);
    float total = 2 * x.length();
    for (int64_t j = 0; j < neighbours.count && nearest[j] >= 0 && similarity[j] > 0; ++j) {
        total += similarity[j];
        for (int64_t at = neighbours.indptr[nearest[j]]; at < neighbours.indptr[nearest[j] + 1]; ++at)
            bonuses.add(neighbours.labels[at], similarity[j]);
    }
    bonuses.scale(total > 0 ? neighbours.weight / total : 0.0f);
}

// The largest values of each row, no more than `most` of them (ties to the lower column), columns in their old order.
struct LargestValues {
    std::vector<int64_t> indptr;
    std::vector<int32_t> indices;
    std::vector<float> data;
};

inline LargestValues largest_of_rows(const CsrView &X, int64_t most) {
    LargestValues out;
    out.indptr.push_back(0);
    std::vector<int64_t> order;
    for (int64_t i = 0; i < X.n_rows; ++i) {
        order.resize(X.row_size(i));
        std::iota(order.begin(), order.end(), X.indptr[i]);
        if (static_cast<int64_t>(order.size()) > most) {
            std::nth_element(order.begin(), order.begin() + most, order.end(), [&](int64_t a, int64_t b) {
                const float x = std::fabs(X.data[a]), y = std::fabs(X.data[b]);
                return x > y || (x == y && a < b);
            });
            order.resize(most);
            std::sort(order.begin(), order.end());
        }
        for (const int64_t at : order) {
            out.indices.push_back(X.indices[at]);
            out.data.push_back(X.data[at]);
        }
        out.indptr.push_back(static_cast<int64_t>(out.indices.size()));
    }
    return out;
}
