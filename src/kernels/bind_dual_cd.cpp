#include "bindings.hpp"

void bind_dual_cd(nb::module_ &m) {}
