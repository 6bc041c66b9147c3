#include "bindings.hpp"

void bind_parse(nb::module_ &m) {}
