#include "bindings.hpp"

void bind_filters(nb::module_ &m) {}
