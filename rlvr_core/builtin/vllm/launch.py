"""Building vLLM's engine in this process, and taking it down again."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import EngineContext, MachineError, RunError
from rlvr_core.builtin.vllm.lora import check_rank, room_for
from rlvr_core.builtin.vllm.process import (
    VERBOSE,
    adapt_cpu_build,
    first_line,
    import_vllm,
    untouched_process,
    untouched_randomness,
)

if TYPE_CHECKING:
    from rlvr_core.builtin.vllm.engine import VllmEngine

_CPU_KV_CACHE_MB = 512
_CPU_BLOCK_SIZE = 32
_CPU_STEP_TOKENS = 4096
_DTYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def launch(config: VllmEngine.Config, context: EngineContext) -> Any:
    """Vllm's ``LLMEngine`` for this rank, with the rest of the process left as it was.

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

        from rlvr_core.builtin.vllm import transfer as vllm_transfer

        cpu = bool(current_platform.is_cpu())
        if cpu:
            adapt_cpu_build()
        vllm_transfer.register()
        _groups.acquire()
        try:
            return LLMEngine.from_engine_args(
                EngineArgs(**arguments(config, context, cpu=cpu)),
                usage_context=UsageContext.LLM_CLASS,
            )
        except Exception as error:
            _groups.release()
            adapters = ("adapters: vLLM has them for some models only; lora: merged needs none",)
            raise MachineError(
                f"vLLM could not start: {first_line(error)}",
                where="engine",
                remedy=(
                    *(adapters if config.lora == "adapter" else ()),
                    "memory: lower engine.with.gpu_memory_utilization, or set kv_cache_mb",
                    "lengths: data.max_prompt_tokens + sampling.max_tokens must fit the model",
                    VERBOSE,
                ),
            ) from error


def arguments(config: VllmEngine.Config, context: EngineContext, *, cpu: bool) -> dict[str, Any]:
    """What vLLM is told: only what differs from its defaults for a reason."""
    from vllm.config import WeightTransferConfig

    from rlvr_core.builtin.vllm.transfer import BACKEND

    kv_cache_mb = config.kv_cache_mb or (_CPU_KV_CACHE_MB if cpu else None)
    found: dict[str, Any] = {
        "model": context.model_path,
        "revision": _revision(context),
        "trust_remote_code": context.trust_remote_code,
        "dtype": _DTYPES[context.dtype],
        "max_model_len": context.max_model_len,
        "seed": context.seed % 2**31,
        # the distribution really sampled from, temperature and filters included (T2)
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "enforce_eager": cpu if config.enforce_eager is None else config.enforce_eager,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_memory_bytes": kv_cache_mb and kv_cache_mb << 20,
        "block_size": config.block_size or (_CPU_BLOCK_SIZE if cpu else None),
        "max_num_seqs": config.max_num_seqs,
        "enable_sleep_mode": config.sleep and not cpu,
        "weight_transfer_config": WeightTransferConfig(backend=BACKEND),
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if cpu:
        # a prompt cut in two makes vLLM rewind the completion's generator, which only CUDA's can
        found["enable_chunked_prefill"] = False
        found["max_num_batched_tokens"] = max(_CPU_STEP_TOKENS, context.max_model_len)
    if config.lora == "adapter":
        found |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room_for(context)}
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        # an engine of this rank's own, on its device, inside the trainer's process group
        found["distributed_executor_backend"] = "external_launcher"
    return {name: value for name, value in found.items() if value is not None}


def check_process_group() -> None:
    """Refuse to be the first to set up the process group of several ranks.

    vLLM would make one of this rank alone, and the trainer could not make its own any more.

    Raises:
        RunError: If this is one of several processes and their group does not exist yet.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
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
        clean_up, core.cleanup_dist_env_and_memory = core.cleanup_dist_env_and_memory, _leave
        try:
            llm.engine_core.shutdown()
        finally:
            core.cleanup_dist_env_and_memory = clean_up
        _groups.release()


def _leave() -> None:
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
