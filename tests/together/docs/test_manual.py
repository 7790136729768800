"""``rlvr docs`` prints the pages; what messages and examples name is there, without a clone."""

import re

import pytest
from click.testing import CliRunner

from rlvr_core.api import ConfigError
from rlvr_core.cli.manual.command import docs
from rlvr_core.cli.manual.pages import listed, read_page, sections
from tests.support import pages

ROOT = pages.ROOT
PAGES = sorted((ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"rlvr docs ([a-z][a-z-]*(?:#[a-z][a-z0-9_-]*)?)")


def test_every_page_but_the_index_is_listed_once():
    assert sorted(name for name, _ in listed()) == sorted({one.stem for one in PAGES} - {"index"})
    assert "[" not in "".join(said for _, said in listed()), "links are no use in a terminal"


@pytest.mark.parametrize("asked", ["guards", "docs/guards.md", "./docs/guards.md", "Guards"])
def test_a_page_is_found_by_its_name_and_as_messages_write_it(asked):
    assert read_page(asked) == (ROOT / "docs" / "guards.md").read_text(encoding="utf-8")


def test_a_section_ends_where_the_next_of_its_level_begins():
    deep = "### Deep, `er`\ny\n\n```\n## no heading\n```\n"
    text = f"# A\n\n## One\nx\n\n{deep}## Two\nz\n## One\nw\n"
    found = {one.anchor: one.text for one in sections(text)}
    assert list(found) == ["a", "one", "deep-er", "two", "one-1"]
    assert found["a"] == text
    assert found["one"] == f"## One\nx\n\n{deep}"
    assert found["deep-er"] == deep
    assert found["one-1"] == "## One\nw\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_sections_are_those_that_links_go_to(page):
    text = page.read_text(encoding="utf-8")
    assert [one.anchor for one in sections(text)] == list(pages.anchors(page))


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("gards", "did you mean: guards"),
        ("guards#paritty", "did you mean: parity"),
        ("../README", "all of them: rlvr docs"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(asked, hint):
    with pytest.raises(ConfigError) as caught:
        read_page(asked)
    assert hint in str(caught.value)


def test_the_command_prints_a_section_and_lists_pages():
    printed = CliRunner().invoke(docs, ["guards#parity"])
    assert printed.exit_code == 0
    assert printed.output.startswith("## parity")
    assert "\n## " not in printed.output
    assert "tutorial" in CliRunner().invoke(docs, []).output


def _texts(folder, *endings):
    for ending in endings:
        for file in folder.rglob(f"*{ending}"):
            if "build" not in file.relative_to(ROOT).parts:
                yield file, file.read_text(encoding="utf-8")


def test_every_page_that_messages_and_examples_name_is_there():
    named = {
        (found, file)
        for folder in ("rlvr_core", "plugins", "examples")
        for file, text in _texts(ROOT / folder, ".py", ".yaml", ".md", ".tmpl", ".j2", ".toml")
        for found in NAMED.findall(text)
    }
    assert len(named) > 50
    for found, file in named:
        assert read_page(found), file


def test_no_link_leaves_the_folder_of_an_example():
    """It would lead nowhere in a copy."""
    checked = 0
    for folder in (one for one in (ROOT / "examples").iterdir() if one.is_dir()):
        for page in folder.rglob("*.md"):
            checked += 1
            for target in pages.links(page):
                place = (page.parent / target.partition("#")[0]).resolve()
                assert place.is_relative_to(folder), f"{page}: {target}"
                assert place.exists(), f"{page}: {target}"
            assert not re.search(r"docs/[\w-]+\.md", page.read_text(encoding="utf-8")), page
    assert checked > 5
