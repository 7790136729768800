"""What may be asked of a component beyond its protocol: one frozen dataclass of traits per kind.

A component states its traits as a class attribute, and one that leaves it out has the defaults::

    class MyEngine:
        traits = EngineTraits(continuous=True)

A trait that depends on options is set on the instance, in the constructor
(``self.traits = SamplerTraits(max_reads=config.max_reads)``). A trait that is needed before the
component is made, which its field says, is read from the class and cannot depend on options.

Whether a component has an optional *method* is no trait: that is a protocol of its own, such as
``Scorer``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

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
        takes_turns: Of one that is ``text_only``: whether it wants a chat; otherwise one turn
            that holds the whole raw text.
    """

    continuous: bool = False
    own_weights: bool = False
    separate: bool = False
    elsewhere: bool = False
    text_only: bool = False
    takes_adapter: bool = False
    takes_turns: bool = True


@dataclass(frozen=True, slots=True)
class LossTraits(Traits):
    """Traits of a loss.

    Attributes:
        compares_group: Compares the completions of one problem with each other, so that a group
            needs at least two. Read from the class.
        demonstrations: Learns from given answers, not from completions. Read from the class.
        needs_old: Reads ``old_logp_BT``, which costs a forward pass in a step of several updates.
    """

    compares_group: bool = False
    demonstrations: bool = False
    needs_old: bool = True


@dataclass(frozen=True, slots=True)
class SamplerTraits(Traits):
    """Traits of a sampler.

    Attributes:
        max_reads: Most steps in which a group that it keeps is trained on. With
            ``train.max_staleness`` generation runs the less far ahead.
    """

    max_reads: int = 1


@dataclass(frozen=True, slots=True)
class VerifierTraits(Traits):
    """Traits of a verifier.

    Attributes:
        reward_range: Lowest and highest score; a score outside is an error of the verifier. None:
            any score.
        beside: Options that change no verdict, such as a price. An evaluation records them beside
            its specification, not in it.
    """

    reward_range: tuple[float, float] | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EvalTaskTraits(Traits):
    """Traits of an evaluation task.

    Attributes:
        graders: Verifiers that judge every completion beside the problems' own, as a second
            opinion on the extraction of answers.
    """

    graders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LauncherTraits(Traits):
    """Traits of a launcher.

    Attributes:
        elsewhere: Its machines do not have this one's files. The config is then searched for
            secrets before the launcher makes its plan.
        evaluates: Can evaluate models, as ``rlvr launch --eval`` asks.
        evaluates_beside: Can evaluate checkpoints beside the training, as ``--eval-config`` asks.
    """

    elsewhere: bool = False
    evaluates: bool = False
    evaluates_beside: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerTraits(Traits):
    """Traits of an optimizer.

    Attributes:
        elementwise: Updates each element of a parameter from that element's own gradient and
            state alone. Only such an optimizer can work on the shards of FSDP2.
    """

    elementwise: bool = False


T = TypeVar("T", bound=Traits)


def traits_of(component: object, kind: type[T]) -> T:
    """The traits of a component, or of its class; the defaults where it states none.

    Args:
        component: The component or its class.
        kind: The traits of its kind, such as ``EngineTraits``.

    Raises:
        PluginError: If ``traits`` is something else than ``kind``.
    """
    found = getattr(component, "traits", None)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        cls = component if isinstance(component, type) else type(component)
        raise PluginError(
            f"traits of {cls.__module__}:{cls.__qualname__} are {found!r}, not {kind.__name__}",
            remedy=f"write traits = {kind.__name__}(...), from rlvr_core.api",
        )
    return found
