// Large arrays of a training: in memory as long as all of them together stay within a budget, beyond it in files without a
// name, whose pages the system writes out and drops when it needs the memory. What is computed is the same either way.
#pragma once

#ifndef _WIN32
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

namespace blockxmc {

class Scratch {
  public:
    static constexpr size_t kLarge = size_t{1} << 20; // smaller arrays are not counted and stay in memory
    static constexpr std::align_val_t kAligned{64};

    static Scratch &all() {
        static Scratch *const scratch = new Scratch; // never destroyed: arrays may outlive everything
        return *scratch;
    }

    // From now on, arrays beyond `budget` bytes go to files in `folder`; an empty folder: none do.
    void limit(const std::string &folder, int64_t budget) {
        const std::lock_guard<std::mutex> hold(lock_);
        give_back_at_once(!folder.empty());
        folder_ = folder;
        budget_ = budget;
        most_ = in_memory_;
    }

    void *take(size_t bytes) {
        if (bytes < kLarge) return ::operator new(bytes, kAligned);
        std::string folder;
        {
            const std::lock_guard<std::mutex> hold(lock_);
            const auto size = static_cast<int64_t>(bytes);
            if (!folder_.empty() && in_memory_ + size > budget_) folder = folder_;
            else in_memory_ += size;
            most_ = std::max(most_, in_memory_);
        }
        if (!folder.empty()) return take_file(folder, bytes);
        try {
            return ::operator new(bytes, kAligned);
        } catch (...) {
            forget(bytes);
            throw;
        }
    }

    void give(void *array, size_t bytes) noexcept {
        if (bytes >= kLarge) {
            const std::lock_guard<std::mutex> hold(lock_);
            if (mapped_.erase(array)) {
#ifndef _WIN32
                munmap(array, bytes);
#endif
                in_files_ -= static_cast<int64_t>(bytes);
                return;
            }
            in_memory_ -= static_cast<int64_t>(bytes);
        }
        ::operator delete(array, kAligned);
    }

    // Bytes of large arrays in memory now, the most since the last limit, and bytes in files now.
    struct Held {
        int64_t in_memory, most, in_files;
    };
    Held held() {
        const std::lock_guard<std::mutex> hold(lock_);
        return {in_memory_, most_, in_files_};
    }

  private:
    void forget(size_t bytes) {
        const std::lock_guard<std::mutex> hold(lock_);
        in_memory_ -= static_cast<int64_t>(bytes);
    }

    // Whether memory that is freed goes back to the system at once. Usually the C library keeps some, which saves page faults.
    static void give_back_at_once([[maybe_unused]] bool wanted) {
#ifdef __GLIBC__
        mallopt(M_MMAP_THRESHOLD, wanted ? static_cast<int>(kLarge) : 32 << 20); // 32 MiB is what it moves up to by itself
        mallopt(M_TRIM_THRESHOLD, wanted ? static_cast<int>(kLarge) : 64 << 20);
        if (wanted) malloc_trim(0);
#endif
    }

#ifdef _WIN32
    void *take_file(const std::string &, size_t) { throw std::runtime_error("scratch files: not on Windows yet"); }
#else
    void *take_file(const std::string &folder, size_t bytes) {
        const int file = open_nameless(folder);
        // Reserved at once, where the system can: a full disk is an error here, and not a signal when a page is written.
        int error = file < 0 ? errno : reserve(file, bytes);
        void *array = MAP_FAILED;
        if (!error && (array = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) == MAP_FAILED) error = errno;
        if (file >= 0) close(file);
        if (error)
            throw std::runtime_error("no room for scratch files: " + folder + ": " + std::strerror(error) + " (" +
                                     std::to_string(bytes >> 20) + " MiB were asked for)");
        const std::lock_guard<std::mutex> hold(lock_);
        mapped_.insert(array);
        in_files_ += static_cast<int64_t>(bytes);
        return array;
    }

    static int reserve(int file, size_t bytes) {
#ifdef __APPLE__ // has no posix_fallocate
        return ftruncate(file, static_cast<off_t>(bytes)) ? errno : 0;
#else
        return posix_fallocate(file, 0, static_cast<off_t>(bytes));
#endif
    }

    static int open_nameless(const std::string &folder) {
#ifdef O_TMPFILE
        if (const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); file >= 0) return file;
#endif
        std::string name = folder + "/blockxmc-scratch-XXXXXX";
        const int file = mkstemp(name.data());
        if (file >= 0) unlink(name.c_str());
        return file;
    }
#endif

    std::mutex lock_;
    std::string folder_;
    int64_t budget_ = 0, in_memory_ = 0, most_ = 0, in_files_ = 0;
    std::unordered_set<void *> mapped_;
};

template <typename T>
struct ScratchAllocator {
    using value_type = T;
    static_assert(alignof(T) <= static_cast<size_t>(Scratch::kAligned));

    ScratchAllocator() = default;
    template <typename Other>
    ScratchAllocator(const ScratchAllocator<Other> &) {}

    T *allocate(size_t n) {
        if (n > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T *>(Scratch::all().take(n * sizeof(T)));
    }
    void deallocate(T *array, size_t n) noexcept { Scratch::all().give(array, n * sizeof(T)); }
    template <typename Other>
    bool operator==(const ScratchAllocator<Other> &) const {
        return true;
    }
};

// A vector that may be as large as X, or as the weights.
template <typename T>
using Large = std::vector<T, ScratchAllocator<T>>;

// The same, but resize() leaves new elements unset: the threads that fill them touch their memory first, all at once.
template <typename T>
struct UnsetAllocator : ScratchAllocator<T> {
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
