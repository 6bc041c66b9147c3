#include "bindings.hpp"

void bind_frank_wolfe(nb::module_ &m) {}
