// Scores of a few labels of a row: row . weights of the label, for the listed labels only.
//
// There are two ways to compute them, and each row takes the way that touches fewer weights: label by label over the weights
// of the candidates, or feature by feature over the weights of all labels. Both add the same products in the order of the
// features, so both give the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "threads.hpp"

namespace blockxmc {

class CandidateScores {
  public:
    struct Scratch {
        std::vector<float> spread; // the row's values at its features, zero elsewhere
        std::vector<double> sums;   // per label
    };

    explicit CandidateScores(const CsrView &by_label, int threads = 1) : by_label_(by_label), ptr_(by_label.n_cols + 1, 0) {
        labels_.resize(by_label.nnz());
        weights_.resize(by_label.nnz());
        // Labels in a few parts, each of which counts its own weights of every feature, and knows then where they go.
        const int64_t n_parts = std::clamp<int64_t>(by_label.nnz() / (4 * std::max<int64_t>(by_label.n_cols, 1)), 1, 16);
        std::vector<std::vector<int64_t>> place(n_parts, std::vector<int64_t>(by_label.n_cols, 0));
        const auto weights_of = [&](int64_t part, auto &&use) {
            const int64_t n = by_label.n_rows;
            for (int64_t j = part * n / n_parts; j < (part + 1) * n / n_parts; ++j)
                for (int64_t e = by_label.indptr[j]; e < by_label.indptr[j + 1]; ++e) use(j, e);
        };
        parallel_for(n_parts, threads, [&](int64_t part, int) {
            weights_of(part, [&](int64_t, int64_t e) { ++place[part][by_label.indices[e]]; });
        });
        int64_t total = 0;
        for (int64_t f = 0; f < by_label.n_cols; ++f) {
            for (std::vector<int64_t> &each : place) total += std::exchange(each[f], total);
            ptr_[f + 1] = total;
        }
        parallel_for(n_parts, threads, [&](int64_t part, int) {
            weights_of(part, [&](int64_t j, int64_t e) {
                const int64_t at = place[part][by_label.indices[e]]++;
                labels_[at] = static_cast<int32_t>(j);
                weights_[at] = by_label.data[e];
            });
        });
    }

    int64_t n_labels() const { return by_label_.n_rows; }
    int64_t n_features() const { return by_label_.n_cols; }
    Scratch scratch() const {
        return {std::vector<float>(n_features(), 0.0f), std::vector<double>(n_labels(), 0.0)};
    }

    // out: one score per listed label. The row's features are ascending.
    void row(const CsrView &x, int64_t i, const int32_t *labels, int64_t n, float *out, Scratch &scratch) const {
        int64_t over_labels = 0, over_features = n_labels() / 4; // clearing the sums costs a little too
        for (int64_t s = 0; s < n; ++s) over_labels += by_label_.row_size(labels[s]);
        for (int64_t e = x.indptr[i]; e < x.indptr[i + 1]; ++e)
            over_features += ptr_[x.indices[e] + 1] - ptr_[x.indices[e]];
        if (over_features < over_labels) by_feature(x, i, labels, n, out, scratch.sums);
        else by_label(x, i, labels, n, out, scratch.spread);
    }

  private:
    CsrView by_label_;
    std::vector<int64_t> ptr_; // the same weights by feature, labels ascending
    std::vector<int32_t> labels_;
    std::vector<float> weights_;

    void by_feature(const CsrView &x, int64_t i, const int32_t *labels, int64_t n, float *out,
                    std::vector<double> &sums) const {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int64_t e = x.indptr[i]; e < x.indptr[i + 1]; ++e) {
            const double value = x.data[e];
            for (int64_t at = ptr_[x.indices[e]]; at < ptr_[x.indices[e] + 1]; ++at)
                sums[labels_[at]] += weights_[at] * value;
        }
        for (int64_t s = 0; s < n; ++s) out[s] = static_cast<float>(sums[labels[s]]);
    }

    void by_label(const CsrView &x, int64_t i, const int32_t *labels, int64_t n, float *out,
                  std::vector<float> &spread) const {
        for (int64_t e = x.indptr[i]; e < x.indptr[i + 1]; ++e) spread[x.indices[e]] = x.data[e];
        for (int64_t s = 0; s < n; ++s) {
            double sum = 0;
            for (int64_t e = by_label_.indptr[labels[s]]; e < by_label_.indptr[labels[s] + 1]; ++e)
                sum += static_cast<double>(by_label_.data[e]) * spread[by_label_.indices[e]];
            out[s] = static_cast<float>(sum);
        }
        for (int64_t e = x.indptr[i]; e < x.indptr[i + 1]; ++e) spread[x.indices[e]] = 0;
    }
};

} // namespace blockxmc
