"""What the service refuses, and how: in problem+json, within its limits, and telling nobody what is not theirs."""

import json
import socket
import threading
import time

import pytest
from hostile_requests import hostile_requests, send
from service_parts import TOKEN, running

from blockxmc.errors import BlockXMCError
from blockxmc.service import answers
from blockxmc.service.settings import Limits, Settings

MODEL = "/v1/models/packages"
SUGGEST = f"{MODEL}/suggest"
# A request whose body has yet to come.
HEAD = (
    f"POST {SUGGEST} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
).encode()


def address_of(client):
    return client.base_url.host, client.base_url.port


def _connected(client):
    return socket.create_connection(address_of(client), timeout=10)


def is_problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    return problem["detail"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("{", 400, "not valid JSON"),
        ("[" * 100_000, 400, "not valid JSON"),
        ("[]", 422, "must be a JSON object"),
        ("{}", 422, "exactly one of text, texts, rows"),
        ('{"text": "a", "texts": ["a"]}', 422, "exactly one of"),
        ('{"text": 1}', 422, "text must be a string"),
        ('{"texts": ["a", null]}', 422, r"texts[1] must be a string"),
        ('{"text": "a", "k": 0}', 422, "k must be a whole number from 1"),
        ('{"text": "a", "k": true}', 422, "k must be a whole number"),
        ('{"text": "a", "threshold": "f2"}', 422, 'threshold must be null or "f1" or a number'),
        ('{"text": "a", "allow": ["no such label"]}', 422, "the model does not know"),
        ('{"text": "a", "depth": 3}', 422, "unknown member 'depth'"),
        ('{"rows": [{"indices": [1], "values": []}]}', 422, "1 indices but 0 values"),
        ('{"rows": [{"indices": [999999], "values": [1]}]}', 422, "the model knows 0 to"),
        ('{"rows": [{"indices": [0, 0], "values": [1, 1e39]}]}', 422, "values[1] must be a number from"),
    ],
)
def test_a_bad_request_is_told_why(client, body, status, words):
    answer = client.post(SUGGEST, content=body, headers={"content-type": "application/json"})
    assert words in is_problem(answer, status)


def test_addresses_and_methods(client):
    assert "there is packages" in is_problem(client.post("/v1/models/other/suggest", json={"text": "a"}), 404)
    is_problem(client.get("/v1/nothing"), 404)
    is_problem(client.get("/no/such/file.js"), 404)
    assert client.get(SUGGEST).headers["allow"] == "POST"
    is_problem(client.get(SUGGEST), 405)
    is_problem(client.post(SUGGEST, content="text=a"), 415)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/", "/main.js", "/style.css"):
        assert client.get(path).status_code == 200


def test_security_headers_are_on_everything(client):
    for answer in (client.get("/"), client.get("/v1/models"), client.get("/nothing"), client.post(SUGGEST, json={})):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/v1/models").headers["cache-control"] == "no-store"


def test_limits_on_sizes(model_dir):
    limits = Limits(body_bytes=2000, texts=3, text_chars=100, k=7, labels=2)
    with running(model_dir, limits=limits, access_log=False) as client:
        is_problem(client.post(SUGGEST, json={"text": "a" * 3000}), 413)
        is_problem(client.post(SUGGEST, content=iter([b'{"text": "'] + [b"a" * 500] * 10)), 415)
        headers = {"content-type": "application/json"}
        is_problem(client.post(SUGGEST, content=iter([b'{"text": "'] + [b"a" * 500] * 10), headers=headers), 413)
        assert "at most 100 characters" in is_problem(client.post(SUGGEST, json={"text": "a" * 101}), 422)
        assert "at most 3 values" in is_problem(client.post(SUGGEST, json={"texts": ["a"] * 4}), 422)
        assert "from 1 to 7" in is_problem(client.post(SUGGEST, json={"text": "a", "k": 8}), 422)
        assert "at most 2 values" in is_problem(client.post(SUGGEST, json={"text": "a", "deny": [1, 2, 3]}), 422)


def test_a_body_that_does_not_come_is_given_up(model_dir):
    with running(model_dir, limits=Limits(body_seconds=0.3), access_log=False) as client:
        with _connected(client) as slow:
            slow.sendall(HEAD + b'{"text"')
            started = time.monotonic()
            assert slow.recv(4096).startswith(b"HTTP/1.1 408")
            assert time.monotonic() - started < 5
        assert client.get("/healthz").status_code == 200


def test_more_than_can_wait_are_told_to_come_back(model_dir, monkeypatch):
    free = threading.Event()
    monkeypatch.setattr(answers, "explain", lambda model, body: free.wait(20) and {})
    with running(model_dir, limits=Limits(waiting=2), threads=1, access_log=False) as client:
        given = []
        ask = lambda: given.append(client.post(f"{MODEL}/explain", json={"text": "a"}))  # noqa: E731
        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while len(given) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.get("/healthz").status_code == 200  # the service itself is not held up
        free.set()
        for thread in threads:
            thread.join(20)
        refused = [answer for answer in given if answer.status_code == 503]
        assert sorted(answer.status_code for answer in given) == [200, 200, 200, 503, 503]
        assert all(answer.headers["retry-after"] == "1" for answer in refused)
        assert client.post(f"{MODEL}/explain", json={"text": "a"}).status_code == 200  # places are free again


def test_an_answer_that_takes_too_long_is_given_up(model_dir, monkeypatch):
    free = threading.Event()
    monkeypatch.setattr(answers, "explain", lambda model, body: free.wait(20) and {})
    with running(model_dir, limits=Limits(answer_seconds=0.1), access_log=False) as client:
        answer = client.post(f"{MODEL}/explain", json={"text": "a"})
        assert "longer than 0.1 s" in is_problem(answer, 503)
        free.set()


def test_too_many_requests_at_once(model_dir):
    limits = Limits(open_requests=1, body_seconds=5)
    with running(model_dir, limits=limits, access_log=False) as client, _connected(client) as slow:
        slow.sendall(HEAD)
        time.sleep(0.3)
        answer = client.get("/v1/models")
        is_problem(answer, 503)
        assert answer.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200


@pytest.fixture(scope="module")
def closed(model_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text(TOKEN + "\n")
    with running(model_dir, token_file=str(path), access_log=False) as client:
        yield client


class TestAccess:
    @pytest.mark.parametrize(
        "given", [None, "", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN]
    )
    def test_a_wrong_token_opens_nothing(self, closed, given):
        headers = {} if given is None else {"authorization": given}
        for answer in (
            closed.post(SUGGEST, json={"text": "a"}, headers=headers),
            closed.get("/v1/models", headers=headers),
            closed.get("/v1/projects", headers=headers),
            closed.get("/metrics", headers=headers),
        ):
            is_problem(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")

    def test_the_token_opens(self, closed):
        headers = {"authorization": f"bearer {TOKEN}", "host": "labels.example.org"}
        assert closed.post(SUGGEST, json={"text": "a"}, headers=headers).status_code == 200

    def test_the_page_and_the_health_are_open(self, closed):
        for path in ("/", "/main.js", "/healthz", "/readyz", "/openapi.json"):
            assert closed.get(path).status_code == 200

    def test_without_a_token_localhost_only(self, client):
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            is_problem(client.get("/v1/models", headers={"host": host}), 421)
        for host in ("localhost", "127.0.0.1:8080", "[::1]:80", "LOCALHOST:1"):
            assert client.get("/v1/models", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"host": "0.0.0.0"}, "--token-file"),
            ({"host": "::"}, "--token-file"),
            ({"allow_update": True}, "--allow-update needs --token-file"),
        ],
    )
    def test_unsafe_settings_are_refused(self, options, words):
        with pytest.raises(BlockXMCError, match=words):
            Settings(("model",), **options).check()

    @pytest.mark.parametrize("content", ["", "short", "with a space in it, long", "täglich-ein-neues-wort"])
    def test_a_weak_token_is_refused(self, tmp_path, content):
        (tmp_path / "token").write_text(content)
        with pytest.raises(BlockXMCError, match="at least 16"):
            Settings(("model",), token_file=str(tmp_path / "token")).check()

    def test_cors_is_for_named_sites_only(self, model_dir):
        with running(model_dir, cors=("https://catalogue.example",), access_log=False) as client:
            asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
            for origin, allowed in (("https://catalogue.example", True), ("https://evil.example", False)):
                answer = client.options(SUGGEST, headers={"origin": origin, **asked})
                assert ("access-control-allow-origin" in answer.headers) == allowed


def test_logs_hold_no_text_and_answers_no_path(model_dir, capfd):
    with running(model_dir) as client:
        client.post(SUGGEST, json={"text": "a very private sentence", "allow": ["secret-label"]})
        client.get(f"{MODEL}/labels", params={"q": "private-question"})
        answers = [client.get(path).text for path in ("/v1/models", MODEL, "/openapi.json", "/metrics", "/v1/projects")]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request"]
    assert {(line["path"], line["status"]) for line in requests} >= {(SUGGEST, 422), (f"{MODEL}/labels", 200)}
    for private in ("private", "secret"):
        assert private not in json.dumps(lines)
    assert all(str(model_dir.parent) not in answer for answer in answers)


def test_metrics_count_what_was_answered(model_dir):
    with running(model_dir, access_log=False) as client:
        for _ in range(3):
            client.post(SUGGEST, json={"texts": ["a", "b"]})
        client.post(SUGGEST, json={})
        page = client.get("/metrics").text
    assert 'blockxmc_requests_total{endpoint="suggest",status="200"} 3.0' in page
    assert 'blockxmc_requests_total{endpoint="suggest",status="422"} 1.0' in page
    assert 'blockxmc_texts_total{model="packages"} 6.0' in page


def test_a_defect_is_a_500_without_a_traceback(model_dir, monkeypatch, capfd):
    def broken(model, body):
        raise RuntimeError("with a private text")

    with running(model_dir, access_log=False) as client:
        monkeypatch.setattr(answers, "suggest", broken)
        assert "private" not in is_problem(client.post(SUGGEST, json={"text": "a"}), 500)
        assert client.get("/healthz").status_code == 200
    err = capfd.readouterr().err
    assert '"error":"RuntimeError"' in err
    assert "private" not in err


def test_hostile_requests_do_no_harm(model_dir):
    with running(model_dir, limits=Limits(body_seconds=0.2), access_log=False) as client:
        statuses = [send(address_of(client), content) for content in hostile_requests(400)]
        assert client.post(SUGGEST, json={"text": "python"}).status_code == 200
    assert max(statuses) < 500
    assert len([status for status in statuses if status >= 400]) > 200  # most of them are understood and refused
