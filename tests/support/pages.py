"""The Markdown pages of the repository, taken apart: blocks of code, commands, links, headings."""

import re
import shlex
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*/README.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
)
WRITTEN = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""Pages whose commands and configs are those of today."""

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<body>.*?)^ *```", re.M | re.S)
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^)\s]+)\)")
_SHELL = {"", "bash", "sh", "console"}


def name(page):
    return page.relative_to(ROOT).as_posix()


def fences(page):
    """Language, text and first line of every fenced block."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        body = re.sub(rf"^{found['indent']}", "", found["body"], flags=re.M)
        yield found["language"], body, text[: found.start()].count("\n") + 2


def yaml_blocks():
    """Page, line and text of every block of YAML; of one that shows a key again, each by itself.

    Examples that are packages configure themselves, and their own tests read that.
    """
    for page in WRITTEN:
        if page.is_relative_to(ROOT / "examples"):
            continue
        for language, body, line in fences(page):
            if language == "yaml":
                parts = re.split(r"^(?=[\w-]+:)", body, flags=re.M)
                keys = Counter(part.partition(":")[0] for part in parts if part.strip())
                alternatives = [parts[0] + part for part in parts[1:]]
                for part in alternatives if max(keys.values(), default=0) > 1 else [body]:
                    yield name(page), line, part


def prose(page):
    """The page without its blocks of code."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"^ {4,}.*$", "", text, flags=re.M)


def links(page):
    """Targets of the links in the page's prose, other hosts' left out."""
    text = re.sub(r"`[^`\n]*`(?!\])", "", prose(page))
    return [target for target in _LINK.findall(text) if "://" not in target]


def anchors(page):
    """The anchors of a page's headings, as code hosts and the site make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1


def commands(program):
    """Page, line and words of every command of a program in a block that shows a shell."""
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        blocks = [(body, line) for language, body, line in fences(page) if language in _SHELL]
        # an indented block has an empty line before it, and is no continued item of a list
        for found in re.finditer(r"(?<=\n\n)(?: {4}\S.*\n)(?: {4}.*\n|\n(?= {4}))*", text):
            line = text[: found.start()].count("\n") + 1
            blocks.append((re.sub(r"^ {4}", "", found[0], flags=re.M), line))
        for body, line in blocks:
            for number, logical in _logical_lines(body, line):
                for words in _commands(logical):
                    if words[0].rpartition("/")[2] == program:
                        yield name(page), number, words[1:]


def _logical_lines(body, first):
    held, begun = "", first
    for number, line in enumerate(body.splitlines(), start=first):
        begun = begun if held else number
        held += line.removeprefix("$ ")
        if held.endswith("\\"):
            held = held[:-1] + " "
        else:
            yield begun, held
            held = ""


def _commands(line):
    """The simple commands of a line: between pipes, ``&&`` and ``;``, without redirections."""
    if not re.match(r"(?:\w+=\S* )*(?:\S*/)?(?:rlvr|make)\b", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            words.append(word)
