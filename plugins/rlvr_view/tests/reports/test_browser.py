"""The page in a browser: clicks, hostile text, light, dark, phone, paper, and axe-core.

The browser is Playwright's Chromium or the system's (Debian: ``apt-get install chromium``).
"""

import pytest
from click.testing import CliRunner

from plugins.rlvr_view.tests.reports.made_runs import make_run
from rlvr_view.report.command import report

pytest.importorskip("playwright.sync_api")
pytest.importorskip("plotly")

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OWNED = "window.owned=1"
HOSTILE = (
    f"<script>{OWNED}</script></script><script>{OWNED}</script><img src=x onerror={OWNED}>"
    f"<svg onload={OWNED}><a href='javascript:{OWNED}'>click</a><div><table><textarea><!-- ]]>"
    "\x00\x1b[2J\u202eright to left\u2028 مرحبا %{x} {{ 7*7 }} \ud800"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of one run, of two, and of a run in which everything is hostile."""
    root = tmp_path_factory.mktemp("reports")
    runs = root / "runs"
    text = HOSTILE + "x" * 1_000_000
    folders = {
        "one": [make_run(runs, "one")],
        "two": [make_run(runs, "one", now=1), make_run(runs, "two", lr=0.2, last=3)],
        "hostile": [make_run(runs, "hostile", text=text, dataset=HOSTILE)],
    }
    for name, made in folders.items():
        words = [*(str(one.path) for one in made), "--out", str(root / f"{name}.html")]
        assert CliRunner().invoke(report, words, catch_exceptions=False).exit_code == 0
    return root


@pytest.fixture
def open_page(browse, pages):
    return lambda name, **options: browse((pages / f"{name}.html").as_uri(), "file:", **options)


def drawn(page, plot):
    place = page.locator(f'[data-plot="{plot}"]').first
    place.scroll_into_view_if_needed()
    place.locator("svg.main-svg").first.wait_for()
    return place


def test_plots_are_drawn_as_they_are_reached_and_explained_on_hover(open_page):
    page = open_page("one", viewport={"width": 1280, "height": 900})
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator("svg.main-svg").first.wait_for()
    place = drawn(page, "metric-lr")
    box = place.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = place.locator(".hovertext")
    hover.wait_for()
    assert "Learning rate of the step." in hover.text_content()
    assert page.told == []


def test_a_metric_is_found_drawn_and_removed(open_page):
    page = open_page("two")
    page.get_by_label("Show metrics whose name or meaning contains").fill("shaped reward")
    rows = page.locator("#metric-table tbody:visible")
    assert rows.count() == 1
    page.get_by_role("button", name="reward/mean", exact=True).click()
    asked = page.locator("#asked-metric-reward-mean")
    asked.locator("svg.main-svg").first.wait_for()
    assert asked.locator(".legendtext").count() == 2
    page.get_by_role("button", name="Remove reward/mean").click()
    assert asked.count() == 0
    assert page.told == []


def test_samples_are_filtered_and_opened(open_page):
    page = open_page("one")
    page.get_by_role("button", name="wrong", exact=True).click()
    groups = page.locator(".group:visible")
    assert groups.count() > 0
    assert set(groups.evaluate_all("all => all.map(one => one.dataset.outcome)")) == {"wrong"}
    groups.first.locator("summary").click()
    assert groups.first.locator(".completion pre").first.inner_text() == "four"
    assert page.get_by_role("button", name="wrong", exact=True).get_attribute("aria-pressed") == (
        "true"
    )


def test_hostile_text_is_shown_and_runs_nothing(open_page):
    page = open_page("hostile")
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator("svg.main-svg").first.wait_for()
    shown = page.locator(".completion pre").first.inner_text()
    assert shown.startswith(HOSTILE.partition("\x00")[0])
    assert r"\x00\x1b[2J\u202eright to left\u2028 مرحبا %{x} {{ 7*7 }} \ud800" in shown
    ticks = drawn(page, "kinds-1").locator(".ytick").first.text_content()
    assert ticks.startswith(f"<script>{OWNED}")
    assert page.locator("main img, main svg a, main iframe, main textarea").count() == 0
    assert page.evaluate("window.owned") is None
    assert page.told == []


def test_the_policy_stops_a_script_that_got_in_all_the_same(open_page):
    page = open_page("one")
    for attack in (
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.owned=1\">')",
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.owned=1'}))",
    ):
        with page.expect_console_message(lambda told: "Content Security Policy" in told.text):
            page.evaluate(attack)
    assert page.evaluate("window.owned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["two", "hostile"])
def test_a_phone_needs_no_scrolling_sideways_and_axe_finds_no_fault(open_page, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_page(name, color_scheme=scheme, viewport={"width": 360, "height": 740})
    drawn(page, "pass-rate")
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    faults = axe.Axe().run(page).response["violations"]
    assert [(fault["id"], fault["impact"]) for fault in faults] == []
