"""Look at the built documentation in a real browser, from disk: python tools/check_site.py [--screenshots DIR].

Every page at the width of a phone and of a desk: no error in the console, nothing wider than the window, no dead internal
link; and the search finds a word. Needs playwright and a Chromium (`make docs-check`).
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
WIDTHS = {"phone": 390, "desk": 1280}
LEFT_OUT = {"genindex.html", "py-modindex.html", "search.html"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--screenshots", type=Path)
    options = parser.parse_args()
    pages = sorted(page for page in SITE.rglob("*.html") if page.name not in LEFT_OUT and "_static" not in page.parts)
    if not pages:
        sys.exit(f"{SITE} is empty: run make docs first")
    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    faults = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, width in WIDTHS.items():
            tab = browser.new_page(viewport={"width": width, "height": 900})
            said = []
            tab.on("console", lambda message, said=said: said.append(message.text) if message.type == "error" else None)
            tab.on("pageerror", lambda error, said=said: said.append(str(error)))
            for page in pages:
                faults += look(tab, page, name, said, options.screenshots)
        faults += search(browser)
        browser.close()
    print(f"{len(pages)} pages at {len(WIDTHS)} widths")
    if faults:
        sys.exit("\n".join(faults))


def look(tab, page, name, said, screenshots):
    said.clear()
    tab.goto(page.as_uri(), wait_until="load")
    where = f"{page.relative_to(SITE)} ({name})"
    faults = [f"{where}: {text}" for text in said]
    wider = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wider > 1:
        faults.append(f"{where}: {wider} px wider than the window")
    if name == "desk":
        for link in tab.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            parts = urlsplit(link)
            if parts.scheme == "file" and not Path(unquote(parts.path)).exists():
                faults.append(f"{where}: dead link {unquote(parts.path)}")
    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=screenshots / f"{name}-{'-'.join(page.relative_to(SITE).with_suffix('').parts)}.png")
    return faults


def search(browser):
    tab = browser.new_page()
    tab.goto((SITE / "search.html").as_uri() + "?q=propensity")
    tab.wait_for_selector("#search-results li", timeout=20_000)
    return [] if tab.locator("#search-results li").count() else ["search finds nothing"]


if __name__ == "__main__":
    main()
