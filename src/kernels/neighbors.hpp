// Training rows near a row, and what their labels gain from it.
#pragma once

#include <cstdint>

#include "bonuses.hpp"
#include "csr.hpp"

namespace blockxmc {

class PackedModel;

// Training rows packed like labels, in the blocks they are assigned to: the score of a "label" is a row's similarity.
struct Neighbors {
    const PackedModel *rows;
    const int64_t *indptr; // labels of each training row
    const int32_t *labels;
    int64_t n_labels;
    int64_t count;    // neighbors of a row
    int64_t features; // the largest features of a row, so many, are compared
    float weight;
};

// The neighbors of each row (n x width training rows, best first, padded with -1) and how similar they are.
struct Nearest {
    const Neighbors *neighbors;
    const int64_t *rows;
    const float *similarity;
    int64_t width;

    // A label gains weight * c / (s + 2): c is the sum of the cosines to the neighbors that have it, s the sum of all. With
    // similar neighbors this is nearly the label's share of them; with few or distant ones the 2 keeps the gain small.
    // Neighbors without any similarity are left out.
    void collect(int64_t i, const RowView &x, Bonuses &bonuses) const {
        const int64_t *of_row = rows + i * width;
        const float *cosine = similarity + i * width;
        bonuses.start_row(neighbors->n_labels);
        // All of them wait for memory at the same time.
        for (int64_t j = 0; j < width && of_row[j] >= 0; ++j) __builtin_prefetch(neighbors->indptr + of_row[j]);
        for (int64_t j = 0; j < width && of_row[j] >= 0; ++j) __builtin_prefetch(neighbors->labels + neighbors->indptr[of_row[j]]);
        float total = 2 * x.length();
        for (int64_t j = 0; j < width && of_row[j] >= 0 && cosine[j] > 0; ++j) {
            total += cosine[j];
            for (int64_t at = neighbors->indptr[of_row[j]]; at < neighbors->indptr[of_row[j] + 1]; ++at)
                bonuses.add(neighbors->labels[at], cosine[j]);
        }
        bonuses.scale(total > 0 ? neighbors->weight / total : 0.0f);
    }
};

} // namespace blockxmc
