#include <atomic>

#include "bindings.hpp"
#include "word_counts.hpp"

namespace blockxmc {

namespace {

using U8 = In1<uint8_t>;

// The strings of a Python list, which must stay as it is while they are used.
std::vector<std::string_view> views(const nb::list &texts) {
    std::vector<std::string_view> found;
    found.reserve(texts.size());
    for (const nb::handle text : texts) {
        Py_ssize_t size = 0;
        const char *bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
        if (bytes == nullptr) throw nb::python_error();
        found.emplace_back(bytes, static_cast<size_t>(size));
    }
    return found;
}

text::WordTable table_of(const U8 &words, const I64 &ends) {
    text::WordTable table;
    int64_t start = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
        const int64_t end = ends.data()[i];
        require(end >= start && end <= static_cast<int64_t>(words.size()), "words must end in order, within their bytes");
        const std::string_view word(reinterpret_cast<const char *>(words.data()) + start, static_cast<size_t>(end - start));
        require(table.insert(word) == static_cast<int32_t>(i), "a word stands in the vocabulary twice");
        start = end;
    }
    require(start == static_cast<int64_t>(words.size()), "there are bytes behind the last word");
    return table;
}

nb::tuple handed_over(text::Counts &&found) {
    return nb::make_tuple(to_numpy(std::move(found.indptr)), to_numpy(std::move(found.indices)),
                          to_numpy(std::move(found.counts)));
}

// What counts as a feature, as Python holds it.
class PythonFeatures {
  public:
    PythonFeatures(int unit, int shortest, int longest, bool lowercase, U8 left_out, I64 left_out_ends)
        : unit_(static_cast<text::Unit>(unit)), shortest_(shortest), longest_(longest), lowercase_(lowercase),
          left_out_(table_of(left_out, left_out_ends)) {
        require(unit >= 0 && unit <= 2, "unit must be 0 (words), 1 (letters) or 2 (letters in words)");
        require(shortest >= 1 && shortest <= longest, "lengths must be at least 1, the smaller first");
    }

    text::Features with(const U8 &classes) const {
        return {unit_, shortest_, longest_, lowercase_, {classes.data(), classes.size()}, left_out_};
    }

  private:
    text::Unit unit_;
    int shortest_, longest_;
    bool lowercase_;
    text::WordTable left_out_;
};

class PythonLearner {
  public:
    void feed(const PythonFeatures &features, const nb::list &texts, U8 classes, int n_threads) {
        const Turn turn(*this);
        const std::vector<std::string_view> found = views(texts);
        WithoutGil nogil;
        learner_.feed(found, features.with(classes), n_threads);
    }

    void forget_texts() {
        const Turn turn(*this);
        learner_.forget_texts();
    }

    // (bytes of the words, their ends, texts that hold each, indptr, indices, counts)
    nb::tuple finish(int64_t min_texts, int64_t max_words, int n_threads) {
        const Turn turn(*this);
        text::Vocabulary words;
        text::Counts counts;
        {
            WithoutGil nogil;
            words = learner_.vocabulary(min_texts, std::clamp<int64_t>(max_words, 0, INT32_MAX), n_threads);
            counts = learner_.counts(n_threads);
        }
        return nb::make_tuple(to_numpy(std::move(words.words)), to_numpy(std::move(words.ends)),
                              to_numpy(std::move(words.texts)), handed_over(std::move(counts)));
    }

  private:
    struct Turn {
        explicit Turn(PythonLearner &learner) : learner_(learner) {
            require(!learner.busy_.exchange(true), "the learner is in use by another thread");
        }
        ~Turn() { learner_.busy_ = false; }
        PythonLearner &learner_;
    };

    text::Learner learner_;
    std::atomic<bool> busy_{false};
};

class PythonVocabulary {
  public:
    PythonVocabulary(U8 words, I64 ends) : table_(table_of(words, ends)) {}

    nb::tuple count(const PythonFeatures &features, const nb::list &texts, U8 classes, int n_threads) const {
        const std::vector<std::string_view> found = views(texts);
        text::Counts counts;
        {
            WithoutGil nogil;
            counts = text::count_known(table_, found, features.with(classes), n_threads);
        }
        return handed_over(std::move(counts));
    }

  private:
    text::WordTable table_;
};

// May be done in place.
void weigh_counts(I64 indptr, I32 indices, F32 counts, F32 idf, Out1<int32_t> out_indices, Out1<float> out_values,
                  int n_threads) {
    checked_csr("counts", indptr, indices, counts, static_cast<int64_t>(idf.size()));
    require(out_indices.size() == indices.size() && out_values.size() == indices.size(), "there must be room for each count");
    WithoutGil nogil;
    text::weigh(span_of(indptr), indices.data(), counts.data(), idf.data(), out_indices.data(), out_values.data(), n_threads);
}

} // namespace

void bind_words(nb::module_ &m) {
    nb::class_<PythonFeatures>(m, "TextFeatures")
        .def(nb::init<int, int, int, bool, U8, I64>(), nb::arg("unit"), nb::arg("shortest"), nb::arg("longest"),
             nb::arg("lowercase"), nb::arg("left_out").noconvert(), nb::arg("left_out_ends").noconvert());
    nb::class_<PythonLearner>(m, "WordLearner")
        .def(nb::init<>())
        .def("feed", &PythonLearner::feed, nb::arg("features"), nb::arg("texts"), nb::arg("classes").noconvert(),
             nb::arg("n_threads"))
        .def("forget_texts", &PythonLearner::forget_texts)
        .def("finish", &PythonLearner::finish, nb::arg("min_texts"), nb::arg("max_words"), nb::arg("n_threads"));
    nb::class_<PythonVocabulary>(m, "Vocabulary")
        .def(nb::init<U8, I64>(), nb::arg("words").noconvert(), nb::arg("ends").noconvert())
        .def("count", &PythonVocabulary::count, nb::arg("features"), nb::arg("texts"), nb::arg("classes").noconvert(),
             nb::arg("n_threads"));
    m.def("weigh_counts", &weigh_counts, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("counts").noconvert(), nb::arg("idf").noconvert(), nb::arg("out_indices").noconvert(),
          nb::arg("out_values").noconvert(), nb::arg("n_threads"));
}

} // namespace blockxmc
