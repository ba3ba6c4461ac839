"""A real browser, and pages in it."""

import shutil
from pathlib import Path

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
        assert path, "no browser: apt-get install --no-install-recommends chromium-headless-shell"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens an address or a file. ``page.outside`` has what it asked of other addresses, and
    ``page.problems`` what its scripts have said.
    """
    contexts = []

    def open_it(where, width=1280, **more):
        address = where.as_uri() if isinstance(where, Path) else where
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        page = context.new_page()
        page.outside, page.problems = [], []
        own = address if address.startswith("http") else "file:"
        page.on("request", lambda r: r.url.startswith(own) or page.outside.append(r.url))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda told: page.problems.append(told.text))
        page.goto(address)
        return page

    yield open_it
    for context in contexts:
        context.close()
