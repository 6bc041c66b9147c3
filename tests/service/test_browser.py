"""One text after the other in a real browser: with Playwright's Python package, and a Chromium on the PATH or at $CHROMIUM.

``make test-browser`` runs these; without package or browser they are skipped.
"""

import pytest
from browser_parts import TEXT, downloaded, names, needs_browser, playwright, show
from service_parts import TOKEN, running

from blockxmc.data.corpus import read_corpus

pytestmark = needs_browser
# What a screen reader needs: names for whatever can be used, one h1, labels on fields, no id twice.
NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, a[href], canvas, [role=tab]')]
    .filter((e) => e.offsetParent !== null)
    .filter((e) => !(e.getAttribute('aria-label') || e.innerText?.trim() || e.labels?.length))
    .map((e) => e.outerHTML)"""
REPEATED = """() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
    return ids.filter((id, i) => ids.indexOf(id) !== i); }"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def type_text(page):
    page.fill("#text", TEXT)
    page.wait_for_selector("#suggestions .name")


def accepted(page):
    return [text.removesuffix("×").strip() for text in page.locator("#accepted li:not(.empty)").all_inner_texts()]


def test_suggestions_as_you_type(page, client):
    type_text(page)
    found = client.post("/v1/models/packages/suggest", json={"text": TEXT, "k": 50, "threshold": 0}).json()
    labels = [s["label"] for s in found["results"][0]["suggestions"]]
    first = names(page)
    assert len(first) >= 5
    assert first == labels[: len(first)]
    while page.locator("#more").is_visible():
        page.click("#more")
    assert names(page) == labels
    width = "(e) => e.offsetWidth / e.parentElement.offsetWidth"
    assert page.locator("#suggestions li").first.evaluate(width) > 0.98  # they fill the width
    page.fill("#text", "zzzqq")
    playwright.expect(page.locator("#suggestions")).to_have_text("The model knows no word of this text.")
    page.fill("#text", "")
    playwright.expect(page.locator("#suggestions")).to_have_text("Labels for your text appear here.")


def test_an_example_to_begin_with(page):
    page.click("#example")
    page.wait_for_selector("#suggestions .name")
    assert page.locator("#text").input_value()
    playwright.expect(page.locator("#start")).to_be_hidden()


def test_the_explanation_comes_into_sight_on_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 640})
    type_text(page)
    page.click("#suggestions li:nth-child(5) .ask")
    page.wait_for_selector("#why mark")
    assert page.locator("#why").bounding_box()["y"] < 640


def test_why(page, client):
    type_text(page)
    first = names(page)[0]
    page.click("#suggestions li:first-child .ask")
    page.wait_for_selector("#why mark")
    assert set(page.locator("#why .marked mark").all_inner_texts()) <= set(TEXT.replace(",", "").split())
    assert page.locator("#why .marked").inner_text() == TEXT
    said = page.locator("#why").inner_text()
    assert said.index("In place 1") < said.index("Texts like it") < said.index("Details")
    assert "block" not in said
    body = {"text": TEXT, "labels": [first]}
    near = client.post("/v1/models/packages/explain", json=body).json()["explanations"][0]["neighbors"]
    near.sort(key=lambda one: not one["has_label"])  # texts with the label come first
    for item, one in zip(page.locator("#why .near li").all_inner_texts(), near, strict=True):
        assert item.startswith(one["title"])
        assert item.endswith(" · ".join(one["labels"]))
    playwright.expect(page.locator("#why table")).to_be_hidden()
    page.click("#why summary")
    parts = page.locator("#why table td:last-child").all_inner_texts()
    numbers = [float(part.replace("−", "-")) for part in parts]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.02)  # parts add up to the score
    assert "how common the label is" in page.locator("#why table").inner_text()
    show(page, "why")
    page.click("#suggestions li:first-child .ask")
    playwright.expect(page.locator("#why")).to_have_count(0)


def test_a_label_is_added_by_its_name(page):
    type_text(page)
    page.fill("#missing", "zlib1g")
    page.wait_for_selector("#matches li")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    picked = page.locator("#matches [aria-selected=true] span").first.inner_text()
    page.keyboard.press("Enter")
    assert accepted(page) == [picked]
    playwright.expect(page.locator("#why h3").first).to_have_text(f"Why {picked}?")
    page.fill("#missing", "<img src=x onerror=alert(1)>")  # a name that the model does not know, told as text
    playwright.expect(page.locator("#matches")).to_contain_text("New label: <img")
    page.click("#matches li")
    assert accepted(page) == [picked, "<img src=x onerror=alert(1)>"]
    assert page.locator("main img").count() == 0


def test_accept_copy_and_undo(page):
    type_text(page)
    first, second = names(page)[:2]
    page.click("#suggestions li:nth-child(1) .name")
    page.click("#suggestions li:nth-child(2) .name")
    page.click("#copy-list")
    playwright.expect(page.locator("#said")).to_have_text("Copied the labels.")
    assert page.evaluate("navigator.clipboard.readText()") == f"{first}\n{second}"
    page.click("#suggestions li:nth-child(1) .name")  # once more takes it back
    assert accepted(page) == [second]
    page.click("#undo")
    assert accepted(page) == [first, second]
    page.click(f"[aria-label='Remove {second}']")
    assert accepted(page) == [first]
    assert not page.locator("#teach").is_visible()
    show(page, "accepted")


def test_a_day_by_keys(page, tmp_path):
    """Accept, next, undo without the mouse; all of it comes home as one CSV that training reads."""
    page.focus("#text")
    page.keyboard.insert_text(TEXT)
    page.wait_for_selector("#suggestions .name")
    first = names(page)
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    page.keyboard.press("1")
    page.keyboard.press("u")
    page.keyboard.press("w")
    page.wait_for_selector("#why")
    assert accepted(page) == [first[1]]
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "text"
    assert accepted(page) == []
    page.keyboard.insert_text('=a java; "library"')
    playwright.expect(page.locator("#suggestions .label").first).not_to_have_text(first[0])
    second = names(page)
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.keyboard.press("/")
    page.keyboard.insert_text("python3")
    page.wait_for_selector("#matches li")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    playwright.expect(page.locator("#accepted button")).to_have_count(2)
    assert accepted(page) == [second[0], "python3"]
    page.keyboard.press("u")  # the last label of the second text
    page.keyboard.press("u")
    page.keyboard.press("u")  # goes back to the first text
    playwright.expect(page.locator("#text")).to_have_value(TEXT)
    assert accepted(page) == []
    page.keyboard.press("1")
    page.keyboard.press("n")
    page.keyboard.press("1")
    playwright.expect(page.locator("#accepted button")).to_have_count(1)  # keys wait for the suggestions of their text
    page.reload()  # nothing is lost
    playwright.expect(page.locator("#collected-text")).to_have_text("2 texts labelled")
    page.keyboard.press("?")
    playwright.expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Enter")
    path = downloaded(page, "#download")
    (tmp_path / "labels.csv").write_bytes(path.read_bytes())
    read = read_corpus(tmp_path / "labels.csv")
    assert read.texts == [TEXT, '\'=a java; "library"']  # a spreadsheet runs no formula
    assert read.labels == [[first[0]], [second[0]]]
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#start-over")
    assert page.locator("#text").input_value() == ""


def test_an_address_for_a_text(page, client):
    type_text(page)
    page.click("#share")
    playwright.expect(page.locator("#said")).to_contain_text("Copied a link")
    address = page.evaluate("navigator.clipboard.readText()")
    other = page.context.new_page()
    asked = []
    other.on("request", lambda request: asked.append(request.url))
    other.goto(address)
    other.wait_for_selector("#suggestions .name")
    assert other.locator("#text").input_value() == TEXT
    assert all("parsing" not in url for url in asked[1:])  # the text is in no address that is asked for
    other.close()


@pytest.mark.parametrize("tab", ["suggest", "files", "explore"])
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light")])
def test_usable_by_everybody(page, tab, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.click(f"#tab-{tab}")
    if tab == "suggest":
        type_text(page)
        page.click("#suggestions li:first-child .ask")
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
    page.wait_for_selector("#matches li")
    page.keyboard.press("Enter")
    assert accepted(page) == ["perl"]
    page.click("#teach")
    playwright.expect(page.locator("#said")).to_have_text("The model has learnt this text.", timeout=60_000)
    show(page, "taught")
    page.close()
    assert teachable.get("/v1/models/packages").json()["training_rows"] == 401
    assert rows_with_perl() == before + 1
