"""A service inside a test: models of the bundled texts, and a real server on a free port."""

import json
import lzma
import socket
import threading
import time
from contextlib import contextmanager
from importlib.resources import files

import httpx
import uvicorn

from blockxmc import BlockwiseClassifier, TextClassifier
from blockxmc.service.app import Service
from blockxmc.service.server import options
from blockxmc.service.settings import Settings

TOKEN = "correct-horse-battery-staple"


def demo_rows(first, last):
    """Texts and label lists of some of the bundled training rows."""
    with lzma.open(files("blockxmc.data") / "demo" / "train.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for number, line in enumerate(lines) if first <= number < last]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def train(rows, **options):
    texts, labels = rows
    return TextClassifier(BlockwiseClassifier(n_jobs=1, **options)).fit(texts, labels)


@contextmanager
def running(*models, **settings):
    """A client of a running service; ``client.service`` is what answers it."""
    settings = Settings(tuple(map(str, models)), port=0, reload_seconds=0.05, **settings)
    service = Service(settings)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service.app, **options(settings)))
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=30) as client:
                client.service = service
                yield client
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
