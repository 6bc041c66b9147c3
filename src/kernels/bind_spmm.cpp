#include "bindings.hpp"

void bind_spmm(nb::module_ &m) {}
