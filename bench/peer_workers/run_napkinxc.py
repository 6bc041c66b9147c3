"""napkinXC's probabilistic label tree with its defaults, served by exact and by beam search.

fit() copies the rows into its own form and writes the model while it trains: both are part of its training time.
"""

from importlib.metadata import version

from napkinxc.models import PLT
from worker import TOP, Clock, Setting, main, pad, read, single_rows


def train(_training, rows, model, threads, _seed):
    X, Y = read(rows, "train")
    with Clock() as clock:
        PLT(str(model), threads=threads).fit(X, Y)
    return clock


def serve(_, model, X):
    single = single_rows(X)
    for name, options in {"beam 10": {"tree_search_type": "beam", "beam_search_width": 10}, "exact": {}}.items():
        loaded = PLT(str(model), threads=1, **options)
        loaded.load()

        def predict(rows, loaded=loaded):
            return loaded.predict(rows, top_k=TOP)

        yield Setting(name, lambda predict=predict: predict(X), X.shape[0], pad, {"one_us": (predict, single)})


if __name__ == "__main__":
    main(version("napkinxc"), train, serve)
