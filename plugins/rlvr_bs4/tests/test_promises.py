"""What every component of the plugin promises."""

from rlvr_devkit.conformance.as_tests import plugin_conformance

# hundreds of pages are made for each of these; test_pages.py and test_web.py look at fewer
MANY_PAGES = ("bs4/pages", "bs4/web", "bs4/bench", "bs4/web-bench")

test_promises = plugin_conformance("bs4", without=MANY_PAGES)
