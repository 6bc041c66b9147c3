"""Bounded load on an HTTP server: connections that are kept open, requests as fixed bytes, answers as status and body."""

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np
import uvloop

TIMEOUT = 30.0


@dataclass
class Load:
    """What came of some requests; latencies in seconds, counted from when a request was due."""

    seconds: float = 0.0
    latencies: list = field(default_factory=list)
    failures: dict = field(default_factory=dict)  # status or kind of failure -> how often

    @property
    def per_second(self):
        return len(self.latencies) / self.seconds

    def ms(self, percent):
        return 1000 * float(np.percentile(self.latencies, percent))

    def note(self, status, seconds):
        if status == 200:
            self.latencies.append(seconds)
        else:
            self.failures[status] = self.failures.get(status, 0) + 1


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self):
        self.transport, self.answer, self.buffer = None, None, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self.buffer) >= end + 4 + length:
            status, body = int(self.buffer[9:12]), self.buffer[end + 4 : end + 4 + length]
            self.buffer = b""
            if not self.answer.done():
                self.answer.set_result((status, body))

    def connection_lost(self, error):
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("closed"))

    async def ask(self, request):
        """Status and body."""
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await asyncio.wait_for(self.answer, TIMEOUT)


async def connect(port):
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


def post(path, body, kind="application/json"):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def in_turn(port, kinds, count):
    """One connection; the kinds of request in turn, ``count`` of each (a list of requests each): a Load per kind."""

    async def run():
        connection, loads = await connect(port), [Load() for _ in kinds]
        for i in range(count):
            for requests, load in zip(kinds, loads, strict=True):
                started = time.perf_counter()
                status, _ = await connection.ask(requests[i % len(requests)])
                load.note(status, time.perf_counter() - started)
        connection.transport.close()
        return loads

    return uvloop.run(run())


def saturate(port, requests, seconds, connections=16):
    """As many requests as the server answers: every connection asks again at once."""

    async def one(load, until, number):
        connection, i = await connect(port), number
        while (started := time.perf_counter()) < until:
            status, _ = await connection.ask(requests[i % len(requests)])
            load.note(status, time.perf_counter() - started)
            i += connections
        connection.transport.close()

    async def run():
        load, started = Load(), time.perf_counter()
        await asyncio.gather(*(one(load, started + seconds, number) for number in range(connections)))
        load.seconds = time.perf_counter() - started
        return load

    return uvloop.run(run())


def steady(port, requests, rate, seconds, *, connections=64, seed=0, look=None, each=10.0):
    """Requests that come at random moments, ``rate`` a second on average; one that must wait for a free connection is
    late, and its waiting counts. ``look()`` is called every ``each`` seconds; returns the Load and what was seen."""
    random = np.random.default_rng(seed)

    async def one(load, free, request, due):
        connection = await free.get()
        try:
            status, _ = await connection.ask(request)
            load.note(status, time.perf_counter() - due)
        except (TimeoutError, ConnectionError) as error:
            load.note(type(error).__name__, 0)
            connection = await connect(port)
        free.put_nowait(connection)

    async def run():
        load, free, seen, tasks = Load(), asyncio.Queue(), [], set()
        for _ in range(connections):
            free.put_nowait(await connect(port))
        started = due = time.perf_counter()
        i, next_look = 0, started
        while due < started + seconds:
            if look is not None and due >= next_look:
                seen.append(look())
                next_look += each
            if (ahead := due - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            task = asyncio.create_task(one(load, free, requests[i % len(requests)], due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            i += 1
            due += random.exponential(1 / rate)
        await asyncio.gather(*tasks)
        load.seconds = time.perf_counter() - started
        return load, seen

    return uvloop.run(run())
