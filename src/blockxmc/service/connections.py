"""Connections that hold nobody up: those that send no request or read no answer are closed, idle ones make room."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from blockxmc.service.problems import Problem, busy
from blockxmc.service.settings import Limits

# Until the headers of a request have come, and until the next request on a connection.
HEADER_SECONDS, IDLE_SECONDS = 10.0, 30.0
# In which a reader takes what waits in the buffer of its connection: a part of an answer.
READ_SECONDS = 10.0
PART_BYTES = 1 << 16
_order = itertools.count()


class Connection(HttpToolsProtocol):
    """One connection; uvicorn's own waits for ever for headers and for readers."""

    _reading: asyncio.TimerHandle | None = None  # when a request must have come
    _writing: asyncio.TimerHandle | None = None  # when what was written must have been taken
    _since = 0  # in the order in which connections became idle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new connection; one too many takes the place of the one that has been idle the longest."""
        super().connection_made(transport)
        self._await_request(HEADER_SECONDS)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            idle = [one for one in self.connections if isinstance(one, Connection) and one._is_idle()]
            longest = min(idle, key=lambda one: one._since)
            longest.transport.abort()
            self.connections.discard(longest)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._stop(self._reading)
        self._stop(self._writing)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        self._await_request(HEADER_SECONDS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A request; how long its body takes is the application's to judge."""
        self._stop(self._reading)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """All of an answer is written, or lies in the buffer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.pause_writing()  # closes when all is sent, or when nobody reads it
        elif self._is_idle():
            self._await_request(IDLE_SECONDS)

    def pause_writing(self) -> None:
        """More waits to be sent than is good."""
        self._stop(self._writing)
        self._writing = self.loop.call_later(READ_SECONDS, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The reader has taken it."""
        self._stop(self._writing)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """An idle connection; closing it in order would wait for whoever does not read."""
        self.transport.abort()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_request(self, seconds: float) -> None:
        self._stop(self._reading)
        self._since = next(_order)  # a clock would give many the same time
        self._reading = self.loop.call_later(seconds, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class Outbox:
    """Makes answers, and knows how many bytes of them wait for their readers."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self.waiting = limits, 0

    def answer(self, value: Any) -> Response:
        """An answer in JSON, or a refusal where it would be too large."""
        content, most = orjson.dumps(value), self._limits.answer_bytes
        if len(content) > most:
            raise Problem(422, f"the answer would have more than {most} bytes; ask for less at a time")
        if len(content) <= PART_BYTES:
            return Response(content, media_type="application/json")
        if self.waiting + len(content) > self._limits.unsent_bytes:
            raise busy("the service is busy: too many answers wait for their readers")
        return _InParts(content, self)


class _InParts(Response):
    """A long answer: the next part is written when the reader has taken the one before."""

    def __init__(self, content: bytes, outbox: Outbox) -> None:
        super().__init__(content, media_type="application/json")
        self._outbox = outbox

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = memoryview(self.body)
        self._outbox.waiting += len(content)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for first in range(0, len(content), PART_BYTES):
                part = bytes(content[first : first + PART_BYTES])
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            self._outbox.waiting -= len(content)
