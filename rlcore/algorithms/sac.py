"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import check_replay, replay_settings
from rlcore.policy.sac import SACPolicyGraph

SAC = Algorithm(graph=SACPolicyGraph, optimizer_config=replay_settings, check=check_replay)
