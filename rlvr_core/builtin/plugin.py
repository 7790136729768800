"""The plugin ``core``: what comes with rlvr itself, registered as any plugin does it.

Targets are strings, so that listing the built-ins imports none of them. Add a component by adding
one line to the function of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for pydantic
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from rlvr_core.api import DataReport, Loss, Problem, Registrar, RunData, Store
    from rlvr_core.api.launching import RunMirror
    from rlvr_core.api.rollouts import Conversations
    from rlvr_core.config.model import EnvironmentSection
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.config.tree import Loc
    from rlvr_core.data.prompts import Renderer
    from rlvr_core.host.host import Host
    from rlvr_core.step.objective import MakeTeacher
    from rlvr_core.verify.reward import RewardPlan


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Dataset loaders that know no domain."""
    registrar.add(
        "jsonl",
        "rlvr_core.builtin.datasets.jsonl:JsonLines",
        summary="Problems from a file of JSON objects, gzipped or not.",
    )
    registrar.add(
        "csv",
        "rlvr_core.builtin.datasets.tables:Csv",
        summary="Problems from a table of text, gzipped or not.",
    )
    registrar.add(
        "parquet",
        "rlvr_core.builtin.datasets.tables:Parquet",
        summary="Problems from a Parquet file.",
    )
    registrar.add(
        "folder",
        "rlvr_core.builtin.datasets.tables:Folder",
        summary="Problems from a folder of JSON, CSV or Parquet files, or a saved data set.",
    )
    registrar.add(
        "hub",
        "rlvr_core.builtin.datasets.hub:Hub",
        summary="Problems from a data set on the Hugging Face hub.",
    )
    registrar.add(
        "gpqa",
        "rlvr_core.builtin.datasets.choice:Gpqa",
        summary="GPQA: questions of experts in biology, physics and chemistry, four options.",
    )
    registrar.add(
        "mmlu_pro",
        "rlvr_core.builtin.datasets.choice:MmluPro",
        summary="MMLU-Pro: 12,032 questions of 14 subjects, up to ten options.",
    )
    registrar.add(
        "supergpqa",
        "rlvr_core.builtin.datasets.choice:SuperGpqa",
        summary="SuperGPQA: 26,529 questions of 285 fields, up to ten options.",
    )
    registrar.add(
        "lookup",
        "rlvr_core.builtin.environments.lookup:Lookup",
        summary="Generated questions that only a tool can answer; a tiny model learns to call it.",
    )
    registrar.add(
        "verifiers",
        "rlvr_core.builtin.bridges.inside:Rows",
        summary="Rows of an environment of the package verifiers; needs it.",
    )
    registrar.add(
        "commands",
        "rlvr_core.builtin.structured.commands:Commands",
        summary="Generated commands that are wanted as JSON; a tiny model learns to write it.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Verifiers that know no domain."""
    registrar.add(
        "exact",
        "rlvr_core.builtin.verifiers.exact:Exact",
        summary="The whole completion must be the answer.",
    )
    registrar.add(
        "choice",
        "rlvr_core.builtin.choice.verifier:ChoiceVerifier",
        summary="Multiple choice: the answer names the right option, by letter or text.",
    )
    registrar.add(
        "first-of",
        "rlvr_core.builtin.verifiers.first_of:FirstOf",
        summary="A rule first; another verifier only where the rule says no.",
    )
    registrar.add(
        "json",
        "rlvr_core.builtin.structured.json_verifier:JsonVerifier",
        summary="JSON that fits a schema, equals a value, or both.",
    )
    registrar.add(
        "tool-call",
        "rlvr_core.builtin.structured.tool_call:ToolCallVerifier",
        summary="The expected tool calls, in any tool format, compared by value.",
    )
    registrar.add(
        "sql",
        "rlvr_core.builtin.structured.sql:SqlVerifier",
        summary="A SELECT that gives what the reference gives, run in SQLite.",
    )
    registrar.add(
        "judge",
        "rlvr_core.builtin.openai.judge:Judge",
        summary="A language model scores the completion by a rubric.",
    )
    registrar.add(
        "overlong",
        "rlvr_core.builtin.verifiers.overlong:Overlong",
        summary="DAPO's soft penalty on completions near the token cap; goes beside another.",
    )
    registrar.add(
        "degenerate",
        "rlvr_core.builtin.verifiers.degenerate:Degenerate",
        summary="Whether a text repeats itself or is gibberish; goes beside another.",
    )
    registrar.add(
        "environment",
        "rlvr_core.builtin.environments.verdict:EnvironmentVerdict",
        summary="What the environment itself said of a conversation.",
    )
    registrar.add(
        "verifiers",
        "rlvr_core.builtin.bridges.inside:Rubric",
        summary="The rubric of an environment of the package verifiers.",
    )
    registrar.add(
        "verifiers-group",
        "rlvr_core.builtin.bridges.inside:GroupRubric",
        summary="Such a rubric that compares the answers to a problem.",
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
        "gmpo",
        "rlvr_core.builtin.losses.gmpo:GMPO",
        summary="Geometric mean of a completion's clipped ratios.",
    )
    registrar.add(
        "vespo",
        "rlvr_core.builtin.losses.vespo:VESPO",
        summary="One smooth weight a completion, largest near the ratio 1.",
    )
    registrar.add(
        "cispo",
        "rlvr_core.builtin.losses.policy_family:CISPO",
        summary="Bounded ratio as a weight: no token's gradient is ever cut off.",
    )
    registrar.add(
        "sapo",
        "rlvr_core.builtin.losses.policy_family:SAPO",
        summary="A smooth gate on the ratio in the place of a clip.",
    )
    registrar.add(
        "luspo",
        "rlvr_core.builtin.losses.policy_family:LUSPO",
        summary="Clipped surrogate summed over each completion: no discount for long ones.",
    )
    registrar.add(
        "reinforce",
        "rlvr_core.builtin.losses.policy_family:REINFORCE",
        summary="The plain policy gradient; the ratio is a weight of at most 1.",
    )
    registrar.add(
        "gkd",
        "rlvr_core.builtin.distillation.losses:GKD",
        summary="On-policy distillation from a frozen teacher.",
    )
    registrar.add(
        "opsd",
        "rlvr_core.builtin.distillation.losses:OPSD",
        summary="On-policy self-distillation: the policy with a prompt that tells more.",
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
    registrar.add(
        "reinforce_plus_plus",
        "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus",
        summary="REINFORCE++: normalised over the step's tokens, with the KL in the reward.",
    )
    registrar.add(
        "maxrl",
        "rlvr_core.builtin.advantages.outcomes:MaxRL",
        summary="MaxRL: (R - mean) / mean of the group, towards the likelihood of success.",
    )
    registrar.add(
        "pass_at_k",
        "rlvr_core.builtin.advantages.outcomes:PassAtK",
        summary="Maximises the best of k completions instead of the mean.",
    )


@hookimpl
def register_samplers(registrar: Registrar) -> None:
    """Ways to choose problems."""
    registrar.add(
        "shuffle",
        "rlvr_core.builtin.samplers.epochs:Shuffle",
        summary="Each problem once per epoch, in an order that the seed decides.",
    )
    registrar.add(
        "sequential",
        "rlvr_core.builtin.samplers.epochs:Sequential",
        summary="Each problem once per epoch, in the order of the data.",
    )
    registrar.add(
        "curriculum",
        "rlvr_core.builtin.samplers.curriculum:Curriculum",
        summary="The problems of an order file, in its order.",
    )
    registrar.add(
        "mixture",
        "rlvr_core.builtin.samplers.mixture:Mixture",
        summary="Several sources, each in its own order, by weight or one after the other.",
    )
    registrar.add(
        "difficulty",
        "rlvr_core.builtin.samplers.difficulty:Difficulty",
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
        "rlvr_core.builtin.scripted.engine:ScriptedEngine",
        summary="Says what its config tells it to; for tests of everything around an engine.",
    )
    registrar.add(
        "vllm",
        "rlvr_core.builtin.vllm.engine:VllmEngine",
        summary="vLLM in the trainer's process; for all but tiny models, on a GPU or a CPU.",
    )
    registrar.add(
        "vllm-server",
        "rlvr_core.builtin.vllm.server:VllmServerEngine",
        summary="vLLM servers in processes of their own, one or many, on GPUs of their own.",
    )
    registrar.add(
        "ray",
        "rlvr_core.builtin.ray.engine:RayEngine",
        summary="Another engine in actors on the nodes of a Ray cluster, which come and go.",
    )
    registrar.add(
        "openai",
        "rlvr_core.builtin.openai.engine:OpenAIEngine",
        summary="A model behind OpenAI's HTTP interface: evaluates openai:NAME, cannot train.",
    )


@hookimpl
def register_launchers(registrar: Registrar) -> None:
    """Ways to run on more than one process."""
    registrar.add(
        "local",
        "rlvr_core.builtin.jobs.local:LocalLauncher",
        summary="Several processes on this machine.",
    )
    registrar.add(
        "accelerate",
        "rlvr_core.builtin.jobs.accelerate:AccelerateLauncher",
        summary="Processes on several machines; the command is given on each.",
    )
    registrar.add(
        "slurm",
        "rlvr_core.builtin.jobs.slurm:SlurmLauncher",
        summary="A batch job on a Slurm cluster; the command does not wait for it.",
    )
    registrar.add(
        "ray",
        "rlvr_core.builtin.jobs.ray:RayLauncher",
        summary="A job on a Ray cluster, by its job server; the command need not wait for it.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Evaluation tasks that know no domain."""
    registrar.add(
        "dataset",
        "rlvr_core.builtin.evals.dataset_task:DatasetTask",
        summary="The problems of any data set: pass rates and order files of training data.",
    )
    registrar.add(
        "lm_eval",
        "rlvr_core.builtin.lm_eval.task:LmEval",
        summary="A task of lm-evaluation-harness, with its own prompts, through our engines.",
    )
    registrar.add(
        "lookup-heldout",
        "rlvr_core.builtin.environments.lookup:LookupHeldout",
        summary="Unseen lookups of core/lookup, sampled at temperature 1.",
    )
    registrar.add(
        "lookup-heldout-greedy",
        "rlvr_core.builtin.environments.lookup:LookupHeldoutGreedy",
        summary="The same lookups, greedy.",
    )
    registrar.add(
        "commands-heldout",
        "rlvr_core.builtin.structured.commands:CommandsHeldout",
        summary="Unseen commands of core/commands, sampled at temperature 1.",
    )
    registrar.add(
        "commands-heldout-greedy",
        "rlvr_core.builtin.structured.commands:CommandsHeldoutGreedy",
        summary="The same commands, greedy.",
    )


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Environments that know no domain."""
    registrar.add(
        "lookup",
        "rlvr_core.builtin.environments.lookup:LookupWorld",
        summary="A table behind one tool: call it, read the result, answer.",
    )
    registrar.add(
        "verifiers",
        "rlvr_core.builtin.bridges.inside:Conversations",
        summary="Turns and tools of an environment of the package verifiers.",
    )
    registrar.add(
        "remote",
        "rlvr_core.builtin.env_servers.remote:Remote",
        summary="An environment in a server of its own, by WebSocket; see rlvr env serve.",
    )
    registrar.add(
        "mcp",
        "rlvr_core.builtin.env_servers.mcp:Mcp",
        summary="The tools of an MCP server, over stdio or streamable HTTP.",
    )
    registrar.add(
        "openenv",
        "rlvr_core.builtin.env_servers.openenv:OpenEnv",
        summary="An environment that a server of OpenEnv plays.",
    )
    registrar.add(
        "agent",
        "rlvr_core.builtin.agents.environment:Agent",
        summary="An agent program that talks to the model as to OpenAI's; trained by what it asks.",
    )


@hookimpl
def register_verifier_pools(registrar: Registrar) -> None:
    """Places for verifiers beyond this machine."""
    registrar.add(
        "ray-pool",
        "rlvr_core.builtin.ray.verifier_pool:RayVerifierPool",
        summary="In actors on the nodes of a Ray cluster.",
    )


@hookimpl
def register_forward_paths(registrar: Registrar) -> None:
    """Faster ways to compute a model than each row whole and padded."""
    registrar.add(
        "packed",
        "rlvr_core.builtin.packing.packed:find_packed",
        summary="All rows as one sequence without padding, each prompt once.",
    )
    registrar.add(
        "context-parallel",
        "rlvr_core.builtin.packing.context:find_context",
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
    registrar.add(
        "adamw-8bit",
        "rlvr_core.builtin.optimizers.adamw8bit:AdamW8bit",
        summary="AdamW with moments of 8 bits; needs bitsandbytes.",
    )
    registrar.add(
        "muon",
        "rlvr_core.builtin.optimizers.muon:Muon",
        summary="Orthogonalised momentum for hidden matrices, AdamW for the rest.",
    )


@hookimpl
def register_tool_formats(registrar: Registrar) -> None:
    """Ways in which models write tool calls."""
    registrar.add(
        "hermes",
        "rlvr_core.builtin.environments.tool_formats:Hermes",
        summary="JSON in <tool_call> tags, as Hermes and Qwen write it.",
    )
    registrar.add(
        "llama",
        "rlvr_core.builtin.environments.tool_formats:Llama",
        summary="A turn that is JSON, as Llama 3 writes it.",
    )
    registrar.add(
        "python",
        "rlvr_core.builtin.environments.tool_formats:Python",
        summary="A fenced block of Python, as a call of the tool python.",
    )
    registrar.add(
        "pythonic",
        "rlvr_core.builtin.environments.more_formats:Pythonic",
        summary="Calls as Python writes them, [get(key='a')], as Llama 4 does.",
    )
    registrar.add(
        "openai",
        "rlvr_core.builtin.environments.more_formats:OpenAI",
        summary="The tool_calls of OpenAI's interface, with arguments as text, or plain JSON.",
    )
    registrar.add(
        "qwen3-coder",
        "rlvr_core.builtin.environments.more_formats:QwenCoder",
        summary="<function=...> with <parameter=...> in it, as Qwen3-Coder writes it.",
    )
    registrar.add(
        "gpt-oss",
        "rlvr_core.builtin.environments.more_formats:GptOss",
        summary="Harmony's messages to functions, as gpt-oss writes them.",
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
        "rlvr_core.builtin.schedules.decay:Linear",
        summary="Down in a straight line.",
    )
    registrar.add(
        "cosine",
        "rlvr_core.builtin.schedules.decay:Cosine",
        summary="Down along half a cosine wave.",
    )
    registrar.add(
        "wsd",
        "rlvr_core.builtin.schedules.decay:WSD",
        summary="Constant, then down in a straight line over the last steps.",
    )


@hookimpl
def register_trackers(registrar: Registrar) -> None:
    """Where a run's metrics are shown, beside its own metrics.jsonl."""
    registrar.add(
        "jsonl",
        "rlvr_core.builtin.trackers.jsonl:JsonLines",
        summary="A line of JSON a step, in a file of your choice.",
    )
    registrar.add(
        "tensorboard",
        "rlvr_core.builtin.trackers.tensorboard:TensorBoard",
        summary="Event files in the run's folder.",
    )
    registrar.add(
        "wandb",
        "rlvr_core.builtin.trackers.wandb:Wandb",
        summary="Weights & Biases, online or in offline files.",
    )
    registrar.add(
        "trackio",
        "rlvr_core.builtin.trackers.trackio:Trackio",
        summary="Trackio, a dashboard on this machine.",
    )
    registrar.add(
        "mlflow",
        "rlvr_core.builtin.trackers.mlflow:MLflow",
        summary="A tracking server of MLflow, or its files.",
    )


@hookimpl
def register_transports(registrar: Registrar) -> None:
    """How weights reach an engine in other processes."""
    registrar.add(
        "cuda-ipc",
        "rlvr_core.builtin.asynchronous.cuda_ipc:CudaIpc",
        summary="Memory of the GPU that trainer and engine share; the engine has its own process.",
    )
    registrar.add(
        "files",
        "rlvr_core.builtin.vllm.files:Files",
        summary="Files that the engine reads, in shared memory or a folder.",
    )
    registrar.add(
        "nccl",
        "rlvr_core.builtin.vllm.transports:Nccl",
        summary="A broadcast over NCCL to the GPUs of vLLM servers.",
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
        summary="Checks the KL term and its reference.",
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
        summary="Judges known answers and some completions again in every step.",
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
        "rlvr_core.builtin.gpu.guard:GpuGuard",
        summary="Measures a run on a GPU, and tries its largest micro-batch.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Commands beyond those of the kernel; ``rlvr --help`` lists them in this order."""
    registrar.add(
        "examples",
        "rlvr_core.builtin.examples.command:examples_",
        summary="List the examples, and copy one to start from.",
    )
    registrar.add(
        "docs",
        "rlvr_core.builtin.manual.command:docs",
        summary="Print a page of the documentation, such as docs/guards.md.",
    )
    registrar.add(
        "show",
        "rlvr_core.builtin.reports.show:show",
        summary="Show what a run did.",
    )
    registrar.add(
        "report",
        "rlvr_core.builtin.html_report.command:report",
        summary="Write a page of one run, or of several beside each other.",
    )
    registrar.add(
        "view",
        "rlvr_core.builtin.viewer.command:view",
        summary="Browse runs and rollouts in a web browser.",
    )
    registrar.add(
        "config",
        "rlvr_core.builtin.configs.command:config",
        summary="Check, resolve and explain configs.",
    )
    registrar.add(
        "verify",
        "rlvr_core.builtin.verifiers.command:verify",
        summary="Try a verifier on a file of answers.",
    )
    registrar.add(
        "data",
        "rlvr_core.builtin.datacheck.command:data",
        summary="Check task sets.",
    )
    registrar.add(
        "list",
        "rlvr_core.builtin.catalog.list:list_",
        summary="List datasets, verifiers, losses and the like.",
    )
    registrar.add(
        "plugins",
        "rlvr_core.builtin.catalog.plugins:plugins",
        summary="List and check installed plugins.",
    )
    registrar.add(
        "new",
        "rlvr_core.builtin.scaffold.command:new",
        summary="Write the package of a plugin, with tests.",
    )
    registrar.add(
        "models",
        "rlvr_core.builtin.modelcheck.command:models",
        summary="Check a model's files.",
    )
    registrar.add(
        "plan",
        "rlvr_core.builtin.planner.command:plan",
        summary="Say what memory and time a run would take on GPUs.",
    )
    registrar.add(
        "doctor",
        "rlvr_core.builtin.catalog.doctor:doctor",
        summary="Examine a config, or say what this machine has.",
    )
    registrar.add(
        "selftest",
        "rlvr_core.builtin.doctor.command:selftest",
        summary="Test that training works with a config's model and data.",
    )
    registrar.add(
        "launch",
        "rlvr_core.builtin.jobs.commands.launch:launch",
        summary="Train on several processes or machines.",
    )
    registrar.add(
        "sweep",
        "rlvr_core.builtin.sweeps.command:sweep",
        summary="Run one config with other values, and compare the runs.",
    )
    registrar.add(
        "jobs",
        "rlvr_core.builtin.jobs.commands.jobs:jobs",
        summary="Watch, stop and fetch what was launched elsewhere.",
    )
    registrar.add(
        "eval",
        "rlvr_core.builtin.evals.commands.eval:eval_",
        summary="Evaluate a model or checkpoint on held-out tasks.",
    )
    registrar.add(
        "chat",
        "rlvr_core.builtin.chat.command:chat",
        summary="Talk with a model or a run's checkpoint in the terminal.",
    )
    registrar.add(
        "diff",
        "rlvr_core.builtin.provenance.command:diff",
        summary="Say in what two runs differ.",
    )
    registrar.add(
        "compare",
        "rlvr_core.builtin.evals.commands.compare:compare",
        summary="Compare two evaluations problem by problem.",
    )
    registrar.add(
        "passk",
        "rlvr_core.builtin.evals.commands.passk:passk",
        summary="Measure pass@k, and how hard each problem is.",
    )
    registrar.add(
        "regrade",
        "rlvr_core.builtin.evals.commands.regrade:regrade",
        summary="Judge stored completions by another verifier.",
    )
    registrar.add(
        "calibrate",
        "rlvr_core.builtin.calibration.command:calibrate",
        summary="Measure the judges of a config before a run trains on them.",
    )
    registrar.add(
        "watch",
        "rlvr_core.builtin.evals.commands.watch:watch",
        summary="Evaluate checkpoints of a run as they appear.",
    )
    registrar.add(
        "export",
        "rlvr_core.builtin.lora.command:export_",
        summary="Write a checkpoint's model or adapter, merged.",
    )
    registrar.add(
        "env",
        "rlvr_core.builtin.env_servers.command:env",
        summary="Serve environments to runs.",
    )
    registrar.add(
        "tiny-model",
        "rlvr_core.builtin.tiny.command:tiny_model",
        summary="Make a tiny model to try things on.",
    )


@hookimpl
def check_data(data: RunData) -> DataReport | None:
    """Look for held-out problems in the training data, where any are held out."""
    if not data.held_out:
        return None
    from rlvr_core.builtin.evals.trained_on import check_run

    return check_run(data)


@hookimpl
def locate_model(reference: str) -> Path | None:
    """Make a tiny model, or fetch a checkpoint of a run that is kept in a store."""
    if reference.startswith("tiny:"):
        from rlvr_core.builtin.tiny.tiny import resolve_tiny
        from rlvr_core.host.host import load_host

        return resolve_tiny(reference, load_host())
    if "://" in reference and "/checkpoints/step" in reference:
        from rlvr_core.builtin.jobs.fetch import fetch_model

        return fetch_model(reference)
    return None


@hookimpl
def plan_conversations(
    section: EnvironmentSection, problems: Sequence[Problem], host: Host
) -> Conversations:
    """Environments."""
    from rlvr_core.builtin.environments.plan import EnvironmentPlan

    return EnvironmentPlan.build(section, problems, host)


@hookimpl
def make_teachers(
    resolved: Resolved,
    losses: Mapping[Loc, Loss],
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
    problems: Sequence[Problem],
) -> Mapping[Loc, MakeTeacher]:
    """Distillation."""
    from rlvr_core.builtin.distillation.teachers import teachers_of

    return teachers_of(resolved, losses, tokenizer, renderer, problems)


@hookimpl
def mirror_run(
    uri: str, open_store: Callable[[str], Store], keep: int, say: Callable[[str], None]
) -> RunMirror:
    """A copy of the run's folder in a store."""
    from rlvr_core.builtin.jobs.mirror import FolderMirror

    return FolderMirror(uri, open_store, keep, say)


@hookimpl
def calibrate_judges(
    problems: Sequence[Problem], plan: RewardPlan, resolved: Resolved
) -> DataReport:
    """By answers whose right verdict is known."""
    from rlvr_core.builtin.calibration.gate import calibrated

    return calibrated(problems, plan, resolved)


@hookimpl
def choose_checkpointing(resolved: Resolved, model_path: str) -> DataReport:
    """By the planner."""
    from rlvr_core.builtin.planner.checkpointing import choose_for_run

    return choose_for_run(resolved, model_path)


@hookimpl
def open_store(uri: str) -> Store | None:
    """``file://…`` as a store."""
    if uri[:7].lower() != "file://":
        return None
    from rlvr_core.builtin.jobs.folder_store import folder_store

    return folder_store(uri)
