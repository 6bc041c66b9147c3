#include "bindings.hpp"

void bind_predict(nb::module_ &m) {}
