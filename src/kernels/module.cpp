// The compiled core. One header per idea, one bind_*.cpp per family of them; this file only lists them.
#include <nanobind/nanobind.h>

#include <chrono>

#include "bindings.hpp"

NB_MODULE(_kernels, m) {
    namespace nb = nanobind;
    using blockxmc::ThreadPool;
    // A model in a global is still alive when the interpreter exits; a warning about it would only alarm users.
    nb::set_leak_warnings(false);
    m.doc() = "Compiled loops of blockxmc: plain arrays in, plain arrays out.";
#ifdef BLOCKXMC_SOURCES
    m.attr("sources") = BLOCKXMC_SOURCES;
#else
    m.attr("sources") = "";
#endif
    blockxmc::bind_parse(m);
    blockxmc::bind_partition(m);
    blockxmc::bind_newton(m);
    blockxmc::bind_shift(m);
    blockxmc::bind_predict(m);
    blockxmc::bind_predict_arrays(m);
    blockxmc::bind_merge_rows(m);
    blockxmc::bind_spmm(m);
    blockxmc::bind_frank_wolfe(m);
    blockxmc::bind_dual_cd(m);
    blockxmc::bind_fastxml(m);
    blockxmc::bind_filters(m);
    blockxmc::bind_held_out(m);
    blockxmc::bind_rows(m);
    blockxmc::bind_words(m);
    // A kernel that a daemon thread still runs at exit must not hold up the end of the process for long.
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        blockxmc::WithoutGil::begin_exit();
        blockxmc::WithoutGil release;
        ThreadPool::shared().stop(std::chrono::milliseconds(500));
    }));
}
