"""omikuji with its defaults (Parabel) and as Bonsai; served with sparse and with densified weights.

It reads XC text only and has no batch call: a batch is a loop over rows that are already in the form it takes.
"""

from importlib.metadata import version

import omikuji
from worker import TOP, Clock, Setting, main, pad, spread

# Bonsai as in omikuji's documentation: regular k-means, 100 clusters, depth 3.
TRAININGS = {
    "parabel-1": {"n_trees": 1},
    "parabel-3": {"n_trees": 3},
    "bonsai-3": {"n_trees": 3, "cluster_k": 100, "cluster_balanced": False, "max_depth": 3},
}
BEAM = 10
SAMPLE = 5000


def train(training, rows, model, threads, _seed):
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
    """Each row as the list of pairs that predict() takes."""
    ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in ends]


def labels_of(answers):
    return pad([[label for label, _ in answer] for answer in answers])


def serve(_, model, X):
    """Densified weights answer all rows; sparse ones, several times slower, are timed on some of them."""
    rows, sample = pairs(X), spread(X.shape[0], SAMPLE)
    single = [rows[i] for i in spread(X.shape[0], 1000)]

    def setting(name, densify, chosen, top):
        loaded = omikuji.Model.load(str(model))
        loaded.init_prediction_thread_pool(1)
        if densify:
            loaded.densify_weights(0.1, 1)

        def predict(row):
            return loaded.predict(row, beam_size=BEAM, top_k=TOP)

        return Setting(name, lambda: [predict(row) for row in chosen], len(chosen), top, {"one_us": (predict, single)})

    found = []

    def keep(answers):
        found.append(labels_of(answers))
        return found[0]

    def put_in(answers):
        labels = found[0].copy()
        labels[sample] = labels_of(answers)
        return labels

    yield setting(f"beam {BEAM}, densified", True, rows, keep)
    yield setting(f"beam {BEAM}", False, [rows[i] for i in sample], put_in)


if __name__ == "__main__":
    main(version("omikuji"), train, serve)
