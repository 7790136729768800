"""A vLLM server as a process of ours: how it is started, watched and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import MachineError
from rlvr_core.builtin.vllm.process import VERBOSE
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from rlvr_core.api import EngineContext
    from rlvr_core.builtin.vllm.server import VllmServerEngine

HOST = "rlvr_core.builtin.vllm.host"
"""The module that is a server's process."""

_CPU_KV_CACHE_MB = 512
_CPU_BLOCK_SIZE = 32
_CPU_STEP_TOKENS = 4096
_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_SHOWN = 5
_LONGEST_SOCKET = 104


@dataclass(slots=True)
class ServerProcess:
    """A vLLM server on this machine, reached by a Unix socket that only this user can open.

    Attributes:
        name: For people: ``server 0``.
        folder: Of its socket and its log.
        words: Arguments of vLLM's server.
        gpus: The GPUs it sees; empty on a CPU.
    """

    name: str
    folder: Path
    words: Sequence[str]
    gpus: Sequence[int] = ()
    _process: subprocess.Popen[bytes] | None = None
    _pipe: int = field(default=-1)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / f"{self.name.replace(' ', '-')}.sock"

    @property
    def log(self) -> Path:
        """Where its own account goes."""
        return self.socket.with_suffix(".log")

    @property
    def pid(self) -> int:
        """Of the process that listens, which leads the group of all its processes."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it is of use when it answers."""
        self.kill()
        self.socket.unlink(missing_ok=True)
        ours, theirs = os.pipe()[::-1]
        command = [sys.executable, "-m", HOST, str(theirs)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder), *self.words, "--uds", str(self.socket)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.gpus),
                pass_fds=[theirs],
                start_new_session=True,  # a group of its own, and no Ctrl-C of the terminal
            )
        os.close(theirs)
        self._pipe = ours

    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        """End all its processes at once; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def last_words(self) -> tuple[str, ...]:
        """The last lines of its log that tell of an error, else the last lines."""
        if not self.log.exists():
            return ()
        lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line]
        errors = [line for line in lines if "Error" in line]
        return tuple(line[-300:] for line in (errors or lines)[-_SHOWN:])


def private_folder() -> Path:
    """A new folder for sockets and logs, that only this user can open.

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


def environment(gpus: Sequence[int]) -> dict[str, str]:
    """The environment of a server: ours, without what makes this process a rank of a run."""
    # the code that this process runs is to be found there too
    path = [one for one in sys.path if one]
    return ranks.apart() | {
        "PYTHONPATH": os.pathsep.join(path),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "VLLM_SERVER_DEV_MODE": "1",  # the routes that take weights; the socket is private
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        "TORCHDYNAMO_DISABLE": os.environ.get("TORCHDYNAMO_DISABLE", "0" if gpus else "1"),
    }


def arguments(
    config: VllmServerEngine.Config, context: EngineContext, *, cpu: bool
) -> tuple[str, ...]:
    """What a server is told: only what differs from vLLM's defaults for a reason."""
    kv_cache_mb = config.kv_cache_mb or (_CPU_KV_CACHE_MB if cpu else None)
    eager = cpu if config.enforce_eager is None else config.enforce_eager
    options: dict[str, Any] = {
        "model": context.model_path,
        "dtype": _DTYPES[context.dtype],
        "max-model-len": context.max_model_len,
        "seed": context.seed % 2**31,
        # the distribution really sampled from, temperature and filters included (T2)
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",  # no sampling default from the model's folder
        "gpu-memory-utilization": None if cpu else config.gpu_memory_utilization,
        "kv-cache-memory-bytes": kv_cache_mb and kv_cache_mb << 20,
        "block-size": config.block_size or (_CPU_BLOCK_SIZE if cpu else None),
        "max-num-seqs": config.max_num_seqs,
        "tensor-parallel-size": config.tensor_parallel,
        **BACKEND_OPTIONS,
    }
    flags = ["enable-prefix-caching", "enable-scale-out", "disable-uvicorn-access-log"]
    flags += ["enforce-eager"] * eager + ["trust-remote-code"] * context.trust_remote_code
    if cpu:
        # a prompt cut in two makes vLLM rewind the completion's generator, which only CUDA's can
        flags.append("no-enable-chunked-prefill")
        options["max-num-batched-tokens"] = max(_CPU_STEP_TOKENS, context.max_model_len)
        # one process less, which on a CPU would spin
        options["distributed-executor-backend"] = (
            "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        )
    words = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    ]
    return (*words, *(f"--{flag}" for flag in flags))


BACKEND_OPTIONS = {
    "worker-extension-cls": "rlvr_core.builtin.vllm.worker.Extension",
    "weight-transfer-config": json.dumps({"backend": "rlvr"}),
}
"""What lets a server take weights from us."""

REMEDY = (
    "memory: lower engine.with.gpu_memory_utilization, or set kv_cache_mb",
    "lengths: data.max_prompt_tokens + sampling.max_tokens must fit the model",
    VERBOSE,
)
"""Remedies for a server that does not start."""
