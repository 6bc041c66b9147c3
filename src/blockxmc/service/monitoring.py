"""What is told about the service: JSON lines on stderr, and numbers for Prometheus. Never a text of a user."""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# prometheus-client keeps numbers of several processes in files in the folder that this variable names.
SHARED_NUMBERS = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


def log(level: str, event: str, **facts: Any) -> None:
    """One JSON line on stderr."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = orjson.dumps({"time": now, "level": level, "event": event, **facts}, default=str)
    sys.stderr.write(line.decode() + "\n")


class JsonLines(logging.Handler):
    """The server's own messages (start, stop, trouble) as JSON lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line; of an exception its kind only: its text may hold what a user sent."""
        facts = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        log(record.levelname.lower(), record.getMessage(), **facts)


class Monitor:
    """Counts and times requests."""

    def __init__(self, *, access_log: bool) -> None:
        self.registry = CollectorRegistry()
        self.access_log = access_log
        about: Any = {"registry": self.registry}
        self._requests = Counter("blockxmc_requests", "Answered requests.", ("endpoint", "status"), **about)
        self._seconds = Histogram(
            "blockxmc_request_seconds", "Seconds from the first byte to the answer.", ("endpoint",),
            buckets=_SECONDS, **about,
        )  # fmt: skip
        self._texts = Counter("blockxmc_texts", "Texts and rows that were answered.", ("model",), **about)
        self.open = Gauge("blockxmc_open_requests", "Requests at work.", multiprocess_mode="livesum", **about)

    def request(self, endpoint: str, method: str, path: str, status: int, started: float) -> None:
        """Note one answered request."""
        seconds = time.perf_counter() - started
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)
        if self.access_log:
            facts = {"method": method, "path": path[:200], "status": status, "ms": round(1000 * seconds, 2)}
            log("info", "request", **facts)

    def texts(self, model: str, count: int) -> None:
        """Note answered texts."""
        self._texts.labels(model).inc(count)

    def page(self) -> bytes:
        """Everything in Prometheus's text format, of all workers together."""
        if SHARED_NUMBERS not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
