// Squared-hinge problems of rare labels: only a per cent or two of the rows end up inside the margin, so each label looks for
// its direction on a small set of rows (those inside the margin or close to it), solved as a problem of its own; the sixteen
// directions then share one pass over X and one line search over all rows.
//
// The set holds every row inside the margin, so problem and sub-problem have the same gradient at the start: a point where
// the sub-problem is lower lies in a direction of descent. Features that no row of the set has keep only their ridge term,
// whose minimum is 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "local_svm.hpp"

using Positives = std::span<const int32_t>;  // sorted rows

struct NearRow {
    int32_t row;
    LaneMask lanes;
};

// Rows inside the margin or less than `near` outside of it, in the lanes of `open`.
LANES_MULTIVERSION static void find_near_rows(int64_t n, const Lanes *z, const LaneMask *positive, LaneMask open, float near,
                                              std::vector<NearRow> &out) {
    out.clear();
    const FloatLanes zero = {};
    const IntLanes wanted = lanes_of(open);
    for (int64_t i = 0; i < n; ++i) {
        const FloatLanes sign = lanes_of(positive[i]) ? zero + 1.0f : zero - 1.0f;
        const IntLanes close = (sign * z[i].v < 1.0f + near) & wanted;
        if (!any_lane(close)) continue;
        NearRow found{static_cast<int32_t>(i), 0};
        for (int lane = 0; lane < kLanes; ++lane) found.lanes |= static_cast<LaneMask>((close[lane] & 1) << lane);
        out.push_back(found);
    }
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
        : rows_(rows), objective_(objective), mean_(mean), line_(rows, objective), local_(rows), positive_(rows.x.n_rows),
          everywhere_(rows.x.n_rows, static_cast<LaneMask>(-1)) {}

    // Solves up to sixteen labels, each with at least one positive row. The weights are then in weights().
    void solve(std::span<const Positives> labels) {
        start(labels);
        LaneMask open = static_cast<LaneMask>((1u << labels.size()) - 1);
        for (int newton = 0; open && newton < kMaxNewton; ++newton) { if(getenv("DBG")) fprintf(stderr,"newton %d open %d near %zu\n",newton,__builtin_popcount(open),near_rows_.size());
            find_near_rows(rows_.x.n_rows, line_.z.data(), positive_.data(), open, kNear, near_rows_);
            for (int lane = 0; lane < kLanes; ++lane)
                if ((open >> lane & 1) && !find_direction(lane)) open &= ~(1u << lane);
            if (open) open &= ~line_.move(open, positive_.data(), everywhere_.data());
        }
    }

    const LaneVector &weights() const { return line_.w; }

  private:
    static inline const float kNear = getenv("NEAR")?atof(getenv("NEAR")):0.05f; static inline const double kReduction=getenv("RED")?atof(getenv("RED")):0.1, kPrecision=0.5; static inline const int kSteps=getenv("STEPS")?atoi(getenv("STEPS")):2; static inline const double kMS=getenv("MS")?atof(getenv("MS")):2;  // rows this close to the margin count in the sub-problem before they cross it

    // Weights u*p + v*a from the mean p of the positives and the mean a of all rows, such that p scores 1 and a scores
    // what +1 on the positives and -2 on the negatives average to: most negatives then start outside the margin.
    void start(std::span<const Positives> labels) {
        line_.to_zero();
        std::fill(positive_.begin(), positive_.end(), LaneMask{0});
        const double n = static_cast<double>(rows_.x.n_rows);
        LaneSums pp, pa;
        for (size_t lane = 0; lane < labels.size(); ++lane) {
            const float share = 1.0f / static_cast<float>(labels[lane].size());
            for (int32_t i : labels[lane]) {
                positive_[i] |= 1u << lane;
                for (int64_t k = rows_.x.indptr[i]; k < rows_.x.indptr[i + 1]; ++k)
                    line_.w[rows_.x.indices[k]][lane] += share * rows_.x.data[k];
            }
            if (rows_.bias != 0) line_.w[rows_.x.n_cols][lane] = rows_.bias;
        }
        lane_dots(line_.w.data(), line_.w.data(), width(), pp);
        for (int64_t f = 0; f < width(); ++f)
            for (int lane = 0; lane < kLanes; ++lane) pa[lane] += static_cast<double>(line_.w[f][lane]) * mean_.mean[f];
        Lanes u{}, v{};
        for (size_t lane = 0; lane < labels.size(); ++lane) {
            const double positives = static_cast<double>(labels[lane].size()), share = positives / n;
            const double at_zero = 2 * objective_.C * std::sqrt(std::max(
                0.0, 4 * positives * positives * pp[lane] - 4 * positives * n * pa[lane] + n * n * mean_.square));
            target_[lane] = objective_.target(at_zero, static_cast<int64_t>(positives), rows_.x.n_rows);
            const double mean_score = share - kMS * (1 - share);
            const double determinant = pp[lane] * mean_.square - pa[lane] * pa[lane];
            if (determinant > 1e-9 * pp[lane] * mean_.square) {
                u[lane] = static_cast<float>((mean_.square - mean_score * pa[lane]) / determinant);
                v[lane] = static_cast<float>((mean_score * pp[lane] - pa[lane]) / determinant);
            } else {
                v[lane] = -1;
            }
        }
        for (int64_t f = 0; f < width(); ++f) line_.w[f].v = line_.w[f].v * u.v + mean_.mean[f] * v.v;
        lane_products(rows_, line_.w.data(), line_.z.data());
    }

    // Fills one lane of the direction; false when the lane is solved (its direction is then zero).
    bool find_direction(int lane) {
        local_.clear();
        for (const NearRow &near : near_rows_)
            if (near.lanes >> lane & 1) local_.add_row(near.row, positive_[near.row] >> lane & 1 ? 1.0f : -1.0f);
        std::vector<float> &w = local_.weights();
        const std::vector<int32_t> &features = local_.features();
        for (size_t f = 0; f < w.size(); ++f) w[f] = line_.w[features[f]][lane];
        double elsewhere = 0;
        for (int64_t f = 0; f < width(); ++f) {
            const float value = local_.has(static_cast<int32_t>(f)) ? 0.0f : line_.w[f][lane];
            line_.direction[f][lane] = -value;
            elsewhere += static_cast<double>(value) * value;
        }
        const double here = local_.gradient(objective_.C), gradient = std::sqrt(here * here + elsewhere);
        if (!(gradient > target_[lane])) {
            for (int64_t f = 0; f < width(); ++f) line_.direction[f][lane] = 0;
            return false;
        }
        local_.solve(objective_.C, std::max(kPrecision * target_[lane], kReduction * here), kSteps);
        for (size_t f = 0; f < w.size(); ++f) line_.direction[features[f]][lane] = w[f] - line_.w[features[f]][lane];
        return true;
    }

    int64_t width() const { return rows_.n_features(); }

    const Rows rows_;
    const Objective objective_;
    const MeanRow &mean_;
    LaneLine line_;
    LocalSvm local_;
    std::vector<LaneMask> positive_, everywhere_;
    std::vector<NearRow> near_rows_;
    double target_[kLanes] = {};
};
