// A small parallel_for on std::thread, and the counter through which Python watches or cancels a running kernel.
//
// Work is handed out in items (dynamic schedule). A kernel is deterministic for any thread count when each item
// writes only to its own place and the item boundaries do not depend on the number of threads: keep it so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

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

// Calls body(item, worker) for item in [0, n_items); worker in [0, n_threads) selects thread-local scratch.
// One thread: no thread is started. The first exception is rethrown after all workers have stopped.
template <typename Body>
void parallel_for(int64_t n_items, int n_threads, Body &&body) {
    const int workers = static_cast<int>(std::min<int64_t>(std::max(n_threads, 1), std::max<int64_t>(n_items, 1)));
    if (workers == 1) {
        for (int64_t i = 0; i < n_items; ++i) body(i, 0);
        return;
    }
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_lock;
    auto run = [&](int worker) {
        try {
            for (int64_t i; !failed.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < n_items;) body(i, worker);
        } catch (...) {
            std::lock_guard<std::mutex> hold(error_lock);
            if (!error) error = std::current_exception();
            failed = true;
        }
    };
    std::vector<std::thread> pool;
    pool.reserve(workers - 1);
    for (int w = 1; w < workers; ++w) pool.emplace_back(run, w);
    run(0);
    for (auto &t : pool) t.join();
    if (error) std::rethrow_exception(error);
}
