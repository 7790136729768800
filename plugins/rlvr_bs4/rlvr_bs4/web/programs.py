"""Running a program on a page, and measuring what it does with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path

from rlvr_bs4.web import prelude
from rlvr_code import packages
from rlvr_code.sandbox import Limits, Result, Sandbox
from rlvr_core.api import Json

STARTING = 20.0
"""Seconds that the program's surroundings may take besides its own."""
SLACK = 3.0
PATIENCE = 10.0
"""Clock time of a program, waiting included, for each second of processor time."""
_FURNISH = """
import json, types
_module = types.ModuleType("prelude")
exec({source!r}, vars(_module))
_module.furnish(json.loads({given!r}), globals())
del _module, types
"""
_ASKING = "# what was used? "


@dataclass(frozen=True, slots=True)
class Use:
    """A program's use of the page, counted while it ran.

    Attributes:
        html: Times it took the page's HTML.
        parsed: Times it parsed the page, or most of it, with BeautifulSoup.
        selected: Searches of the parsed page that found something.
        read: Texts and attributes it took of what was parsed.
    """

    html: int = 0
    parsed: int = 0
    selected: int = 0
    read: int = 0

    @property
    def bs4(self) -> bool:
        """Whether it got something out of the page by parsing it."""
        return self.parsed > 0 and self.selected + self.read > 0


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of a program.

    Attributes:
        text: What the model sees.
        failed: Whether it raised, or was ended.
        timeout: Whether its time was up.
        use: What it did with the page; nothing is known of a program that was ended.
    """

    text: str
    failed: bool
    timeout: bool
    use: Use


class Programs:
    """Runs programs, each in a process of its own with nothing left of those run elsewhere.

    Args:
        backend: See ``rlvr_code.sandbox.Sandbox``.
        python: Interpreter, if not this one.
        image: Of a container backend.
        seconds: Processor time of a program; by the clock it may take ``SLACK`` times that, not
            counting what it waits for a processor.
        memory_mb: Its memory.
        most: Characters of output that are shown.
    """

    def __init__(
        self,
        backend: str,
        *,
        python: str | None,
        image: str,
        seconds: float,
        memory_mb: int,
        most: int,
    ) -> None:
        lxml = util.find_spec("lxml") is not None
        shown = packages.shown(("beautifulsoup4", *(["lxml"] if lxml else [])))
        self._sandbox = Sandbox(
            backend,  # type: ignore[arg-type]
            python=python,
            image=image,
            packages=shown.folders,
            warm=("bs4", "lxml.etree") if lxml else ("bs4",),
        )
        self._seconds, self._memory_mb, self._most = seconds, memory_mb, most

    def run(self, code: str, about: Mapping[str, Json]) -> Ran:
        """Run a program.

        Args:
            code: The program.
            about: What it is given to work on; see ``rlvr_bs4.web.prelude``.

        Raises:
            MachineError: If the sandbox cannot be had any more.
        """
        result, use = self._once(code, about)
        if result.reason == "broke":  # a server may be lost; twice is the program's doing
            result, use = self._once(code, about)
        return Ran(
            _told(result, self._seconds, self._most),
            not result.ok,
            result.reason in ("wall", "cpu"),
            use,
        )

    def close(self) -> None:
        """End the sandbox."""
        self._sandbox.close()

    def _once(self, code: str, about: Mapping[str, Json]) -> tuple[Result, Use]:
        """Return the outcome; without a count if the program did not finish."""
        source = Path(prelude.__file__).read_text()
        limits = Limits(
            cpu_seconds=self._seconds,
            wall_seconds=PATIENCE * self._seconds + STARTING,
            memory_mb=self._memory_mb,
        )
        with self._sandbox.session(limits=limits) as session:
            whole = json.dumps({**about, "asking": _ASKING})
            begun = session.run(_FURNISH.format(source=source, given=whole))
            if begun.reason == "broke":
                return begun, Use()
            if not begun.ok:
                raise RuntimeError(f"a program cannot be started: {begun.stderr[-2000:]}")
            result = session.run(code, seconds=SLACK * self._seconds)
            if session.fresh or result.reason != "exit":
                return result, Use()
            mark = os.urandom(16).hex()  # drawn when the program has ended
            last = session.run(_ASKING + mark)
            result = replace(result, stdout=result.stdout + last.stdout, dropped=last.dropped)
            return result, _read(last.stderr, mark)


def _read(stderr: str, mark: str) -> Use:
    parts = stderr.split(mark)
    try:
        counted = json.loads(parts[1]) if len(parts) == 3 else {}
        return Use(**{name: int(counted[name]) for name in Use.__slots__ if name in counted})
    except (ValueError, TypeError):  # a program that got in between has used nothing
        return Use()


def _told(result: Result, seconds: float, most: int) -> str:
    parts = []
    if result.reason in ("wall", "cpu"):
        parts.append(f"error: the program was stopped: it may take {seconds:g} seconds")
    elif result.reason != "exit":
        parts.append("error: the program was ended: out of memory, or it did what it may not")
    if result.stdout.strip():
        parts.append(_cut(result.stdout.rstrip(), most, result.dropped[0]))
    if result.stderr.strip():
        parts.append(f"stderr:\n{_cut(result.stderr.rstrip(), most, result.dropped[1])}")
    if result.reason == "exit" and result.exit:
        parts.append(f"exit status {result.exit}")
    return "\n".join(parts) or "(no output; print what you want to see)"


def _cut(text: str, most: int, dropped: int) -> str:
    """Beginning and end, and how much is left out between them."""
    if len(text) <= most:
        return text
    end = most // 4
    left_out = len(text) - most + dropped
    return f"{text[: most - end]}\n[{left_out} characters left out]\n{text[len(text) - end :]}"
