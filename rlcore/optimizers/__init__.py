"""Policy optimizers: one file each, `step()` as in the paper's pseudocode."""

from rlcore.optimizers.local_multi_gpu import LocalMultiGPUOptimizer
from rlcore.optimizers.policy_optimizer import OptimizerConfig, PolicyOptimizer, Progress
from rlcore.optimizers.sync_samples import SyncSamplesOptimizer

__all__ = ["LocalMultiGPUOptimizer", "OptimizerConfig", "PolicyOptimizer", "Progress", "SyncSamplesOptimizer"]

OPTIMIZERS: dict[str, type[PolicyOptimizer]] = {
    "LocalMultiGPU": LocalMultiGPUOptimizer,
    "SyncSamples": SyncSamplesOptimizer,
}
"""By the name that a manifest uses."""
