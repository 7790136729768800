"""The viewer in a browser: plots, keys, live changes, hostile text, phone, and axe-core.

The browser is Playwright's Chromium or the system's (Debian: ``apt-get install chromium``).
"""

import socket
import threading

import pytest

pytest.importorskip("playwright")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

import uvicorn

from plugins.rlvr_view.tests.reports.made_runs import make_run
from plugins.rlvr_view.tests.viewer.viewed import HOSTILE, draw
from rlvr_core.record.recorder import Recorder
from rlvr_view.viewer.app import application
from rlvr_view.viewer.index import Cache
from rlvr_view.viewer.indexing import update
from rlvr_view.viewer.runs import Runs

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MAPS = "Applying inline style violates"
"""Plotly's style of maps, which are not used, is blocked as it should be."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A running viewer, and its runs: one to be looked at, one in which everything is hostile."""
    root = tmp_path_factory.mktemp("view")
    runs, cache = root / "runs", Cache(root / "cache")
    made = {"plain": make_run(runs, "plain"), "hostile": make_run(runs, "bad", text=HOSTILE, now=1)}
    draw(made["plain"], 8, 16, "p0-0", ["five", "four!"], [0.0, 1.0])
    draw(made["hostile"], 8, 16, "p0-0", [HOSTILE, HOSTILE + "?"], [0.0, 1.0], prompt=HOSTILE)
    for one in made.values():
        update(cache.file(one.path), one.traces / "rollouts.jsonl", threading.Event())
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(Runs(runs), cache), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield f"http://127.0.0.1:{bound.getsockname()[1]}", made
    server.should_exit = True
    thread.join()


@pytest.fixture
def open_page(browse, served):
    address, made = served

    def opened(name, path="", **options):
        at = f"{address}/runs/{made[name].name}{path}" if name else address
        return browse(at, (address, "data:"), MAPS, **options)

    return opened


def test_the_report_is_drawn_and_follows_the_run(open_page, served):
    page = open_page("plain", viewport={"width": 1280, "height": 900})
    place = page.locator('[data-plot="reward"]')
    place.scroll_into_view_if_needed()
    place.locator("svg.main-svg").first.wait_for()
    legend = page.locator('[data-plot="ledger-1"]')
    legend.scroll_into_view_if_needed()
    legend.locator(".legendtext").first.wait_for()
    name = page.get_by_label("Show metrics whose name or meaning contains")
    name.fill("shaped reward")
    assert page.locator("#metric-table tbody:visible").count() == 1
    with Recorder(served[1]["plain"]) as recorder:
        recorder.metrics(8, 8, {"reward/mean": 0.9})
    page.get_by_text("9 of 8", exact=False).first.wait_for(timeout=60_000)
    assert name.input_value() == "shaped reward", "what the reader did stays"
    assert page.told == []


def test_groups_are_browsed_by_keys(open_page):
    page = open_page("plain", "/rollouts?answer=wrong&sort=oldest")
    page.locator("table.list tbody a").first.click()
    page.wait_for_url("**/groups/0.1?**")
    page.keyboard.press("j")
    page.wait_for_url("**/groups/1.3?**")
    page.keyboard.press("Tab")
    page.get_by_label("loss mask").check()
    token = page.locator(".side .t").first
    assert token.evaluate("one => getComputedStyle(one).backgroundColor") != "rgba(0, 0, 0, 0)"
    token.click()
    assert "log-prob -0.100" in page.locator("#readout").inner_text()
    page.get_by_role("link", name="Rollouts").first.click()
    assert page.get_by_label("Completion").input_value() == "wrong", "the filter is kept"
    page.locator("#theme").click()
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.told == []


PAGES = {
    "list": "/rollouts?text=a",
    "group": "/groups/8.16",
    "problem": "/problem?id=p0-0",
    "report": "",
}


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_runs_nothing_fits_a_phone_and_axe_finds_no_fault(open_page, name):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # the report has tests of its own, in both
    for scheme in ("dark",) if name == "report" else ("light", "dark"):
        page = open_page(
            "hostile", PAGES[name], color_scheme=scheme, viewport={"width": 360, "height": 740}
        )
        if name == "report":
            page.locator("#learning").wait_for(timeout=60_000)
        page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
        if name != "report":
            assert "<img src=x onerror=window.owned=1>" in page.locator("main").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.locator("main img, main svg a, main iframe, main script").count() == 0
        faults = axe.Axe().run(page).response["violations"]
        assert [(fault["id"], fault["impact"], fault["nodes"][0]["html"]) for fault in faults] == []
        assert page.evaluate("window.owned") is None
        assert page.told == []


def test_the_table_of_runs_is_readable_by_axe_too(open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page("", color_scheme="dark")
    page.get_by_role("link", name="steps").click()
    assert page.locator("th[aria-sort=descending]").inner_text().strip().startswith("steps")
    assert axe.Axe().run(page).response["violations"] == []
    assert page.told == []
