"""rlvr view --terminal by real keys, of runs whose numbers can be worked out by hand.

A run of ``make_run`` has 8 steps of 2 groups with 2 completions each. The easy one always passes,
the hard one from step 4 on; of each step 4 completions are drawn and one is lost to an error.
"""

import asyncio
import json
import os
import pty
import select
import sys

import pytest

pytest.importorskip("textual")

from rich.cells import cell_len
from textual.widgets import DataTable, Input, Static

from rlvr_core.api import MachineError
from rlvr_core.api.services import Stream
from rlvr_core.builtin.viewer.choice import Choice
from rlvr_core.builtin.viewer.index import Cache
from rlvr_core.builtin.viewer.runs import Runs
from rlvr_core.builtin.viewer.terminal.browser import Browser
from rlvr_core.builtin.viewer.terminal.rows import Block, block, one_line, rows
from rlvr_core.builtin.viewer.terminal.text_view import TextView
from rlvr_core.cli.main import main
from tests.reports.made_runs import make_run
from tests.viewer.test_index import line

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]text[/red] [/] \u202eback \x00 \x9b31m \r\n| end"


class Pressed:
    """A browser in a terminal of 80 columns and 24 rows, driven by keys."""

    def __init__(self, root, cache):
        self.app = Browser(Runs(root), Cache(cache))

    def drive(self, steps, size=(80, 24)):
        async def carry_out():
            async with self.app.run_test(size=size) as self.pilot:
                await self.rest()
                await steps(self)
            self.app.reader.follower.close()

        asyncio.run(carry_out())

    async def rest(self):
        """Wait until nothing is being read, and what is drawn does not change any more."""
        drawn = []
        while len(drawn) < 3 or drawn[-1] != drawn[-2]:
            await self.app.workers.wait_for_complete()
            await self.pilot.pause()
            drawn.append(self.strips)

    async def press(self, *keys):
        for key in keys:
            await self.pilot.press(key)
            await self.rest()

    async def type(self, text):
        await self.pilot.press(*text)
        await self.pilot.pause()

    async def until(self, true, seconds=30):
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.05)

    def on(self, name):
        assert type(self.app.screen).__name__ == name
        return self

    @property
    def head(self):
        return str(self.app.screen.query_one(".head", Static).content)

    @property
    def told(self):
        return str(self.app.screen.query_one(".status", Static).content)

    @property
    def text(self):
        return self.app.screen.query_one(TextView).text

    @property
    def strips(self):
        """What is drawn."""
        return self.app.screen._compositor.render_strips()

    @property
    def drawn(self):
        return "\n".join(strip.text for strip in self.strips)

    @property
    def keys(self):
        return [row.key.value for row in self.app.screen.query_one(DataTable).ordered_rows]


@pytest.fixture
def pressed(runs, tmp_path):
    return lambda root=runs: Pressed(root, tmp_path / "cache")


def record(folder, *groups):
    stream = Stream(folder.traces / "rollouts.jsonl")
    for one in groups:
        stream.write(one)
    stream.close()


def test_from_the_runs_to_a_problem_and_back(runs, pressed):
    make_run(runs, "short", steps=4)
    make_run(runs, "long", steps=8, now=1)

    async def steps(at):
        assert "2 of 2 runs" in at.on("RunsPage").head
        assert [key.startswith(name) for key, name in zip(at.keys, ("long", "short"), strict=True)]
        await at.press("s", "s", "s", "r")  # by name, outcome, steps; the fewest first
        assert at.keys[0].startswith("short")
        await at.press("slash")
        await at.type("LONG")
        await at.press("enter")
        assert "1 of 2 runs" in at.head
        await at.press("enter")
        assert "finished, 16 groups" in at.on("RunPage").head
        told = at.text
        assert "8 of 8" in told
        assert "learning curve" in told
        # 8 steps of 4 completions, of which 3 are trained on and one is lost to an error
        assert "drawn                       32" in told
        assert "= trained                   24  75.0%" in told
        await at.press("b")
        assert "16 groups" in at.on("RolloutsPage").head
        assert at.keys[:2] == ["7.15", "7.14"]
        await at.press("down", "enter")
        assert at.on("GroupPage").head.startswith("7.14  p7-0")
        assert "✔ right" in at.text
        assert "verdict of exact" in at.text
        await at.press("j")
        assert at.head.startswith("6.13  p6-1")
        await at.press("k", "k")
        assert at.head.startswith("7.15")
        await at.press("k")
        assert "first one" in at.told
        await at.press("p")
        assert at.on("ProblemPage").head.startswith("p7-1")
        assert "2 of 2 passed" in at.text
        await at.press("escape", "escape", "escape", "escape", "escape", "escape")
        at.on("RunsPage")

    pressed().drive(steps)


async def choose(at, name, downs):
    """Choose from a list of the filters: open it, go down so often, take that."""
    at.app.screen.query_one(f"#{name}").focus()
    await at.pilot.pause()
    await at.pilot.press("enter", *["down"] * downs, "enter")
    await at.pilot.pause()


@pytest.mark.slow
def test_groups_are_filtered_by_the_form(runs, pressed):
    make_run(runs)

    async def steps(at):
        await at.press("enter", "b", "slash")
        await choose(at.on("Filters"), "answer", 2)  # any, right, wrong
        await at.press("ctrl+s")
        assert at.on("RolloutsPage").head.startswith("4 groups"), at.head
        assert "completion 'wrong'" in at.told
        await at.press("slash")
        at.app.screen.query_one("#step_from", Input).focus()
        await at.type("2")
        await at.press("enter")
        assert at.head.startswith("2 groups")
        assert at.keys == ["3.7", "2.5"]
        await at.press("enter", "j")
        assert at.head.startswith("2.5")
        await at.press("j")
        assert "last one" in at.told
        await at.press("escape", "slash")
        at.app.screen.query_one("#step_to", Input).focus()
        await at.type("x")
        await at.press("enter")
        assert "whole number" in str(at.on("Filters").app.screen.query_one(".fault").content)
        await at.press("escape", "c")
        assert at.head.startswith("16 groups")
        await at.press("slash")
        await at.type("nowhere")
        await at.press("enter")
        assert at.head.startswith("0 groups")
        assert "No group fits" in at.told

    pressed().drive(steps)


@pytest.mark.slow
def test_notes_and_favourites_are_those_of_the_web_viewer(runs, viewed, pressed):
    run = make_run(runs)
    viewed.read(run)
    file = runs / f"{run.path.name}.notes.json"

    async def steps(at):
        await at.press("enter", "b", "enter", "f", "n")
        await at.type("odd [b]one")
        await at.press("enter")
        assert at.head.startswith("7.15 ★")
        assert "note  odd [b]one" in at.text
        await at.press("right", "F")
        marks = json.loads(file.read_text())["marks"]
        assert {key: (m.get("favourite"), m.get("note")) for key, m in marks.items()} == {
            "7.15": (True, "odd [b]one"),
            "7.15/0": (True, None),
        }
        page = viewed.get(f"/runs/{run.path.name}/groups/7.15")
        assert "odd [b]one" in page
        viewed.post(f"/runs/{run.path.name}/marks", {"key": "6.13", "favourite": True})
        await at.press("escape", "slash")
        await choose(at, "marked", 1)
        await at.press("ctrl+s")
        assert at.keys == ["7.15", "6.13"]
        await at.press("f")
        assert at.keys == ["7.15", "6.13"], "its completion is one still"
        await at.press("down", "f")
        assert at.keys == ["7.15"]

    pressed().drive(steps)


def test_what_a_model_wrote_is_text(runs, pressed):
    run = make_run(runs)
    odd = line(9, 99, text="x")
    odd |= {"problem_id": HOSTILE, "dataset": "[bold]" + HOSTILE, "prompt": HOSTILE}
    odd["completions"] = [
        {**odd["completions"][0], "text": HOSTILE, "fate": "[blink]",
         "verdicts": {"[u]v": {"score": 1.0, "status": "ok", "detail": HOSTILE}}},
        {**odd["completions"][0], "text": "y" * 1_000_000, "verdicts": {}},
    ]  # fmt: skip
    record(run, odd)
    (runs / "[red]broken\x1b[31m").mkdir()
    (runs / "[red]broken\x1b[31m" / "run.json").write_text("no JSON [red]\x1b[2J")

    async def steps(at):
        def clean():
            drawn = at.drawn
            assert not [one for one in drawn if ord(one) < 32 and one != "\n"]
            assert not set(drawn) & {"\x7f", "\x9b", "\u202e"}
            assert [cell_len(row) for row in drawn.split("\n")] == [80] * 24
            return drawn

        assert "[red]broken\\x1b[31m" in clean()
        await at.press("enter", "b")
        assert "\\x1b[2J" in clean()
        await at.press("slash")
        clean()
        await choose(at, "dataset", 1)
        await at.press("ctrl+s")
        assert at.keys == ["9.99"]
        clean()
        await at.press("enter")
        for told in ("[red]text[/red] [/]", "\\u202eback", "\\x00", "\\x9b31m", "verdict of [u]v"):
            assert told in at.text
        assert "│ | end" in at.text.splitlines(), "no line can be taken for one of ours"
        assert "980,000 characters more are not shown" in at.text
        clean()
        await at.press("w")
        assert at.text.count("y") >= 1_000_000
        await at.press("G")
        clean()
        await at.press("p")
        assert "[red]text" in clean()

    pressed().drive(steps)


@pytest.mark.slow
def test_tokens_are_coloured_by_what_a_key_chooses(runs, pressed, monkeypatch):
    run = make_run(runs)
    one = {
        "text": "ab", "token_ids": [5, 6], "logprobs": [-0.01, -9.0], "loss_mask": [1, 0],
        "advantage": -2.0, "reward": 0.0, "passed": False, "n_tokens": 2,
    }  # fmt: skip
    record(run, {**line(9, 99), "completions": [one]})

    def style_of(at, text):
        found = [s.style for strip in at.strips for s in strip if s.text == text]
        assert len(found) == 1, at.drawn
        return found[0]

    async def steps(at):
        await at.press("enter", "b", "enter", "right")
        certain, unlikely = style_of(at, "[5]"), style_of(at, "[6]")
        assert (certain.bgcolor.triplet.hex, unlikely.bgcolor.triplet.hex)[1] == "#af0000"
        assert certain.bgcolor != unlikely.bgcolor
        await at.press("c")
        assert "colours: trainer-engine gap" in at.text
        await at.press("c")  # both have the completion's advantage
        assert "colours: advantage" in at.text
        assert at.strips
        both = [s.style for strip in at.strips for s in strip if s.text in ("[5]", "[6]", "[5][6]")]
        assert {one.color.triplet.hex for one in both} == {"#ff0000"}
        await at.press("c")
        assert (style_of(at, "[5]").strike, style_of(at, "[6]").strike) == (None, True)
        await at.press("c", "c")
        assert style_of(at, "[6]").strike is None
        await at.press("c")
        assert "colours: log-prob" in at.text

    pressed().drive(steps)
    monkeypatch.setenv("NO_COLOR", "1")

    async def without(at):
        def colours():
            styles = [s.style for strip in at.strips for s in strip if s.style]
            return [s for s in styles for c in (s.color, s.bgcolor) if c and not c.is_default]

        def marked(text):
            return next(s.style.reverse for row in at.strips for s in row if text in s.text)

        assert not colours()
        await at.until(lambda: any(run.path.name in s.text for row in at.strips for s in row))
        assert marked(run.path.name), "the cursor is seen"
        await at.press("enter", "b", "enter", "right")
        assert not colours()
        assert style_of(at, "[6]").reverse

    pressed().drive(without)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "sft"])
def test_a_selection_is_exported(runs, pressed, tmp_path, monkeypatch, kind):
    run = make_run(runs)
    monkeypatch.chdir(tmp_path)

    async def steps(at):
        await at.press("enter", "b", "slash")
        at.app.screen.query_one("#step_from", Input).focus()
        await at.type("5")
        await at.press("enter", "e" if kind == "jsonl" else "E", "enter")
        expected = b"".join(at.app.reader.exported(run, Choice(step_from="5"), kind))
        [file] = tmp_path.glob("*.jsonl")
        assert file.read_bytes() == expected
        # steps 5 to 7 have 6 groups; all their completions have one prompt and one answer
        assert len(expected.splitlines()) == {"jsonl": 6, "sft": 1}[kind]
        assert "lines written to" in at.told
        await at.press("e" if kind == "jsonl" else "E", "enter")
        assert "is there already" in at.told
        assert [path.name for path in tmp_path.glob("*unfinished*")] == []

    pressed().drive(steps)


def test_it_is_live_while_a_run_goes_on(runs, pressed):
    run = make_run(runs, steps=2)

    async def steps(at):
        await at.press("enter", "b")
        assert at.head.startswith("4 groups")
        await at.press("down")
        here = at.app.screen.query_one(DataTable)
        chosen = at.keys[here.cursor_row]
        record(run, line(8, 80), line(8, 81))
        await at.until(lambda: at.head.startswith("6 groups"))
        assert at.keys[0] == "8.81"
        assert at.keys[here.cursor_row] == chosen, "the cursor stays on its group"

    pressed().drive(steps)


@pytest.mark.slow
def test_one_run_is_opened_and_a_damaged_group_is_said(runs, pressed):
    run = make_run(runs)

    async def steps(at):
        await at.press("b")
        for path in run.traces.glob("rollouts*"):
            path.unlink()
        await at.press("enter")
        assert "not there any more" in at.on("GroupPage").told
        await at.press("question_mark")
        assert "favourite" in at.on("Keys").drawn
        await at.press("x", "escape")
        at.on("RolloutsPage")

    pressed(run.path).drive(steps)


def test_rows_fit_and_lose_nothing():
    text = "日本語 words \ttab\nsecond e\u0301e\u0301 " + "z" * 50
    for width in (2, 7, 80):
        made = ["".join(part for part, _ in row) for row in rows(block(text), width)]
        assert all(cell_len(row) <= width for row in made)
        assert "".join(made) == text.replace("\t", "    ").replace("\n", "")
    pieces = tuple((letter, letter) for letter in "abcdef")
    assert list(rows(Block(pieces), 4)) == [
        [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")],
        [("e", "e"), ("f", "f")],
    ]
    assert list(rows(block("one two three"), 8)) == [[("one two ", "")], [("three", "")]]
    assert one_line("a\nb\tc\x1b[0m", 6) == "a b c\\x1b"


def test_where_no_terminal_is_it_says_what_else_to_do(runs, capfd):
    make_run(runs)
    assert main(["view", str(runs), "--terminal"]) == MachineError.exit_code
    assert "rlvr show" in capfd.readouterr().err


@pytest.mark.slow
def test_in_a_terminal_of_its_own_it_ends_by_q_and_gives_the_screen_back(runs, tmp_path):
    make_run(runs)
    child, end = pty.fork()
    if not child:
        os.environ |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TERM": "xterm"}
        words = [sys.executable, "-m", "rlvr_core.cli.main", "view", str(runs), "--terminal"]
        os.execv(sys.executable, words)
    shown, asked = b"", False
    while select.select([end], [], [], 60)[0]:
        try:
            shown += os.read(end, 65536)
        except OSError:
            break
        if b"1 of 1 runs" in shown and not asked:
            asked = os.write(end, b"q") == 1
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
