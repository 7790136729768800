"""The plugin ``core``: rlvr's own components, registered as in any plugin.

Targets are strings, so that listing the built-ins imports none of them. Add a component by adding
an entry to the table of its kind: name, target in ``rlvr_core``, summary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import TINY, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from pathlib import Path

    from rlvr_core.api import Registrar


def _registering(
    components: dict[str, tuple[str, str]], rank: Mapping[str, int] | None = None
) -> Callable[[Registrar], None]:
    """Return the implementation of a registering hook."""
    ranks = rank or {}

    @hookimpl
    def register(registrar: Registrar) -> None:
        for name, (target, summary) in components.items():
            registrar.add(name, f"rlvr_core.{target}", summary=summary, rank=ranks.get(name))

    return register


register_datasets = _registering(
    {
        "jsonl": ("data.jsonl:JsonLines", "Problems from a file of JSON objects, gzipped or not."),
        "csv": ("data.tables:Csv", "Problems from a table of text, gzipped or not."),
        "parquet": ("data.tables:Parquet", "Problems from a Parquet file."),
        "folder": ("data.tables:Folder", "Problems from a folder of files, or a saved data set."),
        "hub": ("data.hub:Hub", "Problems from a data set on the Hugging Face hub."),
    }
)
"""Dataset loaders that know no domain."""

register_verifiers = _registering(
    {
        "exact": ("verify.exact:Exact", "The whole completion must be the answer."),
        "overlong": ("verify.overlong:Overlong", "DAPO's soft penalty near the token cap."),
    }
)
"""Verifiers that know no domain."""

register_losses = _registering(
    {
        "grpo": ("losses:GRPO", "Clipped surrogate; every completion counts the same."),
        "dapo": ("losses:DAPO", "Wider range above 1; every loss token counts the same."),
        "dr_grpo": ("losses:DrGRPO", "Sums over a constant: no bias of length or difficulty."),
        "gspo": ("losses:GSPO", "Clips the ratio of whole completions."),
        "sft": ("losses:SFT", "Likelihood of given answers: a warm start, or a further term."),
    }
)
"""The policy-gradient family, and learning from given answers."""

register_advantages = _registering(
    {
        "group": ("advantages:Group", "GRPO: (R - mean) / std of the group."),
        "center": ("advantages:Center", "Dr. GRPO: R - mean of the group."),
        "batch": ("advantages:Batch", "(R - mean of the group) / std of all rewards of the step."),
        "rloo": ("advantages:Rloo", "R - mean of the others in the group."),
        "group_std_ddof1": (
            "advantages:GroupStdDdof1",
            "(R - mean) / sample std of the group, as in TRL.",
        ),
    }
)
"""Published estimators."""

register_samplers = _registering(
    {
        "shuffle": ("rollout.samplers.epochs:Shuffle", "Each problem once per epoch, shuffled."),
        "sequential": ("rollout.samplers.epochs:Sequential", "Each problem once, in order."),
        "curriculum": ("rollout.samplers.curriculum:Curriculum", "The problems of an order file."),
        "mixture": ("rollout.samplers.mixture:Mixture", "Several sources, by weight or in turn."),
        "difficulty": (
            "rollout.samplers.difficulty:Difficulty",
            "What can teach now, by pass rate.",
        ),
    }
)
"""Ways to choose problems."""

register_engines = _registering(
    {
        "transformers": ("engines.transformers:TransformersEngine", "The trainer's own weights."),
        "scripted": (
            "engines.scripted:ScriptedEngine",
            "Says what its config tells it to; for tests.",
        ),
        "vllm": ("engines.vllm.engine:VllmEngine", "vLLM in the trainer's process, on GPU or CPU."),
    }
)
"""Ways to generate text."""

register_launchers = _registering(
    {
        "local": ("launch.local:LocalLauncher", "Several processes on this machine."),
        "accelerate": ("launch.accelerate:AccelerateLauncher", "Processes on several machines."),
    }
)
"""Ways to run on more than one process."""

register_eval_tasks = _registering(
    {
        "dataset": ("eval.dataset_task:DatasetTask", "The problems of any data set."),
    }
)
"""Evaluation tasks that know no domain."""

register_forward_paths = _registering(
    {
        "packed": (
            "packing.packed:find_packed",
            "Rows as one sequence without padding, each prompt once.",
        ),
    }
)
"""Faster ways to compute a model than each row whole and padded."""

register_optimizers = _registering(
    {
        "adamw": ("step.optim:AdamW", "Adam with decoupled weight decay."),
    }
)
"""Optimizers."""

register_schedules = _registering(
    {
        "constant": ("step.optim:Constant", "The peak learning rate throughout."),
        "linear": ("step.schedules:Linear", "Down in a straight line."),
        "cosine": ("step.schedules:Cosine", "Down along half a cosine wave."),
        "wsd": ("step.schedules:WSD", "Constant, then down in a straight line at the end."),
    }
)
"""Schedules of the learning rate after the warm-up."""

register_trackers = _registering(
    {
        "tensorboard": ("record.trackers.tensorboard:TensorBoard", "Event files in the run."),
        "wandb": ("record.trackers.wandb:Wandb", "Weights & Biases, online or in offline files."),
    }
)
"""Trackers, which send a run's metrics to other programs."""

register_transports = _registering(
    {
        "files": ("engines.vllm.files:Files", "Files in shared memory or a folder."),
    }
)
"""Transports of weights to an engine in other processes."""

register_guards = _registering(
    {
        "watchdog": ("guards.watchdog:Watchdog", "Ends a run that waits too long for something."),
        "resume": ("guards.resume:Resume", "Compares a resumed run with what it had."),
        "parity": ("guards.parity:Parity", "Compares log-probs of trainer and engine."),
        "tokens": ("guards.tokens:Tokens", "Counts that each sampled token is trained on once."),
        "updates": (
            "guards.updates:Updates",
            "Checks that trained tensors get a gradient and move.",
        ),
        "sync": ("guards.sync:Sync", "Reads back the weights that the engine computes with."),
        "idle": ("guards.idle:Idle", "Ends a run that changes no weights."),
    },
    rank={
        **{"watchdog": 100, "resume": 300, "parity": 500, "tokens": 600},
        **{"updates": 1000, "sync": 1200, "idle": 1600},
    },
)
"""Guards, which are on by default; those of rlvr-guards look between them."""

register_commands = _registering(
    {
        "examples": ("cli.examples_command:examples_", "List the examples, and copy one."),
        "docs": ("cli.manual.command:docs", "Print a page of the documentation."),
        "show": ("cli.show_command:show", "Show what a run did."),
        "config": ("cli.config_command:config", "Check, resolve and explain configs."),
        "verify": ("cli.verify_command:verify", "Try a verifier on a file of answers."),
        "list": ("cli.list_command:list_", "List datasets, verifiers, losses and the like."),
        "plugins": ("cli.plugins_command:plugins", "List and check installed plugins."),
        "launch": ("launch.command:launch", "Train on several processes or machines."),
        "eval": ("eval.command:eval_", "Evaluate a model or checkpoint on held-out tasks."),
    }
)
"""Commands beyond ``rlvr run``; ``rlvr --help`` lists them in this order."""


@hookimpl
def locate_model(reference: str) -> Path | None:
    """Make a tiny model."""
    if not reference.startswith(TINY):
        return None
    from rlvr_core.plugins.host import load_host
    from rlvr_core.tiny.tiny import resolve_tiny

    return resolve_tiny(reference, load_host())
