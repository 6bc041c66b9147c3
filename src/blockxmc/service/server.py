"""Running the service: uvicorn, one or several workers, and an orderly end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from blockxmc.errors import BlockXMCError
from blockxmc.service.app import create_app
from blockxmc.service.monitoring import SHARED_NUMBERS, JsonLines
from blockxmc.service.settings import Settings

# How worker processes learn what to serve.
_SETTINGS = "BLOCKXMC_SERVICE"
# Connections that are kept open for later requests, beside those of requests at work.
IDLE_CONNECTIONS = 1000
OPEN_FILES = 4096


def serve(settings: Settings) -> None:
    """Answer requests until SIGTERM, SIGHUP or Ctrl-C; what runs then has ``stop_seconds`` to end."""
    settings.check()
    _raise_file_limit()
    _end_on_hangup()
    _require_free(settings.host, settings.port)
    if settings.workers == 1:
        _log_as_json()
        uvicorn.Server(uvicorn.Config(create_app(settings), **options(settings))).run()
        return
    # uvicorn's parent process would start new workers at SIGHUP; models are taken over without that.
    Multiprocess.handle_hup = Multiprocess.handle_term  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(prefix="blockxmc-") as numbers:
        os.environ[SHARED_NUMBERS] = numbers
        os.environ[_SETTINGS] = settings.to_json()
        uvicorn.run("blockxmc.service.server:worker_app", factory=True, workers=settings.workers, **options(settings))


def _require_free(host: str, port: int) -> None:
    """Say at once that an address is taken, or not of this machine: uvicorn says so among the lines of its log."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        raise BlockXMCError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); choose another --port or --host"
        ) from None


def options(settings: Settings) -> dict[str, Any]:
    """What uvicorn is told."""
    limits = settings.limits
    return {
        "host": settings.host,
        "port": settings.port,
        "http": "blockxmc.service.connections:Connection",
        "lifespan": "on",
        "ws": "none",
        "log_config": None,
        "access_log": False,  # ours has no query strings
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "backlog": 1024,
        "timeout_graceful_shutdown": limits.stop_seconds,
        # Beyond our own limit, because connections that send nothing count here too.
        "limit_concurrency": limits.open_requests + IDLE_CONNECTIONS,
    }


def worker_app() -> Starlette:
    """The application of one worker process."""
    _log_as_json()
    _end_on_hangup()
    return create_app(Settings.from_json(os.environ[_SETTINGS]))


def _end_on_hangup() -> None:
    """SIGHUP, as a closed terminal sends it, ends the service in order, too."""
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup wants it
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))


def _raise_file_limit() -> None:
    """A connection is an open file: ask for as many as we hold; many systems give 1,024 unless asked."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < OPEN_FILES:
            most = OPEN_FILES if hard < 0 else min(hard, OPEN_FILES)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _log_as_json() -> None:
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [JsonLines()], False
    logger.setLevel(logging.INFO)
