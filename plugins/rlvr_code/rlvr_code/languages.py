"""Languages other than Python: compiled once, run once for each input, in the same sandbox.

``LANGUAGES`` has those that come with this plugin; add a ``Language`` of your own module as
``package.module:NAME``.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from rlvr_code.judge.cases import Case, finished, judge_output
from rlvr_code.judge.outcome import Budget, Outcome, ended
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.meter import PATIENCE, Timer
from rlvr_code.sandbox.sandbox import Sandbox, as_bytes
from rlvr_code.sandbox.server import BrokenError, Run
from rlvr_core.api import ConfigError, Finding, MachineError

CHILDREN = Limits(processes=2)
"""Minimum limits of a sandbox for programs in other languages than Python."""
_MARGIN = 5.0
_COMPILER_MB = 2048
_MADE = "main"
_COMPILE = """
import base64, subprocess, sys
done = subprocess.run({command}, capture_output=True, text=True, errors="replace")
if done.returncode:
    sys.exit(done.stderr[-2000:] or "the compiler says nothing")
sys.stdout.write(base64.b64encode(open({made!r}, "rb").read()).decode())
"""
_RUN = """
import os
command = {command}
os.execv(command[0], command)
"""


@dataclass(frozen=True, slots=True)
class Language:
    """How programs of a language are found in a response, compiled and run.

    Attributes:
        name: For messages.
        fences: What the opening fences of its code say.
        source: Name of the file with a program.
        tools: Programs it needs, by name; ``{tool}`` in a command is the first one's path.
        run: Command that runs a program, in the folder with ``source`` or what was compiled.
        compile: Command that makes a file ``main`` of ``source``; none for a language without.
        show: More paths that its tools read.
        version: Argument with which the first tool tells its version.
        address_mb: Address space that its runtime takes before a program does anything.
        install: How to install its tools, for messages.
    """

    name: str
    fences: tuple[str, ...]
    source: str
    tools: tuple[str, ...]
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    version: str = "--version"
    address_mb: int = 0
    install: str = "install it, on every machine that judges"

    @property
    def missing(self) -> str:
        """The tools that this machine lacks; empty if it has all."""
        return ", ".join(tool for tool in self.tools if shutil.which(tool) is None)

    def paths(self) -> tuple[str, ...]:
        """Return the paths that a sandbox must contain for it.

        Raises:
            MachineError: If a tool is not there.
        """
        if self.missing:
            raise MachineError(
                f"programs of {self.name} need {self.missing}, which this machine does not have",
                remedy=self.install,
            )
        tools = [Path(str(shutil.which(tool))) for tool in self.tools]
        return tuple(str(path) for tool in tools for path in _links(tool)) + self.show

    def command(self, words: Sequence[str], memory_mb: int) -> list[str]:
        """A command with its places filled in."""
        tool = shutil.which(self.tools[0]) or ""
        return [word.format(tool=tool, source=self.source, memory_mb=memory_mb) for word in words]

    def program(self, text: str) -> str:
        """The program in a response: its last fence, else the last of no language, else all."""
        text = text.replace("\r\n", "\n").rpartition("</think>")[2]
        blocks = [(mark[1].lower(), mark[2]) for mark in _FENCED.finditer(text)]
        for names in (self.fences, ("",)):
            codes = [code for name, code in blocks if name in names]
            if codes:
                return codes[-1]
        return "" if blocks else text


_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.M | re.S)

LANGUAGES = {
    "cpp": Language(
        name="C++",
        fences=("cpp", "c++", "cc", "cxx"),
        source="main.cpp",
        tools=("g++", "as", "ld"),
        compile=("{tool}", "-O2", "-std=c++17", "-pipe", "-o", _MADE, "{source}"),
        run=("./main",),
        show=("/usr/include",),
        install="install g++ (Debian, Ubuntu: apt install g++) on every machine that judges",
    ),
    "javascript": Language(
        name="JavaScript",
        fences=("javascript", "js", "node", "mjs"),
        source="main.js",
        tools=("node",),
        run=("{tool}", "--max-old-space-size={memory_mb}", "--stack-size=4000", "{source}"),
        address_mb=8192,
        install="install Node.js (Debian, Ubuntu: apt install nodejs) on every machine that judges",
    ),
}


def find(name: str) -> Language:
    """The language of a name, or of ``package.module:NAME``.

    Raises:
        ConfigError: If there is none.
    """
    if name in LANGUAGES:
        return LANGUAGES[name]
    try:
        language = resolve_name(name) if ":" in name else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"language {name!r} cannot be imported: {error}") from error
    if not isinstance(language, Language):
        raise ConfigError(
            f"no language {name!r}",
            remedy=f"there are python, {', '.join(sorted(LANGUAGES))}; or package.module:NAME of "
            "an rlvr_code.languages.Language",
        )
    return language


def judge(
    sandbox: Sandbox, language: Language, code: str, cases: Sequence[Case], budget: Budget
) -> Outcome:
    """Compile a program, and run it once per case.

    Args:
        sandbox: Where both are done; it shows the language's ``paths``.
        language: The program's.
        code: The program.
        cases: ``given`` is standard input, ``right`` is asked about standard output.
        budget: Time and memory; compiling has the time of all tests to itself.

    Raises:
        MachineError: If the sandbox cannot end the children of programs.
    """
    sandbox.check(CHILDREN)
    files = {language.source: as_bytes(code)}
    if language.compile:
        made, why = _compiled(sandbox, language, files, budget)
        if made is None:
            return Outcome(0, len(cases), f"it does not compile: {why}"[:2000])
        files = {_MADE: made}
    command = language.command(language.run, budget.memory_mb)
    program = _RUN.format(command=json.dumps(command))
    return judge_output(
        sandbox, program, cases, budget, files=files, processes=2, more_mb=language.address_mb
    )


def _compiled(
    sandbox: Sandbox, language: Language, files: dict[str, bytes], budget: Budget
) -> tuple[bytes | None, str]:
    command = json.dumps(language.command(language.compile, budget.memory_mb))
    script = _COMPILE.format(command=command, made=_MADE)
    limits = Limits(
        cpu_seconds=budget.total_seconds,
        wall_seconds=PATIENCE * budget.total_seconds + _MARGIN,
        memory_mb=8 * _COMPILER_MB,  # for each of 8 processes an eighth
        processes=8,
        file_mb=64,
        output_kb=96 * 1024,
    )
    timer = Timer(budget.total_seconds, budget.total_seconds)
    for _ in range(2):
        with sandbox.server() as server:
            try:
                server.open("script", as_bytes(script), files, limits)
                timer.begin(server)
                result = finished(Run(server, limits), timer)
                server.close_job()
            except BrokenError:
                server.close()
                continue
            except BaseException:
                server.close()
                raise
            finally:
                timer.end()
        if not result.ok or result.dropped[0]:
            reason = result.stderr.strip() if result.reason == "exit" else ended(result)
            return None, reason or "its file is too large"
        return base64.b64decode(result.stdout), ""
    return None, "it took the sandbox down"


def findings() -> Iterator[Finding]:
    """Each language for ``rlvr doctor``."""
    for name, language in LANGUAGES.items():
        if language.missing:
            missing = f"not here: no program {language.missing}"
            yield Finding(f"language/{name}", "note", missing, language.install)
            continue
        command = [str(shutil.which(language.tools[0])), language.version]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        version = (done.stdout or done.stderr).strip().partition("\n")[0]
        yield Finding(f"language/{name}", "ok", f"works: {language.name}, {version}")


def _links(path: Path) -> Iterator[Path]:
    """A path, and what it leads to, link by link."""
    yield path
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield path
