// A small parallel_for, and the counter through which Python watches or cancels a running kernel.
//
// Work is handed out in items (dynamic schedule). A kernel is deterministic for any thread count when each item
// writes only to its own place and the item boundaries do not depend on the number of threads: keep it so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "thread_pool.hpp"

namespace blockxmc {

// progress[0] counts finished items; Python sets progress[1] != 0 to ask the kernel to stop early.
class Watch {
  public:
    explicit Watch(int64_t *progress = nullptr) : progress_(progress) {}
    void advance(int64_t n = 1) const {
        if (progress_) std::atomic_ref<int64_t>(progress_[0]).fetch_add(n, std::memory_order_relaxed);
    }
    bool cancelled() const {
        return progress_ && std::atomic_ref<int64_t>(progress_[1]).load(std::memory_order_relaxed) != 0;
    }

  private:
    int64_t *progress_;
};

// How many workers share n_items at most: kernels make scratch for so many.
inline int worker_count(int64_t n_items, int n_threads) {
    const int64_t most = std::clamp(n_threads, 1, ThreadPool::most_workers());
    return static_cast<int>(std::clamp<int64_t>(n_items, 1, most));
}

// Calls body(item, worker) for item in [0, n_items); worker in [0, worker_count) selects scratch that no other thread uses.
// One thread: everything runs in the caller. The first exception is thrown again after all workers have stopped.
template <typename Body>
void parallel_for(ThreadPool &pool, int64_t n_items, int n_threads, Body &&body) {
    const int workers = worker_count(n_items, n_threads);
    if (workers == 1) {
        for (int64_t i = 0; i < n_items; ++i) body(i, 0);
        return;
    }
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_lock;
    pool.run(workers, [&](int worker) {
        try {
            for (int64_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < n_items;) body(i, worker);
        } catch (...) {
            std::lock_guard<std::mutex> hold(error_lock);
            if (!error) error = std::current_exception();
            failed = true;
        }
    });
    if (error) std::rethrow_exception(error);
}

template <typename Body>
void parallel_for(int64_t n_items, int n_threads, Body &&body) {
    parallel_for(ThreadPool::shared(), n_items, n_threads, body);
}

} // namespace blockxmc
