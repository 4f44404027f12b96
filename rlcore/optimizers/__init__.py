"""Policy optimizers: one file each, `step()` as in the paper's pseudocode."""

from rlcore.optimizers.allreduce import AllreduceOptimizer
from rlcore.optimizers.async_gradients import AsyncGradientsConfig, AsyncGradientsOptimizer
from rlcore.optimizers.async_replay import AsyncReplayOptimizer
from rlcore.optimizers.async_samples import AsyncSamplesConfig, AsyncSamplesOptimizer
from rlcore.optimizers.evolution import EvolutionConfig, EvolutionOptimizer
from rlcore.optimizers.local_multi_gpu import LocalMultiGPUOptimizer
from rlcore.optimizers.offline_samples import OfflineConfig, OfflineSamplesOptimizer
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer, Progress
from rlcore.optimizers.replay_config import ReplayConfig
from rlcore.optimizers.sharded_parameter_server import ShardedParameterServerOptimizer
from rlcore.optimizers.sync_batch_replay import SyncBatchReplayOptimizer
from rlcore.optimizers.sync_replay import SyncReplayOptimizer
from rlcore.optimizers.sync_samples import SyncSamplesOptimizer

__all__ = [
    "AllreduceOptimizer",
    "AsyncGradientsConfig",
    "AsyncGradientsOptimizer",
    "AsyncReplayOptimizer",
    "AsyncSamplesConfig",
    "AsyncSamplesOptimizer",
    "EvolutionConfig",
    "EvolutionOptimizer",
    "LocalMultiGPUOptimizer",
    "OfflineConfig",
    "OfflineSamplesOptimizer",
    "OptimizerConfig",
    "PolicyOptimizer",
    "Progress",
    "ReplayConfig",
    "ShardedParameterServerOptimizer",
    "SyncBatchReplayOptimizer",
    "SyncReplayOptimizer",
    "SyncSamplesOptimizer",
]

OPTIMIZERS: dict[str, type[PolicyOptimizer]] = {
    "LocalMultiGPU": LocalMultiGPUOptimizer,
    "SyncSamples": SyncSamplesOptimizer,
    "SyncReplay": SyncReplayOptimizer,
    "SyncBatchReplay": SyncBatchReplayOptimizer,
    "AsyncReplay": AsyncReplayOptimizer,
    "AsyncGradients": AsyncGradientsOptimizer,
    "AsyncSamples": AsyncSamplesOptimizer,
    "Evolution": EvolutionOptimizer,
    "OfflineSamples": OfflineSamplesOptimizer,
    "Allreduce": AllreduceOptimizer,
    "ShardedParameterServer": ShardedParameterServerOptimizer,
}
"""By the name that a manifest uses."""
