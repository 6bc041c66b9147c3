"""Models that learn from what people send back."""

import errno
import os

import pytest
from service_parts import TOKEN, running

from blockxmc import TextClassifier, load

UPDATE = "/v1/models/packages/update"
LABELS = "/v1/models/packages/labels"
TEXTS = [f"a frobnicator of quuxes, number {i}" for i in range(10)]
BODY = {"texts": TEXTS, "labels": [["frobnicator"]] * len(TEXTS)}


def best(client, text):
    found = client.post("/v1/models/packages/suggest", json={"text": text, "k": 1}).json()
    return found["results"][0]["suggestions"][0]["label"], found["version"]


def test_new_texts_and_labels_are_learnt(teachable):
    label, version = best(teachable, TEXTS[0])
    assert label != "frobnicator"
    answer = teachable.post(UPDATE, json=BODY, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] != version
    assert best(teachable, "frobnicator of quuxes") == ("frobnicator", answer.json()["version"])
    # The same is on disk: the next start serves it, too.
    assert load(teachable.path).suggest("frobnicator of quuxes", k=1)[0].label == "frobnicator"
    assert teachable.get("/v1/models/packages").json()["training_rows"] == 410


def test_labels_are_added_by_their_names(teachable):
    version = best(teachable, TEXTS[0])[1]
    answer = teachable.post(
        LABELS, json={"labels": {"frobnicator": ["frobnicators of quuxes", "quuxes"], "zz": "zzyzx"}}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["version"] != version
    found = {"text": "quuxes", "k": 1, "allow": ["frobnicator", "zz"]}
    [label] = teachable.post("/v1/models/packages/suggest", json=found).json()["results"][0]["suggestions"]
    assert label["label"] == "frobnicator"
    # The same is on disk, from where other workers take it.
    assert load(teachable.path).suggest("zzyzx", k=1, allow=["zz"])[0].trained is False
    assert teachable.post(UPDATE, json=BODY, timeout=120).status_code == 200
    assert best(teachable, "frobnicator of quuxes")[0] == "frobnicator"
    assert load(teachable.path).classifier_.label_counts_[-2:].tolist() == [10, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"perl": "perl"}, "has the label 'perl' already"),
        ({"new": " "}, "holds no text"),
        ({"new": "?!", "other": "word"}, "the texts of 'new' hold no word"),
        ({}, "an object with 1 to"),
        ({"new": 3}, "labels['new'] must be a string"),
        (["new"], "an object with 1 to"),
    ],
)
def test_labels_that_cannot_be_added(teachable, given, said):
    version = teachable.get("/v1/models/packages").json()["version"]
    answer = teachable.post(LABELS, json={"labels": given})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert teachable.get("/v1/models/packages").json()["version"] == version


def test_who_may_not_teach(teachable):
    assert teachable.post(UPDATE, json=BODY, headers={"authorization": "Bearer wrong"}).status_code == 401
    more = {"labels": {"frobnicator": "quuxes"}}
    assert teachable.post(LABELS, json=more, headers={"authorization": "Bearer wrong"}).status_code == 401
    short = teachable.post(UPDATE, json={"texts": ["a", "b"], "labels": [["c"]]})
    assert (short.status_code, short.json()["detail"]) == (422, "there are 2 texts but 1 lists of labels")
    assert best(teachable, TEXTS[0])[0] != "frobnicator"


def test_a_full_disk_is_told_and_the_old_model_serves_on(teachable, monkeypatch):
    def full(model, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    version = best(teachable, TEXTS[0])
    monkeypatch.setattr(TextClassifier, "save", full)
    answer = teachable.post(UPDATE, json=BODY, timeout=120)
    assert answer.status_code == 507
    assert "No space left on device" in answer.json()["detail"]
    assert str(teachable.path) not in answer.text
    assert best(teachable, TEXTS[0]) == version


def test_a_model_without_rows_says_how_to_get_one(model_dir, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    load(model_dir).save(tmp_path / "packages")
    settings = {"token_file": str(tmp_path / "token"), "allow_update": True, "access_log": False}
    with running(tmp_path / "packages", **settings) as client:
        answer = client.post(UPDATE, json=BODY, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 409
    assert "keep_rows" in answer.json()["detail"]
    assert str(tmp_path) not in answer.text
