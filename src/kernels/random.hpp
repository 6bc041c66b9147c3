// A small random stream (splitmix64): cheap to seed per item, so that results do not depend on the thread count.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

class RandomStream {
  public:
    explicit RandomStream(uint64_t seed, uint64_t item = 0) : state_(seed + 0x9E3779B97F4A7C15ULL * (item + 1)) { next(); }

    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }
    // Uniform in [0, n), 0 < n < 2^32; the bias of the multiply-shift is below n / 2^32.
    int64_t below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

    template <typename T>
    void shuffle(T *items, int64_t n) {
        for (int64_t i = n - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
    }

    template <typename T>
    void shuffle(std::vector<T> &items) {
        shuffle(items.data(), static_cast<int64_t>(items.size()));
    }

  private:
    uint64_t state_;
};
