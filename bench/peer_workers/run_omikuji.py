"""omikuji with its defaults (Parabel) and as Bonsai; served with sparse and with densified weights.

It reads XC text only and has no batch call: a batch is a loop over rows that are already in the form it takes.
"""

from importlib.metadata import version

import omikuji
from worker import TOP, Clock, Setting, main, pad, single_rows

# Bonsai as in omikuji's documentation: regular k-means, 100 clusters, depth 3.
TRAININGS = {
    "parabel-1": {"n_trees": 1},
    "parabel-3": {"n_trees": 3},
    "bonsai-3": {"n_trees": 3, "cluster_k": 100, "cluster_balanced": False, "max_depth": 3},
}
BEAM = 10


def train(training, rows, model, threads):
    parameters = omikuji.Model.default_hyper_param()
    for name, value in TRAININGS[training].items():
        setattr(parameters, name, value)
    # The two halves of Model.train_on_data, apart: reading the file is not training.
    ffi, lib = omikuji.ffi, omikuji.lib
    pool = omikuji._ThreadPoolHandle(threads)
    data = ffi.gc(
        lib.load_omikuji_data_set(ffi.new("char[]", str(rows / "train.txt").encode()), pool.ptr),
        lib.free_omikuji_data_set,
    )
    with Clock() as clock:
        trained = omikuji.Model(lib.train_omikuji_model(data, parameters, pool.ptr))
    trained.save(str(model))
    return clock


def pairs(X):
    return list(zip(X.indices.tolist(), X.data.tolist(), strict=True))


def serve(_, model, X):
    every = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    single = [pairs(row) for row in single_rows(X, 1000)]
    loaded = omikuji.Model.load(str(model))
    loaded.init_prediction_thread_pool(1)

    def predict(row):
        return loaded.predict(row, beam_size=BEAM, top_k=TOP)

    def batch():
        return [predict(row) for row in every]

    def top(answers):
        return pad([[label for label, _ in answer] for answer in answers])

    yield Setting(f"beam {BEAM}", batch, top, {"one_us": (predict, single)})
    loaded.densify_weights(0.1, 1)
    yield Setting(f"beam {BEAM}, densified", batch, top, {"one_us": (predict, single)})


if __name__ == "__main__":
    main(version("omikuji"), train, serve)
