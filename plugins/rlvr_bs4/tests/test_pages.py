"""The document tree, the furniture around content, and texts of other scripts."""

from __future__ import annotations

import unicodedata

import pytest
from bs4 import BeautifulSoup

from rlvr_bs4 import words
from rlvr_bs4.archetype import Body
from rlvr_bs4.chrome import Chrome
from rlvr_bs4.dom import Comment, Element, Raw, depth, document, elements, h, matches, serialize
from rlvr_bs4.generate import generate
from rlvr_bs4.site import PARSERS, resolve
from rlvr_bs4.sizes import SIZES
from rlvr_bs4.world import World, cents, dollars, stream
from tests.support.tables import table


def test_elements_are_written_and_escaped():
    node = h(
        "p#a.b.c", "1 < 2 & 3", h("br"), Comment("x"), Raw("&eacute;"), data_x='"q"', for_=None
    )
    assert serialize(node) == (
        '<p class="b c" id="a" data-x="&quot;q&quot;" for>'
        "1 &lt; 2 &amp; 3<br><!-- x -->&eacute;</p>"
    )
    assert serialize(h("script", "a < b && c")) == "<script>a < b && c</script>"
    assert serialize(Element("p", {"class": "a"}, ["x"], unclosed=True, unquoted=True)) == (
        "<p class=a>x"
    )
    with pytest.raises(ValueError, match="not a tag"):
        h("p #a")


def test_compound_selectors_agree_with_the_library():
    root = h("div#r.x", h("p.a.b", data_k="v"), h("p.a-b"), h("p#b.b"), h("i", name="n m"))
    soup = BeautifulSoup(serialize(root), "html.parser")
    for css in ("p", ".b", "#b", "p.b", "p.a.b", '[data-k="v"]', "[data-k]", "i", '[name="n m"]'):
        ours = [one for one in elements(root) if matches(one, css)]
        assert len(ours) == len(soup.select(css)), css
    with pytest.raises(ValueError, match="compound"):
        matches(root, "div p")
    assert depth(root) == 2


@pytest.mark.parametrize("size", ["small", "medium", "large"])
@pytest.mark.parametrize("parser", PARSERS)
def test_furniture_leaves_content_as_it_was(size, parser):
    """Whatever is around it, content comes out of the parser as it does alone."""
    content = h("section#keep", "\n a ", h("b", "c"), h("ul", h("li", "d"), h("li", "e")), " f")
    alone = str(BeautifulSoup(serialize(content), "html.parser"))
    for seed in range({"small": 12, "medium": 4, "large": 1}[size]):
        chrome = Chrome(stream("furniture test", seed, size))
        html = document(chrome.page(Body((content,)), SIZES[size]))
        found = BeautifulSoup(html, parser).select("#keep")
        assert [str(one) for one in found] == [alone]
        assert chrome.canaries
        assert all(secret in html for secret in chrome.canaries)


@pytest.mark.parametrize(
    ("href", "leads"),
    [
        *table(__file__, "links"),
        *((half, None) for half in ("\ud800", "/a\udfff", "?\ud800#x", "http://\ud800/")),
    ],
)
def test_links_are_resolved_as_browsers_do(href, leads):
    paths = ("", "b", "?page=2", "caf%C3%A9", "a%20b")
    pages = {f"https://s.example/{path}": "" for path in paths}
    assert resolve("https://s.example/", href, pages) == leads


def test_foreign_texts_are_whole():
    for seed in range(20):
        task = generate("mvp.extract_multilingual", seed, "bare")
        assert unicodedata.normalize("NFC", task.answer) == task.answer
        rtl = generate("mvp.extract_rtl", seed, "bare")
        assert 'dir="rtl"' in rtl.html
        assert any(word in rtl.answer for code in words.RTL for word in words.LANGUAGES[code])
    joined = [generate("mvp.extract_emoji_content", seed, "bare").answer for seed in range(40)]
    assert 4 <= sum("\u200d" in one for one in joined) <= 22
    mixed = [generate("mvp.extract_text_by_id", seed, "bare").answer for seed in range(200)]
    assert 15 <= sum(not one.isascii() for one in mixed) <= 70


def test_every_word_list_is_clean():
    for pool in (words.ADJECTIVES, words.NOUNS, words.GOODS, words.CITIES, words.EMOJI):
        assert len(set(pool)) == len(pool)
    assert len(words.LANGUAGES) == 10
    assert all(len(set(pool)) >= 18 for pool in words.LANGUAGES.values())


def test_amounts_are_whole_cents():
    assert [dollars(one) for one in (0, 5, 100, 123_456, -5)] == [
        *("$0.00", "$0.05", "$1.00", "$1234.56", "-$0.05")
    ]
    assert all(cents(dollars(one)) == one for one in range(0, 20_000, 7))


def test_draws_of_one_task_never_repeat():
    w = World(stream("draws"), training=True)
    for draw in (w.word, w.phrase, w.person, w.ident, w.klass, w.code, w.price, w.secret):
        found = [draw() for _ in range(100)]
        assert len(set(found)) == 100
    like = w.lookalikes("harbor-k3f9x2", 40)
    assert "harbor-k3f9x2" not in like
    assert len(set(like)) == 40
