"""Lists what ``rlvr new`` can write: one entry for each registering hook, one for hooks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """The package of one kind; its files stand in ``templates/<kind>``.

    Attributes:
        noun: The kind in a sentence, with its article.
        does: Function of the written component.
        change: The part that an author changes first.
        needs: Distributions that the module imports, beside ``rlvr-core``.
        shell: Command lines that use it; empty where a configuration does.
        page: The page and section of the documentation.
    """

    noun: str
    does: str
    change: str
    needs: tuple[str, ...] = ()
    shell: str = ""
    page: str = "rlvr docs plugins"


TEMPLATES: Mapping[str, Template] = {
    "dataset": Template(
        "a data set",
        "sums of two numbers, made without any file",
        "`load` yields the problems",
        page="rlvr docs your-data",
    ),
    "verifier": Template(
        "a verifier",
        "the last whole number of a completion must be the answer",
        "`verify` judges a completion",
        page="rlvr docs verifiers",
    ),
    "loss": Template(
        "a loss",
        "REINFORCE, each token of the step counted once",
        "`__call__` computes the loss of a micro-batch",
        page="rlvr docs losses#writing-another",
    ),
    "advantage": Template(
        "an advantage estimator",
        "the reward less the median of its group",
        "`__call__` gives a number for each completion",
        needs=("numpy",),
        page="rlvr docs losses#an-estimator-of-your-own",
    ),
    "sampler": Template(
        "a sampler",
        "problems with short prompts first",
        "`begin` takes the problems, `choose` says which come next",
        page="rlvr docs samplers#your-own",
    ),
    "launcher": Template(
        "a launcher",
        "runs on this machine at low priority",
        "`plan` says what would be started, `submit` starts it",
        shell="rlvr launch config.yaml --backend $name/$name --dry-run",
        page="rlvr docs scale",
    ),
    "eval_task": Template(
        "an evaluation task",
        "sums of two numbers, asked greedily",
        "`problems` gives the problems, `score` the metrics of the answers",
        page="rlvr docs evaluation#a-task-of-your-own",
    ),
    "engine": Template(
        "an engine",
        "draws every token by chance: the score that a model must beat",
        "`submit` answers a request",
        page="rlvr docs engines",
    ),
    "environment": Template(
        "an environment",
        "guess a number, told higher or lower",
        "`start` begins a conversation, `step` answers the model",
        page="rlvr docs environments",
    ),
    "guard": Template(
        "a guard",
        "stops a run whose answers stay too long",
        "`on_groups` and `on_step` look at a step and raise `RunError`",
        page="rlvr docs guards#guards-of-your-own",
    ),
    "tool_format": Template(
        "a tool format",
        "a line `CALL name {arguments}` is a call",
        "`parse` reads calls, `render` writes one",
        page="rlvr docs environments#a-tool-format-of-your-own",
    ),
    "optimizer": Template(
        "an optimizer",
        "gradient descent with momentum",
        "`build` makes a torch optimizer",
        needs=("torch",),
        page="rlvr docs plugins#hooks",
    ),
    "schedule": Template(
        "a schedule of the learning rate",
        "falls with the square root of the progress",
        "`__call__` gives the share of the peak",
        page="rlvr docs plugins#hooks",
    ),
    "tracker": Template(
        "a tracker",
        "a line of text for each step",
        "`metrics` shows the numbers of a step",
        page="rlvr docs plugins#hooks",
    ),
    "transport": Template(
        "a weight transport",
        "weights go through a file in a folder",
        "`send` is called in the trainer's process, `receive` in the engine's",
        needs=("safetensors",),
        page="rlvr docs engines#transports-of-your-own",
    ),
    "command": Template(
        "a command",
        "the step of a run at which a metric was highest",
        "the function is a click command",
        needs=("click",),
        shell="rlvr $name best runs/NAME",
        page="rlvr docs plugins#hooks",
    ),
    "observer": Template(
        "hooks that watch a run",
        "notes when the mean reward first reaches a target",
        "the functions marked with `hookimpl` are called as a run goes on",
        page="rlvr docs plugins#observing",
    ),
}
"""Every kind, by the name that ``rlvr new`` takes."""
