import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def browser():
    """Playwright's Chromium or the system's."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        names = ("chromium", "chromium-browser", "google-chrome")
        found = own if Path(own).exists() else next(filter(None, map(shutil.which, names)), None)
        if found is None:
            pytest.skip("no Chromium is installed: playwright install chromium")
        # Chromium's sandbox does not start for root, as in most containers
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=found, args=flags)
        yield launched
        launched.close()


@pytest.fixture
def browse(browser):
    """Opens an address in a context of its own; ``told`` has what the page said or asked for.

    ``allowed`` are the beginnings of addresses that it may ask for; text with ``quiet`` is no news.
    """
    contexts = []

    def opened(address, allowed, quiet=None, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.told = []

        def tell(text):
            if quiet is None or quiet not in text:
                page.told.append(text)

        def asked(request):
            if not request.url.startswith(allowed):
                page.told.append(request.url)

        page.on("console", lambda message: tell(message.text))
        page.on("pageerror", lambda error: tell(str(error)))
        page.on("dialog", lambda dialog: tell("a dialog"))
        page.on("request", asked)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
