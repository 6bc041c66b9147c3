"""A model is replaced while it is being asked: no request is lost, and no answer is a mixture."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from cli_parts import run
from service_parts import demo_rows, running, train

from blockxmc import load
from blockxmc.errors import BlockXMCError
from blockxmc.service.server import _require_free

REPLACEMENTS, REQUESTS = 8, 400


def test_replaced_under_load(model_dir, demo, tmp_path):
    first = load(model_dir)
    second = train(demo_rows(1200, 1800))
    path = tmp_path / "packages"
    first.save(path)
    texts, version = demo[0][:20], lambda: json.loads((path / "manifest.json").read_text())["manifest_sha256"][:16]
    known = {}  # version -> answers

    def save(model):
        model.save(path)
        known[version()] = [[str(s.label) for s in row] for row in model.suggest(texts)]

    save(first)
    with running(path, access_log=False) as client, ThreadPoolExecutor(4) as pool:

        def replace():
            for number in range(REPLACEMENTS):
                save(second if number % 2 == 0 else first)
                time.sleep(0.1)

        def ask(number):
            time.sleep(0.005)
            i = number % len(texts)
            many = number % 3 == 0
            body = {"texts": texts} if many else {"text": texts[i]}
            return client.post("/v1/models/packages/suggest", json=body), None if many else i

        replacing = pool.submit(replace)
        answers = list(pool.map(ask, range(REQUESTS)))
        replacing.result()
        assert all(answer.status_code == 200 for answer, _ in answers)
        seen = set()
        for answer, i in answers:
            found = answer.json()
            labels = [[s["label"] for s in result["suggestions"]] for result in found["results"]]
            expected = known[found["version"]]
            assert labels == (expected if i is None else [expected[i]])
            seen.add(found["version"])
        assert len(seen) > 2  # replacements were taken over while requests came
        deadline = time.monotonic() + 10
        while client.get("/v1/models/packages").json()["version"] != version() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.get("/v1/models/packages").json()["version"] == version()


def test_a_damaged_replacement_leaves_the_old_model_in_place(model_dir, demo, tmp_path, capfd):
    path = tmp_path / "packages"
    load(model_dir).save(path)
    with running(path, access_log=False) as client:
        before = client.get("/v1/models/packages").json()
        (path / "manifest.json").write_text("{}")
        time.sleep(0.3)
        assert client.get("/v1/models/packages").json() == before
        assert client.post("/v1/models/packages/suggest", json={"texts": demo[0][:3]}).status_code == 200
        load(model_dir).save(tmp_path / "whole")
        for file in path.iterdir():
            file.unlink()
        time.sleep(0.2)
        assert client.post("/v1/models/packages/suggest", json={"texts": demo[0][:3]}).status_code == 200
        path.rmdir()
        (tmp_path / "whole").rename(path)
        deadline = time.monotonic() + 10
        while client.get("/v1/models/packages").json() == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.get("/v1/models/packages").json()["version"] != before["version"]
    assert "the old one serves on" in capfd.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP], ids=lambda told: told.name)
def test_the_command_serves_until_it_is_told_to_stop(model_dir, workers, told):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "blockxmc",
        "serve",
        str(model_dir),
        "--port",
        str(port),
        "--workers",
        str(workers),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    httpx.get(f"{url}/readyz")
                    break
                except httpx.ConnectError:
                    time.sleep(0.2)
            for _ in range(10):
                answer = httpx.post(f"{url}/v1/models/packages/suggest", json={"text": "python"})
                assert answer.status_code == 200
            page = httpx.get(f"{url}/metrics").text
            assert 'blockxmc_texts_total{model="packages"} 10.0' in page  # of all workers together
            statuses, stopped = [], threading.Event()

            def ask():
                body = {"texts": ["python and perl"] * 200}
                while not stopped.is_set():
                    with suppress(httpx.TransportError):  # nobody listens any more
                        statuses.append(httpx.post(f"{url}/v1/models/packages/suggest", json=body).status_code)

            load = threading.Thread(target=ask)
            load.start()
            time.sleep(0.5)
        finally:
            started = time.monotonic()
            server.send_signal(told)
            _, err = server.communicate(timeout=30)
            stopped.set()
            load.join(30)
        assert server.returncode == 0, err
        assert set(statuses) == {200}
        assert time.monotonic() - started < 15
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "there is no such model directory"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 is open to other machines"),
        (["--allow-update"], "--allow-update needs --token-file"),
        (["--token-file", "no/such/file"], "the token cannot be read"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, capsys, options, words):
    code, out, err = run(capsys, "serve", tmp_path / "none", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_without_the_extra_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("blockxmc.service")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = run(capsys, "serve", tmp_path)
    assert (code, err) == (2, "error: uvicorn is needed for this: pip install 'blockxmc[serve]'\n")


def test_an_address_that_is_taken_is_one_line():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BlockXMCError, match="cannot listen on"):
            _require_free("127.0.0.1", other.getsockname()[1])
    _require_free("127.0.0.1", 0)
