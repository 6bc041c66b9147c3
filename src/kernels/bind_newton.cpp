#include "bindings.hpp"

void bind_newton(nb::module_ &m) {}
