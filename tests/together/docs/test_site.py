"""``make docs`` makes a whole site of the pages, which needs no other host."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def build(source, target, *options):
    """Build a site as ``make docs`` does."""
    (recipe,) = re.findall(r"python -m sphinx (.+) \$\(SITE\) docs build/site", _makefile())
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *recipe.split(), *options, source, target],
        capture_output=True,
        text=True,
        check=False,
    )


def _makefile():
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_site_is_whole_and_stands_alone(tmp_path):
    done = build(ROOT / "docs", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    made = {page.stem: page.read_text(encoding="utf-8") for page in tmp_path.glob("*.html")}
    assert pages <= set(made)
    for name, text in made.items():
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preload)"[^>]*href="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]*href="([^"]+)"[^>]*rel="(?:stylesheet|preload)"', text)
        assert [url for url in loaded if "//" in url] == [], name
    assert 'href="tutorial.html"' in made["index"]
    assert "From other frameworks" in made["losses"]  # the navigation is on every page
    # nothing on a site without scripts draws these; figures are drawn in text
    for page in (ROOT / "docs").glob("*.md"):
        assert "```mermaid" not in page.read_text(encoding="utf-8"), page
    assert '<code class="docutils literal notranslate">' in made["losses"]
    index = (tmp_path / "searchindex.js").read_text(encoding="utf-8")
    assert all(word in index for word in ("watchdog", "dapo", "sagemak"))


@pytest.fixture
def source(tmp_path):
    """A folder of pages with the site's configuration, and a module beside it."""
    (tmp_path / "rlvr_core").mkdir()
    (tmp_path / "rlvr_core" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", docs)
    shutil.copytree(ROOT / "docs" / "_ext", docs / "_ext")
    (docs / "index.md").write_text("# Home\n\n## Start\n\n- [A page](page.md): it\n")
    return docs


def test_a_link_to_a_file_is_text_or_leads_to_the_repository(source, tmp_path):
    page = "# Page\n\nSee [the code](../rlvr_core/__init__.py) and [`rlvr_core`](../rlvr_core).\n"
    page += "\nBack to [index.md](index.md#start) --set.\n"
    (source / "page.md").write_text(page + "\n```\n[left](../alone.py)\n```\n")
    done = build(source, tmp_path / "plain")
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "plain" / "page.html").read_text(encoding="utf-8")
    words = re.sub(r"<[^>]+>", "", text)
    assert "See the code (rlvr_core/__init__.py) and rlvr_core." in words
    assert "[left](../alone.py)" in words
    assert "Back to Home --set." in words
    done = build(source, tmp_path / "linked", "-D", "source_url=https://host/o/n/blob/main")
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "linked" / "page.html").read_text(encoding="utf-8")
    assert 'href="https://host/o/n/blob/main/rlvr_core/__init__.py"' in text


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (
            "See [it](../rlvr_core/gone.py).",
            "link to a file that does not exist: ../rlvr_core/gone",
        ),
        ("See [it](gone.md).", "cross-reference target not found: 'gone.md'"),
        ("See [it](#nowhere).", "nowhere"),
        ("```yaml\na: [\n```\nSee [it](index.md#gone).", "gone"),
    ],
)
def test_a_broken_link_is_an_error(source, tmp_path, page, message):
    (source / "page.md").write_text(f"# Page\n\n{page}\n")
    done = build(source, tmp_path / "site")
    assert done.returncode != 0
    assert message in done.stderr
    assert "page.md" in done.stderr


def test_a_page_that_the_index_does_not_list_is_an_error(source, tmp_path):
    (source / "page.md").write_text("# Page\n")
    (source / "other.md").write_text("# Other\n")
    done = build(source, tmp_path / "site")
    assert done.returncode != 0
    assert "other.md" in done.stderr
