"""What tests of the page in a real browser share."""

import os
import shutil

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright: make test-browser")
BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH, or CHROMIUM=/path/to/it")
TEXT = "python3 module for parsing HTTP requests, with a perl script"


def show(page, name):
    """Keep a picture where somebody wants to look at it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def names(page):
    return page.locator("#suggestions .label").all_inner_texts()


def downloaded(page, button):
    with page.expect_download() as download:
        page.click(button)
    return download.value.path()
