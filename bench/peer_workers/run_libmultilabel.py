"""LibMultiLabel's linear tree with its defaults (100 children a node), served by its beam search.

It scores all labels of a row into a dense matrix: rows are given to it a few hundred at a time. It saves by pickle only.
"""

import pickle
from importlib.metadata import version

import numpy as np
from libmultilabel import linear
from worker import TOP, Clock, Setting, main, read, single_rows

ROWS_AT_A_TIME = 512


def train(_training, rows, model, threads, seed):
    X, Y = read(rows, "train")
    np.random.seed(seed)  # noqa: NPY002 - it draws from the global generator
    with Clock() as clock:
        trained = linear.train_tree(Y, X, f"-m {threads}", verbose=False)
    model.mkdir()
    (model / "tree.pickle").write_bytes(pickle.dumps(trained))
    return clock


def best(scores):
    few = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
    order = np.argsort(-np.take_along_axis(scores, few, axis=1), axis=1, kind="stable")
    return np.take_along_axis(few, order, axis=1)


def serve(_, model, X):
    loaded = pickle.loads((model / "tree.pickle").read_bytes())

    def predict(rows):
        return best(linear.predict_values(loaded, rows))

    def batch():
        parts = [predict(X[i : i + ROWS_AT_A_TIME]) for i in range(0, X.shape[0], ROWS_AT_A_TIME)]
        return np.concatenate(parts)

    yield Setting("beam 10", batch, X.shape[0], lambda labels: labels, {"one_us": (predict, single_rows(X))})


if __name__ == "__main__":
    main(version("libmultilabel"), train, serve)
