// An array that grows by realloc: a large array is remapped without a copy, and unwritten memory takes no room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace blockxmc {

template <typename T>
class GrowingArray {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    GrowingArray() = default;
    GrowingArray(const GrowingArray &) = delete;
    GrowingArray &operator=(const GrowingArray &) = delete;
    GrowingArray(GrowingArray &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    ~GrowingArray() { std::free(data_); }

    T *data() { return data_; }
    int64_t size() const { return size_; }

    // New elements are uninitialised.
    void resize(int64_t size) {
        // A large array starts at a size that the allocator maps: only mapped memory grows without a copy.
        if (size > capacity_) reallocate(std::max({size, capacity_ + capacity_ / 2, size > kLarge ? kMapped : 0}));
        size_ = size;
    }
    // Gives up ownership: the caller frees with std::free. Never null.
    T *release() {
        if (capacity_ > size_ || !data_) reallocate(size_);
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

  private:
    static constexpr int64_t kLarge = int64_t{1} << 18, kMapped = int64_t{1} << 24;

    void reallocate(int64_t capacity) {
        void *moved = std::realloc(data_, static_cast<size_t>(std::max<int64_t>(capacity, 1)) * sizeof(T));
        if (!moved) throw std::bad_alloc();
        data_ = static_cast<T *>(moved);
        capacity_ = capacity;
    }

    T *data_ = nullptr;
    int64_t size_ = 0;
    int64_t capacity_ = 0;
};

} // namespace blockxmc
