"""Every code block of the documentation runs, or says why not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
FENCE = re.compile(r"(`{3,})(\S*)")
NOT_RUN = re.compile(r"<!-- not run: .{8,} -->$")
# Blocks that show something; none of them is a program.
SHOWN = {"text", "json", "ini", "nginx", "dockerfile", "csv"}
LEFT_OUT = {"results", "_build", "jupyter_execute", "api"}  # generated
PAGES = sorted(path for path in DOCS.rglob("*.md") if not LEFT_OUT & set(path.relative_to(DOCS).parts))


def parts(page):
    """(line before, kind, text) of each block; prose has no kind."""
    before, kind, fence, text = "", None, "", []
    for line in page.read_text().splitlines():
        opening = FENCE.match(line)
        if kind is None and opening:
            yield before, None, "\n".join(text)
            fence, kind = opening[1], opening[2]
            before, text = (text or [""])[-1], []
        elif kind is not None and line == fence:
            yield before, kind, "\n".join(text)
            before, kind, text = line, None, []
        else:
            text.append(line)
    assert kind is None, f"{page.name}: a block of kind {kind} does not end"
    yield before, None, "\n".join(text)


def blocks(page):
    """The blocks of a page that run, in order: what runs them, and the code."""
    for before, kind, code in parts(page):
        if kind in ("python", "sh") and not NOT_RUN.search(before):
            yield kind, code
        elif kind == "{code-cell}":
            yield "python", code
        elif kind is not None:
            assert kind in SHOWN | {"python", "sh"} or kind.startswith("{"), f"{page.name}: a block of kind {kind!r}"


RUN = [page for page in PAGES if any(blocks(page))]


def run_python(page, code, names):
    exec(compile(code, str(page), "exec"), names)


def run_shell(page, code, names):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:\n{code}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("page", RUN, ids=[str(page.relative_to(DOCS)) for page in RUN])
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {"__name__": "__main__"}
    for kind, code in blocks(page):
        (run_python if kind == "python" else run_shell)(page, code, names)
    if "plt" in names:
        names["plt"].close("all")


def test_code_is_fenced():
    """Indented code would escape the test above."""
    for page in PAGES:
        for _, kind, text in parts(page):
            assert kind is not None or not re.search(r"\n\n(?: {4}|\t)\S", text), page.name


def test_no_page_is_empty():
    for page in PAGES:
        assert "To be written" not in page.read_text(), page.name


def test_links_between_pages():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|png))", page.read_text()):
            made = {"commands.md", "http.md"}
            assert (page.parent / target).exists() or Path(target).name in made, f"{page.name}: {target}"
