"""MADDPG (Lowe et al. 2017, arXiv 1706.02275)."""

from __future__ import annotations

from rlcore.algorithms.algorithm import Algorithm
from rlcore.algorithms.replay_settings import check_joint_replay, replay_settings
from rlcore.policy.maddpg import MADDPGPolicyGraph

MADDPG = Algorithm(
    graph=MADDPGPolicyGraph, optimizer_config=replay_settings, check=check_joint_replay, joint="withoutState"
)
