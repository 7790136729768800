"""What a vLLM server must be like for a run, and where it may be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.engines.transformers import eos_ids

if TYPE_CHECKING:
    from rlvr_core.api import EngineContext
    from rlvr_core.builtin.vllm.pool import Server
    from rlvr_core.builtin.vllm.probe import Probe
    from rlvr_core.builtin.vllm.server import VllmServerEngine

ENGINE_GPUS = "RLVR_ENGINE_GPUS"
"""Environment variable with the GPUs that ``rlvr launch --engine-gpus`` keeps for engines."""


def gpus_of(config: VllmServerEngine.Config) -> list[list[int]]:
    """The GPUs of each server to start; empty lists on a CPU.

    Raises:
        MachineError: If servers and GPUs do not go together.
    """
    given = os.environ.get(ENGINE_GPUS, "")
    gpus = config.gpus if config.gpus is not None else [int(g) for g in given.split(",") if g]
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


def over_nccl(config: VllmServerEngine.Config) -> bool:
    """Whether weights go over NCCL.

    Raises:
        MachineError: If they are to, and cannot.
    """
    transfer = config.transfer
    if transfer == "nccl" and not torch.cuda.is_available():
        raise MachineError(
            "transfer: nccl needs a GPU, and this process has none",
            where="engine",
            remedy="set engine.with.transfer: files",
        )
    return transfer == "nccl" or (transfer == "auto" and torch.cuda.is_available())


def check_server(
    context: EngineContext, probe: Probe, nccl: bool, server: Server, facts: Mapping[str, Any]
) -> None:
    """Refuse a server that could not do this run's work exactly; fit the probe to one that can.

    Args:
        context: What the run needs.
        probe: Of the servers.
        nccl: Whether weights are to go over NCCL.
        server: The server.
        facts: What ``vllm_worker.Extension.rlvr_describe`` told of it.

    Raises:
        ConfigError: With every flag it lacks.
    """
    dtype = str(context.dtype).removeprefix("torch.")
    wanted: dict[str, tuple[Any, str]] = {
        "backend": ("rlvr", '--weight-transfer-config \'{"backend": "rlvr"}\''),
        "dtype": (dtype, f"--dtype {dtype}"),
        "logprobs_mode": ("processed_logprobs", "--logprobs-mode processed_logprobs"),
    }
    if facts["device"] == "cpu":
        wanted["chunked_prefill"] = (False, "--no-enable-chunked-prefill")
    wrong = [
        f"its {name} is {facts[name]}: start it with {flag}"
        for name, (value, flag) in wanted.items()
        if facts[name] != value
    ]
    if facts["max_model_len"] < context.max_model_len:
        wrong.append(
            f"it takes sequences of {facts['max_model_len']} tokens: start it with "
            f"--max-model-len {context.max_model_len}"
        )
    if nccl and facts["device"] == "cpu":
        wrong.append("it is on a CPU, where NCCL does not reach: set transfer: files")
    if wrong:
        raise ConfigError(
            f"vLLM server {server.name} does not fit this run",
            where="engine",
            remedy=wrong,
        )
    probe.fit(
        vocabulary=facts["vocab_size"],
        block_size=facts["block_size"],
        device=facts["device"],
    )


def key_of(variable: str | None) -> str | None:
    """The key in an environment variable.

    Raises:
        ConfigError: If it is not set.
    """
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise ConfigError(
            f"the key of the vLLM servers is to be in {variable}, which is not set",
            where="engine.with.api_key_env",
            remedy=f"export {variable}=...",
        )
    return os.environ[variable]


def declared_eos(context: EngineContext) -> tuple[int, ...]:
    """Tokens that end a completion; the model itself is elsewhere, its folder is here."""
    if context.model is not None:
        return eos_ids(context.model, context.tokenizer)
    from transformers import AutoConfig, GenerationConfig

    options = {"trust_remote_code": context.trust_remote_code}
    config = AutoConfig.from_pretrained(context.model_path, **options)
    try:
        generation = GenerationConfig.from_pretrained(context.model_path)
    except OSError:  # not every model has one
        generation = None
    stand_in: Any = SimpleNamespace(config=config, generation_config=generation)
    return eos_ids(stand_in, context.tokenizer)
