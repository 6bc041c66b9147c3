"""Compile the kernels for machines that are not here; run their tests where an emulator can: python tools/portability.py.

Cross-compilers come from zig (`pip install ziglang nanobind`); Clang, GCC for arm64 and qemu-user are used where they are
installed (Debian: clang, g++-aarch64-linux-gnu, qemu-user). Every source is compiled with
-Wall -Wextra -Werror; for Windows
the headers that hold the algorithms, for Python's headers of this machine are not those of Windows.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import nanobind

ROOT = Path(__file__).parents[1]
KERNELS = sorted((ROOT / "src" / "kernels").rglob("*.cpp"))
ALGORITHMS = [
    header
    for header in sorted((ROOT / "src" / "kernels").rglob("*.hpp"))
    if not {"<nanobind/nanobind.h>", '"bindings.hpp"'} & set(header.read_text().split())
]
TESTS = sorted((ROOT / "tests" / "cpp").glob("*.cpp"))
FLAGS = [
    *("-std=c++20", "-O1", "-ffp-contract=off", "-fvisibility=hidden", f"-I{ROOT / 'src' / 'kernels'}"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument"),
]
# Headers of others are not ours to warn about. Python's are those of this machine: sizes agree on all 64-bit targets.
HEADERS = ["-isystem", nanobind.include_dir(), "-isystem", sysconfig.get_paths()["include"]]
ZIG = [sys.executable, "-m", "ziglang", "c++"]
# An emulator of one program cannot fork a program that has threads.
NO_FORK = "-a_forked_child_has_a_pool_of_its_own"


def compilers():
    """Name -> (compiler, extra flags of the test program, how to run it or None)."""
    clang, gcc, qemu = map(shutil.which, ("clang++", "aarch64-linux-gnu-g++", "qemu-aarch64"))
    emulated = None if qemu is None else [qemu]
    if clang:
        yield "clang, glibc, x86-64", ([clang], [], [])
    yield "zig's clang, musl, x86-64", ([*ZIG, "-target", "x86_64-linux-musl"], ["-static"], [])
    if gcc:
        yield "gcc, glibc, arm64", ([gcc], ["-static"], emulated)
    yield "zig's clang, musl, arm64", ([*ZIG, "-target", "aarch64-linux-musl"], ["-static"], None)
    yield "zig's clang, macOS, arm64", ([*ZIG, "-target", "aarch64-macos"], [], None)
    yield "zig's clang, Windows, x86-64", ([*ZIG, "-target", "x86_64-windows-gnu"], [], None)


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (compiler, extra, runner) in compilers():
            found = [*compiled(compiler, Path(folder)), *tested(compiler, extra, runner, Path(folder) / "tests")]
            print(f"{name}: {'; '.join(what for what, _ in found)}", flush=True)
            failed += [f"{name}: {what}\n{text}" for what, text in found if text]
    sys.exit("\n".join(failed))


def compiled(compiler, folder):
    wrong, sources, options = "", KERNELS, [*HEADERS, "-fPIC"]
    if "x86_64-windows-gnu" in compiler:
        sources, options = ALGORITHMS, ["-Wno-pragma-once-outside-header", "-Wno-unused-const-variable", "-x", "c++"]
    for source in sources:
        command = [*compiler, *FLAGS, *options, "-c", source, "-o", folder / "kernel.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong += f"{source.name}:\n{done.stderr[:3000]}\n"
    kind = "kernels" if sources is KERNELS else "headers"
    yield f"{len(sources)} {kind} {'with errors' if wrong else 'compile without a warning'}", wrong


def tested(compiler, extra, runner, program):
    if runner is None:
        yield "tests not run", ""
        return
    done = subprocess.run(
        [*compiler, *FLAGS, *extra, "-pthread", *TESTS, "-o", program], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        done = subprocess.run(
            [*runner, program, *([NO_FORK] if runner else [])], capture_output=True, text=True, check=False, timeout=120
        )
    good = done.returncode == 0
    yield (done.stdout.strip() if good else "tests failed"), ("" if good else done.stderr[-3000:])


if __name__ == "__main__":
    main()
