"""What the kernel does for plugins: rendering, verifying, reading data, files of a run.

Names here are promised like those of ``rlvr_core.api``, but may change in a minor version. Each is
imported from its home when it is first used; the kernel itself never imports this module.
"""

from rlvr_core.api.lazy import face

_HOMES = {
    "api.judging": "replacements",
    "api.launching": "refuse_external",
    "api.rollouts": "Ages Conversations REWARD_TOLERANCE RolloutSource Rollouts Sampled Suffix",
    "api.watching": "RunObserver Stateful",
    "builtin.datasets.hub": "hub_rows",
    "builtin.environments.questions": "Questions response",
    "builtin.evals.config": "Asked read_eval_config",
    "builtin.evals.model_ref": "find_model",
    "builtin.evals.stats": "estimate",
    "builtin.jobs.again": "fetch_newest fetch_results send_results unsent",
    "builtin.jobs.jobs": "Job JobBook",
    "builtin.jobs.secrets": "secrets_in secrets_in_words",
    "builtin.jobs.staging": "Layout overrides",
    "builtin.lora.adapter": "write_adapter",
    "builtin.lora.export": "is_adapter write_merged",
    "builtin.packing.joined_attention": "JoinedMask",
    "builtin.packing.packed": "PackedTokens pack",
    "builtin.python.train": "option plain signals_restored",
    "builtin.reports.find": "find_run",
    "builtin.reports.liveness": "is_alive",
    "builtin.vllm.choice": "choose_engine",
    "cli.display": "Display",
    "cli.output": "console is_terminal print_json print_line print_table",
    "config.load": "LoadedConfig load_config",
    "config.model": "ComponentRef RunConfig",
    "config.resolve": "Resolved build parse_options resolve_file",
    "config.tree": "AUTO COMPONENTS Loc Mark Node dotted kind_at pattern shown",
    "data.json_rows": "MAX_INT_DIGITS parse_rows read_rows",
    "data.load": "audit is_heldout problems_given",
    "data.prompts": "Renderer",
    "data.uri": "cache_folder local_path",
    "engines.stop": "StopStrings",
    "engines.sync": (
        "PROBE_TOKENS check_probe has_trainer probe_prompt shared_prefix source_logprobs "
        "trainer_logprobs"
    ),
    "engines.transformers": "eos_ids",
    "engines.transport": "ChosenTransport",
    "host.discovery": "CORE FIRST_PARTY canonical find_plugins",
    "host.files": "siblings source_of",
    "host.host": "Host load_host",
    "host.loader": "PluginRecord describe",
    "host.origin": "FILE_PREFIX of_error",
    "host.registry": "Entry KINDS Registry kind_words parse_kind plural",
    "parallel.ranks": "LostError Ranks apart fault_of",
    "record.checkpoints": "CheckpointStore",
    "record.files": "write_atomic",
    "record.jsonl": "encode read_jsonl tail_jsonl",
    "record.ledger": "FATES",
    "record.manifest": "Manifest",
    "record.rows": "usage_row verdict_row",
    "record.rundir": "RunFolder looks_like_run",
    "record.text": "Redactor brief printable",
    "rollout.collect": "Answered Generator Judgement joined outcome_of",
    "rollout.replay": "Reading ReplayBuffer member_of",
    "rollout.source": "SourceParts conversations_of sampler_metrics",
    "run.evaluations": "Evaluation",
    "step.batch": "Row micro_batches",
    "step.demonstrations": "Demonstrations load_answers",
    "step.forward": "whole_rows",
    "step.model": "load_reference load_tokenizer",
    "step.model_path": "check_model_path",
    "step.optim": "AdamWConfig",
    "step.teacher": "Teacher check_vocabulary path_of prompt_of",
    "verify.judge": "Judge",
    "verify.reward": "outcome",
    "workers.pool": "VerifierPool VerifierSpec",
}

__getattr__, __dir__, __all__ = face(__name__, _HOMES)
