"""The public face of rlvr: types, protocols, hooks and errors that a plugin imports.

Importing it loads nothing else: each name is imported from its home when it is first used. What is
promised of these names stands in ``docs/plugins.md``; services of the kernel are in
``rlvr_core.api.services``.
"""

from rlvr_core.api.lazy import face

_HOMES = {
    "api.completions": "Completion Done Ended FinishReason Observation Reply Transcript Turn",
    "api.components": (
        "ComponentConfig EvalTask Guard Kind Metric Names NoConfig Registrar Reporter TrackedRun "
        "Tracker config_class"
    ),
    "api.engines": (
        "Adapter BackgroundEngine Engine EngineContext FingerprintsWeights Generation "
        "Interruptible ReportsMetrics ScoreRequest Scorer Scores WeightSource WrapsEngine"
    ),
    "api.errors": (
        "ChangedError Complaint ConfigError DataError IdleError MachineError PluginError "
        "RefusedError RlvrError RunError"
    ),
    "api.forward": "ForwardPath ForwardPathFactory MicroBatch ModelAdapter",
    "api.guards": "BindsToRun GuardContext LooksBeforeRun StepView",
    "api.hooks": (
        "API_VERSION CheckpointSaved DataReport EvalFinished Finding GroupsScored RunData "
        "RunFinished RunStarted StepFinished hookimpl"
    ),
    "api.judging": (
        "ChecksProblems ClosesConversations DatasetLoader Demonstrator Environment GivesGold "
        "GroupVerifier JudgesUnfinished LimitsTime NeedsCalibration PresentsProblems Sampler "
        "Source Verifier"
    ),
    "api.launching": (
        "CountsBytes EvaluatedBeside ExternalAnswer ExternalTask JobLauncher JobState JobStatus "
        "LaunchPlan LaunchRequest Launcher ModelAccess Reference ResumesJobs Store StoredFile"
    ),
    "api.learning": (
        "AdvantageEstimator AdvantageOutput JudgedStep Loss LossBatch LossComputed LossOutput "
        "Normalizer OptimizerBuilder Schedule StepObserver TrainedParameter"
    ),
    "api.problems": (
        "Draw Drop Extend Fate GenerationRequest Json Keep Message Outcome Problem Prompt REMOTE "
        "SamplingParams"
    ),
    "api.rollouts": "EvalReport Group Judged",
    "api.traits": (
        "AdvantageTraits AnswersTraits EngineTraits EntropyTraits EvalTaskTraits LauncherTraits "
        "LossTraits OptimizerTraits SamplerTraits TeacherTraits Traits TransportTraits "
        "VerifierTraits traits_of"
    ),
    "api.transport": (
        "NamedTensors OutgoingWeights TensorMeta TransportChoice TransportLink WeightTransport"
    ),
    "api.verdicts": "Estimate Span Usage Verdict VerdictStatus",
    "builtin.bridges.public": "lm_eval_metric trl_reward verifiers_environment",
    "builtin.conformance.example": "Example ShowsExample",
    "builtin.environments.traits": "EnvironmentTraits",
    "builtin.environments.tools": "BadCall Tool ToolCall ToolFormat spoken tool_format",
    "builtin.evals.view": "EvaluationView",
    "builtin.samplers.base": "SamplerBase SamplerConfig",
    "record.view": "RunView",
}

__getattr__, __dir__, __all__ = face(__name__, _HOMES)
