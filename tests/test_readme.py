"""What the README shows must run."""

import re
import runpy
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    assert len(example.splitlines()) <= 12
    (tmp_path / "example.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("example.py")
    assert float(capsys.readouterr().out.split()[0]) > 0.6
    assert names["labels"].shape[1] == 5


def test_five_minutes_with_texts_run(tmp_path, monkeypatch):
    section = README.read_text().split("## Five minutes")[1].split("or from the command line")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    rows = ["A history of printing,Printing;Books", "Cats and dogs play,Cats;Dogs", "Printing books,Printing;Books"]
    (tmp_path / "mine.csv").write_text("text,labels\n" + "\n".join(rows * 8) + "\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text("\n".join(lines))
    names = runpy.run_path("example.py")
    assert names["clf"].suggest("A history of printing", k=2)[0].label in ("Books", "Printing")


def test_files_it_points_to_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_one_version_everywhere():
    from blockxmc import __version__

    root = README.parent
    assert re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), flags=re.M)[1] == __version__
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (root / "CHANGELOG.md").read_text(), flags=re.M)
    assert newest[1] == __version__
    released = re.search(r"^date-released: (\S+)$", (root / "CITATION.cff").read_text(), flags=re.M)
    assert released[1] == newest[2]
