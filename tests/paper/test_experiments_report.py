import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from experiment_parts import made_results, system_row

from blockxmc.paper.experiments.canvas import Figure
from blockxmc.paper.experiments.page import as_html
from blockxmc.paper.experiments.tables import table_precision, table_recall

LETTER = (("full", ""), ("bp", "-accuracy"), ("bp", "-speed"), ("cbmlc", ""))
CHROMIUM = shutil.which("chromium")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "18dd8db00000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/></svg>'
VOID = {"meta", "img", "br", "hr", "input", "link"}


@pytest.fixture
def page():
    rows = {
        "bibtex/full/leml": system_row((62.0, 38.0, 28.0)),
        "bibtex/bp-accuracy/leml": system_row((63.5, 37.5, 27.5)),
        "bibtex/bp-speed/leml": system_row((9.25, 37.0, 27.0)),
        "bibtex/lpsr/naive-bayes": system_row((50.0, 30.0, 20.0), comment="</script><b>x"),
    }
    results = made_results(rows, {"bibtex/cbmlc/leml": "ValueError: <b>too</b> small"})
    tables = table_precision(results)
    pictures = [Figure(f"f{i}", "A & B", "caption", PIXEL, SVG, tables[0], vector=bool(i)) for i in range(2)]
    sections = [
        ("table-precision", tables, []),
        ("table-recall", table_recall(results), []),
        ("figure-x", [], pictures),
    ]
    return as_html(sections, results)


class Nesting(HTMLParser):
    """Follows the tags and keeps what is needed to judge the page."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_asks_nothing_of_the_network(page):
    parser = Nesting()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    anchors = {value[1:] for name, value in parser.attributes if name == "href" and len(value) > 1}
    assert anchors <= set(parser.ids)
    for name, value in parser.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:image/", "#"))
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub('base64,[^"]*', "", page))


def test_every_number_names_its_raw_row_and_raw_rows_are_inside(page):
    assert 'title="bibtex/full/leml: P@1 = 62.0; published 62.54"' in page
    block = re.search(r'<script type="application/json" id="cells">(.*?)</script>', page, re.S)
    cells = json.loads(block[1])["cells"]
    assert set(re.findall(r'data-cell="([^"]+)"', page)) <= set(cells) | {
        "bibtex/fastxml",
        "bibtex/lf/dismec",
        "bibtex/bp-default",
        *(f"bibtex/{system}-letter{kind}/leml" for system, kind in LETTER),
    }
    assert cells["bibtex/full/leml"]["row"]["P@1"] == 62.0
    assert "hits" not in cells["bibtex/full/leml"]["row"]
    assert cells["bibtex/lpsr/naive-bayes"]["row"]["comment"] == "</script><b>x"
    assert "failed: ValueError: &lt;b&gt;too&lt;/b&gt; small" in page
    assert "<b>too</b>" not in page.replace(block[1], "")


PROBE = """<script>
addEventListener("load", () => {
  const table = document.getElementById("table-precision");
  const column = () => Array.from(table.tBodies[0].rows, row => row.cells[2].textContent);
  const found = { images: Array.from(document.images, image => image.naturalWidth) };
  const heads = table.tHead.rows[0].cells;
  found.order = [column()];
  for (let click = 0; click < 2; click++) { heads[2].querySelector("button").click(); found.order.push(column()); }
  found.sorted = heads[2].getAttribute("aria-sort");
  heads[1].querySelector("button").click();
  found.names = Array.from(table.tBodies[0].rows, row => row.cells[1].textContent);
  table.querySelector('a[data-cell="bibtex/full/leml"]').click();
  found.raw = [document.getElementById("raw").open, document.querySelector("#raw h2").textContent];
  found.row = JSON.parse(document.querySelector("#raw pre").textContent).row["P@1"];
  found.wide = document.documentElement.scrollWidth - innerWidth;
  document.body.innerHTML = "";
  document.body.textContent = "FO" + "UND" + JSON.stringify(found) + "DN" + "UOF";
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_tables_sort_and_figures_show_in_a_browser(page, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", PROBE + "</body>"))
    quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet, "--disable-component-update", "--window-size=500,800"]
    done = subprocess.run(
        [
            *command,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=2000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = json.loads(re.search("FOUND(.*)DNUOF", done.stdout, re.S)[1])
    assert found["images"] == [1, 8]
    assert found["sorted"] == "ascending"
    numbers = [[float(re.match(r"[\d.]+", text)[0]) for text in order if text[0].isdigit()] for order in found["order"]]
    assert numbers == [[62.0, 63.5, 9.25, 50.0], [63.5, 62.0, 50.0, 9.25], [9.25, 50.0, 62.0, 63.5]]
    assert all(text.startswith(("failed", "not computed")) for order in found["order"][1:] for text in order[4:])
    assert found["names"] == sorted(found["names"], key=str.lower)
    assert found["raw"] == [True, "bibtex/full/leml"]
    assert found["row"] == 62.0
    assert found["wide"] <= 0  # on a narrow screen tables scroll, the page does not
