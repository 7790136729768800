"""A vLLM server: its options, its process, and the checks before a run uses it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import torch
from pydantic import Field, model_validator

from rlvr_core.api import ConfigError, EngineContext, MachineError
from rlvr_core.engines.transformers import eos_ids
from rlvr_core.engines.vllm.process import VllmOptions, shared_arguments
from rlvr_core.workers.apart import apart
from rlvr_servers.client import Probe

SERVER_MODULE = "rlvr_servers.main"
"""The module that a server's process executes."""

ENGINE_GPUS = "RLVR_ENGINE_GPUS"
"""Environment variable with the GPUs that ``rlvr launch --engine-gpus`` keeps for engines."""
GIVEN_GPUS = "RLVR_GIVEN_GPUS"
"""Environment variable with the GPUs that ``rlvr launch`` was given, where ranks have fewer."""


_SHOWN = 5
_LONGEST_SOCKET = 104

Gpu = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(GPU|MIG)-")]


class ServerConfig(VllmOptions):
    """Options of engine ``vllm-server``. Precision, lengths and seed are the run's."""

    servers: Annotated[int, Field(gt=0)] | None = None
    """Servers to start on this machine. null: one, or one per ``tensor_parallel`` engine
    GPUs."""
    urls: list[str] = []
    """Servers that run already, like ``http://gpu-7:8000``, instead of starting some."""
    gpus: list[Gpu] | None = None
    """GPUs of the started servers, by their places in the ``CUDA_VISIBLE_DEVICES`` that the run was
    given, or by UUID. null: those of ``rlvr launch --engine-gpus``."""
    tensor_parallel: Annotated[int, Field(gt=0)] = 1
    """GPUs of each started server."""
    folder: str | None = None
    """Folder for the copy of the weights that restarted servers are given where the transport keeps
    none (``nccl``). null: shared memory, or where that is too small the temporary folder."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """How often each started server is started again in a run when it dies or hangs."""
    deadline: Annotated[float, Field(gt=0)] = 600.0
    """Seconds a server may take to start, and for each step of taking weights; if others run
    it, also to come back."""
    hang_after: Annotated[float, Field(gt=0)] = 120.0
    """Seconds a server's engine may say nothing before it is taken for hung."""
    max_in_flight: Annotated[int, Field(gt=0)] = 256
    """Completions that one process has at one server at a time; the others wait for the server
    with least to do."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory for a started server. Not used on a CPU."""

    @model_validator(mode="after")
    def _one_kind(self) -> ServerConfig:
        if self.urls:
            ours = {"servers", "gpus", "tensor_parallel", "gpu_memory_utilization"}
            ours |= {"kv_cache_mb", "block_size", "enforce_eager", "max_num_seqs", "restarts"}
            if extra := sorted(ours & self.model_fields_set):
                raise ValueError(f"urls are of running servers, so {extra[0]} has no effect")
            if len(set(self.urls)) != len(self.urls):
                raise ValueError("urls names a server twice")
        return self


def gpus_of(config: ServerConfig) -> list[list[str]]:
    """Return the ``CUDA_VISIBLE_DEVICES`` of each server to start; empty lists on a CPU.

    Raises:
        ConfigError: If a named GPU is not one of the run's.
        MachineError: If the numbers of servers and GPUs do not match.
    """
    gpus = [gpu for gpu in os.environ.get(ENGINE_GPUS, "").split(",") if gpu]
    if config.gpus is not None:
        shown = os.environ.get(GIVEN_GPUS, os.environ.get("CUDA_VISIBLE_DEVICES"))
        from rlvr_core.parallel.gpus import chosen_gpus

        gpus = chosen_gpus(config.gpus, shown, "engine.with.gpus")
    each = config.tensor_parallel
    if not gpus:
        if torch.cuda.is_available():
            raise MachineError(
                "the vLLM servers have no GPU of their own",
                where="engine",
                remedy=(
                    "keep some for them: rlvr launch --gpus 0 --engine-gpus 1, or engine.with.gpus",
                    "to share one GPU with the trainer take engine: vllm",
                ),
            )
        return [[] for _ in range(config.servers or 1)]
    count = config.servers or len(gpus) // each
    if count * each != len(gpus):
        raise MachineError(
            f"{len(gpus)} engine GPUs do not divide into {config.servers or 'any number of'} "
            f"servers of {each}",
            where="engine",
            remedy="servers x tensor_parallel has to be the number of engine GPUs",
        )
    return [gpus[index * each : (index + 1) * each] for index in range(count)]


@dataclass(slots=True)
class ServerProcess:
    """A vLLM server on this machine, reached by a Unix socket that only this user can open.

    Attributes:
        name: Name in messages: ``server 0``.
        folder: Folder of its socket and its log.
        arguments: Arguments of vLLM's server.
        gpus: The GPUs it sees; empty on a CPU.
    """

    name: str
    folder: Path
    arguments: Sequence[str]
    gpus: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None
    _pipe: int = field(default=-1)

    @property
    def socket(self) -> Path:
        """The Unix socket it listens on."""
        return self.folder / f"{self.name.replace(' ', '-')}.sock"

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.socket.with_suffix(".log")

    @property
    def pid(self) -> int:
        """Id of the listening process, the leader of the server's process group."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and return at once; ``ServerClient.answers`` says when it is ready."""
        self.kill()
        self.socket.unlink(missing_ok=True)
        ours, theirs = os.pipe()[::-1]
        command = [sys.executable, "-m", SERVER_MODULE, str(theirs)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder), *self.arguments, "--uds", str(self.socket)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.gpus),
                pass_fds=[theirs],
                start_new_session=True,  # its own process group, without Ctrl-C of the terminal
            )
        os.close(theirs)
        self._pipe = ours

    def ended(self) -> str | None:
        """Return how it ended; None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """Kill all its processes; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def log_tail(self) -> tuple[str, ...]:
        """Return the last lines of its log that mention an error, else the last lines."""
        if not self.log.exists():
            return ()
        lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line]
        errors = [line for line in lines if "Error" in line]
        return tuple(line[-300:] for line in (errors or lines)[-_SHOWN:])


def private_folder() -> Path:
    """Create a folder for sockets and logs that only this user can open.

    Raises:
        MachineError: If its path is too long for a socket.
    """
    folder = Path(tempfile.mkdtemp(prefix="rlvr-servers-"))
    if len(str(folder / "server-00.sock")) >= _LONGEST_SOCKET:
        folder.rmdir()
        raise MachineError(
            f"the temporary folder '{folder.parent}' has too long a path for a socket",
            where="TMPDIR",
            remedy="set TMPDIR to a shorter one, such as /tmp",
        )
    return folder


def environment(gpus: Sequence[str]) -> dict[str, str]:
    """Return the environment of a server: ours, without the variables of a rank of a run."""
    # the server must find the same code as this process
    path = [entry for entry in sys.path if entry]
    return apart() | {
        "PYTHONPATH": os.pathsep.join(path),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "VLLM_SERVER_DEV_MODE": "1",  # the routes that take weights; the socket is private
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        "TORCHDYNAMO_DISABLE": os.environ.get("TORCHDYNAMO_DISABLE", "0" if gpus else "1"),
    }


def arguments(config: ServerConfig, context: EngineContext, *, cpu: bool) -> tuple[str, ...]:
    """Return a server's arguments: only those that must differ from vLLM's defaults."""
    options = shared_arguments(config, context, cpu=cpu) | {
        "generation_config": "vllm",  # no sampling defaults from the model's folder
        "gpu_memory_utilization": None if cpu else config.gpu_memory_utilization,
        "tensor_parallel_size": config.tensor_parallel,
        "enable_scale_out": True,
        "disable_uvicorn_access_log": True,
        **BACKEND_OPTIONS,
    }
    if cpu:
        # one process fewer, which would busy-wait on a CPU
        options["distributed_executor_backend"] = (
            "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        )
    flags: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is True:
            flags.append(f"--{flag}")
        elif value is False and name == "enable_chunked_prefill":
            flags.append(f"--no-{flag}")
        elif value is not None and value is not False:
            flags += [f"--{flag}", str(value)]
    return tuple(flags)


def check_server(
    context: EngineContext, probe: Probe, nccl: bool, name: str, facts: Mapping[str, Any]
) -> None:
    """Refuse a server whose settings do not fit this run; else fit the probe to it.

    Args:
        context: The run's engine context.
        probe: The probe of the servers.
        nccl: Whether weights are sent by NCCL.
        name: Name of the server, for the message.
        facts: The result of its ``worker.Extension.rlvr_describe``.

    Raises:
        ConfigError: If it does not fit; names every missing flag.
    """
    dtype = str(context.dtype).removeprefix("torch.")
    required: dict[str, tuple[Any, str]] = {
        "backend": ("rlvr", '--weight-transfer-config \'{"backend": "rlvr"}\''),
        "dtype": (dtype, f"--dtype {dtype}"),
        "logprobs_mode": ("processed_logprobs", "--logprobs-mode processed_logprobs"),
    }
    if facts["device"] == "cpu":
        required["chunked_prefill"] = (False, "--no-enable-chunked-prefill")
    wrong = [
        f"its {fact} is {facts[fact]}: start it with {flag}"
        for fact, (value, flag) in required.items()
        if facts[fact] != value
    ]
    if facts["max_model_len"] < context.max_model_len:
        wrong.append(
            f"it takes sequences of {facts['max_model_len']} tokens: start it with "
            f"--max-model-len {context.max_model_len}"
        )
    if nccl and facts["device"] == "cpu":
        wrong.append("it is on a CPU, where NCCL does not reach: set engine.transport: files")
    if wrong:
        raise ConfigError(
            f"vLLM server {name} does not fit this run",
            where="engine",
            remedy=wrong,
        )
    probe.fit(
        vocabulary=facts["vocab_size"],
        block_size=facts["block_size"],
        device=facts["device"],
    )


def declared_eos(context: EngineContext) -> tuple[int, ...]:
    """Return the tokens that end a completion, from the model's folder."""
    if context.model is not None:
        return eos_ids(context.model, context.tokenizer)
    from transformers import AutoConfig, GenerationConfig

    options = {"trust_remote_code": context.trust_remote_code}
    config = AutoConfig.from_pretrained(context.model_path, **options)
    try:
        generation = GenerationConfig.from_pretrained(context.model_path)
    except OSError:  # not every model has a generation config
        generation = None
    stand_in: Any = SimpleNamespace(config=config, generation_config=generation)
    return eos_ids(stand_in, context.tokenizer)


BACKEND_OPTIONS = {
    "worker_extension_cls": "rlvr_servers.worker.Extension",
    "weight_transfer_config": json.dumps({"backend": "rlvr"}),
}
"""Arguments that let a server receive our weights."""
