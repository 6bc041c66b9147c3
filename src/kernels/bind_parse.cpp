#include <cstdlib>
#include <memory>

#include "bindings.hpp"
#include "parse.hpp"

namespace blockxmc {

namespace {

template <typename T>
Numpy1<T> hand_over(GrowingArray<T> &array) {
    const size_t size = static_cast<size_t>(array.size());
    std::unique_ptr<T, decltype(&std::free)> values(array.release(), &std::free); // until the capsule owns them
    nb::capsule guard(values.get(), [](void *p) noexcept { std::free(p); });
    return {values.release(), {size}, guard};
}

// The parser as Python holds it: one feed at a time, and no feed after finish.
class PythonParser {
  public:
    PythonParser(int64_t n_features, int64_t n_labels) : parser_({n_features, n_labels}) {
        require(n_features >= 0 && n_labels >= 0 && n_features <= INT32_MAX && n_labels <= INT32_MAX,
                "sizes must lie between 0 and 2^31 - 1");
    }

    std::tuple<int, int64_t, int64_t> feed(In1<uint8_t> block, int n_threads) {
        const Turn turn(*this);
        xc::Fault fault;
        {
            WithoutGil nogil;
            fault = parser_.feed(reinterpret_cast<const char *>(block.data()), static_cast<int64_t>(block.size()), n_threads);
        }
        return {static_cast<int>(fault.finding), fault.row, fault.offset};
    }

    // The arrays of the first n_rows rows; those cut off must be empty.
    nb::tuple finish(int64_t n_rows) {
        const Turn turn(*this);
        require(n_rows <= parser_.n_rows() && n_rows >= parser_.n_rows() - parser_.trailing_empty,
                "only empty rows at the end can be left out");
        parser_.indptr.resize(n_rows + 1);
        parser_.label_indptr.resize(n_rows + 1);
        finished_ = true;
        return nb::make_tuple(hand_over(parser_.indptr), hand_over(parser_.indices), hand_over(parser_.data),
                              hand_over(parser_.label_indptr), hand_over(parser_.label_indices));
    }

    int64_t n_rows() const { return parser_.n_rows(); }
    int64_t trailing_empty() const { return parser_.trailing_empty; }
    int64_t max_feature() const { return parser_.max_feature; }
    int64_t max_label() const { return parser_.max_label; }

  private:
    struct Turn {
        explicit Turn(PythonParser &parser) : parser_(parser) {
            require(!parser.finished_, "the parser has finished");
            require(!parser.busy_.exchange(true), "the parser is in use by another thread");
        }
        ~Turn() { parser_.busy_ = false; }
        PythonParser &parser_;
    };

    xc::Parser parser_;
    std::atomic<bool> busy_{false};
    bool finished_ = false;
};

nb::bytes format_xc(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, In1<int64_t> label_indptr,
                    In1<int32_t> label_indices, int n_threads) {
    const CsrView X = checked_csr("X", indptr, indices, data, INT32_MAX);
    const CsrView Y = checked_csr("Y", label_indptr, label_indices, INT32_MAX);
    require(X.n_rows == Y.n_rows, "X and Y differ in their number of rows");
    const int64_t n_rows = X.n_rows;
    constexpr int64_t rows_per_item = 256;
    std::vector<std::string> parts((n_rows + rows_per_item - 1) / rows_per_item);
    std::string text;
    {
        WithoutGil nogil;
        parallel_for(static_cast<int64_t>(parts.size()), n_threads, [&](int64_t i, int) {
            parts[i] = xc::format_rows(X, Y, i * rows_per_item, std::min(n_rows, (i + 1) * rows_per_item));
        });
        for (const std::string &part : parts) text += part;
    }
    return nb::bytes(text.data(), text.size());
}

} // namespace

void bind_parse(nb::module_ &m) {
    nb::class_<PythonParser>(m, "XcParser")
        .def(nb::init<int64_t, int64_t>(), nb::arg("n_features"), nb::arg("n_labels"))
        .def("feed", &PythonParser::feed, nb::arg("block").noconvert(), nb::arg("n_threads"))
        .def("finish", &PythonParser::finish, nb::arg("n_rows"))
        .def_prop_ro("n_rows", &PythonParser::n_rows)
        .def_prop_ro("trailing_empty", &PythonParser::trailing_empty)
        .def_prop_ro("max_feature", &PythonParser::max_feature)
        .def_prop_ro("max_label", &PythonParser::max_label);
    m.def("format_xc", &format_xc, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
          nb::arg("label_indptr").noconvert(), nb::arg("label_indices").noconvert(), nb::arg("n_threads"));
}

} // namespace blockxmc
