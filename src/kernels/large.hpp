// Vectors of numbers whose memory begins at the start of a cache line.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace blockxmc {

template <typename T>
struct AlignedAllocator {
    using value_type = T;
    static constexpr std::align_val_t kAligned{64};
    static_assert(alignof(T) <= static_cast<size_t>(kAligned));

    AlignedAllocator() = default;
    template <typename Other>
    AlignedAllocator(const AlignedAllocator<Other> &) {}

    T *allocate(size_t n) {
        if (n > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T *>(::operator new(n * sizeof(T), kAligned));
    }
    void deallocate(T *array, size_t) noexcept { ::operator delete(array, kAligned); }
    template <typename Other>
    bool operator==(const AlignedAllocator<Other> &) const {
        return true;
    }
};

template <typename T>
using Large = std::vector<T, AlignedAllocator<T>>;

// The same, but resize() leaves new elements unset: the threads that fill them touch their memory first, all at once.
template <typename T>
struct UnsetAllocator : AlignedAllocator<T> {
    template <typename Other>
    struct rebind {
        using other = UnsetAllocator<Other>;
    };
    UnsetAllocator() = default;
    template <typename Other>
    UnsetAllocator(const UnsetAllocator<Other> &) {}
    template <typename U>
    void construct(U *place) {
        ::new (static_cast<void *>(place)) U;
    }
    template <typename U, typename... Args>
    void construct(U *place, Args &&...args) {
        ::new (static_cast<void *>(place)) U(std::forward<Args>(args)...);
    }
};
template <typename T>
using Unset = std::vector<T, UnsetAllocator<T>>;

} // namespace blockxmc
