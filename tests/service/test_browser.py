"""The page in a real browser: Playwright's Python package, and a Chromium on the PATH or at $CHROMIUM.

``make test-browser`` runs these; without package or browser they are skipped.
"""

import csv
import io
import json
import os
import shutil

import pytest
from service_parts import TOKEN, running

playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright: make test-browser")
BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH, or CHROMIUM=/path/to/it")
TEXT = "python3 module for parsing HTTP requests, with a perl script"
# What a screen reader needs: names for whatever can be used, one h1, labels on fields, no id twice.
NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, a[href], canvas, [role=tab]')]
    .filter((e) => e.offsetParent !== null)
    .filter((e) => !(e.getAttribute('aria-label') || e.innerText?.trim() || e.labels?.length))
    .map((e) => e.outerHTML)"""
REPEATED = """() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
    return ids.filter((id, i) => ids.indexOf(id) !== i); }"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, client):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], accept_downloads=True)
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(str(client.base_url))
    playwright.expect(page.locator("#about")).to_contain_text("labels")
    yield page
    context.close()
    # Chromium notes every refused request; the page tells the user why.
    assert [line for line in said if "status of 422" not in line] == []


def type_text(page):
    page.fill("#text", TEXT)
    page.wait_for_selector("#suggestions li")


def show(page, name):
    """Keep a picture where somebody wants to look at it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def names(page):
    return page.locator("#suggestions .name span:nth-child(2)").all_inner_texts()


def test_suggestions_as_you_type(page, client):
    type_text(page)
    page.evaluate("document.querySelector('#threshold').value = 0")
    page.dispatch_event("#threshold", "input")
    found = client.post("/v1/models/packages/suggest", json={"text": TEXT, "k": 50, "threshold": 0}).json()
    assert names(page) == [s["label"] for s in found["results"][0]["suggestions"]]
    page.evaluate("document.querySelector('#threshold').value = 60")
    page.dispatch_event("#threshold", "input")
    assert names(page) == [s["label"] for s in found["results"][0]["suggestions"] if s["score"] > 0.6]
    page.fill("#text", "")
    playwright.expect(page.locator("#suggestions li")).to_have_count(0)


def test_less_likely_labels_and_the_next_text(page):
    type_text(page)
    page.evaluate("document.querySelector('#threshold').value = 100")
    page.dispatch_event("#threshold", "input")
    assert names(page) == []
    page.click("#more")
    few = len(names(page))
    page.click("#more")
    assert 5 <= few < len(names(page))
    page.click("#suggestions li:first-child [aria-label^=Accept]")
    assert page.locator("#accepted li").count() == 1
    page.click("#new-text")  # what was accepted for one text is not accepted for the next
    assert page.locator("#text").input_value() == ""
    assert page.locator("#accepted li").count() == page.locator("#suggestions li").count() == 0
    assert page.evaluate("document.activeElement.id") == "text"


def test_the_explanation_comes_into_sight_on_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 640})
    type_text(page)
    page.click("#suggestions li:first-child .name")
    page.wait_for_selector("#why mark")
    assert page.locator("#why h2").bounding_box()["y"] < 640


def test_why_and_why_not(page):
    type_text(page)
    page.click("#suggestions li:first-child .name")
    page.wait_for_selector("#why mark")
    assert page.locator("#why h2").inner_text() == f"Why {names(page)[0]}?"
    assert set(page.locator("#why .marked mark").all_inner_texts()) <= set(TEXT.replace(",", "").split())
    assert page.locator("#why .marked").inner_text() == TEXT
    show(page, "why")
    page.fill("#missing", "zlib1g")
    page.wait_for_selector("#missing-names option", state="attached")
    page.fill("#missing", "zlib1g-dev")
    page.click("#why-not button")
    playwright.expect(page.locator("#why h2")).to_have_text("Why zlib1g-dev?")
    assert "rank" in page.locator("#why").inner_text() or "block" in page.locator("#why").inner_text()
    page.fill("#missing", "<img src=x onerror=alert(1)>")  # told as text, by the service's own words
    page.click("#why-not button")
    playwright.expect(page.locator("#trouble")).to_contain_text("does not know")
    assert page.locator("#trouble img").count() == 0


def test_accept_reject_copy(page):
    type_text(page)
    first, second = names(page)[:2]
    page.click("#suggestions li:nth-child(1) [aria-label^=Accept]")
    page.click("#suggestions li:nth-child(2) [aria-label^=Accept]")
    page.click("#copy-list")
    playwright.expect(page.locator("#copied")).to_have_text("Copied a list.")
    assert page.evaluate("navigator.clipboard.readText()") == f"{first}\n{second}"
    page.click("#copy-csv")
    playwright.expect(page.locator("#copied")).to_have_text("Copied CSV.")
    assert page.evaluate("navigator.clipboard.readText()") == f"{first},{second}"
    page.click("#suggestions li:nth-child(1) [aria-label^=Reject]")
    assert page.locator("#accepted li").all_inner_texts()[0].startswith(second)
    assert page.locator("#suggestions li.rejected").count() == 1
    assert not page.locator("#teach").is_visible()
    show(page, "accepted")


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
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 250 texts")
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
    with page.expect_download() as download:
        page.click("#download-csv")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_bytes().decode(), newline="")))
    assert len(rows) == sum(len(row["labels"]) for row in found)


def test_a_file_from_a_spreadsheet(page, tmp_path):
    """Semicolons, Windows-1252, a text column of another name, an id, a quoted line end, an empty cell."""
    path = tmp_path / "books.csv"
    rows = 'ID;Titel;Zusammenfassung\r\nb1;Kürze;"Ein perl-Modul; für ""XML"",\nmit Tests"\r\nb2;Leer;\r\n'
    path.write_bytes(rows.encode("cp1252"))
    page.click("#tab-files")
    page.set_input_files("#file", path)
    playwright.expect(page.locator("#file-state")).to_contain_text("Done: 2 texts. It is not UTF-8")
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
    (tmp_path / "none.jsonl").write_text("{not JSON")
    page.set_input_files("#file", tmp_path / "none.jsonl")
    playwright.expect(page.locator("#column-control")).to_be_hidden()


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


@pytest.mark.parametrize("tab", ["suggest", "files", "explore"])
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light")])
def test_usable_by_everybody(page, tab, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.click(f"#tab-{tab}")
    if tab == "suggest":
        type_text(page)
        page.click("#suggestions li:first-child .name")
        page.wait_for_selector("#why mark")
    if tab == "explore":
        page.wait_for_selector("#blocks tbody tr")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(REPEATED) == []
    assert page.evaluate(WIDER) <= 0
    assert page.locator("h1").count() == 1
    assert page.evaluate(CONTRAST) == []
    show(page, f"{tab}-{width}-{scheme}")


# Text and its background differ enough to be read (WCAG 2 AA: 4.5 to 1), wherever the background is one colour.
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const parse = (colour) => (colour.startsWith('color(srgb') ? numbers(colour).map((v) => 255 * v) : numbers(colour));
  const f = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => { return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')]
    .filter((e) => e.offsetParent !== null && !e.disabled)
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .filter((e) => { const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5; })
    .map((e) => e.outerHTML.slice(0, 120)); }"""


def test_a_token_is_asked_for_and_kept_for_the_tab(browser, model_dir, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with running(model_dir, token_file=str(tmp_path / "token"), access_log=False) as closed:
        page = browser.new_page()
        page.goto(str(closed.base_url))
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#token-dialog[open]")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        playwright.expect(page.locator("#about")).to_contain_text("labels")
        page.reload()
        playwright.expect(page.locator("#about")).to_contain_text("labels")
        page.close()


def test_what_is_accepted_teaches_the_model(browser, teachable):
    def rows_with_perl():
        return teachable.get("/v1/models/packages/labels?q=perl").json()["labels"][0]["training_rows"]

    before, page = rows_with_perl(), browser.new_page()
    page.goto(str(teachable.base_url))
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#about")).to_contain_text("labels")
    page.fill("#text", "frobnicates quuxes of the first kind")
    page.fill("#missing", "perl")  # nobody suggests it for this
    page.keyboard.press("Enter")
    page.click("#why button:has-text('Accept')")
    assert page.locator("#accepted li").count() == 1
    page.click("#teach")
    playwright.expect(page.locator("#copied")).to_have_text("The model has learnt this text.", timeout=60_000)
    show(page, "taught")
    page.close()
    assert teachable.get("/v1/models/packages").json()["training_rows"] == 401
    assert rows_with_perl() == before + 1
