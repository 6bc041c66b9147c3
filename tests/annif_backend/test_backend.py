"""The backend in a real Annif: its commands as users run them, and what they leave on disk (``make test-annif``)."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("annif", reason="needs Annif in an environment of its own: make test-annif")
from annif_parts import annif, surroundings, uri, write_corpus, write_folder
from service_parts import demo_rows, running

from blockxmc import load

TEXT = "python3 module for parsing HTTP requests"


@pytest.fixture(scope="module")
def corpus():
    return demo_rows(0, 1500)


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    """A folder with a trained project."""
    folder = tmp_path_factory.mktemp("annif")
    texts, labels = corpus
    write_folder(folder, {name for names in labels for name in names})
    write_corpus(folder / "train.tsv", texts[:1200], labels[:1200])
    write_corpus(folder / "test.tsv", texts[1200:], labels[1200:])
    annif(folder, "load-vocab", "packages", "vocab.tsv", "-L", "en")
    annif(folder, "train", "blockxmc", "train.tsv", "--jobs", "1")
    return folder


def model_of(folder):
    return folder / "data" / "projects" / "blockxmc" / "model"


def suggested(output):
    """URIs and scores that ``annif suggest`` printed."""
    rows = [line.split("\t") for line in output.splitlines() if line.startswith("<")]
    return {row[0].strip("<>"): float(row[-1]) for row in rows}


def test_the_parameters_are_shown(folder):
    said = annif(folder, "blockxmc")
    assert "ngram=1 " in said
    assert "min_df=auto" in said


def test_a_project_that_is_not_trained_says_so(folder, tmp_path):
    write_folder(tmp_path, ["a", "b"])
    annif(tmp_path, "load-vocab", "packages", "vocab.tsv", "-L", "en")
    assert "Project is not trained" in annif(tmp_path, "suggest", "blockxmc", given=TEXT, code=1)
    (tmp_path / "empty.tsv").write_text("")
    assert "no documents" in annif(tmp_path, "train", "blockxmc", "empty.tsv", code=1)
    assert "train once" in annif(tmp_path, "train", "blockxmc", "--cached", code=1)
    said = annif(folder, "show-project", "blockxmc")
    assert [line.split()[-1] for line in said.splitlines() if "Trained" in line] == ["True"]


def test_suggestions_are_those_of_the_model(folder):
    found = suggested(annif(folder, "suggest", "blockxmc", "--limit", "5", given=TEXT))
    expected = {str(label): score for label, score in load(model_of(folder)).suggest(TEXT)}
    assert found == pytest.approx(expected, abs=1e-4)
    assert uri("python3") in found
    assert suggested(annif(folder, "suggest", "blockxmc", given="")) == {}
    assert suggested(annif(folder, "suggest", "blockxmc", given="zzzzzz qqqqqq")) == {}


def test_eval_in_one_process_and_in_several(folder):
    scores = []
    for jobs in ("1", "2"):
        annif(folder, "eval", "blockxmc", "test.tsv", "--jobs", jobs, "--metrics-file", "metrics.json")
        scores.append(json.loads((folder / "metrics.json").read_text()))
    assert scores[0] == pytest.approx(scores[1])
    assert scores[0]["F1@5"] > 0.2
    assert scores[0]["Documents_evaluated"] > 250


def test_cached_data_and_parameters_of_one_run(folder, tmp_path):
    before = load(model_of(folder)).vectorizer_.n_features
    annif(folder, "train", "blockxmc", "--cached", "-b", "blockxmc.ngram=2", "-b", "blockxmc.min_df=3")
    model = load(model_of(folder))
    assert model.ngram_range == (1, 2)
    assert model.min_df == 3
    assert any(" " in name for name in model.vectorizer_.feature_names)
    said = annif(folder, "train", "blockxmc", "--cached", "-b", "blockxmc.ngram=two", code=1)
    assert "Misconfigured backend 'blockxmc': ngram=two cannot be read" in said
    assert load(model_of(folder)).min_df == 3  # what does not work leaves what there was
    annif(folder, "train", "blockxmc", "--cached", "--jobs", "1")
    assert load(model_of(folder)).vectorizer_.n_features == before


def test_hyperparameters(folder):
    options = ("--trials", "2", "--metric", "F1@5", "--results-file", "trials.tsv", "--docs-limit", "60")
    said = annif(folder, "hyperopt", "blockxmc", "test.tsv", *options)
    lines = said.split("---\n")[1].splitlines()
    assert [line.split("=")[0] for line in lines] == ["ngram", "min_df", "C"]
    trials = [line.split("\t") for line in (folder / "trials.tsv").read_text().splitlines()]
    assert trials[0] == ["trial", "value", "ngram", "min_df", "C"]
    best = max(float(row[1]) for row in trials[1:])
    assert len(trials) == 3
    assert f"score {best:.4f}" in said
    assert 0.1 < best < 1


def test_a_vocabulary_may_change(folder, tmp_path):
    """Subjects that are gone are not suggested, and the others keep their names: their numbers may change."""
    first = list(suggested(annif(folder, "suggest", "blockxmc", given=TEXT)))
    lines = (folder / "vocab.tsv").read_text().splitlines(keepends=True)
    kept = [line for line in lines if f"<{first[0]}>" not in line]
    (folder / "smaller.tsv").write_text("".join([f"<{uri('a new one')}>\ta new one\n", *reversed(kept)]))
    try:
        annif(folder, "load-vocab", "packages", "smaller.tsv", "-L", "en", "--force")
        found = list(suggested(annif(folder, "suggest", "blockxmc", given=TEXT)))
        assert first[0] not in found
        assert len(found) == 10
        assert [name for name in found if name in first] == first[1:]
    finally:
        annif(folder, "load-vocab", "packages", "vocab.tsv", "-L", "en", "--force")


def test_learn(folder, corpus):
    annif(folder, "train", "learning", "train.tsv", "--jobs", "1")
    assert "Learning not enabled" in annif(folder, "learn", "blockxmc", "test.tsv", code=1)
    labels = corpus[1]
    taught = {name for names in labels[:1200] for name in names}
    new = min(name for names in labels[1200:] for name in names if name not in taught)
    # A subject that no document had, in words of others; and a known one that is not the first for words near its own.
    lessons = {
        new: "a game about fonts in perl for the kernel",
        labels[0][0]: "frobnicated network address notations of a python library",
    }
    texts = [f"{text} number {i}" for text in lessons.values() for i in range(20)]
    write_corpus(folder / "new.tsv", texts, [[name] for name in lessons for _ in range(20)])

    def first(text):
        return list(suggested(annif(folder, "suggest", "learning", "--limit", "1", given=text)))

    assert all(first(text) != [uri(name)] for name, text in lessons.items())
    annif(folder, "learn", "learning", "new.tsv")
    assert all(first(text) == [uri(name)] for name, text in lessons.items())
    annif(folder, "train", "learning", "--cached", "-b", "blockxmc.keep_rows=no", "--jobs", "1")
    assert "allow_learn=1 before training" in annif(folder, "learn", "learning", "new.tsv", code=1)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def asked(command, port, folder, log):
    """What a server of Annif answers, and that it ends."""
    with open(log, "w") as file:
        server = subprocess.Popen(command, cwd=folder, env=surroundings(folder), stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and server.poll() is None:
            try:
                url = f"http://127.0.0.1:{port}/v1/projects/blockxmc/suggest"
                return httpx.post(url, data={"text": TEXT, "limit": 5}, timeout=30).json()["results"]
            except httpx.ConnectError:
                time.sleep(0.3)
        raise AssertionError(log.read_text())
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.parametrize("how", ["annif run", "factory"])
def test_annifs_servers(folder, tmp_path, how):
    port, programs = free_port(), Path(sys.executable).parent
    by_factory = [programs / "uvicorn", "--factory", "blockxmc.annif:create_app", "--port", str(port)]
    command = by_factory if how == "factory" else [programs / "annif", "run", "--port", str(port)]
    found = asked(command, port, folder, tmp_path / "log")
    expected = {str(label): score for label, score in load(model_of(folder)).suggest(TEXT)}
    assert {row["uri"]: row["score"] for row in found} == pytest.approx(expected, abs=1e-5)
    assert found[0]["label"] == found[0]["uri"].rpartition("/")[2]


def test_annifs_http_backend_asks_our_service(folder, tmp_path):
    ours = suggested(annif(folder, "suggest", "blockxmc", given=TEXT))
    with running(model_of(folder), access_log=False) as client:
        endpoint = f"{client.base_url}/v1/projects/model/suggest".replace("//v1", "/v1")
        lines = (folder / "projects.cfg").read_text().splitlines()
        (folder / "remote.cfg").write_text(
            "\n".join(f"endpoint={endpoint}" if line.startswith("endpoint") else line for line in lines)
        )
        options = ("--projects", "remote.cfg")
        assert suggested(annif(folder, "suggest", "remote", *options, given=TEXT)) == pytest.approx(ours, abs=1e-4)
        assert "Trained:           True" in annif(folder, "show-project", "remote", *options)
        said = annif(folder, "eval", "remote", "test.tsv", *options, "--docs-limit", "50")
        assert "Documents evaluated:          \t50" in said
        assert "failed" not in said


def test_other_flask_programs_are_left_alone():
    code = "import sys, blockxmc.annif; assert 'annif' not in sys.modules and 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
