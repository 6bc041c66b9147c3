"""Plain NumPy versions of what the partition kernels compute, and small random problems to compare them on."""

import numpy as np
from scipy import sparse


def random_problem(seed, n=60, d=20, m=15, label_rate=0.2, feature_rate=0.3):
    """Sparse X and 0-1 Y with empty rows and columns in both."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=feature_rate, rng=rng, dtype=np.float32, format="csr")
    Y = (rng.random((n, m)) < label_rate).astype(np.float32)
    Y[rng.random(n) < 0.1] = 0
    if not Y.any():
        Y[0, 0] = 1
    return X, sparse.csr_array(Y)


def objective(Y, assignment, clusters, lam, kind="quadratic"):
    """f from its definition."""
    dense = Y.toarray() > 0
    captured = sum(dense[i, clusters[z]].sum() for i, z in enumerate(assignment) if z >= 0)
    sizes = np.array([len(c) for c in clusters])
    if kind == "quadratic":
        return -float(captured) + lam * float((sizes**2).sum())
    rows = np.bincount(assignment[dense.any(axis=1)], minlength=len(clusters))
    return -float(captured) + lam * float((rows * sizes).sum())


def ranked(Y, assignment, n_blocks, min_count=1):
    """Per block: (labels, counts) by falling count, then rising id."""
    dense = Y.toarray() > 0
    out = []
    for block in range(n_blocks):
        counts = dense[assignment == block].sum(axis=0)
        order = np.lexsort((np.arange(counts.size), -counts))
        order = order[counts[order] >= max(min_count, 1)]
        out.append((order, counts[order]))
    return out


def hits(Y, clusters):
    """Q: labels of each row in each cluster."""
    member = np.zeros((Y.shape[1], len(clusters)), dtype=int)
    for block, labels in enumerate(clusters):
        member[labels, block] = 1
    return (Y.toarray() > 0).astype(int) @ member


def best_blocks(Y, clusters, assignment, price=0.0, small=False):
    """The instance step, row by row."""
    Q = hits(Y, clusters)
    sizes = np.array([len(c) for c in clusters])
    out = assignment.copy()
    for i, row in enumerate(Q):
        if not row.any():
            continue
        score = row - price * sizes
        tied = np.flatnonzero(score == score.max())
        if small:
            key = [(sizes[block], block != assignment[i], block) for block in tied]
        else:
            key = [(block != assignment[i], sizes[block], block) for block in tied]
        out[i] = tied[min(range(len(tied)), key=key.__getitem__)]
    return out, int(sum(Q[i, z] for i, z in enumerate(out) if z >= 0))


def ragged(lists):
    """(indptr, flat int32)."""
    indptr = np.concatenate([[0], np.cumsum([len(part) for part in lists])]).astype(np.int64)
    return indptr, np.array([x for part in lists for x in part], dtype=np.int32)
