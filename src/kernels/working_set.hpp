// Squared-hinge problems of rare labels: only a per cent or two of the rows end up inside the margin, so each label is
// solved on a working set of rows, and one pass over X for sixteen labels at once finds the rows that a set still lacks.
//
// A set only grows, the problem on the set is solved to the full tolerance, and rows outside it have loss zero: when a
// pass finds no new row inside the margin, the label is solved on all rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "local_svm.hpp"

using Positives = std::span<const int32_t>;  // sorted rows

// Finds rows outside the working sets with z > threshold in an unfinished lane.
template <typename Found>
LANES_INLINE void scan_rows(const Rows &rows, const Lanes *v, const LaneMask *outside, LaneMask lanes, float threshold,
                            Found &&found) {
    for (int64_t i = 0; i < rows.x.n_rows; ++i) {
        const LaneMask wanted = outside[i] & lanes;
        if (!wanted) continue;
        Lanes z;
        row_product(rows, i, v, z.v);
        if (any_lane((z.v > threshold) & lanes_of(wanted))) found(i, wanted, z);
    }
}

struct Finding {
    int32_t row;
    LaneMask lanes;   // lanes in which the row is near or inside the margin
    LaneMask inside;  // lanes in which it is inside
};

LANES_MULTIVERSION static void find_rows(const Rows &rows, const Lanes *v, const LaneMask *outside, LaneMask lanes,
                                         float threshold, std::vector<Finding> &out) {
    out.clear();
    scan_rows(rows, v, outside, lanes, threshold, [&](int64_t i, LaneMask wanted, const Lanes &z) {
        Finding f{static_cast<int32_t>(i), 0, 0};
        for (int lane = 0; lane < kLanes; ++lane) {
            f.lanes |= static_cast<LaneMask>((z[lane] > threshold) << lane);
            f.inside |= static_cast<LaneMask>((z[lane] > -1.0f) << lane);
        }
        f.lanes &= wanted;
        f.inside &= wanted;
        out.push_back(f);
    });
}

// Mean of all rows (bias included), shared by every label's start.
struct MeanRow {
    explicit MeanRow(const Rows &rows) : mean(rows.n_features()) {
        std::vector<double> sum(rows.n_features());
        for (int64_t k = 0; k < rows.x.nnz(); ++k) sum[rows.x.indices[k]] += rows.x.data[k];
        if (rows.bias != 0) sum[rows.x.n_cols] = static_cast<double>(rows.bias) * rows.x.n_rows;
        for (size_t f = 0; f < sum.size(); ++f) {
            mean[f] = static_cast<float>(sum[f] / rows.x.n_rows);
            square += static_cast<double>(mean[f]) * mean[f];
        }
    }
    std::vector<float> mean;
    double square = 0;
};

class WorkingSets {
  public:
    WorkingSets(const Rows &rows, const Objective &objective, const MeanRow &mean)
        : rows_(rows), objective_(objective), mean_(mean), local_(rows), w_(rows.n_features()), outside_(rows.x.n_rows) {}

    // Solves up to sixteen labels, each with at least one positive and one negative row; out[j] takes label j's weights.
    void solve(std::span<const Positives> labels, std::span<std::vector<Weight>> out) {
        start(labels);
        LaneMask open = static_cast<LaneMask>((1u << labels.size()) - 1);
        for (int round = 0; open; ++round) {
            find_rows(rows_, w_.data(), outside_.data(), open, round ? -1.0f - kNear : -1.0f - kNear, findings_);
            LaneMask grown = 0;
            for (const Finding &f : findings_) {
                outside_[f.row] &= ~f.lanes;
                grown |= f.inside;
                for (size_t lane = 0; lane < labels.size(); ++lane)
                    if (f.lanes >> lane & 1) sets_[lane].push_back(f.row);
            }
            if (round > 0) open &= grown;
            for (size_t lane = 0; lane < labels.size(); ++lane)
                if ((open >> lane & 1) && !refine(static_cast<int>(lane), labels[lane].size(), out[lane], round)) open &= ~(1u << lane);
        }
    }

  private:
    static constexpr float kNear = 0.05f;  // rows this close to the margin join the set before they cross it

    // Weights u*p + v*a from the mean p of the positives and the mean a of all rows, such that p scores 1 and a scores
    // what +1 on the positives and -2 on the negatives average to: most negatives then start outside the margin.
    void start(std::span<const Positives> labels) {
        std::fill(w_.begin(), w_.end(), Lanes{});
        std::fill(outside_.begin(), outside_.end(), static_cast<LaneMask>(-1));
        const double n = static_cast<double>(rows_.x.n_rows);
        LaneSums pp, pa;
        for (size_t lane = 0; lane < labels.size(); ++lane) {
            sets_[lane].assign(labels[lane].begin(), labels[lane].end());
            const float share = 1.0f / static_cast<float>(labels[lane].size());
            for (int32_t i : labels[lane]) {
                outside_[i] &= ~(1u << lane);
                for (int64_t k = rows_.x.indptr[i]; k < rows_.x.indptr[i + 1]; ++k)
                    w_[rows_.x.indices[k]][lane] += share * rows_.x.data[k];
            }
            if (rows_.bias != 0) w_[rows_.x.n_cols][lane] = rows_.bias;
        }
        lane_dots(w_.data(), w_.data(), width(), pp);
        for (int64_t f = 0; f < width(); ++f)
            for (int lane = 0; lane < kLanes; ++lane) pa[lane] += static_cast<double>(w_[f][lane]) * mean_.mean[f];
        Lanes u{}, v{};
        for (size_t lane = 0; lane < labels.size(); ++lane) {
            const double positives = static_cast<double>(labels[lane].size()), share = positives / n;
            const double at_zero = 2 * objective_.C * std::sqrt(std::max(
                0.0, 4 * positives * positives * pp[lane] - 4 * positives * n * pa[lane] + n * n * mean_.square));
            target_[lane] = objective_.target(at_zero, static_cast<int64_t>(positives), rows_.x.n_rows);
            const double mean_score = share - 2 * (1 - share);
            const double determinant = pp[lane] * mean_.square - pa[lane] * pa[lane];
            if (determinant > 1e-9 * pp[lane] * mean_.square) {
                u[lane] = static_cast<float>((mean_.square - mean_score * pa[lane]) / determinant);
                v[lane] = static_cast<float>((mean_score * pp[lane] - pa[lane]) / determinant);
            } else {
                v[lane] = -1;
            }
        }
        for (int64_t f = 0; f < width(); ++f) w_[f].v = w_[f].v * u.v + mean_.mean[f] * v.v;
    }

    // Solves one lane on its working set; false when the weights did not move.
    bool refine(int lane, size_t positives, std::vector<Weight> &out, int round) {
        local_.clear();
        for (size_t r = 0; r < sets_[lane].size(); ++r) local_.add_row(sets_[lane][r], r < positives ? 1.0f : -1.0f);
        std::vector<float> &w = local_.weights();
        const std::vector<int32_t> &features = local_.features();
        for (size_t f = 0; f < w.size(); ++f) w[f] = w_[features[f]][lane];
        const bool moved = local_.solve(objective_.C, target_[lane]);
        if (round == 0)
            for (int64_t f = 0; f < width(); ++f) w_[f][lane] = 0;
        out.clear();
        for (size_t f = 0; f < w.size(); ++f) {
            w_[features[f]][lane] = w[f];
            out.push_back({features[f], w[f]});
        }
        return moved || round == 0;  // the first round also drops the features that no row of the set has
    }

    int64_t width() const { return static_cast<int64_t>(w_.size()); }

    const Rows rows_;
    const Objective objective_;
    const MeanRow &mean_;
    LocalSvm local_;
    LaneVector w_;
    std::vector<LaneMask> outside_;  // lanes whose working set lacks the row
    std::vector<int32_t> sets_[kLanes];
    double target_[kLanes] = {};
    std::vector<Finding> findings_;
};
