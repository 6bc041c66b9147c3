// Training rows near a row, and what their labels gain from it.
#pragma once

#include <cstdint>

#include "csr.hpp"
#include "weighed.hpp"

class PackedModel;

// Training rows packed like labels, in the blocks they are assigned to: the score of a "label" is a row's similarity.
struct Neighbours {
    const PackedModel *rows;
    const int64_t *indptr; // labels of each training row
    const int32_t *labels;
    int64_t n_labels, count; // so many neighbours are asked
    int64_t features;        // of a row, the largest, that are compared
    float weight;
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
