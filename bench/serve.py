"""The service under load, replacement and attack: prints every bar and whether it holds.

    make bench-serve                                    # all of it on the bundled data, with one minute of soak
    make bench-serve SERVE_ARGS="--parts soak --minutes 30 --core 0"    # the long soak, which leaves the other cores free
    python bench/serve.py --parts hostile replaced      # some of it

Beside `annif run`, where `make test-annif` has made its environment and trained omikuji on the same data (bench/out/annif).
Load comes from this process, over loopback: it shares the cores with the server, as both bars and numbers have it.
--results FILE.json keeps rows: those of this run take the places of the same parts made the same way, and the page is
drawn from all of them.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

from http_load import connect, get, in_turn, post, saturate, steady, uvloop

from blockxmc import TextClassifier, load
from blockxmc.data import load_demo_texts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hostile_requests import hostile_requests, send, status_of

PARTS = ("constant", "half", "annif", "soak", "replaced", "hostile")
OUT = Path("bench/out/serve")
ANNIF = Path("bench/out/annif")
SUGGEST = "/v1/models/packages/suggest"
# What may come and go in a process that does not grow: the allocator's slack, in MB.
SLACK_MB = 2.0
SLOW_BODIES = 50


class Bars:
    """What was found, beside what is asked for, and how it was made."""

    def __init__(self, made):
        self.rows, self.made, self.part = [], made, None

    def add(self, name, found, bar, holds):
        row = {"part": self.part, "what": name, "found": found, "bar": bar, "holds": bool(holds), "made": self.made}
        self.rows.append(row)
        print(f"{'holds' if holds else 'FAILS':6} {name}: {found} (bar: {bar})", flush=True)

    def write(self, path):
        """Rows of this run and of earlier ones that it does not replace, and a page of them beside the file."""
        before = json.loads(path.read_text()) if path.exists() else []
        new = {(row["part"], kind(row)) for row in self.rows}
        rows = [row for row in before if (row["part"], kind(row)) not in new] + self.rows
        rows.sort(key=lambda row: PARTS.index(row["part"]))
        path.write_text(json.dumps(rows, indent=1) + "\n")
        ways = list(dict.fromkeys(row["made"] for row in rows))
        lines = [
            "# The service under load, replacement and attack", "",
            "Made by `make bench-serve` on the bundled data (15,711 texts, 6,563 labels): one worker over loopback, the",
            "load from the same machine. Runs:", "",
            *(f"{number}. {way}" for number, way in enumerate(ways, 1)), "",
            "| what | found | bar | holds | run |", "|---|---|---|---|---|",
        ]  # fmt: skip
        for row in rows:
            holds = "yes" if row["holds"] else "no"
            lines.append(f"| {row['what']} | {row['found']} | {row['bar']} | {holds} | {1 + ways.index(row['made'])} |")
        path.with_suffix(".md").write_text("\n".join(lines) + "\n")


def kind(row):
    """How a row was made, without what differs from day to day: a pinned run never takes the place of a free one."""
    return row["made"].split(";")[0]


def making(core):
    """How this run is made, in words; where a core is named, this process and the servers it starts stay on it."""
    cores, busy = os.cpu_count(), os.getloadavg()[1]
    where = f"all {cores} cores free to server and load"
    if core is not None:
        os.sched_setaffinity(0, {core})
        where = f"server and load pinned together to one of {cores} cores"
        if (nice := os.nice(0)) < 0:
            where += f", at niceness {nice}, before everything else there"
    return (
        f"{where}; load average before the run {busy:.1f}"
        + ("" if busy < 0.3 else " (others had work, too: waiting times say more of them than of the service)")
    )  # fmt: skip


@contextmanager
def serving(command, ready, environment=None, folder=None):
    """A running server (command with {port}): its port and process; it must end in order when it is told to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [part.format(port=port) for part in command]
    with open(OUT / "server.log", "ab") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not answers(port, get(ready)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start: see {OUT / 'server.log'}")
            time.sleep(0.2)
        yield port, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def served(*options):
    """Our server."""
    command = [
        sys.executable,
        "-m",
        "blockxmc",
        "serve",
        str(OUT / "packages"),
        "--port",
        "{port}",
        "--no-log",
        *options,
    ]
    return serving(command, "/readyz")


def answers(port, request):
    """Whether a request is answered with 200."""

    async def ask():
        connection = await connect(port)
        status, _ = await connection.ask(request)
        connection.transport.close()
        return status == 200

    with suppress(OSError):
        return uvloop.run(ask())
    return False


def anonymous_mb(process):
    """Memory of a process that no file backs."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc does not tell the memory of a process")


def cpu_seconds(process):
    """What a process and the children it has waited for have used of the CPU."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def trained(name, corpus):
    """A model of bundled texts, trained once."""
    path = OUT / name
    if not (path / "manifest.json").exists():
        TextClassifier().fit(corpus.texts, corpus.labels).save(path)
    return load(path)


# ---- the parts ----
def constant(bars, texts, options):
    """How much longer an answer takes than none, one request at a time."""
    with served() as (port, _):
        suggests = [post(SUGGEST, json.dumps({"text": text}).encode()) for text in texts]
        kinds = [suggests, [get("/healthz")]]
        in_turn(port, kinds, 300)
        suggest, nothing = in_turn(port, kinds, options.requests)
    ratio = suggest.ms(50) / nothing.ms(50)
    found = f"{ratio:.2f} ({suggest.ms(50):.2f} ms, {nothing.ms(50):.2f} ms)"
    bars.add("p50 of one text over p50 of a constant answer", found, "at most 2.5", ratio <= 2.5)


def half(bars, texts, options):
    """The slow answers at half of what the server can do."""
    requests = [post(SUGGEST, json.dumps({"text": text}).encode()) for text in texts]
    with served() as (port, _):
        saturate(port, requests, 2)
        most = saturate(port, requests, options.seconds)
        load, _ = steady(port, requests, most.per_second / 2, options.seconds)
    found = (
        f"{load.ms(99):.1f} ms (p50 {load.ms(50):.2f} ms) at {load.per_second:.0f} of {most.per_second:.0f} a second"
    )
    bars.add("p99 at half of saturation", found, "under 10 ms", load.ms(99) < 10 and not load.failures)


def annif(bars, texts, options):
    """Requests a second beside Annif's own server with omikuji, the same requests to both."""
    program = Path("bench/out/envs/annif/bin/annif").absolute()
    if not (ANNIF / "data" / "projects" / "omikuji").exists() or not program.exists():
        print("skips  beside annif run: make test-annif first", flush=True)
        return
    forms = [urlencode({"text": text, "limit": 10}).encode() for text in texts]

    def rate(server, project, connections):
        """Requests a second, and CPU milliseconds that the server takes for each."""
        port, process = server
        requests = [
            post(f"/v1/projects/{project}/suggest", form, "application/x-www-form-urlencoded") for form in forms
        ]
        saturate(port, requests, 2, connections)
        before = cpu_seconds(process)
        load = saturate(port, requests, options.seconds, connections)
        if load.failures:
            raise SystemExit(f"{project}: {load.failures}")
        return load.per_second, 1000 * (cpu_seconds(process) - before) / len(load.latencies)

    with served() as server:
        ours, our_ms = rate(server, "packages", 16)
    environment = os.environ | {"ANNIF_PROJECTS": "projects.cfg", "NLTK_DATA": str((ANNIF / "nltk").absolute())}
    with serving([str(program), "run", "--port", "{port}"], "/v1/projects/omikuji", environment, ANNIF) as server:
        theirs, their_ms = rate(server, "omikuji", 4)
    found = f"{ours / theirs:.1f} ({ours:.0f}, {theirs:.0f})"
    bars.add("requests a second over those of annif run with omikuji", found, "at least 10", ours >= 10 * theirs)
    found = f"{their_ms / our_ms:.1f} ({their_ms:.2f} ms, {our_ms:.2f} ms)"
    bars.add("the same by the server's CPU time for a request", found, "at least 10", their_ms >= 10 * our_ms)


def soak(bars, texts, options):
    """Hours are short here: 80 % of saturation for some minutes."""
    requests = [post(SUGGEST, json.dumps({"text": text}).encode()) for text in texts]
    with served() as (port, process):
        most = saturate(port, requests, 10).per_second
        seconds = 60 * options.minutes
        look = lambda: anonymous_mb(process)  # noqa: E731
        load, seen = steady(port, requests, 0.8 * most, seconds, look=look, each=max(1.0, seconds / 60))
    third = len(seen) // 3
    # The first third is warming up: caches of names and arenas of threads fill.
    before, after = max(seen[third : 2 * third]), max(seen[2 * third :])
    name = f"{options.minutes:g} min at 80 % of saturation ({load.per_second:.0f} a second)"
    bars.add(
        f"errors in {name}",
        f"{sum(load.failures.values())} of {len(load.latencies)}, p99 {load.ms(99):.1f} ms", "0", not load.failures,
    )  # fmt: skip
    found = f"{after - before:+.1f} MB (from {before:.0f} MB)"
    bars.add(f"growth of memory in {name}", found, f"none (within {SLACK_MB:g} MB)", after - before <= SLACK_MB)


def replaced(bars, texts, options):
    """1,000 requests while the model is replaced 20 times: all are answered, each by one version."""
    first, second = load(OUT / "packages"), trained("others", load_demo_texts()[1])
    path, texts = OUT / "packages", texts[:25]
    labels = [[[str(s.label) for s in row] for row in model.suggest(texts)] for model in (first, second)]
    version = lambda: json.loads((path / "manifest.json").read_text())["manifest_sha256"][:16]  # noqa: E731
    first.save(path)
    known, lost, mixed, seen = {version(): 0}, 0, 0, set()
    done = threading.Event()

    def replace():
        for number in range(20):
            # The service looks once a second.
            time.sleep(1.2)
            which = 1 - number % 2
            (first, second)[which].save(path)
            known[version()] = which
        time.sleep(1.2)
        done.set()

    async def ask():
        connection, found = await connect(port), []
        while len(found) < 1000 or not done.is_set():
            many = len(found) % 4 == 0
            i = len(found) % len(texts)
            body = {"texts": texts} if many else {"text": texts[i]}
            try:
                found.append((i, many, *await connection.ask(post(SUGGEST, json.dumps(body).encode()))))
            except (TimeoutError, ConnectionError):
                found.append((i, many, 0, b""))
                connection = await connect(port)
        return found

    with served() as (port, _), ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        found = uvloop.run(ask())
        replacing.result()
    for i, many, status, body in found:
        if status != 200:
            lost += 1
            continue
        answer = json.loads(body)
        names = [[s["label"] for s in result["suggestions"]] for result in answer["results"]]
        expected = labels[known[answer["version"]]]
        mixed += names != (expected if many else [expected[i]])
        seen.add(answer["version"])
    first.save(path)
    name = f"{len(found)} requests, 20 replacements ({len(seen)} versions answered)"
    bars.add(name, f"{lost} lost, {mixed} mixed", "0 lost, 0 mixed", lost == mixed == 0 and len(seen) > 10)


def hostile(bars, texts, options):
    """Requests that no well-meaning client sends, to an open server and to one with a token."""
    token = OUT / "token"
    token.write_text("correct-horse-battery-staple\n")
    with served() as (port, process), served("--token-file", str(token), "--allow-update") as (closed, guarded):
        found, slow = {}, slow_bodies(port)
        for chunk in range(0, options.hostile, 100):
            for where in (port, closed):
                with ThreadPoolExecutor(8) as pool:
                    wave = hostile_requests(50, seed=chunk + where % 2)
                    for status in pool.map(lambda content, where=where: send(("127.0.0.1", where), content), wave):
                        found[status] = found.get(status, 0) + 1
        for status in slow.result():
            found[status] = found.get(status, 0) + 1
        alive = process.poll() is None and guarded.poll() is None
        alive = alive and answers(port, post(SUGGEST, b'{"text": "python"}')) and answers(closed, get("/readyz"))
    bad = sum(count for status, count in found.items() if status >= 500)
    listed = ", ".join(f"{status or 'closed'}: {count}" for status, count in sorted(found.items()))
    count = sum(found.values())
    bars.add(f"5xx answers to {count} hostile requests", f"{bad} ({listed})", "0", bad == 0)
    bars.add("alive after hostile requests", "yes" if alive else "no", "yes", alive)


def slow_bodies(port):
    """Bodies that come a byte at a time: their statuses, when they are known."""

    def one(_):
        head = post(SUGGEST, b"x" * 1000)[:-1000]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
            connection.settimeout(1.0)
            connection.sendall(head)
            for _ in range(60):
                connection.sendall(b"{")
                with suppress(TimeoutError):
                    return status_of(connection.recv(4096))
        return 0

    pool = ThreadPoolExecutor(SLOW_BODIES + 1)
    return pool.submit(lambda: list(pool.map(one, range(SLOW_BODIES))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--minutes", type=float, default=1.0, help="of soak")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each other load")
    parser.add_argument("--requests", type=int, default=3000, help="one at a time")
    parser.add_argument("--hostile", type=int, default=10_000)
    parser.add_argument("--core", type=int, help="keep server and load on this core")
    parser.add_argument("--results", type=Path, help="JSON file that keeps rows; the page lies beside it")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    train, test = load_demo_texts()
    trained("packages", train)
    bars = Bars(making(options.core))
    for part in options.parts:
        bars.part = part
        globals()[part](bars, test.texts[:500], options)
    if options.results:
        bars.write(options.results)
    sys.exit(not all(row["holds"] for row in bars.rows))


if __name__ == "__main__":
    main()
