"""Requests that no well-meaning client sends, as raw bytes: for a test, and by the thousand for bench/serve.py."""

import json
import random
import socket
from contextlib import suppress


def hostile_requests(count, seed=0, model="packages"):
    """So many hostile requests, each the bytes of one connection."""
    random_ = random.Random(seed)
    kinds = [_broken_json, _wrong_types, _deep, _huge, _bad_token, _bad_http, _bad_path, _noise, _odd_length, _bad_form]
    return [kinds[i % len(kinds)](random_, model) for i in range(count)]


def send(address, content, *, wait=10.0):
    """The status of the answer; 0 where the server closed the connection without one."""
    answer = b""
    with socket.create_connection(address, timeout=wait) as connection, suppress(OSError):
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            answer += part
    return status_of(answer)


def status_of(answer):
    first = answer.split(b"\r\n", 1)[0].split(b" ")
    return int(first[1]) if len(first) > 1 and first[0].startswith(b"HTTP/") else 0


def post(path, body, kind="application/json", more=""):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return (head + more + "Connection: close\r\n\r\n").encode("latin-1") + body


def _path(random_, model):
    return f"/v1/models/{model}/" + random_.choice(["suggest", "explain", "update"])


def _broken_json(random_, model):
    whole = json.dumps({"text": "a text " * random_.randint(0, 20), "k": 3}).encode()
    cut = whole[: random_.randint(0, len(whole) - 1)]
    junk = random_.choice([cut, cut + b"\xff\xfe", b'{"text": NaN}', b'{"text": "\\ud800"}', b"", b"\0" * 20, b"nul"])
    return post(_path(random_, model), junk)


def _value(random_, depth=2):
    plain = [None, True, -1, 0, 10**30, 1e308, "", "x" * 5000, "f1", [], {}, "\u0000", [[]], -0.5]
    if depth == 0 or random_.random() < 0.6:
        return random_.choice(plain)
    if random_.random() < 0.5:
        return [_value(random_, depth - 1) for _ in range(random_.randint(0, 4))]
    return {random_.choice("abk"): _value(random_, depth - 1) for _ in range(3)}


def _wrong_types(random_, model):
    names = ["text", "texts", "rows", "k", "threshold", "allow", "deny", "labels", "row", "other", "documents"]
    body = {random_.choice(names): _value(random_) for _ in range(random_.randint(1, 5))}
    if random_.random() < 0.5:
        body = {"text": "python", random_.choice(names[3:]): _value(random_)}
    return post(_path(random_, model), json.dumps(body).encode())


def _deep(random_, model):
    depth = random_.choice([500, 5000, 100_000])
    opening = random_.choice([b"[", b'{"text":'])
    return post(_path(random_, model), opening * depth)


def _huge(random_, model):
    if random_.random() < 0.5:  # says so, and does not send it
        head = f"POST {_path(random_, model)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return (head + f"Content-Length: {random_.choice([10**8, 10**15, 10**18])}\r\n\r\n").encode()
    text = "word " * random_.choice([200_000, 2_000_000])
    return post(_path(random_, model), json.dumps({"text": text}).encode())


def _bad_token(random_, model):
    token = random_.choice(["", "x", "é" * 10, "a" * 60_000, "\x01", "Basic abc", "correct-horse-battery-stapl"])
    return post(_path(random_, model), b'{"text": "a"}', more=f"Authorization: Bearer {token}\r\n")


def _bad_http(random_, model):
    return random_.choice([
        b"GET\r\n\r\n", b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ])  # fmt: skip


def _bad_path(random_, model):
    path = random_.choice([
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/..%2f..%2fetc", "/v1/models/%00", "//", "/%ff%fe",
        "/..%5c..%5cwindows", f"/v1/models/{model}/blocks/99999999999999999999", f"/v1/models/{model}/labels/-1",
        f"/v1/models/{model}/labels?q=" + "x" * 5000, f"/v1/models/{model}/labels?limit=1e9", "/settings.py",
        "/v1/models//suggest",
        f"/v1/projects/{model}/suggest?limit=x",
    ])  # fmt: skip
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def _noise(random_, model):
    return random_.randbytes(random_.randint(1, 3000))


def _odd_length(random_, model):
    body = b'{"text": "python"}'
    length = random_.choice(["-5", "x", "99", "1", "0", "1e3"])  # 99: the rest never comes
    head = f"POST {_path(random_, model)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return (head + f"Content-Length: {length}\r\nConnection: close\r\n\r\n").encode() + body


def _bad_form(random_, model):
    body = random_.choice(
        [b"", b"text", b"text=%ff%fe", b"text=a&limit=x", b"text=a&threshold=nan", b"&" * 5000, b"text=a&limit=0"]
    )
    return post(f"/v1/projects/{model}/suggest", body, "application/x-www-form-urlencoded")
