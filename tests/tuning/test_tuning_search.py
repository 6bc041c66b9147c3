"""The order of trials: which pairs of blocks and lambda are asked of which folds, on folds that answer from a table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from blockxmc._core.progress import Reporter
from blockxmc.tuning.joint import Search
from blockxmc.tuning.plan import BlockPlan

LAMS = (0.1, 0.2, 0.4, 0.8)
SETTING: dict[str, Any] = {
    "base": "a base",
    "evaluated_base": "a base",
    "partitioner": "",
    "seed": 0,
    "n_rows": 100,
    "assignment": "",
    "weights": "per-block",
    "route": 1,
    "held_out_rows": [20, 20, 20],
}


class Table:
    """A fold that loses what a function says, and notes what it was asked."""

    def __init__(self, loses: Any, products: Any) -> None:
        self._loses, self._products, self.asked = loses, products, []

    def base(self) -> dict[str, Any]:
        return self._entry(0.0, 0.0)

    def found(self, q: int, steps: tuple[float, ...]) -> dict[str, Any]:
        if (q, steps[-1]) not in self.asked:
            self.asked.append((q, steps[-1]))
        return self._entry(self._loses(q, steps[-1]), self._products(q, steps[-1]))

    def loss(self, q: int, steps: tuple[float, ...]) -> float:
        return float(self._loses(q, steps[-1]))

    @staticmethod
    def _entry(loss: float, products: float) -> dict[str, Any]:
        costs = dict.fromkeys(("trainings", "warm_trainings", "pairs", "reused_pairs", "seconds", "setup_seconds"), 0)
        return costs | {"precision": [50.0 - loss], "candidates": products, "products": products, "recall": 1.0}


def searched(folds: list[Table], numbers: tuple[int, ...]) -> Any:
    task = SimpleNamespace(threads=1, ks=(1,))
    problem: Any = SimpleNamespace(
        task=task, reporter=Reporter(), n_rows=100, Y=np.zeros((1, 40)), options=SimpleNamespace(reassign=True)
    )
    plan = BlockPlan(LAMS, tuple((q,) * len(LAMS) for q in numbers), refine=False)
    return Search(problem, folds, plan, 2.0, SETTING).run()  # type: ignore[arg-type]


def products(q: int, lam: float) -> float:
    return q + 20 / (q * lam)


def test_a_fold_that_refuses_pairs_is_asked_alone():
    # With eight blocks the last fold refuses all but the smallest lambda; with two blocks every fold allows 0.2.
    easy = lambda q, lam: 1.0 if lam <= (0.8 if q == 8 else 0.2) else 9.0  # noqa: E731
    strict = lambda q, lam: 1.0 if (q == 8 and lam <= 0.1) or (q == 2 and lam <= 0.2) else 9.0  # noqa: E731
    folds = [Table(easy, products), Table(easy, products), Table(strict, products)]
    result = searched(folds, (2, 8))
    best = min(products(8, 0.1), products(2, 0.2))
    assert result.speed_driven.products == best
    # The winner is completed everywhere; of the other number only the strict fold saw the pairs that it refused.
    winner = result.speed_driven.n_blocks
    assert all(len([pair for pair in fold.asked if pair[0] == winner]) == len(LAMS) for fold in folds)
    loser = 8 if winner == 2 else 2
    assert len([pair for pair in folds[1].asked if pair[0] == loser]) <= 1


def limited(limits: dict[int, float]) -> Any:
    return lambda q, lam: 1.0 if lam <= limits[q] else 3.0 + 10 * lam


def test_the_fewest_products_win_whatever_the_first_fold_promises():
    rng = np.random.default_rng(0)
    for _ in range(30):
        limits = [{q: rng.choice([0.0, *LAMS]) for q in (2, 4, 8)} for _ in range(3)]
        result = searched([Table(limited(own), products) for own in limits], (2, 4, 8))
        allowed = {q: min(own[q] for own in limits) for q in (2, 4, 8)}
        best = min((products(q, lam) for q, lam in allowed.items() if lam > 0), default=None)
        assert (result.speed_driven and result.speed_driven.products) == best


def test_the_fewest_blocks_at_the_smallest_lambda_are_tried_for_precision():
    loses = lambda q, lam: -3.0 if (q, lam) == (2, 0.1) else 1.0  # noqa: E731
    result = searched([Table(loses, products) for _ in range(3)], (2, 8))
    assert (result.speed_driven.n_blocks, result.accuracy_driven.n_blocks, result.accuracy_driven.lam) == (8, 2, 0.1)
