#include "bindings.hpp"
#include "splices.hpp"

namespace blockxmc {

namespace {

template <typename Item>
nb::tuple find_pieces(In1<Item> old, In1<Item> made, int64_t most_pieces, int64_t most_own) {
    Pieces out;
    {
        WithoutGil release;
        out = Splicer<Item>(span_of(old)).find(span_of(made), most_pieces, most_own);
    }
    return nb::make_tuple(to_numpy(std::move(out.from)), to_numpy(std::move(out.sizes)));
}

template <typename Item>
void bind_find_pieces(nb::module_ &m) {
    m.def("find_pieces", &find_pieces<Item>, nb::arg("old").noconvert(), nb::arg("made").noconvert(), nb::kw_only(),
          nb::arg("most_pieces"), nb::arg("most_own"));
}

} // namespace

void bind_splices(nb::module_ &m) {
    bind_find_pieces<uint8_t>(m);
    bind_find_pieces<uint16_t>(m);
    bind_find_pieces<uint32_t>(m);
    bind_find_pieces<uint64_t>(m);
}

} // namespace blockxmc
