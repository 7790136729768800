"""One attempt of a job that a cluster may start several times.

``python -m rlvr_cluster.jobs.attempt --runs URI --job NAME -- run config.yaml``
fetches the newest run from the URI, if an earlier attempt or job has left one, and becomes the
``rlvr`` process that resumes it; for an evaluation it fetches the results. It needs only the
standard library and rlvr, so every launcher whose nodes have rlvr can use it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from rlvr_cluster.stores.again import fetch_newest, fetch_results, send_results
from rlvr_core.api import RlvrError

MODULE = "rlvr_cluster.jobs.attempt"


def attempt_words(
    runs: str, job: str, words: Sequence[str], *, takes_over: bool = False, name: str = ""
) -> list[str]:
    """Return the arguments of this module.

    Args:
        runs: URI of the run folders.
        job: The job's name, which owns them.
        words: The words after ``rlvr``.
        takes_over: Whether the attempt resumes another job's run.
        name: Folder of an evaluation's results; empty for a run.
    """
    arguments = ["--runs", runs, "--job", job, *(["--takes-over"] if takes_over else [])]
    return [*arguments, *(["--results", name] if name else []), "--", *words]


def main(arguments: Sequence[str]) -> int:
    """Run the attempt; a run replaces this process and never returns."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--runs", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--results", default="")
    parser.add_argument("--takes-over", action="store_true")
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(arguments)
    begin = [sys.executable, "-m", "rlvr_core.cli.main"]
    try:
        if given.results:
            return _evaluate(begin, given.words, given.runs, given.results)
        words = [*given.words, *resumption(given.runs, Path("runs"))]
    except RlvrError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    words += ["--set", f"run.mirror={given.runs}"]
    claim_runs(os.environ, given.job, takes_over=given.takes_over)
    _say("rlvr " + " ".join(words))
    sys.stdout.flush()
    return os.execv(sys.executable, [*begin, *words])


def resumption(runs: str, root: Path) -> list[str]:
    """Return the arguments that resume the run of an earlier attempt; none for a new run."""
    root.mkdir(parents=True, exist_ok=True)
    folder = fetch_newest(runs, root, _say)
    return [] if folder is None else ["--resume", str(folder.absolute())]


def claim_runs(environment: MutableMapping[str, str], job: str, *, takes_over: bool) -> None:
    """Make every attempt of a job the same owner of the run's place in the store."""
    environment["RLVR_OWNER"] = f"job {job}"
    if takes_over:  # the job's name makes all attempts one request
        environment["RLVR_TAKE_OVER"] = f"job {job}"


def _evaluate(begin: Sequence[str], words: Sequence[str], runs: str, name: str) -> int:
    """Run an evaluation, or continue an interrupted one."""
    folder, uri = Path("runs", name), f"{runs}/{name}"
    fetch_results(uri, folder)
    environment: Mapping[str, str] = os.environ
    code = subprocess.run(
        [*begin, *words, "--out", str(folder)], env=environment, check=False
    ).returncode
    if folder.is_dir():
        send_results(folder, uri)
    return code


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
