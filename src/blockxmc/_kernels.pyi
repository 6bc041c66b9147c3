"""Types of the compiled module. Every array argument must have exactly this dtype and be C-contiguous."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

sources: str  # digest of the sources that the module was built from

# --- parse ---

class XcParser:
    """Reads blocks of whole XC lines; ``feed`` returns (finding or 0, row, byte offset of the token)."""

    n_rows: int
    trailing_empty: int
    max_feature: int
    max_label: int
    def __init__(self, n_features: int, n_labels: int) -> None: ...
    def feed(self, block: NDArray[np.uint8], n_threads: int) -> tuple[int, int, int]: ...
    def finish(self, n_rows: int) -> tuple[I64, I32, F32, I64, I32]: ...

def format_xc(indptr: I64, indices: I32, data: F32, label_indptr: I64, label_indices: I32, n_threads: int) -> bytes: ...

# --- partition ---

def rank_labels(
    indptr: I64, indices: I32, n_labels: int, assignment: I32, n_blocks: int, min_count: int, threads: int
) -> tuple[I64, I32, I32]: ...
def heaviest_clusters(indptr: I64, indices: I32, weight: F64, cluster_of: I32, threads: int) -> I32: ...
def label_pairs(
    indptr: I64, indices: I32, row_indptr: I64, rows: I32, least: int, threads: int
) -> tuple[I64, I32, I32]: ...
def choose_blocks(
    indptr: I64,
    indices: I32,
    n_labels: int,
    cluster_indptr: I64,
    cluster_labels: I32,
    assignment: I32,
    price: float,
    small: bool,
    threads: int,
) -> tuple[I32, int]: ...
def nearest_centroids(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    assignment: I32,
    n_clusters: int,
    query_indptr: I64,
    query_indices: I32,
    query_data: F32,
    k: int,
    budget: int,
    threads: int,
    progress: I64,
) -> tuple[I32, F32]: ...
def large_or_known(
    indptr: I64,
    indices: I32,
    data: F32,
    known_indptr: I64,
    known_indices: I32,
    n_columns: int,
    least: float,
    threads: int,
) -> tuple[I64, I32, F32]: ...
def weighted_sum(
    indptr: I64,
    indices: I32,
    data: F32,
    other_indptr: I64,
    other_indices: I32,
    other_data: F32,
    share: float,
    n_columns: int,
    threads: int,
) -> tuple[I64, I32, F32]: ...
def heaviest_sums(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    list_indptr: I64,
    list_rows: I32,
    keep: int,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32]: ...
def balanced_tree(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    n_leaves: int,
    seed: int,
    sample: int,
    max_iter: int,
    threads: int,
    progress: I64,
) -> I32: ...

# --- newton ---
def train_one_vs_all(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    positive_indptr: I64,
    positive_indices: I32,
    member_indptr: I64 | None,
    member_indices: I32 | None,
    *,
    costs: F32 | None = None,
    start_indptr: I64 | None = None,
    start_indices: I32 | None = None,
    start_data: F32 | None = None,
    loss: str,
    C: float,
    tol: float,
    bias: float,
    prune: float,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32, F32]: ...
def shift_one_vs_all(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    old_indptr: I64,
    old_indices: I32,
    old_data: F32,
    old_bias: F32,
    lesson_indptr: I64,
    lesson_rows: I32,
    signs: F32,
    products: F32,
    costs: F32,
    *,
    C: float,
    tol: float,
    bias: float,
    prune: float,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32, F32]: ...
def rows_of_labels(
    block_indptr: I64,
    block_rows: I32,
    n_rows: int,
    label_indptr: I64,
    label_blocks: I32,
    own_indptr: I64,
    own_rows: I32,
    threads: int,
) -> tuple[I64, I32]: ...
def nearest_rows(
    indptr: I64,
    indices: I32,
    data: F32,
    n_features: int,
    sum_indptr: I64,
    sum_indices: I32,
    sum_data: F32,
    own_indptr: I64,
    own_rows: I32,
    row_indptr: I64,
    row_indices: I32,
    cut: NDArray[np.uint8],
    most: int,
    threads: int,
) -> tuple[I64, I32]: ...

# --- predict ---
U32 = NDArray[np.uint32]
MAX_CHUNK_LABELS: int
UNLISTED: (
    float  # added to the score of a frequent label that no visited block lists; half of it tells such scores apart
)

class PackedModel:
    def __init__(
        self,
        block_ptr: I64,
        offsets: I64,
        labels: I32,
        bias: F32,
        mass: F32 | None,
        keys: I32,
        buckets: U32,
        rows: U32,
        arena: U32,
        scale: F32 | None,
        n_labels: int,
        n_features: int,
        bits: int,
    ) -> None: ...
    def one(
        self, indices: I32, values: F32, blocks: I32 | None, k: int, allowed: Mask | None = None
    ) -> tuple[I64, F32]: ...
    def one_routed(
        self,
        router: PackedModel,
        indices: I32,
        values: F32,
        b: int,
        slope: float,
        top_p: float,
        k: int,
        neighbors: Neighbors | None = None,
        reranker: Reranker | None = None,
        allowed: Mask | None = None,
    ) -> tuple[I64, F32]: ...
    def topk(
        self,
        indptr: I64,
        indices: I32,
        data: F32,
        blocks: I32 | None,
        labels: I64,
        scores: F32,
        threads: int,
        allowed: Mask | None = None,
    ) -> None: ...
    def topk_routed(
        self,
        router: PackedModel,
        indptr: I64,
        indices: I32,
        data: F32,
        b: int,
        slope: float,
        top_p: float,
        labels: I64,
        scores: F32,
        threads: int,
        neighbors: Neighbors | None = None,
        reranker: Reranker | None = None,
        allowed: Mask | None = None,
    ) -> None: ...
    def candidates(self, blocks: I32 | None, threads: int) -> I64: ...
    def routes(
        self,
        router: PackedModel,
        indptr: I64,
        indices: I32,
        data: F32,
        b: int,
        slope: float,
        top_p: float,
        threads: int,
    ) -> tuple[I32, F32]: ...
    def scores(
        self, indptr: I64, indices: I32, data: F32, blocks: I32 | None, threads: int
    ) -> tuple[I64, I32, F32]: ...
    def scores_routed(
        self,
        router: PackedModel,
        indptr: I64,
        indices: I32,
        data: F32,
        b: int,
        slope: float,
        top_p: float,
        threads: int,
        neighbors: Neighbors | None = None,
        reranker: Reranker | None = None,
    ) -> tuple[I64, I32, F32]: ...
    def touched(self, indptr: I64, indices: I32, data: F32, blocks: I32 | None, threads: int) -> I64: ...

class Neighbors:
    def __init__(
        self, rows: PackedModel, indptr: I64, labels: I32, n_labels: int, count: int, features: int, weight: float
    ) -> None: ...
    def few_gains(
        self,
        indptr: I64,
        indices: I32,
        data: F32,
        nearest: I64,
        similarity: F32,
        few: I64,
        out: F32,
        threads: int,
    ) -> None: ...

class Companions:
    def __init__(
        self, indptr: I64, others: I32, log_counts: U8, frequency: F32, log_rows: float, weight: float
    ) -> None: ...
    def sums(self, labels: I64, out: F32, threads: int) -> None: ...

class Reranker:
    def __init__(self, curve: F32, frequency: F32, first: int, companions: Companions | None = None) -> None: ...

def keep_freed_memory() -> None: ...
def copy_rows(indptr: I64, indices: I32, data: F32, rows: I64, threads: int) -> tuple[I64, I32, F32]: ...
def place_rows(
    indptr: I64, indices: I32, data: F32, starts: I64, to_indices: I32, to_data: F32, threads: int
) -> None: ...
def largest_values(
    indptr: I64, indices: I32, data: F32, most: int, threads: int, unit: bool = False
) -> tuple[I64, I32, F32]: ...
def pack_chunks(
    indptr: I64, indices: I32, data: F32, labels: I32, ends: I64, n_features: int, bits: int, threads: int
) -> tuple[I64, I32, U32, U32, U32, F32]: ...
def take_columns(indptr: I64, indices: I32, data: F32, columns: I32, n_rows: int) -> tuple[I32, I64, I32, F32]: ...
def calibrate_scores(indptr: I64, labels: I32, scores: F32, curve: F64, threads: int) -> None: ...
def calibrate_topk(labels: I64, scores: F32, curve: F64, threads: int = 1) -> None: ...
def low_rank_scores(indptr: I64, indices: I32, data: F32, W: F32, H: F32, out: F32) -> None: ...
def dense_topk(scores: F32, label_ids: I32, labels: I64, best: F32) -> None: ...

# --- spmm ---

def spmm(indptr: I64, indices: I32, data: F32, B: F32, out: F32, threads: int) -> None: ...
def ridge_cg(
    indptr: I64,
    indices: I32,
    data: F32,
    t_indptr: I64,
    t_indices: I32,
    t_data: F32,
    s: F32,
    lam: float,
    T: F32,
    W: F32,
    steps: I32,
    tol: float,
    max_steps: int,
    threads: int,
    progress: I64,
) -> None: ...

# --- frank_wolfe ---
def pd_sparse(
    x_indptr: I64,
    x_indices: I32,
    x_data: F32,
    n_features: int,
    y_indptr: I64,
    y_indices: I32,
    n_labels: int,
    held_out: NDArray[np.uint8],
    *,
    C: float,
    lam: float,
    tol: float,
    max_iter: int,
    patience: int,
    importance_sampling: bool,
    post_solve: bool,
    direct_bytes: int,
    seed: int,
    progress: I64,
) -> tuple[I64, I32, F32, F64, F64, float, float]:
    """Weights (features x labels), gap and held-out traces, exact gap and primal objective."""

def project_bisimplex(b: F64, c: F64, C: float) -> tuple[F64, F64]:
    """For tests only, which compare it with a reference: projection on {x, y >= 0, sum x = sum y = t, 0 <= t <= C}."""

# --- dual_cd ---
def dual_cd(
    x_indptr: I64,
    x_indices: I32,
    x_data: F32,
    n_features: int,
    p_indptr: I64,
    p_indices: I32,
    r_indptr: I64 | None,
    r_indices: I32 | None,
    *,
    C: float,
    lam: float,
    bias: float,
    tol: float,
    max_rounds: int,
    max_passes: int,
    prune: float,
    seed: int,
    threads: int,
    progress: I64,
) -> tuple[I64, I32, F32, F32, I64, NDArray[np.uint8]]:
    """Weights (labels x features), biases, rounds, and which labels were certified."""

# --- fastxml ---
I8 = NDArray[np.int8]

def fastxml_grow(
    x_ptr: I64,
    x_idx: I32,
    x_val: F32,
    n_features: int,
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    n_trees: int,
    max_leaf: int,
    leaf_labels: int,
    cost: float,
    bias: float,
    seed: int,
    threads: int,
    progress: I64 | None = None,
) -> dict[str, Any]: ...

# For tests only: the two steps inside fastxml_grow, which tests compare with references.
def fastxml_split(y_ptr: I64, y_idx: I32, n_labels: int, start: I8) -> tuple[I8, F64]: ...
def fastxml_separator(
    col_ptr: I64,
    rows: I32,
    values: F32,
    side: I8,
    cost_plus: float,
    cost_minus: float,
    tolerance: float,
    max_newton: int,
    max_passes: int,
    seed: int,
) -> F64: ...

class Forest:
    def __init__(
        self,
        roots: I32,
        children: I32,
        feature_ptr: I64,
        features: I32,
        weights: F32,
        bias: F32,
        label_ptr: I64,
        labels: I32,
        label_scores: F32,
        n_features: int,
        n_labels: int,
    ) -> None: ...
    def leaves(self, indptr: I64, indices: I32, values: F32, out: I32, threads: int) -> None: ...
    def topk(self, indptr: I64, indices: I32, values: F32, labels: I64, scores: F32, threads: int) -> None: ...
    def scores(self, indptr: I64, indices: I32, values: F32, threads: int) -> tuple[I64, I32, F32]: ...

# --- filters ---
def filters_direction(
    x_ptr: I64,
    x_idx: I32,
    x_val: F32,
    n_features: int,
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    lower: F32,
    upper: F32,
    projections: F32,
    own: float,
    decay: float,
    n_steps: int,
    n_negatives: int,
    rank_every: int,
    seed: int,
    progress: I64 | None = None,
) -> F64: ...
def filters_project(x_ptr: I64, x_idx: I32, x_val: F32, directions: F32, out: F32, threads: int) -> None: ...
def filters_bounds(
    y_ptr: I64,
    y_idx: I32,
    n_labels: int,
    label_ptr: I64,
    label_rows: I32,
    lower: F32,
    upper: F32,
    projections: F32,
    projection: F32,
    sample: I64,
    own: float,
    new_lower: F32,
    new_upper: F32,
    threads: int,
    progress: I64 | None = None,
) -> tuple[int, int]: ...

class FilterIndex:
    def __init__(self, lower: F32, upper: F32) -> None: ...
    def candidates(self, projections: F32, threads: int) -> tuple[I64, I32]: ...

class LabelWeights:
    def __init__(self, indptr: I64, indices: I32, values: F32, n_features: int, threads: int = 1) -> None: ...
    def score(self, x_ptr: I64, x_idx: I32, x_val: F32, cand_ptr: I64, cand: I32, out: F32, threads: int) -> None: ...

def topk_of_pairs(indptr: I64, candidates: I32, scores: F32, labels: I64, best: F32, threads: int) -> None: ...

# --- words ---

U8 = NDArray[np.uint8]

class TextFeatures:
    """What is a feature of a text; ``unit``: 0 words, 1 letters, 2 letters in words."""

    def __init__(
        self, unit: int, shortest: int, longest: int, lowercase: bool, left_out: U8, left_out_ends: I64
    ) -> None: ...

class WordLearner:
    """Counts the features of texts and learns a vocabulary: (words, ends, texts that hold each, counts as CSR parts)."""

    def __init__(self) -> None: ...
    def feed(self, features: TextFeatures, texts: list[str], classes: U8, n_threads: int) -> None: ...
    def forget_texts(self) -> None:
        """Keep what is known of words, and no counts of texts that were fed."""
    def finish(self, min_texts: int, max_words: int, n_threads: int) -> tuple[U8, I64, I64, tuple[I64, I32, F32]]: ...

class Vocabulary:
    """Counts the features of texts that it holds: CSR parts."""

    def __init__(self, words: U8, ends: I64) -> None: ...
    def count(self, features: TextFeatures, texts: list[str], classes: U8, n_threads: int) -> tuple[I64, I32, F32]: ...

def weigh_counts(
    indptr: I64, indices: I32, counts: F32, idf: F32, out_indices: I32, out_values: F32, n_threads: int
) -> None: ...

# --- held_out: what is fitted on held-out rows ---
def logistic_weights(
    features: F64, right: U8, counts: F64, start: F64, lower: F64, shrinkage: float, tol: float, threads: int
) -> F64: ...
def order_weights(
    features: F64, side: NDArray[np.int8], usual: F64, lower: F64, pull: float, tol: float, threads: int
) -> F64: ...
def mix_hits(
    margin: F32,
    name: F32,
    centroid: F32,
    block: F32,
    neighbors: F32,
    right: U8,
    mixes: F32,
    out: F64,
    threads: int,
) -> None: ...
def block_weights(
    indptr: I64, blocks: I32, n_blocks: int, visited: I32, weights: F32, labels: I64, out: F32, threads: int
) -> None: ...
def right_labels(indptr: I64, labels_of: I32, n_labels: int, labels: I64, out: U8, threads: int) -> None: ...
def best_candidates(
    margin: F32,
    name: F32,
    centroid: F32,
    block: F32,
    neighbors: F32,
    log_positives: F32,
    right: U8,
    mix: F32,
    places: I64,
    scores: F32,
    are_right: U8,
    seen: F32,
    threads: int,
) -> None: ...
def best_first(scores: F32, out: I64, threads: int) -> None: ...
