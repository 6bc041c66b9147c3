"""The service says what the library says."""

import itertools
import json
import threading

import numpy as np
import pytest
from scipy import sparse
from service_parts import TOKEN, running

from blockxmc import BlockwiseClassifier, DiSMEC, TextClassifier, load
from blockxmc.service import explore

MODEL = "/v1/models/packages"


@pytest.fixture(scope="module")
def model(model_dir):
    return load(model_dir)


def suggested(client, **body):
    answer = client.post(f"{MODEL}/suggest", json=body)
    assert answer.status_code == 200, answer.text
    return [[(s["label"], s["score"]) for s in result["suggestions"]] for result in answer.json()["results"]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 1},
        {"k": 1000},
        {"threshold": 0.3},
        {"threshold": "f1", "k": 20},
        {"threshold": None},
        {"allow": ["python3", "perl", "libjs-jquery"]},
        {"deny": ["python3", "perl"], "k": 3},
        {"allow": [0, 1, 2, "perl"], "deny": ["perl"]},
    ],
    ids=str,
)
def test_suggestions_are_those_of_the_library(client, model, demo, options):
    texts = [*demo[0][:30], "", "no word of this is known: qqqq", "Ünïcödé ‮ \0 😀"]
    expected = model.suggest(texts, **options)
    together = suggested(client, texts=texts, **options)
    one_by_one = [suggested(client, text=text, **options)[0] for text in texts]
    for rows in (together, one_by_one):
        assert [[label for label, _ in row] for row in rows] == [[str(s.label) for s in row] for row in expected]
        flat = [score for row in rows for _, score in row]
        assert flat == pytest.approx([s.score for row in expected for s in row], abs=2e-6)


def test_sparse_rows_are_answered_like_their_texts(client, model, demo):
    X = model.vectorizer_.transform(demo[0][:5])
    rows = [
        {"indices": X.indices[a:b][::-1].tolist(), "values": X.data[a:b][::-1].tolist()}  # the order does not matter
        for a, b in itertools.pairwise(X.indptr)
    ]
    assert suggested(client, rows=rows) == suggested(client, texts=demo[0][:5])
    halves = {"indices": rows[0]["indices"] * 2, "values": [v / 2 for v in rows[0]["values"]] * 2}
    assert suggested(client, rows=[halves]) == suggested(client, text=demo[0][0])
    assert suggested(client, rows=[{"indices": [], "values": []}]) == suggested(client, text="") == [[]]


def test_a_text_without_a_known_word_says_so(client, demo):
    for body in ({"text": "zzzzqq"}, {"texts": ["zzzzqq"]}):
        assert client.post(f"{MODEL}/suggest", json=body).json()["results"] == [{"suggestions": [], "known": False}]
    assert client.post(f"{MODEL}/suggest", json={"text": demo[0][0]}).json()["results"][0]["known"] is True


def test_explanations_are_those_of_the_library(client, model, demo):
    text = demo[0][3]
    answer = client.post(f"{MODEL}/explain", json={"text": text, "k": 3}).json()
    expected = model.explain(text, k=3)
    assert [why["label"] for why in answer["explanations"]] == [why.name for why in expected]
    for why, right in zip(answer["explanations"], expected, strict=True):
        parts = sum(f["part"] for f in why["features"]) + why["other_features"] + why["constant"]
        assert parts + sum(why["terms"].values()) == pytest.approx(right.score, abs=1e-4)
        assert why["probability"] == pytest.approx(right.probability)
        assert [n["row"] for n in why["neighbors"]] == [n.row for n in right.neighbors]
        for near in why["neighbors"]:
            assert near["labels"] == sorted(set(demo[1][near["row"]]))
            assert near["has_label"] == (why["label"] in near["labels"])
            assert (near["id"], near["title"][:9]) == (None, " ".join(demo[0][near["row"]].split())[:9])
    lost = client.post(f"{MODEL}/explain", json={"text": "", "labels": ["zlib1g-dev"], "k": 1}).json()["explanations"][
        0
    ]
    assert lost["label"] == "zlib1g-dev"
    assert lost["fate"] == model.explain("", label="zlib1g-dev", k=1)[0].fate


def test_a_card_says_what_is_known(client, model, model_dir, demo):
    card = client.get(MODEL).json()
    assert card["example"][:30] == demo[0][0][:30]
    assert client.get("/v1/models").json() == {"models": [card], "updates": False}
    manifest = json.loads((model_dir / "manifest.json").read_text())
    assert card["version"] == manifest["manifest_sha256"][:16]
    assert card["provenance"]["created"] == manifest["provenance"]["created"]
    assert (card["labels"], card["training_rows"]) == (len(model.classes_), 1200)
    assert card["blocks"] == model.classifier_.partition_.n_blocks_
    assert card["held_out"]["P@1"] == pytest.approx(model.classifier_.cost_["expected_P@1"])
    assert str(model_dir.parent) not in json.dumps(card)


def test_blocks_and_labels(client, model, demo):
    partition, counts = model.classifier_.partition_, model.classifier_.label_counts_
    blocks = client.get(f"{MODEL}/blocks").json()["blocks"]
    assert [b["rows"] for b in blocks] == np.bincount(partition.assignment_, minlength=len(blocks)).tolist()
    for number in (0, len(blocks) - 1):
        block = client.get(f"{MODEL}/blocks/{number}").json()
        held = set(partition.label_clusters_[number].tolist())
        assert {x["id"] for x in block["labels"]} <= held
        assert len(block["labels"]) == min(len(held), explore.MOST_LISTED)
        rows = [x["training_rows"] for x in block["labels"]]
        assert rows == sorted(rows, reverse=True)
    found = client.get(f"{MODEL}/labels", params={"q": "PYTHON3", "limit": 5}).json()["labels"]
    assert found[0]["label"] == "python3"
    assert all("python3" in x["label"] for x in found)
    assert client.get(f"{MODEL}/labels", params={"q": "pyhton3"}).json()["labels"][0]["label"] == "python3"
    turned = client.get(f"{MODEL}/labels", params={"q": "jquery libjs"}).json()["labels"]
    assert "libjs-jquery" in [x["label"] for x in turned]
    label = client.get(f"{MODEL}/labels/{found[0]['id']}").json()
    assert label["training_rows"] == counts[label["id"]] == sum("python3" in labels for labels in demo[1])
    assert label["blocks"] == [i for i, ids in enumerate(partition.label_clusters_) if label["id"] in ids]
    for other in label["co_labels"]:
        assert other["together"] == sum({"python3", other["label"]} <= set(labels) for labels in demo[1])
    for missing in ("blocks/100000", "blocks/-1", "blocks/x", "labels/999999", "labels?limit=0", "labels?limit=x"):
        assert client.get(f"{MODEL}/{missing}").status_code in (404, 422)


def test_the_map_has_a_dot_for_each_label_of_a_row(client, model, demo):
    found = client.get(f"{MODEL}/map").json()
    partition = model.classifier_.partition_
    columns, offsets = found["columns"], found["offsets"]
    dots = sparse.coo_array((np.ones(len(found["dots"][0])), found["dots"][::-1]), shape=(found["rows"], len(columns)))
    names = model.classes_
    dots = sparse.csr_array(dots)
    for block, (a, b) in enumerate(itertools.pairwise(offsets)):
        spans = {columns[c] for first, last in found["label_clusters"][block] for c in range(first, last + 1)}
        assert spans == set(partition.label_clusters_[block].tolist())
        rows = np.flatnonzero(partition.assignment_ == block)[: b - a]
        for row, drawn in zip(rows, range(a, b), strict=True):
            labels = {names[columns[c]] for c in dots.indices[dots.indptr[drawn] : dots.indptr[drawn + 1]]}
            assert labels == set(demo[1][row]) & {names[c] for c in columns}


def test_a_model_of_features_takes_rows_only(tmp_path):
    X = sparse.csr_array(np.eye(4, dtype=np.float32))
    DiSMEC().fit(X, sparse.csr_array(np.eye(4)[:, [1, 0, 3, 2]])).save(tmp_path / "numbers")
    with running(tmp_path / "numbers", access_log=False) as client:
        one = "/v1/models/numbers"
        answer = client.post(f"{one}/suggest", json={"rows": [{"indices": [2], "values": [1]}], "k": 1}).json()
        assert answer["results"][0]["suggestions"][0]["label"] == 3
        assert client.post(f"{one}/suggest", json={"text": "a"}).status_code == 422
        assert client.post(f"{one}/explain", json={"row": {"indices": [0], "values": [1]}}).status_code == 200
        assert client.get(f"{one}/blocks").status_code == 404
        assert client.get("/v1/projects").json() == {"projects": []}
        assert client.post("/v1/projects/numbers/suggest", data={"text": "a"}).status_code == 422


def test_extra_columns_are_made_beside_other_requests(demo, tmp_path, monkeypatch):
    """A function of the user's may take long: it must not run on the thread that all requests go through."""
    texts, labels = demo[0][:400], demo[1][:400]
    threads = []

    def first_labels(some):
        """Columns that say much, so that they count."""
        threads.append(threading.current_thread().name)
        known = dict(zip(texts, labels, strict=True))
        return [[3.0 * (name in known.get(text, [])) for name in ("perl", "python3", "libc6")] for text in some]

    model = TextClassifier(BlockwiseClassifier(n_jobs=1), extra=first_labels).fit(texts, labels)
    model.save(tmp_path / "packages")
    monkeypatch.setattr("blockxmc.service.app.named_function", lambda name: first_labels)
    with running(tmp_path / "packages", access_log=False, extra="a:b") as client:
        threads.clear()
        suggested(client, text=texts[0])
        client.post("/v1/projects/packages/suggest", data={"text": texts[0]}).raise_for_status()
    assert len(threads) == 2
    assert all(name.startswith("answer") for name in threads), threads


def test_looking_for_near_names_holds_nobody_up(client, monkeypatch):
    threads = []
    monkeypatch.setattr("blockxmc._core.allowed.near_names", lambda *_: threads.append(threading.current_thread().name))
    assert client.post(f"{MODEL}/suggest", json={"text": "a", "deny": ["pyhton3"]}).status_code == 422
    assert all(name.startswith("answer") for name in threads), threads


def test_annif_clients_are_answered_in_their_own_form(client, model, demo):
    text = demo[0][7]
    project = client.get("/v1/projects").json()["projects"][0]
    assert client.get("/v1/projects/packages").json() == project
    assert (project["project_id"], project["is_trained"]) == ("packages", True)
    expected = [(str(s.label), s.score) for s in model.suggest(text, k=10) if s.score > 0]
    found = client.post("/v1/projects/packages/suggest", data={"text": text}).json()["results"]
    assert [x["uri"] for x in found] == [label for label, _ in expected]
    assert [x["score"] for x in found] == pytest.approx([score for _, score in expected], abs=2e-6)
    few = client.post("/v1/projects/packages/suggest", data={"text": text, "limit": "2", "threshold": "0.5"}).json()
    assert [x["uri"] for x in few["results"]] == [label for label, score in expected[:2] if score > 0.5]
    documents = {"documents": [{"text": text, "document_id": "a"}, {"text": ""}]}
    batch = client.post("/v1/projects/packages/suggest-batch", params={"limit": 2}, json=documents).json()
    assert [x["document_id"] for x in batch] == ["a", None]
    assert batch[0]["results"] == found[:2]
    assert client.post("/v1/projects/packages/suggest-batch", json={"documents": []}).json() == []
    assert client.get("/v1/").json()["version"]


def test_two_models_of_one_name_are_refused(model_dir, tmp_path):
    other = tmp_path / model_dir.name
    load(model_dir).save(other)
    with pytest.raises(ValueError, match="two models called 'packages'"), running(model_dir, other):
        pass


class TestUpdate:
    """Against the contract: model.update(texts, labels), saved over the old one."""

    @pytest.fixture
    def updatable(self, model_dir, tmp_path, monkeypatch):
        (tmp_path / "token").write_text(TOKEN)
        load(model_dir).save(tmp_path / "packages")
        settings = {"token_file": str(tmp_path / "token"), "allow_update": True, "access_log": False}
        with running(tmp_path / "packages", **settings) as client:
            client.headers["authorization"] = f"Bearer {TOKEN}"
            yield client

    def test_a_model_learns_and_is_served_at_once(self, updatable, monkeypatch):
        from blockxmc import TextClassifier

        taught = []

        def learn(self, *rows):
            taught.append(rows)
            self.classifier_.cost_["taught"] = 2.0

        monkeypatch.setattr(TextClassifier, "update", learn)
        before = updatable.get(MODEL).json()["version"]
        body = {"texts": ["a", "b"], "labels": [["perl"], ["perl", "new"]]}
        answer = updatable.post(f"{MODEL}/update", json=body)
        assert answer.status_code == 200, answer.text
        assert taught == [(["a", "b"], [["perl"], ["perl", "new"]])]
        after = updatable.get(MODEL).json()["version"]
        assert after == answer.json()["version"] != before

    def test_a_model_that_cannot_learn_says_how_to_get_there(self, updatable, monkeypatch):
        from blockxmc import TextClassifier
        from blockxmc.errors import UpdateError

        def refuse(*args):
            raise UpdateError("train it with keep_rows=True")

        monkeypatch.setattr("blockxmc.BlockwiseClassifier.update", refuse, raising=False)
        monkeypatch.setattr(TextClassifier, "update", refuse)
        answer = updatable.post(f"{MODEL}/update", json={"texts": ["a"], "labels": [["perl"]]})
        assert (answer.status_code, answer.json()["detail"]) == (409, "train it with keep_rows=True")

    def test_rows_and_labels_must_agree(self, updatable):
        assert updatable.post(f"{MODEL}/update", json={"texts": ["a"], "labels": []}).status_code == 422
        assert updatable.post(f"{MODEL}/update", json={"texts": ["a", "b"], "labels": [["x"]]}).status_code == 422

    def test_without_the_token_nobody_teaches(self, updatable):
        del updatable.headers["authorization"]
        body = {"texts": ["a"], "labels": [["perl"]]}
        assert updatable.post(f"{MODEL}/update", json=body).status_code == 401

    def test_updates_are_off_unless_asked_for(self, client):
        body = {"texts": ["a"], "labels": [["perl"]]}
        assert client.post(f"{MODEL}/update", json=body).status_code == 403
        assert client.post(f"{MODEL}/labels", json={"labels": {"new": "words"}}).status_code == 403
