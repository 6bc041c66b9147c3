"""Names on the command line -> estimators."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blockxmc.errors import BlockXMCError

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator

SYSTEMS = ("bp", "full", "cbmlc", "lpsr", "lf", "fastxml")
BASES = ("dismec", "pd-sparse", "ppd-sparse", "leml", "naive-bayes")


def make_base(name: str, *, letter: bool = False) -> Any:
    """A base classifier with its defaults, or with its authors' parameters."""
    import blockxmc
    from blockxmc.paper.letter import AUTHORS

    classes = {
        "dismec": "DiSMEC",
        "pd-sparse": "PDSparse",
        "ppd-sparse": "PPDSparse",
        "leml": "LEML",
        "naive-bayes": "NaiveBayes",
    }
    if name not in classes:
        raise BlockXMCError(f"--base must be one of {', '.join(BASES)}, got {name!r}")
    return getattr(blockxmc, classes[name])(**AUTHORS.get(name, {}) if letter else {})


@dataclass(frozen=True)
class SystemOptions:
    """What a command line says about the system to train; the defaults are those of ``blockxmc train``."""

    system: str = "bp"
    base: str | None = None
    paper: bool = False
    blocks: str = "auto"
    lam: str = "auto"
    weights: Any = "auto"
    route: str = "auto"
    parameters: tuple[str, ...] = ()
    assign_at: str | None = None
    keep_rows: bool = False
    letter: bool = False

    def given(self) -> list[str]:
        """The options that were typed and that only some systems have."""
        typed = {
            "--base": self.base is not None,
            "--blocks": self.blocks != "auto",
            "--lam": self.lam != "auto",
            "--paper": self.paper,
            "--route": self.route != "auto",
            "--assign-at": self.assign_at is not None,
            "--weights": self.weights != "auto",
            "--keep-rows": self.keep_rows,
            "--letter": self.letter,
        }
        return [option for option, used in typed.items() if used]


def make_system(options: SystemOptions, **common: Any) -> XMCEstimator:
    """The estimator a command line asks for; options that the system does not have are refused."""
    _refuse_meaningless(options)
    estimator = _BUILDERS[options.system](options)
    estimator.set_params(**common)
    if options.system == "bp" and (options.assign_at is not None or options.letter):
        estimator.set_params(partitioner__random_state=common.get("random_state", 0))
    return _with_parameters(estimator, options.parameters)


def _refuse_meaningless(options: SystemOptions) -> None:
    if options.system not in SYSTEMS:
        raise BlockXMCError(f"--system must be one of {', '.join(SYSTEMS)}, got {options.system!r}")
    for option in options.given():
        if options.system != "bp" and option not in _OPTIONS_OF[options.system]:
            raise BlockXMCError(f"{option} has no meaning for --system {options.system}")
        if options.paper and option in ("--route", "--weights"):
            raise BlockXMCError(f"{option} is fixed by --paper: leave one of them out")


# Options that systems other than bp, which has them all, share with it.
_OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "full": ("--base", "--letter"),
    "cbmlc": ("--base", "--blocks", "--letter"),
    "lpsr": ("--base", "--blocks"),
    "lf": ("--base",),
    "fastxml": (),
}


def _bp(options: SystemOptions) -> Any:
    from blockxmc import BlockwiseClassifier, Partitioner
    from blockxmc.classifier import lean_dismec

    words = ("auto", "paper", "cost")
    blocks: Any = options.blocks if options.blocks in words else _number("--blocks", options.blocks, int)
    lam: Any = "auto" if options.lam == "auto" else _number("--lam", options.lam, float)
    partitioner = None
    if options.assign_at is not None or options.letter:
        steps = None if options.assign_at is None else _steps(options.assign_at, lam)
        partitioner = Partitioner(assign_at=steps, letter=options.letter)
    if options.paper:
        blocks = "paper" if blocks == "auto" else blocks
        learner = make_base(options.base or "dismec", letter=options.letter)
        how: dict[str, Any] = {"partitioner": partitioner, "keep_rows": options.keep_rows}
        return BlockwiseClassifier.paper(learner, n_blocks=blocks, lam=lam, **how)
    if options.letter and options.weights != "per-block":
        raise BlockXMCError("--letter is the paper: give --paper or --weights per-block with it")
    shared = options.base is None and options.weights in ("auto", "shared")
    learner = lean_dismec() if shared else make_base(options.base or "dismec", letter=options.letter)
    route: Any = "auto" if options.route == "auto" else _number("--route", options.route, blocks_or_share)
    how = {"weights": options.weights, "route": route, "keep_rows": options.keep_rows}
    return BlockwiseClassifier(learner, partitioner, n_blocks=blocks, lam=lam, **how)


def _steps(text: str, lam: Any) -> list[float]:
    """The lambdas of ``--assign-at``."""
    if lam == "auto":
        raise BlockXMCError("--assign-at needs a number as --lam")
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BlockXMCError(f"--assign-at must be numbers separated by commas, got {text!r}") from None


def _cbmlc(options: SystemOptions) -> Any:
    from blockxmc.baselines import CBMLC

    return CBMLC(make_base(options.base or "dismec", letter=options.letter), **_counted_blocks(options))


def _lpsr(options: SystemOptions) -> Any:
    from blockxmc.baselines import LPSR

    return LPSR(make_base(options.base or "naive-bayes"), **_counted_blocks(options))


def _counted_blocks(options: SystemOptions) -> dict[str, Any]:
    return {} if options.blocks == "auto" else {"n_blocks": _number("--blocks", options.blocks, int)}


def _label_filters(options: SystemOptions) -> Any:
    from blockxmc.baselines import LabelFilters

    return LabelFilters(make_base(options.base or "dismec"))


def _fastxml(options: SystemOptions) -> Any:
    from blockxmc.baselines import FastXML

    return FastXML()


def _full(options: SystemOptions) -> Any:
    return make_base(options.base or "dismec", letter=options.letter)


_BUILDERS: dict[str, Callable[[SystemOptions], Any]] = {
    "bp": _bp,
    "full": _full,
    "cbmlc": _cbmlc,
    "lpsr": _lpsr,
    "lf": _label_filters,
    "fastxml": _fastxml,
}


def blocks_or_share(text: str) -> float:
    """``4`` is a number of blocks, ``0.7`` a share of the router's probability."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _number(option: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except (ValueError, OverflowError):
        words = {"--blocks": "auto, paper, cost"}.get(option, "auto")
        raise BlockXMCError(f"{option} must be a number or one of {words}; got {text!r}") from None


def _with_parameters(estimator: XMCEstimator, parameters: Sequence[str]) -> XMCEstimator:
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
