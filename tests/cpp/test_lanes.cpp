#include "lane_line.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "check.hpp"

using namespace blockxmc;

namespace {

// Numbers at which comparisons go wrong if they go wrong anywhere.
constexpr float kSmallest = std::numeric_limits<float>::denorm_min(), kInfinity = std::numeric_limits<float>::infinity();
constexpr float kEdges[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.99999994f, 1.0000001f, kSmallest, -kSmallest, 3e38f, -3e38f, kInfinity, -kInfinity};
constexpr int kEdgeCount = sizeof kEdges / sizeof *kEdges;

Lanes edges(int first) {
    Lanes out{};
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = kEdges[(first + lane) % kEdgeCount];
    return out;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

} // namespace

TEST(masks_of_lanes_are_all_bits_or_none_and_come_back) {
    for (uint32_t mask = 0; mask < 65536; ++mask) {
        const IntLanes lanes = lanes_of(static_cast<LaneMask>(mask));
        for (int lane = 0; lane < kLanes; ++lane) CHECK(lanes[lane] == (mask >> lane & 1 ? -1 : 0));
        CHECK(mask_of(lanes) == mask);
        CHECK((any_bits(lanes) != 0) == (mask != 0));
    }
}

TEST(any_bits_sees_a_bit_in_every_lane) {
    for (int lane = 0; lane < kLanes; ++lane)
        for (int bit = 0; bit < 32; ++bit) {
            IntLanes lanes = {};
            lanes[lane] = static_cast<int32_t>(uint32_t{1} << bit);
            CHECK(any_bits(lanes) == lanes[lane]);
        }
}

TEST(below_is_less_than) {
    for (int shift = 0; shift < kEdgeCount; ++shift)
        for (int first = 0; first < kEdgeCount; ++first) {
            const Lanes a = edges(first), b = edges(first + shift);
            const IntLanes less = below(a.v, b.v);
            for (int lane = 0; lane < kLanes; ++lane)
                if (!std::isnan(a[lane] - b[lane]) && !(a[lane] == 0 && b[lane] == 0)) CHECK(less[lane] == (a[lane] < b[lane] ? -1 : 0));
        }
}

TEST(chosen_lanes_keep_their_bits) {
    const Lanes yes = edges(0), no = edges(5);
    for (uint32_t mask = 0; mask < 65536; mask += 7) {
        Lanes chosen, alone, numbers;
        choose(lanes_of(static_cast<LaneMask>(mask)), yes.v, no.v, chosen.v);
        only_in(lanes_of(static_cast<LaneMask>(mask)), yes.v, alone.v);
        choose(static_cast<LaneMask>(mask), 2.5f, -0.0f, numbers.v);
        for (int lane = 0; lane < kLanes; ++lane) {
            const bool in = mask >> lane & 1;
            CHECK(same_bits(chosen[lane], in ? yes[lane] : no[lane]));
            CHECK(same_bits(alone[lane], in ? yes[lane] : 0.0f));
            CHECK(numbers[lane] == (in ? 2.5f : 0.0f));
        }
    }
}

TEST(derivatives_of_the_losses_match_their_formulas) {
    const Cost cost{3.0f, 0.5f};
    for (int first = 0; first < 10; ++first)
        for (uint32_t mask : {0x0000u, 0xffffu, 0xa5a5u, 0x0ff1u}) {
            const auto positive = static_cast<LaneMask>(mask), wanted = static_cast<LaneMask>(mask * 3 + 1);
            Lanes z{}, slope, curve, logistic_slope, logistic_curve;
            for (int lane = 0; lane < kLanes; ++lane) z[lane] = 0.37f * static_cast<float>(lane - first) - 0.1f;
            z[3] = 1.0f;
            z[4] = -1.0f;
            loss_derivatives(Loss::squared_hinge, cost, positive, wanted, z.v, slope.v, curve.v);
            loss_derivatives(Loss::logistic, cost, positive, wanted, z.v, logistic_slope.v, logistic_curve.v);
            for (int lane = 0; lane < kLanes; ++lane) {
                const bool is_positive = positive >> lane & 1, is_wanted = wanted >> lane & 1;
                const float sign = is_positive ? 1.0f : -1.0f, C = is_positive ? cost.positive : cost.negative;
                const float margin = sign * z[lane];
                const bool inside = is_wanted && margin < 1.0f;
                CHECK(same_bits(slope[lane], inside ? -2.0f * C * sign * (1.0f - margin) : 0.0f));
                CHECK(same_bits(curve[lane], inside ? 2.0f * C : 0.0f));
                const double miss = 1 / (1 + std::exp(static_cast<double>(margin)));
                CHECK(std::fabs(logistic_slope[lane] - (is_wanted ? -C * sign * miss : 0)) < 1e-5);
                CHECK(std::fabs(logistic_curve[lane] - (is_wanted ? C * miss * (1 - miss) : 0)) < 1e-5);
            }
        }
}
