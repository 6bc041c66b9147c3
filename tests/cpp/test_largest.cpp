#include "largest.hpp"

#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "random.hpp"

using namespace blockxmc;

namespace {

struct Row {
    std::vector<int32_t> indices;
    std::vector<float> values;
    RowView view() const { return {indices.data(), values.data(), static_cast<int64_t>(indices.size())}; }
};

Row expected(const Row &row, size_t most) {
    std::vector<size_t> order(row.indices.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const float x = std::fabs(row.values[a]), y = std::fabs(row.values[b]);
        return x > y || (x == y && row.indices[a] < row.indices[b]);
    });
    order.resize(std::min(most, order.size()));
    std::sort(order.begin(), order.end()); // as they come in the row
    Row out;
    for (size_t i : order) {
        out.indices.push_back(row.indices[i]);
        out.values.push_back(row.values[i]);
    }
    return out;
}

} // namespace

TEST(largest_values_match_sorting_with_many_ties) {
    RandomStream random(1);
    LargestValues largest;
    for (int round = 0; round < 500; ++round) {
        Row row;
        const int64_t size = random.below(60);
        for (int32_t f = 0; f < size; ++f) {
            row.indices.push_back(3 * f);
            row.values.push_back(static_cast<float>(random.below(7)) - 3);
        }
        for (size_t i = row.indices.size(); i > 1; --i) std::swap(row.indices[i - 1], row.indices[random.below(static_cast<int64_t>(i))]);
        for (int64_t most : {1, 2, 24, 59, 100}) {
            const RowView found = largest.of(row.view(), most);
            const Row wanted = expected(row, most);
            CHECK(found.size == static_cast<int64_t>(wanted.indices.size()));
            CHECK(std::equal(wanted.indices.begin(), wanted.indices.end(), found.indices));
            CHECK(std::equal(wanted.values.begin(), wanted.values.end(), found.values));
        }
    }
}

TEST(largest_values_of_a_column_met_twice) {
    const Row row{{5, 5, 5, 5}, {1, -1, 1, 1}};
    LargestValues largest;
    CHECK(largest.of(row.view(), 2).size == 2);
}

TEST(largest_values_survive_nan_and_infinity) {
    // Kernels refuse such rows; a caller that does not must still stay within its arrays.
    RandomStream random(2);
    LargestValues largest;
    for (int round = 0; round < 500; ++round) {
        Row row;
        const int64_t size = 1 + random.below(60);
        for (int32_t f = 0; f < size; ++f) {
            row.indices.push_back(f);
            const int64_t kind = random.below(4);
            row.values.push_back(kind == 0 ? NAN : kind == 1 ? INFINITY : static_cast<float>(random.below(5)));
        }
        for (int64_t most : {1, 7, 24}) {
            const RowView found = largest.of(row.view(), most);
            CHECK(found.size == std::min(most, size));
            for (int64_t i = 0; i < found.size; ++i) CHECK(found.indices[i] >= 0 && found.indices[i] < size);
        }
    }
}
