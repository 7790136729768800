"""Processes on this machine, supervised by torch's elastic agent (as in torchrun and accelerate).

The agent starts them, sets up their rendezvous, and ends all if one fails. Signals are handled
here: the agent would give the processes only 30 seconds, and a step with its checkpoint may take
longer.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    Json,
    LaunchPlan,
    LaunchRequest,
    MachineError,
    RunError,
)
from rlvr_core.launch.rank import STOPPED
from rlvr_core.parallel.gpus import GIVEN, VISIBLE, Gpu, chosen_gpus, given_gpus
from rlvr_core.parallel.ranks import LOST
from rlvr_core.run.ending import Stop

ENGINE_GPUS = "RLVR_ENGINE_GPUS"
"""Environment variable with the GPUs that ``--engine-gpus`` reserves for engines."""

_MEETING = 600
"""Seconds within which all machines of a run must have joined."""

DEADLINE = 15.0
"""Seconds that processes have to end after a second request."""

_ANYWHERE = "192.0.2.1"
"""A documentation address that no machine has, used to find the outgoing network interface."""


def split_gpus(value: object) -> object:
    """Split names that the command line has as one word: ``0,1``."""
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [part.strip() for word in value for part in word.split(",")]
    return value


class ProcessConfig(ComponentConfig):
    """Options of launchers that start processes on this machine."""

    processes: Annotated[int, Field(gt=0)] | None = None
    """Number of processes on this machine; null: one per GPU of ``gpus``."""
    gpus: Annotated[list[Gpu] | None, BeforeValidator(split_gpus)] = None
    """GPUs to train on, one per process, by their places in ``CUDA_VISIBLE_DEVICES`` or by UUID;
    null: those that are visible, or the CPU if there are none."""
    engine_gpus: Annotated[list[Gpu] | None, BeforeValidator(split_gpus)] = None
    """GPUs reserved for an engine that runs in its own processes, named in the same way."""


def count_of(config: ProcessConfig) -> int:
    """Return the number of processes to start on this machine.

    Raises:
        ConfigError: If it is not given, or does not match the GPUs.
    """
    gpus = config.gpus or []
    if config.processes is None and not gpus:
        raise ConfigError("how many processes?", remedy="say --processes N, or --gpus 0,1,...")
    processes = config.processes or len(gpus)
    if gpus and processes != len(gpus):
        raise ConfigError(
            f"{processes} processes on {len(gpus)} GPUs ({','.join(map(str, gpus))}): each trains "
            "on one",
            where="--gpus",
            remedy="name as many GPUs as processes",
        )
    return processes


def environment_of(
    config: ProcessConfig, request: LaunchRequest, shown: str | None
) -> dict[str, str]:
    """Return the processes' environment variables, set before any of them starts.

    Args:
        config: The launcher's options.
        request: What is launched.
        shown: The ``CUDA_VISIBLE_DEVICES`` that the launcher was given.

    Raises:
        ConfigError: If GPUs are reserved for an engine that would not use them, or are not there.
    """
    variables: dict[str, str] = {}
    gpus, engine_gpus = config.gpus or [], config.engine_gpus or []
    cards = chosen_gpus([*gpus, *engine_gpus], shown, "--gpus, --engine-gpus")
    if gpus:
        variables[VISIBLE] = ",".join(cards[: len(gpus)])
    if engine_gpus:
        if not request.engine_apart:
            raise ConfigError(
                "engine_gpus is set, and the config's engine works inside the training processes",
                where="--engine-gpus",
                remedy="leave it out, or choose an engine with processes of its own",
            )
        variables[ENGINE_GPUS] = ",".join(cards[len(gpus) :])
    return variables


def _cards(shown: str | None, processes: int) -> str:
    """Say which card each process trains on: of those shown, the one at its own place."""
    visible = given_gpus(shown)
    if visible is None:
        return "each on the GPU of its number among all of this machine, on a CPU where none is"
    if not visible:
        return f"each on the CPU: {VISIBLE} shows no GPU"
    if len(visible) < processes:
        raise ConfigError(
            f"{processes} processes, and this run was given {len(visible)} GPUs: "
            f"{VISIBLE}={','.join(visible)}",
            where="--processes",
            remedy=f"start as many as GPUs, or train on the CPU: {VISIBLE}=''",
        )
    return ", ".join(f"process {rank} on GPU {visible[rank]}" for rank in range(processes))


@dataclass(frozen=True, slots=True)
class Nodes:
    """The machines of a run.

    Attributes:
        count: Number of machines.
        index: Index of this machine.
        address: Where processes meet: a name or address of machine 0.
        port: A free port on machine 0.
    """

    count: int = 1
    index: int = 0
    address: str = ""
    port: int = 0


def process_plan(
    launcher: str, config: ProcessConfig, request: LaunchRequest, nodes: Nodes
) -> LaunchPlan:
    """Return what would be started on this machine."""
    processes = count_of(config)
    environment = environment_of(config, request, os.environ.get(VISIBLE))
    command = ["python", "-m", "rlvr_core.launch.rank", *request.arguments]
    total = processes * nodes.count
    lines = [f"{total} processes train {request.name}: {processes} on this machine"]
    if nodes.count > 1:
        lines[0] += f", which is {nodes.index} of 0..{nodes.count - 1}"
        lines.append(f"they meet at {nodes.address}:{nodes.port}")
    lines.append(_cards(environment.get(VISIBLE, os.environ.get(VISIBLE)), processes))
    lines += [f"each with {name}={value}" for name, value in environment.items()]
    lines.append("each runs: " + " ".join(command))
    details: dict[str, Json] = {
        "processes": processes,
        "nodes": nodes.count,
        "node_rank": nodes.index,
        "main_address": nodes.address or None,
        "main_port": nodes.port or None,
        "environment": environment,
        "command": command,
    }
    return LaunchPlan(launcher, tuple(lines), details)


def supervise(plan: LaunchPlan) -> int:
    """Start the processes of a plan and wait for all of them.

    Returns:
        The exit code of the run: that of the process that failed first, 130 if interrupted.

    Raises:
        MachineError: If the machines of the run do not meet, or this one lacks GPUs.
        RunError: If a process was killed, or the processes ended because another machine's did.
    """
    details = plan.details
    if VISIBLE in details["environment"]:  # what engine.with.gpus are places in
        os.environ[GIVEN] = os.environ.get(VISIBLE, "all")
    # before torch is imported: the agent passes its own environment on
    os.environ.update(details["environment"])
    os.environ["PYTHONUNBUFFERED"] = "1"
    # a lost rendezvous store would be reported hundreds of times, with C++ stack traces
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if details["nodes"] > 1 and "GLOO_SOCKET_IFNAME" not in os.environ:
        # gloo would listen on the address of this machine's own name, which may be 127.0.1.1
        os.environ["GLOO_SOCKET_IFNAME"] = interface_to(details["main_address"])
    _check_gpus(details)
    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="rlvr-launch-") as logs,
        _Forwarded(Path(logs, "stopped")) as signals,
    ):
        launch = elastic_launch(_agent(details, logs), sys.executable)
        try:
            launch(*details["command"][1:])
        except ChildFailedError as error:
            codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
            if signals.requests and all(code < 0 or code in (LOST, 130) for code in codes.values()):
                if codes.get(0) != 130:  # else process 0 has said so
                    sys.stderr.write("rlvr launch: interrupted; --resume goes on\n")
                return 130
            if details["node_rank"] > 0 and set(codes.values()) <= {LOST, -signal.SIGTERM}:
                raise RunError(
                    "a process on another machine has failed or is gone, and those on this one "
                    "ended",
                    remedy=(
                        f"machine 0 ({details['main_address']}) tells why, if it is still there",
                        "continue from the newest checkpoint with --resume",
                    ),
                ) from error
            return exit_code(codes)
        except DistError as error:
            raise MachineError(
                f"the {details['nodes']} machines did not meet at {details['main_address']}:"
                f"{details['main_port']}: {str(error).strip().splitlines()[0]}",
                where="--main-address, --main-port",
                remedy="start all machines within ten minutes of each other; machine 0 has to be "
                "reached at that port",
            ) from error
    return 0


def _check_gpus(details: Mapping[str, Any]) -> None:
    """Refuse to train on the CPU, or several on one GPU, where GPUs were asked for."""
    import torch

    # counted by the driver's library where it can be: no process of the launcher uses a GPU
    wanted, there = details["processes"], torch.cuda.device_count()
    named = details["environment"].get(VISIBLE)
    if there >= wanted or (named is None and there == 0):
        return
    asked = f"--gpus names {named}" if named else f"{wanted} processes are to train"
    raise MachineError(
        f"{asked}, and torch sees {there or 'no'} GPU{'s' if there > 1 else ''} of them here "
        f"(it is built for CUDA {torch.version.cuda or 'none'})",
        where="--gpus",
        remedy=(
            "see what is there: nvidia-smi -L; python -c 'import torch; print(torch.version.cuda)'",
            f"to train on the CPU leave --gpus out and set {VISIBLE}=''",
        ),
    )


def interface_to(address: str) -> str:
    """Return the network interface that connects this machine with the one at ``address``.

    Raises:
        MachineError: If there is no route to it.
    """
    import psutil

    local = _own_address(address)
    if local is None:
        raise MachineError(
            f"this machine knows no way to '{address}'",
            where="--main-address",
            remedy="name machine 0 by an address that all machines reach",
        )
    # machine 0, whose own name resolves to loopback: use the default route instead
    if _loops(local):
        local = _own_address(_ANYWHERE)
    for name, addresses in psutil.net_if_addrs().items():
        if local in [each.address.partition("%")[0] for each in addresses]:
            return name
    return "lo"


def _own_address(target: str) -> str | None:
    """Return this machine's address on the route to another; sends nothing."""
    try:
        addresses = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, place = addresses[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(place)
            local: str = way.getsockname()[0]
            return local
    except OSError:
        return None


def _loops(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _agent(details: Mapping[str, Any], logs: str) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    nodes, processes = details["nodes"], details["processes"]
    alone = nodes == 1
    shown = {rank: Std.ALL for rank in range(processes) if rank > 0 or details["node_rank"] > 0}
    return LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex if alone else "rlvr",
        rdzv_backend="c10d" if alone else "static",
        rdzv_endpoint="localhost:0"
        if alone
        else f"{details['main_address']}:{details['main_port']}",
        rdzv_configs={} if alone else {"rank": details["node_rank"], "timeout": _MEETING},
        max_restarts=0,
        # rank 0 has the terminal; output of the others is prefixed with their rank
        logs_specs=DefaultLogsSpecs(log_dir=logs, redirects={}, tee=shown),
        log_line_prefix_template="[rank ${rank}] ",
        signals_to_handle="SIGHUP,SIGQUIT",  # SIGINT and SIGTERM: see _Forwarded
    )


def exit_code(codes: Mapping[int, int]) -> int:
    """Return the run's exit code from those of its failed processes.

    The codes show which failed first: a process that ended because of another one has a code that
    says so.

    Raises:
        RunError: If one was killed, and so could not report it itself.
    """
    reported = [code for _, code in sorted(codes.items()) if code > 0 and code not in (LOST, 130)]
    if reported:
        return reported[0]
    killed = {rank: -code for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
    if killed:
        rank, number = next(iter(sorted(killed.items())))
        raise RunError(
            f"process {rank} was ended by {signal.Signals(number).name}; the others were stopped",
            remedy=(
                "if nobody killed it, the machine may have run out of memory: dmesg tells",
                "continue from the newest checkpoint with --resume",
            ),
        )
    return 130 if 130 in codes.values() else 1


class _Forwarded:
    """Forwards SIGINT and SIGTERM to the processes; a third request kills them at once.

    The processes have their own sessions, so that Ctrl-C in a terminal reaches them only through
    this class. Signals within ``Stop.TOGETHER`` seconds are one request, here as in the processes.
    After a second request they have ``DEADLINE`` seconds. A process that is not there yet, or has
    not begun to run Python, sees a file instead: ``rank`` looks for it.

    Args:
        flag: The file, made at the first request.
    """

    def __init__(self, flag: Path) -> None:
        import psutil  # no handler imports anything: it may have interrupted an import

        self.requests, self._latest = 0, 0.0
        self._flag = os.environ[STOPPED] = str(flag)
        self._own = psutil.Process()

    def __enter__(self) -> _Forwarded:
        self._before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requests and now - self._latest < Stop.TOGETHER:
            return
        self._latest = now
        self.requests += 1
        os.close(os.open(self._flag, os.O_CREAT | os.O_WRONLY))
        if self.requests > 2:
            self._kill()
            return
        if self.requests == 2:
            timer = threading.Timer(DEADLINE, self._kill)
            timer.daemon = True
            timer.start()
        told = "finishing the step, with a checkpoint; once more to stop at once"
        os.write(2, f"rlvr launch: {told if self.requests == 1 else 'stopping'}\n".encode())
        for child in self._own.children():
            with contextlib.suppress(OSError):
                os.kill(child.pid, number)

    def _kill(self) -> None:
        """End the processes that are left, and theirs."""
        for child in self._own.children(recursive=True):
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)
