"""What an administrator decides: where to listen, who may ask, and how much."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from blockxmc.errors import BlockXMCError

# A shorter token could be guessed.
LEAST_TOKEN = 16


@dataclass(frozen=True)
class Limits:
    """What one request may take; beyond it the answer is a clear 4xx, or 503 where the service is busy."""

    body_bytes: int = 8 << 20
    texts: int = 1000  # texts or rows of one request
    text_chars: int = 500_000
    labels: int = 10_000  # that are listed as allowed or denied
    row_features: int = 100_000
    k: int = 1000
    explained: int = 100  # labels of one explanation
    answer_bytes: int = 32 << 20
    unsent_bytes: int = 256 << 20  # of all answers that wait for their readers
    body_seconds: float = 10.0  # until a body has come
    answer_seconds: float = 30.0  # until an answer is given up
    waiting: int = 64  # requests that wait for a thread; more are told to come back
    open_requests: int = 1000  # requests at work, slow bodies included; also connections
    stop_seconds: int = 10  # for what is running, after SIGTERM


@dataclass(frozen=True)
class Settings:
    """One service: models, address, access."""

    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    threads: int = 2  # of each worker, for what takes longer than a moment
    token_file: str | None = None
    no_token: bool = False  # open to everybody, although not on localhost
    allow_update: bool = False
    extra: str | None = None  # MODULE:FUNCTION that makes the extra columns of models that have some
    cors: tuple[str, ...] = ()
    access_log: bool = True
    reload_seconds: float = 1.0  # between looks at the model directories
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Refuse what would be unsafe, in one line.

        >>> Settings(("model",), host="0.0.0.0").check()
        Traceback (most recent call last):
            ...
        blockxmc.errors.BlockXMCError: --host 0.0.0.0 is open to other machines: give --token-file, or --no-token if ...
        """
        if self.token_file is None and not self.no_token and not is_local(self.host):
            raise BlockXMCError(
                f"--host {self.host} is open to other machines: give --token-file, or --no-token if everybody may ask"
            )
        if self.allow_update and self.token_file is None:
            raise BlockXMCError("--allow-update needs --token-file: not everybody may change a model")
        if self.allow_update and self.workers > 1:
            raise BlockXMCError("--allow-update needs --workers 1: one process at a time may change a model")
        if self.token_file is not None:
            read_token(self.token_file)

    def to_json(self) -> str:
        """As text, for worker processes; the token itself is not in it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What ``to_json`` gave.

        >>> given = Settings(("a", "b"), cors=("https://example.org",))
        >>> Settings.from_json(given.to_json()) == given
        True
        """
        values: dict[str, Any] = json.loads(text)
        values |= {name: tuple(values[name]) for name in ("models", "cors")}
        return cls(**values | {"limits": Limits(**values["limits"])})


@lru_cache(maxsize=64)
def is_local(host: str) -> bool:
    """Whether an address is this machine's own.

    >>> [is_local(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: str | Path) -> bytes:
    """The token in a file: one line of at least 16 printable characters without a space."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise BlockXMCError(f"{path}: the token cannot be read: {error.strerror}") from None
    if len(token) < LEAST_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token):
        raise BlockXMCError(f"{path}: a token is one line of at least {LEAST_TOKEN} ASCII characters without a space")
    return token
