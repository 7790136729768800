"""Engines, which generate text, and the sources of their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from rlvr_core.api.completions import Completion, Transcript
from rlvr_core.api.problems import GenerationRequest, Json
from rlvr_core.api.verdicts import Usage

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.api.transport import TransportChoice


@dataclass(frozen=True, slots=True)
class Generation:
    """One finished answer of an engine; see ``Completion`` for the fields.

    ``loss_mask``, ``transcript`` and ``branches`` are of conversations, which no engine makes by
    itself.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: Literal["stop", "length", "abort", "error"]
    version: int
    usage: Usage | None = None
    loss_mask: tuple[bool, ...] | None = None
    transcript: Transcript | None = None
    token_versions: tuple[int, ...] = ()
    branches: tuple[Completion, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Settings that the trainer passes to an engine at its start.

    Attributes:
        model_path: Folder of the model as transformers loads it.
        model: The trainer's own model; engines in its process may use it, others ignore it.
        tokenizer: The run's tokenizer.
        dtype: Compute precision of the run.
        max_model_len: Longest prompt plus completion, in tokens.
        seed: The run's seed.
        trust_remote_code: Whether code that comes with the model may run.
        adapter_rank: Rank of the LoRA adapter that is trained; None where there is none.
        transport: How weights are to reach an engine whose traits say ``takes_transport``; None
            leaves the choice to it.
    """

    model_path: str
    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    dtype: torch.dtype
    max_model_len: int
    seed: int
    trust_remote_code: bool = False
    adapter_rank: int | None = None
    transport: TransportChoice | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as peft saves it.

    Attributes:
        tensors: Its matrices, whole, by their names in the file.
        config: What goes into ``adapter_config.json``.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Json]


class WeightSource(Protocol):
    """The weights that an engine is to load."""

    @property
    def module(self) -> PreTrainedModel:
        """The trainer's model, for engines that share it.

        In a process of its own, an engine finds its copy here, or None if its traits say
        ``own_weights``: it takes weights by name and holds no model of transformers.
        There is none for such an engine of a ``sharded`` policy either.
        """

    @property
    def sharded(self) -> bool:
        """Whether no process has a whole copy (FSDP): ``module`` is then unavailable.

        ``tensors`` then come layer by layer, and every process has to ask for them.
        """

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield full tensors by Hugging Face name; a tied weight once, adapters merged."""

    def adapter(self) -> Adapter:
        """Return the LoRA adapter alone, in a run that trains one."""


@runtime_checkable
class Engine(Protocol):
    """Generates text.

    Work that needs this process happens in ``drain``; a future may be resolved earlier by
    engines that work on their own.

    Its traits (``EngineTraits``) say what else it can do. In a run of several
    processes each has an engine; one that is ``separate`` finds the GPUs that
    ``rlvr launch --engine-gpus`` keeps for it in ``RLVR_ENGINE_GPUS``.
    """

    def start(self, context: EngineContext) -> None:
        """Load what is needed; called once, before anything else.

        One whose traits say ``text_only`` is started without model and tokenizer. Its requests have
        ``turns`` and no ``prompt_ids``; its generations have ``usage`` and no tokens. It has a
        method ``renderer`` too, as ``rlvr_core.eval.engine.TextEngine`` says.

        Raises:
            MachineError: If this machine lacks what the engine needs.
        """

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; the result has one generation per seed, in order."""

    def drain(self, timeout: float | None = None) -> None:
        """Return when every submitted request is finished.

        Raises:
            RunError: If that took longer than ``timeout`` seconds.
        """

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Take new weights and label what is sampled from now on with ``version``.

        One transaction: on return no cache built under older weights can be used. A
        failure raises and leaves the engine unusable rather than silently old.
        """

    def sleep(self) -> None:
        """Give memory back while the trainer works; no-op where there is none to give."""

    def wake(self) -> None:
        """Undo ``sleep``."""

    def close(self) -> None:
        """Stop; safe to call twice."""


@runtime_checkable
class ReportsMetrics(Protocol):
    """An engine with metrics and messages of its own, such as processes that died."""

    def metrics(self) -> dict[str, float]:
        """Return numbers for the step's metrics, counted since the last call.

        Those of the same name that the engines of several processes have are added up.
        """

    def take_events(self) -> list[str]:
        """Return messages for the user about what happened since the last call."""


@runtime_checkable
class Interruptible(Engine, Protocol):
    """An engine that can be called while it drains, from a callback named ``between``.

    From ``between``, ``load_weights`` may be called with requests unfinished: they go on under the
    new weights, or under the old ones, and are labelled with the version they began under.
    """

    between: Callable[[], None] | None
    """Called between tokens, in the thread that drains; it may call any method but ``drain``."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished; ``drain`` then returns."""


@runtime_checkable
class BackgroundEngine(Engine, Protocol):
    """An engine that generates while this process does something else.

    Its futures are resolved from a thread of its own, and ``drain`` only waits. Any other engine is
    put into a process of its own when generation is to go on while training runs.
    """

    @property
    def in_flight(self) -> frozenset[str]:
        """Supported treatments of unfinished requests at a sync: ``drain``, ``abort``, ``keep``."""

    def begin(self) -> None:
        """Start to generate everything that was submitted, and return at once."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished, before it returns."""


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A given text to be scored behind a given prompt; neither is empty.

    Attributes:
        prompt_ids: What the model is given.
        token_ids: The tokens after the prompt that are scored.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """The log-probs of a given text under a model, token by token.

    Attributes:
        logprobs: Log-prob of each token at temperature 1.
        greedy: Whether greedy decoding would have chosen each token.
    """

    logprobs: tuple[float, ...]
    greedy: tuple[bool, ...]


@runtime_checkable
class Scorer(Protocol):
    """An engine that can also score given text."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """Score texts under the engine's current weights; the result is in their order.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the engine failed.
        """


@runtime_checkable
class FingerprintsWeights(Protocol):
    """An engine that can read back the weights that it computes with."""

    def fingerprint(self) -> dict[str, int]:
        """Return ``weight_checksums`` of them, as they lie where the engine computes.

        Names are those of the plain Hugging Face model, with adapters merged. Engines whose traits
        say ``own_weights`` or ``separate`` round to the run's precision, and may have fused several
        into one (``qkv_proj``, ``gate_up_proj``). The matrices of an adapter beside the base are
        ``LAYER.lora_A.weight`` and, times alpha / rank, ``LAYER.lora_B.weight``.
        What cannot be read is left out.
        """


@runtime_checkable
class WrapsEngine(Protocol):
    """An engine that plays conversations of several turns on another engine, ``wrapped``."""

    wrapped: Engine
