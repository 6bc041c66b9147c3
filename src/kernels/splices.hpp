// What of a new array stands in an old one already: stretches to take over, and items of its own between them.
//
// The old array is cut into windows, found again by their hash wherever they stand in the new one, and a window that is found
// is extended on both sides. Where the last stretch ended, the same distance further on is tried first: most changes leave
// what follows where it was.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace blockxmc {

// Stretch after stretch of the new array: where its items stand in the old one (-1: nowhere), and how many they are.
struct Pieces {
    std::vector<int64_t> from, sizes;
};

template <typename Item>
class Splicer {
  public:
    explicit Splicer(std::span<const Item> old) : old_(old), n_(static_cast<int64_t>(old.size())) {
        const int64_t n_windows = n_ / kWindow;
        first_.assign(std::bit_ceil(static_cast<uint64_t>(2 * n_windows + 1)), -1);
        for (int64_t w = 0; w < n_windows; ++w) {
            int64_t &place = slot(hash(old.data() + w * kWindow), old.data() + w * kWindow);
            if (place < 0) place = w * kWindow; // of windows alike, the first
        }
    }

    // Gives up, with nothing, beyond so many stretches or items of its own.
    Pieces find(std::span<const Item> made, int64_t most_pieces, int64_t most_own) {
        Pieces out;
        const auto n = static_cast<int64_t>(made.size());
        int64_t at = 0, own = 0, n_own = 0; // `own` is where items begin that were not found yet
        int64_t ahead = 0;                  // how much further on the old items stand
        uint64_t rolling = n >= kWindow ? hash(made.data()) : 0;
        while (at + kWindow <= n) {
            int64_t found = at + ahead;
            if (!stands(found, made.data() + at)) found = slot(rolling, made.data() + at);
            if (found < 0) {
                if (at + kWindow < n) rolling = (rolling - made[at] * kOldest) * kFactor + made[at + kWindow];
                ++at;
                continue;
            }
            int64_t size = kWindow;
            while (at > own && found > 0 && made[at - 1] == old_[found - 1]) --at, --found, ++size;
            while (at + size < n && found + size < n_ && made[at + size] == old_[found + size]) ++size;
            n_own += at - own;
            if (static_cast<int64_t>(out.from.size()) + 2 > most_pieces || n_own > most_own) return {};
            add(out, -1, at - own);
            add(out, found, size);
            ahead = found - at;
            own = at += size;
            if (at + kWindow <= n) rolling = hash(made.data() + at);
        }
        if (n_own + n - own > most_own) return {};
        add(out, -1, n - own);
        return out;
    }

  private:
    static constexpr int64_t kWindow = 32 / sizeof(Item); // 32 bytes: twice what a stretch takes to write down
    static constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    static constexpr uint64_t kOldest = [] {
        uint64_t power = 1;
        for (int64_t k = 1; k < kWindow; ++k) power *= kFactor;
        return power;
    }();

    static uint64_t hash(const Item *items) {
        uint64_t out = 0;
        for (int64_t k = 0; k < kWindow; ++k) out = out * kFactor + items[k];
        return out;
    }

    bool stands(int64_t from, const Item *items) const {
        return from >= 0 && from + kWindow <= n_ && std::equal(items, items + kWindow, old_.data() + from);
    }

    // Where a window with these items is noted: empty (-1) where none is.
    int64_t &slot(uint64_t hash, const Item *items) {
        const uint64_t mask = first_.size() - 1;
        hash ^= hash >> 29;
        hash *= 0xBF58476D1CE4E5B9;
        for (uint64_t place = (hash ^ hash >> 32) & mask;; place = (place + 1) & mask)
            if (first_[place] < 0 || stands(first_[place], items)) return first_[place];
    }

    static void add(Pieces &out, int64_t from, int64_t size) {
        if (size == 0) return;
        out.from.push_back(from);
        out.sizes.push_back(size);
    }

    const std::span<const Item> old_;
    const int64_t n_;
    std::vector<int64_t> first_;
};

} // namespace blockxmc
