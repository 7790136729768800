"""The plugin ``core``: what comes with rlvr itself, registered as any plugin does it.

Targets are strings, so that listing the built-ins imports none of them. Add a component by adding
one line to the function of its kind.
"""

from __future__ import annotations

from rlvr_core.hookspecs import hookimpl
from rlvr_core.registry import Registrar


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Dataset loaders that know no domain."""
    registrar.add(
        "jsonl",
        "rlvr_core.data.jsonl:JsonLines",
        summary="Problems from a file of JSON objects, gzipped or not.",
    )
    registrar.add(
        "hub",
        "rlvr_core.data.hub:Hub",
        summary="Problems from a data set on the Hugging Face hub.",
    )
    registrar.add(
        "lookup",
        "rlvr_core.environments.lookup:Lookup",
        summary="Generated questions that only a tool can answer; a tiny model learns to call it.",
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
        "judge",
        "rlvr_core.verify.judge:Judge",
        summary="A language model scores the completion by a rubric.",
    )
    registrar.add(
        "overlong",
        "rlvr_core.verify.overlong:Overlong",
        summary="DAPO's soft penalty on completions near the token cap; goes beside another.",
    )
    registrar.add(
        "environment",
        "rlvr_core.verify.environment:EnvironmentVerdict",
        summary="What the environment itself said of a conversation.",
    )


@hookimpl
def register_losses(registrar: Registrar) -> None:
    """The policy-gradient family, and learning from given answers."""
    registrar.add(
        "grpo",
        "rlvr_core.losses.grpo:GRPO",
        summary="Clipped surrogate; every completion counts the same.",
    )
    registrar.add(
        "dapo",
        "rlvr_core.losses.dapo:DAPO",
        summary="Range wider above 1 than below; every loss token of the step counts the same.",
    )
    registrar.add(
        "dr_grpo",
        "rlvr_core.losses.dr_grpo:DrGRPO",
        summary="Rewards only centred, sums divided by a constant: no length or difficulty bias.",
    )
    registrar.add(
        "bnpo",
        "rlvr_core.losses.bnpo:BNPO",
        summary="Averaged by micro-batch, to compare with TRL; depends on how rows are packed.",
    )
    registrar.add(
        "gspo",
        "rlvr_core.losses.gspo:GSPO",
        summary="Clips the ratio of whole completions.",
    )
    registrar.add(
        "gmpo",
        "rlvr_core.losses.gmpo:GMPO",
        summary="Geometric mean of a completion's clipped ratios.",
    )
    registrar.add(
        "vespo",
        "rlvr_core.losses.vespo:VESPO",
        summary="One smooth weight a completion, largest near the ratio 1.",
    )
    registrar.add(
        "cispo",
        "rlvr_core.losses.cispo:CISPO",
        summary="Bounded ratio as a weight: no token's gradient is ever cut off.",
    )
    registrar.add(
        "sapo",
        "rlvr_core.losses.sapo:SAPO",
        summary="A smooth gate on the ratio in the place of a clip.",
    )
    registrar.add(
        "luspo",
        "rlvr_core.losses.luspo:LUSPO",
        summary="Clipped surrogate summed over each completion: no discount for long ones.",
    )
    registrar.add(
        "reinforce",
        "rlvr_core.losses.reinforce:REINFORCE",
        summary="The plain policy gradient; weights of old samples are at most 1.",
    )
    registrar.add(
        "gkd",
        "rlvr_core.losses.distill:GKD",
        summary="On-policy distillation from a frozen teacher.",
    )
    registrar.add(
        "opsd",
        "rlvr_core.losses.distill:OPSD",
        summary="On-policy self-distillation: the policy with a prompt that tells more.",
    )
    registrar.add(
        "sft",
        "rlvr_core.losses.sft:SFT",
        summary="Likelihood of given answers: a warm start, or one term beside others.",
    )


@hookimpl
def register_samplers(registrar: Registrar) -> None:
    """Ways to choose problems."""
    registrar.add(
        "shuffle",
        "rlvr_core.samplers.shuffle:Shuffle",
        summary="Each problem once per epoch, in an order that the seed decides.",
    )
    registrar.add(
        "sequential",
        "rlvr_core.samplers.sequential:Sequential",
        summary="Each problem once per epoch, in the order of the data.",
    )
    registrar.add(
        "curriculum",
        "rlvr_core.samplers.curriculum:Curriculum",
        summary="The problems of an order file, in its order.",
    )
    registrar.add(
        "mixture",
        "rlvr_core.samplers.mixture:Mixture",
        summary="Several sources, each in its own order, by weight or one after the other.",
    )
    registrar.add(
        "difficulty",
        "rlvr_core.samplers.difficulty:Difficulty",
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
        "rlvr_core.engines.vllm:VllmEngine",
        summary="vLLM in the trainer's process; for all but tiny models, on a GPU or a CPU.",
    )
    registrar.add(
        "vllm-server",
        "rlvr_core.engines.vllm_server:VllmServerEngine",
        summary="vLLM servers in processes of their own, one or many, on GPUs of their own.",
    )
    registrar.add(
        "openai",
        "rlvr_core.engines.openai:OpenAIEngine",
        summary="A model behind OpenAI's HTTP interface: evaluates openai:NAME, cannot train.",
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
    registrar.add(
        "slurm",
        "rlvr_core.launch.slurm:SlurmLauncher",
        summary="A batch job on a Slurm cluster; the command does not wait for it.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Evaluation tasks that know no domain."""
    registrar.add(
        "dataset",
        "rlvr_core.evals.dataset_task:DatasetTask",
        summary="The problems of any data set: pass rates and order files of training data.",
    )
    registrar.add(
        "lm_eval",
        "rlvr_core.evals.lm_eval_task:LmEval",
        summary="A task of lm-evaluation-harness, with its own prompts, through our engines.",
    )
    registrar.add(
        "external",
        "rlvr_core.evals.external:External",
        summary="Another harness: a command on the checkpoint that leaves metrics as JSON.",
    )
    registrar.add(
        "lookup-heldout",
        "rlvr_core.environments.lookup:LookupHeldout",
        summary="Unseen lookups of core/lookup, sampled at temperature 1.",
    )
    registrar.add(
        "lookup-heldout-greedy",
        "rlvr_core.environments.lookup:LookupHeldoutGreedy",
        summary="The same lookups, greedy.",
    )


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Environments that know no domain."""
    registrar.add(
        "lookup",
        "rlvr_core.environments.lookup:LookupWorld",
        summary="A table behind one tool: call it, read the result, answer.",
    )


@hookimpl
def register_guards(registrar: Registrar) -> None:
    """Guards that a run asks for; the others are always on."""
    registrar.add(
        "collapse",
        "rlvr_core.guards.collapse:Collapse",
        summary="Stops a run whose rewards, lengths or entropy fall apart.",
    )
