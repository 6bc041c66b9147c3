"""How partitions, routers and weights are kept as stages of a job."""

from __future__ import annotations

from typing import Any

from blockxmc.errors import BlockXMCError
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import LinearWeights, LowRankWeights
from blockxmc.partition import Partitioner
from blockxmc.routing import Router
from blockxmc.training.job import Form

PARTITION = Form(Partitioner.state, Partitioner.from_state)
_KINDS: dict[str, Any] = {"linear": LinearWeights, "low-rank": LowRankWeights, "vectors": LabelVectors}


def _weights_state(weights: Any) -> dict[str, Any]:
    for name, kind in _KINDS.items():
        if isinstance(weights, kind):
            return {"kind": name, **vars(weights)}
    raise BlockXMCError(
        "the base is not linear, and what it learns cannot be kept without a pickle: leave work out, or take another base"
    )


def _restored_weights(state: dict[str, Any]) -> Any:
    return _KINDS[state["kind"]](**{name: value for name, value in state.items() if name != "kind"})


WEIGHTS: Form[Any] = Form(_weights_state, _restored_weights)
WEIGHTS_OF_BLOCKS: Form[list[Any]] = Form(
    lambda blocks: [WEIGHTS.state(weights) for weights in blocks],
    lambda states: [WEIGHTS.restored(state) for state in states],
)
# Weights of labels, and a number.
SOLVED: Form[tuple[Any, float]] = Form(
    lambda solved: {"weights": WEIGHTS.state(solved[0]), "number": solved[1]},
    lambda state: (WEIGHTS.restored(state["weights"]), state["number"]),
)


def _router_state(router: Router) -> dict[str, Any]:
    return {"n_blocks": router.n_blocks, "learned": None if router.learned is None else WEIGHTS.state(router.learned)}


def router_form(unfitted: Router) -> Form[Router]:
    """A router with the parameters of this one."""

    def restored(state: dict[str, Any]) -> Router:
        router = unfitted.unfitted()
        router.n_blocks = state["n_blocks"]
        if state["learned"] is not None:
            router.learned = WEIGHTS.restored(state["learned"])
            router.scorer = Router.from_weights(router.learned, router.bits).scorer
        return router

    return Form(_router_state, restored)
