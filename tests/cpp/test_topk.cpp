#include "topk.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "check.hpp"
#include "random.hpp"

using namespace blockxmc;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> labels_of(size_t n) {
    std::vector<int32_t> labels(n);
    std::iota(labels.begin(), labels.end(), 0);
    return labels;
}

std::vector<int32_t> kept(const std::vector<float> &scores, int64_t k, float threshold = -inf) {
    const std::vector<int32_t> labels = labels_of(scores.size());
    std::vector<Scored> best(k);
    const int64_t size = keep_best(scores.data(), labels.data(), static_cast<int64_t>(scores.size()), k, best.data(), threshold);
    std::vector<int32_t> out;
    for (int64_t r = 0; r < size; ++r) {
        CHECK(best[r].score == scores[best[r].label]);
        out.push_back(best[r].label);
    }
    return out;
}

// By sorting; NaN and what does not exceed the threshold are left out.
std::vector<int32_t> expected(const std::vector<float> &scores, int64_t k, float threshold = -inf) {
    std::vector<int32_t> labels;
    for (int32_t label : labels_of(scores.size()))
        if (scores[label] > threshold) labels.push_back(label);
    std::stable_sort(labels.begin(), labels.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    labels.resize(std::min<size_t>(labels.size(), k));
    return labels;
}

} // namespace

TEST(topk_matches_sorting_with_many_ties_and_some_nan) {
    RandomStream random(1);
    for (int round = 0; round < 400; ++round) {
        std::vector<float> scores(random.below(300));
        const int64_t levels = 1 + random.below(20);
        for (float &score : scores) {
            const int64_t level = random.below(levels + 2);
            score = level == levels ? not_a_number : level > levels ? -inf : static_cast<float>(level);
        }
        for (int64_t k : {1, 2, 5, 16, 17, 32, 33, 100, 400}) {
            CHECK(kept(scores, k) == expected(scores, k));
            CHECK(kept(scores, k, 3.0f) == expected(scores, k, 3.0f));
        }
    }
}

TEST(topk_of_ties_takes_the_lower_labels) {
    const std::vector<float> scores(200, 1.5f);
    CHECK((kept(scores, 3) == std::vector<int32_t>{0, 1, 2}));
    CHECK(kept(scores, 40).back() == 39);
}

TEST(topk_keeps_neither_nan_nor_minus_infinity) {
    CHECK(kept(std::vector<float>(100, not_a_number), 5).empty());
    CHECK(kept(std::vector<float>(100, -inf), 40).empty());
    CHECK((kept({not_a_number, inf, -inf, 2.0f}, 4) == std::vector<int32_t>{1, 3}));
}

TEST(write_best_pads) {
    std::vector<Scored> candidates{{1.0f, 7}, {2.0f, 9}, {2.0f, 3}};
    int64_t labels[5];
    float scores[5];
    write_best(candidates, 5, labels, scores);
    CHECK(labels[0] == 3 && labels[1] == 9 && labels[2] == 7 && labels[3] == -1 && labels[4] == -1);
    CHECK(scores[0] == 2 && scores[2] == 1 && scores[3] == -inf);
}

TEST(write_best_survives_nan) {
    RandomStream random(2);
    for (int round = 0; round < 200; ++round) {
        std::vector<Scored> candidates;
        for (int32_t label = 0; label < 60; ++label)
            candidates.push_back({random.below(3) ? not_a_number : static_cast<float>(random.below(9)), label});
        int64_t labels[20];
        float scores[20];
        write_best(candidates, 20, labels, scores);
        for (int64_t label : labels) CHECK(label >= 0 && label < 60);
    }
}

TEST(merged_runs_keep_the_higher_score_of_a_label) {
    const Scored first[] = {{5, 1}, {3, 2}}, second[] = {{4, 2}, {3, 1}, {3, 0}};
    std::vector<Run> runs{{first, first + 2}, {second, second + 3}};
    SeenLabels seen;
    int64_t labels[4];
    float scores[4];
    merge_runs(runs, 4, 3, seen, labels, scores);
    CHECK(labels[0] == 1 && labels[1] == 2 && labels[2] == 0 && labels[3] == -1);
    CHECK(scores[0] == 5 && scores[1] == 4 && scores[2] == 3 && scores[3] == -inf);
}

TEST(all_ways_to_find_the_scores_that_reach_a_threshold_agree) {
    RandomStream random(3);
    for (int64_t n = 0; n <= group_of_bits; ++n) {
        std::vector<float> scores(n);
        for (float &score : scores) score = random.below(9) ? static_cast<float>(random.below(5)) : not_a_number;
        for (float threshold : {-inf, 2.0f, 3.5f, inf}) {
            uint64_t wanted = 0;
            for (int64_t j = 0; j < n; ++j) wanted |= static_cast<uint64_t>(!(scores[j] + 0.5f < threshold)) << j;
            CHECK(reaching_plain(scores.data(), n, 0.5f, threshold) == wanted);
            CHECK(reaching(scores.data(), n, 0.5f, threshold) == wanted);
        }
    }
}

TEST(as_many_scores_as_asked_reach_what_is_reached_by_them) {
    RandomStream random(4);
    for (int round = 0; round < 300; ++round) {
        std::vector<float> scores(random.below(200));
        for (float &score : scores) score = random.below(9) ? static_cast<float>(random.below(50)) : not_a_number;
        const auto n = static_cast<int64_t>(scores.size());
        for (int64_t k : {1, 8, 16}) {
            const float reached = reached_by(scores.data(), n, k, -inf);
            CHECK(reached == -inf || std::count_if(scores.begin(), scores.end(), [&](float s) { return s >= reached; }) >= k);
            const bool above = std::any_of(scores.begin(), scores.end(), [](float s) { return s > 40; });
            CHECK(reached_by(scores.data(), n, k, 40.0f) == (above ? reached : -inf));
        }
    }
}
