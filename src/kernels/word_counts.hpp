// Counts of features in texts: with a vocabulary that is learnt on the way, or with a given one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "large.hpp"
#include "threads.hpp"
#include "words.hpp"

namespace blockxmc::text {

inline constexpr int64_t kTextsPerItem = 64;

struct Count {
    int32_t id;
    int32_t count;
};

struct Counts {
    std::vector<int64_t> indptr{0};
    Unset<int32_t> indices; // written by all threads: whoever writes memory first waits for it
    Unset<float> counts;
};

// Rows of some texts, before they become part of a matrix.
struct CountedTexts {
    std::vector<Count> entries;
    std::vector<int64_t> ends; // per text
    int worker = 0;

    // Takes the numbers of one text's features, in any order, and counts each of them.
    void add_row(std::vector<int32_t> &ids) {
        std::sort(ids.begin(), ids.end());
        for (size_t i = 0, j = 0; i < ids.size(); i = j) {
            while (j < ids.size() && ids[j] == ids[i]) ++j;
            entries.push_back({ids[i], static_cast<int32_t>(j - i)});
        }
        ends.push_back(static_cast<int64_t>(entries.size()));
    }
};

// Items of rows as one matrix; their memory is given back on the way.
inline Counts joined(std::vector<CountedTexts> &items, int n_threads) {
    Counts found;
    std::vector<int64_t> first_row{0};
    for (const CountedTexts &item : items) {
        const int64_t before = found.indptr.back();
        for (const int64_t end : item.ends) found.indptr.push_back(before + end);
        first_row.push_back(static_cast<int64_t>(found.indptr.size()) - 1);
    }
    found.indices.resize(found.indptr.back());
    found.counts.resize(found.indptr.back());
    parallel_for(static_cast<int64_t>(items.size()), n_threads, [&](int64_t i, int) {
        int64_t at = found.indptr[first_row[i]];
        for (const Count entry : items[i].entries) {
            found.indices[at] = entry.id;
            found.counts[at++] = static_cast<float>(entry.count);
        }
        items[i] = {};
    });
    return found;
}

// Counts the features of texts that a table knows.
inline Counts count_known(const WordTable &known, std::span<const std::string_view> texts, const Features &features,
                          int n_threads) {
    const auto n_texts = static_cast<int64_t>(texts.size());
    std::vector<CountedTexts> items((n_texts + kTextsPerItem - 1) / kTextsPerItem);
    parallel_for(static_cast<int64_t>(items.size()), n_threads, [&](int64_t i, int) {
        Splitter splitter;
        std::vector<int32_t> ids;
        for (int64_t t = i * kTextsPerItem; t < std::min(n_texts, (i + 1) * kTextsPerItem); ++t) {
            ids.clear();
            splitter.each(texts[t], features, [&](std::string_view word) {
                const int32_t id = known.find(word);
                if (id >= 0) ids.push_back(id);
            });
            items[i].add_row(ids);
        }
    });
    return joined(items, n_threads);
}

struct Vocabulary {
    std::vector<uint8_t> words; // one behind the other, in the order of their code points
    std::vector<int64_t> ends;
    std::vector<int64_t> texts; // that hold the word
};

// Learns a vocabulary. Every worker numbers words as it meets them; `finish` gives all words their final numbers, which do
// not depend on who met them first.
class Learner {
  public:
    void feed(std::span<const std::string_view> texts, const Features &features, int n_threads) {
        const auto n_texts = static_cast<int64_t>(texts.size());
        const int64_t n_items = (n_texts + kTextsPerItem - 1) / kTextsPerItem;
        const size_t before = items_.size();
        items_.resize(before + n_items);
        const auto n_workers = static_cast<size_t>(worker_count(n_items, n_threads));
        if (workers_.size() < n_workers) workers_.resize(n_workers);
        parallel_for(n_items, n_threads, [&](int64_t i, int worker) {
            Worker &mine = workers_[worker];
            CountedTexts &item = items_[before + i];
            item.worker = worker;
            for (int64_t t = i * kTextsPerItem; t < std::min(n_texts, (i + 1) * kTextsPerItem); ++t) {
                mine.ids.clear();
                mine.splitter.each(texts[t], features,
                                   [&](std::string_view word) { mine.ids.push_back(mine.table.insert(word)); });
                const size_t row = item.entries.size();
                item.add_row(mine.ids);
                mine.note(item.entries, row);
            }
        });
    }

    // Keeps what is known of words, and nothing of the texts that were fed.
    void forget_texts() { items_.clear(); }

    // Words in at least min_texts texts, at most max_words of them: the most frequent, ties to the first in order.
    Vocabulary vocabulary(int64_t min_texts, int64_t max_words, int n_threads) {
        merge(n_threads);
        std::vector<Kept> kept = frequent_words(min_texts, n_threads);
        if (static_cast<int64_t>(kept.size()) > max_words) {
            const auto more_frequent = [this](const Kept &a, const Kept &b) {
                const int64_t x = shards_[a.shard].total[a.id], y = shards_[b.shard].total[b.id];
                return x != y ? x > y : a.word < b.word;
            };
            std::nth_element(kept.begin(), kept.begin() + max_words, kept.end(), more_frequent);
            kept.resize(max_words);
        }
        sort_words(kept, n_threads);
        return numbered(kept, n_threads);
    }

    // The counts of all texts in the numbers of the vocabulary; the learner is empty afterwards.
    Counts counts(int n_threads) {
        parallel_for(static_cast<int64_t>(workers_.size()), n_threads, [&](int64_t w, int) {
            Worker &worker = workers_[w];
            for (int32_t id = 0; id < worker.table.size(); ++id)
                worker.place[id] = shards_[shard_of(worker.table.hash_of(id))].final_id[worker.place[id]];
        });
        parallel_for(static_cast<int64_t>(items_.size()), n_threads, [&](int64_t i, int) { renumber(items_[i]); });
        shards_.clear();
        Counts found = joined(items_, n_threads);
        items_.clear();
        workers_.clear();
        return found;
    }

  private:
    static constexpr size_t kShards = 16;
    static constexpr int64_t kParts = 16;

    struct Worker {
        WordTable table;
        Splitter splitter;
        std::vector<int32_t> ids;
        std::vector<int64_t> texts, total; // per word
        std::vector<int32_t> place;        // its number in its shard, then in the vocabulary (-1: left out)

        void note(const std::vector<Count> &entries, size_t from) {
            texts.resize(table.size());
            total.resize(table.size());
            for (size_t i = from; i < entries.size(); ++i) {
                ++texts[entries[i].id];
                total[entries[i].id] += entries[i].count;
            }
        }
    };

    // All words of one range of hashes, from all workers.
    struct Shard {
        WordTable table;
        std::vector<int64_t> texts, total;
        std::vector<int32_t> final_id;
    };

    struct Kept {
        std::string_view word;
        int32_t shard, id;
    };

    static size_t shard_of(uint32_t hash) { return hash >> 28; } // tables use the low bits

    void merge(int n_threads) {
        shards_.assign(kShards, {});
        for (Worker &worker : workers_) worker.place.resize(worker.table.size());
        parallel_for(kShards, n_threads, [&](int64_t s, int) {
            Shard &shard = shards_[s];
            for (Worker &worker : workers_) {
                for (int32_t id = 0; id < worker.table.size(); ++id) {
                    if (shard_of(worker.table.hash_of(id)) != static_cast<size_t>(s)) continue;
                    const int32_t at = shard.table.insert(worker.table.word(id));
                    shard.texts.resize(shard.table.size());
                    shard.total.resize(shard.table.size());
                    shard.texts[at] += worker.texts[id];
                    shard.total[at] += worker.total[id];
                    worker.place[id] = at;
                }
            }
            shard.final_id.assign(shard.table.size(), -1);
        });
    }

    std::vector<Kept> frequent_words(int64_t min_texts, int n_threads) const {
        std::vector<std::vector<Kept>> of_shard(kShards);
        parallel_for(kShards, n_threads, [&](int64_t s, int) {
            for (int32_t id = 0; id < shards_[s].table.size(); ++id)
                if (shards_[s].texts[id] >= min_texts)
                    of_shard[s].push_back({shards_[s].table.word(id), static_cast<int32_t>(s), id});
        });
        std::vector<Kept> kept;
        for (const std::vector<Kept> &words : of_shard) kept.insert(kept.end(), words.begin(), words.end());
        return kept;
    }

    // Sorts parts of the words, and then fills ranges of the order from all parts: no step is left to one thread.
    static void sort_words(std::vector<Kept> &kept, int n_threads) {
        const auto before = [](const Kept &a, const Kept &b) { return a.word < b.word; };
        const auto cut = [&](int64_t part) { return kept.begin() + first_of(part, kept); };
        parallel_for(kParts, n_threads, [&](int64_t i, int) { std::sort(cut(i), cut(i + 1), before); });

        std::vector<Kept> sample; // its sixteenths are where ranges begin
        for (int64_t i = 0; i < kParts; ++i)
            for (int64_t j = 0; j < kParts && cut(i) < cut(i + 1); ++j)
                sample.push_back(*(cut(i) + (cut(i + 1) - cut(i)) * j / kParts));
        std::sort(sample.begin(), sample.end(), before);
        const auto stop = [&](int64_t part, int64_t range) {
            if (range == 0) return cut(part);
            return range == kParts ? cut(part + 1)
                                   : std::lower_bound(cut(part), cut(part + 1), sample[first_of(range, sample)], before);
        };
        std::vector<Kept> sorted(kept.size());
        parallel_for(sample.empty() ? 0 : kParts, n_threads, [&](int64_t range, int) {
            int64_t smaller = 0;
            for (int64_t part = 0; part < kParts; ++part) smaller += stop(part, range) - cut(part);
            const auto first = sorted.begin() + smaller;
            auto last = first;
            for (int64_t part = 0; part < kParts; ++part) last = std::copy(stop(part, range), stop(part, range + 1), last);
            std::sort(first, last, before);
        });
        kept = std::move(sorted);
    }

    // Gives words in order their final numbers, and writes them one behind the other.
    Vocabulary numbered(const std::vector<Kept> &kept, int n_threads) {
        Vocabulary found;
        found.ends.resize(kept.size());
        found.texts.resize(kept.size());
        int64_t end = 0;
        for (size_t i = 0; i < kept.size(); ++i) found.ends[i] = end += static_cast<int64_t>(kept[i].word.size());
        found.words.resize(end);
        parallel_for(kParts, n_threads, [&](int64_t part, int) {
            for (int64_t i = first_of(part, kept); i < first_of(part + 1, kept); ++i) {
                const std::string_view word = kept[i].word;
                Shard &shard = shards_[kept[i].shard];
                shard.final_id[kept[i].id] = static_cast<int32_t>(i);
                found.texts[i] = shard.texts[kept[i].id];
                std::copy(word.begin(), word.end(), found.words.begin() + found.ends[i] - static_cast<int64_t>(word.size()));
            }
        });
        return found;
    }

    // Where one of kParts equal parts of a list begins.
    static int64_t first_of(int64_t part, const std::vector<Kept> &list) {
        return static_cast<int64_t>(list.size()) * part / kParts;
    }

    // Final numbers instead of the worker's, in order, without words that were left out.
    void renumber(CountedTexts &item) const {
        const std::vector<int32_t> &final_id = workers_[item.worker].place;
        std::vector<Count> &entries = item.entries;
        int64_t from = 0, to = 0;
        for (int64_t &end : item.ends) {
            const int64_t row = to;
            for (; from < end; ++from) {
                const Count entry = entries[from];
                if (final_id[entry.id] >= 0) entries[to++] = {final_id[entry.id], entry.count};
            }
            std::sort(entries.begin() + row, entries.begin() + to, [](Count a, Count b) { return a.id < b.id; });
            end = to;
        }
        entries.resize(to);
    }

    std::vector<Worker> workers_;
    std::vector<CountedTexts> items_;
    std::vector<Shard> shards_;
};

// Counts to TF-IDF: 1 + ln(count), times idf, rows of length one. May be done in place.
inline void weigh(std::span<const int64_t> indptr, const int32_t *indices, const float *counts, const float *idf,
                  int32_t *out_indices, float *out_values, int n_threads) {
    const auto n_rows = static_cast<int64_t>(indptr.size()) - 1;
    constexpr int64_t rows_per_item = 1024;
    parallel_for((n_rows + rows_per_item - 1) / rows_per_item, n_threads, [&](int64_t item, int) {
        for (int64_t i = item * rows_per_item; i < std::min(n_rows, (item + 1) * rows_per_item); ++i) {
            double squares = 0.0;
            for (int64_t k = indptr[i]; k < indptr[i + 1]; ++k) {
                const float value = (counts[k] == 1.0f ? 1.0f : 1.0f + std::log(counts[k])) * idf[indices[k]];
                squares += static_cast<double>(value) * value;
                out_indices[k] = indices[k];
                out_values[k] = value;
            }
            const double scale = squares > 0 ? 1.0 / std::sqrt(squares) : 0.0;
            for (int64_t k = indptr[i]; k < indptr[i + 1]; ++k) out_values[k] = static_cast<float>(out_values[k] * scale);
        }
    });
}

} // namespace blockxmc::text
