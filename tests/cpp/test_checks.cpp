#include "checks.hpp"

#include <limits>
#include <vector>

#include "check.hpp"

using namespace blockxmc;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

CsrView csr(std::vector<int64_t> indptr, std::vector<int32_t> indices, int64_t n_cols, Order order = Order::any) {
    return checked_csr("X", indptr, indices, n_cols, order); // only looked at while it is checked
}

} // namespace

TEST(pointers_are_compared_and_never_subtracted) {
    const auto good = [](std::vector<int64_t> ptr, size_t n) { return are_pointers(ptr, n); };
    CHECK(good({0}, 0) && good({0, 0, 2}, 2));
    CHECK(!good({}, 0) && !good({1}, 1) && !good({0, 3}, 2) && !good({0, 2, 1, 2}, 2));
    const int64_t big = int64_t{1} << 62;
    CHECK(!good({0, int64_t{1} << 40, big, INT64_MIN, -big, 0, 2}, 2));
    CHECK(!good({0, -1}, std::numeric_limits<size_t>::max())); // -1 as an unsigned number is that size
}

TEST(ranges) {
    const auto inside = [](std::vector<int32_t> ids, int64_t limit) { return in_range(ids, limit); };
    CHECK(inside({}, 0) && inside({0, 4}, 5) && inside({INT32_MAX}, int64_t{1} << 31) && inside({INT32_MAX}, INT64_MAX));
    CHECK(!inside({5}, 5) && !inside({-1}, 5) && !inside({INT32_MIN}, INT64_MAX) && !inside({0}, -3) && !inside({0}, 0));
    CHECK(!inside({INT32_MAX}, INT32_MAX));
}

TEST(finite_values) {
    const auto finite = [](std::vector<float> values) { return all_finite(values); };
    CHECK(finite({}) && finite({0.0f, -0.0f, 3e38f, -3e38f, 1e-45f}));
    CHECK(!finite({1, not_a_number}) && !finite({inf, 1}) && !finite({-inf}) && !finite({-not_a_number}));
}

TEST(sparse_matrices) {
    CHECK(csr({0, 2, 2}, {3, 1}, 4).n_rows == 2);
    CHECK(throws<std::invalid_argument>([] { csr({0, 2}, {3, 1}, 4, Order::ascending); }));
    CHECK(throws<std::invalid_argument>([] { csr({0, 2}, {1, 1}, 4, Order::ascending); }));
    CHECK(csr({0, 1, 2}, {3, 1}, 4, Order::ascending).n_rows == 2); // the order counts within a row
    CHECK(throws<std::invalid_argument>([] { csr({0, 1}, {4}, 4); }));
    CHECK(throws<std::invalid_argument>([] { csr({0, 1}, {-1}, 4); }));
    CHECK(throws<std::invalid_argument>([] { csr({0}, {}, -1); }));
    CHECK(throws<std::invalid_argument>([] { csr({0}, {}, int64_t{1} << 31); }));
    CHECK(throws<std::invalid_argument>([] { csr({0, 2}, {1}, 4); }));
}

TEST(a_very_large_k_is_refused) {
    require_k(1, 0);
    require_k(65536, 3);
    require_k(100000, 100000);
    CHECK(throws<BadInput>([] { require_k(0, 3); }));
    CHECK(throws<BadInput>([] { require_k(65537, 3); }));
    CHECK(throws<BadInput>([] { require_k(INT64_MAX, INT32_MAX); }));
}

TEST(rows_to_be_scored) {
    const std::vector<int64_t> indptr{0, 2};
    const std::vector<int32_t> indices{0, 1, 99};
    const std::vector<float> data{1, 2, not_a_number};
    CHECK(checked_rows(indptr, indices, data, 2).n_rows == 1); // what lies behind the last row is not looked at
    CHECK(throws<BadInput>([&] { checked_rows(indptr, indices, data, 1); }));
    CHECK(throws<BadInput>([&] { checked_rows(std::vector<int64_t>{0, 3}, std::vector<int32_t>{0, 1, 1}, data, 2); }));
    CHECK(throws<std::invalid_argument>([&] { checked_rows(std::vector<int64_t>{0, 4}, indices, data, 100); }));
    CHECK(throws<std::invalid_argument>([&] { checked_rows(std::vector<int64_t>{0, -1}, indices, data, 100); }));
    CHECK(throws<std::invalid_argument>([&] { checked_rows(std::vector<int64_t>{}, indices, data, 100); }));
}
