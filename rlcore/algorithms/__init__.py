"""Algorithms: a policy graph and how its optimizer is set up; one short file each."""

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.ppo import PPO

__all__ = ["ALGORITHMS", "PPO", "Algorithm"]

ALGORITHMS: dict[str, Algorithm] = {"PPO": PPO}
"""By the name that a manifest uses; names, hyper-parameters and allowed optimizers are declared in rlcore.api."""
