import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from blockxmc import DiSMEC, load
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


@pytest.mark.parametrize("Y", [[[0, 1], [0, 1]], [[1], [0]], [(0.0, 1.0)], [np.array([1, 0])], [[True, False]]])
def test_what_may_be_a_matrix_or_label_numbers_is_refused(Y):
    with pytest.raises(BlockXMCError, match=r"np\.array\(Y\).*set\(row\)"):
        Targets.encode(Y)
    assert Targets.encode(np.array(Y))[0].kind == "dense"


def test_a_row_that_repeats_a_number_is_a_row_of_a_matrix():
    for Y in ([[0, 1], [0, 0]], [[0, 1, 0]], [np.array([1, 0, 0]), np.array([0, 0, 1])]):
        assert Targets.encode(Y)[0].kind == "dense"


def test_sets_say_that_zero_and_one_are_label_numbers():
    targets, Y = Targets.encode([{0, 1}, {1, 0}])
    assert (targets.kind, targets.names.tolist(), Y.nnz) == ("names", [0, 1], 4)


@pytest.mark.parametrize("Y", [[[1, 2], [3]], [[1, 2], [3, 4]], [[3], [5]], np.array([[1, 2], [3]], dtype=object)])
def test_lists_of_numbers_are_label_numbers_whatever_their_lengths(Y):
    targets, Y01 = Targets.encode(Y)
    assert targets.kind == "names"
    assert targets.decode(Y01) == [list(row) for row in Y]


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([["a", 1], ["b"]], "mixes text and numbers"),
        ([["a"], ["b", None]], "row 1 of Y holds None"),
        ([["a"], None], "row 1 of Y is None"),
        ([["a"], float("nan")], "row 1 of Y is nan"),
        (["a", ["b"]], "row 0 of Y is 'a'"),
        (["a", 1], "mixes text and 1"),
        (["a", float("nan")], "mixes text and nan"),
        (["a", None], "row 1 of Y is None"),
        (np.array(["a", None], dtype=object), "row 1 of Y is None"),
        ([[["a"]], [["b"]]], r"row 0 of Y holds \['a'\]"),
        ([[0.5], [1.5, 2]], "row 0 of Y holds 0.5"),
        ([[True], [False, True]], "text or whole numbers"),
        (({"a"} for _ in range(2)), "a list with an entry per row"),
        ("ab", "a list with an entry per row"),
        ([None, None], "row 0 of Y is None"),
        (np.array([["a", "b"], ["c", "d"]]), "one list per row"),
        ([0.5, 1.7, 3.3], "continuous"),
    ],
)
def test_labels_that_make_no_sense_are_one_clear_line(Y, message):
    with pytest.raises(BlockXMCError, match=message) as caught:
        Targets.encode(Y)
    assert "\n" not in str(caught.value)


def test_a_fitted_matrix_settles_what_a_plain_list_is():
    targets, _ = Targets.encode(np.array([[1, 0], [0, 1]]))
    assert targets.encode_more([[0, 1]])[0].toarray().tolist() == [[0, 1]]
    with pytest.raises(BlockXMCError, match="fitted on a 0-1 matrix"):
        targets.encode_more([[0, 1], [0]])
    named = Targets("csr_array", 2, np.array(["a", "b"], dtype=object))
    assert named.encode_more([["b"], ["a", "c"]])[0].toarray().tolist() == [[0, 1], [1, 0]]


def test_pandas_in_its_three_forms():
    pandas = pytest.importorskip("pandas")
    targets, Y = Targets.encode(pandas.Series([["b", "a"], [], ["b"]], index=[7, 3, 5]))
    assert targets.decode(Y) == [["a", "b"], [], ["b"]]
    assert Targets.encode(pandas.DataFrame({"x": [0, 1], "y": [1, 1]}))[0].kind == "dense"
    assert Targets.encode(pandas.Series(["b", "a"]))[0].names.tolist() == ["a", "b"]
    with pytest.raises(BlockXMCError, match="row 1 of Y is None"):
        Targets.encode(pandas.Series([["a"], None]))


def test_the_columns_of_a_data_frame_name_features_and_labels(tmp_path):
    X = pd.DataFrame(np.eye(4), columns=["a", "b", "c", "d"])
    Y = pd.DataFrame([[1, 0], [1, 0], [0, 1], [0, 1]], columns=["warm", "cold"])
    model = DiSMEC().fit(X, Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert model.label_names_.tolist() == model.classes_.tolist() == ["warm", "cold"]
    assert model.predict(X).tolist() == Y.to_numpy().tolist()
    assert model.score(X, Y) == 1.0
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").label_names_.tolist() == ["warm", "cold"]
    assert DiSMEC().fit(X, Y.set_axis([0, 1], axis=1)).label_names_ is None
    with pytest.raises(BlockXMCError, match="same name"):
        DiSMEC().fit(X, Y.set_axis(["x", "x"], axis=1))
