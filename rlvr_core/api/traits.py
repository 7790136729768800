"""Properties of a component beyond its protocol: one frozen dataclass of traits per kind.

A component states its traits as a class attribute, and one that leaves it out has the
defaults; a loss and an advantage estimator must state theirs::

    class MyEngine:
        traits = EngineTraits(continuous=True)

A trait that depends on options is set on the instance, in the constructor
(``self.traits = SamplerTraits(max_reads=config.max_reads)``). A trait that is needed before the
component is made, which its field says, is read from the class and cannot depend on options.

Whether a component has an optional *method* is no trait: that is a protocol of its own, such as
``Scorer``.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Literal, TypeVar

from rlvr_core.api.errors import PluginError


@dataclass(frozen=True, slots=True)
class Traits:
    """Base of the traits of every kind."""


@dataclass(frozen=True, slots=True)
class EngineTraits(Traits):
    """Traits of an engine.

    Attributes:
        continuous: Accepts a request while ``drain`` works on others, also from a callback of one
            of its futures.
        own_weights: Holds weights of its own, which it takes by name; it needs no model of
            transformers in its process.
        separate: Never touches the trainer's model in this process: its weights are in processes
            of its own making.
        elsewhere: Computes on other machines and leaves the cores of this one to the trainer.
        text_only: Takes text and gives text, no tokens and no log-probs; a run cannot train with
            it. Read from the class.
        takes_adapter: Takes the LoRA adapter alone (``WeightSource.adapter``) and computes it
            beside a base model of its own.
        takes_transport: Its weights reach it by ``EngineContext.transport``; a run that names a
            transport for any other engine is refused.
        takes_turns: Read only with ``text_only``. True: requests carry chat turns. False: a
            single turn with the raw prompt text.
        seeded: Draws each completion by its seed. False for an engine that does not sample
            (``scripted``), which the guard ``seeds`` then skips.
        collective: Several processes of the run share it: ``drain`` and ``score`` then are
            collectives, which each process calls as often as the others, with work or without.
    """

    continuous: bool = False
    own_weights: bool = False
    separate: bool = False
    elsewhere: bool = False
    text_only: bool = False
    takes_adapter: bool = False
    takes_transport: bool = False
    takes_turns: bool = True
    seeded: bool = True
    collective: bool = False


@dataclass(frozen=True, slots=True)
class AnswersTraits:
    """A loss on given answers instead of completions.

    Attributes:
        rows_per_step: Answers of one optimizer step.
        target: Field of a problem's spec that holds the answer; None takes the answers that the
            data set itself demonstrates.
    """

    rows_per_step: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class TeacherTraits:
    """A loss that distils a teacher; exactly one of ``model`` and ``prompt`` is set.

    Attributes:
        top_k: Most likely tokens of the teacher that the batch must hold at each position.
        model: Folder or hub id of a frozen teacher.
        prompt: Template of the prompt that the policy itself is given as its own teacher.
    """

    top_k: int
    model: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class EntropyTraits:
    """Options of the controller that sets the weight of a loss's entropy bonus.

    Attributes:
        target: Mean entropy of the loss tokens to keep, in nats.
        step: Change of the weight after each update.
        min: Least weight.
        max: Largest weight.
        initial: Weight at the beginning.
    """

    target: float
    step: float
    min: float
    max: float
    initial: float


@dataclass(frozen=True, slots=True)
class LossTraits(Traits):
    """The needs of a loss in its batch, and how its batch is made.

    Attributes:
        advantage: Name of the advantage estimator that ``advantage: auto`` takes for this loss;
            None if the loss does not use advantages.
        per_token_advantages: Whether the loss honours ``LossBatch.advantage_BT``. A run whose
            estimator gives one advantage per token refuses a loss that does not.
        needs_reference: Whether the batch must hold the reference model's log-probs.
        needs_old: Whether the loss reads ``old_logp_BT``, which costs a forward pass in a step of
            several updates.
        needs_untruncated: Option that compares the policy with the engine's log-probs and is wrong
            when sampling was truncated by top_p or top_k; None if there is none.
        top_entropy: Share of the step's loss tokens, those of highest entropy, that
            ``entropy_mask_BT`` marks; 1 needs no ``entropy_mask_BT``.
        entropy: The controller of the entropy bonus; None if its weight is constant.
        answers: Set if the loss learns from given answers.
        teacher: Set if the loss distils a teacher.
        kl_estimator: ``k1``, ``k2`` or ``k3`` if the loss adds this estimate of
            KL(policy || reference), recorded as ``kl/mean``; the guard ``kl`` then checks it.
    """

    advantage: str | None = None
    per_token_advantages: bool = False
    needs_reference: bool = False
    needs_old: bool = True
    needs_untruncated: str | None = None
    top_entropy: float = 1.0
    entropy: EntropyTraits | None = None
    answers: AnswersTraits | None = None
    teacher: TeacherTraits | None = None
    kl_estimator: str | None = None


@dataclass(frozen=True, slots=True)
class AdvantageTraits(Traits):
    """The needs and results of an advantage estimator.

    Attributes:
        per_token: Whether it gives one advantage per token instead of one per completion.
        needs_reference_kl: Whether it needs ``JudgedStep.kl_N``, which takes a reference model and
            two more forward passes a step.
        min_completions: Completions per problem below which every advantage would be 0.
    """

    per_token: bool = False
    needs_reference_kl: bool = False
    min_completions: int = 2


@dataclass(frozen=True, slots=True)
class SamplerTraits(Traits):
    """Traits of a sampler.

    Attributes:
        max_reads: Most steps in which a group that it keeps is trained on. With
            ``train.max_staleness`` generation runs the less far ahead.
        max_completions: Most completions of one problem, where their number is not always
            ``sampling.n``; known once it has started.
        refill: Problems drawn in one step to replace dropped groups, at most, as a share of
            ``train.prompts_per_step``.
    """

    max_reads: int = 1
    max_completions: int | None = None
    refill: float = 0.0


@dataclass(frozen=True, slots=True)
class VerifierTraits(Traits):
    """Traits of a verifier.

    Attributes:
        reward_range: Lowest and highest score; a score outside is an error of the verifier. None:
            any score.
        beside: Options that change no verdict, such as a price. An evaluation records them beside
            its specification, not in it.
        repeatable: Gives a completion the same verdict whenever it is asked. One that runs
            programs, or asks a model, cannot promise that.
        decides: Says what is right. A filter of texts, or a price of length, does not: its scores
            are no outcome that another verifier could agree with.
    """

    reward_range: tuple[float, float] | None = None
    beside: tuple[str, ...] = ()
    repeatable: bool = True
    decides: bool = True


@dataclass(frozen=True, slots=True)
class EvalTaskTraits(Traits):
    """Traits of an evaluation task.

    Attributes:
        graders: Verifiers that judge every completion beside the problems' own, as a second
            opinion on the extraction of answers.
    """

    graders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizerTraits(Traits):
    """Traits of an optimizer.

    Attributes:
        elementwise: Updates each element of a parameter from that element's own gradient and
            state alone. Only such an optimizer can work on the shards of FSDP2.
    """

    elementwise: bool = False


@dataclass(frozen=True, slots=True)
class TransportTraits(Traits):
    """Traits of a weight transport.

    Attributes:
        lasting: What was delivered can be received once more until the next ``send`` begins, so
            that a process which is started anew gets the weights it lacks.
    """

    lasting: bool = False


T = TypeVar("T", bound=Traits)


def traits_of(component: object, kind: type[T]) -> T:
    """The traits of a component, or of its class; the defaults where it states none.

    Args:
        component: The component or its class.
        kind: The traits of its kind, such as ``EngineTraits``.

    Raises:
        PluginError: If ``traits`` is something else than ``kind``.
    """
    traits = getattr(component, "traits", None)
    if traits is None:
        return kind()
    if not isinstance(traits, kind):
        cls = component if isinstance(component, type) else type(component)
        raise PluginError(
            f"traits of {cls.__module__}:{cls.__qualname__} are {traits!r}, not {kind.__name__}",
            where=inspect.getfile(cls),
            remedy=f"write traits = {kind.__name__}(...), from rlvr_core.api",
        )
    return traits


@dataclass(frozen=True, slots=True)
class EnvironmentTraits(Traits):
    """Traits of an environment.

    Attributes:
        on_error: What a ``step`` that raises, hangs or dies means. ``end``: the conversation ends
            as failed and is not trained on. ``observe``: the model reads the error in the place of
            a tool's answer and goes on; the state is as before the call.
        role: Who tells the model of such an error.
        error_text: What the model reads of it, with ``{error}`` in the place of what went wrong.
        max_characters: Longer messages of the environment are cut, with a mark that says how much
            is left out.
        asynchronous: Whether ``start``, ``step``, ``cut`` and ``close`` are coroutines. They run
            in an event loop of the run's own process, hundreds at a time, and a state is kept as it
            is: it may hold a connection, and with ``observe`` it is what the failed call left.
        deterministic: Whether problem, seed and replies decide everything that it says, and a call
            has no effect on anything but the state. The guard ``completions`` then plays a few
            conversations of each step again, in the trainer's process, and compares.
    """

    on_error: Literal["end", "observe"] = "end"
    role: Literal["tool", "user"] = "tool"
    error_text: str = "error: {error}"
    max_characters: int = 50_000
    asynchronous: bool = False
    deterministic: bool = False
