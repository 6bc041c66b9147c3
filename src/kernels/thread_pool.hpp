// Threads that are kept from call to call: starting a thread takes longer than many kernels.
//
// A caller offers its job to the threads and works on it itself. When the work is done it closes the job and waits only for
// the threads that joined. So a job ends even if no thread could be started or all are busy, and calls may nest.
#pragma once

#ifndef _WIN32 // which has neither fork nor such signals
#include <pthread.h>
#include <signal.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace blockxmc {

class ThreadPool {
  public:
    using Work = std::function<void(int worker)>; // must not throw
    using Start = std::function<std::thread(std::function<void()>)>;

    // Tests pass a `start` that fails.
    explicit ThreadPool(Start start = start_quiet) : start_(std::move(start)) {}
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;
    ~ThreadPool() { stop(); }

    // More threads than this never help; it also bounds the scratch that kernels make for each worker.
    static int most_workers() {
        static const int most = std::max(256, 2 * static_cast<int>(std::thread::hardware_concurrency()));
        return most;
    }

    // Calls work(0) in this thread and, where threads are free, work(1) ... work(workers - 1) in others.
    void run(int workers, const Work &work) {
        Job job{&work, std::min(workers, most_workers())};
        offer(job);
        work(0);
        std::unique_lock<std::mutex> hold(lock_);
        if (job.next < job.workers) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
        job.done.wait(hold, [&] { return job.running == 0; });
    }

    // Ends all threads; later jobs run in the thread of their caller. Threads that are still busy after `patience` are left
    // to end by themselves, which only a pool that is never destroyed may ask for.
    void stop(std::chrono::milliseconds patience = std::chrono::hours(24 * 365)) {
        std::vector<std::thread> threads;
        bool all_ended;
        {
            std::unique_lock<std::mutex> hold(lock_);
            stopped_ = true;
            threads.swap(threads_);
            wake_.notify_all();
            all_ended = ended_.wait_for(hold, patience, [&] { return live_ == 0; });
        }
        for (std::thread &thread : threads) all_ended ? thread.join() : thread.detach();
    }

    int64_t size() const {
        std::lock_guard<std::mutex> hold(lock_);
        return static_cast<int64_t>(threads_.size());
    }

    // The pool of this process. A forked child lacks its parent's threads, so it gets a new pool. It never touches the old
    // one, whose locks may have been held at the moment of the fork. The pool is never destroyed: a thread that still runs
    // at exit may need it.
    static ThreadPool &shared() {
#ifndef _WIN32
        static const int registered = pthread_atfork(nullptr, nullptr, [] { current().store(nullptr); });
        static_cast<void>(registered);
#endif
        ThreadPool *pool = current().load(std::memory_order_acquire);
        if (pool) return *pool;
        auto *fresh = new ThreadPool;
        if (current().compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
        delete fresh;
        return *pool;
    }

  private:
    struct Job {
        const Work *work;
        int workers;     // as many as may join, the caller included
        int next = 1;    // number of the next to join
        int called = 0;  // threads that were woken for it
        int running = 0; // joined and not yet done
        std::condition_variable done{};
    };

    static std::atomic<ThreadPool *> &current() {
        static std::atomic<ThreadPool *> pool{nullptr};
        return pool;
    }

    // Signals go to the threads of Python: a signal that is handled here would not wake the main thread.
    static std::thread start_quiet(std::function<void()> body) {
#ifndef _WIN32
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        struct Restore {
            const sigset_t &mask;
            ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
        } restore{before};
#endif
        return std::thread(std::move(body));
    }

    void offer(Job &job) {
        if (job.workers < 2) return;
        std::unique_lock<std::mutex> hold(lock_);
        add_threads(job.workers - 1);
        if (threads_.empty()) {
            job.workers = 1;
            return;
        }
        jobs_.push_back(&job);
        call_some(job, hold);
    }

    // Wakes a few threads, each of which wakes a few more: to wake sixteen one by one takes longer than many a job. Gives the
    // lock back first, else those who wake would wait for this thread at once.
    void call_some(Job &job, std::unique_lock<std::mutex> &hold) {
        constexpr int64_t at_once = 4;
        const int64_t called = std::clamp<int64_t>(std::min<int64_t>(job.workers - 1 - job.called, idle_), 0, at_once);
        job.called += static_cast<int>(called);
        hold.unlock();
        for (int64_t i = 0; i < called; ++i) wake_.notify_one();
    }

    // Starts threads until every open place in a job can have one, or as many as the system allows.
    void add_threads(int helpers) {
        if (stopped_) return;
        int64_t open = helpers;
        for (const Job *job : jobs_) open += job->workers - job->next;
        const int64_t busy = static_cast<int64_t>(threads_.size()) - idle_;
        const int64_t wanted = std::min<int64_t>(busy + open, most_workers() - 1);
        try {
            while (static_cast<int64_t>(threads_.size()) < wanted) {
                threads_.reserve(threads_.size() + 1);
                threads_.push_back(start_([this] { serve(); }));
                ++live_;
                ++idle_; // counted before it runs, so that the next call does not start one more
            }
        } catch (const std::system_error &) { // no more threads, or no more memory: the caller works with fewer
        } catch (const std::bad_alloc &) {
        }
    }

    void serve() {
        std::unique_lock<std::mutex> hold(lock_);
        for (;;) {
            wake_.wait(hold, [&] { return stopped_ || !jobs_.empty(); });
            if (jobs_.empty()) { // stopped
                if (--live_ == 0) ended_.notify_all();
                return;
            }
            Job &job = *jobs_.front();
            const int worker = job.next++;
            if (job.next == job.workers) jobs_.pop_front();
            ++job.running;
            --idle_;
            call_some(job, hold);
            (*job.work)(worker);
            hold.lock();
            ++idle_;
            if (--job.running == 0) job.done.notify_one();
        }
    }

    Start start_;
    mutable std::mutex lock_; // of all below, and of the jobs
    std::condition_variable wake_, ended_;
    std::vector<std::thread> threads_;
    std::deque<Job *> jobs_; // with places for more threads
    int64_t live_ = 0, idle_ = 0; // threads that have not ended, and how many of them have no job
    bool stopped_ = false;
};

} // namespace blockxmc
