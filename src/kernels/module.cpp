// The compiled core. One header per idea, one bind_*.cpp per header; this file only lists them.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_kernels, m) {
    // Objects alive at interpreter exit (a model in a global) are no leak of ours and would only alarm users.
    nb::set_leak_warnings(false);
    m.doc() = "Compiled loops of blockxmc: plain arrays in, plain arrays out.";
    bind_parse(m);
    bind_partition(m);
    bind_newton(m);
    bind_predict(m);
    bind_spmm(m);
    bind_frank_wolfe(m);
    bind_dual_cd(m);
    bind_fastxml(m);
    bind_filters(m);
}
