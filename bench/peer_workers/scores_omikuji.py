"""omikuji's scores of a label set: trained on an XC file, the best labels of other rows (npz in, npz out).

python scores_omikuji.py TRAIN.txt ROWS.npz OUT.npz THREADS
"""

import sys
from itertools import pairwise

import numpy as np
import omikuji

TOP, BEAM = 100, 10


def main(train, rows, out, threads):
    parameters = omikuji.Model.default_hyper_param()
    # Bonsai as in omikuji's documentation: regular k-means, 100 clusters, depth 3.
    for name, value in {"n_trees": 3, "cluster_k": 100, "cluster_balanced": False, "max_depth": 3}.items():
        setattr(parameters, name, value)
    model = omikuji.Model.train_on_data(train, parameters, int(threads))
    given = np.load(rows)
    indptr, indices, data = given["indptr"], given["indices"].tolist(), given["data"].tolist()
    labels = np.full((indptr.size - 1, TOP), -1, np.int64)
    scores = np.full(labels.shape, -np.inf, np.float32)
    for i, (a, b) in enumerate(pairwise(indptr)):
        pairs = list(zip(indices[a:b], data[a:b], strict=True))
        for j, (label, score) in enumerate(model.predict(pairs, beam_size=BEAM, top_k=TOP)):
            labels[i, j], scores[i, j] = label, score
    np.savez(out, labels=labels, scores=scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
