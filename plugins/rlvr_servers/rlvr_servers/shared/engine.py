"""Engine ``vllm-shared``: vLLM in the processes that train, one engine for several of them.

Options, figures and what has been run where: ``docs/engines.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from rlvr_core.api import EngineContext, Generation, GenerationRequest, MachineError, RunError
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.vllm.engine import VllmEngine
from rlvr_core.engines.vllm.process import VllmConfig, import_vllm, launch, untouched_process
from rlvr_core.engines.vllm.readback import Shard
from rlvr_core.engines.vllm.requests import Requests, room_for
from rlvr_core.parallel.ranks import LostError, connection_lost
from rlvr_servers.shared.group import Group, add_up_by_gloo, check_size
from rlvr_servers.shared.requests import SharedRequests


class SharedConfig(VllmConfig):
    """Options of engine ``vllm-shared``: those of ``vllm``, and how many processes share one."""

    tensor_parallel_size: Annotated[int, Field(gt=0)] = 2
    """Training processes that share one engine: each holds a shard of its weights and of its KV
    cache. Processes of one machine, one after the other."""

    @model_validator(mode="after")
    def _whole_adapter(self) -> SharedConfig:
        if self.lora == "adapter" and self.tensor_parallel_size > 1:
            raise ValueError("lora: adapter is for engines of one process each; set it to merged")
        return self


class SharedVllmEngine(VllmEngine):
    """Generates with vLLM, in this process and those that share its engine.

    ``drain``, ``score`` and ``fingerprint`` are collectives of these processes.
    """

    Config = SharedConfig

    config: SharedConfig

    def __init__(self, config: SharedConfig) -> None:
        super().__init__(config)
        self.traits = replace(self.traits, collective=config.tensor_parallel_size > 1)
        self._group: Group | None = None

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """See ``VllmEngine.submit``; the processes wake the engine together, in ``drain``."""
        running = self._ready()
        room_for(request, running.context.max_model_len)
        return running.queue.submit(request)

    def drain(self, timeout: float | None = None) -> None:
        """See ``VllmEngine.drain``; it returns when all processes have their answers."""
        self._ready_to_generate()
        super().drain(timeout)

    def _launch(self, context: EngineContext) -> Any:
        """See ``VllmEngine``.

        Raises:
            ConfigError: If the processes do not divide by ``tensor_parallel_size``.
            LostError: If another process that shares the engine has gone.
        """
        size = self.config.tensor_parallel_size
        if size == 1:
            return super()._launch(context)
        check_size(size)
        import_vllm()
        with untouched_process():
            from vllm.platforms import current_platform

            if current_platform.is_cpu():
                add_up_by_gloo()
        try:
            return launch(self.config, context, shards=size)
        except MachineError as error:
            _explain(error)
            raise

    def _requests(self, llm: Any, stops: StopStrings, eos_ids: tuple[int, ...]) -> Requests:
        if self.config.tensor_parallel_size == 1:
            return super()._requests(llm, stops, eos_ids)
        self._group = Group.of_vllm()
        return SharedRequests(llm, stops, eos_ids, self._group)

    def _shards(self, mine: dict[str, Shard]) -> Sequence[dict[str, Shard]]:
        return super()._shards(mine) if self._group is None else self._group.gather(mine)

    @contextmanager
    def _working(self, running: Any, failed: str, *, breaks: bool = False) -> Iterator[None]:
        """See ``VllmEngine``.

        Raises:
            LostError: If another process that shares the engine has gone: that one knows why.
        """
        try:
            with super()._working(running, failed, breaks=breaks):
                yield
        except RunError as error:
            if self._group is not None:
                _explain(error)
            raise


def _explain(error: Exception) -> None:
    """Raise a ``LostError`` where the fault is another process that has gone or is late."""
    cause = error.__cause__
    if isinstance(cause, Exception) and connection_lost(cause):
        raise LostError(late="timed out" in str(cause).lower()) from cause
