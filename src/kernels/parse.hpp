// XC text (`label,label feature:value feature:value ...`, one row per line) to CSR arrays, and back.
//
// Text arrives in blocks of whole lines. A block is cut at line ends into chunks that are parsed in parallel into their own
// scratch, then copied behind what was read before: memory holds the result and the scratch of one block.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "csr.hpp"
#include "decimal.hpp"
#include "growing.hpp"
#include "threads.hpp"

namespace blockxmc::xc {

inline constexpr int64_t kChunkBytes = int64_t{1} << 18;

struct Fault {
    Finding finding = Finding::none;
    int64_t row = -1;     // row of the file
    int64_t offset = -1; // first byte of the offending token in its block
};

struct Limits {
    int64_t n_features;
    int64_t n_labels;
};

// Rows of one stretch of lines. Every line ends in '\n', which no token contains: it stops every scan.
class Chunk {
  public:
    std::vector<int64_t> feature_end, label_end; // per row, counted from the start of the chunk
    int64_t max_feature = -1, max_label = -1;
    int64_t trailing_empty = 0; // empty lines at the end
    Finding finding = Finding::none;
    const char *fault_at = nullptr;

    int64_t n_rows() const { return static_cast<int64_t>(feature_end.size()); }
    const int32_t *features() const { return features_.get(); }
    const float *values() const { return values_.get(); }
    const int32_t *labels() const { return labels_.get(); }
    int64_t n_features() const { return n_features_; }
    int64_t n_labels() const { return n_labels_; }

    void parse(const char *p, const char *end, const Limits &limits) {
        reset(end - p);
        while (p < end && finding == Finding::none) {
            const bool empty = *p == '\n' || (*p == '\r' && p[1] == '\n');
            const bool good = read_labels(p, limits.n_labels) && read_features(p, limits.n_features);
            if (!good) return;
            ++p; // the newline
            trailing_empty = empty ? trailing_empty + 1 : 0;
            feature_end.push_back(n_features_);
            label_end.push_back(n_labels_);
        }
    }

  private:
    struct Entry {
        int32_t index;
        float value;
    };

    // A feature takes at least four bytes ("0:1" and what ends it) and a label two, so the arrays are always large enough.
    void reset(int64_t bytes) {
        if (bytes > capacity_) {
            capacity_ = bytes;
            features_ = std::make_unique_for_overwrite<int32_t[]>(bytes / 4 + 1);
            values_ = std::make_unique_for_overwrite<float[]>(bytes / 4 + 1);
            labels_ = std::make_unique_for_overwrite<int32_t[]>(bytes / 2 + 1);
        }
        n_features_ = n_labels_ = trailing_empty = 0;
        max_feature = max_label = -1;
        finding = Finding::none;
        feature_end.clear();
        label_end.clear();
    }

    bool fail(Finding what, const char *at) {
        finding = what;
        fault_at = at;
        return false;
    }

    bool read_labels(const char *&p, int64_t limit) {
        if (ends_token(*p)) return true;
        const int64_t row_start = n_labels_;
        int64_t last = -1;
        bool sorted = true;
        for (const char *const field = p;; ++p) {
            const char *const token = p;
            const int64_t label = read_index(p);
            if (label < 0) return fail(*p == '-' ? Finding::negative_label : Finding::bad_label, token);
            if (*p == ':' && token == field) { // a feature: the row has no labels
                p = field;
                return true;
            }
            if (*p != ',' && !ends_token(*p)) return fail(Finding::bad_label, token);
            if (label >= limit) return fail(Finding::label_range, token);
            sorted &= label > last;
            last = label;
            max_label = std::max(max_label, label);
            labels_[n_labels_++] = static_cast<int32_t>(label);
            if (*p != ',') break;
        }
        if (!sorted) {
            int32_t *first = labels_.get() + row_start, *end = labels_.get() + n_labels_;
            std::sort(first, end);
            n_labels_ = std::unique(first, end) - labels_.get();
        }
        return true;
    }

    bool read_features(const char *&p, int64_t limit) {
        const int64_t row_start = n_features_;
        int64_t last = -1;
        bool sorted = true;
        const char *const line = p;
        for (;;) {
            while (is_blank(*p)) ++p;
            if (*p == '\n') break;
            const char *const token = p;
            const int64_t feature = read_index(p);
            if (feature < 0) return fail(*p == '-' ? Finding::negative_feature : Finding::bad_feature, token);
            if (*p != ':') return fail(Finding::bad_feature, token);
            if (feature >= limit) return fail(Finding::feature_range, token);
            const Number number = read_float(++p);
            if (number.finding != Finding::none) return fail(number.finding, token);
            max_feature = std::max(max_feature, feature);
            if (number.value == 0.0f) continue;
            sorted &= feature > last;
            last = feature;
            features_[n_features_] = static_cast<int32_t>(feature);
            values_[n_features_++] = number.value;
        }
        return sorted || sort_row(row_start, line);
    }

    // Sorts a row's features and adds up repeated ones: in the order of the file, in double, rounded once.
    bool sort_row(int64_t row_start, const char *line) {
        entries_.clear();
        for (int64_t k = row_start; k < n_features_; ++k) entries_.push_back({features_[k], values_[k]});
        std::stable_sort(entries_.begin(), entries_.end(), [](Entry a, Entry b) { return a.index < b.index; });
        n_features_ = row_start;
        for (size_t k = 0; k < entries_.size();) {
            const int32_t index = entries_[k].index;
            double sum = 0.0;
            for (; k < entries_.size() && entries_[k].index == index; ++k) sum += entries_[k].value;
            const float value = static_cast<float>(sum);
            if (std::isinf(value)) return fail(Finding::value_range, line);
            if (value == 0.0f) continue;
            features_[n_features_] = index;
            values_[n_features_++] = value;
        }
        return true;
    }

    std::unique_ptr<int32_t[]> features_, labels_;
    std::unique_ptr<float[]> values_;
    std::vector<Entry> entries_;
    int64_t capacity_ = 0, n_features_ = 0, n_labels_ = 0;
};

class Parser {
  public:
    GrowingArray<int64_t> indptr, label_indptr;
    GrowingArray<int32_t> indices, label_indices;
    GrowingArray<float> data;
    int64_t max_feature = -1, max_label = -1;
    int64_t trailing_empty = 0;

    explicit Parser(Limits limits) : limits_(limits) {
        indptr.resize(1);
        label_indptr.resize(1);
        indptr.data()[0] = label_indptr.data()[0] = 0;
    }

    int64_t n_rows() const { return indptr.size() - 1; }

    // Reads a block of whole lines (only the last one may lack its newline). Reports the first fault of the block, if any.
    Fault feed(const char *text, int64_t size, int n_threads) {
        std::vector<const char *> cuts = chunk_cuts(text, size);
        const char *const body_end = cuts.back();
        std::string tail;
        if (body_end < text + size) tail.assign(body_end, text + size).push_back('\n');
        const auto n_body = static_cast<int64_t>(cuts.size()) - 1;
        const int64_t n_chunks = n_body + (tail.empty() ? 0 : 1);
        if (n_chunks > static_cast<int64_t>(chunks_.size())) chunks_.resize(n_chunks);
        parallel_for(n_chunks, n_threads, [&](int64_t i, int) {
            if (i < n_body)
                chunks_[i].parse(cuts[i], cuts[i + 1], limits_);
            else
                chunks_[i].parse(tail.data(), tail.data() + tail.size(), limits_);
        });
        int64_t row = n_rows();
        for (int64_t i = 0; i < n_chunks; ++i) {
            row += chunks_[i].n_rows();
            if (chunks_[i].finding == Finding::none) continue;
            const int64_t offset = i < n_body ? chunks_[i].fault_at - text : body_end - text + (chunks_[i].fault_at - tail.data());
            return {chunks_[i].finding, row, offset};
        }
        append(n_chunks, n_threads);
        return {};
    }

  private:
    static std::vector<const char *> chunk_cuts(const char *text, int64_t size) {
        const char *end = text + size;
        while (end > text && end[-1] != '\n') --end;
        std::vector<const char *> cuts{text};
        while (cuts.back() < end) {
            const char *cut = end;
            if (end - cuts.back() > kChunkBytes) {
                const char *from = cuts.back() + kChunkBytes;
                cut = static_cast<const char *>(std::memchr(from, '\n', end - from)) + 1;
            }
            cuts.push_back(cut);
        }
        return cuts;
    }

    void append(int64_t n_chunks, int n_threads) {
        struct Start {
            int64_t row, feature, label;
        };
        std::vector<Start> starts{{n_rows(), indices.size(), label_indices.size()}};
        for (int64_t i = 0; i < n_chunks; ++i) {
            const Chunk &chunk = chunks_[i];
            const Start s = starts.back();
            starts.push_back({s.row + chunk.n_rows(), s.feature + chunk.n_features(), s.label + chunk.n_labels()});
            max_feature = std::max(max_feature, chunk.max_feature);
            max_label = std::max(max_label, chunk.max_label);
            trailing_empty = chunk.trailing_empty + (chunk.trailing_empty == chunk.n_rows() ? trailing_empty : 0);
        }
        indptr.resize(starts.back().row + 1);
        label_indptr.resize(starts.back().row + 1);
        indices.resize(starts.back().feature);
        data.resize(starts.back().feature);
        label_indices.resize(starts.back().label);
        parallel_for(n_chunks, n_threads, [&](int64_t i, int) {
            const Chunk &chunk = chunks_[i];
            const Start s = starts[i];
            std::copy_n(chunk.features(), chunk.n_features(), indices.data() + s.feature);
            std::copy_n(chunk.values(), chunk.n_features(), data.data() + s.feature);
            std::copy_n(chunk.labels(), chunk.n_labels(), label_indices.data() + s.label);
            for (int64_t r = 0; r < chunk.n_rows(); ++r) {
                indptr.data()[s.row + r + 1] = s.feature + chunk.feature_end[r];
                label_indptr.data()[s.row + r + 1] = s.label + chunk.label_end[r];
            }
        });
    }

    Limits limits_;
    std::vector<Chunk> chunks_;
};

// ---- writing ----

template <typename T>
void append_number(std::string &text, T value) {
    char digits[32];
    const auto result = std::to_chars(digits, digits + sizeof digits, value); // floats: the shortest that reads back
    text.append(digits, result.ptr);
}

// Rows [first, last) as XC lines. A row with no labels starts with a space; stored zeros are left out.
inline std::string format_rows(const CsrView &X, const CsrView &Y, int64_t first, int64_t last) {
    std::string text;
    for (int64_t i = first; i < last; ++i) {
        for (int64_t k = Y.indptr[i]; k < Y.indptr[i + 1]; ++k) {
            if (k > Y.indptr[i]) text.push_back(',');
            append_number(text, Y.indices[k]);
        }
        const size_t before = text.size();
        for (int64_t k = X.indptr[i]; k < X.indptr[i + 1]; ++k) {
            if (X.data[k] == 0.0f) continue;
            text.push_back(' ');
            append_number(text, X.indices[k]);
            text.push_back(':');
            append_number(text, X.data[k]);
        }
        if (text.size() == before && Y.row_size(i) == 0) text.push_back(' ');
        text.push_back('\n');
    }
    return text;
}

} // namespace blockxmc::xc
