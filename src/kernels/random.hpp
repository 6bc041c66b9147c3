// Random numbers (splitmix64): a stream is cheap to start for each item, so that results do not depend on the thread count.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace blockxmc {

class RandomStream {
  public:
    explicit RandomStream(uint64_t seed, uint64_t item = 0) : state_(seed + step * (item + 1)) { next(); }

    // A stream of one node of a tree. Its numbers are part of every stored partition: keep them as they are.
    static RandomStream of_node(uint64_t seed, uint64_t node) {
        RandomStream stream(0);
        stream.state_ = mix(seed) ^ mix(node * step + 1);
        return stream;
    }

    uint64_t next() { return mix(state_ += step); }
    // Uniform in [0, n), 0 < n < 2^32; the bias of the multiply-shift is below n / 2^32.
    int64_t below(int64_t n) { return static_cast<int64_t>(((next() >> 32) * static_cast<uint64_t>(n)) >> 32); }
    // ... for any n, from all 64 bits.
    int64_t below_any(int64_t n) {
        __extension__ using Wide = unsigned __int128;
        return static_cast<int64_t>((static_cast<Wide>(next()) * static_cast<uint64_t>(n)) >> 64);
    }
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
    static constexpr uint64_t step = 0x9E3779B97F4A7C15ULL;

    static uint64_t mix(uint64_t z) {
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }

    uint64_t state_;
};

} // namespace blockxmc
