"""How verifiers judge, as a result folder records it: verdicts on canned answers, and what is read.

The hash of a verifier's code cannot know of a table or a module that the code finds by a path that
it computes, of a service that it asks, or of a variable of the environment. Its verdicts can.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Completion,
    ConfigError,
    Json,
    NeedsCalibration,
    Problem,
    Verdict,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_core.api.services import (
    VerifierPool,
    VerifierSpec,
    cache_folder,
    files,
    outcome,
    write_atomic,
)
from rlvr_core.builtin.evals.canned import canned

if TYPE_CHECKING:
    from rlvr_core.api.services import Host, RewardPlan
    from rlvr_core.builtin.evals.config import EvalConfig

Record = dict[str, Any]
"""Of each verifier by name: ``verdicts`` (score and outcome of each answer, by problem), ``reads``
(hash of each file that it read, by kind and path), or ``unknown`` (why there are none)."""
FILE = "judging.json"
PROBLEMS = 6
"""Problems of a task, evenly spread, whose canned answers are judged."""
SECONDS = 2.0
"""Seconds for the verdicts of a verifier; slow ones judge fewer answers."""
AT_ONCE = 16
LARGEST = 64 * 2**20
"""Bytes of a file up to which it is hashed; of a larger one only the size is compared."""
_WATCHED = "rlvr_core.builtin.evals.watching:Watched"
_SHORT = 16
_NO_SOURCE = (".pyc", ".pyo", ".so", ".pth")


def judging_of(
    problems: Sequence[Problem], plan: RewardPlan, config: EvalConfig, host: Host
) -> Record:
    """Have the verifiers of a task judge canned answers.

    Args:
        problems: The task's problems.
        plan: The verifiers.
        config: The evaluation's configuration.
        host: The loaded plugins.
    """
    asked: dict[str, list[Problem]] = {}
    for problem in problems:
        for name in plan.names(problem):
            asked.setdefault(name, []).append(problem)
    return {
        name: _judged(name, _spread(mine), plan, config, host)
        for name, mine in sorted(asked.items())
    }


def _judged(
    name: str, problems: Sequence[Problem], plan: RewardPlan, config: EvalConfig, host: Host
) -> Record:
    verifier, spec = plan.verifiers[name], plan.specs[name]
    if why := _unable(verifier, problems):
        return {"unknown": why}
    limit = spec.time_limit(config.verify.timeout)
    watched = VerifierSpec(
        _WATCHED, {"target": spec.target, "options": dict(spec.config), "limit": limit}
    )
    reads: dict[str, None] = {}
    verdicts: dict[str, dict[str, Json]] = {}
    pool = VerifierPool(
        {name: watched}, workers=1, timeout=limit, memory_mb=config.verify.memory_mb
    )
    with pool:
        queue = _in_turns(
            [
                (problem, list(canned(problem, verifier, spec.config, host).items()))
                for problem in problems
            ]
        )
        left, size = SECONDS, 1  # the first verdict tells how slow it is
        while queue and size:
            problem, texts = queue.pop(0)
            if texts[size:]:
                queue.insert(0, (problem, texts[size:]))
                texts = texts[:size]
            begun = time.monotonic()
            found = _verdicts(pool, name, problem, [text for _, text in texts])
            for (kind, _), both in zip(texts, found, strict=True):
                reads.update(dict.fromkeys(part for one in both for part in one.parts))
                if any(one.usage is not None for one in both):
                    return {"unknown": "it asks a model"}
                if any(one.status not in ("ok", "unscorable") for one in both):
                    continue  # a timeout says as much of the machine
                values = [[one.score, outcome(one)] for one in both]
                if values[0] != values[1]:
                    return {"unknown": "it judges the same answer differently"}
                verdicts.setdefault(problem.id, {})[kind] = values[0]
            stats = pool.stats()[name]
            # the first waits for the process too
            left -= min(time.monotonic() - begun, 2 * len(texts) * stats.p99)
            each = 2 * stats.seconds / stats.calls
            size = max(0, min(AT_ONCE, int(left / each))) if each > 0 else AT_ONCE
    own = files.of_module(name.partition("#")[0])
    return {"verdicts": verdicts, "reads": hashes(reads, own)}


def _in_turns(
    rows: Sequence[tuple[Problem, list[tuple[str, str]]]],
) -> list[tuple[Problem, list[tuple[str, str]]]]:
    """Return some texts of each problem, then the next of each."""
    longest = max(len(texts) for _, texts in rows)
    return [
        (problem, texts[begin : begin + AT_ONCE])
        for begin in range(0, longest, AT_ONCE)
        for problem, texts in rows
        if texts[begin:]
    ]


def _verdicts(
    pool: VerifierPool, name: str, problem: Problem, texts: Sequence[str]
) -> list[tuple[Verdict, Verdict]]:
    """Return two verdicts on each text, the second time in reverse order."""
    answers = [Completion.from_text(text) for text in texts]
    orders = (answers, answers[::-1])
    futures = [pool.submit_group(problem, order, [name]) for order in orders]
    one, other = ([found[name] for found in future.result()] for future in futures)
    return list(zip(one, other[::-1], strict=True))


def _unable(verifier: Any, problems: Sequence[Problem]) -> str:
    if not isinstance(verifier, Verifier):
        return "it compares completions"
    if isinstance(verifier, NeedsCalibration):
        return "it asks a model"
    if not traits_of(verifier, VerifierTraits).repeatable:
        return "it does not promise the same verdict each time"
    if any(problem.environment is not None for problem in problems):
        return "it judges conversations"
    return ""


def _spread(problems: Sequence[Problem]) -> list[Problem]:
    some = min(PROBLEMS, len(problems))
    return [problems[len(problems) * at // some] for at in range(some)]


def hashes(reads: Iterable[str], own: Path | None) -> dict[str, str]:
    """Return the hash of what a verifier read and did not write itself.

    Args:
        reads: Kinds and absolute paths, as ``Watched`` reports them.
        own: The verifier's own file; the names of the others are relative to its folder, so that
            a project can be moved. None: relative to the working directory.

    Returns:
        Hashes by ``KIND PATH``; without the interpreter, installed libraries, the core, the
        machine's own folders and the verifier's own file.
    """
    pairs = [(kind, Path(path)) for kind, _, path in (one.partition(" ") for one in reads)]
    written = {path for kind, path in pairs if kind == "written"}
    base = own.parent if own is not None else Path.cwd()
    kinds: dict[Path, str] = {}
    for kind, path in pairs:
        if path not in written and kinds.get(path) not in ("module", "program"):
            kinds[path] = "module" if path.suffix == ".py" else kind
    found = {}
    for path, kind in kinds.items():
        if own is not None and path == own:
            continue
        if path.suffix not in _NO_SOURCE and not _of_the_machine(path):
            digest = _digest(path)
            if digest is not None:
                found[f"{kind} {os.path.relpath(path, base)}"] = digest
    return dict(sorted(found.items()))


def _of_the_machine(path: Path) -> bool:
    places = ("/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/lib", "/lib64", "/sbin")
    prefixes = {
        *places,
        *(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib", "scripts")),
        str(Path(sys.executable).parent),
        str(Path(__file__).parents[2]),
        str(cache_folder()),
    }
    parts = ("site-packages", "dist-packages")
    return any(one in path.parts for one in parts) or any(
        path.is_relative_to(one) for one in prefixes
    )


def _digest(path: Path) -> str | None:
    try:
        if not path.is_file():
            return None
        size = path.stat().st_size
        if size > LARGEST:
            return f"{size} bytes"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:_SHORT]
    except OSError:
        return None


def keep_judging(folder: Path, record: Record, *, begun: bool) -> None:
    """Write the record of a task.

    Args:
        folder: The task's result folder.
        record: How the verifiers judge now.
        begun: Whether the folder has results already, which must have been judged alike.

    Raises:
        ConfigError: If they were not.
    """
    lines = judged_apart(read_judging(folder), record) if begun else []
    if lines:
        raise ConfigError(
            "the verifiers do not judge as when this evaluation began",
            where=str(folder),
            remedy=(*lines, "put them back as they were, or give another --out"),
        )
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / FILE, text + "\n")


def read_judging(folder: Path) -> Record:
    """Read the record of a task; empty if there is none, as in results of an earlier version."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def judged_apart(one: Record, other: Record) -> list[str]:
    """Return in what two records differ that verdicts depend on, a line each."""
    lines = []
    for name in sorted(one.keys() & other.keys()):
        first, second = one[name], other[name]
        if "verdicts" in first and "verdicts" in second:
            lines += _unlike_verdicts(name, first["verdicts"], second["verdicts"])
            same = _answers(first["verdicts"]) == _answers(second["verdicts"])
            lines += _unlike_reads(name, first["reads"], second["reads"], same=same)
    return lines


def _answers(verdicts: Mapping[str, Mapping[str, Json]]) -> set[tuple[str, str]]:
    return {(id_, kind) for id_, of in verdicts.items() for kind in of}


def _unlike_verdicts(
    name: str, one: Mapping[str, Mapping[str, Json]], other: Mapping[str, Mapping[str, Json]]
) -> list[str]:
    both = sorted(_answers(one) & _answers(other))
    differ = [(id_, kind) for id_, kind in both if one[id_][kind] != other[id_][kind]]
    if not differ:
        return []
    id_, kind = differ[0]
    scores = [table[id_][kind][0] for table in (one, other)]
    return [
        f"verifier {name} judges otherwise: {len(differ)} of {len(both)} answers that it was given "
        f"in both, such as to {id_} {kind.rpartition(' [')[0]}: {scores[0]} and {scores[1]}"
    ]


def _unlike_reads(
    name: str, one: Mapping[str, str], other: Mapping[str, str], *, same: bool
) -> list[str]:
    """Compare what was read; what only one of them read, if both judged the same answers."""
    lines = [
        f"verifier {name} reads {key}: {one[key]} and {other[key]}"
        for key in sorted(one.keys() & other.keys())
        if one[key] != other[key]
    ]
    apart = [{k: v for k, v in a.items() if k not in b} for a, b in ((one, other), (other, one))]
    code = [{k: v for k, v in a.items() if not k.startswith("file ")} for a in apart]
    if same and sorted(code[0].values()) != sorted(code[1].values()):  # else they were moved
        names = [", ".join(sorted(each)[:3]) or "none" for each in code]
        lines.append(f"verifier {name} reads other code: {names[0]} and {names[1]}")
    return lines
