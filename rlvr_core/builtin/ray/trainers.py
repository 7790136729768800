"""A run on several machines that Ray places: what a job of ``--backend ray --nodes`` begins with.

``python -m`` this module reserves one placement group, for the machines and for the actors of all
their processes, and only then starts anything. In each machine's bundle an actor runs the command
with that machine's number; this process shows what they print and ends when they have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from rlvr_core import __version__
from rlvr_core.api import MachineError, RlvrError
from rlvr_core.api.services import Stop
from rlvr_core.builtin.ray.bundles import GROUP, group_variable
from rlvr_core.builtin.ray.cluster import connect, import_ray, resources
from rlvr_core.builtin.ray.fleet import cause_of
from rlvr_core.builtin.ray.trainer_actor import TrainerActor, Where

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable that Ray gives a job's first process: files and environment of the job's actors."""
_POLL = 0.5
_NOT_BEGUN = 30.0
"""Seconds that machines have to end which wait for one that was stopped before it began."""
_INTERRUPTED = 130
_FINAL = (0, 2, 3, 6, _INTERRUPTED)
"""Exit codes after which a run is not started again: done, stopped, or it would end so again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be reserved and started.

    Attributes:
        nodes: Number of machines.
        machine: Resources of each.
        processes: Training processes of each.
        actors: Resources of the actors of each process, by kind.
        directory: Where to run the command, within the job's files.
        command: ``python -m MODULE``, and arguments of ``rlvr launch`` for all machines.
        deadline: Seconds for the cluster to have room.
        grace: Seconds that machines have to end after another one failed.
        restarts: How often the run is started again.
        words: All that is to be reserved, for messages.
    """

    nodes: int
    machine: Mapping[str, float]
    processes: int
    actors: Mapping[str, Sequence[Mapping[str, float]]]
    directory: str
    command: Sequence[str]
    deadline: float
    grace: float
    restarts: int
    words: str

    @property
    def bundles(self) -> list[dict[str, float]]:
        """All bundles: the machines', then those of each process."""
        each = [dict(one) for bundles in self.actors.values() for one in bundles]
        return [dict(self.machine)] * self.nodes + each * (self.nodes * self.processes)


def read(arguments: Sequence[str]) -> Wanted:
    """Read the arguments of this module: ``Wanted`` as JSON."""
    parser = argparse.ArgumentParser(prog="rlvr_core.builtin.ray.trainers")
    parser.add_argument("wanted", help="JSON")
    return Wanted(**json.loads(parser.parse_args(arguments).wanted))


class Requests:
    """Signals that ask the job to stop: those within ``Stop.TOGETHER`` seconds are one request."""

    def __init__(self) -> None:
        self.count, self._latest = 0, 0.0

    def listen(self) -> None:
        """Install handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.count or now - self._latest >= Stop.TOGETHER:
            self.count, self._latest = self.count + 1, now


class Machine:
    """One machine of an attempt.

    Args:
        index: Its number.
        actor: Handle of its ``TrainerActor``.
        where: Where that is.

    Attributes:
        code: Exit code of its command, negative where a signal ended it; None while it runs.
        lost: Why Ray says that it is lost.
    """

    def __init__(self, index: int, actor: Any, where: Where) -> None:
        self.index, self.actor, self.where = index, actor, where
        self.code: int | None = None
        self.lost = ""
        self.ended = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"machine {self.index} ({self.where.host}, {self.where.address})"

    def follow(self, news: SimpleQueue[tuple[Machine, Any]]) -> None:
        """Put what its command prints, its exit code, or the error that says it is lost."""
        import ray

        seen = 0
        while True:
            try:
                came = ray.get(self.actor.read.remote(seen))
            except ray.exceptions.ActorUnavailableError:  # soon it answers again, or is lost
                time.sleep(_POLL)
                continue
            except Exception as error:
                news.put((self, error))
                return
            seen += len(came)
            for one in came:
                news.put((self, one))
                if isinstance(one, int):
                    return

    def take(self, news: Any) -> None:
        """Show a line, or note the end."""
        if isinstance(news, tuple):
            self._show(*news)
        elif isinstance(news, int):
            self.code, self.ended = news, True
        elif not self.ended:
            self.lost, self.ended = cause_of(news), True

    def _show(self, number: int, line: str) -> None:
        stream = sys.stdout if number == 1 else sys.stderr
        # that of machine 0 is the run's own
        stream.write(f"[{self.name}] {line}" if self.index else line)
        stream.flush()


class Attempt:
    """One placement group, and a machine in each of its first bundles."""

    def __init__(self, wanted: Wanted, requests: Requests) -> None:
        self._wanted, self._requests = wanted, requests
        self._group: Any = None
        self._actors: list[Any] = []
        self.machines: list[Machine] = []

    def run(self) -> int:
        """Reserve, start, and wait for all; returns the run's exit code.

        Raises:
            MachineError: If the cluster has no room in time, or a machine is lost.
        """
        if not self._reserve():
            sys.stderr.write("rlvr: stopped before the cluster had room\n")
            return _INTERRUPTED
        self._place()
        news: SimpleQueue[tuple[Machine, Any]] = SimpleQueue()
        self._start()
        for machine in self.machines:
            threading.Thread(target=machine.follow, args=(news,), daemon=True).start()
        self._wait(news)
        return self._code()

    def close(self) -> None:
        """End what is left, and give the group back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            ray.kill(actor)
        if self._group is not None:
            remove_placement_group(self._group)

    def _reserve(self) -> bool:
        """Reserve the group; False if the job was stopped meanwhile."""
        from ray.util.placement_group import placement_group

        wanted = self._wanted
        self._group = placement_group(wanted.bundles, strategy="SPREAD")
        until, waits = time.monotonic() + wanted.deadline, False
        while not self._reserved(min(_POLL * 4, wanted.deadline)):
            if self._requests.count:
                return False
            if time.monotonic() > until:
                raise self._no_room()
            if not waits:
                sys.stdout.write(
                    f"rlvr: waiting for room for {wanted.words}; nodes have {_nodes()}\n"
                )
                sys.stdout.flush()
            waits = True
        return True

    def _reserved(self, seconds: float) -> bool:
        try:
            return bool(self._group.wait(seconds))
        except Exception as error:  # a plain one, where the cluster does not know it any more
            raise MachineError(f"the Ray cluster gave the placement group up: {error}") from error

    def _no_room(self) -> MachineError:
        wanted = self._wanted
        return MachineError(
            f"the Ray cluster had no room for {wanted.words} within {wanted.deadline:g} s; it has "
            f"{resources()}; its nodes have {_nodes()}",
            where="rlvr launch --backend ray",
            remedy=(
                "lower --nodes, --cpus, --gpus or the actors of the config, or add nodes: "
                "ray start --address=HEAD:6379",
                "raise --deadline where nodes are on their way",
            ),
        )

    def _place(self) -> None:
        """Start the actors, and say where they are.

        Raises:
            MachineError: If one does not start, or has another version of rlvr-core.
        """
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = dict(self._wanted.machine)
        options = {
            "num_cpus": needs.pop("CPU", 0),
            "num_gpus": needs.pop("GPU", 0),
            "memory": needs.pop("memory", None),
            "resources": needs,
            "max_restarts": 0,
            "max_concurrency": 4,
        }
        for index in range(self._wanted.nodes):
            there = PlacementGroupSchedulingStrategy(self._group, index)
            made = ray.remote(TrainerActor).options(**options, scheduling_strategy=there)
            self._actors.append(made.remote())
        try:
            found = ray.get(
                [actor.where.remote() for actor in self._actors], timeout=self._wanted.deadline
            )
        except ray.exceptions.RayError as error:
            raise MachineError(
                f"an actor that starts training processes did not start: {cause_of(error)}",
                remedy="every node needs rlvr-core and the job's files; see the logs of Ray",
            ) from error
        self.machines = [
            Machine(index, actor, where)
            for index, (actor, where) in enumerate(zip(self._actors, found, strict=True))
        ]
        for machine in self.machines:
            if machine.where.version != __version__:
                raise MachineError(
                    f"{machine.name} has rlvr-core {machine.where.version}, and the head "
                    f"{__version__}",
                    remedy="install the same on every node of the cluster",
                )
            gpus = f", GPUs {machine.where.gpus}" if machine.where.gpus else ""
            sys.stdout.write(f"rlvr: {machine.name}{gpus}\n")
        sys.stdout.flush()

    def _start(self) -> None:
        """Start the command on every machine."""
        wanted, first = self._wanted, self.machines[0].where
        environment = self._environment()
        for machine in self.machines:
            command = [*wanted.command, "--nodes", str(wanted.nodes)]
            if wanted.nodes > 1:
                command += ["--node-rank", str(machine.index), "--main-address", first.address]
                command += ["--main-port", str(first.port)]
            machine.actor.start.remote(command, wanted.directory, environment)

    def _environment(self) -> dict[str, str]:
        """Variables of the training processes, which are further drivers of the same job."""
        import ray

        wanted = self._wanted
        context = ray.get_runtime_context()
        found = {
            "RAY_ADDRESS": context.gcs_address,
            GROUP: group_variable(self._group.id.hex(), wanted.nodes, wanted.actors),
        }
        given: Mapping[str, str] = {}
        if config := os.environ.get(JOB_CONFIG):
            found[JOB_CONFIG] = config
            given = json.loads(config).get("runtime_env", {}).get("env_vars", {})
        if "OMP_NUM_THREADS" not in given:  # Ray would give each process as many as its machine
            threads = int(wanted.machine.get("CPU", 0) / wanted.processes)
            found["OMP_NUM_THREADS"] = str(max(1, threads))
        return found

    def _wait(self, news: SimpleQueue[tuple[Machine, Any]]) -> None:
        """Wait for all machines; those that are left after another one failed have a deadline."""
        sent, until = 0, float("inf")
        while not all(machine.ended for machine in self.machines):
            for machine in self.machines:
                if sent < self._requests.count and not machine.ended:
                    machine.actor.stop.remote()
            sent = self._requests.count
            try:
                machine, what = news.get(timeout=_POLL)
            except Empty:
                if time.monotonic() > until:
                    self._end_rest()
                    return
                continue
            machine.take(what)
            if machine.ended and (machine.lost or machine.code not in (0, _INTERRUPTED)):
                if machine.lost:
                    sys.stderr.write(f"rlvr: {machine.name} is lost: {machine.lost}\n")
                    sys.stderr.flush()
                begun = machine.lost or (machine.code or 0) > 0 or not sent
                until = min(until, time.monotonic() + (self._wanted.grace if begun else _NOT_BEGUN))

    def _end_rest(self) -> None:
        for machine in self.machines:
            if not machine.ended:
                machine.code, machine.ended = 128 + signal.SIGKILL, True
                sys.stderr.write(f"rlvr: {machine.name} did not end in time, and is ended\n")

    def _code(self) -> int:
        """Return the run's exit code.

        Raises:
            MachineError: If a machine is lost.
        """
        lost = [machine for machine in self.machines if machine.lost]
        if lost and self.machines[0].code != 0:  # else the run was over
            raise LostMachineError(
                f"{', '.join(machine.name for machine in lost)} was lost while the run was at "
                "work, and the processes on the other machines ended",
                remedy=(
                    "go on from the newest checkpoint in the store: rlvr launch --backend ray "
                    "--resume JOB",
                    "--restarts N does so by itself",
                ),
            )
        codes = [machine.code or 0 for machine in self.machines]
        if self._requests.count:  # one that a signal ended had not begun
            codes = [_INTERRUPTED if code == -signal.SIGTERM else code for code in codes]
        codes = [code if code >= 0 else 128 - code for code in codes]
        # a machine that ended because of another one has 1; one that finished its step has 130
        failed = [code for code in codes if code not in (0, _INTERRUPTED)]
        return max(failed or codes)


class LostMachineError(MachineError):
    """A machine was lost while the run was at work."""

    exit_code = 1


def _nodes() -> str:
    """What each node of the cluster has."""
    ray = import_ray("the job")
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return "; ".join(f"{one.get('CPU', 0):g} CPU, {one.get('GPU', 0):g} GPU" for one in alive)


def carry_out(wanted: Wanted) -> int:
    """Run, and start again as often as is wanted; returns the exit code.

    Raises:
        RlvrError: If the cluster has no room, or a machine is lost for the last time.
    """
    connect(None, "rlvr launch --backend ray --nodes", "RAY_ADDRESS")
    requests = Requests()
    requests.listen()
    for left in reversed(range(wanted.restarts + 1)):
        attempt = Attempt(wanted, requests)
        try:
            code = attempt.run()
            if code in _FINAL or requests.count or not left:
                return code
            why = f"the run failed with exit code {code}"
        except LostMachineError as error:
            if requests.count or not left:
                raise
            why = error.complaints[0].what
        finally:
            attempt.close()
        sys.stderr.write(f"rlvr: {why}; it is started again, {left} left\n")
        sys.stderr.flush()
    raise AssertionError("unreachable")


def main(arguments: Sequence[str]) -> int:
    """Carry out what the launcher has written."""
    try:
        return carry_out(read(arguments))
    except RlvrError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
