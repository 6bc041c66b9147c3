#include "threads.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "check.hpp"

using namespace blockxmc;

namespace {

// Each item adds to its own place; every item once, whatever the number of threads.
bool runs_every_item_once(ThreadPool &pool, int64_t n_items, int n_threads) {
    std::vector<int> seen(n_items, 0);
    std::atomic<bool> workers_fit{true};
    parallel_for(pool, n_items, n_threads, [&](int64_t i, int worker) {
        ++seen[i];
        if (worker < 0 || worker >= worker_count(n_items, n_threads)) workers_fit = false;
    });
    return workers_fit && std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; });
}

std::thread no_thread(std::function<void()>) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

} // namespace

TEST(every_item_runs_once_for_any_number_of_threads) {
    ThreadPool pool;
    for (int n_threads : {-3, 0, 1, 2, 3, 8, 1000, 1 << 30})
        for (int64_t n_items : {0, 1, 2, 7, 1000}) CHECK(runs_every_item_once(pool, n_items, n_threads));
    CHECK(pool.size() < ThreadPool::most_workers());
}

TEST(threads_are_kept_from_call_to_call) {
    ThreadPool pool;
    for (int round = 0; round < 200; ++round) CHECK(runs_every_item_once(pool, 20, 4));
    CHECK(pool.size() <= 3);
}

TEST(a_thread_that_cannot_be_started_is_done_without) {
    ThreadPool none(no_thread);
    CHECK(runs_every_item_once(none, 100, 8));
    CHECK(none.size() == 0);
    int left = 2;
    ThreadPool two([&](std::function<void()> body) {
        if (left-- <= 0) return no_thread(std::move(body));
        return std::thread(std::move(body));
    });
    for (int round = 0; round < 20; ++round) CHECK(runs_every_item_once(two, 100, 8));
    CHECK(two.size() == 2);
}

TEST(an_exception_reaches_the_caller_and_the_pool_lives_on) {
    ThreadPool pool;
    for (int round = 0; round < 100; ++round) {
        const bool thrown = throws<std::runtime_error>([&] {
            parallel_for(pool, 50, 4, [&](int64_t i, int) {
                if (i % 10 == round % 10) throw std::runtime_error("no");
            });
        });
        CHECK(thrown);
    }
    CHECK(runs_every_item_once(pool, 100, 4));
}

TEST(nested_calls_end) {
    ThreadPool pool;
    std::atomic<int64_t> sum{0};
    parallel_for(pool, 8, 4, [&](int64_t, int) {
        parallel_for(pool, 8, 4, [&](int64_t, int) {
            parallel_for(pool, 4, 3, [&](int64_t i, int) { sum += i; });
        });
    });
    CHECK(sum == 8 * 8 * 6);
}

TEST(several_callers_share_a_pool) {
    ThreadPool pool;
    std::atomic<int> right{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 6; ++caller)
        callers.emplace_back([&] {
            for (int round = 0; round < 100; ++round) right += runs_every_item_once(pool, 37, 3);
        });
    for (std::thread &caller : callers) caller.join();
    CHECK(right == 600);
}

TEST(threads_really_work_side_by_side) {
    ThreadPool pool;
    std::atomic<int> waiting{0};
    parallel_for(pool, 3, 3, [&](int64_t, int) { // each item waits until all have begun
        ++waiting;
        while (waiting < 3) std::this_thread::yield();
    });
    CHECK(waiting == 3);
}

TEST(each_thread_that_is_woken_wakes_more) {
    ThreadPool pool;
    for (int round = 0; round < 20; ++round) {
        std::atomic<int> waiting{0};
        parallel_for(pool, 40, 40, [&](int64_t, int) { // ends only if all forty are awake at one time
            ++waiting;
            while (waiting < 40) std::this_thread::yield();
        });
        CHECK(waiting == 40);
    }
    CHECK(pool.size() == 39);
}

TEST(a_stopped_pool_runs_in_the_caller) {
    ThreadPool pool;
    CHECK(runs_every_item_once(pool, 100, 4));
    pool.stop();
    CHECK(pool.size() == 0);
    CHECK(runs_every_item_once(pool, 100, 4));
    CHECK(pool.size() == 0);
}

TEST(stopping_does_not_wait_for_long_work) {
    static auto *pool = new ThreadPool; // never destroyed, as the pool of the process
    std::atomic<bool> go_on{true}, busy{false};
    std::thread caller([&] {
        parallel_for(*pool, 2, 2, [&](int64_t, int) {
            busy = true;
            while (go_on) std::this_thread::yield();
        });
    });
    while (!busy) std::this_thread::yield();
    pool->stop(std::chrono::milliseconds(10));
    go_on = false;
    caller.join();
}

TEST(a_forked_child_has_a_pool_of_its_own) {
    CHECK(runs_every_item_once(ThreadPool::shared(), 100, 4));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20); // a child that waits for threads it does not have ends here
        _exit(runs_every_item_once(ThreadPool::shared(), 100, 4) ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(runs_every_item_once(ThreadPool::shared(), 100, 4));
}

TEST(workers_block_signals) {
    ThreadPool pool;
    std::atomic<int> waiting{0};
    std::atomic<bool> blocked{true};
    parallel_for(pool, 2, 2, [&](int64_t, int worker) {
        ++waiting;
        while (waiting < 2) std::this_thread::yield();
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        if (worker > 0 && !sigismember(&mask, SIGINT)) blocked = false;
    });
    CHECK(blocked);
}

TEST(a_watch_counts_and_cancels) {
    int64_t progress[2] = {0, 0};
    const Watch watch(progress);
    parallel_for(100, 4, [&](int64_t, int) { watch.advance(2); });
    CHECK(progress[0] == 200 && !watch.cancelled());
    progress[1] = 1;
    CHECK(watch.cancelled() && !Watch().cancelled());
}
