"""Encoder: which transformer looks at the best candidates again, and how it learns."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from blockxmc._core.params import as_seed, require_number, require_whole
from blockxmc.errors import BlockXMCError

DEVICES = ("auto", "cuda", "cpu")


class Encoder(BaseEstimator):  # type: ignore[misc]
    """A small transformer that looks again at the best candidates of the linear model: see :class:`TextClassifier`.

    Parameters
    ----------
    model : a folder in the Hugging Face layout (config.json, tokenizer.json, model.safetensors), or a name that
        ``transformers`` can load. Weights are read from safetensors only, and no code of the model is run.
    max_tokens : how many tokens of a text are read.
    epochs : passes over the training rows; 0: the encoder stays as it is, and only label vectors and fusion are fitted,
        which needs no GPU; ``"auto"``: from the number of rows, fewer where held-out rows stop gaining.
    batch_size : rows of a step.
    learning_rate : of the encoder's weights.
    candidates : how many labels of a text the encoder looks at: the best of the linear model.
    device : ``"cuda"``, ``"cpu"`` or ``"auto"`` (a GPU where there is one).
    prefix : what texts begin with for this encoder, such as ``"query: "``.
    random_state : seed; or a NumPy RandomState or Generator, or None, from which ``fit`` draws one.

    Examples
    --------
    >>> from blockxmc import Encoder
    >>> Encoder("models/minilm", epochs=0).candidates
    100
    """

    def __init__(
        self,
        model: Any,
        max_tokens: int = 256,
        epochs: int | str = "auto",
        batch_size: int = 64,
        learning_rate: float = 1e-4,
        candidates: int = 100,
        device: str = "auto",
        prefix: str = "",
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.candidates = candidates
        self.device = device
        self.prefix = prefix
        self.random_state = random_state

    @property
    def seed(self) -> int:
        """The seed of one fit."""
        return as_seed(self.random_state)

    def check(self) -> None:
        """Refuse parameters that mean nothing."""
        require_whole(self, "max_tokens", 4, 8192)
        require_whole(self, "batch_size", 1, 4096)
        require_whole(self, "candidates", 8, 1000)
        require_number(self, "learning_rate")
        if self.epochs != "auto":
            require_whole(self, "epochs", 0, 1000)
        if self.device not in DEVICES:
            raise BlockXMCError(f"Encoder: device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        if not isinstance(self.prefix, str):
            raise BlockXMCError(f"Encoder: prefix must be text, got {self.prefix!r}")


def as_encoder(given: Any) -> Encoder:
    """An encoder given as such, or by its folder or name."""
    found = given if isinstance(given, Encoder) else Encoder(given)
    found.check()
    return found
