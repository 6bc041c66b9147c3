#include "bindings.hpp"

void bind_fastxml(nb::module_ &m) {}
