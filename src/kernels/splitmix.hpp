// A small random stream whose numbers do not depend on the standard library at hand.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

class SplitMix {
  public:
    explicit SplitMix(uint64_t seed, uint64_t stream = 0) : state_(seed + 0x632be59bd9b4e019ULL * (stream + 1)) { next(); }
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    // Uniform in [0, n), n > 0; the bias of the multiply-shift is below n / 2^32.
    uint64_t below(uint64_t n) { return n <= UINT32_MAX ? ((next() >> 32) * n) >> 32 : next() % n; }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

    template <typename T>
    void shuffle(std::vector<T> &items) {
        for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[below(left)]);
    }

  private:
    uint64_t state_;
};
