#include "bindings.hpp"
#include "fastxml.hpp"
#include "forest.hpp"

namespace blockxmc {

namespace {

template <typename T>
void append(std::vector<T> &to, const std::vector<T> &from, T shift = 0) {
    for (const T &value : from) to.push_back(value + shift);
}

// All trees in a row, with node ids shifted accordingly.
nb::dict joined(const std::vector<Tree> &trees) {
    Tree all;
    std::vector<int32_t> roots;
    for (const Tree &tree : trees) {
        const auto shift = static_cast<int64_t>(all.depth.size());
        require(shift + static_cast<int64_t>(tree.depth.size()) <= INT32_MAX / 2, "too many tree nodes: raise max_leaf");
        roots.push_back(static_cast<int32_t>(shift));
        for (int32_t child : tree.children) all.children.push_back(child < 0 ? -1 : child + static_cast<int32_t>(shift));
        append(all.depth, tree.depth);
        append(all.n_rows, tree.n_rows);
        append(all.bias, tree.bias);
        const int64_t features = all.feature_ptr.back(), labels = all.label_ptr.back();
        all.feature_ptr.pop_back();
        all.label_ptr.pop_back();
        append(all.feature_ptr, tree.feature_ptr, features);
        append(all.label_ptr, tree.label_ptr, labels);
        append(all.features, tree.features);
        append(all.weights, tree.weights);
        append(all.labels, tree.labels);
        append(all.label_scores, tree.label_scores);
    }
    nb::dict out;
    out["roots"] = to_numpy(std::move(roots));
    out["children"] = to_numpy(std::move(all.children));
    out["depth"] = to_numpy(std::move(all.depth));
    out["n_rows"] = to_numpy(std::move(all.n_rows));
    out["feature_ptr"] = to_numpy(std::move(all.feature_ptr));
    out["features"] = to_numpy(std::move(all.features));
    out["weights"] = to_numpy(std::move(all.weights));
    out["bias"] = to_numpy(std::move(all.bias));
    out["label_ptr"] = to_numpy(std::move(all.label_ptr));
    out["labels"] = to_numpy(std::move(all.labels));
    out["label_scores"] = to_numpy(std::move(all.label_scores));
    return out;
}

nb::dict fastxml_grow(In1<int64_t> x_ptr, In1<int32_t> x_idx, In1<float> x_val, int64_t n_features, In1<int64_t> y_ptr,
                      In1<int32_t> y_idx, int64_t n_labels, int64_t n_trees, int64_t max_leaf, int64_t leaf_labels,
                      double cost, float bias, uint64_t seed, int threads, std::optional<Out1<int64_t>> progress) {
    const CsrView x = checked_csr("X", x_ptr, x_idx, x_val, n_features);
    const CsrView y = checked_csr("Y", y_ptr, y_idx, n_labels);
    require(x.n_rows == y.n_rows, "X and Y differ in their number of rows");
    require(x.n_rows <= INT32_MAX, "too many rows for 32-bit row numbers");
    require(n_trees >= 1 && max_leaf >= 1 && leaf_labels >= 1 && cost > 0, "parameter out of range");
    std::vector<Tree> trees;
    const Watch watch = checked_watch(progress);
    {
        WithoutGil unlocked;
        trees = grow_forest(x, y, {max_leaf, leaf_labels, cost, bias}, n_trees, seed, threads, watch);
    }
    return joined(trees);
}

// Only tests call this: one node's alternation on all rows of Y from the given sides, to see that nDCG never falls. Returns
// the sides it ends with, and nDCG after every move step.
nb::tuple fastxml_split(In1<int64_t> y_ptr, In1<int32_t> y_idx, int64_t n_labels, In1<int8_t> start) {
    const CsrView y = checked_csr("Y", y_ptr, y_idx, n_labels);
    require(static_cast<int64_t>(start.size()) == y.n_rows, "one side per row is needed");
    NodeLabels node;
    node.ptr.assign(y.indptr, y.indptr + y.n_rows + 1);
    node.labels.assign(y.indices, y.indices + y.nnz());
    node.n_labels = static_cast<int32_t>(n_labels);
    for (int64_t i = 0; i < y.n_rows; ++i) node.row_gain.push_back(inverse_ideal_dcg(y.row_size(i)));
    std::vector<int8_t> side(start.data(), start.data() + start.size());
    std::vector<double> trace;
    RankingSplit().run(node, side, &trace);
    return nb::make_tuple(to_numpy(std::move(side)), to_numpy(std::move(trace)));
}

// Only tests call this: the l1-regularised logistic regression of one node (no constant feature unless X holds one), to be
// compared with LIBLINEAR.
Numpy1<double> fastxml_separator(In1<int64_t> col_ptr, In1<int32_t> rows, In1<float> values,
                                                              In1<int8_t> side, double cost_plus, double cost_minus,
                                                              double tolerance, int max_newton, int max_passes,
                                                              uint64_t seed) {
    const CsrView by_column = checked_csr("columns", col_ptr, rows, values, static_cast<int64_t>(side.size()));
    Columns x;
    x.ptr.assign(col_ptr.data(), col_ptr.data() + col_ptr.size());
    x.n_rows = static_cast<int32_t>(side.size());
    for (int64_t e = 0; e < by_column.nnz(); ++e) x.entries.push_back({by_column.indices[e], by_column.data[e]});
    RandomStream random(seed);
    L1Logistic solver({tolerance, max_newton, max_passes});
    std::vector<double> w = solver.solve(x, {side.data(), side.data() + side.size()}, cost_plus, cost_minus, random);
    return to_numpy(std::move(w));
}

// The arrays of a forest, checked once, so that predicting may trust them.
class Forest {
  public:
    Forest(In1<int32_t> roots, In1<int32_t> children, In1<int64_t> feature_ptr, In1<int32_t> features,
           In1<float> weights, In1<float> bias, In1<int64_t> label_ptr, In1<int32_t> labels, In1<float> label_scores,
           int64_t n_features, int64_t n_labels)
        : roots_(roots), children_(children), features_(features), labels_(labels), feature_ptr_(feature_ptr),
          label_ptr_(label_ptr), weights_(weights), bias_(bias), label_scores_(label_scores) {
        const auto n_nodes = static_cast<int64_t>(bias.size());
        require_intact(n_features >= 0 && n_features <= INT32_MAX && n_labels >= 0 && n_labels <= INT32_MAX,
                       "the number of features or labels is out of range");
        require_intact(children.size() / 2 == bias.size() && children.size() % 2 == 0 && n_nodes <= INT32_MAX / 2,
                       "a tree node needs two children entries");
        require_intact(feature_ptr.size() == bias.size() + 1 && label_ptr.size() == bias.size() + 1,
                       "pointers do not match the number of tree nodes");
        require_intact(are_pointers(span_of(feature_ptr), features.size()), "feature pointers do not match the features");
        require_intact(are_pointers(span_of(label_ptr), labels.size()), "label pointers do not match the labels");
        require_intact(weights.size() == features.size() && label_scores.size() == labels.size(), "ids and values differ in length");
        require_intact(in_range(span_of(features), n_features), "a feature number is out of range");
        require_intact(in_range(span_of(labels), n_labels), "a label is out of range");
        require_intact(in_range(span_of(roots), n_nodes), "the root of a tree is out of range");
        for (int64_t slot = 0; slot < 2 * n_nodes; ++slot) {
            const int32_t child = children(slot), twin = children(slot ^ 1);
            // Children come after their parent: every descent ends.
            require_intact(child < 0 ? twin < 0 : child > slot / 2 && child < n_nodes && twin >= 0, "a tree node has wrong children");
        }
        for (size_t e = 0; e < label_scores.size(); ++e) require_intact(label_scores(e) > 0, "the score of a leaf must be positive");
        view_ = {roots.data(), children.data(), feature_ptr.data(), label_ptr.data(), features.data(), labels.data(),
                 weights.data(), bias.data(), label_scores.data(), static_cast<int64_t>(roots.size()), n_nodes,
                 n_features, n_labels};
    }

    void leaves(In1<int64_t> ptr, In1<int32_t> idx, In1<float> val, Out2<int32_t> out, int threads) const {
        const CsrView x = checked_rows(ptr, idx, val, view_.n_features);
        require(static_cast<int64_t>(out.shape(0)) == x.n_rows && static_cast<int64_t>(out.shape(1)) == view_.n_trees,
                "out must be rows x trees");
        WithoutGil unlocked;
        for_each_row(view_, x, threads, [&](int64_t i, ForestScratch &, const std::vector<int32_t> &leaves) {
            std::copy(leaves.begin(), leaves.end(), out.data() + i * view_.n_trees);
        });
    }

    void topk(In1<int64_t> ptr, In1<int32_t> idx, In1<float> val, Out2<int64_t> labels, Out2<float> scores,
              int threads) const {
        const CsrView x = checked_rows(ptr, idx, val, view_.n_features);
        const auto k = static_cast<int64_t>(labels.shape(1));
        require_k(k, view_.n_labels);
        require(static_cast<int64_t>(labels.shape(0)) == x.n_rows && labels.shape(0) == scores.shape(0) &&
                    labels.shape(1) == scores.shape(1), "labels and scores must be rows x k");
        WithoutGil unlocked;
        for_each_row(view_, x, threads, [&](int64_t i, ForestScratch &scratch, const std::vector<int32_t> &leaves) {
            std::vector<Scored> found;
            average_leaves(view_, leaves.data(), scratch, found);
            write_best(found, k, labels.data() + i * k, scores.data() + i * k);
        });
    }

    nb::tuple scores(In1<int64_t> ptr, In1<int32_t> idx, In1<float> val, int threads) const {
        const CsrView x = checked_rows(ptr, idx, val, view_.n_features);
        std::vector<std::vector<Scored>> rows(x.n_rows);
        std::vector<int64_t> indptr{0};
        std::vector<int32_t> labels;
        std::vector<float> values;
        {
            WithoutGil unlocked;
            for_each_row(view_, x, threads, [&](int64_t i, ForestScratch &scratch, const std::vector<int32_t> &leaves) {
                average_leaves(view_, leaves.data(), scratch, rows[i]);
                std::sort(rows[i].begin(), rows[i].end(),
                          [](const Scored &a, const Scored &b) { return a.label < b.label; });
            });
            for (const auto &row : rows) {
                for (const Scored &one : row) labels.push_back(one.label), values.push_back(one.score);
                indptr.push_back(static_cast<int64_t>(labels.size()));
            }
        }
        return nb::make_tuple(to_numpy(std::move(indptr)), to_numpy(std::move(labels)), to_numpy(std::move(values)));
    }

  private:
    // Kept so that the memory outlives the view.
    In1<int32_t> roots_, children_, features_, labels_;
    In1<int64_t> feature_ptr_, label_ptr_;
    In1<float> weights_, bias_, label_scores_;
    ForestView view_;
};

} // namespace

void bind_fastxml(nb::module_ &m) {
    using nb::arg;
    m.def("fastxml_grow", &fastxml_grow, arg("x_ptr").noconvert(), arg("x_idx").noconvert(), arg("x_val").noconvert(),
          arg("n_features"), arg("y_ptr").noconvert(), arg("y_idx").noconvert(), arg("n_labels"), arg("n_trees"),
          arg("max_leaf"), arg("leaf_labels"), arg("cost"), arg("bias"), arg("seed"), arg("threads"),
          arg("progress").noconvert() = nb::none());
    m.def("fastxml_split", &fastxml_split, arg("y_ptr").noconvert(), arg("y_idx").noconvert(), arg("n_labels"),
          arg("start").noconvert(), "For tests only: the split inside fastxml_grow.");
    m.def("fastxml_separator", &fastxml_separator, arg("col_ptr").noconvert(), arg("rows").noconvert(),
          arg("values").noconvert(), arg("side").noconvert(), arg("cost_plus"), arg("cost_minus"), arg("tolerance"),
          arg("max_newton"), arg("max_passes"), arg("seed"), "For tests only: the separator inside fastxml_grow.");
    nb::class_<Forest>(m, "Forest")
        .def(nb::init<In1<int32_t>, In1<int32_t>, In1<int64_t>, In1<int32_t>, In1<float>, In1<float>, In1<int64_t>,
                      In1<int32_t>, In1<float>, int64_t, int64_t>(),
             arg("roots").noconvert(), arg("children").noconvert(), arg("feature_ptr").noconvert(),
             arg("features").noconvert(), arg("weights").noconvert(), arg("bias").noconvert(),
             arg("label_ptr").noconvert(), arg("labels").noconvert(), arg("label_scores").noconvert(),
             arg("n_features"), arg("n_labels"))
        .def("leaves", &Forest::leaves, arg("indptr").noconvert(), arg("indices").noconvert(), arg("values").noconvert(),
             arg("out").noconvert(), arg("threads"))
        .def("topk", &Forest::topk, arg("indptr").noconvert(), arg("indices").noconvert(), arg("values").noconvert(),
             arg("labels").noconvert(), arg("scores").noconvert(), arg("threads"))
        .def("scores", &Forest::scores, arg("indptr").noconvert(), arg("indices").noconvert(), arg("values").noconvert(),
             arg("threads"));
}

} // namespace blockxmc
