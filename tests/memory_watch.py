"""Anonymous memory of this process while a function runs: what the system cannot give to others by dropping file pages."""

import threading
from pathlib import Path


def anonymous():
    """Bytes of memory that no file stands behind (RssAnon)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def peak_of(function, every=0.005):
    """The most bytes beyond those at the start, looked at every few milliseconds."""
    start = most = anonymous()
    stop = threading.Event()

    def watch():
        nonlocal most
        while not stop.wait(every):
            most = max(most, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function()
    finally:
        stop.set()
        watcher.join()
    return most - start
