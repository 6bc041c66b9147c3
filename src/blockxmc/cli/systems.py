"""Names on the command line -> estimators."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator

SYSTEMS = ("bp", "full", "cbmlc", "lpsr", "lf", "fastxml")
BASES = ("dismec", "pd-sparse", "ppd-sparse", "leml", "naive-bayes")


def make_base(name: str) -> Any:
    """A base classifier with its defaults."""
    import blockxmc

    classes = {
        "dismec": "DiSMEC",
        "pd-sparse": "PDSparse",
        "ppd-sparse": "PPDSparse",
        "leml": "LEML",
        "naive-bayes": "NaiveBayes",
    }
    if name not in classes:
        raise BlockXMCError(f"--base must be one of {', '.join(BASES)}, got {name!r}")
    return getattr(blockxmc, classes[name])()


def make_system(
    system: str,
    base: str | None,
    *,
    paper: bool = False,
    blocks: str = "auto",
    lam: str = "auto",
    weights: Any = "auto",
    route: str = "auto",
    parameters: list[str] | None = None,
    **common: Any,
) -> XMCEstimator:
    """The estimator a command line asks for; options that the system does not have are refused."""
    from blockxmc import BlockwiseClassifier
    from blockxmc.baselines import CBMLC, LPSR, FastXML, LabelFilters
    from blockxmc.classifier import lean_dismec

    if system not in SYSTEMS:
        raise BlockXMCError(f"--system must be one of {', '.join(SYSTEMS)}, got {system!r}")
    given = {
        "--base": base is not None,
        "--blocks": blocks != "auto",
        "--lam": lam != "auto",
        "--paper": paper,
        "--route": route != "auto",
        "--weights": weights != "auto",
    }
    allowed = {"bp": set(given), "cbmlc": {"--base", "--blocks"}, "lpsr": {"--base", "--blocks"}, "fastxml": set()}
    for option, used in given.items():
        if used and option not in allowed.get(system, {"--base"}):
            raise BlockXMCError(f"{option} has no meaning for --system {system}")
        if used and paper and option in ("--route", "--weights"):
            raise BlockXMCError(f"{option} is fixed by --paper: leave one of them out")
    if base is None and system == "bp" and not paper and weights in ("auto", "shared"):
        learner = lean_dismec()
    else:
        learner = make_base(base or ("naive-bayes" if system == "lpsr" else "dismec"))
    words = ("auto", "paper", "cost") if system == "bp" else ("auto",)
    counted = {} if blocks in words else {"n_blocks": _number("--blocks", blocks, int)}
    estimator: Any
    if system == "bp":
        n_blocks = counted.get("n_blocks", blocks)
        scale = lam if lam == "auto" else _number("--lam", lam, float)
        if paper:
            n_blocks = "paper" if blocks == "auto" else n_blocks
            estimator = BlockwiseClassifier.paper(learner, n_blocks=n_blocks, lam=scale)
        else:
            visited = route if route == "auto" else _number("--route", route, blocks_or_share)
            estimator = BlockwiseClassifier(learner, n_blocks=n_blocks, lam=scale, weights=weights, route=visited)
    elif system == "full":
        estimator = learner
    elif system == "cbmlc":
        estimator = CBMLC(learner, **counted)
    elif system == "lpsr":
        estimator = LPSR(learner, **counted)
    elif system == "lf":
        estimator = LabelFilters(learner)
    else:
        estimator = FastXML()
    estimator.set_params(**common)
    return _with_parameters(estimator, parameters or [])


def blocks_or_share(text: str) -> float:
    """``4`` is a number of blocks, ``0.7`` a share of the router's probability."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _number(option: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        words = {"--blocks": "auto, paper, cost"}.get(option, "auto")
        raise BlockXMCError(f"{option} must be a number or one of {words}; got {text!r}") from None


def _with_parameters(estimator: XMCEstimator, parameters: list[str]) -> XMCEstimator:
    """``--param base__C=2`` and the like."""
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals or name not in estimator.get_params():
            known = ", ".join(sorted(estimator.get_params()))
            raise BlockXMCError(f"--param wants NAME=VALUE with NAME one of {known}; got {text!r}")
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError:
            parsed = value
        if isinstance(estimator.get_params()[name], (int, float)) and not isinstance(parsed, (int, float)):
            raise BlockXMCError(f"--param {name} wants a number, got {value!r}")
        estimator.set_params(**{name: parsed})
    return estimator
