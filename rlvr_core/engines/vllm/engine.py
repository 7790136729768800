"""Engine ``vllm``: vLLM in the trainer's process, on a GPU or, with its CPU build, without one.

One engine per rank. Options, figures and what has been run where: ``docs/engines.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlvr_core.api import (
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    RlvrError,
    RunError,
    SamplingParams,
    ScoreRequest,
    Scores,
    WeightSource,
    one_line,
)
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.transformers import eos_ids
from rlvr_core.engines.vllm.adapter import Adapters
from rlvr_core.engines.vllm.probe import PROBE_TOKENS, check_probe, probe_prompt, source_logprobs
from rlvr_core.engines.vllm.process import (
    VERBOSE,
    VllmConfig,
    launch,
    shut_down,
    untouched_randomness,
)
from rlvr_core.engines.vllm.readback import Shard, fingerprint, whole
from rlvr_core.engines.vllm.requests import Requests, room_for

_PROBE_DEADLINE = 600.0


@dataclass(slots=True)
class _Running:
    """State of the engine between ``start`` and ``close``."""

    llm: Any
    queue: Requests
    context: EngineContext
    device: torch.device
    probe_ids: tuple[int, ...]
    adapters: Adapters | None = None
    asleep: bool = False
    without_cache: bool = False
    """Whether it is awake, except for the KV cache."""
    without_weights: bool = False
    """Whether its weights were dropped while it slept and have to be sent again."""
    source: WeightSource | None = None
    """Source of the last weights."""


class VllmEngine:
    """Generates with vLLM, in this process."""

    traits = EngineTraits(continuous=True, own_weights=True)

    Config = VllmConfig

    def __init__(self, config: VllmConfig) -> None:
        self.config = config
        self.traits = replace(type(self).traits, takes_adapter=config.lora == "adapter")
        self._running: _Running | None = None
        self._broken: str | None = None
        self.between: Callable[[], None] | None = None

    def start(self, context: EngineContext) -> None:
        """Build the engine; see ``Engine.start``.

        Raises:
            ConfigError: If it is to take adapters, and there are none or they are too large.
            MachineError: If vLLM is missing, does not import, or cannot start on this machine.
        """
        llm = self._launch(context)
        llm.set_weight_version("0")
        ends = () if context.model is None else eos_ids(context.model, context.tokenizer)
        block = llm.vllm_config.cache_config.block_size
        length = max(1, min(2 * block + 1, context.max_model_len - PROBE_TOKENS))
        self._running = _Running(
            llm=llm,
            queue=self._requests(llm, StopStrings(context.tokenizer), ends),
            context=context,
            device=torch.device(llm.vllm_config.device_config.device_type),
            probe_ids=probe_prompt(context.tokenizer, llm.model_config.get_vocab_size(), length),
            adapters=Adapters(llm) if self.config.lora == "adapter" else None,
        )

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; see ``Engine.submit``.

        A completion ends by length where prompt and completion reach the engine's limit.

        Raises:
            RunError: If the prompt is empty, or leaves no room for a token.
        """
        running = self._ready_to_generate()
        room_for(request, running.context.max_model_len)
        return running.queue.submit(request)

    def drain(self, timeout: float | None = None) -> None:
        """Run the engine until every request is finished; see ``Engine.drain``.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the engine failed.
        """
        running = self._ready()
        with self._working(running, "vLLM failed"):
            running.queue.run(timeout, self.between)

    def abort(self) -> None:
        """Cancel every request that is not finished; see ``Interruptible``."""
        self._ready().queue.abort()

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``. A text and its prompt must leave room for one more token.

        Raises:
            RunError: If completions are unfinished, or vLLM failed.
        """
        running = self._ready_to_generate()
        if running.queue:
            raise RunError(f"asked to score with {len(running.queue)} completions unfinished")
        with self._working(running, "vLLM failed"):
            return running.queue.score(requests, timeout)

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Take the trainer's weights, in one transaction; see ``Engine.load_weights``.

        Called from ``between``, unfinished completions go on under the new weights: vLLM computes
        the keys and values of what they have so far again.

        Raises:
            RunError: If completions are unfinished, or any part of it failed. After a failure the
                engine refuses all further work.
        """
        running = self._ready()
        if running.queue and self.between is None:
            raise RunError(
                f"weights of version {version} came while {len(running.queue)} completions were "
                "being generated",
                remedy="drain the engine first: a completion has one version",
            )
        with self._working(running, f"weight sync to version {version} failed", breaks=True):
            self._transfer(running, version, source)
            running.queue.version = version
            if not running.queue:
                self._probe(running, source)

    def _transfer(self, running: _Running, version: int, source: WeightSource) -> None:
        llm, unfinished = running.llm, bool(running.queue)
        if running.adapters is not None:
            running.queue.adapter = running.adapters.load(source.adapter())
        else:
            llm.collective_rpc("start_weight_update")
            update = {"weights": source.tensors()}
            llm.collective_rpc("update_weights", kwargs={"update_info": update})
            llm.collective_rpc("finish_weight_update")
            running.source, running.without_weights = source, False
        self._wake_cache(running)
        # keys and values of the old weights must not outlive them
        if not llm.reset_prefix_cache(reset_running_requests=unfinished):
            raise RuntimeError("vLLM did not reset its prefix cache")
        llm.set_weight_version(str(version))

    def _probe(self, running: _Running, source: WeightSource) -> None:
        """Sample a few tokens: nothing of the old weights may be used for them, nor labelled so.

        Raises:
            RunError: If it is, or their log-probs are not the trainer's.
        """
        queue, dtype = running.queue, running.context.dtype
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        request = GenerationRequest("probe", running.probe_ids, params, (queue.version,))
        future = queue.submit_alike(request)
        queue.run(_PROBE_DEADLINE)
        (answer,) = future.result(0)
        # a process that has no trainer leaves the comparison to the one that has
        if source.sharded or source.module is not None:
            ours = source_logprobs(source, running.probe_ids, answer.token_ids, dtype)
            check_probe(answer.logprobs, ours, dtype, running.device, queue.version)
        # half precision hides old keys and values; the probe before had the same prompt
        if queue.cached_tokens:
            raise RunError(
                f"weight sync to version {queue.version}: the prefix cache still had keys and "
                f"values of {queue.cached_tokens} tokens from before it (band: none)",
                remedy="vLLM said that it had reset the cache: report its version",
            )
        if answer.version != queue.version or answer.token_versions:
            raise RunError(
                f"weight sync to version {queue.version}: vLLM samples under the label "
                f"{answer.version}",
                remedy="vLLM did not take the label of the new weights: report its version",
            )

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``.

        Raises:
            RunError: If vLLM could not read its weights back.
        """
        running = self._ready()
        with self._working(running, "vLLM could not read its weights back"):
            shards: dict[str, Shard] = running.llm.collective_rpc(fingerprint)[0]
            return whole(self._shards(shards))

    def sleep(self) -> None:
        """Give memory back; see ``Engine.sleep``. Nothing happens on a CPU.

        Raises:
            RunError: If completions are unfinished: sleeping would abort them.
        """
        running = self._ready()
        if running.queue:
            raise RunError(f"asked to sleep with {len(running.queue)} completions unfinished")
        if self.config.sleep and running.device.type == "cuda":
            # weights that the trainer did not send, could not come again: adapters alone, or none
            level = 1 if running.source is None else self.config.sleep_level
            running.llm.sleep(level=level)
            running.asleep, running.without_weights = True, level == 2

    def wake(self) -> None:
        """Undo ``sleep``, except for the KV cache: new weights come while its memory is still free.

        It is there again after ``load_weights``, or when something is to be generated without.
        """
        running = self._running
        if running is not None and running.asleep:
            running.llm.wake_up(tags=["weights"])
            running.asleep, running.without_cache = False, True

    def _ready_to_generate(self) -> _Running:
        """The engine with its weights and its KV cache, as generation needs them."""
        running = self._ready()
        if running.without_weights:
            # the step was skipped: the trainer's weights are still those of before
            assert running.source is not None, "it sleeps at level 2 after a first sync alone"
            self.load_weights(running.queue.version, running.source)
        self._wake_cache(running)
        return running

    def _wake_cache(self, running: _Running) -> None:
        if running.without_cache:
            running.without_cache = False
            if not running.llm.wake_up(tags=["kv_cache"]):
                raise RunError("vLLM did not wake up wholly", remedy=VERBOSE)

    def close(self) -> None:
        """Stop the engine and free its memory; see ``Engine.close``."""
        running, self._running = self._running, None
        if running is None:
            return
        running.queue.fail(RunError("the engine was closed before the request was finished"))
        if running.adapters is not None:
            running.adapters.close()
        shut_down(running.llm)

    # what an engine of several processes does otherwise

    def _launch(self, context: EngineContext) -> Any:
        return launch(self.config, context)

    def _requests(self, llm: Any, stops: StopStrings, eos_ids: tuple[int, ...]) -> Requests:
        return Requests(llm, stops, eos_ids)

    def _shards(self, mine: dict[str, Shard]) -> Sequence[dict[str, Shard]]:
        return [mine]

    def _ready(self) -> _Running:
        if self._broken is not None:
            raise RunError(
                f"engine vllm is out of order since: {self._broken}",
                remedy="rlvr run --resume goes on from the last checkpoint",
            )
        if self._running is None:
            raise RuntimeError("engine vllm is not started")
        if self._running.asleep:
            raise RuntimeError("engine vllm is asleep: wake it first")
        return self._running

    @contextmanager
    def _working(self, running: _Running, failed: str, *, breaks: bool = False) -> Iterator[None]:
        """Leave random states alone in the block; the engine is out of order if vLLM fails in it.

        Args:
            running: The engine.
            failed: What has failed then, for the message.
            breaks: Whether errors of this package put it out of order too.

        Raises:
            RunError: If vLLM failed.
        """
        try:
            with untouched_randomness():
                yield
        except RlvrError as error:
            if breaks:
                self._break(running, error.complaints[0].what)
            raise
        except Exception as error:
            raise self._break(running, f"{failed}: {one_line(error)}") from error

    def _break(self, running: _Running, what: str) -> RunError:
        self._broken = what
        error = RunError(what, remedy=VERBOSE)
        running.queue.fail(error)
        return error
