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
