#include "balanced_tree.hpp"
#include "bindings.hpp"
#include "kmeans.hpp"
#include "label_pairs.hpp"
#include "partition.hpp"
#include "row_sums.hpp"

namespace blockxmc {

namespace {

void check_assignment(const In1<int32_t> &assignment, int64_t n_rows, int64_t n_blocks) {
    require(n_blocks >= 1 && n_blocks <= INT32_MAX, "the number of blocks must be positive");
    require(int64_t(assignment.shape(0)) == n_rows, "one block per row is needed");
    for (int64_t i = 0; i < n_rows; ++i)
        require(assignment.data()[i] >= -1 && assignment.data()[i] < n_blocks, "a block id is out of range");
}

// A label at most once per cluster: the complement lists count on it.
void check_distinct(const CsrView &clusters) {
    std::vector<int64_t> last(clusters.n_cols, -1);
    for (int64_t l = 0; l < clusters.n_rows; ++l)
        for (int64_t k = clusters.indptr[l]; k < clusters.indptr[l + 1]; ++k) {
            require(last[clusters.indices[k]] != l, "a label is twice in one cluster");
            last[clusters.indices[k]] = l;
        }
}

using Ragged = std::tuple<Numpy1<int64_t>, Numpy1<int32_t>, Numpy1<int32_t>>;

Ragged rank_labels_py(In1<int64_t> indptr, In1<int32_t> indices, int64_t n_labels, In1<int32_t> assignment, int64_t n_blocks,
                      int64_t min_count, int threads) {
    RankedLabels out;
    {
        WithoutGil unlocked;
        const CsrView Y = checked_csr("Y", indptr, indices, n_labels);
        check_assignment(assignment, Y.n_rows, n_blocks);
        out = rank_labels(Y, assignment.data(), n_blocks, min_count, threads);
    }
    return {to_numpy(std::move(out.indptr)), to_numpy(std::move(out.labels)), to_numpy(std::move(out.counts))};
}

Numpy1<int32_t> heaviest_clusters_py(I64 indptr, I32 indices, In1<double> weight, I32 cluster_of, int threads) {
    std::vector<int32_t> out;
    {
        WithoutGil unlocked;
        const CsrView Y = checked_csr("Y", indptr, indices, int64_t(weight.size()));
        require(cluster_of.size() == weight.size(), "one weight and one cluster per label are needed");
        out = heaviest_clusters(Y, weight.data(), cluster_of.data(), threads);
    }
    return to_numpy(std::move(out));
}

auto label_pairs_py(I64 indptr, I32 indices, I64 row_indptr, I32 rows, int64_t least, int threads) {
    LabelPairs out;
    {
        WithoutGil unlocked;
        const auto n_labels = int64_t(row_indptr.size()) - 1;
        const CsrView Y = checked_csr("Y", indptr, indices, n_labels, Order::ascending);
        const CsrView rows_of = checked_csr("rows of labels", row_indptr, rows, Y.n_rows);
        require(least >= 1, "pairs of labels are counted from one row on");
        out = count_pairs(Y, rows_of, least, threads);
    }
    return std::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.others)), to_numpy(std::move(out.counts)));
}

auto choose_blocks_py(In1<int64_t> indptr, In1<int32_t> indices, int64_t n_labels, In1<int64_t> cluster_indptr,
                      In1<int32_t> cluster_labels, In1<int32_t> assignment, double price, bool small, int threads) {
    BlockChoice out;
    {
        WithoutGil unlocked;
        const CsrView Y = checked_csr("Y", indptr, indices, n_labels);
        const CsrView clusters = checked_csr("clusters", cluster_indptr, cluster_labels, n_labels);
        check_distinct(clusters);
        check_assignment(assignment, Y.n_rows, clusters.n_rows);
        out = choose_blocks(Y, clusters.indptr, clusters.indices, clusters.n_rows, assignment.data(), price,
                            small ? Tie::small : Tie::stay, threads);
    }
    return std::make_tuple(to_numpy(std::move(out.assignment)), out.captured);
}

auto nearest_centroids_py(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features,
                          In1<int32_t> assignment, int64_t n_clusters, In1<int64_t> query_indptr, In1<int32_t> query_indices,
                          In1<float> query_data, int64_t k, int64_t budget, int threads, Out1<int64_t> progress) {
    require(k >= 1, "at least one cluster must be asked for");
    kmeans::Nearest out(0, k);
    {
        WithoutGil unlocked;
        const CsrView X = checked_csr("X", indptr, indices, data, n_features);
        const CsrView queries = checked_csr("queries", query_indptr, query_indices, query_data, n_features);
        check_assignment(assignment, X.n_rows, n_clusters);
        out = kmeans::nearest_centroids(X, assignment.data(), n_clusters, queries, k, budget, threads, checked_watch(progress));
    }
    return std::make_tuple(to_numpy(std::move(out.cluster)), to_numpy(std::move(out.cosine)));
}

auto balanced_tree_py(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features, int64_t n_leaves,
                      uint64_t seed, int64_t sample, int max_iter, int threads, Out1<int64_t> progress) {
    std::vector<int32_t> out;
    {
        WithoutGil unlocked;
        const CsrView X = checked_csr("X", indptr, indices, data, n_features);
        require(n_leaves >= 1 && n_leaves <= std::max<int64_t>(X.n_rows, 1), "more leaves than rows");
        require(sample >= 2, "a split needs a sample of two rows or more");
        out = kmeans::balanced_tree(X, n_leaves, seed, sample, max_iter, threads, checked_watch(progress));
    }
    return to_numpy(std::move(out));
}

auto heaviest_sums_py(In1<int64_t> indptr, In1<int32_t> indices, In1<float> data, int64_t n_features,
                      In1<int64_t> list_indptr, In1<int32_t> list_rows, int64_t keep, int threads, Out1<int64_t> progress) {
    SparseRows out;
    {
        WithoutGil unlocked;
        const CsrView X = checked_csr("X", indptr, indices, data, n_features);
        const CsrView lists = checked_csr("lists", list_indptr, list_rows, X.n_rows);
        require(keep >= 1, "at least one feature must be kept");
        out = heaviest_sums(X, lists, keep, threads, checked_watch(progress));
    }
    return std::make_tuple(to_numpy(std::move(out.indptr)), to_numpy(std::move(out.indices)), to_numpy(std::move(out.data)));
}

} // namespace

void bind_partition(nb::module_ &m) {
    m.def("rank_labels", &rank_labels_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("n_labels"),
          nb::arg("assignment").noconvert(), nb::arg("n_blocks"), nb::arg("min_count"), nb::arg("threads"),
          "Labels of each block by falling count: (indptr, labels, counts).");
    m.def("heaviest_clusters", &heaviest_clusters_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("cluster_of").noconvert(), nb::arg("threads"),
          "The cluster that holds most of the labels of each row, by their weights.");
    m.def("label_pairs", &label_pairs_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("row_indptr").noconvert(), nb::arg("rows").noconvert(), nb::arg("least"), nb::arg("threads"),
          "Pairs of labels that so many rows carry, by the lower label: (indptr, higher labels, counts).");
    m.def("choose_blocks", &choose_blocks_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("n_labels"), nb::arg("cluster_indptr").noconvert(), nb::arg("cluster_labels").noconvert(),
          nb::arg("assignment").noconvert(), nb::arg("price"), nb::arg("small"), nb::arg("threads"),
          "The best block of each row given the label clusters: (assignment, captured).");
    m.def("nearest_centroids", &nearest_centroids_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("assignment").noconvert(), nb::arg("n_clusters"),
          nb::arg("query_indptr").noconvert(), nb::arg("query_indices").noconvert(), nb::arg("query_data").noconvert(),
          nb::arg("k"), nb::arg("budget"), nb::arg("threads"), nb::arg("progress").noconvert(),
          "The k clusters whose mean directions are nearest to each query row: (clusters, cosines), rows x k, flat.");
    m.def("balanced_tree", &balanced_tree_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("n_leaves"), nb::arg("seed"), nb::arg("sample"),
          nb::arg("max_iter"), nb::arg("threads"), nb::arg("progress").noconvert(),
          "Rows split into equally large leaves by a binary tree of balanced 2-means.");
    m.def("heaviest_sums", &heaviest_sums_py, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
          nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("list_indptr").noconvert(),
          nb::arg("list_rows").noconvert(), nb::arg("keep"), nb::arg("threads"), nb::arg("progress").noconvert(),
          "Sums of unit rows over lists of rows, each cut to its heaviest features: CSR arrays.");
}

} // namespace blockxmc
