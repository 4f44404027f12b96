"""The RLJob API: one set of models for the CRD, for `kubectl explain` and for validation on any machine."""

from rlcore.api.algorithms import ALGORITHMS, AlgorithmConfig, AlgorithmInfo, PPOConfig
from rlcore.api.checkpoint import CheckpointSpec, StorageSpec
from rlcore.api.environment import AtariSpec, EnvironmentSpec
from rlcore.api.evaluators import EvaluatorPool, EvaluatorsSpec
from rlcore.api.load import load_job, parse_job
from rlcore.api.model import ConvLayer, ModelSpec
from rlcore.api.multi_agent import MultiAgentSpec, PolicySpec, SelfPlaySpec
from rlcore.api.pods import ResourceSpec
from rlcore.api.pool_sizes import PoolLimits, fill_order, limits_of, spread
from rlcore.api.rljob import ObjectMeta, RLJob
from rlcore.api.schedule import SchedulePoint, schedule_value
from rlcore.api.spec import RLJobSpec
from rlcore.api.stop import EvaluationSpec, StopSpec
from rlcore.api.trainers import HeadSpec, LearnerSpec
from rlcore.errors import ManifestError

__all__ = [
    "ALGORITHMS",
    "AlgorithmConfig",
    "AlgorithmInfo",
    "AtariSpec",
    "CheckpointSpec",
    "ConvLayer",
    "EnvironmentSpec",
    "EvaluationSpec",
    "EvaluatorPool",
    "EvaluatorsSpec",
    "HeadSpec",
    "LearnerSpec",
    "ManifestError",
    "ModelSpec",
    "MultiAgentSpec",
    "ObjectMeta",
    "PPOConfig",
    "PolicySpec",
    "PoolLimits",
    "RLJob",
    "RLJobSpec",
    "ResourceSpec",
    "SchedulePoint",
    "SelfPlaySpec",
    "StopSpec",
    "StorageSpec",
    "fill_order",
    "limits_of",
    "load_job",
    "parse_job",
    "schedule_value",
    "spread",
]
