"""What the kernel does for plugins: rendering, verifying, reading data, files of a run.

Names here are promised like those of ``rlvr_core.api``, but may change in a minor version. Each is
imported from its home when it is first used; the kernel itself never imports this module.
"""

from rlvr_core.api.lazy import face

_HOMES = {
    "algorithm.estimate": "Estimator judged_step",
    "algorithm.policy": (
        "ClipConfig PolicyConfig PolicyLoss PolicyTerms RatioConfig"
    ),
    "algorithm.ratio": "exp_linear row_mean_log_ratio",
    "algorithm.reduce": "Tally constant row_mean row_sum token_mean",
    "api.components": "RunObserver Stateful declared_metrics",
    "api.judging": "replacements",
    "api.progress": "counting progress work_going_on",
    "api.rollouts": "Ages Conversations REWARD_TOLERANCE RolloutSource Rollouts Sampled Suffix",
    "builtin.asynchronous.prefix": "shared_prefix",
    "builtin.catalog.blame": "faults_named",
    "builtin.conformance.command": "check",
    "builtin.datasets.hub": "hub_rows",
    "builtin.datasets.tables": "file_rows",
    "builtin.demonstrations.demonstrations": "answered load_answers",
    "builtin.environments.observations": "Branched said",
    "builtin.environments.questions": "Questions response",
    "builtin.evals.config": "Asked read_eval_config",
    "builtin.evals.model_ref": "ModelRef find_model runnable",
    "builtin.evals.curves": "answers before_after",
    "builtin.evals.intervals": "wilson",
    "builtin.evals.refused": "refuse_external",
    "builtin.examples.catalog": "find_example",
    "builtin.jobs.again": "fetch_newest fetch_results send_results unsent",
    "builtin.jobs.apart": "apart",
    "builtin.jobs.jobs": "Job JobBook",
    "builtin.jobs.secrets": "secrets_in secrets_in_words",
    "builtin.jobs.staging": "Layout Staged overrides stage walk",
    "builtin.lora.adapter": "write_adapter",
    "builtin.lora.export": "is_adapter write_merged",
    "builtin.provenance.code": "code_hash installed_code package_hash unlike_code",
    "builtin.provenance.lineage": "lineage_lines lineage_of write_lineage",
    "builtin.provenance.model": "model_identity tokenizer_identity",
    "builtin.provenance.user_files": "siblings",
    "builtin.python.train": "check_arguments option plain signals_restored",
    "builtin.replay.buffer": "Reading ReplayBuffer member_of",
    "builtin.reports.find": "find_run list_runs",
    "builtin.vllm.choice": "choose_engine",
    "builtin.vllm.probe": "PROBE_TOKENS check_probe probe_prompt source_logprobs trainer_logprobs",
    "cli": "output",
    "cli.main": "main",
    "cli.output": "console is_terminal print_json print_line print_table quiet_libraries",
    "cli.run": "Display carry_out make_display what_to_run",
    "config.dialect": "read read_option write",
    "config.layers": "assign escape expand",
    "config.load": "Draft LoadedConfig complaints load_config read_draft",
    "config.model": (
        "ComponentRef EarlyStopSection EnvironmentSection Fraction LoraSection ModelSection "
        "Natural Positive PromptSection RewardRef RunConfig SplitSection "
        "VerifySection"
    ),
    "config.resolve": "Resolved build find parse_options plugin_options resolve_file",
    "config.tree": "AUTO COMPONENTS Loc Mark Node dotted kind_at made pattern shown",
    "data.load": (
        "NamedLoader audit check_problems counted fingerprint heldout_part is_heldout "
        "load_sources problems_given"
    ),
    "data.prompts": "Renderer framed raw_text",
    "data.rows": (
        "GZIP_MAGIC JsonRow MAX_INT_DIGITS RowMapping content_id fill parse_rows problems read_rows"
    ),
    "data.uri": "cache_folder cache_uri check_model_path is_uri local_path model_path",
    "engines.forward_paths": "choose_forward_paths",
    "engines.sampling": "StopStrings completion_seed",
    "engines.sync": "evaluating model_state weight_checksums",
    "engines.transformers": "eos_ids",
    "engines.transport": "ChosenTransport",
    "host": "files",
    "host.discovery": "CORE FILE_PREFIX FIRST_PARTY canonical find_plugins of_error",
    "host.host": "Host load_host",
    "host.loader": "PluginRecord RESERVED describe",
    "host.registry": "Entry KINDS NAME Registry kind_words loaded parse_kind plural",
    "parallel": "ranks",
    "parallel.model": "ParallelModel",
    "parallel.model_adapter": "WHOLE_MODEL adapter_of export_config export_weights whole",
    "parallel.ranks": "LOST LostError Ranks ToldElsewhereError fault_of",
    "record.checkpoints": "BEST COMPLETE CheckpointStore LATEST file_fingerprint pointed_at verify",
    "record.files": "lock_folder sync_file sync_folder write_atomic write_failed",
    "record.jsonl": "Stream encode open_segment parse_line read_jsonl segments whole_lines",
    "record.ledger": "FATES",
    "record.manifest": "Manifest hardware versions",
    "record.results": "facts",
    "record.rows": "transcript_row usage_row verdict_row",
    "record.rundir": "RunFolder looks_like_run",
    "record.text": "Redactor brief is_secret printable",
    "record.view": "Metrics finite",
    "rollout.collect": "Answered Generator Judgement joined more_groups outcome_of",
    "rollout.source": "SourceParts TurnSource conversations_of sampler_metrics sampling_of",
    "run.checkpointing": "restore",
    "run.ending": "Stop",
    "run.evaluations": "Evaluation",
    "run.prepare": "Prepared prepare",
    "run.session": "Session",
    "run.start": "start",
    "step.batch": "Row micro_batches",
    "step.forward": "Predicted completion_logprobs predict probe_forward_path whole_rows",
    "step.model": (
        "DTYPES enable_checkpointing load_policy load_reference load_tokenizer max_positions"
    ),
    "step.optim": "AdamWConfig Update trained_parameters",
    "step.timing": "elapsed moment",
    "testing.random_model": "save_random_model",
    "verify.judge": "ErrorRate Judge failure",
    "verify.pool": "VerifierPool VerifierStats percentile",
    "verify.reward": "RewardPlan Term outcome",
    "verify.verdicts": "VerifierSpec from_plain plain_verdict",
    "workers.child": "end_with_parent",
    "workers.pool": "Fault PoolCall ProcessPool",
    "workers.process": "Child ComponentSpec",
}

__getattr__, __dir__, __all__ = face(__name__, _HOMES)
