"""One small model for all tests of the service."""

import pytest
from service_parts import TOKEN, demo_rows, running, train


@pytest.fixture(scope="session")
def demo():
    return demo_rows(0, 1200)


@pytest.fixture(scope="session")
def model_dir(demo, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "packages"
    train(demo, n_neighbors=5).save(path)
    return path


@pytest.fixture(scope="session")
def client(model_dir):
    with running(model_dir, access_log=False) as client:
        yield client


@pytest.fixture
def teachable(demo, tmp_path):
    """A service that takes updates of a model that keeps its rows."""
    texts, labels = demo
    train((texts[:400], labels[:400]), keep_rows=True).save(tmp_path / "packages")
    (tmp_path / "token").write_text(TOKEN)
    settings = {"token_file": str(tmp_path / "token"), "allow_update": True, "access_log": False}
    with running(tmp_path / "packages", **settings) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        client.path = tmp_path / "packages"
        yield client


@pytest.fixture(scope="module")
def browser():
    from browser_parts import BROWSER, playwright

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, client):
    from browser_parts import playwright

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
