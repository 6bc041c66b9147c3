import numpy as np
import pytest
from scipy import sparse

from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError


def test_sparse_matrix_comes_back_as_it_was():
    for container in (sparse.csr_matrix, sparse.csr_array):
        Y = container(np.array([[1, 0, 1], [0, 0, 0]]))
        targets, Y01 = Targets.encode(Y)
        back = targets.decode(Y01)
        assert type(back) is container
        assert (back.toarray() == Y.toarray()).all()


def test_explicit_zeros_are_not_labels():
    Y = sparse.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert Targets.encode(Y)[1].indices.tolist() == [1]


def test_ragged_and_set_rows_are_names():
    targets, Y = Targets.encode([{"x"}, set(), {"y", "x"}])
    assert targets.kind == "names"
    assert Y.toarray().tolist() == [[1, 0], [0, 0], [1, 1]]


def test_duplicate_names_in_a_row_count_once():
    assert Targets.encode([["a", "a"], ["b"]])[1].nnz == 2


def test_classes_keep_their_type():
    targets, Y = Targets.encode(np.array(["b", "a", "b"]))
    assert targets.kind == "classes"
    assert targets.names.tolist() == ["a", "b"]
    assert Y.toarray().tolist() == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize("Y", [np.array([[0, 2]]), np.array([[0.5, 1]]), sparse.csr_array(np.array([[3, 1]]))])
def test_other_values_than_zero_and_one_are_refused(Y):
    with pytest.raises(BlockXMCError, match="0"):
        Targets.encode(Y)


def test_unseen_names_are_counted_not_raised():
    targets, _ = Targets.encode([["a"], ["b", "a"]])
    Y, unseen = targets.encode_more([["a", "zebra"], ["zebra", "yak"]])
    assert unseen == 3
    assert Y.toarray().tolist() == [[1, 0], [0, 0]]


def test_width_must_agree():
    targets, _ = Targets.encode(np.array([[1, 0]]))
    with pytest.raises(BlockXMCError, match="2"):
        targets.encode_more(np.array([[1, 0, 1]]))


def test_none_is_refused_in_scikit_learns_words():
    with pytest.raises(ValueError, match="requires y to be passed"):
        Targets.encode(None)
