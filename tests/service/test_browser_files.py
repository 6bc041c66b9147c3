"""Files and exploring in a real browser: with Playwright's Python package, and a Chromium on the PATH or at $CHROMIUM.

``make test-browser`` runs these; without package or browser they are skipped.
"""

import csv
import json

import pytest
from browser_parts import downloaded, names, needs_browser, playwright, show

from blockxmc.data.corpus import read_corpus

pytestmark = needs_browser


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file(page, client, demo, tmp_path, kind):
    texts = demo[0][:250]
    path = tmp_path / f"texts.{kind}"
    if kind == "csv":
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows(
                [["id", "text"], *([i, text + ' "quoted",\nline'] for i, text in enumerate(texts))]
            )
    else:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    page.click("#tab-files")
    page.set_input_files("#file", path)
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 250 texts of")
    assert page.locator("#answers tbody tr").count() == 200
    show(page, "file")
    with page.expect_download() as download:
        page.click("#download-jsonl")
    found = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert len(found) == 250
    if kind == "jsonl":
        body = {"texts": texts, "threshold": "f1"}
        expected = client.post("/v1/models/packages/suggest", json=body).json()["results"]
        assert [row["labels"] for row in found] == [[s["label"] for s in row["suggestions"]] for row in expected]
    (tmp_path / "back.csv").write_bytes(downloaded(page, "#download-csv").read_bytes())
    back = read_corpus(tmp_path / "back.csv")
    assert back.labels == [row["labels"] for row in found]


def test_a_file_from_a_spreadsheet(page, tmp_path):
    """Semicolons, Windows-1252, a text column of another name, an id, a quoted line end, an empty cell."""
    path = tmp_path / "books.csv"
    rows = 'ID;Titel;Zusammenfassung\r\nb1;Kürze;"Ein perl-Modul; für ""XML"",\nmit Tests"\r\nb2;Leer;\r\n'
    path.write_bytes(rows.encode("cp1252"))
    page.click("#tab-files")
    page.set_input_files("#file", path)
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 2 texts of books.csv. It is not UTF-8")
    assert page.locator("#column option").all_inner_texts() == ["ID", "Titel", "Zusammenfassung"]
    assert page.locator("#answers tbody td").nth(0).inner_text().startswith("Ein perl-Modul; für")
    with page.expect_download() as download:
        page.click("#download-jsonl")
    found = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [row["id"] for row in found] == ["b1", "b2"]
    assert found[0]["text"] == 'Ein perl-Modul; für "XML",\nmit Tests'
    page.select_option("#column", "1")
    playwright.expect(page.locator("#answers tbody td").nth(0)).to_have_text("Kürze")
    playwright.expect(page.locator("#column-control")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.jsonl", b"{not JSON", "Line 1 is not valid JSON"),
        ("books.xlsx", b"PK\3\4 and more", "save"),
        ("books.csv", b"PK\3\4 and more", "CSV UTF-8"),
        ("picture.csv", b"text\n\0\1\2", "no text file"),
        ("empty.csv", b"", "holds no text"),
    ],
)
def test_after_a_file_that_cannot_be_read_nothing_of_the_last_one_stays(page, tmp_path, name, content, words):
    (tmp_path / "good.csv").write_text("text,more\na perl parser,1\n")
    (tmp_path / name).write_bytes(content)
    page.click("#tab-files")
    page.set_input_files("#file", tmp_path / "good.csv")
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 1 texts of good.csv")
    page.set_input_files("#file", tmp_path / name)
    playwright.expect(page.locator("#trouble")).to_contain_text(words)
    for gone in ("#answers", "#column-control", "#progress"):
        playwright.expect(page.locator(gone)).to_be_hidden()
    for button in ("#one-by-one", "#download-csv", "#download-jsonl"):
        playwright.expect(page.locator(button)).to_be_disabled()
    assert page.locator("#answers tbody tr").count() == 0
    page.set_input_files("#file", tmp_path / "good.csv")
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 1 texts of good.csv")
    playwright.expect(page.locator("#trouble")).to_be_hidden()


def test_the_texts_of_a_file_one_by_one(page, demo, tmp_path):
    with open(tmp_path / "records.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([f"r{i}", text] for i, text in enumerate(demo[0][:3]))])
    page.set_viewport_size({"width": 390, "height": 800})
    page.click("#tab-files")
    page.set_input_files("#file", tmp_path / "records.csv")
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 3 texts of")
    text, labels = (page.locator("#answers tbody td").nth(i).bounding_box() for i in range(2))
    assert labels["y"] >= text["y"] + text["height"]  # under the text, on a phone
    page.click("#one-by-one")
    taken = []
    for i in range(3):
        playwright.expect(page.locator("#place")).to_have_text(f"{i + 1} of 3")
        page.wait_for_selector("#suggestions .name")
        taken.append(names(page)[0])
        page.click("#suggestions li:first-child .name")
        page.click("#next")
    read = list(csv.DictReader(downloaded(page, "#download").read_text("utf-8-sig").splitlines()))
    assert [(row["id"], row["labels"]) for row in read] == [(f"r{i}", label) for i, label in enumerate(taken)]


def test_explore(page, client):
    page.keyboard.press("Tab")
    page.focus("#tab-suggest")
    page.keyboard.press("ArrowLeft")  # round to the last tab
    page.wait_for_selector("#blocks tbody tr")
    playwright.expect(page.locator("#map-text")).to_contain_text("blocks")
    playwright.expect(page.locator("#found button")).to_have_count(8)  # the most frequent ones
    page.fill("#find", "python3")
    playwright.expect(page.locator("#found-title")).to_have_text("Labels found")
    page.click("#found button")
    page.wait_for_selector("#label-card h2")
    assert page.locator("#label-card h2").inner_text() == "python3"
    page.click("#zoom-in")
    page.focus("#map")
    for key in ("ArrowRight", "ArrowDown", "+", "-", "0"):
        page.keyboard.press(key)
    page.click("#map", position={"x": 50, "y": 5})
    page.wait_for_selector("#block-card h2")
    drawn = client.get("/v1/models/packages/map").json()
    row = 5 / page.locator("#map").bounding_box()["height"] * drawn["rows"]
    block = max(i for i, offset in enumerate(drawn["offsets"]) if offset <= row)
    assert page.locator("#block-card h2").inner_text() == f"Block {block}"
    show(page, "explore")
    colours = "() => new Set(document.querySelector('#map').getContext('2d').getImageData(0, 0, 400, 300).data).size"
    assert page.evaluate(colours) > 2
