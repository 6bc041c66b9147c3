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
    assert names["labels"].shape == (5,)
    assert (tmp_path / "model" / "manifest.json").exists()


def test_files_it_points_to_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
