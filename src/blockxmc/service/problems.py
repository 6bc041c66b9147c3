"""What goes wrong, as RFC 9457 problem+json: one clear line, and no path of this machine."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response


class Problem(Exception):
    """An answer that is no success; ``detail`` says what is wrong and what to do."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    def to_dict(self) -> dict[str, Any]:
        """The members of the answer.

        >>> Problem(404, "no such model").to_dict()["title"]
        'Not Found'
        """
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}

    def response(self) -> Response:
        """The answer."""
        return Response(orjson.dumps(self.to_dict()), self.status, self.headers, "application/problem+json")


def busy(detail: str) -> Problem:
    """The service has enough to do; ask again in a second."""
    return Problem(503, detail, {"Retry-After": "1"})
