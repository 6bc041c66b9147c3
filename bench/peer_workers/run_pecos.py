"""PECOS XR-Linear with its defaults: one model, three beams, two weight layouts."""

from importlib.metadata import version

import numpy as np
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from worker import TOP, Clock, Setting, main, read, single_rows

LAYOUTS = {"BINARY_SEARCH_CHUNKED": (1, 5, 10), "HASH_CHUNKED": (10,)}


def train(_, rows, model, threads, seed):
    X, Y = read(rows, "train")
    Y = Y.tocsc()
    with Clock() as clock:
        embedding = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=threads)
        clusters = Indexer.gen(embedding, indexer_type="hierarchicalkmeans", threads=threads, seed=seed)
        trained = XLinearModel.train(X, Y, C=clusters, threads=threads)
    trained.save(str(model))
    return clock


def best_labels(scores):
    """Labels of a matrix of at most five scores per row, best first."""
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    place = np.arange(scores.nnz) - scores.indptr[rows]
    labels = np.full((scores.shape[0], TOP), -1, np.int32)
    labels[rows, place] = scores.indices[order]
    return labels


def serve(_, model, X):
    single = single_rows(X)
    for layout, beams in LAYOUTS.items():
        loaded = XLinearModel.load(str(model), is_predict_only=True, weight_matrix_type=layout)
        for beam in beams:

            def predict(rows, loaded=loaded, beam=beam):
                return loaded.predict(rows, beam_size=beam, only_topk=TOP, threads=1)

            name = f"beam {beam}" + (", hash chunks" if layout == "HASH_CHUNKED" else "")
            yield Setting(
                name, lambda predict=predict: predict(X), X.shape[0], best_labels, {"one_us": (predict, single)}
            )


if __name__ == "__main__":
    main(version("libpecos"), train, serve)
