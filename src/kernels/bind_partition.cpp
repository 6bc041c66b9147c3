#include "bindings.hpp"

void bind_partition(nb::module_ &m) {}
