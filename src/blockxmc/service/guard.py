"""What stands before every request: access, the number of requests at work, headers, log, and one form of failure."""

from __future__ import annotations

import hmac
import time

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockxmc.service.monitoring import Monitor, log
from blockxmc.service.problems import Problem, busy
from blockxmc.service.settings import Settings, is_local

# The page may load what it came with, and talk to its own service.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
# Who watches the service has no token.
_ALWAYS = ("/healthz", "/readyz")
_NOBODY_LISTENS = 499


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, token: bytes | None, monitor: Monitor) -> None:
        self.app, self.settings, self.token, self.monitor = app, settings, token, monitor
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        private = scope["path"].startswith(("/v1", "/metrics"))

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                cache = b"no-store" if private else b"no-cache"
                message["headers"] = [*message["headers"], *_HEADERS, (b"cache-control", cache)]
            try:
                await send(message)
            except RuntimeError as error:
                # uvloop's, between the end of a connection and the word of it.
                if "handler is closed" not in str(error):
                    raise
                raise ClientDisconnect from None

        self._open += 1
        self.monitor.open.inc()
        try:
            self._admit(scope, private)
            await self.app(scope, receive, sending)
        except Problem as problem:
            await problem.response()(scope, receive, sending)
        except ClientDisconnect:
            status = _NOBODY_LISTENS
        except Exception as error:
            log("error", "defect", error=type(error).__name__, place=_place(error))
            if not status:
                failed = Problem(500, "the service has failed at this request; the log says where")
                await failed.response()(scope, receive, sending)
        finally:
            self._open -= 1
            self.monitor.open.dec()
            endpoint = getattr(scope.get("endpoint"), "__name__", "none")
            self.monitor.request(endpoint, scope["method"], scope["path"], status, started)

    def _admit(self, scope: Scope, private: bool) -> None:
        """Refuse whom the service is not for, and more requests than it can hold."""
        if scope["path"] in _ALWAYS:
            return
        if self._open > self.settings.limits.open_requests:
            raise busy("the service is busy: too many requests at once")
        headers = scope["headers"]
        if self.token is None:
            self._check_host(headers)
        elif private and scope["method"] != "OPTIONS" and not self._knows_token(headers):
            wanted = {"WWW-Authenticate": 'Bearer realm="blockxmc"'}
            raise Problem(401, "a token is needed: send the header 'Authorization: Bearer TOKEN'", wanted)

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        assert self.token is not None
        given = next((value for name, value in headers if name == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        # In constant time: how long a comparison takes must not tell how much of a guess is right.
        return hmac.compare_digest(token.strip(), self.token) and kind.lower() == b"bearer"

    def _check_host(self, headers: list[tuple[bytes, bytes]]) -> None:
        """On localhost without a token: a web site whose name suddenly leads here must not read our answers."""
        if self.settings.no_token:
            return
        given = next((value for name, value in headers if name == b"host"), b"").decode("latin-1")
        host = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given
        if not is_local(host.strip("[]").lower()):
            raise Problem(421, "this service listens for localhost only; behind a proxy give it a --token-file")


def _place(error: Exception) -> str:
    """Where an error came from, in this library's own words: file and line."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{trace.tb_frame.f_globals.get('__name__', '')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def as_problem(error: HTTPException) -> Problem:
    """Starlette's own refusals (no such path, wrong method) in our form."""
    details = {404: "there is nothing at this address", 405: "this address does not take this method"}
    headers = None if error.headers is None else dict(error.headers)
    return Problem(error.status_code, details.get(error.status_code, str(error.detail)), headers)
