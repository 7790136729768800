"""The plugin ``core``: what comes with rlvr itself, registered as any plugin does it.

Targets are strings, so that listing the built-ins imports none of them. Add a component by adding
one line to the function of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from pathlib import Path

    from rlvr_core.api import Registrar


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Dataset loaders that know no domain."""
    registrar.add(
        "jsonl",
        "rlvr_core.data.jsonl:JsonLines",
        summary="Problems from a file of JSON objects, gzipped or not.",
    )
    registrar.add(
        "csv",
        "rlvr_core.data.tables:Csv",
        summary="Problems from a table of text, gzipped or not.",
    )
    registrar.add(
        "parquet",
        "rlvr_core.data.tables:Parquet",
        summary="Problems from a Parquet file.",
    )
    registrar.add(
        "folder",
        "rlvr_core.data.tables:Folder",
        summary="Problems from a folder of JSON, CSV or Parquet files, or a saved data set.",
    )
    registrar.add(
        "hub",
        "rlvr_core.data.hub:Hub",
        summary="Problems from a data set on the Hugging Face hub.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Verifiers that know no domain."""
    registrar.add(
        "exact",
        "rlvr_core.verify.exact:Exact",
        summary="The whole completion must be the answer.",
    )
    registrar.add(
        "overlong",
        "rlvr_core.verify.overlong:Overlong",
        summary="DAPO's soft penalty on completions near the token cap; goes beside another.",
    )


@hookimpl
def register_losses(registrar: Registrar) -> None:
    """The policy-gradient family, and learning from given answers."""
    registrar.add(
        "grpo",
        "rlvr_core.losses:GRPO",
        summary="Clipped surrogate; every completion counts the same.",
    )
    registrar.add(
        "dapo",
        "rlvr_core.losses:DAPO",
        summary="Range wider above 1 than below; every loss token of the step counts the same.",
    )
    registrar.add(
        "dr_grpo",
        "rlvr_core.losses:DrGRPO",
        summary="Rewards only centred, sums divided by a constant: no length or difficulty bias.",
    )
    registrar.add(
        "gspo",
        "rlvr_core.losses:GSPO",
        summary="Clips the ratio of whole completions.",
    )
    registrar.add(
        "sft",
        "rlvr_core.losses:SFT",
        summary="Likelihood of given answers: a warm start, or one term beside others.",
    )


@hookimpl
def register_advantages(registrar: Registrar) -> None:
    """Published estimators."""
    registrar.add(
        "group",
        "rlvr_core.advantages:Group",
        summary="GRPO: (R - mean) / std of the group.",
    )
    registrar.add(
        "center",
        "rlvr_core.advantages:Center",
        summary="Dr. GRPO: R - mean of the group.",
    )
    registrar.add(
        "batch",
        "rlvr_core.advantages:Batch",
        summary="(R - mean of the group) / std of all rewards of the step.",
    )
    registrar.add(
        "rloo",
        "rlvr_core.advantages:Rloo",
        summary="R - mean of the others in the group.",
    )
    registrar.add(
        "group_std_ddof1",
        "rlvr_core.advantages:GroupStdDdof1",
        summary="(R - mean) / std of the group, with the sample standard deviation, as in TRL.",
    )


@hookimpl
def register_samplers(registrar: Registrar) -> None:
    """Ways to choose problems."""
    registrar.add(
        "shuffle",
        "rlvr_core.rollout.samplers.epochs:Shuffle",
        summary="Each problem once per epoch, in an order that the seed decides.",
    )
    registrar.add(
        "sequential",
        "rlvr_core.rollout.samplers.epochs:Sequential",
        summary="Each problem once per epoch, in the order of the data.",
    )
    registrar.add(
        "curriculum",
        "rlvr_core.rollout.samplers.curriculum:Curriculum",
        summary="The problems of an order file, in its order.",
    )
    registrar.add(
        "mixture",
        "rlvr_core.rollout.samplers.mixture:Mixture",
        summary="Several sources, each in its own order, by weight or one after the other.",
    )
    registrar.add(
        "difficulty",
        "rlvr_core.rollout.samplers.difficulty:Difficulty",
        summary="By recent pass rate: what can teach now, in tiers that are phased in.",
    )


@hookimpl
def register_engines(registrar: Registrar) -> None:
    """Ways to generate text."""
    registrar.add(
        "transformers",
        "rlvr_core.engines.transformers:TransformersEngine",
        summary="In process on the trainer's own weights; for tiny models and tests.",
    )
    registrar.add(
        "scripted",
        "rlvr_core.engines.scripted:ScriptedEngine",
        summary="Says what its config tells it to; for tests of everything around an engine.",
    )
    registrar.add(
        "vllm",
        "rlvr_core.engines.vllm.engine:VllmEngine",
        summary="vLLM in the trainer's process; for all but tiny models, on a GPU or a CPU.",
    )


@hookimpl
def register_launchers(registrar: Registrar) -> None:
    """Ways to run on more than one process."""
    registrar.add(
        "local",
        "rlvr_core.launch.local:LocalLauncher",
        summary="Several processes on this machine.",
    )
    registrar.add(
        "accelerate",
        "rlvr_core.launch.accelerate:AccelerateLauncher",
        summary="Processes on several machines; the command is given on each.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Evaluation tasks that know no domain."""
    registrar.add(
        "dataset",
        "rlvr_core.eval.dataset_task:DatasetTask",
        summary="The problems of any data set: pass rates and order files of training data.",
    )


@hookimpl
def register_forward_paths(registrar: Registrar) -> None:
    """Faster ways to compute a model than each row whole and padded."""
    registrar.add(
        "packed",
        "rlvr_core.packing.packed:find_packed",
        summary="All rows as one sequence without padding, each prompt once.",
    )
    registrar.add(
        "context-parallel",
        "rlvr_core.packing.context:find_context",
        summary="Packed rows split over processes; train.context_parallel takes it by itself.",
    )


@hookimpl
def register_optimizers(registrar: Registrar) -> None:
    """What updates the weights."""
    registrar.add(
        "adamw",
        "rlvr_core.step.optim:AdamW",
        summary="Adam with decoupled weight decay.",
    )


@hookimpl
def register_schedules(registrar: Registrar) -> None:
    """How the learning rate goes on after the warm-up."""
    registrar.add(
        "constant",
        "rlvr_core.step.optim:Constant",
        summary="The peak learning rate throughout.",
    )
    registrar.add(
        "linear",
        "rlvr_core.step.schedules:Linear",
        summary="Down in a straight line.",
    )
    registrar.add(
        "cosine",
        "rlvr_core.step.schedules:Cosine",
        summary="Down along half a cosine wave.",
    )
    registrar.add(
        "wsd",
        "rlvr_core.step.schedules:WSD",
        summary="Constant, then down in a straight line over the last steps.",
    )


@hookimpl
def register_trackers(registrar: Registrar) -> None:
    """Where a run's metrics are shown, beside its own metrics.jsonl."""
    registrar.add(
        "jsonl",
        "rlvr_core.record.trackers.jsonl:JsonLines",
        summary="A line of JSON a step, in a file of your choice.",
    )
    registrar.add(
        "tensorboard",
        "rlvr_core.record.trackers.tensorboard:TensorBoard",
        summary="Event files in the run's folder.",
    )
    registrar.add(
        "wandb",
        "rlvr_core.record.trackers.wandb:Wandb",
        summary="Weights & Biases, online or in offline files.",
    )


@hookimpl
def register_transports(registrar: Registrar) -> None:
    """How weights reach an engine in other processes."""
    registrar.add(
        "cuda-ipc",
        "rlvr_core.engines.child.cuda_ipc:CudaIpc",
        summary="Memory of the GPU that trainer and engine share; the engine has its own process.",
    )
    registrar.add(
        "files",
        "rlvr_core.engines.vllm.files:Files",
        summary="Files that the engine reads, in shared memory or a folder.",
    )


@hookimpl
def register_guards(registrar: Registrar) -> None:
    """Guards; all but ``shadow`` are on by default (``rlvr_core.config.guards``)."""
    registrar.add(
        "watchdog",
        "rlvr_core.guards.watchdog:Watchdog",
        summary="Ends a run that waits too long for something.",
    )
    registrar.add(
        "preflight",
        "rlvr_core.guards.preflight:Preflight",
        summary="Tries gold and wrong answers on the verifiers before a run.",
    )
    registrar.add(
        "resume",
        "rlvr_core.guards.resume:Resume",
        summary="Compares what a resumed run goes on with to what it had.",
    )
    registrar.add(
        "completions",
        "rlvr_core.guards.completions:Completions",
        summary="Holds text, ending and version of completions against their tokens.",
    )
    registrar.add(
        "parity",
        "rlvr_core.guards.parity:Parity",
        summary="Compares log-probs of trainer and engine in every step.",
    )
    registrar.add(
        "tokens",
        "rlvr_core.guards.tokens:Tokens",
        summary="Counts that each sampled token is trained on once, and no other.",
    )
    registrar.add(
        "advantages",
        "rlvr_core.guards.advantages:Advantages",
        summary="Computes advantages again by plain formulas.",
    )
    registrar.add(
        "kl",
        "rlvr_core.guards.kl:Kl",
        summary="Checks the reference of the KL term.",
    )
    registrar.add(
        "loss",
        "rlvr_core.guards.loss:LossValues",
        summary="Computes losses and their gradients again by their formulas.",
    )
    registrar.add(
        "updates",
        "rlvr_core.guards.updates:Updates",
        summary="Checks that every trained tensor gets a gradient and moves.",
    )
    registrar.add(
        "optimizer",
        "rlvr_core.guards.optimizer:OptimizerUpdates",
        summary="Computes updates of a sample of weights again.",
    )
    registrar.add(
        "sync",
        "rlvr_core.guards.sync:Sync",
        summary="Reads back the weights that the engine computes with.",
    )
    registrar.add(
        "seeds",
        "rlvr_core.guards.seeds:Seeds",
        summary="Compares repeated completions with their probability.",
    )
    registrar.add(
        "canaries",
        "rlvr_core.guards.canaries:Canaries",
        summary="Judges some completions again.",
    )
    registrar.add(
        "collapse",
        "rlvr_core.guards.collapse:Collapse",
        summary="Stops a run whose rewards, lengths or entropy fall apart.",
    )
    registrar.add(
        "idle",
        "rlvr_core.guards.idle:Idle",
        summary="Ends a run that changes no weights.",
    )
    registrar.add(
        "shadow",
        "rlvr_core.guards.shadow:Shadow",
        summary="How often verifiers of weight 0 disagree with the one that pays.",
    )
    registrar.add(
        "gpu",
        "rlvr_core.guards.gpu:GpuGuard",
        summary="Measures a run on a GPU, and tries its largest micro-batch.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Commands beyond those of the kernel; ``rlvr --help`` lists them in this order."""
    registrar.add(
        "examples",
        "rlvr_core.cli.examples_command:examples_",
        summary="List the examples, and copy one to start from.",
    )
    registrar.add(
        "docs",
        "rlvr_core.cli.manual.command:docs",
        summary="Print a page of the documentation, such as docs/guards.md.",
    )
    registrar.add(
        "show",
        "rlvr_core.cli.show_command:show",
        summary="Show what a run did.",
    )
    registrar.add(
        "config",
        "rlvr_core.cli.config_command:config",
        summary="Check, resolve and explain configs.",
    )
    registrar.add(
        "verify",
        "rlvr_core.cli.verify_command:verify",
        summary="Try a verifier on a file of answers.",
    )
    registrar.add(
        "list",
        "rlvr_core.cli.list_command:list_",
        summary="List datasets, verifiers, losses and the like.",
    )
    registrar.add(
        "plugins",
        "rlvr_core.cli.plugins_command:plugins",
        summary="List and check installed plugins.",
    )
    registrar.add(
        "launch",
        "rlvr_core.launch.command:launch",
        summary="Train on several processes or machines.",
    )
    registrar.add(
        "eval",
        "rlvr_core.eval.command:eval_",
        summary="Evaluate a model or checkpoint on held-out tasks.",
    )


@hookimpl
def locate_model(reference: str) -> Path | None:
    """Make a tiny model."""
    if not reference.startswith("tiny:"):
        return None
    from rlvr_core.plugins.host import load_host
    from rlvr_core.tiny.tiny import resolve_tiny

    return resolve_tiny(reference, load_host())
