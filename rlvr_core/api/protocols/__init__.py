"""What a component of each kind must be able to do.

A component is any class with a nested pydantic ``Config`` whose constructor takes an instance of
it. Nothing here needs to be inherited from, save ``ComponentConfig``. Torch appears in
annotations only, so that a plugin module stays cheap to import.

Import from here: in which file a contract stands is no contract.
"""

from rlvr_core.api.protocols.advantage import AdvantageEstimator, AdvantageOutput, JudgedStep
from rlvr_core.api.protocols.component import ComponentConfig, Kind, Names, NoConfig, config_class
from rlvr_core.api.protocols.conversations import Conversations, Suffix
from rlvr_core.api.protocols.data import DatasetLoader, Demonstrator, Sampler, Source
from rlvr_core.api.protocols.engine import (
    Adapter,
    BackgroundEngine,
    Engine,
    EngineContext,
    Generation,
    Interruptible,
    ReportsMetrics,
    Scorer,
    ScoreRequest,
    Scores,
    WeightSource,
)
from rlvr_core.api.protocols.external_task import (
    ExternalAnswer,
    ExternalTask,
    ModelAccess,
    refuse_external,
)
from rlvr_core.api.protocols.forward import (
    Decoder,
    FastModel,
    ForwardPath,
    PackedAttention,
    PackedTokens,
)
from rlvr_core.api.protocols.judging import Environment, Verifier
from rlvr_core.api.protocols.launch import (
    EvaluatedBeside,
    JobLauncher,
    JobState,
    JobStatus,
    Launcher,
    LaunchPlan,
    LaunchRequest,
    Reference,
)
from rlvr_core.api.protocols.loss import Loss, LossBatch, LossOutput, Normalizer
from rlvr_core.api.protocols.model_adapter import ModelAdapter
from rlvr_core.api.protocols.optimizing import OptimizerBuilder, Schedule, TrainedParameter
from rlvr_core.api.protocols.rollouts import RolloutSource
from rlvr_core.api.protocols.store import Store, StoredFile
from rlvr_core.api.protocols.tracking import TrackedRun, Tracker
from rlvr_core.api.protocols.watching import EvalTask, Guard, Stateful

__all__ = [
    "Adapter",
    "AdvantageEstimator",
    "AdvantageOutput",
    "BackgroundEngine",
    "ComponentConfig",
    "Conversations",
    "DatasetLoader",
    "Decoder",
    "Demonstrator",
    "Engine",
    "EngineContext",
    "Environment",
    "EvalTask",
    "EvaluatedBeside",
    "ExternalAnswer",
    "ExternalTask",
    "FastModel",
    "ForwardPath",
    "Generation",
    "Guard",
    "Interruptible",
    "JobLauncher",
    "JobState",
    "JobStatus",
    "JudgedStep",
    "Kind",
    "LaunchPlan",
    "LaunchRequest",
    "Launcher",
    "Loss",
    "LossBatch",
    "LossOutput",
    "ModelAccess",
    "ModelAdapter",
    "Names",
    "NoConfig",
    "Normalizer",
    "OptimizerBuilder",
    "PackedAttention",
    "PackedTokens",
    "Reference",
    "ReportsMetrics",
    "RolloutSource",
    "Sampler",
    "Schedule",
    "ScoreRequest",
    "Scorer",
    "Scores",
    "Source",
    "Stateful",
    "Store",
    "StoredFile",
    "Suffix",
    "TrackedRun",
    "Tracker",
    "TrainedParameter",
    "Verifier",
    "WeightSource",
    "config_class",
    "refuse_external",
]
