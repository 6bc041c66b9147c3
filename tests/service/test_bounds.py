"""What many, large, slow and abandoned requests may take: bounded work, bounded memory, and nobody else waits."""

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import orjson
import pytest
from hostile_requests import post
from service_parts import running

from blockxmc.service import answers, connections, server
from blockxmc.service.settings import Limits

MODEL = "/v1/models/packages"


def eventually(holds, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def connected(client):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect((client.base_url.host, client.base_url.port))
        yield connection


class TestExplanations:
    def test_a_label_is_explained_once(self, client):
        body = {"text": "a perl parser", "labels": ["perl", "perl", "zlib1g-dev", "perl"]}
        found = client.post(f"{MODEL}/explain", json=body).json()["explanations"]
        assert [why["label"] for why in found] == ["perl", "zlib1g-dev"]
        body["labels"][1] = found[0]["id"]
        assert [why["label"] for why in client.post(f"{MODEL}/explain", json=body).json()["explanations"]] == [
            "perl",
            "zlib1g-dev",
        ]

    def test_how_many_labels_and_parts(self, client, monkeypatch):
        many = client.post(f"{MODEL}/explain", json={"text": "a perl parser", "labels": [3] * 10_000})
        assert (many.status_code, "at most 100 values" in many.text) == (422, True)
        assert client.post(f"{MODEL}/explain", json={"text": "a perl parser", "k": 1000}).status_code == 422
        monkeypatch.setattr(answers, "MOST_PARTS", 5)
        long = client.post(f"{MODEL}/explain", json={"text": "a perl parser of python", "labels": [1, 2, 3]})
        assert (long.status_code, "send fewer labels" in long.text) == (422, True)

    def test_the_features_that_count_most_are_listed(self, client, demo, monkeypatch):
        body = {"text": " ".join(demo[0][:40]), "labels": ["perl"]}
        [whole] = client.post(f"{MODEL}/explain", json=body).json()["explanations"]
        monkeypatch.setattr(answers, "SHOWN_FEATURES", 7)
        [cut] = client.post(f"{MODEL}/explain", json=body).json()["explanations"]
        assert cut["features"] == whole["features"][:7]
        assert cut["n_other_features"] == whole["n_other_features"] + len(whole["features"]) - 7

    def test_work_that_nobody_waits_for_ends(self, model_dir, monkeypatch):
        monkeypatch.setattr(answers, "EXPLAINED_AT_ONCE", 1)
        with running(model_dir, limits=Limits(answer_seconds=0.5), threads=1, access_log=False) as client:
            classifier = client.service.models["packages"].classifier
            done = []

            def slowly(*args, **options):
                done.append(options["label"])
                time.sleep(0.1)
                return []

            monkeypatch.setattr(classifier, "explain", slowly)
            ask = lambda: client.post(f"{MODEL}/explain", json={"text": "a", "labels": list(range(90))})  # noqa: E731
            waiting = threading.Thread(target=ask)
            waiting.start()
            assert ask().status_code == 503
            waiting.join(10)
            before = len(done)
            assert client.post(f"{MODEL}/explain", json={"text": "a", "labels": [1]}).status_code == 200
            assert len(done) <= before + 2  # one that had begun, and ours; of 180


class TestReaders:
    @pytest.fixture
    def big(self, demo):
        """A request with an answer of several megabytes: more than a socket's buffers take."""
        return {"texts": demo[0][:1000], "k": 100, "threshold": None}

    def test_who_does_not_read_is_closed(self, model_dir, big, monkeypatch, capfd):
        monkeypatch.setattr(connections, "READ_SECONDS", 3.0)
        with running(model_dir, access_log=False) as client:
            whole = client.post(f"{MODEL}/suggest", json=big)
            assert whole.status_code == 200
            size, outbox = len(whole.content), client.service.outbox
            assert size > 4 << 20
            outbox._limits = Limits(unsent_bytes=3 * size // 2)
            with connected(client) as lazy:
                lazy.sendall(post(f"{MODEL}/suggest", _json(big)).replace(b"Connection: close\r\n", b""))
                eventually(lambda: outbox.waiting == size)
                refused = client.post(f"{MODEL}/suggest", json=big)
                assert (refused.status_code, "wait for their readers" in refused.text) == (503, True)
                eventually(lambda: outbox.waiting == 0)
                received = 0
                with suppress(ConnectionResetError):
                    while part := lazy.recv(1 << 20):
                        received += len(part)
                assert received < size  # it was closed, not answered in full
            assert client.post(f"{MODEL}/suggest", json=big).content == whole.content
        assert "defect" not in capfd.readouterr().err

    def test_an_answer_has_a_size(self, model_dir, big):
        with running(model_dir, limits=Limits(answer_bytes=100_000), access_log=False) as client:
            answer = client.post(f"{MODEL}/suggest", json=big)
            assert (answer.status_code, "ask for less" in answer.text) == (422, True)
            many = client.post(f"{MODEL}/suggest", json=big | {"k": 101})
            assert (many.status_code, "send fewer texts" in many.text) == (422, True)

    def test_a_closed_client_is_no_defect(self, model_dir, big, capfd):
        with running(model_dir, access_log=False) as client:
            whole = post(f"{MODEL}/suggest", _json(big))
            for content in (whole, whole[:-50]):
                with connected(client) as connection:
                    connection.sendall(content)
                    time.sleep(0.1)
            eventually(lambda: client.service.monitor.open._value.get() == 0)
        assert "defect" not in capfd.readouterr().err

    def test_a_transport_that_was_closed_is_no_defect(self, client, capfd):
        async def send(message):
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

        scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [], "query_string": b""}
        asyncio.run(client.service.app(scope, None, send))
        assert "defect" not in capfd.readouterr().err


class TestIdleConnections:
    @pytest.mark.parametrize("begun", [b"", b"GET /healthz HTT"], ids=["silent", "half a line"])
    def test_headers_that_do_not_come(self, model_dir, monkeypatch, begun):
        monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
        with running(model_dir, access_log=False) as client, connected(client) as idle:
            for _ in range(2):  # again after an answer
                idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert idle.recv(4096).startswith(b"HTTP/1.1 200")
            started = time.monotonic()
            monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
            with connected(client) as other, suppress(ConnectionResetError, BrokenPipeError):
                for _ in range(60):
                    other.sendall(begun[:1])  # a byte now and then does not help
                    begun = begun[1:]
                    other.settimeout(0.1)
                    with suppress(TimeoutError):
                        assert other.recv(100) == b""
                        break
            assert time.monotonic() - started < 4

    def test_connections_that_ask_nothing_make_room(self, model_dir, monkeypatch):
        monkeypatch.setattr(server, "IDLE_CONNECTIONS", 5)
        with running(model_dir, limits=Limits(open_requests=15), access_log=False) as client, ExitStack() as stack:
            idle = [stack.enter_context(connected(client)) for _ in range(60)]
            for connection in idle[::2]:
                with suppress(OSError):
                    connection.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(5):
                assert client.get("/v1/models").status_code == 200


def test_a_large_body_holds_nobody_up(model_dir):
    row = {"indices": [1] * 60_000, "values": [0.5] * 60_000}
    content = _json({"rows": [row] * 22, "k": 1})
    assert 7 << 20 < len(content) < 8 << 20
    with running(model_dir, access_log=False) as client:
        headers = {"content-type": "application/json"}
        given = []
        large = threading.Thread(
            target=lambda: given.append(client.post(f"{MODEL}/suggest", content=content, headers=headers, timeout=60))
        )
        large.start()
        worst, asked = 0.0, 0
        while large.is_alive():
            started = time.perf_counter()
            assert client.get("/healthz").status_code == 200
            worst, asked = max(worst, time.perf_counter() - started), asked + 1
        assert given[0].status_code == 200
        assert worst < 0.5
        assert asked > 5


def _json(body):
    return orjson.dumps(body)
