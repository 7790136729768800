"""Runs on each machine of a job: ``python -m rlvr_sagemaker.job train``.

Reads what SageMaker says of the machines, fetches the run if an earlier attempt has left one, and
hands over to ``rlvr launch``. SIGTERM goes on to it: it finishes its step, writes a checkpoint and
copies it, all of which has to fit into the two minutes that SageMaker gives.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rlvr_core.api import MachineError, RlvrError
from rlvr_sagemaker.request import CHANNEL, DESCRIPTION

ROOT = "RLVR_SAGEMAKER_ROOT"
"""Environment variable: another folder in the place of ``/opt/ml``."""

PORT = 29500

BEHIND = 5
"""Exit code of a run that finished while its store lacked a part of it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine among those of the job.

    Attributes:
        hosts: Names of all, in the order that all of them agree on.
        index: This one's.
        interface: Network interface they reach each other by; empty if SageMaker does not name it.
    """

    hosts: tuple[str, ...]
    index: int
    interface: str

    @classmethod
    def read(cls, root: Path, env: Mapping[str, str] = os.environ) -> Machine:
        """Return SageMaker's settings, from its file or its toolkit's variables.

        Raises:
            MachineError: If it says nothing that makes sense.
        """
        path = root / "input" / "config" / "resourceconfig.json"
        try:
            if path.is_file():
                config = json.loads(path.read_text(encoding="utf-8"))
                hosts, here = config["hosts"], config["current_host"]
                interface = config.get("network_interface_name", "")
            else:
                hosts, here = json.loads(env["SM_HOSTS"]), env["SM_CURRENT_HOST"]
                interface = env.get("SM_NETWORK_INTERFACE_NAME", "")
            ordered = tuple(sorted(hosts))
            return cls(ordered, ordered.index(here), str(interface or ""))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MachineError(
                f"this does not look like a SageMaker job: {type(error).__name__}: {error}",
                where=str(path),
            ) from error


class Attempt:
    """One attempt of the job on this machine.

    Args:
        root: ``/opt/ml``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._code = root / "input" / "data" / CHANNEL
        self._machine = Machine.read(root)
        self._description: dict[str, Any] = json.loads(
            (self._code / DESCRIPTION).read_text("utf-8")
        )
        self._runs = root / "checkpoints"
        self._children: list[subprocess.Popen[str]] = []
        self._stopping = False
        self._lost = False
        self._env: dict[str, str] | None = None
        self._tail: collections.deque[str] = collections.deque(maxlen=30)

    def run(self) -> int:
        """Train to the end; the job's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._runs.mkdir(parents=True, exist_ok=True)
        environment = self._env = self._environment()
        if self._description["arguments"][0] == "eval":
            return self._evaluate(environment)
        words = self._words(self._fetch())
        _say("rlvr " + " ".join(words))
        if self._stopped():
            return 0
        training = self._start(words, environment)
        with self._watcher(training, environment) as watcher:
            code = self._follow(training)
            if watcher is not None and code in (0, BEHIND):
                watcher.join()
        sent = self._all_sent()
        if code == BEHIND:
            code = 0  # what had not been sent by then is sent now, or told below
        if not sent and code in (0, 130):
            code = MachineError.exit_code
            self._tail.append("the store lacks a part of the run; see the log")
        if code == 0 and self._machine.index == 0:
            self._hand_over()
        return 0 if self._stopped() and code == 130 else code

    def _stopped(self) -> bool:
        return self._stopping

    def _evaluate(self, environment: dict[str, str]) -> int:
        """An evaluation, by the first machine; one that was cut off goes on where it was."""
        from rlvr_cluster.stores.again import fetch_results, send_results

        if self._machine.index > 0:
            return 0
        description = self._description
        folder = self._runs / description["name"]
        uri = f"{description['runs']}/{description['name']}"
        fetch_results(uri, folder)
        if description["train_gpus"]:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, description["train_gpus"]))
        words = [*description["arguments"], "--out", str(folder)]
        _say("rlvr " + " ".join(words))
        code = self._follow(self._start(words, environment))
        send_results(folder, uri)
        return 0 if self._stopped() and code == 130 else code

    def failure(self) -> str:
        """Last words of the run, for SageMaker's ``FailureReason``."""
        return "\n".join(self._tail)[-1000:]

    # -- before the run ----------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        scratch = Path(os.environ.get("RLVR_SCRATCH") or tempfile.gettempdir()) / "rlvr"
        environment = dict(os.environ)
        # caches and temporary files: never in what is uploaded when the job ends
        environment.setdefault("TMPDIR", str(scratch / "tmp"))
        Path(environment["TMPDIR"]).mkdir(parents=True, exist_ok=True)
        environment.setdefault("XDG_CACHE_HOME", str(scratch / "cache"))
        environment.setdefault("HF_HOME", str(scratch / "huggingface"))
        environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        if self._machine.interface:
            environment.setdefault("NCCL_SOCKET_IFNAME", self._machine.interface)
            environment.setdefault("GLOO_SOCKET_IFNAME", self._machine.interface)
        if "job" in self._description:
            # every attempt of this job is the same owner of the run's place in the store; that it
            # goes on with another job's run is a request to take it over, granted once
            environment["RLVR_OWNER"] = f"job {self._description['job']}"
            if self._description.get("takes_over"):
                environment["RLVR_TAKE_OVER"] = f"job {self._description['job']}"
        environment |= self._secrets()
        if self._description["install"]:
            site = self._install(scratch / "site")
            before = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = os.pathsep.join([str(site), *([before] if before else [])])
        return environment

    def _secrets(self) -> dict[str, str]:
        from rlvr_sagemaker.aws import call, client

        values = {}
        for name, arn in self._description["secrets"].items():

            def act(arn: str = arn) -> str:
                secrets = client("secretsmanager", _region_in(arn))
                return str(secrets.get_secret_value(SecretId=arn)["SecretString"])

            values[name] = call(f"fetching the secret {name}", act)
        return values

    def _install(self, site: Path) -> Path:
        """The user's own packages, which the image does not have; nothing is downloaded."""
        words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        for folder in self._description["install"]:
            with tempfile.TemporaryDirectory() as copy:  # a build writes beside the sources
                source = Path(copy) / "source"
                shutil.copytree(self._code / folder, source)
                command = [sys.executable, "-m", "pip", *words, "--target", str(site), str(source)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise MachineError(
                    f"'{folder}' cannot be installed: {done.stderr.strip()[-500:]}",
                    remedy="it has to install without network: setuptools, and dependencies that "
                    "the image has",
                )
        return site

    def _fetch(self) -> Path | None:
        """The run that an earlier attempt has left; every machine needs its checkpoint."""
        from rlvr_cluster.stores.again import fetch_newest

        return fetch_newest(self._description["runs"], self._runs, _say)

    def _words(self, resumed: Path | None) -> list[str]:
        description, machine = self._description, self._machine
        words = [
            "launch",
            *description["arguments"][1:],
            "--backend",
            "accelerate",
            "--display",
            "plain",
        ]
        words += ["--set", f"run.dir={self._runs}", "--set", f"run.mirror={description['runs']}"]
        if resumed is not None:
            words += ["--resume", str(resumed)]
        others = description["engine_gpus"] + description.get("eval_gpus", [])
        train = description["train_gpus"] or _all_gpus(others)
        if description["processes"] and train:
            if len(train) < description["processes"]:
                raise MachineError(
                    f"{description['processes']} processes were asked for, and this machine has "
                    f"{len(train)} GPUs to train on",
                    remedy="launch it with fewer --processes, or on another --instance-type",
                )
            train = train[: description["processes"]]
        if train:
            words += ["--gpus", ",".join(map(str, train))]
        if description["engine_gpus"]:
            words += ["--engine-gpus", ",".join(map(str, description["engine_gpus"]))]
        words += ["--processes", str(len(train) or description["processes"] or 1)]
        if len(machine.hosts) > 1:
            words += ["--nodes", str(len(machine.hosts)), "--node-rank", str(machine.index)]
            port = os.environ.get("RLVR_MAIN_PORT", str(PORT))
            words += ["--main-address", machine.hosts[0], "--main-port", port]
        return words

    # -- the run -----------------------------------------------------------------------------------

    def _start(self, words: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "rlvr_core.cli.main", *words],
            cwd=self._code / self._description["directory"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
        )
        self._children.append(child)
        if self._stopping:  # between the check above and now
            child.send_signal(signal.SIGTERM)
        return child

    def _follow(self, child: subprocess.Popen[str]) -> int:
        assert child.stdout is not None
        for line in child.stdout:
            self._tail.append(line.rstrip("\n"))
            sys.stdout.write(line)
            sys.stdout.flush()
        return child.wait()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    @contextlib.contextmanager
    def _watcher(
        self, training: subprocess.Popen[str], environment: Mapping[str, str]
    ) -> Iterator[threading.Thread | None]:
        """Evaluates checkpoints as they appear, on GPUs of its own."""
        if self._description.get("eval_config") is None or self._machine.index > 0:
            yield None
            return
        over = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(training, environment, over), daemon=True
        )
        thread.start()
        try:
            yield thread
        finally:
            over.set()

    def _watch(
        self,
        training: subprocess.Popen[str],
        environment: Mapping[str, str],
        over: threading.Event,
    ) -> None:
        while (folder := self._at_work(training)) is None:
            if over.wait(1.0):
                return
        words = ["watch", str(folder), "--config", self._description["eval_config"]]
        words += ["--out", str(folder / "evals" / "watch")]
        for override in self._description["eval_set"]:
            words += ["--set", override]
        if self._description["eval_gpus"]:
            words += ["--devices", ",".join(map(str, self._description["eval_gpus"]))]
        _say("rlvr " + " ".join(words))
        code = self._follow(self._start(words, environment))
        if code != 0:
            _say(f"rlvr watch ended with {code}")
        # results that came after the run had copied its last file
        from rlvr_cluster.stores.again import send_results

        try:
            send_results(folder / "evals", f"{self._description['runs']}/{folder.name}/evals")
        except MachineError as error:
            _say(f"error: {error}")
            self._lost = True

    def _at_work(self, training: subprocess.Popen[str]) -> Path | None:
        """The run's folder, once the run says that it is running.

        One that was fetched says how the attempt before has ended, which would end a watcher.
        """
        ended = training.poll() is not None  # asked first: it has then written its last
        records = sorted(self._runs.glob("*/run.json"), key=lambda path: path.parent.name)
        for path in reversed(records):
            with contextlib.suppress(OSError, ValueError):  # just being replaced
                if ended or json.loads(path.read_bytes())["outcome"] == "running":
                    return path.parent
        return None

    def _all_sent(self) -> bool:
        """Send what the run could not, once more; whether everything is there now.

        A job whose last checkpoint is nowhere must not look completed.
        """
        from rlvr_cluster.stores.again import unsent

        for run in unsent(self._runs):
            words = ["jobs", "push", str(run), self._description["runs"]]
            _say("rlvr " + " ".join(words))
            command = [sys.executable, "-m", "rlvr_core.cli.main", *words]
            if subprocess.run(command, env=self._env, check=False).returncode != 0:
                return False
        return not self._lost and not unsent(self._runs)

    def _hand_over(self) -> None:
        """The model alone for SageMaker's own archive: the best one, or else the last."""
        for run in self._runs.glob("*/checkpoints"):
            for name in ("best", "latest"):
                source = run / name
                if source.is_dir():
                    rest = shutil.ignore_patterns("trainer", "COMPLETE")
                    target = self._root / "model"
                    shutil.copytree(source, target, ignore=rest, dirs_exist_ok=True)
                    return


def _all_gpus(kept: list[int]) -> list[int]:
    """The GPUs that the machine shows, without those kept for others."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [gpu for gpu in range(count) if gpu not in kept]


def _region_in(arn: str) -> str | None:
    """The region an ARN names; None where it is only a name."""
    parts = arn.split(":")
    return parts[3] or None if arn.startswith("arn:") and len(parts) > 5 else None


def _say(text: str) -> None:
    sys.stdout.write(f"rlvr_sagemaker: {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the job; tells SageMaker why it failed."""
    root = Path(os.environ.get(ROOT, "/opt/ml"))
    begun = time.monotonic()
    attempt = None
    try:
        attempt = Attempt(root)
        code = attempt.run()
        words = attempt.failure()
    except RlvrError as error:
        code, words = error.exit_code, str(error)
        _say(f"error: {error}")
    if code != 0:
        failure = root / "output" / "failure"
        failure.parent.mkdir(parents=True, exist_ok=True)
        failure.write_text(f"exit code {code}\n{words}\n", encoding="utf-8")
    _say(f"ended with {code} after {time.monotonic() - begun:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
