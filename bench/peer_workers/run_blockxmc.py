"""blockxmc's default, served as it comes and with fixed numbers of visited blocks."""

from dataclasses import replace

from scipy import sparse
from worker import TOP, Clock, Setting, main, read, single_rows

from blockxmc import BlockwiseClassifier, __version__, load

ROUTES = (1, 2, 4, 8)


def train(training, rows, model, threads, seed):
    X, Y = map(sparse.csr_array, read(rows, "train"))
    with Clock() as clock:
        trained = BlockwiseClassifier(n_jobs=threads, random_state=seed).fit(X, Y)
    trained.save(model)
    return clock


def serve(training, model, X):
    X = sparse.csr_array(X)
    loaded = load(model)
    loaded.n_jobs = 1
    default = loaded.model_
    single = [sparse.csr_array(row) for row in single_rows(sparse.csr_matrix(X))]
    arrays = [(row.indices, row.data) for row in single]
    routes = [b for b in ROUTES if b <= loaded.partition_.n_blocks_]
    settings = {"default": default} | {f"route {b}": replace(default, route=b, top_p=1.0) for b in routes}
    for name, blocks in settings.items():
        loaded.model_ = blocks
        calls = {
            "one_us": (lambda row: loaded.predict_one(*row, TOP), arrays),
            "one_topk_us": (lambda row: loaded.predict_topk(row, TOP), single),
        }
        yield Setting(name, lambda: loaded.predict_topk(X, TOP), X.shape[0], lambda answer: answer[0], calls)


if __name__ == "__main__":
    main(__version__, train, serve)
